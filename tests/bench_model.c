#include "tests/bench_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/options.h"
#include "tests/bench_ram.h"
#include "tests/gpu.h"

#define PATTERN_BYTES (16ull << 20)
#define HOST_BYTES BENCH_MODEL_HOST_BYTES

static struct device *device;
static struct error err;
static uint64_t seed = 3;

static void
must(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s\n", err.text);
	exit(EXIT_SYSTEM);
}

/* Takes its place behind the others. */
static struct matrix
matrix(uint64_t *used, uint32_t type, uint32_t rows, uint32_t columns)
{
	struct matrix ret = { .type = type, .rows = rows, .columns = columns, .offset = *used };

	if (!type_row_bytes(type_find(type), columns, &ret.bytes))
		abort();
	ret.bytes *= rows;
	*used += round_up(ret.bytes, 256);
	return ret;
}

static struct experts
experts(uint32_t type, uint32_t rows, uint32_t columns)
{
	uint64_t used = 0;
	struct matrix one = matrix(&used, type, rows, columns);

	return (struct experts){ .type = type,
				 .rows = rows,
				 .columns = columns,
				 .bytes = one.bytes,
				 .stride = one.bytes };
}

uint64_t
bench_model_make(struct model *m, uint32_t layers, uint32_t context)
{
	uint64_t used = 0;

	*m = (struct model){
		.n_layers = layers,
		.hidden = 2048,
		.heads = 32,
		.kv_heads = 4,
		.head_dim = 128,
		.n_experts = 128,
		.top_k = 8,
		.expert_width = 768,
		.vocabulary = 151936,
		.context = context,
		.rope_base = 1e6f,
		.norm_epsilon = 1e-6f,
	};
	m->embedding = matrix(&used, TYPE_Q4_K, m->vocabulary, m->hidden);
	m->output = matrix(&used, TYPE_Q6_K, m->vocabulary, m->hidden);
	m->output_norm = matrix(&used, TYPE_F32, 1, m->hidden);
	m->layers = calloc(m->n_layers, sizeof(*m->layers));
	for (uint32_t i = 0; i < m->n_layers; i++) {
		struct model_layer *l = &m->layers[i];

		l->attn_norm = matrix(&used, TYPE_F32, 1, m->hidden);
		l->ffn_norm = matrix(&used, TYPE_F32, 1, m->hidden);
		l->q_norm = matrix(&used, TYPE_F32, 1, m->head_dim);
		l->k_norm = matrix(&used, TYPE_F32, 1, m->head_dim);
		l->q = matrix(&used, TYPE_Q4_K, m->heads * m->head_dim, m->hidden);
		l->k = matrix(&used, TYPE_Q4_K, m->kv_heads * m->head_dim, m->hidden);
		l->v = matrix(&used, TYPE_Q6_K, m->kv_heads * m->head_dim, m->hidden);
		l->out = matrix(&used, TYPE_Q4_K, m->hidden, m->heads * m->head_dim);
		l->router = matrix(&used, TYPE_F32, m->n_experts, m->hidden);
		l->role[ROLE_GATE] = experts(TYPE_Q4_K, m->expert_width, m->hidden);
		l->role[ROLE_UP] = experts(TYPE_Q4_K, m->expert_width, m->hidden);
		l->role[ROLE_DOWN] =
		    experts(i % 2 ? TYPE_Q4_K : TYPE_Q6_K, m->hidden, m->expert_width);
	}
	return used;
}

/* Whole rows of one type, so that its scales are ordinary numbers; small ones for F32. */
static uint8_t *
make_pattern(uint32_t type)
{
	const struct type_info *info = type_find(type);
	uint64_t blocks = PATTERN_BYTES / info->block_bytes;
	uint8_t *at = gpu_shared(device, PATTERN_BYTES);

	gpu_random_row(info, at, (uint32_t)blocks * info->block_elements, &seed);
	for (uint64_t i = 0; type == TYPE_F32 && i < blocks; i++) {
		float small = 0.05f * gpu_random(&seed);

		memcpy(at + 4 * i, &small, sizeof(small));
	}
	return at;
}

static const uint8_t *
pattern(uint32_t type)
{
	static uint8_t *made[32];

	if (!made[type])
		made[type] = make_pattern(type);
	return made[type];
}

static void
fill(uint8_t *to, uint32_t type, uint64_t bytes)
{
	uint64_t whole = PATTERN_BYTES / type_find(type)->block_bytes;
	uint64_t step = whole * type_find(type)->block_bytes;

	for (uint64_t at = 0; at < bytes; at += step)
		must(device_copy_in(device, to + at, pattern(type),
				    bytes - at < step ? bytes - at : step, &err));
}

void
bench_model_fill_trunk(struct device *on, const struct model *m, uint8_t *trunk)
{
	const struct matrix *ends[] = { &m->embedding, &m->output, &m->output_norm };

	device = on;
	for (int i = 0; i < 3; i++)
		fill(trunk + ends[i]->offset, ends[i]->type, ends[i]->bytes);
	for (uint32_t i = 0; i < m->n_layers; i++) {
		const struct model_layer *l = &m->layers[i];
		const struct matrix *all[] = { &l->attn_norm, &l->ffn_norm, &l->q_norm,
					       &l->k_norm,    &l->q,        &l->k,
					       &l->v,         &l->out,      &l->router };

		for (int k = 0; k < 9; k++)
			fill(trunk + all[k]->offset, all[k]->type, all[k]->bytes);
	}
	must(device_wait(device, &err));
}

static void
place_in_slots(const struct model *m, uint8_t *slots, struct expert_place *places)
{
	for (uint64_t i = 0; i < (uint64_t)m->n_layers * m->n_experts; i++) {
		const struct model_layer *l = &m->layers[i / m->n_experts];
		uint8_t *slot = slots + i * model_slot_bytes(m);

		for (enum role role = 0; role < N_ROLES; role++) {
			places[i].role[role] = slot + model_slot_offset(l, role);
			fill(slot + model_slot_offset(l, role), l->role[role].type,
			     l->role[role].bytes);
		}
	}
	must(device_wait(device, &err));
}

/* Blocks side by side, as experts of a file are. */
static void
fill_host(uint8_t *to, uint32_t type, uint64_t bytes)
{
	uint64_t whole = PATTERN_BYTES / type_find(type)->block_bytes;
	uint64_t step = whole * type_find(type)->block_bytes;

	for (uint64_t at = 0; at < bytes; at += step)
		memcpy(to + at, pattern(type), bytes - at < step ? bytes - at : step);
}

/* HOST_BYTES hold a part of all experts, used over and over: more than any cache. */
static void
place_in_host(const struct model *m, uint8_t *host, struct expert_place *places)
{
	uint64_t half = HOST_BYTES / 2, used[2] = { 0, 0 };

	for (uint64_t i = 0; i < (uint64_t)m->n_layers * m->n_experts; i++) {
		const struct model_layer *l = &m->layers[i / m->n_experts];

		for (enum role role = 0; role < N_ROLES; role++) {
			int side = l->role[role].type == TYPE_Q6_K;

			if (used[side] + l->role[role].bytes > half)
				used[side] = 0;
			places[i].role[role] = host + (uint64_t)side * half + used[side];
			used[side] += l->role[role].bytes;
		}
	}
	fill_host(host, TYPE_Q4_K, half);
	fill_host(host + half, TYPE_Q6_K, half);
}

/* So many percent of those in place into slots. */
static void
place_some_in_slots(const struct model *m, uint32_t percent, struct expert_place *places)
{
	uint64_t n = (uint64_t)m->n_layers * m->n_experts, bytes = model_slot_bytes(m);
	struct device_memory memory;

	must(device_alloc(device, (n * percent / 100 + m->n_layers) * bytes, &memory, &err));
	for (uint64_t i = 0, used = 0; i < n; i++) {
		const struct model_layer *l = &m->layers[i / m->n_experts];
		uint8_t *slot = (uint8_t *)memory.at + used * bytes;

		if (i * 61 % 100 >= percent || (used + 1) * bytes > memory.bytes)
			continue;
		for (enum role role = 0; role < N_ROLES; role++) {
			must(device_copy_in(device, slot + model_slot_offset(l, role),
					    places[i].role[role], l->role[role].bytes, &err));
			places[i].role[role] = slot + model_slot_offset(l, role);
		}
		used++;
	}
	must(device_wait(device, &err));
}

void
bench_model_in_slots(struct device *on, const struct model *m, struct expert_place *places)
{
	struct device_memory memory;

	device = on;
	must(device_alloc(device, (uint64_t)m->n_layers * m->n_experts * model_slot_bytes(m),
			  &memory, &err));
	place_in_slots(m, memory.at, places);
}

uint8_t *
bench_model_in_host(struct device *on, const struct model *m, uint32_t percent,
		    struct expert_place *places)
{
	uint8_t *host = bench_ram_map(HOST_BYTES);

	device = on;
	if (!host)
		abort();
	place_in_host(m, host, places);
	must(device_register(device, host, HOST_BYTES, false, &err));
	if (percent > 0)
		place_some_in_slots(m, percent, places);
	return host;
}
