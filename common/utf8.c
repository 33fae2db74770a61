#include "common/utf8.h"

#include <stdbool.h>
#include <string.h>

/* What the first byte says: bytes in all, 0 if none begins so. */
static size_t
utf8_length(uint8_t first)
{
	if (first < 0x80)
		return 1;
	if (first >= 0xc2 && first <= 0xdf)
		return 2;
	if (first >= 0xe0 && first <= 0xef)
		return 3;
	if (first >= 0xf0 && first <= 0xf4)
		return 4;
	return 0;
}

/* The second byte excludes overlong forms, surrogates and what is beyond U+10FFFF. */
static bool
utf8_second_fits(uint8_t first, uint8_t second)
{
	uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
	uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

	return second >= low && second <= high;
}

/* How many of the `n` bytes fit the character that `at` begins. */
static size_t
utf8_fitting(const uint8_t *at, size_t n, size_t length)
{
	size_t i = 1;

	if (length > 1 && n > 1 && !utf8_second_fits(at[0], at[1]))
		return 1;
	while (i < length && i < n && (at[i] & 0xc0) == 0x80)
		i++;
	return i;
}

size_t
utf8_decode(const uint8_t *at, size_t n, uint32_t *ret)
{
	size_t length = n ? utf8_length(at[0]) : 0;
	uint32_t character;

	if (!length || n < length || utf8_fitting(at, n, length) < length)
		return 0;
	character = length == 1 ? at[0] : at[0] & (0x7fu >> length);
	for (size_t i = 1; i < length; i++)
		character = character << 6 | (at[i] & 0x3f);
	*ret = character;
	return length;
}

size_t
utf8_encode(uint32_t character, uint8_t ret[4])
{
	size_t length = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;

	if (length == 1) {
		ret[0] = (uint8_t)character;
		return 1;
	}
	for (size_t i = length - 1; i > 0; i--) {
		ret[i] = (uint8_t)(0x80 | (character & 0x3f));
		character >>= 6;
	}
	ret[0] = (uint8_t)((0xf00u >> length) | character);
	return length;
}

size_t
utf8_valid(const uint8_t *at, size_t n)
{
	uint32_t character;
	size_t i = 0, length;

	while (i < n && (length = utf8_decode(at + i, n - i, &character)))
		i += length;
	return i;
}

size_t
utf8_whole(const uint8_t *at, size_t n)
{
	for (size_t back = 1; back <= 3 && back <= n; back++) {
		size_t length = utf8_length(at[n - back]);

		if (!length)
			continue;
		if (length > back && utf8_fitting(at + n - back, back, length) == back)
			return n - back;
		return n;
	}
	return n;
}

void
utf8_clean(char *text)
{
	uint8_t *at = (uint8_t *)text;
	size_t n = strlen(text), length;
	uint32_t character = 0;

	for (size_t i = 0; i < n; i += length) {
		length = utf8_decode(at + i, n - i, &character);
		if (length == 0 || character < ' ' || (character >= 0x7f && character < 0xa0)) {
			length = length ? length : 1;
			memset(at + i, '?', length);
		}
	}
}
