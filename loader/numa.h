/* Which NUMA node the arena should lie on, and telling the kernel so. */
#ifndef HEARTH_LOADER_NUMA_H
#define HEARTH_LOADER_NUMA_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define NUMA_MAX_NODES 1024 /* as many as the kernel can be built for */

/* The node that all GPUs of the machine (graphics or compute devices of NVIDIA) are on, or -1 where
 * one node only has memory, theirs has none, there is no GPU, or no single answer; `note` says
 * which.  `sys` is where that file system is mounted. */
int numa_find_node(const char *sys, char *note, size_t room);

/* -ENODEV when `node` does not exist or has no memory; 1 when it is the only one, else 0. */
int numa_check_node(const char *sys, int node, struct error *err);

/* Pages of the range come from `node` as long as it has any, whoever touches them first. */
int numa_prefer(void *at, uint64_t bytes, int node);

#endif
