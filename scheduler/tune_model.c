#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/gguf.h"
#include "common/pages.h"
#include "scheduler/tune.h"

/* Layers of the model in a file that is mapped whole; any shard may lack the key, then 0. */
static int
count_layers(const void *at, uint64_t bytes, const char *path, uint64_t *ret, struct error *err)
{
	static const char ending[] = ".block_count";
	const uint64_t n = sizeof(ending) - 1;
	struct gguf gguf;
	int rc = gguf_parse(&gguf, at, bytes, bytes, path, err);

	if (rc < 0)
		return rc;
	for (uint64_t i = 0; i < gguf.n_pairs && rc == 0; i++) {
		struct gguf_string key = gguf.pairs[i].key;
		char name[96];

		if (key.bytes <= n || key.bytes >= sizeof(name) ||
		    memcmp(key.at + key.bytes - n, ending, n) != 0)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)key.bytes, key.at);
		rc = gguf_find_u64(&gguf, name, ret, err);
	}
	gguf_close(&gguf);
	return rc < 0 ? rc : 0;
}

/* "...-00002-of-00003.gguf": 3, and where the number begins; else 1. */
static uint32_t
count_shards(const char *path, size_t *ret_at)
{
	size_t n = strlen(path);
	unsigned number, count;
	int end = 0;

	if (n < 20 || sscanf(path + n - 20, "-%5u-of-%5u.gguf%n", &number, &count, &end) != 2 ||
	    end != 20)
		return 1;
	*ret_at = n - 19;
	return count ? count : 1;
}

static int
add_file(const char *path, uint64_t *bytes, uint64_t *layers, struct error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
	void *at = MAP_FAILED;
	struct stat st = { 0 };

	if (fd < 0 || fstat(fd, &st) < 0)
		rc = error_path(err, -errno, "%s", path);
	else if (st.st_size > 0)
		at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (rc == 0 && at == MAP_FAILED)
		rc = error_set(err, -EINVAL, "%s: cannot be mapped, want a GGUF file", path);
	if (rc == 0) {
		rc = count_layers(at, (uint64_t)st.st_size, path, layers, err);
		munmap(at, (size_t)st.st_size);
	}
	if (rc == 0)
		*bytes += (uint64_t)st.st_size;
	if (fd >= 0)
		close(fd);
	return rc;
}

int
tune_model_bytes(const char *path, uint64_t *ret, struct error *err)
{
	uint64_t bytes = 0, layers = 0;
	char shard[PATH_MAX];
	size_t at = 0;
	uint32_t n = count_shards(path, &at);
	int rc = 0;

	for (uint32_t i = 1; i <= n && rc == 0; i++) {
		snprintf(shard, sizeof(shard), "%s", path);
		if (n > 1 && at + 5 < sizeof(shard)) {
			char number[8];

			snprintf(number, sizeof(number), "%05u", i % 100000u);
			memcpy(shard + at, number, 5);
		}
		rc = add_file(shard, &bytes, &layers, err);
	}
	if (rc < 0)
		return rc;
	if (layers > 100000)
		return error_set(err, -EINVAL, "%s: %" PRIu64 " layers", path, layers);
	/* Each slice ends within a huge page: the directory, the trunk, each layer. */
	*ret = bytes + (layers + 3) * PAGES_HUGE_BYTES;
	return 0;
}
