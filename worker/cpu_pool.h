/* A fixed set of threads that work through one job at a time; the caller is one of them.
 * A job is cut into parts that are handed out in turn, so that a thread that was put aside holds up
 * nobody.  An idle thread looks for work a few microseconds more, then sleeps. */
#ifndef HEARTH_WORKER_CPU_POOL_H
#define HEARTH_WORKER_CPU_POOL_H

#include <stdint.h>

#include "common/error.h"

struct cpu_pool;

/* Called once for each part, 0 .. n_parts - 1, in any order; thread is 0 .. threads - 1. */
typedef void cpu_part_fn(void *arg, uint32_t part, uint32_t thread);

#define CPU_MAX_THREADS 1024u

/* threads: the caller among them, 1 to CPU_MAX_THREADS. */
int cpu_pool_open(struct cpu_pool **ret, uint32_t threads, struct error *err);
void cpu_pool_close(struct cpu_pool *pool);

/* Returns when all parts are done; what they wrote is visible then.  One caller at a time. */
void cpu_pool_run(struct cpu_pool *pool, cpu_part_fn *fn, void *arg, uint32_t n_parts);

#endif
