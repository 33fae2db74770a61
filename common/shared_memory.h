/* Memory that several processes of one user share: a memfd, named by /proc/<pid>/fd/<n> of its
 * owner, sealed against resizing.  The kernel frees it with its last holder. */
#ifndef HEARTH_COMMON_SHARED_MEMORY_H
#define HEARTH_COMMON_SHARED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

#define SHARED_PATH_BYTES 48

struct shared_memory {
	void *at;
	uint64_t bytes;
	int fd;
};

/* New and zeroed.  `name` is seen in /proc/<pid>/maps. */
int shared_memory_create(struct shared_memory *ret, const char *name, uint64_t bytes,
			 struct error *err);

/* Another process's, to read and write.  It must have exactly `bytes` and be sealed. */
int shared_memory_attach(struct shared_memory *ret, const char *path, uint64_t bytes,
			 struct error *err);

/* Sealed against being cut, which would make a read of it a SIGBUS.  A file on a drive never is. */
bool shared_memory_sealed(int fd);

void shared_memory_close(struct shared_memory *memory); /* of a zeroed one is fine */

/* How another process opens it. */
void shared_memory_path(char ret[SHARED_PATH_BYTES], int fd);

#endif
