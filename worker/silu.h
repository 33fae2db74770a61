/* silu, the same bits on a GPU and on a CPU: each step is one operation that IEEE 754 rounds.  For
 * C and CUDA. */
#ifndef HEARTH_WORKER_SILU_H
#define HEARTH_WORKER_SILU_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define SILU_OF static __device__ __forceinline__
#else
#define SILU_OF static inline
#endif

SILU_OF float
silu_power_of_2(uint32_t exponent)
{
	uint32_t bits = (exponent + 127) << 23;
	float ret;

	memcpy(&ret, &bits, sizeof ret);
	return ret;
}

/* gate / (1 + e^-gate), within 3 units in the last place where e^-gate is below e^88. */
SILU_OF float
silu(float gate)
{
	const float whole = 12582912.0f; /* 1.5 * 2^23: a float's last bit is 1 here */
	float y = -gate, turned, n, r, p;
	uint32_t exponent;

	y = y > 88.0f ? 88.0f : y;
	y = y < -87.0f ? -87.0f : y;
	turned = fmaf(y, 1.44269504f, whole); /* y / ln 2, rounded, in its last bits */
	memcpy(&exponent, &turned, sizeof exponent);
	n = turned - whole;
	r = fmaf(n, -0.693145752f, y);
	r = fmaf(n, -1.42860677e-6f, r);
	p = fmaf(1.98756915e-4f, r, 1.39819995e-3f);
	p = fmaf(p, r, 8.33345191e-3f);
	p = fmaf(p, r, 4.16657959e-2f);
	p = fmaf(p, r, 1.66666655e-1f);
	p = fmaf(p, r, 0.5f);
	p = fmaf(p, r * r, r) + 1.0f;
	/* The last bits of 1.5 * 2^23 itself are 0. */
	return gate / fmaf(p, silu_power_of_2(exponent), 1.0f);
}

#endif
