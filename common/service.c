#include "common/service.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"

#define READY_FD 3
#define WATCHDOG_SECONDS 5
/* Longer than a supervisor waits: with one, this never comes to pass. */
#define LEAVE_MS 15000

/* Sleeps until stdin ends, a signal comes, or wake_fd says that the process leaves by itself.  A
 * main thread that hangs would keep the process, and with it the stack's lock, for good: it ends
 * here. */
static void *
service_life(void *arg)
{
	struct service *service = arg;
	struct pollfd fds[3] = {
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = service->signal_fd, .events = POLLIN },
		{ .fd = service->wake_fd, .events = POLLIN },
	};
	char ignored[256];

	for (;;) {
		if (poll(fds, 3, -1) < 0 && errno != EINTR)
			break;
		if (fds[1].revents || fds[2].revents)
			break;
		/* What is written to stdin says nothing; its end is the order to stop. */
		if (fds[0].revents && read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0)
			break;
	}
	service_leave(service);
	if (poll(&fds[2], 1, atomic_load(&service->leave_ms)) == 0)
		kill(getpid(), SIGALRM);
	return NULL;
}

static int
service_signals(struct service *service)
{
	sigset_t stop;

	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGHUP);
	if (pthread_sigmask(SIG_BLOCK, &stop, NULL) != 0)
		return -EINVAL;
	signal(SIGPIPE, SIG_IGN);
	service->signal_fd = signalfd(-1, &stop, SFD_CLOEXEC);
	return service->signal_fd < 0 ? -errno : 0;
}

int
service_open(struct service *service, const char *stage, struct error *err)
{
	pthread_condattr_t attr;
	int rc;

	*service = (struct service){
		.stage = stage, .signal_fd = -1, .wake_fd = -1, .leave_ms = LEAVE_MS
	};
	pthread_mutex_init(&service->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&service->wake, &attr);
	pthread_condattr_destroy(&attr);
	rc = descriptors_want(stage, STAGE_DESCRIPTORS, err);
	if (rc < 0)
		return rc;
	rc = service_signals(service);
	if (rc < 0)
		return error_sys(err, rc, "signals");
	service->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (service->wake_fd < 0)
		return error_sys(err, -errno, "eventfd");
	rc = -pthread_create(&service->life, NULL, service_life, service);
	if (rc < 0)
		return error_sys(err, rc, "thread");
	pthread_setname_np(service->life, "life");
	return 0;
}

static bool
service_tell(const struct service *service, const char *word)
{
	char line[64];
	int n = snprintf(line, sizeof(line), "%s %s\n", word, service->stage);

	return write(READY_FD, line, (size_t)n) == n;
}

void
service_ready(struct service *service)
{
	/* No fd 3 means that nobody waits: started by hand. */
	service->told = service_tell(service, "ready");
}

void
service_served(struct service *service)
{
	if (!service->told)
		return;
	service->told = false;
	service_tell(service, "served");
	close(READY_FD);
}

void
service_wake(struct service *service)
{
	pthread_mutex_lock(&service->lock);
	service->events++;
	pthread_cond_broadcast(&service->wake);
	pthread_mutex_unlock(&service->lock);
}

bool
service_wait(struct service *service, uint64_t *seen, uint64_t deadline_ns)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ns / NS_PER_SECOND),
				  .tv_nsec = (long)(deadline_ns % NS_PER_SECOND) };
	bool leaving;
	int rc = 0;

	pthread_mutex_lock(&service->lock);
	while (!service->leaving && service->events == *seen && rc != ETIMEDOUT) {
		if (deadline_ns == 0)
			rc = pthread_cond_wait(&service->wake, &service->lock);
		else
			rc = pthread_cond_timedwait(&service->wake, &service->lock, &until);
	}
	*seen = service->events;
	leaving = service->leaving;
	pthread_mutex_unlock(&service->lock);
	return !leaving;
}

bool
service_leaving(struct service *service)
{
	bool leaving;

	pthread_mutex_lock(&service->lock);
	leaving = service->leaving;
	pthread_mutex_unlock(&service->lock);
	return leaving;
}

void
service_leave(struct service *service)
{
	pthread_mutex_lock(&service->lock);
	service->leaving = true;
	service->events++;
	pthread_cond_broadcast(&service->wake);
	pthread_mutex_unlock(&service->lock);
}

void
service_watchdog(void)
{
	alarm(WATCHDOG_SECONDS); /* SIGALRM is not blocked and ends the process */
}

void
service_close(struct service *service)
{
	uint64_t one = 1;

	if (write(service->wake_fd, &one, sizeof(one)) == sizeof(one))
		pthread_join(service->life, NULL);
	close(service->wake_fd);
	close(service->signal_fd);
	pthread_cond_destroy(&service->wake);
	pthread_mutex_destroy(&service->lock);
}
