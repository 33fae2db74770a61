/* Time of a decode step and of a prompt on a GPU, for the shape of Qwen3-30B-A3B with random
 * weights (Q4_K and Q6_K as Q4_K_M files mix them).  Nothing is loaded: what is timed is the
 * worker's arithmetic and the memory it reads, beside what the bytes allow at the bandwidths
 * measured in the same run.  A context is random keys and values.
 *
 *   gpu_decode [--contexts 100,8000] [--layers N] [--steps N] [--percent N] [--cpu-share auto|0..1]
 *              [--threads N] slots|place
 *
 * slots: every expert in device memory (17 GiB); place: in registered host memory, read in place,
 * but for N percent of them.  The CPU's share of these changes no bit: the checksum of the logits
 * says so.  The time of a step is the median: of a share that follows, the first steps do not show.
 * Few kernels for a profiler: --steps 1 --contexts 100 --layers 4. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/checked.h"
#include "common/clock.h"
#include "common/options.h"
#include "tests/bench_figures.h"
#include "tests/bench_kv.h"
#include "tests/bench_limits.h"
#include "tests/bench_probe.h"
#include "tests/bench_ram.h"
#include "tests/bench_traffic.h"
#include "tests/bench_words.h"
#include "tests/gpu.h"
#include "worker/share_control.h"

#define PATTERN_BYTES (16ull << 20)
#define HOST_BYTES (6ull << 30)
#define STEPS_MAX 1000u
#define MAX_CONTEXTS 8u

struct words {
	const char *where;
	bool slots;
	uint32_t contexts[MAX_CONTEXTS], n_contexts, longest;
	uint64_t layers, steps, percent, threads;
	float share;
};

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

/* Returns the trunk's bytes. */
static uint64_t
make_model(struct model *m, const struct words *words)
{
	uint64_t used = 0;

	*m = (struct model){
		.n_layers = (uint32_t)words->layers,
		.hidden = 2048,
		.heads = 32,
		.kv_heads = 4,
		.head_dim = 128,
		.n_experts = 128,
		.top_k = 8,
		.expert_width = 768,
		.vocabulary = 151936,
		.context = words->longest + COMPUTE_BATCH,
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

static void
fill_trunk(const struct model *m, uint8_t *trunk)
{
	const struct matrix *ends[] = { &m->embedding, &m->output, &m->output_norm };

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

/* Median over `steps` forwards of n tokens from pos on, in ms. */
static double
time_forward(struct compute *compute, const struct model *m, uint32_t n, uint32_t pos,
	     uint32_t steps, const struct compute_want *want, struct compute_result *ret)
{
	static double ms[STEPS_MAX];
	uint32_t ids[COMPUTE_BATCH];
	uint64_t begin;

	for (uint32_t s = 0; s < steps; s++) {
		for (uint32_t i = 0; i < n; i++)
			ids[i] =
			    (uint32_t)((gpu_random(&seed) + 1) * 0.499f * (float)m->vocabulary);
		begin = clock_ns();
		must(compute_cuda.forward(compute, ids, n, pos, want, ret, &err));
		ms[s] = (double)(clock_ns() - begin) / 1e6;
	}
	return figures_median(ms, steps);
}

static int
read_words(int argc, char **argv, struct words *ret)
{
	static const char *const wheres[] = { "slots", "place", NULL };
	const char *contexts = "100,8000", *share = "0";
	const struct option_def defs[] = {
		{ .name = "--contexts", .kind = OPTION_TEXT, .to = &contexts },
		{ .name = "--layers", .kind = OPTION_U64, .to = &ret->layers, .min = 1, .max = 48 },
		{ .name = "--steps",
		  .kind = OPTION_U64,
		  .to = &ret->steps,
		  .min = 1,
		  .max = STEPS_MAX },
		{ .name = "--percent", .kind = OPTION_U64, .to = &ret->percent, .max = 99 },
		{ .name = "--cpu-share", .kind = OPTION_TEXT, .to = &share },
		{ .name = "--threads",
		  .kind = OPTION_U64,
		  .to = &ret->threads,
		  .min = 1,
		  .max = MAX_THREADS },
	};
	uint32_t n, bits = 0;
	int rc = options_parse(argc, argv, defs, sizeof(defs) / sizeof(defs[0]), &ret->where, 1, &n,
			       &err);

	if (rc == 0)
		rc = share_control_parse(share, &ret->share, &err);
	if (rc == 0)
		rc = bench_words_bits("where", n == 1 ? ret->where : "", wheres, &bits, &err);
	if (rc == 0)
		rc = bench_words_numbers("--contexts", contexts, ret->contexts, MAX_CONTEXTS,
					 &ret->n_contexts, &err);
	if (rc < 0)
		return rc;
	ret->slots = bits & 1;
	for (uint32_t i = 0; i < ret->n_contexts; i++)
		if (ret->contexts[i] > ret->longest)
			ret->longest = ret->contexts[i];
	return 0;
}

static void
place_experts(const struct model *m, const struct words *words, struct expert_place *places,
	      struct compute_config *config)
{
	struct device_memory memory;
	uint8_t *host;

	if (words->slots) {
		must(device_alloc(device,
				  (uint64_t)m->n_layers * m->n_experts * model_slot_bytes(m),
				  &memory, &err));
		place_in_slots(m, memory.at, places);
		return;
	}
	host = bench_ram_map(HOST_BYTES);
	if (!host)
		abort();
	place_in_host(m, host, places);
	must(device_register(device, host, HOST_BYTES, false, &err));
	if (words->percent > 0)
		place_some_in_slots(m, (uint32_t)words->percent, places);
	config->arena = host;
	config->arena_bytes = HOST_BYTES;
}

static void
measure_limits(struct bench_rates *ret)
{
	void *host = bench_ram_map(BENCH_RAM_BYTES);
	double copy, place;
	char name[128];

	if (!host)
		abort();
	must(bench_limits_open(device_describe(device)->ordinal, name, &err));
	must(bench_limits_copy(&copy, &err));
	must(bench_limits_in_place(host, BENCH_RAM_BYTES, &place, &err));
	bench_ram_unmap(host, BENCH_RAM_BYTES);
	printf("%s: device memory copied %.0f GB/s, host memory read in place %.1f GB/s\n", name,
	       copy, place);
	*ret = (struct bench_rates){ { copy, copy, place, copy } };
}

static void
tell_share(const struct compute *compute)
{
	struct compute_share share;

	compute_cuda.share(compute, &share);
	if (share.threads > 0)
		printf("CPU share %.3f, %" PRIu64 " experts by %" PRIu32 " threads\n",
		       (double)share.now, share.experts, share.threads);
}

static void
time_contexts(struct compute *compute, const struct model *m, const struct words *words,
	      const struct bench_rates *rates, struct compute_result *ret)
{
	double position = (double)compute_cuda.kv_bytes(m, m->context) / m->context;
	const struct compute_want all = { .logits = true };

	for (uint32_t i = 0; i < words->n_contexts; i++) {
		uint32_t context = words->contexts[i];
		double ms = time_forward(compute, m, 1, context, (uint32_t)words->steps, &all, ret);
		struct bench_traffic traffic;
		double least;

		bench_traffic_of(&traffic, m, words->slots ? 1 : (double)words->percent / 100,
				 position, context);
		least = bench_traffic_seconds(&traffic, rates) * 1e3;
		printf(
		    "one token, graph, at %-6u %8.3f ms  %7.1f tokens/s; %.0f MB take %.3f ms at "
		    "least: ratio %.3f\n",
		    context, ms, 1e3 / ms, bench_traffic_bytes(&traffic) / 1e6, least, least / ms);
		tell_share(compute);
		bench_probe_print();
	}
}

static void
time_all(struct compute *compute, const struct model *m, const struct words *words,
	 const struct bench_rates *rates)
{
	struct compute_result result = { .logits = NULL };
	uint32_t steps = (uint32_t)words->steps;

	printf("one token, launches, at %-6u %8.3f ms\n", words->contexts[0],
	       time_forward(compute, m, 1, words->contexts[0], steps, NULL, NULL));
	time_contexts(compute, m, words, rates, &result);
	if (!result.logits)
		abort();
	printf("first logits %g %g, checksum of all %016" PRIx64 "\n", result.logits[0],
	       result.logits[1],
	       (uint64_t)XXH3_64bits(result.logits, m->vocabulary * sizeof(float)));
	printf("64 tokens at %-6u %8.3f ms\n", words->longest,
	       time_forward(compute, m, COMPUTE_BATCH, words->longest, steps < 5 ? steps : 5, NULL,
			    NULL));
}

int
main(int argc, char **argv)
{
	struct words words = { .layers = 48, .steps = 50, .threads = 16 };
	struct compute_config config = { 0 };
	struct device_memory trunk, kv;
	struct bench_rates rates;
	struct compute *compute;
	uint64_t begin, bytes;
	struct model m;

	if (read_words(argc, argv, &words) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return EXIT_INPUT;
	}
	device = gpu_open();
	if (!device)
		return 77;
	bytes = make_model(&m, &words);
	must(device_alloc(device, bytes, &trunk, &err));
	must(device_alloc(device, compute_cuda.kv_bytes(&m, m.context), &kv, &err));
	must(bench_kv_random(device, &kv, &err));
	config.model = &m;
	config.device = device;
	config.trunk = trunk.at;
	config.kv = kv.at;
	config.context = m.context;
	config.places = calloc((size_t)m.n_layers * m.n_experts, sizeof(*config.places));
	measure_limits(&rates);
	fill_trunk(&m, trunk.at);
	place_experts(&m, &words, config.places, &config);
	config.threads = (uint32_t)words.threads;
	config.cpu_share = words.share;
	begin = clock_ns();
	must(compute_cuda.open(&compute, &config, &err));
	printf("experts: %s; compute open %.1f ms\n", words.where,
	       (double)(clock_ns() - begin) / 1e6);
	time_all(compute, &m, &words, &rates);
	compute_cuda.close(compute);
	device_close(device);
	return 0;
}
