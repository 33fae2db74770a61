/* AVX2: the GPU's lanes. */
#include "worker/cpu_lanes_256.h"

LANES_SET(lanes_avx2, "avx2");
