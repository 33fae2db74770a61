#include "common/endpoint.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/endpoint_nng.h"

#define START_SECONDS 5

static pthread_once_t endpoint_started = PTHREAD_ONCE_INIT;

static void
endpoint_give_up(int signal)
{
	static const char line[] =
	    "hearth: error: nng does not start: too little memory or too few "
	    "threads allowed (ulimit -v, -u)\n";

	(void)signal;
	if (write(STDERR_FILENO, line, sizeof(line) - 1) < 0)
		_exit(EXIT_SYSTEM);
	_exit(EXIT_SYSTEM);
}

static void
endpoint_start_once(void)
{
	struct sigaction give_up = { .sa_handler = endpoint_give_up }, before;
	unsigned left = alarm(0);
	nng_socket first;

	sigaction(SIGALRM, &give_up, &before);
	alarm(START_SECONDS);
	if (nng_req0_open(&first) == 0)
		nng_close(first);
	alarm(0);
	sigaction(SIGALRM, &before, NULL);
	alarm(left);
}

void
endpoint_start(void)
{
	pthread_once(&endpoint_started, endpoint_start_once);
}

int
endpoint_url(char ret[ENDPOINT_URL_BYTES], const char *dir, const char *name, struct error *err)
{
	size_t n = strlen(dir) + 1 + strlen(name);

	if (n > MAX_SOCKET_PATH)
		return error_set(err, -EINVAL,
				 "%s/%s: %zu bytes, a socket's path has at most %u: want a shorter "
				 "--name or XDG_RUNTIME_DIR",
				 dir, name, n, MAX_SOCKET_PATH);
	stpcpy(stpcpy(stpcpy(stpcpy(ret, "ipc://"), dir), "/"), name);
	return 0;
}

int
endpoint_errno(int nng_error)
{
	switch (nng_error) {
	case 0:
		return 0;
	case NNG_ENOMEM:
		return -ENOMEM;
	case NNG_ETIMEDOUT:
		return -ETIMEDOUT;
	case NNG_ECONNREFUSED:
	case NNG_ENOENT:
		return -ECONNREFUSED;
	case NNG_ECONNRESET:
	case NNG_ECONNSHUT:
		return -ECONNRESET;
	case NNG_ECLOSED:
	case NNG_ECANCELED:
		return -ECANCELED;
	case NNG_EADDRINUSE:
		return -EADDRINUSE;
	case NNG_EMSGSIZE:
		return -EMSGSIZE;
	case NNG_EAGAIN:
		return -EAGAIN;
	default:
		return (nng_error & NNG_ESYSERR) ? -(nng_error & ~NNG_ESYSERR) : -EIO;
	}
}

int
endpoint_error(struct error *err, int nng_error, const char *what, const char *name)
{
	return error_set(err, endpoint_errno(nng_error), "%s: %s: %s", name, what,
			 nng_strerror(nng_error));
}

int
endpoint_limits(nng_socket socket)
{
	int rv;

	if ((rv = nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, MAX_MESSAGE_BYTES)) != 0 ||
	    (rv = nng_socket_set_ms(socket, NNG_OPT_RECONNMINT, RECONNECT_MIN_MS)) != 0)
		return rv;
	return nng_socket_set_ms(socket, NNG_OPT_RECONNMAXT, RECONNECT_MAX_MS);
}

int
endpoint_listen(nng_socket socket, const char *dir, const char *name, struct error *err)
{
	char url[ENDPOINT_URL_BYTES];
	struct stat st;
	int rc = endpoint_url(url, dir, name, err);

	if (rc < 0)
		return rc;
	/* nng removes whatever it finds at the path. */
	if (lstat(url + strlen("ipc://"), &st) == 0 && !S_ISSOCK(st.st_mode))
		return error_set(err, -EEXIST, "%s: something that is no socket stands there",
				 url + strlen("ipc://"));
	rc = nng_listen(socket, url, NULL, 0);
	return rc ? endpoint_error(err, rc, "listen", url) : 0;
}

int
endpoint_dial(nng_socket socket, const char *dir, const char *name, struct error *err)
{
	char url[ENDPOINT_URL_BYTES];
	int rc = endpoint_url(url, dir, name, err);

	if (rc < 0)
		return rc;
	rc = nng_dial(socket, url, NULL, NNG_FLAG_NONBLOCK);
	return rc ? endpoint_error(err, rc, "dial", url) : 0;
}

/* A datagram socket cannot connect to nng's stream socket: the kernel's answer tells whether one is
 * bound there, and the listener never hears of it. */
int
endpoint_probe(const char *dir, const char *name)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd, rc = 0;

	if ((size_t)snprintf(to.sun_path, sizeof(to.sun_path), "%s/%s", dir, name) >=
	    sizeof(to.sun_path))
		return -EINVAL;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EPROTOTYPE)
		rc = -errno;
	close(fd);
	return rc;
}
