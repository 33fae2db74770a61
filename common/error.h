/* What went wrong, as one line for a person, whatever it quotes (utf8_clean).  A function that
 * takes a struct error returns 0 or -errno and writes the line on failure only: what was tried, on
 * what, what stood there, what would have been right. */
#ifndef HEARTH_COMMON_ERROR_H
#define HEARTH_COMMON_ERROR_H

#define EXIT_INPUT 100  /* your input is wrong: do not restart */
#define EXIT_SYSTEM 111 /* the system failed: a restart may help */

struct error {
	char text[512];
};

/* Writes the line, returns `code` (negative) so that it can be returned in one go. */
__attribute__((format(printf, 3, 4))) int error_set(struct error *err, int code, const char *format,
						    ...);

/* The same with ": <strerror(-code)>" behind it: a file that somebody has named cannot be had. */
__attribute__((format(printf, 3, 4))) int error_path(struct error *err, int code,
						     const char *format, ...);

/* The same of what nobody has named: the system's own failure, whatever its number says.  Where
 * error_exit_code would call it the user's, -EIO is returned. */
__attribute__((format(printf, 3, 4))) int error_sys(struct error *err, int code, const char *format,
						    ...);

/* EXIT_INPUT for -EINVAL, -ENOENT, -EACCES, -EISDIR, -ENOTDIR, -ELOOP, -ENAMETOOLONG, -ENOTSUP,
 * -EBADMSG, -EOVERFLOW, -EEXIST and -ENODEV, else EXIT_SYSTEM. */
int error_exit_code(int code);

/* What they return is negative; the analyzer does not look into another file to learn it. */
#ifdef __clang_analyzer__
#define error_set(err, code, ...) ((void)error_set(err, code, __VA_ARGS__), -1)
#define error_path(err, code, ...) ((void)error_path(err, code, __VA_ARGS__), -1)
#define error_sys(err, code, ...) ((void)error_sys(err, code, __VA_ARGS__), -1)
#endif

#endif
