/* Knocks at this process's own listeners; see endpoint_nng.h for why. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/endpoint_nng.h"
#include "common/log.h"

#define DEAF_VERSION "1.5.2"
#define KNOCK_EVERY_NS NS_PER_SECOND
#define KNOCK_WAIT_MS 500
#define MAX_GUARDED 16 /* a stage listens on at most four sockets */

/* A handshake of the SP protocol that no listener of ours takes for its peer (surveyor, 0x62): it
 * gets as far as NNG_PIPE_EV_ADD_PRE and is turned away. */
static const uint8_t knock_header[8] = { 0, 'S', 'P', 0, 0, 0x62, 0, 0 };

struct guarded {
	nng_socket socket;
	char path[MAX_SOCKET_PATH + 1];
	uint64_t opened; /* connections that came through */
};

static struct {
	pthread_mutex_t lock; /* for all of this */
	pthread_cond_t changed;
	pthread_t thread;
	bool running;
	uint32_t n;
	struct guarded guarded[MAX_GUARDED];
} guard = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct guarded *
guard_find(uint32_t socket)
{
	for (uint32_t i = 0; i < guard.n; i++) {
		if (guard.guarded[i].socket.id == socket)
			return &guard.guarded[i];
	}
	return NULL;
}

static void
guard_opened(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
	struct guarded *guarded;

	(void)pipe;
	(void)event;
	pthread_mutex_lock(&guard.lock);
	guarded = guard_find((uint32_t)(uintptr_t)arg);
	if (guarded)
		guarded->opened++;
	pthread_cond_broadcast(&guard.changed);
	pthread_mutex_unlock(&guard.lock);
}

static struct timespec
guard_deadline(uint64_t ns)
{
	uint64_t at = clock_ns() + ns;

	return (struct timespec){ .tv_sec = (time_t)(at / NS_PER_SECOND),
				  .tv_nsec = (long)(at % NS_PER_SECOND) };
}

/* A descriptor with the handshake sent and answered, -1: nobody answers.  Staying until the answer
 * came is the point: leaving before it is what makes a listener deaf. */
static int
knock(const char *path)
{
	struct timeval limit = { .tv_usec = KNOCK_WAIT_MS * 1000 };
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	uint8_t answer[sizeof(knock_header)];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	stpcpy(to.sun_path, path);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
	    send(fd, knock_header, sizeof(knock_header), MSG_NOSIGNAL) == sizeof(knock_header) &&
	    recv(fd, answer, sizeof(answer), MSG_WAITALL) == sizeof(answer))
		return fd;
	close(fd);
	return -1;
}

/* With the lock held, let go meanwhile.  True: the listener is deaf. */
static bool
guard_is_deaf(uint32_t socket)
{
	struct guarded *guarded = guard_find(socket);
	struct timespec until = guard_deadline(KNOCK_WAIT_MS * NS_PER_MS);
	char path[MAX_SOCKET_PATH + 1];
	uint64_t before = guarded->opened;
	int fd, rc = 0;

	stpcpy(path, guarded->path);
	pthread_mutex_unlock(&guard.lock);
	fd = knock(path);
	pthread_mutex_lock(&guard.lock);
	while (fd >= 0 && rc == 0 && (guarded = guard_find(socket)) && guarded->opened == before)
		rc = pthread_cond_timedwait(&guard.changed, &guard.lock, &until);
	if (fd >= 0)
		close(fd);
	guarded = guard_find(socket); /* it may have been closed meanwhile */
	return guarded && guarded->opened == before;
}

/* The deaf listener keeps the connections it has; a new one takes its place. */
static void
guard_listen_again(const struct guarded *guarded)
{
	char url[ENDPOINT_URL_BYTES];
	int rv;

	stpcpy(stpcpy(url, "ipc://"), guarded->path);
	unlink(guarded->path);
	rv = nng_listen(guarded->socket, url, NULL, 0);
	log_warn("%s: did not open its door, listens again%s%s", guarded->path, rv ? ": " : "",
		 rv ? nng_strerror(rv) : "");
}

static void *
guard_run(void *arg)
{
	struct timespec until;
	uint32_t sockets[MAX_GUARDED], n;

	(void)arg;
	pthread_mutex_lock(&guard.lock);
	while (guard.n > 0) {
		until = guard_deadline(KNOCK_EVERY_NS);
		while (guard.n > 0 &&
		       pthread_cond_timedwait(&guard.changed, &guard.lock, &until) != ETIMEDOUT)
			;
		n = guard.n;
		for (uint32_t i = 0; i < n; i++)
			sockets[i] = (uint32_t)guard.guarded[i].socket.id;
		for (uint32_t i = 0; i < n; i++) {
			if (guard_find(sockets[i]) && guard_is_deaf(sockets[i]))
				guard_listen_again(guard_find(sockets[i]));
		}
	}
	pthread_mutex_unlock(&guard.lock);
	return NULL;
}

/* With the lock held. */
static int
guard_start(void)
{
	pthread_condattr_t attr;
	int rc;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&guard.changed, &attr);
	pthread_condattr_destroy(&attr);
	rc = -pthread_create(&guard.thread, NULL, guard_run, NULL);
	guard.running = rc == 0;
	if (guard.running)
		pthread_setname_np(guard.thread, "guard");
	return rc;
}

int
endpoint_guard(nng_socket socket, const char *path)
{
	int rc = 0;

	if (strcmp(nng_version(), DEAF_VERSION) != 0)
		return 0;
	if (nng_pipe_notify(socket, NNG_PIPE_EV_ADD_PRE, guard_opened,
			    (void *)(uintptr_t)socket.id) != 0)
		return -ENOMEM;
	pthread_mutex_lock(&guard.lock);
	if (guard.n == MAX_GUARDED) {
		rc = -ENOSPC;
	} else {
		struct guarded *guarded = &guard.guarded[guard.n++];

		*guarded = (struct guarded){ .socket = socket };
		stpcpy(guarded->path, path);
		if (!guard.running)
			rc = guard_start();
	}
	pthread_mutex_unlock(&guard.lock);
	return rc;
}

void
endpoint_unguard(nng_socket socket)
{
	struct guarded *guarded;
	pthread_t thread;
	bool last = false;

	pthread_mutex_lock(&guard.lock);
	guarded = guard_find(socket.id);
	if (guarded) {
		*guarded = guard.guarded[--guard.n];
		last = guard.n == 0 && guard.running;
	}
	if (last) {
		thread = guard.thread;
		guard.running = false;
		pthread_cond_broadcast(&guard.changed);
	}
	pthread_mutex_unlock(&guard.lock);
	if (last)
		pthread_join(thread, NULL);
	if (guarded)
		nng_pipe_notify(socket, NNG_PIPE_EV_ADD_PRE, NULL, NULL);
}
