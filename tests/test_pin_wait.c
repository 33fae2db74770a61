/* The order `before`: which slices the loader may write, and that it writes no other. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/shared_memory.h"
#include "loader/load.h"
#include "loader/pin_wait.h"
#include "tests/gguf_builder.h"
#include "tests/quiet_service.h"
#include "tests/scratch.h"

#define SLICES 4u
#define LIMIT_NS (20 * NS_PER_SECOND)

static void
a_slice_waits_for_itself_and_the_next(void **state)
{
	static const struct {
		const char *settled, *may; /* a letter each slice */
	} rows[] = {
		{ "----", "----" }, { "x---", "----" }, { "xx--", "x---" }, { "xxx-", "xx--" },
		{ "xxxx", "xxxx" }, { "-xxx", "-xxx" }, { "x-xx", "--xx" }, { "---x", "---x" },
	};
	Hearth__State pinner = HEARTH__STATE__INIT;
	Hearth__Pinning pinning = HEARTH__PINNING__INIT;
	Hearth__Arena arena = HEARTH__ARENA__INIT;
	Hearth__Slice slices[SLICES], *list[SLICES];
	bool may[SLICES];

	(void)state;
	pinner.pinning = &pinning;
	pinner.arena = &arena;
	pinner.slices = list;
	pinner.n_slices = SLICES;
	pinning.order = "before";
	arena.inode = 7;
	for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
		for (uint32_t i = 0; i < SLICES; i++) {
			hearth__slice__init(&slices[i]);
			slices[i].settled = rows[r].settled[i] == 'x';
			list[i] = &slices[i];
		}
		pin_wait_judge(&pinner, 7, SLICES, may);
		for (uint32_t i = 0; i < SLICES; i++)
			assert_int_equal(may[i], rows[r].may[i] == 'x');
	}
}

static void
nothing_is_written_without_a_pinner_of_this_arena(void **state)
{
	Hearth__State pinner = HEARTH__STATE__INIT;
	Hearth__Pinning pinning = HEARTH__PINNING__INIT;
	Hearth__Arena arena = HEARTH__ARENA__INIT;
	Hearth__Slice slice = HEARTH__SLICE__INIT, *list[1] = { &slice };
	bool may = true;

	(void)state;
	slice.settled = true;
	pin_wait_judge(NULL, 7, 1, &may); /* away */
	assert_false(may);
	pin_wait_judge(&pinner, 7, 1, &may); /* starting */
	assert_false(may);
	pinner.pinning = &pinning;
	pinning.order = "before";
	pin_wait_judge(&pinner, 7, 1, &may);
	assert_false(may);
	pinner.arena = &arena;
	pinner.slices = list;
	pinner.n_slices = 1;
	arena.inode = 8; /* another one's */
	pin_wait_judge(&pinner, 7, 1, &may);
	assert_false(may);
	arena.inode = 7;
	pin_wait_judge(&pinner, 7, 2, (bool[2]){ true, true });
	pin_wait_judge(&pinner, 7, 1, &may);
	assert_true(may);
}

/* Else each would wait for the other. */
static void
a_pinner_that_registers_after_holds_up_nobody(void **state)
{
	Hearth__State pinner = HEARTH__STATE__INIT;
	Hearth__Pinning pinning = HEARTH__PINNING__INIT;
	bool may[2] = { false, false };

	(void)state;
	pinner.pinning = &pinning;
	pinning.order = "after";
	pin_wait_judge(&pinner, 7, 2, may);
	assert_true(may[0] && may[1]);
}

/* -- a load beside a pinner's board -- */

static struct scratch scratch;
static struct service service, witness;
static struct board *board, *pinner;
static struct load load;
static struct load_options options;
static struct watch *watch;
static struct error err;
static int load_rc;

static int
setup(void **state)
{
	static char model[128];
	struct tiny tiny = tiny_default();

	(void)state;
	tiny.layers = SLICES - 1;
	scratch_open(&scratch);
	snprintf(model, sizeof(model), "%s/m.gguf", scratch.dir);
	tiny_write(&tiny, model);
	quiet_service_open(&service, "test");
	quiet_service_open(&witness, "test");
	options = (struct load_options){ .dir = scratch.dir,
					 .model = model,
					 .read = "buffered",
					 .threads = 3,
					 .pin_before = true,
					 .io = &io_system,
					 .cache = &cache_system,
					 .populate = &populate_system,
					 .numa_node = NUMA_NODE_AUTO,
					 .root = "" };
	if (board_open(&pinner, scratch.dir, "pinner", &err) < 0 ||
	    board_open(&board, scratch.dir, "loader", &err) < 0 ||
	    watch_open(&watch, scratch.dir, "loader", &witness, &err) < 0)
		return -1;
	load = (struct load){
		.options = &options, .service = &service, .board = board, .arena = { .fd = -1 }
	};
	if (load_plan(&load, &err) < 0 || load_take_arena(&load, &err) < 0)
		return -1;
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	load_close(&load);
	watch_close(watch);
	board_close(board);
	board_close(pinner);
	scratch_close(&scratch);
	return 0;
}

static void
pinner_names_the_arena(void)
{
	Hearth__State *said = board_edit(pinner);

	board_text(&board_pinning(said)->order, "before");
	board_arena(said)->inode = load.arena.inode;
	assert_int_equal(board_slices(said, SLICES), 0);
	board_publish(pinner);
}

static void
pinner_settles(uint32_t slice)
{
	board_edit(pinner)->slices[slice]->settled = true;
	board_publish(pinner);
}

static void *
run_load(void *arg)
{
	(void)arg;
	load_rc = load_read(&load, &err);
	return NULL;
}

/* Waits until the loader says that the slice is filled. */
static void
wait_filled(uint32_t slice)
{
	uint64_t seen = 0, limit = clock_ns() + LIMIT_NS;
	Hearth__State *said;
	bool filled = false;

	while (!filled) {
		assert_true(clock_ns() < limit);
		service_wait(&witness, &seen, limit);
		said = watch_get(watch);
		if (!said)
			continue;
		filled = said->n_slices > slice &&
			 said->slices[slice]->state == HEARTH__SLICE_STATE__SLICE_FILLED;
		hearth__state__free_unpacked(said, NULL);
	}
}

/* The memfd is new: where nothing was written it is zero. */
static bool
untouched(uint32_t slice)
{
	const struct arena_slice *place = &load.arena.slices[slice];

	for (uint64_t i = 0; i < place->bytes; i++) {
		if (load.arena.base[place->offset + i])
			return false;
	}
	return true;
}

static void
no_byte_comes_before_the_slice_and_the_next_are_settled(void **state)
{
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, run_load, NULL), 0);
	pinner_names_the_arena();
	pinner_settles(0);
	for (uint32_t i = 0; i < SLICES; i++) {
		for (uint32_t k = i; k < SLICES; k++)
			assert_true(untouched(k));
		if (i + 1 < SLICES)
			pinner_settles(i + 1);
		if (i + 2 >= SLICES) /* the last two come together */
			break;
		wait_filled(i);
	}
	wait_filled(SLICES - 1);
	pthread_join(thread, NULL);
	assert_int_equal(load_rc, 0);
}

static void
a_load_that_waits_can_be_ended(void **state)
{
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, run_load, NULL), 0);
	pinner_names_the_arena();
	service_leave(&service);
	pthread_join(thread, NULL);
	assert_int_equal(load_rc, -ECANCELED);
	assert_true(untouched(0));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slice_waits_for_itself_and_the_next),
		cmocka_unit_test(nothing_is_written_without_a_pinner_of_this_arena),
		cmocka_unit_test(a_pinner_that_registers_after_holds_up_nobody),
		cmocka_unit_test_setup_teardown(
		    no_byte_comes_before_the_slice_and_the_next_are_settled, setup, teardown),
		cmocka_unit_test_setup_teardown(a_load_that_waits_can_be_ended, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
