/* Which tokens of a batch chose which expert, as the kernels of the experts list it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/types.h"
#include "tests/gpu.h"
#include "tests/gpu_vectors.h"
#include "worker/cuda_kernels.h"

#define HIDDEN 16u
#define WIDTH 4u
#define MATRIX_BYTES (HIDDEN * WIDTH * sizeof(float))

static struct device *device;
static uint64_t seed = 5;

struct batch {
	uint32_t tokens, pairs, n_groups;
	struct cuda_moe moe;
	struct expert_place *places;
	float *matrix; /* of every expert and role */
};

static void
batch_open(struct batch *b, uint32_t experts, uint32_t top_k, uint32_t tokens)
{
	uint32_t pairs = tokens * top_k;
	struct cuda_moe *moe = &b->moe;

	*b = (struct batch){ .tokens = tokens, .pairs = pairs };
	b->n_groups = CUDA_GROUPS(experts, pairs);
	b->matrix = gpu_shared(device, MATRIX_BYTES);
	b->places = gpu_shared(device, experts * sizeof(*b->places));
	for (enum role role = 0; role < N_ROLES; role++) {
		moe->type[role] = TYPE_F32;
		moe->row_bytes[role] = (role == ROLE_DOWN ? WIDTH : HIDDEN) * sizeof(float);
		for (uint32_t e = 0; e < experts; e++)
			b->places[e].role[role] = b->matrix;
	}
	moe->places = b->places;
	moe->hidden = HIDDEN;
	moe->width = WIDTH;
	moe->experts = experts;
	moe->top_k = top_k;
	moe->x = gpu_vectors_open(device, tokens, HIDDEN);
	moe->act = gpu_vectors_open(device, pairs, WIDTH);
	moe->chosen = gpu_shared(device, pairs * sizeof(uint32_t));
	moe->weights = gpu_shared(device, pairs * sizeof(float));
	moe->groups = gpu_shared(device, b->n_groups * sizeof(*moe->groups));
	moe->members = gpu_shared(device, pairs * sizeof(uint32_t));
}

static void
batch_close(struct batch *b)
{
	struct cuda_moe *moe = &b->moe;

	gpu_shared_free(device, b->matrix, MATRIX_BYTES);
	gpu_shared_free(device, b->places, moe->experts * sizeof(*b->places));
	gpu_vectors_close(device, &moe->x, b->tokens, HIDDEN);
	gpu_vectors_close(device, &moe->act, b->pairs, WIDTH);
	gpu_shared_free(device, moe->chosen, b->pairs * sizeof(uint32_t));
	gpu_shared_free(device, moe->weights, b->pairs * sizeof(float));
	gpu_shared_free(device, moe->groups, b->n_groups * sizeof(*moe->groups));
	gpu_shared_free(device, moe->members, b->pairs * sizeof(uint32_t));
}

static uint32_t
below(uint32_t n)
{
	return (uint32_t)((gpu_random(&seed) + 1) * 0.4999f * (float)n);
}

/* Each token's are different ones, out of the first `of`. */
static void
choose(struct batch *b, uint32_t of)
{
	uint32_t top_k = b->moe.top_k;

	for (uint32_t i = 0; i < b->pairs; i++) {
		uint32_t *chosen = b->moe.chosen + i / top_k * top_k, k = i % top_k, j;

		do {
			chosen[k] = below(of);
			for (j = 0; j < k && chosen[j] != chosen[k]; j++)
				;
		} while (j < k);
	}
}

static void
expect_list(const struct batch *b)
{
	const struct cuda_moe *moe = &b->moe;
	uint32_t group = 0, member = 0;

	for (uint32_t e = 0; e < moe->experts; e++) {
		uint32_t first = member;

		for (uint32_t i = 0; i < b->pairs; i++)
			if (moe->chosen[i] == e)
				assert_int_equal(moe->members[member++], i);
		if (member == first)
			continue;
		assert_int_equal(moe->groups[group].expert, e);
		assert_int_equal(moe->groups[group].first, first);
		assert_int_equal(moe->groups[group].count, member - first);
		group++;
	}
	assert_int_equal(member, b->pairs);
	for (; group < b->n_groups; group++)
		assert_int_equal(moe->groups[group].count, 0);
}

static void
each_chosen_expert_is_listed_once_with_its_tokens_in_order(void **state)
{
	static const struct {
		uint32_t experts, top_k, tokens, of;
	} cases[] = {
		{ 128, 8, 64, 128 }, { 600, 3, 64, 600 }, { 600, 64, 64, 600 }, { 5, 1, 2, 1 },
		{ 257, 1, 3, 257 },  { 8, 8, 64, 8 },     { 64, 7, 33, 9 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct error err = { "" };
		struct batch b;

		batch_open(&b, cases[i].experts, cases[i].top_k, cases[i].tokens);
		memset(b.moe.groups, 0xff, b.n_groups * sizeof(*b.moe.groups));
		choose(&b, cases[i].of);
		assert_int_equal(cuda_experts_in(NULL, &b.moe, cases[i].tokens, &err), 0);
		assert_int_equal(cuda_finish(NULL, &err), 0);
		expect_list(&b);
		batch_close(&b);
	}
}

/* An argument is a pattern: the tests to run. */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_chosen_expert_is_listed_once_with_its_tokens_in_order),
	};
	int failed;

	device = gpu_open();
	if (!device)
		return 77;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
