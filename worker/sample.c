/* Candidates are kept as (logit, id) pairs; of a large vocabulary only as many are put in order as
 * the rules ask for.  Equal logits count in the order of their ids everywhere. */
#include "worker/sample.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct candidate {
	float logit;
	uint32_t id;
};

struct sample_scratch {
	uint32_t room;
	struct candidate candidates[];
};

int
sample_scratch_open(struct sample_scratch **ret, uint32_t vocabulary)
{
	struct sample_scratch *scratch =
	    malloc(sizeof(*scratch) + (size_t)vocabulary * sizeof(scratch->candidates[0]));

	if (!scratch)
		return -ENOMEM;
	scratch->room = vocabulary;
	*ret = scratch;
	return 0;
}

void
sample_scratch_close(struct sample_scratch *scratch)
{
	free(scratch);
}

static uint64_t
mix64(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

double
sample_uniform(uint64_t seed, uint64_t index)
{
	/* The seed is mixed first, so that neighbouring seeds do not share their numbers. */
	uint64_t state = mix64(seed + 0x9e3779b97f4a7c15ull) + (index + 1) * 0x9e3779b97f4a7c15ull;

	return (double)(mix64(state) >> 11) * 0x1p-53;
}

#define PIECE 1024u
#define LANES 32u /* kept apart, so that the compiler takes several at once */

/* NaN is not greater than anything; -INFINITY if there is no number. */
static float
greatest(const float *logits, uint32_t n)
{
	float top[LANES], ret = -INFINITY;
	uint32_t i = 0;

	for (uint32_t k = 0; k < LANES; k++)
		top[k] = -INFINITY;
	for (; i + LANES <= n; i += LANES)
		for (uint32_t k = 0; k < LANES; k++)
			top[k] = logits[i + k] > top[k] ? logits[i + k] : top[k];
	for (; i < n; i++)
		ret = logits[i] > ret ? logits[i] : ret;
	for (uint32_t k = 0; k < LANES; k++)
		ret = top[k] > ret ? top[k] : ret;
	return ret;
}

bool
sampling_is_greedy(const struct sampling *sampling)
{
	return !(sampling->temperature > 0) || sampling->top_k == 1;
}

/* The place is looked for only in the first piece that has it. */
uint32_t
sample_greatest(const float *logits, uint32_t vocabulary)
{
	uint32_t first = 0;
	float top = -INFINITY;

	for (uint32_t i = 0; i < vocabulary; i += PIECE) {
		uint32_t n = vocabulary - i < PIECE ? vocabulary - i : PIECE;
		float best = greatest(logits + i, n);

		if (best > top) {
			top = best;
			first = i;
		}
	}
	for (uint32_t i = first; i < vocabulary; i++)
		if (logits[i] == top)
			return i;
	return 0;
}

static bool
before(struct candidate a, struct candidate b)
{
	return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void
swap(struct candidate *a, struct candidate *b)
{
	struct candidate c = *a;

	*a = *b;
	*b = c;
}

/* Heap whose top comes first (`first`) or last in the order: moves item i down to its place. */
static void
sift_down(struct candidate *heap, uint32_t n, uint32_t i, bool first)
{
	for (;;) {
		uint32_t next = i, child = 2 * i + 1;

		for (uint32_t c = child; c < n && c < child + 2; c++)
			if (first ? before(heap[c], heap[next]) : before(heap[next], heap[c]))
				next = c;
		if (next == i)
			return;
		swap(&heap[i], &heap[next]);
		i = next;
	}
}

static void
heapify(struct candidate *heap, uint32_t n, bool first)
{
	for (uint32_t i = n / 2; i > 0; i--)
		sift_down(heap, n, i - 1, first);
}

/* Moves the first k in the order to the front of the array (not in order themselves). */
static void
select_first(struct candidate *all, uint32_t n, uint32_t k)
{
	heapify(all, k, false); /* the last of the k on top */
	for (uint32_t i = k; i < n; i++)
		if (before(all[i], all[0])) {
			all[0] = all[i];
			sift_down(all, k, 0, false);
		}
}

/* Candidates that may win.  Weights below exp(-40) of the best one's are lost in any sum of
 * doubles, so in practice few of a large vocabulary remain. */
static uint32_t
collect(const float *logits, uint32_t vocabulary, float best, float temperature,
	struct candidate *ret)
{
	float least = best - 40 * temperature;
	uint32_t n = 0;

	for (uint32_t i = 0; i < vocabulary; i++)
		if (logits[i] >= least && logits[i] > -INFINITY)
			ret[n++] = (struct candidate){ logits[i], i };
	return n;
}

/* Of a candidate, relative to the best one's. */
static double
weight(struct candidate candidate, float best, float temperature)
{
	if (candidate.logit == best) /* infinite ones share what there is */
		return 1;
	return exp(((double)candidate.logit - best) / temperature);
}

static double
total_weight(const struct candidate *all, uint32_t n, float best, float temperature)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += weight(all[i], best, temperature);
	return sum;
}

/* The first in the order with which more than `target` of the weight has passed. */
static uint32_t
walk(struct candidate *all, uint32_t n, float best, float temperature, double target)
{
	uint32_t last = all[0].id;
	double passed = 0;

	heapify(all, n, true);
	for (; n > 0; n--) {
		double share = weight(all[0], best, temperature);

		passed += share;
		if (share > 0)
			last = all[0].id;
		if (passed > target)
			break;
		all[0] = all[n - 1];
		sift_down(all, n - 1, 0, true);
	}
	return last;
}

/* The weight of the smallest set, from the best on, that reaches `share`.  What it takes from the
 * heap goes behind it, so that the array holds the same candidates afterwards. */
static double
nucleus(struct candidate *all, uint32_t n, float best, float temperature, double share)
{
	double passed = 0;

	heapify(all, n, true);
	for (; n > 0; n--) {
		passed += weight(all[0], best, temperature);
		if (passed >= share)
			break;
		swap(&all[0], &all[n - 1]);
		sift_down(all, n - 1, 0, true);
	}
	return passed;
}

uint32_t
sample(const float *logits, uint32_t vocabulary, const struct sampling *sampling, uint64_t index,
       struct sample_scratch *scratch)
{
	struct candidate *all = scratch->candidates;
	float temperature = sampling->temperature;
	uint32_t first = sample_greatest(logits, vocabulary), n;
	float best = logits[first];
	double total, target;

	assert(vocabulary <= scratch->room);
	if (sampling_is_greedy(sampling) || !(best > -INFINITY))
		return first;
	n = collect(logits, vocabulary, best, temperature, all);
	if (sampling->top_k > 0 && sampling->top_k < n) {
		select_first(all, n, sampling->top_k);
		n = sampling->top_k;
	}
	total = total_weight(all, n, best, temperature);
	if (sampling->top_p > 0 && sampling->top_p < 1)
		total = nucleus(all, n, best, temperature, sampling->top_p * total);
	target = sample_uniform(sampling->seed, index) * total;
	if (target >= total) /* by rounding */
		target = nextafter(total, 0);
	return walk(all, n, best, temperature, target);
}
