/* How long the rows of a synthetic router are, so that each expert is chosen as often as wanted.
 *
 * The input of a router is random with a fixed length, so that an expert's logit is a normal number
 * with the length of the expert's row as its deviation.  A token takes the top_k greatest, which is
 * nearly: those above a threshold t.  A row of length t / z, where a normal number of deviation 1
 * is above z with frequency f, makes its expert pass with frequency f. */
#ifndef HEARTH_TESTS_SYNTHETIC_ROUTER_H
#define HEARTH_TESTS_SYNTHETIC_ROUTER_H

#include <stdint.h>

/* Half the time a logit is below 0, where no threshold is. */
#define SYNTHETIC_HOTTEST 0.45

/* How often an expert of each rank is chosen, of 1: as rank^-zipf (0: all alike), none above
 * SYNTHETIC_HOTTEST (unless top_k / experts is); together top_k. */
void synthetic_frequencies(double *ret, uint32_t experts, uint32_t top_k, double zipf);

/* The rows' lengths for these, in an order of the seed's, their mean square 1. */
void synthetic_gains(float *ret, uint32_t experts, uint32_t top_k, double zipf, uint64_t seed);

#endif
