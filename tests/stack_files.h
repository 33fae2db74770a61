/* Files for whole-stack tests to damage (cmocka). */
#ifndef HEARTH_TESTS_STACK_FILES_H
#define HEARTH_TESTS_STACK_FILES_H

#include <stddef.h>

void file_copy(const char *from, const char *to);
/* Every 4 KiB from `at` on, 64 bytes become others; doing it again puts them back. */
void file_flip(const char *path, long at);

#endif
