/* AVX2 and AVX-VNNI: the GPU's lanes. */
#define dot_bytes(sum, quants, with) _mm256_dpbusd_avx_epi32(sum, quants, with)
#include "worker/cpu_lanes_256.h"

LANES_SET(lanes_avxvnni, "avxvnni");
