/* Lists on a bench's command line: a,b,c. */
#ifndef HEARTH_TESTS_BENCH_WORDS_H
#define HEARTH_TESTS_BENCH_WORDS_H

#include <stdint.h>

#include "common/error.h"

/* Bit i for words[i] (NULL-ended, at most 32).  -EINVAL: another word, or none. */
int bench_words_bits(const char *option, const char *text, const char *const *words, uint32_t *ret,
		     struct error *err);

/* 1 to `room` whole numbers above 0. */
int bench_words_numbers(const char *option, const char *text, uint32_t *ret, uint32_t room,
			uint32_t *ret_n, struct error *err);

#endif
