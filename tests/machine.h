/* A folder that stands for a machine's /sys and /proc, filled with recorded files (cmocka). */
#ifndef HEARTH_TESTS_MACHINE_H
#define HEARTH_TESTS_MACHINE_H

#include <stdint.h>

struct machine {
	char dir[48];
};

/* Setup and teardown of a test: *state is the machine, empty at first. */
int machine_setup(void **state);
int machine_teardown(void **state);

/* `name` below the machine's folder; good until the next call. */
const char *machine_path(const struct machine *machine, const char *name);

/* Makes the folders on the way too. */
void machine_write(const struct machine *machine, const char *name, const char *text);

/* The first line of a file, without its end; good until the next call. */
const char *machine_read(const struct machine *machine, const char *name);

/* The pool of 2 MiB pages. */
void machine_pool(const struct machine *machine, uint64_t all, uint64_t free, uint64_t reserved);

#endif
