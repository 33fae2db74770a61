#include "tests/gpu_attend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu_vectors.h"

#define AT_ONCE 3u

static float *
random_floats(struct device *device, uint64_t *seed, uint64_t n, float scale, float shift)
{
	float *ret = gpu_shared(device, n * sizeof(*ret));

	for (uint64_t i = 0; i < n; i++)
		ret[i] = scale * gpu_random(seed) + shift;
	return ret;
}

static uint64_t
arrived_counts(const struct cuda_attention *a)
{
	return cuda_arrived_counts(a->heads, a->kv_heads, a->head_dim, a->at_once);
}

static uint64_t
partial_bytes(const struct cuda_attention *a)
{
	return sizeof(float) * cuda_partial_floats(a->heads, a->kv_heads, a->head_dim, a->at_once);
}

void
gpu_attend_earlier(const struct gpu_attend *t, uint32_t n, uint64_t *seed)
{
	float row[GPU_ATTEND_DIM];

	for (uint32_t i = 0; i < 2 * t->a.kv_heads * n; i++) {
		for (uint32_t c = 0; c < t->a.head_dim; c++)
			row[c] = 2 * gpu_random(seed);
		gpu_kv_put(&t->earlier[i % 2], i / 2 / n, i / 2 % n, row);
	}
}

static void
make_cache(struct gpu_attend *t, uint64_t *seed)
{
	struct cuda_attention *a = &t->a;

	a->keys = gpu_shared(t->device, t->cache);
	a->values = gpu_shared(t->device, t->cache);
	for (int i = 0; i < 2; i++) {
		t->now[i] = (struct gpu_kv){ i ? a->values : a->keys, i, a->kv_heads, a->context,
					     a->head_dim };
		t->earlier[i] = t->now[i];
		t->earlier[i].tiles = calloc(1, t->cache);
	}
	gpu_attend_earlier(t, a->context, seed);
}

void
gpu_attend_open(struct gpu_attend *t, struct device *device, const uint32_t shape[3],
		uint32_t context, uint32_t tokens, uint64_t *seed)
{
	uint32_t heads = shape[0], kv_heads = shape[1], head_dim = shape[2];
	struct cuda_attention *a = &t->a;

	t->device = device;
	t->columns = (heads + 2 * kv_heads) * head_dim;
	t->tokens = tokens;
	t->cache = gpu_kv_tiles(kv_heads, context, head_dim) * sizeof(struct cuda_kv_tile);
	t->input = gpu_shared(device, sizeof(*t->input));
	t->norms = random_floats(device, seed, 2 * head_dim + head_dim / 2, 0.5f, 1);
	*a = (struct cuda_attention){
		.heads = heads,
		.kv_heads = kv_heads,
		.head_dim = head_dim,
		.context = context,
		.epsilon = GPU_ATTEND_EPSILON,
		.q_norm = t->norms,
		.k_norm = t->norms + head_dim,
		.frequency = t->norms + 2 * (size_t)head_dim,
		.qkv = { random_floats(device, seed, (uint64_t)tokens * t->columns, 2, 0),
			 t->columns },
		.out = gpu_vectors_open(device, tokens, heads * head_dim),
		.at_once = AT_ONCE,
	};
	for (uint32_t i = 0; i < head_dim / 2; i++)
		t->norms[2 * head_dim + i] = powf(10000, -2.0f * (float)i / (float)head_dim);
	a->partial = gpu_shared(device, partial_bytes(a));
	a->arrived = gpu_shared(device, arrived_counts(a) * sizeof(uint32_t));
	make_cache(t, seed);
}

void
gpu_attend_close(struct gpu_attend *t)
{
	struct device *device = t->device;
	struct cuda_attention *a = &t->a;

	gpu_shared_free(device, a->keys, t->cache);
	gpu_shared_free(device, a->values, t->cache);
	gpu_shared_free(device, a->qkv.at, (uint64_t)t->tokens * t->columns * sizeof(float));
	gpu_shared_free(device, t->norms, (2 * a->head_dim + a->head_dim / 2) * sizeof(float));
	gpu_shared_free(device, a->partial, partial_bytes(a));
	gpu_shared_free(device, a->arrived, arrived_counts(a) * sizeof(uint32_t));
	gpu_shared_free(device, t->input, sizeof(*t->input));
	gpu_vectors_close(device, &a->out, t->tokens, a->heads * a->head_dim);
	free(t->earlier[0].tiles);
	free(t->earlier[1].tiles);
}

void
gpu_attend_reset(struct gpu_attend *t, uint32_t pos)
{
	memset(t->a.keys, 0xff, t->cache);
	memset(t->a.values, 0xff, t->cache);
	for (uint32_t i = 0; i < 2 * t->a.kv_heads; i++)
		for (uint32_t p = 0; p < pos; p++)
			gpu_kv_copy(&t->now[i % 2], &t->earlier[i % 2], i / 2, p);
}

void
gpu_attend_run(const struct gpu_attend *t, uint32_t pos, uint32_t first, uint32_t tokens)
{
	struct cuda_attention a = t->a;
	struct error err;

	a.qkv.at += (uint64_t)first * a.qkv.stride;
	a.out.rows.at += (uint64_t)first * a.out.rows.stride;
	a.out.fixed.at += (uint64_t)first * a.out.fixed.stride;
	t->input->pos = pos + first;
	if (cuda_attend(NULL, &a, t->input, tokens, &err) || cuda_finish(NULL, &err)) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
	for (uint64_t i = 0; i < arrived_counts(&a); i++) {
		if (a.arrived[i] == 0)
			continue;
		fprintf(stderr, "counter %u is %u behind the launch\n", (uint32_t)i, a.arrived[i]);
		abort();
	}
}
