#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *log_stage = "hearth";

void
log_open(const char *stage)
{
	log_stage = stage;
}

/* One write(2), so that lines of several processes do not mix. */
static void
log_line(const char *level, const char *format, va_list args)
{
	char line[1024];
	int n = snprintf(line, sizeof(line), "%s: %s: ", log_stage, level);
	int text = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);

	n += text;
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nobody left to tell */
}

#define LOG_LEVEL(level)                          \
	void log_##level(const char *format, ...) \
	{                                         \
		va_list args;                     \
                                                  \
		va_start(args, format);           \
		log_line(#level, format, args);   \
		va_end(args);                     \
	}

LOG_LEVEL(info)
LOG_LEVEL(warn)
LOG_LEVEL(error)
