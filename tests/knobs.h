/* Switches of the running kernel, set for a test and put back: only root may, and where it may not
 * the test is skipped aloud (cmocka).  Test programs take turns. */
#ifndef HEARTH_TESTS_KNOBS_H
#define HEARTH_TESTS_KNOBS_H

#include <stdbool.h>

/* False: it cannot be set here, or the kernel took another value (all is as it was). */
bool knob_set(const char *path, const char *value);

/* Or the test ends here, skipped. */
void knob_need(const char *path, const char *value);

/* Every knob as it was before the first knob_set; a teardown. */
int knobs_restore(void **state);

/* The word in brackets, or the line; good until the next call. */
const char *knob_get(const char *path);

#endif
