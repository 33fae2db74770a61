/* The mover: copies experts into slots, one order after the other, and answers when it is done. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/reply.h"
#include "pinner/pinner.h"
#include "proto/lend.pb-c.h"

struct move_order {
	struct move_order *next;
	struct call *call;
	uint32_t n;
	struct slot_move moves[];
};

int
mover_order(struct pinner *pinner, struct call *call, const struct slot_move *moves, uint32_t n)
{
	struct move_order *order;

	if (pinner->stopping)
		return -ECANCELED;
	order = malloc(sizeof(*order) + n * sizeof(*moves));
	if (!order)
		return -ENOMEM;
	*order = (struct move_order){ .call = call, .n = n };
	memcpy(order->moves, moves, n * sizeof(*moves));
	if (pinner->last)
		pinner->last->next = order;
	else
		pinner->first = order;
	pinner->last = order;
	slot_table_begin(&pinner->slots, moves, n);
	pthread_cond_signal(&pinner->moves);
	return 0;
}

/* With the lock held: starts the copies of one expert. */
static int
mover_copy(struct pinner *pinner, const struct slot_move *move, struct error *err)
{
	const struct region *region = lending_find(&pinner->lending, SLOTS_KEY);
	const struct model_layer *layer = &pinner->model.layers[move->layer];
	uint8_t *slot =
	    (uint8_t *)region->device.at + move->slot * model_slot_bytes(&pinner->model);
	int rc = 0;

	for (enum role role = 0; rc == 0 && role < N_ROLES; role++) {
		uint64_t from = arena_expert_offset(&pinner->arena, &pinner->model, move->layer,
						    move->expert, role);

		if (from == 0)
			return error_set(err, -ENOENT,
					 "layer %" PRIu32 ": expert %" PRIu32
					 " is outside the resident budget",
					 move->layer, move->expert);
		rc = pin_copy(pinner, slot + model_slot_offset(layer, role), move->layer + 1, from,
			      layer->role[role].bytes, err);
	}
	return rc;
}

/* A board that changes wakes all who follow it, and moves may come every few tokens. */
static void
mover_tell(struct pinner *pinner)
{
	if (clock_ns() - pinner->moved_told_ns < NS_PER_SECOND)
		return;
	pinner->moved_told_ns = clock_ns();
	desk_publish(pinner);
}

/* The lock is let go between experts: lending must not wait for a long order. */
static void
mover_carry_out(struct pinner *pinner, struct move_order *order)
{
	Hearth__LendReply reply = HEARTH__LEND_REPLY__INIT;
	struct error why;
	int rc = 0;

	pthread_mutex_lock(&pinner->lock);
	for (uint32_t i = 0; rc == 0 && i < order->n; i++) {
		if (!order->moves[i].empty)
			rc = mover_copy(pinner, &order->moves[i], &why);
		pthread_mutex_unlock(&pinner->lock);
		pthread_mutex_lock(&pinner->lock);
	}
	if (rc == 0)
		rc = device_wait(pinner->device, &why);
	slot_table_end(&pinner->slots, order->moves, order->n, rc == 0);
	if (rc == 0) {
		for (uint32_t i = 0; i < order->n; i++)
			pinner->moved += !order->moves[i].empty;
	} else {
		log_error("moving experts: %s", why.text);
		reply.error = rc;
		reply.text = why.text;
	}
	pinner->first = order->next;
	if (!pinner->first)
		pinner->last = NULL;
	call_reply_message(order->call, &reply.base);
	pthread_mutex_unlock(&pinner->lock);
	mover_tell(pinner);
}

static void *
mover_run(void *arg)
{
	struct pinner *pinner = arg;
	struct move_order *order;

	for (;;) {
		pthread_mutex_lock(&pinner->lock);
		while (!pinner->first && !pinner->stopping)
			pthread_cond_wait(&pinner->moves, &pinner->lock);
		order = pinner->stopping ? NULL : pinner->first;
		pthread_mutex_unlock(&pinner->lock);
		if (!order)
			return NULL;
		mover_carry_out(pinner, order);
		free(order);
	}
}

int
mover_start(struct pinner *pinner, pthread_t *ret)
{
	int rc = -pthread_create(ret, NULL, mover_run, pinner);

	if (rc == 0)
		pthread_setname_np(*ret, "mover");
	return rc;
}

void
mover_stop(struct pinner *pinner, pthread_t thread)
{
	struct move_order *order;

	pthread_mutex_lock(&pinner->lock);
	pinner->stopping = true;
	pthread_cond_signal(&pinner->moves);
	pthread_mutex_unlock(&pinner->lock);
	pthread_join(thread, NULL);
	while ((order = pinner->first)) { /* their callers see that the pinner has gone */
		pinner->first = order->next;
		free(order);
	}
	pinner->last = NULL;
}
