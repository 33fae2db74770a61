/* Keeping memory resident by mlock. */
#ifndef HEARTH_COMMON_MEMORY_LOCK_H
#define HEARTH_COMMON_MEMORY_LOCK_H

#include <stdint.h>

#include "common/error.h"

/* -ENOMEM, -EPERM, -EAGAIN: refused; the line says what would help. */
int memory_lock(const void *at, uint64_t bytes, struct error *err);

#endif
