/* A service that only its test wakes and ends: without signals and without a thread of its own. */
#ifndef HEARTH_TESTS_QUIET_SERVICE_H
#define HEARTH_TESTS_QUIET_SERVICE_H

#include "common/service.h"

void quiet_service_open(struct service *ret, const char *stage);
void quiet_service_close(struct service *service);

#endif
