/* AVX-512 with VNNI: products of bytes with fixed-point columns. */
#define VNNI
#include "worker/cpu_fixed_512.h"

FIXED_FUNCTIONS(cpu_fixed_vnni)
