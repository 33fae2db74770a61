#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "scheduler/timeline.h"

#define MS 1000000ull

static Hearth__State states[N_STAGES];
static Hearth__Slice slices[2][2], *lists[2][2];
static Hearth__Reader reader = HEARTH__READER__INIT;
static Hearth__Pinning pinning = HEARTH__PINNING__INIT;
static Hearth__Serving serving = HEARTH__SERVING__INIT;
static struct stack_view view;
static struct timeline timeline;
static struct error err;

/* A start that takes 100 ms from second 5 on: two slices are read, then registered. */
static int
setup(void **unused)
{
	(void)unused;
	view = (struct stack_view){ .name = "s<&>" };
	for (uint32_t i = 0; i < N_STAGES; i++) {
		hearth__state__init(&states[i]);
		states[i].since_ns = 5000 * MS + i * MS;
		states[i].ready_ns = 5100 * MS;
		states[i].model = "/m \"q\".gguf";
		view.state[i] = &states[i];
	}
	for (uint32_t stage = 0; stage < 2; stage++) {
		for (uint32_t i = 0; i < 2; i++) {
			hearth__slice__init(&slices[stage][i]);
			slices[stage][i].name = i ? "layer 0" : "trunk";
			slices[stage][i].bytes = 1000000;
			slices[stage][i].begin_ns = (5010 + 20 * i + 40 * stage) * MS;
			slices[stage][i].end_ns = slices[stage][i].begin_ns + 10 * MS;
			lists[stage][i] = &slices[stage][i];
		}
		states[stage].n_slices = 2;
		states[stage].slices = lists[stage];
	}
	hearth__reader__init(&reader);
	reader.end_ns = 5040 * MS;
	states[LOADER].reader = &reader;
	hearth__pinning__init(&pinning);
	pinning.upload_begin_ns = 5060 * MS;
	pinning.upload_end_ns = 5065 * MS;
	states[PINNER].pinning = &pinning;
	hearth__serving__init(&serving);
	serving.first_token_ns = 5200 * MS;
	states[SCHEDULER].serving = &serving;
	return 0;
}

static const struct span *
find(enum span_kind kind, uint32_t row)
{
	for (uint32_t i = 0; i < timeline.n_spans; i++)
		if (timeline.spans[i].kind == kind && timeline.spans[i].row == row)
			return &timeline.spans[i];
	return NULL;
}

static char *
written(void (*write)(const struct timeline *, const struct stack_view *, FILE *))
{
	char *text = NULL;
	size_t n;
	FILE *file = open_memstream(&text, &n);

	write(&timeline, &view, file);
	fclose(file);
	return text;
}

static void
each_slice_has_its_reading_and_its_registration(void **unused)
{
	(void)unused;
	assert_int_equal(timeline_open(&timeline, &view, &err), 0);
	assert_int_equal(timeline.n_rows, N_STAGES + 2);
	assert_string_equal(timeline.rows[N_STAGES + 1], "layer 0");
	assert_int_equal(find(SPAN_READ, N_STAGES + 1)->begin_ns, 5030 * MS);
	assert_int_equal(find(SPAN_REGISTER, N_STAGES)->end_ns, 5060 * MS);
	assert_int_equal(find(SPAN_UPLOAD, N_STAGES)->end_ns, 5065 * MS);
	assert_int_equal(timeline.from_ns, 5000 * MS);
	assert_int_equal(timeline.to_ns, 5200 * MS);
	assert_int_equal(timeline.n_marks, 3); /* there was no 16th token */
	assert_string_equal(timeline.marks[2].name, "first token");
	timeline_close(&timeline);
}

static void
what_lay_before_the_start_is_cut_or_left_out(void **unused)
{
	(void)unused;
	states[LOADER].restarts = 1;
	states[PINNER].since_ns = 4000 * MS;
	slices[1][0].begin_ns = 4100 * MS;
	slices[1][0].end_ns = 4200 * MS;
	slices[1][1].end_ns = 0; /* not done */
	assert_int_equal(timeline_open(&timeline, &view, &err), 0);
	assert_int_equal(find(SPAN_STAGE, PINNER)->begin_ns, 5000 * MS);
	assert_null(find(SPAN_REGISTER, N_STAGES));
	assert_null(find(SPAN_REGISTER, N_STAGES + 1));
	timeline_close(&timeline);
}

/* A minute later: neither stretches the picture, and both are told. */
static void
a_stage_that_was_restarted_since_is_named_and_not_drawn(void **unused)
{
	char *svg, *trace;

	(void)unused;
	states[WORKER].restarts = 2;
	states[WORKER].since_ns = 65000 * MS;
	states[WORKER].ready_ns = 65250 * MS;
	states[PINNER].restarts = 1;
	states[PINNER].since_ns = 64000 * MS;
	states[PINNER].ready_ns = 64500 * MS;
	slices[1][0].begin_ns = 64100 * MS;
	slices[1][0].end_ns = 64200 * MS;
	assert_int_equal(timeline_open(&timeline, &view, &err), 0);
	assert_int_equal(timeline.to_ns, 5200 * MS); /* the first token */
	assert_int_equal(timeline.n_marks, 2); /* when the first worker was ready is not known */
	assert_null(find(SPAN_STAGE, WORKER));
	assert_null(find(SPAN_STAGE, PINNER));
	assert_null(find(SPAN_REGISTER, N_STAGES));
	assert_null(find(SPAN_UPLOAD, N_STAGES));
	svg = written(timeline_write_svg);
	assert_non_null(strstr(svg, "restarted at 60.000 s, ready 0.250 s later; 2 times in all"));
	assert_non_null(strstr(svg, "restarted at 59.000 s, ready 0.500 s later<"));
	free(svg);
	trace = written(timeline_write_trace);
	assert_non_null(strstr(trace, "\"name\": \"restarted\""));
	free(trace);
	timeline_close(&timeline);
}

static void
a_stage_that_was_there_before_is_named(void **unused)
{
	char *svg;

	(void)unused;
	states[LOADER].restarts = 1;
	states[WORKER].since_ns = 4000 * MS;
	states[WORKER].ready_ns = 4100 * MS;
	assert_int_equal(timeline_open(&timeline, &view, &err), 0);
	assert_null(find(SPAN_STAGE, WORKER));
	svg = written(timeline_write_svg);
	assert_non_null(strstr(svg, "was there before"));
	free(svg);
	timeline_close(&timeline);
}

static void
stages_that_are_away_are_no_error(void **unused)
{
	(void)unused;
	view.state[LOADER] = view.state[WORKER] = NULL;
	assert_int_equal(timeline_open(&timeline, &view, &err), 0);
	assert_int_equal(timeline.from_ns, states[PINNER].since_ns);
	timeline_close(&timeline);
	view.state[PINNER] = view.state[SCHEDULER] = NULL;
	assert_int_equal(timeline_open(&timeline, &view, &err), -ENODATA);
}

static void
the_picture_shows_names_as_they_are(void **unused)
{
	char *svg;

	(void)unused;
	assert_int_equal(timeline_open(&timeline, &view, &err), 0);
	svg = written(timeline_write_svg);
	assert_non_null(strstr(svg, "s&#60;&#38;&#62;: /m &#34;q&#34;.gguf"));
	assert_non_null(strstr(svg, "layer 0: read in 0.010 s"));
	assert_non_null(strstr(svg, "first token 0.200 s"));
	assert_non_null(strstr(svg, "</svg>"));
	assert_null(strstr(svg, "nan"));
	free(svg);
	timeline_close(&timeline);
}

static void
the_trace_has_an_event_for_each_span_and_mark(void **unused)
{
	json_t *trace, *events, *event;
	uint32_t spans = 0, marks = 0;
	size_t i;
	char *text;

	(void)unused;
	assert_int_equal(timeline_open(&timeline, &view, &err), 0);
	text = written(timeline_write_trace);
	trace = json_loads(text, 0, NULL);
	assert_non_null(trace);
	events = json_object_get(trace, "traceEvents");
	json_array_foreach(events, i, event)
	{
		const char *ph = json_string_value(json_object_get(event, "ph"));

		spans += strcmp(ph, "X") == 0;
		marks += strcmp(ph, "i") == 0;
		if (strcmp(ph, "X") == 0)
			assert_true(json_number_value(json_object_get(event, "ts")) >= 0);
	}
	assert_int_equal(spans, timeline.n_spans);
	assert_int_equal(marks, timeline.n_marks);
	json_decref(trace);
	free(text);
	timeline_close(&timeline);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_slice_has_its_reading_and_its_registration, setup),
		cmocka_unit_test_setup(what_lay_before_the_start_is_cut_or_left_out, setup),
		cmocka_unit_test_setup(a_stage_that_was_restarted_since_is_named_and_not_drawn,
				       setup),
		cmocka_unit_test_setup(a_stage_that_was_there_before_is_named, setup),
		cmocka_unit_test_setup(stages_that_are_away_are_no_error, setup),
		cmocka_unit_test_setup(the_picture_shows_names_as_they_are, setup),
		cmocka_unit_test_setup(the_trace_has_an_event_for_each_span_and_mark, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
