#include "tests/uring.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct uring {
	int fd;
	struct io_uring_params params;
	uint8_t *sq, *cq;
	struct io_uring_sqe *sqes;
	uint32_t queued;
};

static void *
map(const struct uring *ring, uint64_t bytes, uint64_t what)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
			(off_t)what);

	return at == MAP_FAILED ? NULL : at;
}

static uint64_t
sq_bytes(const struct uring *ring)
{
	return ring->params.sq_off.array + ring->params.sq_entries * sizeof(uint32_t);
}

static uint64_t
cq_bytes(const struct uring *ring)
{
	return ring->params.cq_off.cqes + ring->params.cq_entries * sizeof(struct io_uring_cqe);
}

int
uring_open(struct uring **ret, uint32_t depth)
{
	struct uring *ring = calloc(1, sizeof(*ring));
	int rc = -ENOMEM;

	if (!ring)
		return rc;
	ring->fd = (int)syscall(__NR_io_uring_setup, depth, &ring->params);
	if (ring->fd < 0) {
		rc = -errno;
		free(ring);
		return rc;
	}
	ring->sq = map(ring, sq_bytes(ring), IORING_OFF_SQ_RING);
	ring->cq = map(ring, cq_bytes(ring), IORING_OFF_CQ_RING);
	ring->sqes = map(ring, depth * sizeof(*ring->sqes), IORING_OFF_SQES);
	if (!ring->sq || !ring->cq || !ring->sqes) {
		uring_close(ring);
		return rc;
	}
	*ret = ring;
	return 0;
}

static uint32_t *
word(uint8_t *ring, uint32_t offset)
{
	return (uint32_t *)(void *)(ring + offset);
}

void
uring_read(struct uring *ring, int fd, const struct iovec *iov, uint32_t n, uint64_t offset,
	   uint64_t id)
{
	uint32_t *tail = word(ring->sq, ring->params.sq_off.tail);
	uint32_t i = *tail & (ring->params.sq_entries - 1);

	ring->sqes[i] = (struct io_uring_sqe){ .opcode = IORING_OP_READV,
					       .fd = fd,
					       .off = offset,
					       .addr = (uint64_t)(uintptr_t)iov,
					       .len = n,
					       .user_data = id };
	word(ring->sq, ring->params.sq_off.array)[i] = i;
	/* The kernel sees the entry once it sees the tail. */
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	ring->queued++;
}

int
uring_wait(struct uring *ring, uint64_t *ret_id, int64_t *ret_got)
{
	uint32_t *head = word(ring->cq, ring->params.cq_off.head);
	const uint32_t *tail = word(ring->cq, ring->params.cq_off.tail);
	const struct io_uring_cqe *cqes = (void *)(ring->cq + ring->params.cq_off.cqes);
	const struct io_uring_cqe *done;
	long n;

	while (ring->queued || *head == __atomic_load_n(tail, __ATOMIC_ACQUIRE)) {
		n = syscall(__NR_io_uring_enter, ring->fd, ring->queued, 1, IORING_ENTER_GETEVENTS,
			    NULL, 0);
		if (n < 0 && errno != EINTR)
			return -errno;
		ring->queued -= n > 0 ? (uint32_t)n : 0;
	}
	done = &cqes[*head & (ring->params.cq_entries - 1)];
	*ret_id = done->user_data;
	*ret_got = done->res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE); /* the entry is the kernel's again */
	return 0;
}

void
uring_close(struct uring *ring)
{
	if (ring->sq)
		munmap(ring->sq, sq_bytes(ring));
	if (ring->cq)
		munmap(ring->cq, cq_bytes(ring));
	if (ring->sqes)
		munmap(ring->sqes, ring->params.sq_entries * sizeof(*ring->sqes));
	close(ring->fd);
	free(ring);
}
