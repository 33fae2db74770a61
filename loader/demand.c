#include "loader/demand.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/model.h"

/* One expert matrix after the other: units of the plan. */
struct matrix_units {
	uint64_t first, n;
};

struct demand {
	const struct checksum_plan *plan;
	const struct pieces *pieces;
	struct piece_queue *queue;
	uint32_t n_layers, n_experts;
	struct matrix_units *units; /* (layers, N_ROLES) */
	pthread_mutex_t lock;       /* for all below */
	struct fetch_wish *waiting;
	uint64_t *scratch;          /* (n_experts, N_ROLES) pieces of the wish looked at */
	struct fetch_place *places; /* (n_experts) */
	struct demand_figures figures;
	int ended;
	struct error why;
};

/* An expert tensor's units are one an expert, side by side in the plan. */
static void
find_units(struct demand *demand, const struct arena_tensor *tensors)
{
	const struct checksum_plan *plan = demand->plan;

	for (uint64_t i = 0; i < plan->n_units; i++) {
		enum role role;
		int layer = model_expert_layer(tensors[plan->units[i].tensor].name, &role);
		struct matrix_units *units;

		if (layer < 0)
			continue;
		units = &demand->units[(uint32_t)layer * N_ROLES + role];
		if (units->n++ == 0)
			units->first = i;
		if (units->n > demand->n_experts)
			demand->n_experts = (uint32_t)units->n;
	}
}

int
demand_open(struct demand **ret, const struct checksum_plan *plan,
	    const struct arena_tensor *tensors, const struct pieces *pieces,
	    struct piece_queue *queue, struct error *err)
{
	struct demand *demand = calloc(1, sizeof(*demand));

	if (!demand)
		return error_sys(err, -ENOMEM, "demand");
	demand->plan = plan;
	demand->pieces = pieces;
	demand->queue = queue;
	demand->n_layers = (uint32_t)plan->n_slices - 1;
	pthread_mutex_init(&demand->lock, NULL);
	demand->units = calloc((uint64_t)demand->n_layers * N_ROLES + 1, sizeof(*demand->units));
	if (demand->units)
		find_units(demand, tensors);
	demand->scratch =
	    calloc((uint64_t)demand->n_experts * N_ROLES + 1, sizeof(*demand->scratch));
	demand->places = calloc((uint64_t)demand->n_experts + 1, sizeof(*demand->places));
	if (!demand->units || !demand->scratch || !demand->places) {
		demand_close(demand);
		return error_sys(err, -ENOMEM, "demand");
	}
	*ret = demand;
	return 0;
}

/* With the lock held: the wish's pieces and places.  Returns the number of pieces. */
static uint64_t
spell_out(struct demand *demand, const struct fetch_wish *wish)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < wish->n; i++) {
		for (int role = 0; role < N_ROLES; role++) {
			const struct matrix_units *units =
			    &demand->units[wish->layer * N_ROLES + (uint32_t)role];
			uint64_t unit = units->first + wish->experts[i];

			demand->scratch[n++] = demand->pieces->of_unit[unit];
			demand->places[i].role[role] = demand->plan->units[unit].offset;
		}
	}
	return n;
}

/* With the lock held.  False: it must wait. */
static bool
fulfil(struct demand *demand, struct fetch_wish *wish)
{
	uint64_t n = spell_out(demand, wish);

	if (!piece_queue_all_done(demand->queue, demand->scratch, n))
		return false;
	demand->figures.wait_ns += clock_ns() - wish->begun_ns;
	fetch_wish_done(wish, demand->places);
	return true;
}

/* With the lock held. */
static int
check_layer(const struct demand *demand, uint32_t layer, struct error *err)
{
	for (uint32_t role = 0; role < N_ROLES; role++)
		if (demand->units[layer * N_ROLES + role].n != demand->n_experts)
			return error_set(err, -EINVAL, "layer %" PRIu32 " has no experts", layer);
	return 0;
}

static int
demand_bring(void *arg, struct fetch_wish *wish, struct error *err)
{
	struct demand *demand = arg;
	int rc;

	pthread_mutex_lock(&demand->lock);
	rc = check_layer(demand, wish->layer, err);
	if (rc == 0) {
		if (demand->figures.requests++ == 0)
			demand->figures.first_ns = wish->begun_ns;
		/* First demand, then look: what gets done in between is not missed. */
		piece_queue_demand(demand->queue, demand->scratch, spell_out(demand, wish));
		if (!fulfil(demand, wish)) {
			rc = demand->ended;
			if (rc < 0)
				*err = demand->why;
			if (rc == 0) {
				wish->next = demand->waiting;
				demand->waiting = wish;
			}
		}
	}
	pthread_mutex_unlock(&demand->lock);
	return rc;
}

struct fetch_source
demand_source(struct demand *demand)
{
	return (struct fetch_source){ .arg = demand,
				      .n_layers = demand->n_layers,
				      .n_experts = demand->n_experts,
				      .bring = demand_bring };
}

void
demand_look(void *arg)
{
	struct demand *demand = arg;
	struct fetch_wish **at, *wish;

	pthread_mutex_lock(&demand->lock);
	for (at = &demand->waiting; (wish = *at);) {
		struct fetch_wish *next = wish->next;

		if (fulfil(demand, wish))
			*at = next;
		else
			at = &wish->next;
	}
	pthread_mutex_unlock(&demand->lock);
}

void
demand_figures(struct demand *demand, struct demand_figures *ret)
{
	pthread_mutex_lock(&demand->lock);
	*ret = demand->figures;
	ret->bytes = piece_queue_demanded_bytes(demand->queue);
	pthread_mutex_unlock(&demand->lock);
}

void
demand_end(struct demand *demand, int rc, const struct error *why)
{
	struct fetch_wish *next;

	pthread_mutex_lock(&demand->lock);
	if (demand->ended == 0) {
		demand->ended = rc;
		demand->why = *why;
	}
	for (struct fetch_wish *wish = demand->waiting; wish; wish = next) {
		next = wish->next;
		fetch_wish_fail(wish, demand->ended, &demand->why);
	}
	demand->waiting = NULL;
	pthread_mutex_unlock(&demand->lock);
}

void
demand_close(struct demand *demand)
{
	if (!demand)
		return;
	pthread_mutex_destroy(&demand->lock);
	free(demand->units);
	free(demand->scratch);
	free(demand->places);
	free(demand);
}
