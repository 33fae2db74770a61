/* Which experts deserve a slot, by use: each expert has a heat, the number of its uses, where a use
 * counts half as much once HALF_LIFE tokens have passed.  One outside the slots takes the place of
 * one inside when it leads by a margin: a move costs the link as much as reading the expert in
 * place once.  Plain arithmetic: it moves nothing.  The heat's memory is the caller's. */
#ifndef HEARTH_WORKER_SLOT_POLICY_H
#define HEARTH_WORKER_SLOT_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/slot_plan.h"

/* The most that one look finds. */
#define SLOT_POLICY_MAX 64u

/* Chosen by replaying traces (tests/bench/slot_policies): shorter lives follow noise, longer ones
 * come late to another topic; a smaller margin moves more than it saves. */
#define SLOT_POLICY_HALF_LIFE 256
#define SLOT_POLICY_MARGIN 8

struct slot_policy {
	uint32_t layers, experts;
	double half_life; /* tokens */
	float margin;     /* uses */
	float *heat;      /* (layers, experts) */
};

/* So many tokens later, with counts[(layers, experts)] of them. */
void slot_policy_age(struct slot_policy *policy, const uint64_t *counts, uint64_t tokens);

/* As if the counts, of `tokens` tokens, had gone on for ever. */
void slot_policy_begin(struct slot_policy *policy, const uint64_t *counts, uint64_t tokens);

/* Up to `max` (SLOT_POLICY_MAX at most) moves, the worthiest first: experts without a slot, not
 * barred, of layers with allowed[layer], into the slots of colder ones of such layers. */
uint32_t slot_policy_next(const struct slot_policy *policy, const struct slot_plan *slots,
			  const bool *allowed, struct slot_fill *ret, uint32_t max);

#endif
