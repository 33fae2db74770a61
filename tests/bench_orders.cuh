/* What became of the orders to the CPU in the token launched last, by one clock. */
#ifndef HEARTH_TESTS_BENCH_ORDERS_CUH
#define HEARTH_TESTS_BENCH_ORDERS_CUH

#include <stdint.h>

/* `all`: what the kernels wrote down; launch `begin` began the token.  A line for each moment, in
 * us from when the router was about to store its order: mean, least and greatest over the layers
 * that ordered, and the mean by the number of experts ordered.  Prints nothing where nothing was.
 */
void bench_orders_print(const uint64_t *all, uint32_t begin);

#endif
