#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/scratch.h"
#include "worker/cpu_pool.h"

#define MAX_PARTS 1000

struct work {
	uint32_t done[MAX_PARTS]; /* how often; a part has one writer */
	uint64_t out[MAX_PARTS];
	const uint64_t *in;
	uint32_t threads;
	atomic_bool wrong;
};

static void
do_part(void *arg, uint32_t part, uint32_t thread)
{
	struct work *work = arg;

	if (thread >= work->threads)
		atomic_store(&work->wrong, true);
	work->done[part]++;
	work->out[part] = work->in[part] * 3 + 1;
}

static struct cpu_pool *
open_pool(uint32_t threads)
{
	struct cpu_pool *pool = NULL;
	struct error err = { "" };

	if (cpu_pool_open(&pool, threads, &err) < 0)
		fail_msg("%s", err.text);
	return pool;
}

static void
each_part_is_done_once_and_seen_by_the_caller(void **state)
{
	static const uint32_t threads[] = { 1, 2, 3, 8 };
	static uint64_t in[MAX_PARTS];

	(void)state;
	for (int t = 0; t < 4; t++) {
		struct cpu_pool *pool = open_pool(threads[t]);

		for (uint32_t n = 0; n < MAX_PARTS; n += 1 + n / 7) {
			static struct work work;

			memset(&work, 0, sizeof(work));
			work.in = in;
			work.threads = threads[t];
			for (uint32_t i = 0; i < n; i++)
				in[i] = i + n;
			cpu_pool_run(pool, do_part, &work, n);
			for (uint32_t i = 0; i < MAX_PARTS; i++) {
				assert_int_equal(work.done[i], i < n);
				assert_int_equal(work.out[i], i < n ? (i + n) * 3 + 1 : 0);
			}
			assert_false(work.wrong);
		}
		cpu_pool_close(pool);
	}
}

/* Parts that wait until all threads have one: only as many threads at once get past it. */
struct meeting {
	struct gate gate;
	int want;
	atomic_int met;
};

static void
meet_part(void *arg, uint32_t part, uint32_t thread)
{
	struct meeting *meeting = arg;

	(void)part;
	(void)thread;
	gate_pass(&meeting->gate);
	if (gate_wait(&meeting->gate, meeting->want))
		atomic_fetch_add(&meeting->met, 1);
}

static void
all_threads_work_on_one_job(void **state)
{
	struct cpu_pool *pool = open_pool(4);

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct meeting meeting = { .gate = GATE_INIT, .want = 4 };

		cpu_pool_run(pool, meet_part, &meeting, 4);
		assert_int_equal(meeting.met, 4);
	}
	cpu_pool_close(pool);
}

/* Threads of this process by the name "compute N" that sleep, as the kernel sees it. */
static int
count_asleep(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	int n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char path[300], name[32], state = 0;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fscanf(file, "%*d (%31[^)]) %c", name, &state) == 2 && state == 'S' &&
		    strncmp(name, "compute ", 8) == 0)
			n++;
		fclose(file);
	}
	closedir(dir);
	return n;
}

static void
idle_threads_sleep_and_wake_for_the_next_job(void **state)
{
	struct cpu_pool *pool = open_pool(3);

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct meeting meeting = { .gate = GATE_INIT, .want = 3 };
		uint64_t limit = clock_ns() + GATE_SECONDS * NS_PER_SECOND;

		while (count_asleep() < 2 && clock_ns() < limit)
			sched_yield();
		assert_int_equal(count_asleep(), 2);
		cpu_pool_run(pool, meet_part, &meeting, 3);
		assert_int_equal(meeting.met, 3);
	}
	cpu_pool_close(pool);
}

static void
refuses_no_threads_and_too_many(void **state)
{
	struct cpu_pool *pool = NULL;
	struct error err = { "" };

	(void)state;
	assert_true(cpu_pool_open(&pool, 0, &err) < 0);
	assert_string_equal(err.text, "0 threads, want 1 to 1024");
	assert_true(cpu_pool_open(&pool, CPU_MAX_THREADS + 1, &err) < 0);
	assert_null(pool);
	cpu_pool_close(NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_part_is_done_once_and_seen_by_the_caller),
		cmocka_unit_test(all_threads_work_on_one_job),
		cmocka_unit_test(idle_threads_sleep_and_wake_for_the_next_job),
		cmocka_unit_test(refuses_no_threads_and_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
