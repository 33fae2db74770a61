#include "tests/raw_read.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"

#define PIECE_BYTES (8u << 20)
#define PIECE_ALIGN 4096u
#define MAX_READERS 64

struct raw {
	int fd;
	uint64_t bytes;
	uint8_t *place; /* NULL: each thread reads into a buffer of its own */
	_Atomic uint64_t next;
	_Atomic uint64_t done;
	_Atomic bool failed;
};

int
raw_make_cold(const char *path)
{
	int all = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : 0;

	if (rc == 0 && fdatasync(fd) < 0)
		rc = -errno;
	if (rc == 0)
		rc = -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (rc == 0 && all >= 0 && write(all, "1", 1) < 0)
		rc = -errno;
	if (fd >= 0)
		close(fd);
	if (all >= 0)
		close(all);
	return rc;
}

static void *
raw_reader(void *arg)
{
	struct raw *raw = arg;
	void *buffer = NULL;
	uint64_t at;

	if (posix_memalign(&buffer, PIECE_ALIGN, PIECE_BYTES) != 0) {
		raw->failed = true;
		return NULL;
	}
	memset(buffer, 0, PIECE_BYTES); /* populated, as an arena is */
	while (!raw->failed && (at = atomic_fetch_add(&raw->next, PIECE_BYTES)) < raw->bytes) {
		void *to = raw->place ? raw->place + at : buffer;
		ssize_t n = pread(raw->fd, to, PIECE_BYTES, (off_t)at);

		if (n <= 0)
			raw->failed = true;
		else
			atomic_fetch_add(&raw->done, (uint64_t)n);
	}
	free(buffer);
	return NULL;
}

/* Of an open file; closes it. */
static double
raw_run(struct raw *raw, uint32_t threads)
{
	pthread_t readers[MAX_READERS];
	uint64_t begin = clock_ns();
	uint32_t n = 0;

	while (n < threads && n < MAX_READERS &&
	       pthread_create(&readers[n], NULL, raw_reader, raw) == 0)
		n++;
	while (n > 0)
		pthread_join(readers[--n], NULL);
	close(raw->fd);
	if (raw->failed || raw->done < raw->bytes)
		return -1;
	return (double)raw->done / (double)(clock_ns() - begin);
}

static int
raw_open(struct raw *raw, const char *path, int flags)
{
	struct stat st;

	raw->fd = open(path, O_RDONLY | O_CLOEXEC | flags);
	if (raw->fd < 0 || fstat(raw->fd, &st) < 0)
		return -errno;
	raw->bytes = (uint64_t)st.st_size;
	return 0;
}

double
raw_read_rate(const char *path, bool direct, uint32_t threads)
{
	struct raw raw = { 0 };

	return raw_open(&raw, path, direct ? O_DIRECT : 0) < 0 ? -1 : raw_run(&raw, threads);
}

double
raw_read_in_place_rate(const char *path, uint32_t threads)
{
	struct raw raw = { 0 };
	uint64_t room;
	double rate;

	if (raw_open(&raw, path, 0) < 0)
		return -1;
	room = (raw.bytes / PIECE_BYTES + 1) * PIECE_BYTES;
	raw.place = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw.place == MAP_FAILED)
		return -1;
	madvise(raw.place, room, MADV_HUGEPAGE);
	memset(raw.place, 0, room);
	rate = raw_run(&raw, threads);
	munmap(raw.place, room);
	return rate;
}
