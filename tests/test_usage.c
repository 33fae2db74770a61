/* worker/usage.h */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/scratch.h"
#include "worker/usage.h"

#define LAYERS 2u
#define EXPERTS 3u

static const struct profile_shape shape = { 0x1234, LAYERS, EXPERTS };

struct stage {
	struct scratch scratch;
	char path[128];
	uint64_t used[LAYERS * EXPERTS];
	void *region; /* as the pinner keeps it */
	struct usage usage;
	struct error err;
};

static int
setup(void **state)
{
	struct stage *stage = calloc(1, sizeof(*stage));

	scratch_open(&stage->scratch);
	snprintf(stage->path, sizeof(stage->path), "%s/profile", stage->scratch.dir);
	stage->region = calloc(1, usage_bytes(&shape));
	*state = stage;
	return 0;
}

static int
teardown(void **state)
{
	struct stage *stage = *state;

	scratch_close(&stage->scratch);
	free(stage->region);
	free(stage);
	return 0;
}

static void
worker_begins(struct stage *stage)
{
	assert_int_equal(usage_open(&stage->usage, stage->region, &shape, stage->path, &stage->err),
			 0);
}

static void
request_ends(struct stage *stage)
{
	usage_add(&stage->usage, stage->used);
	memset(stage->used, 0, sizeof(stage->used));
	assert_int_equal(usage_save(&stage->usage, &stage->err), 0);
}

static void
file_holds(struct stage *stage, const uint64_t *want)
{
	uint64_t got[LAYERS * EXPERTS];

	assert_int_equal(profile_read(stage->path, &shape, got, &stage->err), 0);
	assert_memory_equal(got, want, sizeof(got));
}

static void
the_file_holds_what_was_used_over_all_workers(void **state)
{
	struct stage *stage = *state;

	worker_begins(stage);
	stage->used[0] = 5;
	stage->used[4] = 1;
	request_ends(stage);
	file_holds(stage, (uint64_t[]){ 5, 0, 0, 0, 1, 0 });
	worker_begins(stage); /* killed, and started again */
	stage->used[4] = 2;
	request_ends(stage);
	file_holds(stage, (uint64_t[]){ 5, 0, 0, 0, 3, 0 });
}

static void
the_next_start_adds_to_what_the_file_holds(void **state)
{
	const uint64_t before[] = { 1, 2, 3, 4, 5, 6 };
	struct stage *stage = *state;

	assert_int_equal(profile_write(stage->path, &shape, before, &stage->err), 0);
	worker_begins(stage);
	stage->used[5] = 1;
	request_ends(stage);
	file_holds(stage, (uint64_t[]){ 1, 2, 3, 4, 5, 7 });
}

static void
nothing_is_written_while_nothing_was_used(void **state)
{
	struct stage *stage = *state;

	worker_begins(stage);
	request_ends(stage);
	assert_int_not_equal(access(stage->path, F_OK), 0);
}

static void
what_another_model_left_in_the_region_is_not_taken(void **state)
{
	const struct profile_shape other = { 0x1235, LAYERS, EXPERTS };
	struct stage *stage = *state;

	worker_begins(stage);
	stage->used[0] = 5;
	request_ends(stage);
	unlink(stage->path);
	assert_int_equal(usage_open(&stage->usage, stage->region, &other, stage->path, &stage->err),
			 0);
	assert_int_equal(stage->usage.page->counts[0], 0);
}

static void
another_models_file_is_refused_and_stays(void **state)
{
	const struct profile_shape other = { 0x1235, LAYERS, EXPERTS };
	const uint64_t counts[LAYERS * EXPERTS] = { 1 };
	struct stage *stage = *state;
	uint64_t got[LAYERS * EXPERTS];

	assert_int_equal(profile_write(stage->path, &other, counts, &stage->err), 0);
	assert_int_equal(usage_open(&stage->usage, stage->region, &shape, stage->path, &stage->err),
			 -EBADMSG);
	assert_int_equal(profile_read(stage->path, &other, got, &stage->err), 0);
	/* and once it is gone, nothing of it is left in the region */
	unlink(stage->path);
	worker_begins(stage);
	assert_int_equal(stage->usage.page->counts[0], 0);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(the_file_holds_what_was_used_over_all_workers),
		RULE(the_next_start_adds_to_what_the_file_holds),
		RULE(nothing_is_written_while_nothing_was_used),
		RULE(what_another_model_left_in_the_region_is_not_taken),
		RULE(another_models_file_is_refused_and_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
