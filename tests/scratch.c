#include "tests/scratch.h"

#include <assert.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void
scratch_open(struct scratch *scratch)
{
	strcpy(scratch->dir, "/tmp/hearth-test-XXXXXX");
	if (!mkdtemp(scratch->dir))
		abort();
}

static int
remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

int
scratch_remove(const char *dir)
{
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void
scratch_close(struct scratch *scratch)
{
	scratch_remove(scratch->dir);
}

struct scratch scratch_of_test;

int
scratch_setup(void **state)
{
	(void)state;
	scratch_open(&scratch_of_test);
	return 0;
}

int
scratch_teardown(void **state)
{
	(void)state;
	scratch_close(&scratch_of_test);
	return 0;
}

void
gate_pass(struct gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	gate->count++;
	pthread_cond_broadcast(&gate->passed);
	pthread_mutex_unlock(&gate->lock);
}

bool
gate_wait(struct gate *gate, int count)
{
	struct timespec until;
	bool passed;
	int rc = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += GATE_SECONDS;
	pthread_mutex_lock(&gate->lock);
	while (gate->count < count && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&gate->passed, &gate->lock, &until);
	passed = gate->count >= count;
	pthread_mutex_unlock(&gate->lock);
	return passed;
}
