/* UTF-8 as the Unicode standard defines it: no surrogates, no overlong forms, up to U+10FFFF. */
#ifndef HEARTH_COMMON_UTF8_H
#define HEARTH_COMMON_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes (1 to 4) of the character at `at`, and the character; 0: no character begins there. */
size_t utf8_decode(const uint8_t *at, size_t n, uint32_t *ret);

/* Writes 1 to 4 bytes. */
size_t utf8_encode(uint32_t character, uint8_t ret[4]);

/* Bytes up to the first that is no part of a character. */
size_t utf8_valid(const uint8_t *at, size_t n);

/* n, less the bytes at the end that may yet become a character.  Bytes that never can stay. */
size_t utf8_whole(const uint8_t *at, size_t n);

/* Makes a string fit for one line and for a message's string field: a control character, and what
 * is no character, becomes one '?' a byte. */
void utf8_clean(char *text);

#endif
