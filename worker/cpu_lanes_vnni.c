/* AVX-512 VNNI, in vectors of 32 bytes: the GPU's lanes. */
#define dot_bytes(sum, quants, with) _mm256_dpbusd_epi32(sum, quants, with)
#include "worker/cpu_lanes_256.h"

LANES_SET(lanes_vnni, "avx512vnni");
