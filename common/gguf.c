#include "common/gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/gguf_cursor.h"
#include "common/types.h"

#define HEADER_FIXED 24 /* magic, version, two counts */
#define MIN_PAIR 14     /* key length, one byte of key, kind, one byte of value */
#define MIN_TENSOR 33   /* name length, one byte of name, n_dims, one dim, type, offset */
#define MAX_KEY 65535   /* the specification's limit */
#define DEFAULT_ALIGNMENT 32
#define MIN_ALIGNMENT 8
#define MAX_ALIGNMENT (1u << 20)

/* 0: no such kind, or not of a fixed size. */
static uint64_t
kind_bytes(uint32_t kind)
{
	switch (kind) {
	case GGUF_U8:
	case GGUF_I8:
	case GGUF_BOOL:
		return 1;
	case GGUF_U16:
	case GGUF_I16:
		return 2;
	case GGUF_U32:
	case GGUF_I32:
	case GGUF_F32:
		return 4;
	case GGUF_U64:
	case GGUF_I64:
	case GGUF_F64:
		return 8;
	default:
		return 0;
	}
}

static int
parse_values(struct cursor *c, uint32_t kind, uint64_t count)
{
	struct gguf_string string;
	uint64_t each = kind_bytes(kind);
	int rc;

	if (kind == GGUF_STRING) {
		rc = cursor_count(c, count, 8, "strings");
		for (uint64_t i = 0; rc == 0 && i < count; i++)
			rc = cursor_string(c, &string);
		return rc;
	}
	if (!each)
		return error_set(c->err, -EBADMSG, "%s: value type %" PRIu32 ", want 0 to 12 (%s)",
				 c->what, kind, c->file);
	rc = cursor_count(c, count, each, "values");
	if (rc < 0)
		return rc;
	for (uint64_t i = 0; kind == GGUF_BOOL && i < count; i++)
		if (c->bytes[c->at + i] > 1)
			return error_set(c->err, -EBADMSG, "%s: a bool of %d, want 0 or 1 (%s)",
					 c->what, c->bytes[c->at + i], c->file);
	c->at += count * each;
	return 0;
}

static int
parse_pair(struct cursor *c, uint64_t index, struct gguf_pair *ret)
{
	struct gguf_pair pair = { .count = 1 };
	uint32_t kind, element;
	int rc;

	snprintf(c->what, sizeof(c->what), "key %" PRIu64, index);
	rc = cursor_label(c, "key ", MAX_KEY, &pair.key);
	if (rc < 0)
		return rc;
	rc = cursor_take(c, &kind, sizeof(kind));
	if (rc < 0)
		return rc;
	element = kind;
	if (kind == GGUF_ARRAY) {
		rc = cursor_take(c, &element, sizeof(element));
		if (rc == 0)
			rc = cursor_take(c, &pair.count, sizeof(pair.count));
		if (rc < 0)
			return rc;
		if (element == GGUF_ARRAY)
			return error_set(
			    c->err, -EBADMSG,
			    "%s: an array of arrays, want an array of plain values (%s)", c->what,
			    c->file);
	}
	pair.at = c->bytes + c->at;
	rc = parse_values(c, element, pair.count);
	if (rc < 0)
		return rc;
	pair.kind = kind;
	pair.element = element;
	*ret = pair;
	return 0;
}

/* Dimensions and type are known: how many bytes, without wrapping. */
static int
tensor_size(struct cursor *c, struct gguf_tensor *tensor)
{
	const struct type_info *type = type_find(tensor->type);
	uint64_t bytes;

	if (!type)
		return error_set(c->err, -ENOTSUP, "%s: type %" PRIu32 ", supported are %s (%s)",
				 c->what, tensor->type, type_supported_names(), c->file);
	if (tensor->dims[0] % type->block_elements)
		return error_set(
		    c->err, -EBADMSG,
		    "%s: rows of %" PRIu64 " elements, want a multiple of %" PRIu32 " for %s (%s)",
		    c->what, tensor->dims[0], type->block_elements, type->name, c->file);
	if (!type_row_bytes(type, tensor->dims[0], &bytes))
		goto too_large;
	for (int i = 1; i < GGUF_MAX_DIMS; i++)
		if (!checked_mul(bytes, tensor->dims[i], &bytes))
			goto too_large;
	tensor->bytes = bytes;
	return 0;
too_large:
	return error_set(c->err, -EBADMSG,
			 "%s: dimensions %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
			 " do not fit 64 bits (%s)",
			 c->what, tensor->dims[0], tensor->dims[1], tensor->dims[2],
			 tensor->dims[3], c->file);
}

static int
parse_tensor(struct cursor *c, uint64_t index, struct gguf_tensor *ret)
{
	struct gguf_tensor tensor = { .dims = { 1, 1, 1, 1 } };
	int rc;

	snprintf(c->what, sizeof(c->what), "tensor %" PRIu64, index);
	rc = cursor_label(c, "", GGUF_MAX_NAME - 1, &tensor.name);
	if (rc == 0)
		rc = cursor_take(c, &tensor.n_dims, sizeof(tensor.n_dims));
	if (rc < 0)
		return rc;
	if (tensor.n_dims == 0 || tensor.n_dims > GGUF_MAX_DIMS)
		return error_set(c->err, -EBADMSG, "%s: %" PRIu32 " dimensions, want 1 to %d (%s)",
				 c->what, tensor.n_dims, GGUF_MAX_DIMS, c->file);
	for (uint32_t i = 0; i < tensor.n_dims; i++) {
		rc = cursor_take(c, &tensor.dims[i], sizeof(tensor.dims[i]));
		if (rc < 0)
			return rc;
		if (tensor.dims[i] == 0)
			return error_set(c->err, -EBADMSG,
					 "%s: dimension %" PRIu32 " is 0, want 1 or more (%s)",
					 c->what, i, c->file);
	}
	rc = cursor_take(c, &tensor.type, sizeof(tensor.type));
	if (rc == 0)
		rc = cursor_take(c, &tensor.offset, sizeof(tensor.offset));
	if (rc == 0)
		rc = tensor_size(c, &tensor);
	if (rc == 0)
		*ret = tensor;
	return rc;
}

static int
compare_names(const void *a, const void *b)
{
	const struct gguf_string *x = *(const struct gguf_string *const *)a;
	const struct gguf_string *y = *(const struct gguf_string *const *)b;
	int order = memcmp(x->at, y->at, x->bytes < y->bytes ? x->bytes : y->bytes);

	return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* `first` is the name inside the first of n structs of `step` bytes. */
static int
check_names(struct cursor *c, const char *kind, const struct gguf_string *first, size_t step,
	    uint64_t n)
{
	const struct gguf_string **sorted = calloc(n + 1, sizeof(const struct gguf_string *));
	int rc = 0;

	if (!sorted)
		return error_sys(c->err, -ENOMEM, "%" PRIu64 " names (%s)", n, c->file);
	for (uint64_t i = 0; i < n; i++)
		sorted[i] = (const void *)((const char *)first + i * step);
	qsort(sorted, n, sizeof(const struct gguf_string *), compare_names);
	for (uint64_t i = 1; i < n && rc == 0; i++) {
		if (compare_names(&sorted[i - 1], &sorted[i]) != 0)
			continue;
		cursor_name(c, kind, *sorted[i]);
		rc = error_set(c->err, -EBADMSG, "%s: the name stands twice, want it once (%s)",
			       c->what, c->file);
	}
	free(sorted);
	return rc;
}

static int
compare_places(const void *a, const void *b)
{
	const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
	const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;

	return (x->offset > y->offset) - (x->offset < y->offset);
}

static int
check_overlap(struct cursor *c, const struct gguf *gguf)
{
	uint64_t n = gguf->n_tensors;
	const struct gguf_tensor **sorted = calloc(n + 1, sizeof(const struct gguf_tensor *));
	int rc = 0;

	if (!sorted)
		return error_sys(c->err, -ENOMEM, "%" PRIu64 " tensors (%s)", n, c->file);
	for (uint64_t i = 0; i < n; i++)
		sorted[i] = &gguf->tensors[i];
	qsort(sorted, n, sizeof(const struct gguf_tensor *), compare_places);
	for (uint64_t i = 1; i < n && rc == 0; i++) {
		const struct gguf_tensor *before = sorted[i - 1];

		if (before->offset + before->bytes <= sorted[i]->offset)
			continue;
		cursor_name(c, "", sorted[i]->name);
		rc = error_set(c->err, -EBADMSG,
			       "%s: begins at %" PRIu64 " inside %.*s, which ends at %" PRIu64
			       " (%s)",
			       c->what, sorted[i]->offset, (int)before->name.bytes, before->name.at,
			       before->offset + before->bytes, c->file);
	}
	free(sorted);
	return rc;
}

/* Offsets count from data_offset in the file's entries; from the file's begin afterwards. */
static int
place_tensors(struct cursor *c, struct gguf *gguf)
{
	for (uint64_t i = 0; i < gguf->n_tensors; i++) {
		struct gguf_tensor *tensor = &gguf->tensors[i];
		uint64_t begin, end;

		cursor_name(c, "", tensor->name);
		if (tensor->offset % gguf->alignment)
			return error_set(c->err, -EBADMSG,
					 "%s: offset %" PRIu64 ", want a multiple of %" PRIu64
					 " (%s)",
					 c->what, tensor->offset, gguf->alignment, c->file);
		if (!checked_add(gguf->data_offset, tensor->offset, &begin) ||
		    !checked_add(begin, tensor->bytes, &end) || end > c->file_bytes)
			return error_set(
			    c->err, -EBADMSG,
			    "%s: %" PRIu64 " bytes at offset %" PRIu64
			    " of the data, want an end within the file's %" PRIu64 " bytes (%s)",
			    c->what, tensor->bytes, tensor->offset, c->file_bytes, c->file);
		tensor->offset = begin;
	}
	return 0;
}

static int
parse_fixed(struct cursor *c, struct gguf *gguf)
{
	uint8_t magic[4];
	uint32_t version = 0;
	int rc;

	snprintf(c->what, sizeof(c->what), "header");
	if (c->file_bytes < HEADER_FIXED)
		return error_set(c->err, -EBADMSG,
				 "%s: %" PRIu64 " bytes, want at least %d of a GGUF header",
				 c->file, c->file_bytes, HEADER_FIXED);
	rc = cursor_need(c, HEADER_FIXED);
	if (rc < 0)
		return rc;
	cursor_take(c, magic, sizeof(magic));
	cursor_take(c, &version, sizeof(version));
	cursor_take(c, &gguf->n_tensors, 8);
	cursor_take(c, &gguf->n_pairs, 8);
	if (memcmp(magic, "GGUF", 4) != 0)
		return error_set(c->err, -EBADMSG,
				 "%s: begins with %02x %02x %02x %02x, want \"GGUF\"", c->file,
				 magic[0], magic[1], magic[2], magic[3]);
	if (version == __builtin_bswap32(2) || version == __builtin_bswap32(3))
		return error_set(c->err, -ENOTSUP, "%s: big-endian GGUF, want little-endian",
				 c->file);
	if (version != 2 && version != 3)
		return error_set(c->err, -ENOTSUP, "%s: GGUF version %" PRIu32 ", want 2 or 3",
				 c->file, version);
	if (gguf->n_pairs == 0)
		return error_set(c->err, -EBADMSG,
				 "%s: 0 metadata keys, want general.architecture at least",
				 c->file);
	gguf->version = version;
	return 0;
}

static int
parse_alignment(struct cursor *c, struct gguf *gguf)
{
	const struct gguf_pair *pair = gguf_find(gguf, "general.alignment");
	uint32_t alignment;

	gguf->alignment = DEFAULT_ALIGNMENT;
	if (!pair)
		return 0;
	if (pair->kind != GGUF_U32)
		return error_set(c->err, -EBADMSG,
				 "key general.alignment: value type %d, want %d (uint32) (%s)",
				 pair->kind, GGUF_U32, c->file);
	memcpy(&alignment, pair->at, sizeof(alignment));
	if (alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT || alignment & (alignment - 1))
		return error_set(c->err, -EBADMSG,
				 "key general.alignment: %" PRIu32
				 ", want a power of two from %d to %u (%s)",
				 alignment, MIN_ALIGNMENT, MAX_ALIGNMENT, c->file);
	gguf->alignment = alignment;
	return 0;
}

static int
parse_tables(struct cursor *c, struct gguf *gguf)
{
	int rc = cursor_count(c, gguf->n_pairs, MIN_PAIR, "metadata keys");

	if (rc == 0)
		rc = cursor_count(c, gguf->n_tensors, MIN_TENSOR, "tensors");
	if (rc < 0)
		return rc;
	gguf->pairs = calloc(gguf->n_pairs + 1, sizeof(*gguf->pairs));
	gguf->tensors = calloc(gguf->n_tensors + 1, sizeof(*gguf->tensors));
	if (!gguf->pairs || !gguf->tensors)
		return error_sys(c->err, -ENOMEM, "tables of %" PRIu64 " keys (%s)", gguf->n_pairs,
				 c->file);
	for (uint64_t i = 0; i < gguf->n_pairs && rc == 0; i++)
		rc = parse_pair(c, i, &gguf->pairs[i]);
	for (uint64_t i = 0; i < gguf->n_tensors && rc == 0; i++)
		rc = parse_tensor(c, i, &gguf->tensors[i]);
	if (rc < 0)
		return rc;
	gguf->header_bytes = c->at;
	rc = parse_alignment(c, gguf);
	if (rc == 0)
		rc = check_names(c, "key ", &gguf->pairs->key, sizeof(*gguf->pairs), gguf->n_pairs);
	if (rc == 0)
		rc = check_names(c, "", &gguf->tensors->name, sizeof(*gguf->tensors),
				 gguf->n_tensors);
	return rc;
}

int
gguf_parse(struct gguf *ret, const void *bytes, uint64_t n, uint64_t file_bytes, const char *file,
	   struct error *err)
{
	struct cursor c = {
		.bytes = bytes, .n = n, .file_bytes = file_bytes, .file = file, .err = err
	};
	struct gguf gguf = { 0 };
	int rc = parse_fixed(&c, &gguf);

	if (rc == 0)
		rc = parse_tables(&c, &gguf);
	if (rc == 0 && !checked_round_up(gguf.header_bytes, gguf.alignment, &gguf.data_offset))
		rc = error_set(err, -EBADMSG, "%s: a header of %" PRIu64 " bytes", file,
			       gguf.header_bytes);
	if (rc == 0)
		rc = place_tensors(&c, &gguf);
	if (rc == 0)
		rc = check_overlap(&c, &gguf);
	if (rc < 0) {
		gguf_close(&gguf);
		return rc;
	}
	*ret = gguf;
	return 0;
}

void
gguf_close(struct gguf *gguf)
{
	free(gguf->pairs);
	free(gguf->tensors);
	*gguf = (struct gguf){ 0 };
}
