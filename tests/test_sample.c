#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/random_rows.h"
#include "worker/sample.h"

#define MANY 150000u

static uint32_t
draw(const float *logits, uint32_t n, struct sampling sampling, uint64_t index)
{
	struct sample_scratch *scratch;
	uint32_t id;

	assert_int_equal(sample_scratch_open(&scratch, n), 0);
	id = sample(logits, n, &sampling, index, scratch);
	sample_scratch_close(scratch);
	assert_true(id < n);
	return id;
}

/* How often each of n <= 16 is drawn in 20000. */
static void
tally(const float *logits, uint32_t n, struct sampling sampling, uint32_t *ret_counts)
{
	memset(ret_counts, 0, 16 * sizeof(*ret_counts));
	for (uint64_t i = 0; i < 20000; i++)
		ret_counts[draw(logits, n, sampling, i)]++;
}

static void
assert_share(uint32_t count, double share)
{
	/* five standard deviations */
	assert_true(fabs(count - 20000 * share) <= 5 * sqrt(20000 * share * (1 - share)) + 1e-9);
}

static const float logits5[] = { 0, 2, 1, 3, -1 };

static void
greedy_takes_the_first_of_the_greatest(void **state)
{
	const float ties[] = { 1, 5, 2, 5, 5 };
	const float equal[] = { 0, 0, 0 };

	(void)state;
	assert_int_equal(draw(logits5, 5, (struct sampling){ 0 }, 0), 3);
	assert_int_equal(draw(ties, 5, (struct sampling){ .seed = 9 }, 7), 1);
	assert_int_equal(draw(equal, 3, (struct sampling){ 0 }, 0), 0);
	assert_int_equal(draw(logits5, 1, (struct sampling){ 0 }, 0), 0);
	assert_int_equal(draw(logits5, 5, (struct sampling){ .temperature = -1 }, 0), 3);
	assert_int_equal(draw(logits5, 5, (struct sampling){ .temperature = NAN }, 0), 3);
}

static uint32_t
plain_greedy(const float *logits, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i])))
			best = i;
	return best;
}

/* Few values, so that there are equals; zeros of both signs, infinities and NaN among them. */
static void
greedy_is_the_same_in_a_vocabulary_of_any_length(void **state)
{
	const float values[] = { NAN, -INFINITY, -2, -0.0f, 0.0f, 0.5f, 3, -FLT_MAX };
	float logits[3000];

	(void)state;
	random_begin(3);
	for (uint32_t round = 0; round < 400; round++) {
		uint32_t n = 1 + random_u32() % 3000, kinds = 1 + random_u32() % 8;
		uint32_t rare = random_u32() % 2 ? 1 : 700;

		for (uint32_t i = 0; i < n; i++)
			logits[i] = random_u32() % rare ? -FLT_MAX : values[random_u32() % kinds];
		assert_int_equal(draw(logits, n, (struct sampling){ 0 }, 0),
				 plain_greedy(logits, n));
	}
}

static void
nan_and_minus_infinity_never_win(void **state)
{
	const float some[] = { NAN, -INFINITY, -3, NAN, -2, -INFINITY };
	const float none[] = { NAN, -INFINITY, NAN };
	const float nans[] = { NAN, NAN };
	const struct sampling hot = { .temperature = 100 };
	const struct sampling endless = { .temperature = INFINITY };
	uint32_t counts[16];

	(void)state;
	assert_int_equal(draw(some, 6, (struct sampling){ 0 }, 0), 4);
	tally(some, 6, hot, counts);
	assert_int_equal(counts[2] + counts[4], 20000);
	tally(some, 6, endless, counts);
	assert_share(counts[2], 0.5);
	assert_share(counts[4], 0.5);
	assert_int_equal(draw(none, 3, (struct sampling){ 0 }, 0), 1);
	assert_int_equal(draw(none, 3, hot, 0), 1);
	draw(nans, 2, hot, 0); /* some token below n */
	draw(nans, 2, (struct sampling){ 0 }, 0);
}

static void
plus_infinity_wins_alone(void **state)
{
	const float logits[] = { 5, INFINITY, 7, INFINITY };
	const struct sampling warm = { .temperature = 1, .top_p = 0.9f, .top_k = 3 };
	uint32_t counts[16];

	(void)state;
	tally(logits, 4, warm, counts);
	assert_share(counts[1], 0.5);
	assert_share(counts[3], 0.5);
}

static void
draws_by_the_softmax_of_the_temperature(void **state)
{
	const float temperatures[] = { 0.5f, 1, 3 };
	uint32_t counts[16];

	(void)state;
	for (int t = 0; t < 3; t++) {
		double sum = 0;

		for (int i = 0; i < 5; i++)
			sum += exp(logits5[i] / temperatures[t]);
		tally(logits5, 5, (struct sampling){ .temperature = temperatures[t] }, counts);
		for (int i = 0; i < 5; i++)
			assert_share(counts[i], exp(logits5[i] / temperatures[t]) / sum);
	}
}

static void
all_equal_are_drawn_equally(void **state)
{
	const float equal[16] = { 0 };
	uint32_t counts[16];

	(void)state;
	tally(equal, 16, (struct sampling){ .temperature = 0.7f }, counts);
	for (int i = 0; i < 16; i++)
		assert_share(counts[i], 1.0 / 16);
}

static void
top_k_keeps_the_k_best_and_of_equals_the_first(void **state)
{
	const float ties[] = { 1, 2, 2, 0, 2 };
	uint32_t counts[16];

	(void)state;
	tally(logits5, 5, (struct sampling){ .temperature = 1, .top_k = 2 }, counts);
	assert_share(counts[3], M_E / (1 + M_E));
	assert_share(counts[1], 1 / (1 + M_E));
	tally(ties, 5, (struct sampling){ .temperature = 1, .top_k = 2 }, counts);
	assert_share(counts[1], 0.5);
	assert_share(counts[2], 0.5);
}

static void
top_k_of_one_is_greedy(void **state)
{
	const struct sampling sampling = { .temperature = 50, .top_k = 1, .seed = 3 };

	(void)state;
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(draw(logits5, 5, sampling, i), 3);
}

static void
top_k_beyond_the_vocabulary_keeps_all(void **state)
{
	const struct sampling all = { .temperature = 1 };
	const struct sampling many = { .temperature = 1, .top_k = 4000000000u };

	(void)state;
	for (uint64_t i = 0; i < 500; i++)
		assert_int_equal(draw(logits5, 5, all, i), draw(logits5, 5, many, i));
}

static void
top_p_keeps_the_smallest_set_that_reaches_it(void **state)
{
	/* probabilities 0.4, 0.3, 0.2, 0.1 */
	const float logits[] = { logf(1), logf(4), logf(2), logf(3) };
	uint32_t counts[16];

	(void)state;
	tally(logits, 4, (struct sampling){ .temperature = 1, .top_p = 0.6f }, counts);
	assert_share(counts[1], 4.0 / 7);
	assert_share(counts[3], 3.0 / 7);
	tally(logits, 4, (struct sampling){ .temperature = 1, .top_p = 0.75f }, counts);
	assert_share(counts[1], 4.0 / 9);
	assert_share(counts[3], 3.0 / 9);
	assert_share(counts[2], 2.0 / 9);
}

static void
a_tiny_top_p_is_greedy(void **state)
{
	const struct sampling sampling = { .temperature = 50, .top_p = 1e-30f };

	(void)state;
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(draw(logits5, 5, sampling, i), 3);
}

static void
top_p_outside_zero_to_one_keeps_all(void **state)
{
	const float outside[] = { -1, 1, 2, NAN, INFINITY };

	(void)state;
	for (int p = 0; p < 5; p++)
		for (uint64_t i = 0; i < 200; i++)
			assert_int_equal(
			    draw(logits5, 5, (struct sampling){ .temperature = 1 }, i),
			    draw(logits5, 5,
				 (struct sampling){ .temperature = 1, .top_p = outside[p] }, i));
}

static void
top_p_counts_within_top_k(void **state)
{
	/* 0.4, 0.3, 0.2, 0.1; of the two best 4/7 and 3/7: 0.5 is reached by the first alone */
	const float logits[] = { logf(1), logf(4), logf(2), logf(3) };
	const struct sampling sampling = { .temperature = 1, .top_k = 2, .top_p = 0.5f };

	(void)state;
	for (uint64_t i = 0; i < 200; i++)
		assert_int_equal(draw(logits, 4, sampling, i), 1);
}

static void
depends_on_seed_and_index_alone(void **state)
{
	struct sampling sampling = { .temperature = 2, .top_k = 4, .top_p = 0.95f, .seed = 42 };
	struct sample_scratch *scratch;
	uint32_t same = 0, first[100];

	(void)state;
	assert_int_equal(sample_scratch_open(&scratch, 5), 0);
	for (uint64_t i = 0; i < 100; i++)
		first[i] = sample(logits5, 5, &sampling, i, scratch);
	for (uint64_t i = 100; i > 0; i--) /* in another order, with used scratch and with new */
		assert_int_equal(sample(logits5, 5, &sampling, i - 1, scratch), first[i - 1]);
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(draw(logits5, 5, sampling, i), first[i]);
	sampling.seed = 43;
	for (uint64_t i = 0; i < 100; i++)
		same += sample(logits5, 5, &sampling, i, scratch) == first[i];
	assert_true(same < 90);
	sample_scratch_close(scratch);
}

static void
uniform_numbers_are_fixed_and_even(void **state)
{
	double sum = 0, squares = 0;

	(void)state;
	assert_true(sample_uniform(1, 2) == sample_uniform(1, 2));
	assert_true(sample_uniform(1, 2) != sample_uniform(2, 1));
	assert_true(sample_uniform(0, 1) != sample_uniform(1, 0));
	for (uint64_t i = 0; i < 100000; i++) {
		double u = sample_uniform(i / 100, i % 100);

		assert_true(u >= 0 && u < 1);
		sum += u;
		squares += u * u;
	}
	assert_true(fabs(sum / 100000 - 0.5) < 0.005);
	assert_true(fabs(squares / 100000 - 1.0 / 3) < 0.005);
}

static int
descending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x < y) - (x > y);
}

static void
of_a_large_vocabulary_only_the_best_are_drawn(void **state)
{
	const struct sampling sampling = { .temperature = 20, .top_k = 40, .seed = 5 };
	float *logits = malloc(MANY * sizeof(*logits)), *sorted = malloc(MANY * sizeof(*logits));

	(void)state;
	for (uint32_t i = 0; i < MANY; i++)
		logits[i] = sorted[i] = (float)sample_uniform(i, 0) * 20;
	qsort(sorted, MANY, sizeof(*sorted), descending);
	for (uint64_t i = 0; i < 200; i++)
		assert_true(logits[draw(logits, MANY, sampling, i)] >= sorted[39]);
	free(logits);
	free(sorted);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greedy_takes_the_first_of_the_greatest),
		cmocka_unit_test(greedy_is_the_same_in_a_vocabulary_of_any_length),
		cmocka_unit_test(nan_and_minus_infinity_never_win),
		cmocka_unit_test(plus_infinity_wins_alone),
		cmocka_unit_test(draws_by_the_softmax_of_the_temperature),
		cmocka_unit_test(all_equal_are_drawn_equally),
		cmocka_unit_test(top_k_keeps_the_k_best_and_of_equals_the_first),
		cmocka_unit_test(top_k_of_one_is_greedy),
		cmocka_unit_test(top_k_beyond_the_vocabulary_keeps_all),
		cmocka_unit_test(top_p_keeps_the_smallest_set_that_reaches_it),
		cmocka_unit_test(a_tiny_top_p_is_greedy),
		cmocka_unit_test(top_p_outside_zero_to_one_keeps_all),
		cmocka_unit_test(top_p_counts_within_top_k),
		cmocka_unit_test(depends_on_seed_and_index_alone),
		cmocka_unit_test(uniform_numbers_are_fixed_and_even),
		cmocka_unit_test(of_a_large_vocabulary_only_the_best_are_drawn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
