/* An io_uring that reads: the measure for threads that do.  By the kernel's own calls, so that
 * nothing need be installed.  One thread uses it. */
#ifndef HEARTH_TESTS_URING_H
#define HEARTH_TESTS_URING_H

#include <stdint.h>

struct iovec;
struct uring;

/* Room for `depth` reads at once (a power of two).  -errno: a container may forbid it. */
int uring_open(struct uring **ret, uint32_t depth);
/* Queues a read, which uring_wait submits; iov stays until it is done. */
void uring_read(struct uring *ring, int fd, const struct iovec *iov, uint32_t n, uint64_t offset,
		uint64_t id);
/* Submits what is queued, waits until a read is done: its id, and bytes or -errno. */
int uring_wait(struct uring *ring, uint64_t *ret_id, int64_t *ret_got);
void uring_close(struct uring *ring);

#endif
