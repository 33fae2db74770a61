/* The control groups that this process is in, of version 2 and of version 1 side by side, from its
 * own up the tree as far as it is seen.  A limit of each holds. */
#ifndef HEARTH_LOADER_CGROUP_H
#define HEARTH_LOADER_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Calls `look` with each group's folder.  `controller`: of version 1 ("memory"), where each has a
 * tree of its own; NULL: version 2.  `root` stands before every path, /proc and those of the
 * mounts:
 * "" is this machine. */
void cgroup_walk(const char *controller, const char *root,
		 void (*look)(void *arg, const char *folder), void *arg);

/* A file of a folder; NULL: there is none. */
FILE *cgroup_open(const char *folder, const char *name);

/* The number behind the word `key` ("": the first word) in an open file, which it closes; false: no
 * file, line or number ("max"). */
bool cgroup_take_number(FILE *file, const char *key, uint64_t *ret);

#endif
