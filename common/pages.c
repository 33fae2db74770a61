#include "common/pages.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const words[] = {
	[ARENA_PAGES_AUTO] = "auto",
	[ARENA_PAGES_4K] = "4k",
	[ARENA_PAGES_THP] = "thp",
	[ARENA_PAGES_HUGETLB] = "hugetlb",
};

const char *
pages_word(enum arena_pages pages)
{
	return words[pages];
}

int
pages_of_word(enum arena_pages *ret, const char *word)
{
	for (uint32_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (strcmp(word, words[i]) == 0) {
			*ret = (enum arena_pages)i;
			return 0;
		}
	}
	return -EINVAL;
}

uint64_t
pages_needed(uint64_t bytes)
{
	return bytes / PAGES_HUGE_BYTES + (bytes % PAGES_HUGE_BYTES != 0);
}

bool
pages_read_choice(const char *path, char *ret, size_t room)
{
	char line[256], *from, *to;
	FILE *file = fopen(path, "re");
	bool found;

	if (!file)
		return false;
	found = fgets(line, sizeof(line), file) != NULL;
	fclose(file);
	from = found ? strchr(line, '[') : NULL;
	to = from ? strchr(from, ']') : NULL;
	if (!to || (size_t)(to - from) > room)
		return false;
	snprintf(ret, room, "%.*s", (int)(to - from - 1), from + 1);
	return true;
}

static bool
read_number(const char *sys, const char *name, uint64_t *ret)
{
	char path[PATH_MAX];
	FILE *file;
	bool found;

	snprintf(path, sizeof(path), "%s/kernel/mm/hugepages/hugepages-2048kB/%s", sys, name);
	file = fopen(path, "re");
	if (!file)
		return false;
	found = fscanf(file, "%" SCNu64, ret) == 1;
	fclose(file);
	return found;
}

void
pages_read_kernel(struct pages_kernel *ret, const char *sys)
{
	struct pages_kernel kernel = { 0 };
	char path[PATH_MAX], own[16];
	uint64_t free_pages = 0, reserved = 0;

	snprintf(path, sizeof(path), "%s/" PAGES_SHMEM_KNOB, sys);
	pages_read_choice(path, kernel.shmem, sizeof(kernel.shmem));
	/* Newer kernels have a switch for each size; "inherit" leaves it to the common one. */
	snprintf(path, sizeof(path),
		 "%s/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled", sys);
	if (pages_read_choice(path, own, sizeof(own)) && strcmp(own, "inherit") != 0 &&
	    strcmp(kernel.shmem, "deny") != 0 && strcmp(kernel.shmem, "force") != 0)
		memcpy(kernel.shmem, own, sizeof(own));
	kernel.has_pool = read_number(sys, "nr_hugepages", &kernel.pool_all) &&
			  read_number(sys, "free_hugepages", &free_pages) &&
			  read_number(sys, "resv_hugepages", &reserved);
	if (kernel.has_pool && free_pages > reserved)
		kernel.pool_free = free_pages - reserved;
	*ret = kernel;
}

bool
pages_thp_possible(const struct pages_kernel *kernel)
{
	return kernel->shmem[0] && strcmp(kernel->shmem, "never") != 0 &&
	       strcmp(kernel->shmem, "deny") != 0;
}

/* One "Key:   123 kB" line. */
static void
count_line(struct pages_got *got, const char *line)
{
	uint64_t kib;

	if (sscanf(line, "Rss: %" SCNu64, &kib) == 1)
		got->bytes += kib << 10;
	else if (sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1)
		got->thp += kib << 10;
	else if (sscanf(line, "Shared_Hugetlb: %" SCNu64, &kib) == 1 ||
		 sscanf(line, "Private_Hugetlb: %" SCNu64, &kib) == 1)
		got->hugetlb += kib << 10;
}

int
pages_read_mapping(struct pages_got *ret, const char *path, uint64_t from, uint64_t to,
		   struct error *err)
{
	FILE *file = fopen(path, "re");
	struct pages_got got = { 0 };
	bool inside = false, whole = true;
	char line[PATH_MAX + 128];
	uint64_t begin, end;

	if (!file)
		return error_sys(err, -errno, "%s", path);
	while (fgets(line, sizeof(line), file)) {
		/* A name too long for the line: what follows is the rest of it. */
		if (whole && sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2)
			inside = begin < to && end > from;
		else if (whole && inside)
			count_line(&got, line);
		whole = strchr(line, '\n') != NULL;
	}
	fclose(file);
	got.bytes += got.hugetlb; /* Rss does not count them */
	*ret = got;
	return 0;
}

const char *
pages_got_word(const struct pages_got *got)
{
	if (got->bytes == 0)
		return "";
	if (got->hugetlb)
		return "hugetlb";
	if (got->thp == 0)
		return "4k";
	return got->thp >= got->bytes ? "thp" : "thp+4k";
}
