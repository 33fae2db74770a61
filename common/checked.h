/* Arithmetic on sizes that come from a file or a message: false when the result does not fit. */
#ifndef HEARTH_COMMON_CHECKED_H
#define HEARTH_COMMON_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool
checked_add(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_add_overflow(a, b, ret);
}

static inline bool
checked_mul(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_mul_overflow(a, b, ret);
}

/* `step` is a power of two. */
static inline uint64_t
round_down(uint64_t n, uint64_t step)
{
	return n & ~(step - 1);
}

static inline bool
checked_round_up(uint64_t n, uint64_t step, uint64_t *ret)
{
	if (__builtin_add_overflow(n, step - 1, ret))
		return false;
	*ret = round_down(*ret, step);
	return true;
}

/* For sizes known to be far from the limit. */
static inline uint64_t
round_up(uint64_t n, uint64_t step)
{
	return round_down(n + step - 1, step);
}

#endif
