/* Replays what a router chose against slots that a policy fills: hits, misses and moves. */
#ifndef HEARTH_TESTS_SLOT_SIM_H
#define HEARTH_TESTS_SLOT_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/route_trace.h"

enum sim_kind {
	SIM_IN_ORDER, /* the first of each layer, for good */
	SIM_STATIC,   /* the most used of the trace's first quarter, for good */
	SIM_LRU,      /* begins as static; whoever was used last */
	SIM_LFU,      /* begins as static; worker/slot_policy.h */
};

struct sim_policy {
	const char *name;
	enum sim_kind kind;
	double half_life; /* tokens */
	float margin;     /* uses */
	bool cold;        /* there is no profile: it begins in order */
	bool shares;      /* every layer has as many slots as any other */
	uint32_t every;   /* tokens between two decisions, at most: moves are there by the next */
	double cap;       /* moves a token, at most; 0 = what the policy finds at once */
};

struct sim_result {
	double hits;                /* share of the uses */
	double misses, moves, uses; /* a token */
};

/* Of the trace's last three quarters. */
struct sim_result slot_sim(const struct route_trace *trace, const struct sim_policy *policy,
			   uint32_t slots);

#endif
