/* What the kernels wrote down of the token launched last (worker/cuda_probe.cuh). */
#ifndef HEARTH_TESTS_BENCH_PROBE_H
#define HEARTH_TESTS_BENCH_PROBE_H

#ifdef __cplusplus
extern "C" {
#endif

/* A line for each kernel, the mean over its launches of the last token but the first layer's: us
 * from the end of the kernel before to when the first block began, the last began, and so on.
 * Where experts were left to the CPU, also what became of the orders (bench_orders.cuh).  Prints
 * nothing where the build has no probes.  Not with experts that are asked for. */
void bench_probe_print(void);

#ifdef __cplusplus
}
#endif
#endif
