#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

#undef error_set
#undef error_sys

int
error_set(struct error *err, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	utf8_clean(err->text); /* what is quoted may be anything */
	return code;
}

int
error_sys(struct error *err, int code, const char *format, ...)
{
	char reason[128];
	va_list args;
	size_t n;

	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	n = strlen(err->text);
	snprintf(err->text + n, sizeof(err->text) - n, ": %s",
		 strerror_r(-code, reason, sizeof(reason)));
	utf8_clean(err->text);
	return code;
}

int
error_exit_code(int code)
{
	switch (-code) {
	case EINVAL:
	case ENOENT:
	case EACCES:
	case EISDIR:
	case ENOTDIR:
	case ELOOP:
	case ENAMETOOLONG:
	case ENOTSUP:
	case EBADMSG:
	case EOVERFLOW:
	case EEXIST:
	case ENODEV:
		return EXIT_INPUT;
	default:
		return EXIT_SYSTEM;
	}
}
