/* How long a word that a kernel stores to host memory takes until a CPU thread sees it, and the
 * answer until the GPU does, for each way to store: alone, with the next kernel's blocks reading
 * host memory in place right behind it, and with CPU threads reading RAM beside that.  It is to
 * show which stores are on their way at once, which only when the reads are done, and which come
 * before what was written ahead of them ("torn").  It ends by itself, whatever is not seen.
 *
 *   gpu_handover [--mib N] [--rounds N] [--threads N] [--pollers 1,15]
 *
 * --mib: what the next kernel reads; --pollers: CPU threads that look at the one line.  The first
 * to see the word answers at once.  With RAM read, the others read until the round is over, and so
 * do all of the threads that do not look, all the time.  There: from just before the store, with
 * what fences there are; back: from the answer's store until the GPU's block has seen it. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/options.h"
#include "tests/bench_clock.h"
#include "tests/bench_figures.h"
#include "tests/bench_handover.h"
#include "tests/bench_ram.h"
#include "tests/bench_words.h"
#include "tests/ram_read.h"
#include "worker/cpu_pause.h"

#define HOST_BYTES (1ull << 30)
#define MAX_ROUNDS 1000u
#define MAX_POLLERS 64u
#define MAX_NUMBERS 8u
#define PIECE_BYTES (1u << 20)
#define CLOCK_ROUNDS 10u /* the clocks are compared so often: they drift */
#define LIMIT_NS (2 * NS_PER_SECOND)

struct words {
	uint64_t mib, rounds, threads;
	uint32_t pollers[MAX_NUMBERS], n_pollers;
};

/* The threads that look.  One writer a field: the first to see a round, but for `over` and `quit`.
 */
struct poll {
	struct handover_lines *lines;
	const uint8_t *ram; /* NULL: not read */
	_Atomic uint64_t claimed, answered;
	uint64_t seen_ns, answered_ns;
	bool torn;
	_Atomic uint64_t over; /* the last round that is */
	atomic_bool quit;
	_Atomic uint64_t sum; /* so that nothing is read in vain */
	uint32_t n;
	pthread_t threads[MAX_POLLERS];
};

/* us */
struct times {
	double there[MAX_ROUNDS], back[MAX_ROUNDS], read[MAX_ROUNDS];
	uint32_t n, n_back, before_read, torn;
};

static struct error err;

static void
must(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s\n", err.text);
	exit(rc == -ENODEV ? 77 : EXIT_SYSTEM);
}

static bool
is_whole(const struct handover_lines *lines, uint64_t round)
{
	for (uint32_t i = 0; i < HANDOVER_PAYLOAD; i++)
		if (__atomic_load_n(&lines->payload[i], __ATOMIC_RELAXED) != round)
			return false;
	return true;
}

/* True for one thread a round. */
static bool
claim(struct poll *poll, uint64_t round)
{
	uint64_t before = atomic_load(&poll->claimed);

	return before < round && atomic_compare_exchange_strong(&poll->claimed, &before, round);
}

static void
answer(struct poll *poll, uint64_t round, uint64_t seen_ns)
{
	poll->torn = !is_whole(poll->lines, round);
	poll->seen_ns = seen_ns;
	poll->answered_ns = clock_ns();
	__atomic_store_n(&poll->lines->answer[0], round, __ATOMIC_RELEASE);
	atomic_store(&poll->answered, round);
}

static void *
poller(void *arg)
{
	struct poll *poll = arg;
	uint64_t last = 0, round, now, sum = 0;

	while (!atomic_load_explicit(&poll->quit, memory_order_relaxed)) {
		round = __atomic_load_n(&poll->lines->order[0], __ATOMIC_ACQUIRE);
		if (round == last) {
			cpu_pause();
			continue;
		}
		now = clock_ns();
		last = round;
		if (claim(poll, round))
			answer(poll, round, now);
		for (uint64_t at = 0; poll->ram && atomic_load(&poll->over) < round; at++)
			sum += ram_read(poll->ram + at * PIECE_BYTES % HOST_BYTES, PIECE_BYTES);
	}
	atomic_fetch_add(&poll->sum, sum);
	return NULL;
}

static void
poll_begin(struct poll *poll, uint32_t n)
{
	for (poll->n = 0; poll->n < n; poll->n++) {
		int rc = pthread_create(&poll->threads[poll->n], NULL, poller, poll);

		if (rc != 0)
			must(error_sys(&err, -rc, "a thread that looks"));
	}
}

static void
poll_end(struct poll *poll)
{
	atomic_store(&poll->quit, true);
	for (uint32_t i = 0; i < poll->n; i++)
		pthread_join(poll->threads[i], NULL);
}

/* What is visible to the host behind a kernel's end is seen soon after. */
static void
await_answer(struct poll *poll, uint64_t round)
{
	uint64_t begin = clock_ns();

	while (atomic_load(&poll->answered) != round) {
		if (clock_ns() - begin > LIMIT_NS)
			must(error_set(&err, -ETIMEDOUT,
				       "round %" PRIu64 ": no thread saw it within %llu s", round,
				       LIMIT_NS / NS_PER_SECOND));
		cpu_pause();
	}
}

static void
add(struct times *to, const struct handover_times *gpu, const struct poll *poll, int64_t offset)
{
	uint64_t seen = poll->seen_ns + (uint64_t)offset;
	uint64_t answered = poll->answered_ns + (uint64_t)offset;

	to->there[to->n] = (double)(int64_t)(seen - gpu->stored) / 1e3;
	to->read[to->n] = gpu->read ? (double)(gpu->read - gpu->stored) / 1e3 : 0;
	to->before_read += gpu->read && (int64_t)(gpu->read - seen) > 0;
	to->torn += poll->torn;
	to->n++;
	if (gpu->seen)
		to->back[to->n_back++] = (double)(int64_t)(gpu->seen - answered) / 1e3;
}

/* Their median and the greatest. */
static void
print_two(double *values, uint32_t n)
{
	double median = n ? figures_median(values, n) : 0;

	if (n)
		printf(" %8.2f %8.2f", median, values[n - 1]);
	else
		printf(" %8s %8s", "never", "-");
}

static void
print_line(const char *way, const char *beside, uint32_t pollers, struct times *times,
	   uint64_t within)
{
	printf("%-29s %-9s %2u", way, beside, pollers);
	print_two(times->there, times->n);
	print_two(times->back, times->n_back);
	if (times->read[0] > 0)
		printf(" %8.1f %5u of %u", figures_median(times->read, times->n),
		       times->before_read, times->n);
	else
		printf(" %8s %5s of %u", "-", "-", times->n);
	printf(" %4u %4u  %.2f\n", times->torn, times->n - times->n_back, (double)within / 1e3);
	fflush(stdout);
}

/* One line of the table.  Rounds are numbered on through all of them. */
static void
measure(struct handover *handover, const struct words *words, uint32_t way, const char *beside,
	uint32_t pollers, uint64_t read_bytes, const uint8_t *ram)
{
	static uint64_t round;
	static struct times times;
	struct poll poll = {
		.lines = handover_lines_of(handover), .ram = ram, .claimed = round, .over = round
	};
	uint32_t others = words->threads > pollers ? (uint32_t)words->threads - pollers : 0;
	uint64_t within = 0, worst = 0;
	struct bench_ram *reading = NULL;
	struct handover_times gpu;
	int64_t offset = 0;

	times = (struct times){ 0 };
	poll_begin(&poll, pollers);
	if (ram && others > 0)
		must(bench_ram_begin(&reading, ram, HOST_BYTES, others, &err));
	for (uint32_t i = 0; i < words->rounds; i++) {
		if (i % CLOCK_ROUNDS == 0)
			must(bench_clock_offset(&offset, &within, &err));
		worst = within > worst ? within : worst;
		must(handover_round(handover, way, ++round, read_bytes, &gpu, &err));
		await_answer(&poll, round);
		atomic_store(&poll.over, round);
		add(&times, &gpu, &poll, offset);
	}
	if (reading)
		bench_ram_end(reading);
	poll_end(&poll);
	print_line(handover_way(way), beside, pollers, &times, worst);
}

static void
measure_all(struct handover *handover, const struct words *words, const uint8_t *ram)
{
	uint64_t bytes = words->mib << 20;

	printf("%-29s %-9s %2s %17s %17s %8s %8s %4s %4s  %s\n"
	       "%-29s %-9s %2s %8s %8s %8s %8s %8s %8s %4s %4s\n",
	       "us", "beside", "by", "there", "back", "reads", "seen", "torn", "not", "clocks",
	       "stored by", "it", "", "median", "worst", "median", "worst", "done", "before", "",
	       "back");
	for (uint32_t i = 0; i < words->n_pollers; i++)
		for (uint32_t way = 0; handover_way(way); way++) {
			uint32_t n = words->pollers[i];

			measure(handover, words, way, "-", n, 0, NULL);
			measure(handover, words, way, "reads", n, bytes, NULL);
			measure(handover, words, way, "reads+RAM", n, bytes, ram);
		}
}

static int
read_words(int argc, char **argv, struct words *ret)
{
	const char *pollers = "1,15", *none;
	const struct option_def defs[] = {
		{ .name = "--mib", .kind = OPTION_U64, .to = &ret->mib, .min = 1, .max = 512 },
		{ .name = "--rounds",
		  .kind = OPTION_U64,
		  .to = &ret->rounds,
		  .min = 1,
		  .max = MAX_ROUNDS },
		{ .name = "--threads",
		  .kind = OPTION_U64,
		  .to = &ret->threads,
		  .min = 1,
		  .max = MAX_THREADS },
		{ .name = "--pollers", .kind = OPTION_TEXT, .to = &pollers },
	};
	uint32_t n;
	int rc =
	    options_parse(argc, argv, defs, sizeof(defs) / sizeof(defs[0]), &none, 0, &n, &err);

	if (rc == 0)
		rc = bench_words_numbers("--pollers", pollers, ret->pollers, MAX_NUMBERS,
					 &ret->n_pollers, &err);
	for (uint32_t i = 0; rc == 0 && i < ret->n_pollers; i++)
		if (ret->pollers[i] > MAX_POLLERS)
			rc = error_set(&err, -EINVAL, "--pollers %" PRIu32 ": want 1 to %u",
				       ret->pollers[i], MAX_POLLERS);
	return rc;
}

int
main(int argc, char **argv)
{
	struct words words = { .mib = 14, .rounds = 100, .threads = 15 };
	struct handover *handover;
	char name[128];
	uint8_t *ram;

	if (read_words(argc, argv, &words) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return EXIT_INPUT;
	}
	ram = bench_ram_map(HOST_BYTES);
	if (!ram)
		must(error_sys(&err, -ENOMEM, "1 GiB to read"));
	must(handover_open(&handover, ram, HOST_BYTES, name, &err));
	printf("%s; %" PRIu64 " MiB read behind the store, %" PRIu64 " rounds a line\n", name,
	       words.mib, words.rounds);
	measure_all(handover, &words, ram);
	handover_close(handover);
	bench_ram_unmap(ram, HOST_BYTES);
	return 0;
}
