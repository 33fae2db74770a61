/* The tensor types Hearth computes with, by their number in GGUF, and their plain C unpacking.
 * A new type is one line in types.c and one unpacking function a device.
 * Layouts: ggml's block formats as the GGUF files of the field hold them (little-endian). */
#ifndef HEARTH_COMMON_TYPES_H
#define HEARTH_COMMON_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tensor_type {
	TYPE_F32 = 0,
	TYPE_F16 = 1,
	TYPE_Q4_0 = 2,
	TYPE_Q8_0 = 8,
	TYPE_Q4_K = 12,
	TYPE_Q5_K = 13,
	TYPE_Q6_K = 14,
	TYPE_BF16 = 30,
};

struct type_info {
	uint32_t type;
	const char *name;
	uint32_t block_elements;
	uint32_t block_bytes;
	/* `blocks` blocks at `in` (any alignment) to blocks * block_elements floats. */
	void (*unpack)(const void *in, float *out, size_t blocks);
};

/* NULL: not supported. */
const struct type_info *type_find(uint32_t type);

/* "F32, F16, ...": for messages. */
const char *type_supported_names(void);

/* Bytes of a row of `columns` elements; false if they are no whole number of blocks or overflow. */
bool type_row_bytes(const struct type_info *info, uint64_t columns, uint64_t *ret);

float type_half_to_float(uint16_t half);
uint16_t type_float_to_half(float value); /* round to nearest even */

#endif
