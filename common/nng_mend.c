/* Mends of nng 1.5.2, in the calls it makes.  The linker routes them here (--wrap in the Makefile).
 *
 * First, two system calls as nng needs to see them.  A peer that leaves in the middle of the
 * handshake looks to that version like the closing of its own socket, and it stops accepting (or
 * dialling) for good: one killed process would make a stage deaf (nanomsg/nng#1518).  It comes
 * about in two ways:
 *
 *  - nng adds a new descriptor to its epoll set before it waits for anything on it; the kernel
 * reports a hang-up all the same, endlessly, and nng closes the descriptor under the handshake.  So
 * a descriptor without events is not added before it gets some.
 *  - a send to a peer that has left fails with EPIPE, which nng takes for NNG_ECLOSED.  ECONNRESET
 * is what it takes for a peer that has left.
 *
 * Second, a connection that is told to close between the two reads of a message (its length, then
 * its bytes), or between two parts of a write: the next read or write is refused without a word,
 * and whoever waits for the message waits for ever, the closing of the socket with him, and every
 * later one, since one thread closes them all.  So a refused read or write ends as a failed one. */
#include <errno.h>
#include <nng/nng.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>

int __real_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);

int
__wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	int rc;

	if (op == EPOLL_CTL_ADD && event->events == 0)
		return 0;
	rc = __real_epoll_ctl(epfd, op, fd, event);
	if (rc < 0 && errno == ENOENT && op == EPOLL_CTL_MOD)
		rc = __real_epoll_ctl(epfd, EPOLL_CTL_ADD, fd, event);
	return rc;
}

ssize_t
__wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t sent = __real_sendmsg(fd, message, flags);

	if (sent < 0 && errno == EPIPE)
		errno = ECONNRESET;
	return sent;
}

/* nng's own, not in its public header. */
void nni_aio_finish_error(nng_aio *aio, int error);
int __real_nni_aio_begin(nng_aio *aio);
int __wrap_nni_aio_begin(nng_aio *aio);
void __real_nng_stream_recv(nng_stream *stream, nng_aio *aio);
void __wrap_nng_stream_recv(nng_stream *stream, nng_aio *aio);
void __real_nng_stream_send(nng_stream *stream, nng_aio *aio);
void __wrap_nng_stream_send(nng_stream *stream, nng_aio *aio);

/* Whether this thread is inside a connection's read or write. */
static _Thread_local bool in_stream;

int
__wrap_nni_aio_begin(nng_aio *aio)
{
	int rv = __real_nni_aio_begin(aio);

	if (rv != 0 && in_stream)
		nni_aio_finish_error(aio, NNG_ECLOSED);
	return rv;
}

void
__wrap_nng_stream_recv(nng_stream *stream, nng_aio *aio)
{
	in_stream = true;
	__real_nng_stream_recv(stream, aio);
	in_stream = false;
}

void
__wrap_nng_stream_send(nng_stream *stream, nng_aio *aio)
{
	in_stream = true;
	__real_nng_stream_send(stream, aio);
	in_stream = false;
}
