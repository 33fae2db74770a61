#include "worker/slot_policy.h"

#include <math.h>

/* The worthiest few, in order. */
struct ranked {
	uint32_t n, max;
	uint32_t which[SLOT_POLICY_MAX];
	float worth[SLOT_POLICY_MAX];
};

void
slot_policy_age(struct slot_policy *policy, const uint64_t *counts, uint64_t tokens)
{
	float keeps = (float)exp2(-(double)tokens / policy->half_life);

	for (uint32_t i = 0; i < policy->layers * policy->experts; i++)
		policy->heat[i] = policy->heat[i] * keeps + (float)counts[i];
}

void
slot_policy_begin(struct slot_policy *policy, const uint64_t *counts, uint64_t tokens)
{
	/* The sum of 2^(-t / half_life) over t = 0, 1, ... */
	double sum = 1 / (1 - exp2(-1 / policy->half_life));

	for (uint32_t i = 0; i < policy->layers * policy->experts; i++)
		policy->heat[i] =
		    tokens > 0 ? (float)((double)counts[i] / (double)tokens * sum) : 0;
}

/* Of equals the first one comes first. */
static void
rank(struct ranked *ranked, uint32_t which, float worth)
{
	uint32_t at = ranked->n;

	if (at == ranked->max && worth <= ranked->worth[at - 1])
		return;
	if (at < ranked->max)
		ranked->n++;
	else
		at--;
	for (; at > 0 && worth > ranked->worth[at - 1]; at--) {
		ranked->which[at] = ranked->which[at - 1];
		ranked->worth[at] = ranked->worth[at - 1];
	}
	ranked->which[at] = which;
	ranked->worth[at] = worth;
}

uint32_t
slot_policy_next(const struct slot_policy *policy, const struct slot_plan *slots,
		 const bool *allowed, struct slot_fill *ret, uint32_t max)
{
	struct ranked hot = { .max = max < SLOT_POLICY_MAX ? max : SLOT_POLICY_MAX };
	struct ranked cold = { .max = hot.max };
	uint32_t n = 0;

	for (uint32_t i = 0; hot.max > 0 && i < policy->layers * policy->experts; i++) {
		if (!allowed[i / policy->experts] || slots->barred[i])
			continue;
		if (slots->slot_of[i] == SLOT_NONE)
			rank(&hot, i, policy->heat[i]);
		else
			rank(&cold, i, -policy->heat[i]);
	}
	while (n < hot.n && n < cold.n && hot.worth[n] > policy->margin - cold.worth[n]) {
		ret[n] = (struct slot_fill){ hot.which[n] / policy->experts,
					     hot.which[n] % policy->experts,
					     slots->slot_of[cold.which[n]] };
		n++;
	}
	return n;
}
