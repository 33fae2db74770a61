/* smoke: times a whole stack as its user meets it: the start, the death of a worker, status, what a
 * token costs beside the worker's own time, memory, and with a large --model the load beside a raw
 * read of the same file.  A table on stdout, the same as JSON in BUILD/bench-smoke.json. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/board.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/options.h"
#include "tests/bench_figures.h"
#include "tests/bench_stack.h"
#include "tests/raw_read.h"
#include "tests/stack_run.h"

#define NAME "smoke"
#define RUNS 5
#define RAW_THREADS 16

struct bench {
	const char *model;
	const char *device;
	const char *prompt; /* ids */
	bool large;         /* a model of the caller's: the load is timed too */
	char dir[128];
	struct figures figures;
};

/* `most` is what it is held to with the demo model; 0: nothing. */
static void
figure(struct bench *bench, const char *name, double value, const char *unit, double most)
{
	figures_add(&bench->figures, name, value, unit,
		    most > 0 && !bench->large ? FIGURE_AT_MOST : FIGURE_FREE, most);
}

static double
seconds_since(uint64_t begin)
{
	return (double)(clock_ns() - begin) / 1e9;
}

static void
up(const struct bench *bench, const char *reader)
{
	run_do(
	    WORDS("up", bench->model, "--name", NAME, "--device", bench->device, "--read", reader));
}

static void
down(void)
{
	run_do(WORDS("down", "--name", NAME));
}

/* -- the start -- */

/* Asks for the status until `up` is through; how often, at most `room` times. */
static uint32_t
status_while_starting(const struct bench *bench, double *ret_seconds, uint32_t room)
{
	uint32_t n = 0;
	struct run run;

	run_start(&run, WORDS("up", bench->model, "--name", NAME, "--device", bench->device));
	run_read(&run, 1);
	while (!run_ended(&run) && n < room) {
		uint64_t begin = clock_ns();

		free(run_text(WORDS("status", "--json", "--name", NAME)));
		ret_seconds[n++] = seconds_since(begin);
	}
	run_finish(&run);
	run_close(&run);
	return n;
}

static void
bench_up(struct bench *bench)
{
	double seconds[RUNS], status[1024];
	uint32_t asked = 0;

	for (uint32_t i = 0; i < RUNS; i++) {
		uint64_t begin = clock_ns();

		up(bench, "auto");
		seconds[i] = seconds_since(begin);
		down();
	}
	figure(bench, "up to able to answer, median of 5", figures_median(seconds, RUNS), "s", 1);
	for (uint32_t i = 0; i < RUNS; i++) {
		asked += status_while_starting(bench, status + asked, 1024 - asked);
		if (i + 1 < RUNS)
			down();
	}
	if (asked == 0) /* it was up before the first question */
		return;
	figure(bench, "status while it starts, median", figures_median(status, asked) * 1e3, "ms",
	       50);
	figure(bench, "  longest", status[asked - 1] * 1e3, "ms", 0);
	figure(bench, "  asked that often in 5 starts", asked, "times", 0);
}

static void
bench_status(struct bench *bench)
{
	double seconds[21];
	uint64_t begin;

	for (uint32_t i = 0; i < 21; i++) {
		begin = clock_ns();
		free(run_text(WORDS("status", "--json", "--name", NAME)));
		seconds[i] = seconds_since(begin);
	}
	figure(bench, "status, median of 21", figures_median(seconds, 21) * 1e3, "ms", 50);
}

/* -- tokens -- */

static void
bench_token(struct bench *bench)
{
	double spent[RUNS], own[RUNS];

	for (uint32_t i = 0; i < RUNS; i++) {
		json_t *answer =
		    run_json(WORDS("ask", "--name", NAME, "--json", "--ignore-stop", "-n",
				   bench->large ? "32" : "256", "--prompt-ids", bench->prompt));
		double tokens = (double)json_array_size(json_object_get(answer, "ids"));
		json_t *seconds = json_object_get(answer, "seconds");
		double total = json_number_value(json_object_get(seconds, "total"));
		double compute = json_number_value(json_object_get(answer, "compute_seconds"));

		spent[i] = (total - compute) / tokens;
		own[i] = compute / tokens;
		json_decref(answer);
	}
	figure(bench, "a token in the worker, median of 5", figures_median(own, RUNS) * 1e3, "ms",
	       0);
	figure(bench, "a token beside the worker's own time, median of 5",
	       figures_median(spent, RUNS) * 1e3, "ms", 0.2);
}

/* From the SIGKILL to the first token that the next worker gave. */
static void
bench_death(struct bench *bench)
{
	double seconds[RUNS];

	for (uint32_t i = 0; i < RUNS; i++)
		seconds[i] =
		    bench_die(bench->dir, NAME, bench->prompt, bench->large ? "32" : "1500", 40)
			.seconds;
	figure(bench, "SIGKILL of the worker to its next token, median of 5",
	       figures_median(seconds, RUNS), "s", 0.5);
	figure(bench, "  longest", seconds[RUNS - 1], "s", 0);
}

/* -- memory -- */

/* KiB of a process that it does not share as arena, keys and values or slots (all memfds). */
static double
private_kib(const char *pid)
{
	char path[64], line[512];
	bool counts = true;
	double kib = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%.16s/smaps", pid);
	maps = fopen(path, "r");
	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long from, to;
		double n;

		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			counts = strstr(line, "/memfd:") == NULL;
		else if (counts && sscanf(line, "Pss: %lf kB", &n) == 1)
			kib += n;
	}
	if (maps)
		fclose(maps);
	return kib;
}

static void
add_process(const char *pid, void *arg)
{
	*(double *)arg += private_kib(pid);
}

static void
bench_memory(struct bench *bench)
{
	double kib = 0;

	stack_each_process(add_process, &kib);
	figure(bench, "PSS of all processes beside arena and lent memory", kib / 1024, "MiB", 150);
}

/* -- the load -- */

static double
load_rate(struct bench *bench, const char *reader)
{
	Hearth__State *loader, *pinner;
	double rate;

	up(bench, reader);
	loader = bench_ask_board(bench->dir, "loader");
	pinner = bench_ask_board(bench->dir, "pinner");
	rate = (double)loader->reader->bytes /
	       (double)(loader->reader->end_ns - loader->reader->begin_ns);
	printf("  %s: read in %.3f s, ready after %.3f s, registered in %.3f s\n", reader,
	       (double)(loader->reader->end_ns - loader->reader->begin_ns) / 1e9,
	       (double)(loader->ready_ns - loader->since_ns) / 1e9,
	       (double)pinner->pinning->register_ns / 1e9);
	if (pinner->pinning->registered_bytes)
		figure(bench, "registering a GiB",
		       (double)pinner->pinning->register_ns / 1e9 /
			   ((double)pinner->pinning->registered_bytes / (1 << 30)),
		       "s", 0);
	hearth__state__free_unpacked(loader, NULL);
	hearth__state__free_unpacked(pinner, NULL);
	down();
	return rate;
}

static void
bench_load(struct bench *bench)
{
	static const struct {
		const char *name, *reader;
		bool direct, cold;
	} ways[] = {
		{ "cold, direct", "direct", true, true },
		{ "cold, buffered", "buffered", false, true },
		{ "cached, buffered", "buffered", false, false },
	};
	char name[64];

	for (uint32_t i = 0; i < 3; i++) {
		double raw, loaded;

		if (ways[i].cold)
			raw_make_cold(bench->model);
		raw = raw_read_rate(bench->model, ways[i].direct, RAW_THREADS);
		if (ways[i].cold)
			raw_make_cold(bench->model);
		loaded = load_rate(bench, ways[i].reader);
		snprintf(name, sizeof(name), "raw read, %s", ways[i].name);
		figure(bench, name, raw, "GB/s", 0);
		snprintf(name, sizeof(name), "load, %s", ways[i].name);
		figure(bench, name, loaded, "GB/s", 0);
		snprintf(name, sizeof(name), "  load / raw read, %s", ways[i].name);
		figure(bench, name, loaded / raw, "", 0);
	}
}

static void
bench_all(struct bench *bench)
{
	char path[640];

	if (bench->large)
		bench_load(bench);
	bench_up(bench);
	bench_status(bench);
	bench_token(bench);
	bench_memory(bench);
	bench_death(bench);
	down();
	snprintf(path, sizeof(path), "%s/bench-smoke.json", stack_build);
	figures_write(&bench->figures, bench->model, bench->device, path);
}

/* However it ends, no stack is left. */
static void
leave(void)
{
	stack_teardown(NULL);
}

int
main(int argc, char **argv)
{
	struct bench bench = { .model = NULL, .device = "cpu", .prompt = "1,2,3,4" };
	const struct option_def defs[] = {
		{ .name = "--model", .kind = OPTION_TEXT, .to = &bench.model },
		{ .name = "--device", .kind = OPTION_TEXT, .to = &bench.device },
		{ .name = "--prompt-ids", .kind = OPTION_TEXT, .to = &bench.prompt },
	};
	struct error err;
	char demo[640];
	uint32_t n_words;

	log_open("smoke");
	if (options_parse(argc, argv, defs, 3, NULL, 0, &n_words, &err) < 0) {
		log_error("%s", err.text);
		return EXIT_INPUT;
	}
	if (stack_setup(NULL) != 0) {
		log_error("wants to be run in the source folder, from BUILD/bin");
		return EXIT_INPUT;
	}
	atexit(leave);
	bench.large = bench.model != NULL;
	snprintf(demo, sizeof(demo), "%s", stack_path("tests/data/kjv-16x1m.gguf"));
	if (!bench.model)
		bench.model = demo;
	figures_open(&bench.figures);
	snprintf(bench.dir, sizeof(bench.dir), "%s/hearth-%s", stack_runtime, NAME);
	bench_all(&bench);
	return 0;
}
