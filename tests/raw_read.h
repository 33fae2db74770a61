/* How fast a file can be read by the plainest means: the measure for the loader's readers. */
#ifndef HEARTH_TESTS_RAW_READ_H
#define HEARTH_TESTS_RAW_READ_H

#include <stdbool.h>
#include <stdint.h>

/* Takes the file's pages out of the page cache (all caches where root may say so). -errno. */
int raw_make_cold(const char *path);

/* GB/s of `threads` threads reading pieces of 8 MiB; direct: O_DIRECT.  -1: it cannot be read so.
 */
double raw_read_rate(const char *path, bool direct, uint32_t threads);

/* The same, buffered, each piece into its own place in memory that was populated before: what an
 * arena that costs nothing to fault in would reach from the file cache. */
double raw_read_in_place_rate(const char *path, uint32_t threads);

#endif
