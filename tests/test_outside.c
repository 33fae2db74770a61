/* loader/outside.h: experts outside the resident set come into the window when they are wanted.
 * The wishes are this test's own. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/outside.h"
#include "loader/reader.h"
#include "tests/fake_files.h"
#include "tests/scratch.h"

#define LAYERS 2
#define EXPERTS 3
#define POISON 0xa5

/* A wish with what became of it. */
struct asked {
	struct fetch_wish wish; /* first */
	uint32_t experts[EXPERTS];
	int rc;
	struct fetch_place places[EXPERTS];
	struct gate done;
	struct error why;
};

static struct {
	struct model_files files;
	struct model_layer layers[LAYERS];
	struct model model;
	struct resident resident;
	struct placement placement;
	struct checksum_plan plan;
	struct pieces pieces;
	struct piece_queue *queue;
	uint8_t *arena;
	struct outside *outside;
	struct fetch_source source;
	struct error err;
} t;

void
fetch_wish_done(struct fetch_wish *wish, const struct fetch_place *places)
{
	struct asked *asked = (struct asked *)wish;

	memcpy(asked->places, places, wish->n * sizeof(*places));
	gate_pass(&asked->done);
}

void
fetch_wish_fail(struct fetch_wish *wish, int rc, const struct error *why)
{
	struct asked *asked = (struct asked *)wish;

	asked->rc = rc;
	asked->why = *why;
	gate_pass(&asked->done);
}

static void
shape(void)
{
	fake_open(&t.files);
	t.model = (struct model){ .n_layers = LAYERS, .n_experts = EXPERTS, .layers = t.layers };
	for (uint64_t i = 0; i < t.files.n_tensors; i++) {
		enum role role;
		int layer = model_expert_layer(t.files.tensors[i].name, &role);

		if (layer >= 0)
			t.layers[layer].role[role].bytes = t.files.tensors[i].bytes / EXPERTS;
	}
}

static void
open_outside(bool direct)
{
	struct outside_config config = { .io = &fake_io,
					 .files = &t.files,
					 .placement = &t.placement,
					 .resident = &t.resident,
					 .pieces = &t.pieces,
					 .direct = direct,
					 .threads = 4 };

	memset(&t, 0, sizeof(t));
	shape();
	/* The two first small experts stay, none of the large ones. */
	assert_int_equal(resident_open(&t.resident, &t.model, 4360000, NULL, &t.err), 0);
	assert_int_equal(t.resident.n_in, 2);
	assert_int_equal(placement_open_resident(&t.placement, t.files.tensors, t.files.n_tensors,
						 100, &t.resident, &t.err),
			 0);
	assert_int_equal(checksum_plan_open(&t.plan, t.files.tensors, t.files.n_tensors,
					    t.placement.n_slices, &t.err),
			 0);
	checksum_plan_keep(&t.plan, t.files.tensors, t.placement.experts, NULL);
	assert_int_equal(pieces_open(&t.pieces, &t.placement, &t.plan, NULL, &t.err), 0);
	assert_int_equal(piece_queue_open(&t.queue, &t.pieces, &t.err), 0);
	t.arena = aligned_alloc(ARENA_SLICE_ALIGN, t.placement.bytes);
	assert_non_null(t.arena);
	memset(t.arena, POISON, t.placement.bytes);
	config.queue = t.queue;
	config.arena = t.arena;
	assert_int_equal(outside_open(&t.outside, &config, &t.err), 0);
	t.source = outside_source(t.outside);
}

static void
close_outside(void)
{
	struct error why;

	error_set(&why, -ECANCELED, "the test ends");
	outside_end(t.outside, -ECANCELED, &why);
	outside_close(t.outside);
	piece_queue_close(t.queue);
	pieces_close(&t.pieces);
	checksum_plan_close(&t.plan);
	placement_close(&t.placement);
	resident_close(&t.resident);
	free(t.arena);
	fake_close(&t.files);
}

/* Experts whose bit is set. */
static void
ask(struct asked *asked, uint32_t layer, uint32_t bits)
{
	*asked = (struct asked){ .wish = { .layer = layer }, .done = GATE_INIT };
	for (uint32_t i = 0; i < EXPERTS; i++)
		if (bits & 1u << i)
			asked->experts[asked->wish.n++] = i;
	asked->wish.experts = asked->experts;
	assert_int_equal(t.source.bring(t.source.arg, &asked->wish, &t.err), 0);
}

static void
wait_done(struct asked *asked)
{
	assert_true(gate_wait(&asked->done, 1));
}

static void
expect_bytes(struct asked *asked)
{
	wait_done(asked);
	if (asked->rc < 0)
		fail_msg("%s", asked->why.text);
	for (uint64_t i = 0; i < t.files.n_tensors; i++) {
		const struct arena_tensor *tensor = &t.files.tensors[i];
		enum role role;
		int layer = model_expert_layer(tensor->name, &role);

		for (uint32_t k = 0; layer == (int)asked->wish.layer && k < asked->wish.n; k++)
			assert_memory_equal(t.arena + asked->places[k].role[role],
					    fake.bytes[tensor->shard] +
						placement_expert_at(tensor, asked->experts[k]),
					    tensor->bytes / EXPERTS);
	}
}

static void
on_demanded(void *arg)
{
	(void)arg;
	outside_look(t.outside);
}

static void
read_resident_set(void)
{
	const struct reader_config config = { .io = &fake_io,
					      .files = &t.files,
					      .placement = &t.placement,
					      .pieces = &t.pieces,
					      .queue = t.queue,
					      .plan = &t.plan,
					      .arena = t.arena,
					      .threads = 2,
					      .events = { .demanded = on_demanded } };
	struct reader *reader;

	assert_int_equal(reader_open(&reader, &config, &t.err), 0);
	assert_int_equal(reader_join(reader, &t.err), 0);
	reader_close(reader);
}

static void
fetch_everything(bool direct)
{
	uint32_t random = 11;
	struct asked asked;

	open_outside(direct);
	read_resident_set();
	for (int i = 0; i < 200; i++) {
		random = random * 1664525u + 1013904223u;
		if (i == 100)
			assert_int_equal(outside_switch(t.outside, !direct, &t.err), 0);
		ask(&asked, random >> 31, (random >> 20) % 7 + 1);
		expect_bytes(&asked);
	}
	assert_false(atomic_load(&fake.misaligned));
	close_outside();
}

static void
everything_in_any_order_is_the_files_bytes(void **state)
{
	(void)state;
	fetch_everything(false);
	fetch_everything(true);
}

static void
short_and_interrupted_reads_change_nothing(void **state)
{
	struct asked asked;

	(void)state;
	for (int direct = 0; direct < 2; direct++) {
		open_outside(direct);
		fake.short_reads = fake.interrupts = true;
		ask(&asked, 0, 7);
		expect_bytes(&asked);
		close_outside();
	}
}

static void
wishes_that_wait_are_done_in_turn(void **state)
{
	static struct asked asked[40];
	uint32_t n = sizeof(asked) / sizeof(*asked);

	(void)state;
	open_outside(false);
	read_resident_set();
	for (uint32_t i = 0; i < n; i++)
		ask(&asked[i], i % LAYERS, i % 7 + 1);
	for (uint32_t i = 0; i + 1 < n; i++) {
		wait_done(&asked[i]);
		assert_int_equal(asked[i].rc, 0);
	}
	expect_bytes(&asked[n - 1]); /* nobody has asked since */
	close_outside();
}

static void
a_resident_expert_that_is_not_read_yet_is_waited_for(void **state)
{
	struct asked asked;

	(void)state;
	open_outside(false);
	ask(&asked, 1, 7); /* 0 and 1 are resident, 2 is not */
	assert_int_equal(asked.done.count, 0);
	read_resident_set();
	expect_bytes(&asked);
	close_outside();
}

static void
a_read_that_fails_refuses_its_wish_alone_and_is_done_again(void **state)
{
	struct asked asked;

	(void)state;
	open_outside(false);
	fake.fail_with = -EIO;
	ask(&asked, 0, 7);
	wait_done(&asked);
	assert_int_equal(asked.rc, -EBADMSG); /* the worker stays away, what is warm stays */
	assert_non_null(strstr(asked.why.text, "first.gguf"));
	fake.fail_with = 0;
	ask(&asked, 0, 7);
	expect_bytes(&asked);
	close_outside();
}

static void
the_end_refuses_who_waits_and_who_comes(void **state)
{
	struct asked first, second;
	struct error why;

	(void)state;
	open_outside(false);
	ask(&first, 1, 1); /* resident, and nobody reads */
	ask(&second, 0, 1);
	error_set(&why, -EIO, "the load failed");
	outside_end(t.outside, -EIO, &why);
	assert_int_equal(first.rc, -EIO);
	assert_int_equal(second.rc, -EIO);
	assert_int_equal(t.source.bring(t.source.arg, &second.wish, &t.err), -EIO);
	close_outside();
}

static void
what_lies_in_the_window_is_not_read_again(void **state)
{
	struct outside_figures figures;
	struct asked asked;

	(void)state;
	open_outside(false);
	ask(&asked, 0, 3);
	expect_bytes(&asked);
	ask(&asked, 0, 6);
	expect_bytes(&asked);
	outside_figures(t.outside, &figures);
	assert_int_equal(figures.experts, 3);
	assert_int_equal(figures.hits, 1);
	close_outside();
}

/* Experts 0 and 2 of layer 0: six matrices in two files, no two of one file a MiB apart. */
static void
windows_less_than_a_mib_apart_are_one_read(void **state)
{
	struct outside_figures figures;
	struct asked asked;

	(void)state;
	for (int direct = 0; direct < 2; direct++) {
		open_outside(direct);
		ask(&asked, 0, 5);
		expect_bytes(&asked);
		outside_figures(t.outside, &figures);
		assert_int_equal(figures.experts, 2);
		assert_int_equal(figures.windows, 6);
		assert_int_equal(figures.reads, FAKE_FILES);
		assert_int_equal(fake.calls, FAKE_FILES);
		assert_int_equal(fake.direct_reads, direct ? FAKE_FILES : 0);
		assert_true(figures.bytes > 2 * (2 * 700000 + 5000)); /* with what lies between */
		close_outside();
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_in_any_order_is_the_files_bytes),
		cmocka_unit_test(short_and_interrupted_reads_change_nothing),
		cmocka_unit_test(wishes_that_wait_are_done_in_turn),
		cmocka_unit_test(a_resident_expert_that_is_not_read_yet_is_waited_for),
		cmocka_unit_test(a_read_that_fails_refuses_its_wish_alone_and_is_done_again),
		cmocka_unit_test(the_end_refuses_who_waits_and_who_comes),
		cmocka_unit_test(what_lies_in_the_window_is_not_read_again),
		cmocka_unit_test(windows_less_than_a_mib_apart_are_one_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
