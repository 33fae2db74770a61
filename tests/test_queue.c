/* The queue: order and limit. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/queue.h"
#include "scheduler/session.h"

static struct session a, b, c, d;

static void
first_come_first_served(void **state)
{
	struct queue queue;

	(void)state;
	assert_int_equal(queue_open(&queue, 3), 0);
	for (int round = 0; round < 5; round++) { /* the ring goes round */
		assert_int_equal(queue_push(&queue, &a), 0);
		assert_int_equal(queue_push(&queue, &b), 0);
		assert_ptr_equal(queue_pop(&queue), &a);
		assert_int_equal(queue_push(&queue, &c), 0);
		assert_ptr_equal(queue_pop(&queue), &b);
		assert_ptr_equal(queue_pop(&queue), &c);
		assert_null(queue_pop(&queue));
	}
	queue_close(&queue);
}

static void
a_full_queue_says_so_and_keeps_what_it_has(void **state)
{
	struct queue queue;

	(void)state;
	assert_int_equal(queue_open(&queue, 2), 0);
	assert_int_equal(queue_push(&queue, &a), 0);
	assert_int_equal(queue_push(&queue, &b), 0);
	assert_int_equal(queue_push(&queue, &c), -ENOSPC);
	assert_ptr_equal(queue_pop(&queue), &a);
	assert_int_equal(queue_push(&queue, &c), 0);
	assert_ptr_equal(queue_pop(&queue), &b);
	assert_ptr_equal(queue_pop(&queue), &c);
	queue_close(&queue);
}

static void
one_removed_leaves_the_others_in_order(void **state)
{
	struct queue queue;

	(void)state;
	assert_int_equal(queue_open(&queue, 3), 0);
	queue_push(&queue, &d);
	queue_pop(&queue); /* so that it wraps */
	queue_push(&queue, &a);
	queue_push(&queue, &b);
	queue_push(&queue, &c);
	assert_false(queue_remove(&queue, &d));
	assert_true(queue_remove(&queue, &b));
	assert_int_equal(queue.n, 2);
	assert_ptr_equal(queue_pop(&queue), &a);
	assert_ptr_equal(queue_pop(&queue), &c);
	queue_close(&queue);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(first_come_first_served),
		cmocka_unit_test(a_full_queue_says_so_and_keeps_what_it_has),
		cmocka_unit_test(one_removed_leaves_the_others_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
