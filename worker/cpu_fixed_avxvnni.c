/* AVX-VNNI: products of bytes with fixed-point columns. */
#define VNNI
#include "worker/cpu_fixed_256.h"

FIXED_FUNCTIONS(cpu_fixed_avxvnni)
