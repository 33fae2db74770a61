/* start: times cold and cached starts of a large model, each beside the limit of the machine
 * measured in the same run.  A table, BUILD/bench-start.json, and BUILD/bench-start.svg: throughput
 * over time. As root the file cache is dropped and a machine with little RAM is emulated by a
 * cgroup. */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/board.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/options.h"
#include "tests/bench_figures.h"
#include "tests/bench_sampler.h"
#include "tests/bench_stack.h"
#include "tests/raw_read.h"
#include "tests/stack_run.h"

#define NAME "start"
#define RUNS 3
#define GIB (1ull << 30)
#define RAW_THREADS 16
#define CGROUP "/sys/fs/cgroup/hearth-bench"
#define PROMPT "1,2,3,4"

struct bench {
	const char *model;
	const char *device;
	const char *pages;
	double limit_gib; /* of the emulated machine, beyond the arena */
	char dir[128];
	struct figures figures;
	struct sampler sampler;
};

/* What one start came to. */
struct start {
	double seconds; /* from the first byte to the last */
	double rate;    /* GB/s of those bytes */
	uint64_t loaded_ns;
	uint64_t arena_bytes;
	double register_s;
	uint64_t registered_bytes;
	char reader[16];
};

static struct start
look_at_start(const struct bench *bench)
{
	Hearth__State *loader = bench_ask_board(bench->dir, "loader"),
		      *pinner = bench_ask_board(bench->dir, "pinner");
	struct start start = { .loaded_ns = loader->reader->end_ns,
			       .arena_bytes = loader->arena->bytes,
			       .register_s = (double)pinner->pinning->register_ns / 1e9,
			       .registered_bytes = pinner->pinning->registered_bytes };

	start.seconds = (double)(loader->reader->end_ns - loader->reader->begin_ns) / 1e9;
	start.rate = (double)loader->reader->bytes / start.seconds / 1e9;
	snprintf(start.reader, sizeof(start.reader), "%s", loader->reader->chosen);
	hearth__state__free_unpacked(loader, NULL);
	hearth__state__free_unpacked(pinner, NULL);
	return start;
}

static void
up(const struct bench *bench, const char *reader, const char *pin_gib)
{
	run_do(WORDS("up", bench->model, "--name", NAME, "--device", bench->device, "--read",
		     reader, "--pages", bench->pages, "--pin-gib", pin_gib));
}

static struct start
load(const struct bench *bench, const char *reader, const char *pin_gib)
{
	struct start start;

	up(bench, reader, pin_gib);
	start = look_at_start(bench);
	run_do(WORDS("down", "--name", NAME));
	return start;
}

static double
load_seconds(const struct bench *bench, const char *reader, const char *pin_gib)
{
	double seconds[RUNS];

	for (uint32_t i = 0; i < RUNS; i++)
		seconds[i] = load(bench, reader, pin_gib).seconds;
	return figures_median(seconds, RUNS);
}

/* -- cold -- */

static void
bench_cold(struct bench *bench)
{
	struct figures *figures = &bench->figures;
	double raw, before, peak;
	struct start start;

	raw_make_cold(bench->model);
	raw = raw_read_rate(bench->model, true, RAW_THREADS);
	raw_make_cold(bench->model);
	before = sampler_used_bytes();
	sampler_begin(&bench->sampler, bench->dir);
	start = load(bench, "direct", "auto");
	peak = sampler_end(&bench->sampler) - before;
	figures_add(figures, "cold: raw O_DIRECT read of the file", raw, "GB/s", FIGURE_FREE, 0);
	figures_add(figures, "cold: the arena, read direct", start.rate, "GB/s", FIGURE_FREE, 0);
	figures_add(figures, "  arena / raw read", start.rate / raw, "", FIGURE_AT_LEAST, 0.97);
	figures_add(figures, "  peak of memory and file cache / arena",
		    peak / (double)start.arena_bytes, "", FIGURE_AT_MOST, 1.05);
	if (start.registered_bytes)
		figures_add(figures, "registering a GiB behind the loader",
			    start.register_s / ((double)start.registered_bytes / (double)GIB), "s",
			    FIGURE_FREE, 0);
}

/* A prompt that waits from the beginning: its first token wants the experts it uses, not the file.
 */
static void
bench_first_token(struct bench *bench)
{
	struct figures *figures = &bench->figures;
	Hearth__State *scheduler;
	struct run asked, started;
	struct start start;
	double zero;

	raw_make_cold(bench->model);
	run_start(&started, WORDS("up", bench->model, "--name", NAME, "--device", bench->device,
				  "--read", "direct", "--pages", bench->pages));
	run_read(&started, 1);
	run_start(&asked, WORDS("ask", "--name", NAME, "--ids", "--ignore-stop", "-n", "16",
				"--prompt-ids", PROMPT));
	run_finish(&asked);
	run_close(&asked);
	run_finish(&started);
	run_close(&started);
	start = look_at_start(bench);
	scheduler = bench_ask_board(bench->dir, "scheduler");
	zero = (double)scheduler->since_ns;
	figures_add(figures, "cold, a prompt waits: start to first token",
		    ((double)scheduler->serving->first_token_ns - zero) / 1e9, "s", FIGURE_FREE, 0);
	figures_add(figures, "  start to arena loaded", ((double)start.loaded_ns - zero) / 1e9, "s",
		    FIGURE_FREE, 0);
	figures_add(figures, "  16th token behind arena loaded",
		    ((double)scheduler->serving->sixteenth_token_ns - (double)start.loaded_ns) /
			1e9,
		    "s", FIGURE_AT_MOST, 0.5);
	hearth__state__free_unpacked(scheduler, NULL);
	run_do(WORDS("down", "--name", NAME));
}

/* -- cached -- */

static void
bench_cached(struct bench *bench)
{
	struct figures *figures = &bench->figures;
	double raw, with, without, bytes;
	struct start start;

	raw_read_rate(bench->model, false, RAW_THREADS);
	raw = raw_read_in_place_rate(bench->model, RAW_THREADS);
	start = load(bench, "buffered", "auto");
	bytes = start.rate * start.seconds;
	without = load_seconds(bench, "buffered", "0");
	with = load_seconds(bench, "buffered", "auto");
	figures_add(figures, "cached: pread into populated memory", raw, "GB/s", FIGURE_FREE, 0);
	figures_add(figures, "cached: the arena, read buffered, median of 3", bytes / with, "GB/s",
		    FIGURE_FREE, 0);
	figures_add(figures, "  arena / pread", bytes / with / raw, "", FIGURE_AT_LEAST, 0.90);
	figures_add(figures, "  load with registration / without", with / without, "",
		    FIGURE_AT_MOST, 1.02);
}

/* -- a machine with little RAM -- */

static bool
write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return written;
}

static bool
enter_cgroup(const char *cgroup)
{
	char path[128], pid[16];

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	return write_text(path, pid);
}

static void
bench_small_machine(struct bench *bench, uint64_t arena_bytes)
{
	struct figures *figures = &bench->figures;
	struct start direct, buffered, chosen;
	char limit[32];
	bool inside;

	snprintf(limit, sizeof(limit), "%" PRIu64,
		 arena_bytes + (uint64_t)(bench->limit_gib * (double)GIB));
	mkdir(CGROUP, 0755);
	inside = write_text("/sys/fs/cgroup/cgroup.subtree_control", "+memory") &&
		 write_text(CGROUP "/memory.max", limit) && enter_cgroup(CGROUP);
	if (!inside) {
		printf("little RAM: skipped, wants root and a cgroup v2 with memory\n");
		rmdir(CGROUP);
		return;
	}
	raw_make_cold(bench->model);
	buffered = load(bench, "buffered", "auto");
	raw_make_cold(bench->model);
	direct = load(bench, "direct", "auto");
	raw_make_cold(bench->model);
	chosen = load(bench, "auto", "auto");
	enter_cgroup("/sys/fs/cgroup");
	rmdir(CGROUP);
	printf("little RAM (%.1f GiB beside the arena): auto reads %s\n", bench->limit_gib,
	       chosen.reader);
	figures_add(figures, "little RAM: direct", direct.rate, "GB/s", FIGURE_FREE, 0);
	figures_add(figures, "little RAM: buffered", buffered.rate, "GB/s", FIGURE_FREE, 0);
	figures_add(figures, "  direct / buffered", direct.rate / buffered.rate, "",
		    FIGURE_AT_LEAST, 1.3);
	figures_add(figures, "  auto chose direct", strcmp(chosen.reader, "direct") == 0, "",
		    FIGURE_AT_LEAST, 1);
}

/* -- a death -- */

static void
bench_death(struct bench *bench)
{
	double seconds[5];

	up(bench, "auto", "auto");
	for (uint32_t i = 0; i < 5; i++)
		seconds[i] = bench_die(bench->dir, NAME, PROMPT, "24", 20).seconds;
	run_do(WORDS("down", "--name", NAME));
	figures_add(&bench->figures, "SIGKILL of the worker to its next token, median of 5",
		    figures_median(seconds, 5), "s", FIGURE_AT_MOST, 0.3);
}

static void
bench_all(struct bench *bench)
{
	uint64_t arena_bytes;
	char path[640];

	bench_cold(bench);
	up(bench, "buffered", "auto");
	arena_bytes = look_at_start(bench).arena_bytes;
	run_do(WORDS("down", "--name", NAME));
	bench_first_token(bench);
	bench_cached(bench);
	bench_small_machine(bench, arena_bytes);
	bench_death(bench);
	snprintf(path, sizeof(path), "%s/bench-start.svg", stack_build);
	sampler_write_svg(&bench->sampler, path);
	snprintf(path, sizeof(path), "%s/bench-start.json", stack_build);
	figures_write(&bench->figures, bench->model, bench->device, path);
}

static void
leave(void)
{
	enter_cgroup("/sys/fs/cgroup");
	rmdir(CGROUP);
	stack_teardown(NULL);
}

int
main(int argc, char **argv)
{
	struct bench bench = { .device = "auto", .pages = "auto", .limit_gib = 1.5 };
	const struct option_def defs[] = {
		{ .name = "--model", .kind = OPTION_TEXT, .to = &bench.model },
		{ .name = "--device", .kind = OPTION_TEXT, .to = &bench.device },
		{ .name = "--pages", .kind = OPTION_TEXT, .to = &bench.pages },
		{ .name = "--little-gib", .kind = OPTION_FLOAT, .to = &bench.limit_gib },
	};
	struct error err;
	uint32_t n_words;

	log_open("start");
	if (options_parse(argc, argv, defs, 4, NULL, 0, &n_words, &err) < 0 || !bench.model) {
		log_error("%s", bench.model ? err.text : "--model: wants a large GGUF file");
		return EXIT_INPUT;
	}
	if (stack_setup(NULL) != 0) {
		log_error("wants to be run in the source folder, from BUILD/bin");
		return EXIT_INPUT;
	}
	atexit(leave);
	figures_open(&bench.figures);
	snprintf(bench.dir, sizeof(bench.dir), "%s/hearth-%s", stack_runtime, NAME);
	bench_all(&bench);
	return 0;
}
