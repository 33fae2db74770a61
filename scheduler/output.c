#include "scheduler/output.h"

#include <errno.h>
#include <stdio.h>

#include "common/log.h"
#include "scheduler/hearth.h"

int
output_flush(void)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	return errno ? -errno : -EIO;
}

int
output_end(const char *command)
{
	struct error err;
	int code = output_flush();

	if (code == 0)
		return 0;
	if (code == -EPIPE)
		return HEARTH_UNREAD;
	error_sys(&err, code, "%s: writing to stdout", command);
	log_error("%s", err.text);
	return EXIT_SYSTEM;
}
