/* How much memory this process may still take: the tightest of what the machine can give without
 * swapping and of what every control group up the tree still allows, of version 2 and of version 1
 * side by side.  Cache of files that can be dropped at once counts as free; memory shared by a
 * memfd and what must be written back first do not. */
#ifndef HEARTH_LOADER_AVAILABLE_H
#define HEARTH_LOADER_AVAILABLE_H

#include <stdint.h>

#define AVAILABLE_UNKNOWN UINT64_MAX

struct available {
	uint64_t bytes; /* AVAILABLE_UNKNOWN: nothing says */
	char
	    limit[256]; /* what is tightest: "MemAvailable", or the group's folder; "" if unknown */
};

/* `root` stands before every path, /proc/meminfo and those of the mounts: "" is this machine. */
void available_read(struct available *ret, const char *root);

#endif
