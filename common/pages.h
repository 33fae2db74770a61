/* Which pages the kernel would give, and which ones memory has got.  Plain reading of /sys and
 * /proc; every path can be put elsewhere, so that recorded files can be read. */
#ifndef HEARTH_COMMON_PAGES_H
#define HEARTH_COMMON_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"

#define PAGES_HUGE_BYTES (2ull << 20)
#define PAGES_SHMEM_KNOB "kernel/mm/transparent_hugepage/shmem_enabled"
#define PAGES_POOL_KNOB "kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"

struct pages_kernel {
	char shmem[16];     /* the word in brackets in shmem_enabled; "": there is no such file */
	bool has_pool;      /* of 2 MiB pages */
	uint64_t pool_all;  /* pages in it */
	uint64_t pool_free; /* that nobody uses or has set aside */
};

/* `sys` is where that file system is mounted. */
void pages_read_kernel(struct pages_kernel *ret, const char *sys);

/* The word in brackets of a file like "always [madvise] never"; false: none. */
bool pages_read_choice(const char *path, char *ret, size_t room);

/* Shared memory gets huge pages where it asks for them. */
bool pages_thp_possible(const struct pages_kernel *kernel);

uint64_t pages_needed(uint64_t bytes); /* huge pages */

struct pages_got {
	uint64_t bytes;   /* mapped by this process and there */
	uint64_t thp;     /* of them by huge pages */
	uint64_t hugetlb; /* of them from the pool */
};

/* What stands behind the addresses from .. to of the process whose smaps file `path` is. */
int pages_read_mapping(struct pages_got *ret, const char *path, uint64_t from, uint64_t to,
		       struct error *err);

/* "4k", "thp", "hugetlb", "thp+4k"; "" when nothing is there yet. */
const char *pages_got_word(const struct pages_got *got);

/* "auto", "4k", "thp", "hugetlb", and back: -EINVAL. */
const char *pages_word(enum arena_pages pages);
int pages_of_word(enum arena_pages *ret, const char *word);

#endif
