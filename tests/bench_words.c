#include "tests/bench_words.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool
word_is(const char *text, size_t length, const char *word)
{
	return strlen(word) == length && memcmp(text, word, length) == 0;
}

int
bench_words_bits(const char *option, const char *text, const char *const *words, uint32_t *ret,
		 struct error *err)
{
	uint32_t bits = 0;

	for (;;) {
		size_t length = strcspn(text, ",");
		uint32_t i = 0;

		while (words[i] && !word_is(text, length, words[i]))
			i++;
		if (!words[i]) {
			char all[256] = "";

			for (i = 0; words[i]; i++)
				snprintf(all + strlen(all), sizeof(all) - strlen(all), " %s",
					 words[i]);
			return error_set(err, -EINVAL, "%s: '%.*s', want some of%s", option,
					 (int)length, text, all);
		}
		bits |= 1u << i;
		if (text[length] == '\0')
			break;
		text += length + 1;
	}
	*ret = bits;
	return 0;
}

int
bench_words_numbers(const char *option, const char *text, uint32_t *ret, uint32_t room,
		    uint32_t *ret_n, struct error *err)
{
	uint32_t n = 0;
	char *end;

	for (;; text = end + 1) {
		unsigned long value = isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;

		if (value == 0 || value > UINT32_MAX || (*end != ',' && *end != '\0'))
			return error_set(err, -EINVAL, "%s: '%s', want whole numbers as 4096,8192",
					 option, text);
		if (n == room)
			return error_set(err, -EINVAL, "%s: want at most %u numbers", option, room);
		ret[n++] = (uint32_t)value;
		if (*end == '\0')
			break;
	}
	*ret_n = n;
	return 0;
}
