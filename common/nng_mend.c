/* Two system calls as nng 1.5.2 needs to see them.  A peer that leaves in the middle of the
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
 * The linker routes nng's calls here (--wrap in the Makefile); later versions of nng behave the
 * same with and without. */
#include <errno.h>
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
