#include "worker/cpu_kernels.h"

#include <cpuid.h>
#include <stdbool.h>
#include <string.h>

/* F16C; a name that not every compiler's __builtin_cpu_supports knows. */
static bool
converts_halves(void)
{
	unsigned int a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* Asked here and not in the sets' own files, which are compiled for what is being asked. */
static bool
usable(const struct cpu_kernels *kernels)
{
	if (kernels == &cpu_kernels_c)
		return true;
	if (!__builtin_cpu_supports("fma") || !converts_halves())
		return false;
	if (kernels == &cpu_kernels_avx2)
		return __builtin_cpu_supports("avx2");
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static const struct cpu_kernels *const sets[] = {
	&cpu_kernels_avx512, &cpu_kernels_avx2, &cpu_kernels_c, /* the fastest first */
};

#define N_SETS (sizeof(sets) / sizeof(sets[0]))

const struct cpu_kernels *
cpu_kernels_best(void)
{
	for (size_t i = 0; i < N_SETS; i++)
		if (usable(sets[i]))
			return sets[i];
	return &cpu_kernels_c;
}

const struct cpu_kernels *
cpu_kernels_find(const char *name)
{
	for (size_t i = 0; i < N_SETS; i++)
		if (strcmp(sets[i]->name, name) == 0)
			return usable(sets[i]) ? sets[i] : NULL;
	return NULL;
}

cpu_dot_fn *
cpu_kernels_dot(const struct cpu_kernels *kernels, uint32_t type)
{
	for (size_t i = 0; i < sizeof(kernels->types) / sizeof(kernels->types[0]); i++)
		if (kernels->types[i].type == type)
			return kernels->types[i].dot;
	return NULL;
}
