#include "scheduler/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The place of the word, or the free one where it would be. */
static struct word *
words_place(const struct words *words, const uint8_t *at, size_t bytes)
{
	uint32_t i = (uint32_t)XXH3_64bits(at, bytes) & words->mask;

	while (words->places[i].at &&
	       (words->places[i].bytes != bytes || memcmp(words->places[i].at, at, bytes) != 0))
		i = (i + 1) & words->mask;
	return &words->places[i];
}

int
words_open(struct words *ret, uint32_t most)
{
	uint32_t places = 16;

	while (places / 2 < most)
		places *= 2;
	ret->places = calloc(places, sizeof(*ret->places));
	if (!ret->places)
		return -ENOMEM;
	ret->mask = places - 1;
	return 0;
}

void
words_add(struct words *words, const uint8_t *at, uint32_t bytes, uint32_t id)
{
	struct word *place = words_place(words, at, bytes);

	if (!place->at)
		*place = (struct word){ .at = at, .bytes = bytes, .id = id };
}

bool
words_find(const struct words *words, const uint8_t *at, size_t bytes, uint32_t *ret_id)
{
	const struct word *place = words_place(words, at, bytes);

	if (!place->at)
		return false;
	*ret_id = place->id;
	return true;
}

void
words_close(struct words *words)
{
	free(words->places);
	*words = (struct words){ 0 };
}
