/* What the control groups allow of the pool of 2 MiB pages.  Linux holds a group to two limits: on
 * pages set aside (rsvd: mmap answers ENOMEM beyond it) and on pages touched (a SIGBUS, or EFAULT
 * for MADV_POPULATE); an older kernel has the second alone.  Both hold all the way up the tree. */
#ifndef HEARTH_LOADER_POOL_LIMIT_H
#define HEARTH_LOADER_POOL_LIMIT_H

#include <stdint.h>

#define POOL_UNLIMITED UINT64_MAX

struct pool_limit {
	uint64_t pages;  /* that may still be taken; POOL_UNLIMITED: nothing limits them */
	uint64_t most;   /* as long as the group takes no others */
	char where[256]; /* the file that says so, without the root */
};

/* `root` stands before every path: "" is this machine. */
void pool_limit_read(struct pool_limit *ret, const char *root);

#endif
