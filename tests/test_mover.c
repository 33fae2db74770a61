/* pinner/mover.c: orders and its end. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/attach_stage.h"

/* The desk is still open when the mover has gone: nobody would ever free what came then. */
static void
an_order_that_comes_after_the_stop_is_refused(void **state)
{
	const struct slot_fill move = { 0, 0, 0 };
	struct attach_stage *stage = *state;
	int rc;

	loader_fill_all(stage);
	pinner_cap(stage, 11);
	worker_attach(stage);
	mover_stop(&stage->pinner, stage->mover);
	assert_int_equal(moving_begin(&stage->attached.moving, stage->attached.table.slot_bytes,
				      &move, 1, &stage->err),
			 0);
	while ((rc = moving_look(&stage->attached.moving, &stage->err)) == 0)
		assert_int_equal(upstream_wait(&stage->upstream, &stage->err), 0);
	assert_int_equal(rc, -ECANCELED);
	assert_null(stage->pinner.first);
	assert_null(stage->pinner.last);
	stage->pinner.stopping = false;
	assert_int_equal(mover_start(&stage->pinner, &stage->mover), 0);
	worker_leave(stage);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_order_that_comes_after_the_stop_is_refused,
						attach_setup, attach_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
