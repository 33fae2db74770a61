/* make_model: writes a synthetic qwen3moe GGUF file of seeded random blocks with plausible scales,
 * with several threads at the speed of the drive.  The bytes depend on shape, size and seed alone.
 * It has no tokenizer: such a model answers prompts of token ids. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/checked.h"
#include "common/error.h"
#include "common/log.h"
#include "common/options.h"
#include "common/types.h"
#include "proto/limits.h"
#include "tests/gguf_builder.h"
#include "tests/random_blocks.h"

#define PIECE_BYTES (8u << 20) /* one pwrite: large enough for any drive's best speed */
#define MAX_MAKERS 64
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
	uint64_t columns; /* what a random weight's size is made from */
	bool norm;        /* about 1 instead of about 0 */
	uint64_t offset;  /* in the data */
	uint64_t bytes;
};

struct maker {
	struct builder header;
	struct tensor *tensors;
	uint64_t n, room;
	uint64_t data_bytes;
	uint64_t data_offset; /* of the data in the file */
	uint64_t seed;
	int fd;
	_Atomic uint64_t next_piece;
	_Atomic int failed; /* errno of the first failure */
};

static void
add(struct maker *maker, const char *name, uint32_t type, uint64_t columns, uint64_t rows,
    uint64_t experts)
{
	uint64_t dims[3] = { columns, rows, experts };
	struct tensor *tensor = &maker->tensors[maker->n++];
	uint64_t row_bytes = 0;

	type_row_bytes(type_find(type), columns, &row_bytes);
	*tensor = (struct tensor){ .type = type,
				   .columns = columns,
				   .norm = rows == 1,
				   .offset = maker->data_bytes,
				   .bytes = row_bytes * rows * experts };
	builder_entry(&maker->header, name, type,
		      experts > 1 ? 3
		      : rows > 1  ? 2
				  : 1,
		      dims, tensor->offset);
	maker->data_bytes = round_up(tensor->offset + tensor->bytes, DATA_ALIGN);
}

/* As Q4_K_M files have it: the outer eighths and every third layer between are finer. */
static bool
finer(uint32_t layer, uint32_t layers)
{
	return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

static void
add_layer(struct maker *maker, const struct shape *s, uint32_t layer, uint32_t layers)
{
	uint64_t q = (uint64_t)s->heads * s->head_dim, kv = (uint64_t)s->kv_heads * s->head_dim;
	const struct {
		const char *part;
		uint32_t type;
		uint64_t columns, rows, experts;
	} parts[] = {
		{ "attn_norm", TYPE_F32, s->hidden, 1, 1 },
		{ "attn_q", TYPE_Q4_K, s->hidden, q, 1 },
		{ "attn_k", TYPE_Q4_K, s->hidden, kv, 1 },
		{ "attn_v", TYPE_Q6_K, s->hidden, kv, 1 },
		{ "attn_q_norm", TYPE_F32, s->head_dim, 1, 1 },
		{ "attn_k_norm", TYPE_F32, s->head_dim, 1, 1 },
		{ "attn_output", TYPE_Q4_K, q, s->hidden, 1 },
		{ "ffn_norm", TYPE_F32, s->hidden, 1, 1 },
		{ "ffn_gate_inp", TYPE_F32, s->hidden, s->experts, 1 },
		{ "ffn_gate_exps", TYPE_Q4_K, s->hidden, s->width, s->experts },
		{ "ffn_up_exps", TYPE_Q4_K, s->hidden, s->width, s->experts },
		{ "ffn_down_exps", finer(layer, layers) ? TYPE_Q6_K : TYPE_Q4_K, s->width,
		  s->hidden, s->experts },
	};
	char name[GGUF_MAX_NAME];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		snprintf(name, sizeof(name), "blk.%" PRIu32 ".%s.weight", layer, parts[i].part);
		add(maker, name, parts[i].type, parts[i].columns, parts[i].rows, parts[i].experts);
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
	if (!maker->tensors)
		return -ENOMEM;
	maker->n = maker->data_bytes = 0;
	add(maker, "token_embd.weight", TYPE_Q4_K, s->hidden, s->vocabulary, 1);
	for (uint32_t layer = 0; layer < layers; layer++)
		add_layer(maker, s, layer, layers);
	add(maker, "output_norm.weight", TYPE_F32, s->hidden, 1, 1);
	add(maker, "output.weight", TYPE_Q6_K, s->hidden, s->vocabulary, 1);
	return 0;
}

static void
unplan(struct maker *maker)
{
	builder_close(&maker->header);
	free(maker->tensors);
	maker->tensors = NULL;
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
		random_blocks(buffer, bytes, tensor->type, tensor->norm ? 1 : 0,
			      tensor->norm ? 0.05f : 1 / sqrtf((float)tensor->columns),
			      (maker->seed + 1) * 0xd1342543de82ef95ull +
				  piece * 0x2545f4914f6cdd1dull);
		rc =
		    write_all(maker->fd, buffer, bytes, maker->data_offset + tensor->offset + from);
	}
	if (rc < 0)
		maker->failed = -rc;
	free(buffer);
	return NULL;
}

static int
write_model(struct maker *maker, const char *path, uint64_t threads, struct error *err)
{
	pthread_t makers[MAX_MAKERS];
	struct bytes header;
	uint64_t n = 0;

	maker->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (maker->fd < 0)
		return error_sys(err, -errno, "%s", path);
	builder_finish(&maker->header, &header);
	maker->data_offset = round_up(header.n, DATA_ALIGN);
	if (ftruncate(maker->fd, (off_t)(maker->data_offset + maker->data_bytes)) < 0)
		maker->failed = errno;
	else
		maker->failed = -write_all(maker->fd, header.at, header.n, 0);
	bytes_close(&header);
	while (n + 1 < threads && pthread_create(&makers[n], NULL, make_pieces, maker) == 0)
		n++;
	make_pieces(maker);
	while (n > 0)
		pthread_join(makers[--n], NULL);
	if (close(maker->fd) < 0 && maker->failed == 0)
		maker->failed = errno;
	return maker->failed ? error_sys(err, -maker->failed, "%s", path) : 0;
}

/* Plans as many layers as fit in `bytes` (0: those asked for), at least one. */
static int
plan_size(struct maker *maker, const struct shape *s, uint32_t layers, uint64_t bytes)
{
	int rc = plan(maker, s, layers);

	for (uint32_t more = layers + 1; bytes && rc == 0 && more <= MAX_LAYERS; more++) {
		struct maker larger = *maker;

		rc = plan(&larger, s, more);
		if (rc < 0 || larger.data_bytes > bytes) {
			unplan(&larger);
			break;
		}
		unplan(maker);
		maker->header = larger.header;
		maker->tensors = larger.tensors;
		maker->n = larger.n;
		maker->data_bytes = larger.data_bytes;
	}
	return rc;
}

int
main(int argc, char **argv)
{
	const char *shape_name = "tiny", *tokenizer = "none", *path;
	const char *const names[] = { "tiny", "small", "qwen3-30b-a3b", NULL };
	const char *const tokenizers[] = { "none", NULL };
	uint64_t layers = 0, seed = 1, threads = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
	double gib = 0;
	const struct option_def defs[] = {
		{ .name = "--shape", .kind = OPTION_TEXT, .to = &shape_name, .choices = names },
		{ .name = "--layers",
		  .kind = OPTION_U64,
		  .to = &layers,
		  .min = 1,
		  .max = MAX_LAYERS },
		{ .name = "--size-gib", .kind = OPTION_FLOAT, .to = &gib },
		{ .name = "--seed", .kind = OPTION_U64, .to = &seed, .max = UINT64_MAX },
		{ .name = "--threads",
		  .kind = OPTION_U64,
		  .to = &threads,
		  .min = 1,
		  .max = MAX_MAKERS },
		{ .name = "--tokenizer",
		  .kind = OPTION_TEXT,
		  .to = &tokenizer,
		  .choices = tokenizers },
	};
	const struct shape *s = shapes;
	struct maker maker = { 0 };
	struct error err;
	uint32_t n_words;
	int rc;

	log_open("make_model");
	rc = options_parse(argc, argv, defs, sizeof(defs) / sizeof(defs[0]), &path, 1, &n_words,
			   &err);
	if (rc == 0 && n_words != 1)
		rc = error_set(&err, -EINVAL, "want the path of the file to write");
	if (rc == 0 && layers && gib > 0)
		rc = error_set(&err, -EINVAL, "--layers and --size-gib: want one of them");
	if (rc < 0)
		goto out;
	while (strcmp(s->name, shape_name) != 0)
		s++;
	maker.seed = seed;
	rc = plan_size(&maker, s,
		       (uint32_t)(gib > 0  ? 1
				  : layers ? layers
					   : s->layers),
		       (uint64_t)(gib * (1 << 30)));
	if (rc < 0)
		rc = error_sys(&err, rc, "planning");
	else
		rc = write_model(&maker, path, threads < MAX_MAKERS ? threads : MAX_MAKERS, &err);
	if (rc == 0)
		log_info("%s: %s of %" PRIu64 " layers, %" PRIu64 " bytes", path, s->name,
			 (maker.n - 3) / 12, maker.data_offset + maker.data_bytes);
	unplan(&maker);
out:
	if (rc < 0)
		log_error("%s", err.text);
	return rc < 0 ? error_exit_code(rc) : 0;
}
