#include "common/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int
shared_memory_map(struct shared_memory *memory, const char *name, struct error *err)
{
	void *at = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);

	if (at == MAP_FAILED)
		return error_sys(err, -errno, "%s: mapping %" PRIu64 " bytes", name, memory->bytes);
	memory->at = at;
	return 0;
}

int
shared_memory_create(struct shared_memory *ret, const char *name, uint64_t bytes, struct error *err)
{
	struct shared_memory memory = { .bytes = bytes };
	int rc;

	if (bytes == 0 || bytes > INT64_MAX)
		return error_set(err, -EINVAL, "%s: %" PRIu64 " bytes of shared memory", name,
				 bytes);
	memory.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory.fd < 0)
		return error_sys(err, -errno, "%s: memfd_create", name);
	if (ftruncate(memory.fd, (off_t)bytes) < 0 ||
	    fcntl(memory.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		rc = error_sys(err, -errno, "%s: sizing to %" PRIu64 " bytes", name, bytes);
	else
		rc = shared_memory_map(&memory, name, err);
	if (rc < 0) {
		close(memory.fd);
		return rc;
	}
	*ret = memory;
	return 0;
}

bool
shared_memory_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_SHRINK);
}

int
shared_memory_attach(struct shared_memory *ret, const char *path, uint64_t bytes, struct error *err)
{
	struct shared_memory memory = { .bytes = bytes };
	struct stat st;
	int rc;

	memory.fd = open(path, O_RDWR | O_CLOEXEC);
	if (memory.fd < 0)
		return error_sys(err, -errno, "%s", path);
	if (fstat(memory.fd, &st) < 0)
		rc = error_sys(err, -errno, "%s", path);
	else if ((uint64_t)st.st_size != bytes)
		rc = error_set(err, -EBADMSG, "%s: %lld bytes, want %" PRIu64, path,
			       (long long)st.st_size, bytes);
	else if (!shared_memory_sealed(memory.fd))
		rc = error_set(err, -EBADMSG, "%s: not sealed against resizing", path);
	else
		rc = shared_memory_map(&memory, path, err);
	if (rc < 0) {
		close(memory.fd);
		return rc;
	}
	*ret = memory;
	return 0;
}

void
shared_memory_close(struct shared_memory *memory)
{
	if (!memory->at)
		return;
	munmap(memory->at, memory->bytes);
	close(memory->fd);
	*memory = (struct shared_memory){ 0 };
}

void
shared_memory_path(char ret[SHARED_PATH_BYTES], int fd)
{
	snprintf(ret, SHARED_PATH_BYTES, "/proc/%d/fd/%d", (int)getpid(), fd);
}
