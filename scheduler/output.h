/* What a command has written to stdout: did it get there? */
#ifndef HEARTH_SCHEDULER_OUTPUT_H
#define HEARTH_SCHEDULER_OUTPUT_H

#include "common/error.h"

/* 0 or -errno: a full disk, a reader that left. */
int output_flush(void);

/* The same at the end of a command, as its exit code and with its line. */
int output_end(const char *command);

#endif
