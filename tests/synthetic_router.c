#include "tests/synthetic_router.h"

#include <assert.h>
#include <math.h>

#include "proto/limits.h"

#define BISECTIONS 60

static double
frequency(double scale, uint32_t rank, double zipf, double most)
{
	return fmin(most, scale * pow(rank + 1, -zipf));
}

void
synthetic_frequencies(double *ret, uint32_t experts, uint32_t top_k, double zipf)
{
	double even = (double)top_k / experts, most = fmax(SYNTHETIC_HOTTEST, even);
	double low = 0, high = pow(experts, zipf); /* at this the last one is at 1 */

	for (int i = 0; i < BISECTIONS; i++) {
		double scale = (low + high) / 2, sum = 0;

		for (uint32_t rank = 0; rank < experts; rank++)
			sum += frequency(scale, rank, zipf, most);
		*(sum < top_k ? &low : &high) = scale;
	}
	for (uint32_t rank = 0; rank < experts; rank++)
		ret[rank] = frequency(high, rank, zipf, most);
}

/* What a normal number of deviation 1 is above with this frequency, below 0.5. */
static double
threshold(double wanted)
{
	double low = 0, high = 40;

	for (int i = 0; i < BISECTIONS; i++) {
		double middle = (low + high) / 2;

		*(erfc(middle / sqrt(2)) / 2 > wanted ? &low : &high) = middle;
	}
	return high;
}

static uint64_t
next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

static void
shuffle(float *values, uint32_t n, uint64_t seed)
{
	seed = (seed + 1) * 0x9e3779b97f4a7c15ull;
	for (uint32_t i = n - 1; i > 0; i--) {
		uint32_t other = (uint32_t)(next(&seed) % (i + 1));
		float value = values[i];

		values[i] = values[other];
		values[other] = value;
	}
}

void
synthetic_gains(float *ret, uint32_t experts, uint32_t top_k, double zipf, uint64_t seed)
{
	double wanted[MAX_EXPERTS], squares = 0;

	assert(experts <= MAX_EXPERTS);
	for (uint32_t rank = 0; rank < experts; rank++)
		ret[rank] = 1;
	if (zipf == 0 || 2 * top_k >= experts)
		return;
	synthetic_frequencies(wanted, experts, top_k, zipf);
	for (uint32_t rank = 0; rank < experts; rank++) {
		double length = 1 / threshold(wanted[rank]);

		ret[rank] = (float)length;
		squares += length * length;
	}
	for (uint32_t rank = 0; rank < experts; rank++)
		ret[rank] *= (float)sqrt(experts / squares);
	shuffle(ret, experts, seed);
}
