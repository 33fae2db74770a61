/* Whose moments the last start's story has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/story.h"

static Hearth__State states[N_STAGES];
static Hearth__Reader reader;
static Hearth__Serving serving;
static struct stack_view view;

/* Started at 1000 to 1003, all ready at 1100, loaded at 1050, a token at 2000. */
static int
setup(void **unused)
{
	(void)unused;
	for (uint32_t i = 0; i < N_STAGES; i++) {
		hearth__state__init(&states[i]);
		states[i].since_ns = 1003 - i;
		states[i].ready_ns = 1100 + i;
		view.state[i] = &states[i];
	}
	hearth__reader__init(&reader);
	reader.end_ns = 1050;
	states[LOADER].reader = &reader;
	hearth__serving__init(&serving);
	serving.first_token_ns = 2000;
	states[SCHEDULER].serving = &serving;
	return 0;
}

static void
restart(enum stage_index stage, uint64_t at_ns)
{
	states[stage].restarts++;
	states[stage].since_ns = at_ns;
	states[stage].ready_ns = at_ns + 10;
}

static void
stages_that_start_side_by_side_are_one_start(void **unused)
{
	struct story story = story_tell(&view);

	(void)unused;
	for (uint32_t i = 0; i < N_STAGES; i++)
		assert_int_equal(story.part[i], STORY_START);
	assert_int_equal(story.from, 1000); /* the scheduler was a little ahead of the loader */
	assert_int_equal(story.loaded, 1050);
	assert_int_equal(story.answers, 1103);
	assert_int_equal(story.first_token, 2000);
	assert_int_equal(story.sixteenth_token, 0);
}

/* The reader's last byte comes before the last slice's checksum. */
static void
the_arena_is_loaded_once_its_last_slice_is(void **unused)
{
	Hearth__Slice slices[2], *list[] = { &slices[0], &slices[1] };

	(void)unused;
	for (uint32_t i = 0; i < 2; i++)
		hearth__slice__init(&slices[i]);
	slices[0].end_ns = 1060;
	slices[1].end_ns = 1040;
	states[LOADER].slices = list;
	states[LOADER].n_slices = 2;
	assert_int_equal(story_tell(&view).loaded, 1060);
}

static void
a_restarted_worker_takes_no_part(void **unused)
{
	struct story story;

	(void)unused;
	restart(WORKER, 5000);
	story = story_tell(&view);
	assert_int_equal(story.part[WORKER], STORY_RESTARTED);
	assert_int_equal(story.from, 1000);
	assert_int_equal(story.answers, 0); /* its forerunner knew */
	assert_int_equal(story.first_token, 2000);
	assert_int_equal(story_time(&story, WORKER, 5010), 0);
	assert_int_equal(story_time(&story, PINNER, 1060), 1060);
}

static void
a_restarted_schedulers_tokens_are_not_the_starts(void **unused)
{
	struct story story;

	(void)unused;
	restart(SCHEDULER, 5000);
	serving.first_token_ns = 5100;
	story = story_tell(&view);
	assert_int_equal(story.part[SCHEDULER], STORY_RESTARTED);
	assert_int_equal(story.from, 1001); /* the worker's */
	assert_int_equal(story.loaded, 1050);
	assert_int_equal(story.answers, 0);
	assert_int_equal(story.first_token, 0);
}

static void
a_restarted_loader_begins_a_new_story(void **unused)
{
	struct story story;

	(void)unused;
	restart(LOADER, 5000);
	reader.end_ns = 5005;
	story = story_tell(&view);
	assert_int_equal(story.part[LOADER], STORY_START);
	for (uint32_t i = PINNER; i < N_STAGES; i++)
		assert_int_equal(story.part[i], STORY_BEFORE);
	assert_int_equal(story.from, 5000);
	assert_int_equal(story.loaded, 5005);
	assert_int_equal(story.answers, 0); /* all along */
	assert_int_equal(story.first_token, 0);
	assert_int_equal(story_time(&story, PINNER, 1060), 0);
	assert_int_equal(story_time(&story, PINNER, 5007), 5007); /* went on with it */
	restart(WORKER, 6000);
	story = story_tell(&view);
	assert_int_equal(story.part[WORKER], STORY_RESTARTED);
}

static void
without_the_loader_the_oldest_begins_it(void **unused)
{
	struct story story;

	(void)unused;
	states[LOADER].stays_away = true; /* a stand-in, with a start of its own */
	states[LOADER].since_ns = 9000;
	restart(WORKER, 5000);
	story = story_tell(&view);
	assert_int_equal(story.part[LOADER], STORY_AWAY);
	assert_int_equal(story.part[WORKER], STORY_RESTARTED);
	assert_int_equal(story.part[PINNER], STORY_START);
	assert_int_equal(story.from, 1000);
	assert_int_equal(story.loaded, 0);
	assert_int_equal(story.first_token, 2000);
	for (uint32_t i = 0; i < N_STAGES; i++)
		view.state[i] = NULL;
	assert_int_equal(story_tell(&view).from, 0);
}

#define RULE(test) cmocka_unit_test_setup(test, setup)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(stages_that_start_side_by_side_are_one_start),
		RULE(the_arena_is_loaded_once_its_last_slice_is),
		RULE(a_restarted_worker_takes_no_part),
		RULE(a_restarted_schedulers_tokens_are_not_the_starts),
		RULE(a_restarted_loader_begins_a_new_story),
		RULE(without_the_loader_the_oldest_begins_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
