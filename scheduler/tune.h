/* The kernel's switches that decide how fast a model is reserved and registered: what stands there,
 * what would be better, setting it, and putting back exactly what stood there before.
 *
 * What stood there is kept in a file of root's before anything is set; the first value kept stays,
 * however often more is set.  Only the switches known here are ever written. */
#ifndef HEARTH_SCHEDULER_TUNE_H
#define HEARTH_SCHEDULER_TUNE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

#define TUNE_STATE "/run/hearth-tune"

enum tune_switch {
	TUNE_SHMEM,      /* huge pages for shared memory, of any size */
	TUNE_SHMEM_2MIB, /* the same, of this size; newer kernels */
	TUNE_POOL,       /* pages of 2 MiB that are set aside */
	N_TUNE_SWITCHES
};

struct tune_value {
	const char *path; /* below the root */
	const char *name;
	const char *brings;
	bool there;
	char now[24];
	char wanted[24]; /* "": as it is is fine */
};

struct tune {
	const char *root; /* before all paths: "" is this machine */
	struct tune_value values[N_TUNE_SWITCHES];
};

/* `pool_bytes` are to fit into free pages of the pool; 0: the pool is fine as it is. */
void tune_look(struct tune *ret, const char *root, uint64_t pool_bytes);

bool tune_is_fine(const struct tune *tune);

/* Sets all that is wanted; each switch is read back, and one that took another value is an error
 * (what was set stays set, and can be put back). */
int tune_apply(const struct tune *tune, struct error *err);

/* *ret_n switches were put back.  -ENOENT: nothing was set. */
int tune_undo(const char *root, uint32_t *ret_n, struct error *err);

/* An upper bound of the arena's bytes, from any shard of the model. */
int tune_model_bytes(const char *path, uint64_t *ret, struct error *err);

#endif
