/* A hash table from bytes to token id.  The bytes stay the caller's.  Not changed after it is
 * built: any number of threads may look things up. */
#ifndef HEARTH_SCHEDULER_WORDS_H
#define HEARTH_SCHEDULER_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct word {
	const uint8_t *at; /* NULL: a free place */
	uint32_t bytes;
	uint32_t id;
};

struct words {
	struct word *places;
	uint32_t mask; /* places - 1, a power of two less one */
};

int words_open(struct words *ret, uint32_t most); /* room for `most`; 0 or -ENOMEM */
/* The first of equals stays. */
void words_add(struct words *words, const uint8_t *at, uint32_t bytes, uint32_t id);
bool words_find(const struct words *words, const uint8_t *at, size_t bytes, uint32_t *ret_id);
void words_close(struct words *words); /* of a zeroed one is fine */

#endif
