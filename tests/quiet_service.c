#include "tests/quiet_service.h"

#include <time.h>

void
quiet_service_open(struct service *ret, const char *stage)
{
	pthread_condattr_t attr;

	*ret = (struct service){ .stage = stage };
	pthread_mutex_init(&ret->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ret->wake, &attr);
	pthread_condattr_destroy(&attr);
}

void
quiet_service_close(struct service *service)
{
	pthread_cond_destroy(&service->wake);
	pthread_mutex_destroy(&service->lock);
}
