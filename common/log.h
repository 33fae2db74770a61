/* One line on stderr: `stage: level: text`.  Whole lines from any thread. */
#ifndef HEARTH_COMMON_LOG_H
#define HEARTH_COMMON_LOG_H

void log_open(const char *stage); /* the name is kept, not copied */

__attribute__((format(printf, 1, 2))) void log_info(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_warn(const char *format, ...);
__attribute__((format(printf, 1, 2))) void log_error(const char *format, ...);

#endif
