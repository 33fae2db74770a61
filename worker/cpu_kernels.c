#include "worker/cpu_kernels.h"

#include <cpuid.h>
#include <string.h>

/* F16C; a name that not every compiler's __builtin_cpu_supports knows. */
static bool
converts_halves(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* AVX-VNNI; the same. */
static bool
multiplies_bytes(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 4);
}

#define AVX2 1u
#define AVX_VNNI 2u
#define AVX512 4u
#define AVX512_VNNI 8u

/* Asked here and not in the sets' own files, which are compiled for what is being asked. */
static uint32_t
cpu_has(void)
{
	uint32_t has = 0;

	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !converts_halves())
		return 0;
	has |= AVX2;
	if (multiplies_bytes())
		has |= AVX_VNNI;
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
	    !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
		return has;
	has |= AVX512;
	if (__builtin_cpu_supports("avx512vnni"))
		has |= AVX512_VNNI;
	return has;
}

/* The fastest first. */
static const struct cpu_kernels sets[] = {
	{ "avx512vnni", cpu_floats_avx512, cpu_fixed_vnni, cpu_mix_avx512, cpu_fix_avx2,
	  AVX2 | AVX512 | AVX512_VNNI },
	{ "avx512", cpu_floats_avx512, cpu_fixed_avx512, cpu_mix_avx512, cpu_fix_avx2,
	  AVX2 | AVX512 },
	{ "avxvnni", cpu_floats_avx2, cpu_fixed_avxvnni, cpu_mix_avx2, cpu_fix_avx2,
	  AVX2 | AVX_VNNI },
	{ "avx2", cpu_floats_avx2, cpu_fixed_avx2, cpu_mix_avx2, cpu_fix_avx2, AVX2 },
	{ "c", cpu_floats_c, cpu_fixed_c, cpu_mix_c, fixed_set, 0 },
};

#define N_SETS (sizeof(sets) / sizeof(sets[0]))

const struct cpu_kernels *
cpu_kernels_get(uint32_t index)
{
	return index < N_SETS ? &sets[index] : NULL;
}

bool
cpu_kernels_usable(const struct cpu_kernels *kernels)
{
	return (kernels->needs & ~cpu_has()) == 0;
}

const struct cpu_kernels *
cpu_kernels_best(void)
{
	const struct cpu_kernels *set = sets;

	while (!cpu_kernels_usable(set)) /* the last one is */
		set++;
	return set;
}

const struct cpu_kernels *
cpu_kernels_find(const char *name)
{
	for (size_t i = 0; i < N_SETS; i++)
		if (strcmp(sets[i].name, name) == 0)
			return cpu_kernels_usable(&sets[i]) ? &sets[i] : NULL;
	return NULL;
}

cpu_dot_fn *
cpu_kernels_dot(const struct cpu_kernels *kernels, uint32_t type)
{
	for (size_t i = 0; i < CPU_FLOAT_TYPES; i++)
		if (kernels->floats[i].type == type)
			return kernels->floats[i].dot;
	for (size_t i = 0; i < CPU_FIXED_TYPES; i++)
		if (kernels->fixed[i].type == type)
			return kernels->fixed[i].dot;
	return NULL;
}
