/* Whether a client's message makes sense by itself, before anything is looked up.  Needs no
 * sockets. */
#ifndef HEARTH_SCHEDULER_FRONT_CHECK_H
#define HEARTH_SCHEDULER_FRONT_CHECK_H

#include "common/error.h"
#include "proto/front.pb-c.h"

/* -EINVAL: the line says what stood there and what would be right. */
int front_check(const Hearth__FrontRequest *request, struct error *err);

#endif
