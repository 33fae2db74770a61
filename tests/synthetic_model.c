#include "tests/synthetic_model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/checked.h"
#include "common/types.h"
#include "proto/limits.h"
#include "tests/gguf_builder.h"
#include "tests/random_blocks.h"
#include "tests/synthetic_router.h"

#define PIECE_BYTES (8u << 20) /* one pwrite: large enough for any drive's best speed */
#define DATA_ALIGN 32u

struct shape {
	const char *name;
	uint32_t layers, experts, top_k, hidden, width, heads, kv_heads, head_dim, vocabulary;
	uint32_t context;
};

static const struct shape shapes[] = {
	{ "tiny", 2, 8, 2, 256, 256, 4, 2, 64, 512, 4096 },
	{ "small", 8, 32, 4, 512, 256, 8, 2, 64, 4096, 4096 },
	{ "qwen3-30b-a3b", 48, 128, 8, 2048, 768, 32, 4, 128, 151936, 40960 },
};

struct tensor {
	uint32_t type;
	uint64_t columns;
	float middle, deviation; /* of its weights */
	const float *gains;      /* of a router, (experts): its rows' lengths; else NULL */
	uint64_t offset;         /* in the data */
	uint64_t bytes;
};

struct maker {
	struct builder header;
	struct tensor *tensors;
	float *gains; /* (layers, experts) */
	uint32_t layers;
	uint64_t n; /* tensors */
	uint64_t data_bytes;
	uint64_t data_offset; /* of the data in the file */
	const struct synthetic *wanted;
	int fd;
	_Atomic uint64_t next_piece;
	_Atomic int failed; /* errno of the first failure */
};

/* A norm's weights are about 1; others about 0, of a size that keeps the input's, times `scale`. */
static struct tensor *
add(struct maker *maker, const char *name, uint32_t type, uint64_t columns, uint64_t rows,
    uint64_t experts, float scale)
{
	uint64_t dims[3] = { columns, rows, experts };
	struct tensor *tensor = &maker->tensors[maker->n++];
	uint64_t row_bytes = 0;

	type_row_bytes(type_find(type), columns, &row_bytes);
	*tensor = (struct tensor){ .type = type,
				   .columns = columns,
				   .middle = rows == 1 ? 1 : 0,
				   .deviation = rows == 1 ? 0.05f : scale / sqrtf((float)columns),
				   .offset = maker->data_bytes,
				   .bytes = row_bytes * rows * experts };
	builder_entry(&maker->header, name, type,
		      experts > 1 ? 3
		      : rows > 1  ? 2
				  : 1,
		      dims, tensor->offset);
	maker->data_bytes = round_up(tensor->offset + tensor->bytes, DATA_ALIGN);
	return tensor;
}

/* As Q4_K_M files have it: the outer eighths and every third layer between are finer. */
static bool
finer(uint32_t layer, uint32_t layers)
{
	return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

static const float *
add_gains(struct maker *maker, const struct shape *s, uint32_t layer)
{
	float *gains = maker->gains + (uint64_t)layer * s->experts;

	synthetic_gains(gains, s->experts, s->top_k, maker->wanted->zipf,
			maker->wanted->seed * MAX_LAYERS + layer);
	return gains;
}

static void
add_layer(struct maker *maker, const struct shape *s, uint32_t layer, uint32_t layers)
{
	uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
	float little = 1 / sqrtf(2 * (float)layers); /* what all layers add stays below 1 */
	const struct {
		const char *part;
		uint64_t columns, rows, experts;
		uint32_t type;
		float scale;
	} parts[] = {
		{ "attn_norm", s->hidden, 1, 1, TYPE_F32, 1 },
		{ "attn_q", s->hidden, q, 1, TYPE_Q4_K, 1 },
		{ "attn_k", s->hidden, kv, 1, TYPE_Q4_K, 1 },
		{ "attn_v", s->hidden, kv, 1, TYPE_Q6_K, 1 },
		{ "attn_q_norm", s->head_dim, 1, 1, TYPE_F32, 1 },
		{ "attn_k_norm", s->head_dim, 1, 1, TYPE_F32, 1 },
		{ "attn_output", q, s->hidden, 1, TYPE_Q4_K, little },
		{ "ffn_norm", s->hidden, 1, 1, TYPE_F32, 1 },
		{ "ffn_gate_inp", s->hidden, s->experts, 1, TYPE_F32, 1 },
		{ "ffn_gate_exps", s->hidden, s->width, s->experts, TYPE_Q4_K, 1 },
		{ "ffn_up_exps", s->hidden, s->width, s->experts, TYPE_Q4_K, 1 },
		{ "ffn_down_exps", s->width, s->hidden, s->experts,
		  finer(layer, layers) ? TYPE_Q6_K : TYPE_Q4_K, little },
	};
	char name[GGUF_MAX_NAME];
	struct tensor *tensor;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		snprintf(name, sizeof(name), "blk.%" PRIu32 ".%s.weight", layer, parts[i].part);
		tensor = add(maker, name, parts[i].type, parts[i].columns, parts[i].rows,
			     parts[i].experts, parts[i].scale);
		if (strcmp(parts[i].part, "ffn_gate_inp") == 0)
			tensor->gains = add_gains(maker, s, layer);
	}
}

static int
plan(struct maker *maker, const struct shape *s, uint32_t layers)
{
	builder_open(&maker->header);
	builder_string(&maker->header, "general.architecture", "qwen3moe");
	builder_string(&maker->header, "general.name", s->name);
	builder_u32(&maker->header, "qwen3moe.block_count", layers);
	builder_u32(&maker->header, "qwen3moe.context_length", s->context);
	builder_u32(&maker->header, "qwen3moe.embedding_length", s->hidden);
	builder_u32(&maker->header, "qwen3moe.attention.head_count", s->heads);
	builder_u32(&maker->header, "qwen3moe.attention.head_count_kv", s->kv_heads);
	builder_u32(&maker->header, "qwen3moe.attention.key_length", s->head_dim);
	builder_u32(&maker->header, "qwen3moe.attention.value_length", s->head_dim);
	builder_f32(&maker->header, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
	builder_f32(&maker->header, "qwen3moe.rope.freq_base", 1e6f);
	builder_u32(&maker->header, "qwen3moe.expert_count", s->experts);
	builder_u32(&maker->header, "qwen3moe.expert_used_count", s->top_k);
	builder_u32(&maker->header, "qwen3moe.expert_feed_forward_length", s->width);
	maker->tensors = calloc(3 + 12ull * layers, sizeof(*maker->tensors));
	maker->gains = calloc((uint64_t)layers * s->experts, sizeof(*maker->gains));
	if (!maker->tensors || !maker->gains)
		return -ENOMEM;
	maker->n = maker->data_bytes = 0;
	maker->layers = layers;
	/* A look-up, no product: the numbers a layer sees are the weights. */
	add(maker, "token_embd.weight", TYPE_Q4_K, s->hidden, s->vocabulary, 1,
	    sqrtf((float)s->hidden));
	for (uint32_t layer = 0; layer < layers; layer++)
		add_layer(maker, s, layer, layers);
	add(maker, "output_norm.weight", TYPE_F32, s->hidden, 1, 1, 1);
	add(maker, "output.weight", TYPE_Q6_K, s->hidden, s->vocabulary, 1, 1);
	return 0;
}

static void
unplan(struct maker *maker)
{
	builder_close(&maker->header);
	free(maker->tensors);
	free(maker->gains);
	maker->tensors = NULL;
	maker->gains = NULL;
}

/* -- writing -- */

/* A piece is whole blocks of one tensor; pieces are numbered through all tensors.  False: none. */
static bool
find_piece(const struct maker *maker, uint64_t piece, const struct tensor **ret_tensor,
	   uint64_t *ret_from, uint64_t *ret_bytes)
{
	for (uint64_t i = 0; i < maker->n; i++) {
		const struct tensor *tensor = &maker->tensors[i];
		uint64_t block = type_find(tensor->type)->block_bytes;
		uint64_t bytes = PIECE_BYTES / block * block;
		uint64_t pieces = (tensor->bytes + bytes - 1) / bytes;

		if (piece < pieces) {
			*ret_tensor = tensor;
			*ret_from = piece * bytes;
			*ret_bytes =
			    tensor->bytes - *ret_from < bytes ? tensor->bytes - *ret_from : bytes;
			return true;
		}
		piece -= pieces;
	}
	return false;
}

static int
write_all(int fd, const uint8_t *bytes, uint64_t n, uint64_t at)
{
	while (n > 0) {
		ssize_t done = pwrite(fd, bytes, n, (off_t)at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		bytes += done;
		at += (uint64_t)done;
		n -= (uint64_t)done;
	}
	return 0;
}

static void
make_piece(const struct maker *maker, uint64_t piece, const struct tensor *tensor, uint64_t from,
	   uint64_t bytes, uint8_t *to)
{
	float value;

	random_blocks(to, bytes, tensor->type, tensor->middle, tensor->deviation,
		      (maker->wanted->seed + 1) * 0xd1342543de82ef95ull +
			  piece * 0x2545f4914f6cdd1dull);
	if (!tensor->gains)
		return;
	for (uint64_t at = 0; at < bytes; at += sizeof(value)) {
		memcpy(&value, to + at, sizeof(value));
		value *= tensor->gains[(from + at) / sizeof(value) / tensor->columns];
		memcpy(to + at, &value, sizeof(value));
	}
}

static void *
make_pieces(void *arg)
{
	struct maker *maker = arg;
	const struct tensor *tensor;
	uint8_t *buffer = malloc(PIECE_BYTES);
	uint64_t piece, from, bytes;
	int rc = buffer ? 0 : -ENOMEM;

	while (rc == 0 && maker->failed == 0) {
		piece = atomic_fetch_add(&maker->next_piece, 1);
		if (!find_piece(maker, piece, &tensor, &from, &bytes))
			break;
		make_piece(maker, piece, tensor, from, bytes, buffer);
		rc =
		    write_all(maker->fd, buffer, bytes, maker->data_offset + tensor->offset + from);
	}
	if (rc < 0)
		maker->failed = -rc;
	free(buffer);
	return NULL;
}

static int
write_model(struct maker *maker, const char *path, struct error *err)
{
	pthread_t makers[SYNTHETIC_MAX_THREADS];
	struct bytes header;
	uint64_t n = 0;

	maker->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (maker->fd < 0)
		return error_path(err, -errno, "%s", path);
	builder_finish(&maker->header, &header);
	maker->data_offset = round_up(header.n, DATA_ALIGN);
	if (ftruncate(maker->fd, (off_t)(maker->data_offset + maker->data_bytes)) < 0)
		maker->failed = errno;
	else
		maker->failed = -write_all(maker->fd, header.at, header.n, 0);
	bytes_close(&header);
	while (n + 1 < maker->wanted->threads &&
	       pthread_create(&makers[n], NULL, make_pieces, maker) == 0)
		n++;
	make_pieces(maker);
	while (n > 0)
		pthread_join(makers[--n], NULL);
	if (close(maker->fd) < 0 && maker->failed == 0)
		maker->failed = errno;
	return maker->failed ? error_sys(err, -maker->failed, "%s", path) : 0;
}

/* Plans as many layers as fit in `bytes`, at least one. */
static int
plan_bytes(struct maker *maker, const struct shape *s, uint64_t bytes)
{
	uint32_t layers = 1;
	int rc = plan(maker, s, layers);

	while (rc == 0 && maker->data_bytes <= bytes && layers < MAX_LAYERS) {
		unplan(maker);
		rc = plan(maker, s, ++layers);
	}
	if (rc < 0 || maker->data_bytes <= bytes || layers == 1)
		return rc;
	unplan(maker);
	return plan(maker, s, layers - 1);
}

int
synthetic_write(const struct synthetic *synthetic, const char *path, struct synthetic_made *ret,
		struct error *err)
{
	struct maker maker = { .wanted = synthetic };
	const struct shape *s = shapes;
	int rc;

	while (strcmp(s->name, synthetic->shape) != 0)
		s++;
	if (synthetic->bytes)
		rc = plan_bytes(&maker, s, synthetic->bytes);
	else
		rc = plan(&maker, s, synthetic->layers ? synthetic->layers : s->layers);
	if (rc < 0)
		rc = error_sys(err, rc, "planning");
	else
		rc = write_model(&maker, path, err);
	if (rc == 0)
		*ret =
		    (struct synthetic_made){ maker.layers, maker.data_offset + maker.data_bytes };
	unplan(&maker);
	return rc;
}
