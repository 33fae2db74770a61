#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

#undef error_set
#undef error_path
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

static void
set_with_reason(struct error *err, int code, const char *format, va_list args)
{
	char reason[128];
	size_t n;

	vsnprintf(err->text, sizeof(err->text), format, args);
	n = strlen(err->text);
	snprintf(err->text + n, sizeof(err->text) - n, ": %s",
		 strerror_r(-code, reason, sizeof(reason)));
	utf8_clean(err->text);
}

int
error_path(struct error *err, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	set_with_reason(err, code, format, args);
	va_end(args);
	return code;
}

int
error_sys(struct error *err, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	set_with_reason(err, code, format, args);
	va_end(args);
	return error_exit_code(code) == EXIT_INPUT ? -EIO : code;
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
