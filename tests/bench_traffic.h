/* The bytes that one token of one request touches, by place, and the time that they take at least.
 * What the caches of a processor hold from one token to the next is not counted as saved. */
#ifndef HEARTH_TESTS_BENCH_TRAFFIC_H
#define HEARTH_TESTS_BENCH_TRAFFIC_H

#include <stdint.h>

#include "common/model.h"

enum bench_place {
	BENCH_TRUNK, /* all that is no expert, and of the embedding one row */
	BENCH_SLOTS, /* experts in device memory */
	BENCH_ARENA, /* experts in place */
	BENCH_KV,
	N_BENCH_PLACES,
};

extern const char *const bench_place_names[N_BENCH_PLACES];

struct bench_traffic {
	double bytes[N_BENCH_PLACES];
};

/* GB/s at which each place can be read. */
struct bench_rates {
	double gb_s[N_BENCH_PLACES];
};

/* All experts that a token chooses. */
double bench_expert_bytes(const struct model *model);
/* `hits`: the part of them that is in slots; kv_bytes: of one position; context: positions read. */
void bench_traffic_of(struct bench_traffic *ret, const struct model *model, double hits,
		      double kv_bytes, double context);
double bench_traffic_bytes(const struct bench_traffic *traffic);
/* One place after the other. */
double bench_traffic_seconds(const struct bench_traffic *traffic, const struct bench_rates *rates);

/* The part of the experts that slots hold when the device lends `bytes` in all: the trunk's and the
 * KV cache's first.  With even routing, the part that hits. */
double bench_slots_part(const struct model *model, uint64_t bytes, uint64_t kv_bytes);

#endif
