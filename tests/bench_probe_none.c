/* A build without CUDA has no kernels. */
#include "tests/bench_probe.h"

void
bench_probe_print(void)
{
}
