/* A runtime folder of a test's own, and a gate: something that other threads pass and the test
 * waits for, with a limit so that a hang is a failure. */
#ifndef HEARTH_TESTS_SCRATCH_H
#define HEARTH_TESTS_SCRATCH_H

#include <pthread.h>
#include <stdbool.h>

struct scratch {
	char dir[64];
};

void scratch_open(struct scratch *scratch);  /* a new empty folder under /tmp */
void scratch_close(struct scratch *scratch); /* with all that is in it */

int scratch_remove(const char *dir); /* a folder with all that is in it; a teardown's result */

/* Setup and teardown of a test that wants one, and that one. */
extern struct scratch scratch_of_test;
int scratch_setup(void **state);
int scratch_teardown(void **state);

#define GATE_SECONDS 20

struct gate {
	pthread_mutex_t lock;
	pthread_cond_t passed;
	int count;
};

#define GATE_INIT                                                                     \
	{                                                                             \
		.lock = PTHREAD_MUTEX_INITIALIZER, .passed = PTHREAD_COND_INITIALIZER \
	}

void gate_pass(struct gate *gate);
/* True once it has been passed `count` times in all; false after GATE_SECONDS. */
bool gate_wait(struct gate *gate, int count);

#endif
