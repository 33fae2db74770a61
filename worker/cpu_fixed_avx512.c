/* AVX-512 without VNNI: products of bytes with fixed-point columns. */
#include "worker/cpu_fixed_512.h"

FIXED_FUNCTIONS(cpu_fixed_avx512)
