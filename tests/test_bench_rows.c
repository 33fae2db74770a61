#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench_rows.h"
#include "tests/golden.h"

#define MB 1000000u

/* Two layers, 4 experts of which 2 are used, each of 3 MB; a trunk of 26 MB, an embedding of 8. */
static struct model_layer layers[2];
static struct model model;

/* 10 GB/s from slots and the rest of the device, 1 GB/s in place. */
static const struct bench_rates rates = { { 10, 10, 1, 10 } };

static int
setup(void **state)
{
	(void)state;
	memset(layers, 0, sizeof(layers));
	for (uint32_t i = 0; i < 2; i++) {
		layers[i].q.bytes = 5 * MB;
		layers[i].router.bytes = 3 * MB;
		for (uint32_t role = 0; role < N_ROLES; role++)
			layers[i].role[role].bytes = MB;
	}
	model = (struct model){
		.n_layers = 2, .n_experts = 4, .top_k = 2, .vocabulary = 8, .layers = layers
	};
	model.embedding.bytes = 8 * MB;
	model.output.bytes = 9 * MB;
	return 0;
}

static void
close_to(double got, double want)
{
	if (!(fabs(got / want - 1) < 1e-9))
		fail_msg("%.12g, want %.12g", got, want);
}

static void
a_token_touches_the_trunk_its_experts_and_the_positions_before_it(void **state)
{
	struct bench_traffic traffic;

	(void)state;
	close_to(bench_expert_bytes(&model), 12.0 * MB);
	bench_traffic_of(&traffic, &model, 0.25, 1000, 4000);
	close_to(traffic.bytes[BENCH_TRUNK], (2 * 8 + 9 + 1.0) * MB);
	close_to(traffic.bytes[BENCH_SLOTS], 3.0 * MB);
	close_to(traffic.bytes[BENCH_ARENA], 9.0 * MB);
	close_to(traffic.bytes[BENCH_KV], 4.0 * MB);
	close_to(bench_traffic_bytes(&traffic), 42.0 * MB);
	close_to(bench_traffic_seconds(&traffic, &rates), 0.0026 + 0.0003 + 0.009 + 0.0004);
}

static void
a_tied_head_is_read_once_and_whole(void **state)
{
	struct bench_traffic traffic;

	(void)state;
	model.tied = true;
	model.output = model.embedding;
	bench_traffic_of(&traffic, &model, 0, 0, 0);
	close_to(traffic.bytes[BENCH_TRUNK], (2 * 8 + 8 + 1.0) * MB);
}

static void
a_place_without_bytes_needs_no_bandwidth(void **state)
{
	struct bench_rates some = { { 10, 0, 1, 0 } };
	struct bench_traffic traffic;

	(void)state;
	bench_traffic_of(&traffic, &model, 0, 1000, 0);
	close_to(bench_traffic_seconds(&traffic, &some), 0.0026 + 0.012);
}

static void
slots_get_what_the_trunk_and_the_cache_leave(void **state)
{
	double whole = 8.0 * (double)model_slot_bytes(&model);

	(void)state;
	assert_true(bench_slots_part(&model, 33 * MB, 0) == 0);
	assert_true(bench_slots_part(&model, 33 * MB + (uint64_t)whole, 0) == 1);
	close_to(bench_slots_part(&model, 35 * MB + (uint64_t)(whole / 4), 2 * MB), 0.25);
	assert_true(bench_slots_part(&model, 1, 2) == 0);
}

static struct bench_curve
curve(uint32_t context)
{
	return (struct bench_curve){
		.model = &model, .rates = &rates, .position_bytes = 1000, .context = context
	};
}

static void
the_limit_rises_with_the_device_memory(void **state)
{
	struct bench_curve of = curve(128);
	double whole = 33.0 * MB + 128 * 1000 + 8.0 * (double)model_slot_bytes(&model);

	(void)state;
	close_to(bench_curve_at(&of, 0), 1 / (0.0026 + 0.012 + 0.0000128));
	close_to(bench_curve_at(&of, whole), 1 / (0.0026 + 0.0012 + 0.0000128));
	assert_true(bench_curve_at(&of, whole - 10.0 * MB) > bench_curve_at(&of, 0));
	assert_true(bench_curve_at(&of, 2 * whole) == bench_curve_at(&of, whole));
}

static void
fill(struct bench_rows *rows)
{
	struct bench_row row = { .device = "cuda",
				 .router = "even",
				 .vram_mib = 4096,
				 .context = 128,
				 .tokens = 256,
				 .distinct = 250,
				 .lent = 4ull << 30,
				 .hits = 0.25,
				 .limit = 100,
				 .worker = 80,
				 .ask = 78 };

	*rows = (struct bench_rows){ 0 };
	bench_traffic_of(&row.traffic, &model, 0.25, 1000, 128);
	bench_rows_head();
	bench_rows_add(rows, &row);
	strcpy(row.router, "skewed");
	bench_rows_add(rows, &row);
	strcpy(row.device, "cpu");
	row.lent = 0;
	bench_rows_add(rows, &row);
}

static void
rows_are_told_as_json(void **state)
{
	struct bench_rows rows;
	json_t *list, *row;

	(void)state;
	fill(&rows);
	list = bench_rows_json(&rows);
	assert_int_equal(json_array_size(list), 3);
	row = json_array_get(list, 0);
	assert_int_equal(json_integer_value(json_object_get(row, "vram_mib")), 4096);
	close_to(json_number_value(json_object_get(row, "ratio")), 0.8);
	row = json_object_get(row, "bytes_a_token");
	close_to(json_number_value(json_object_get(row, "arena")), 9.0 * MB);
	json_decref(list);
}

static uint32_t
count(const char *text, const char *word)
{
	uint32_t n = 0;

	for (text = strstr(text, word); text; text = strstr(text + 1, word))
		n++;
	return n;
}

static void
the_picture_has_a_line_a_context_and_a_dot_a_row_of_the_device(void **state)
{
	char path[] = "/tmp/hearth-rows-XXXXXX";
	struct bench_curve curves[] = { curve(128), curve(4096), curve(128) };
	struct bench_rows rows;
	uint8_t *svg;
	uint64_t n;

	(void)state;
	fill(&rows);
	curves[2].with = "the CPU reads too";
	close(mkstemp(path));
	assert_true(bench_rows_svg(&rows, curves, 3, path));
	n = golden_read_file(path, &svg);
	unlink(path);
	svg[n - 1] = '\0';
	assert_int_equal(count((char *)svg, "<polyline"), 3);
	assert_int_equal(count((char *)svg, "<circle"), 2);
	assert_non_null(strstr((char *)svg, ">context 4096</text>"));
	assert_non_null(strstr((char *)svg, ">context 128, the CPU reads too</text>"));
	assert_non_null(strstr((char *)svg, ">skewed router</text>"));
	assert_non_null(strstr((char *)svg, "</svg>"));
	assert_null(strstr((char *)svg, "nan"));
	free(svg);
	assert_false(bench_rows_svg(&rows, curves, 2, "/tmp/no/such/folder.svg"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
		    a_token_touches_the_trunk_its_experts_and_the_positions_before_it, setup),
		cmocka_unit_test_setup(a_tied_head_is_read_once_and_whole, setup),
		cmocka_unit_test_setup(a_place_without_bytes_needs_no_bandwidth, setup),
		cmocka_unit_test_setup(slots_get_what_the_trunk_and_the_cache_leave, setup),
		cmocka_unit_test_setup(the_limit_rises_with_the_device_memory, setup),
		cmocka_unit_test_setup(rows_are_told_as_json, setup),
		cmocka_unit_test_setup(
		    the_picture_has_a_line_a_context_and_a_dot_a_row_of_the_device, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
