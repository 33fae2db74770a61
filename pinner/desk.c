/* The pinner's desk: one message of `pinner.lend` in, one answer out.  A request that makes no
 * sense is refused and has changed nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/reply.h"
#include "common/shared_memory.h"
#include "pinner/pinner.h"
#include "proto/lend.pb-c.h"

static void
desk_refuse(struct call *call, int rc, struct error *why)
{
	Hearth__LendReply reply = HEARTH__LEND_REPLY__INIT;

	reply.error = rc;
	reply.text = why->text;
	log_warn("refused: %s", why->text);
	call_reply_message(call, &reply.base);
}

/* With what the slots hold; lock held. */
static void
desk_reply_slots(struct pinner *pinner, struct call *call, Hearth__LendReply *reply)
{
	const struct slot_table *table = &pinner->slots;
	Hearth__Slot *slots = calloc(table->n + 1, sizeof(*slots));
	Hearth__Slot **list = calloc(table->n + 1, sizeof(Hearth__Slot *));

	if (!slots || !list)
		abort(); /* the answer would lie about what is warm */
	reply->slots = list;
	for (uint32_t i = 0; i < table->n; i++) {
		if (!table->content[i].filled)
			continue;
		hearth__slot__init(&slots[i]);
		slots[i].slot = i;
		slots[i].layer = table->content[i].layer;
		slots[i].expert = table->content[i].expert;
		list[reply->n_slots++] = &slots[i];
	}
	call_reply_message(call, &reply->base);
	free(list);
	free(slots);
}

static void
desk_grant(struct pinner *pinner, struct call *call, const struct region *region, bool fresh)
{
	Hearth__LendReply reply = HEARTH__LEND_REPLY__INIT;
	Hearth__Granted granted = HEARTH__GRANTED__INIT;
	char path[SHARED_PATH_BYTES];

	granted.key = (char *)region->key;
	granted.bytes = region->bytes;
	granted.place = region->host ? HEARTH__PLACE__PLACE_HOST : HEARTH__PLACE__PLACE_DEVICE;
	granted.fresh = fresh;
	if (region->has_handle) {
		granted.handle.data = (uint8_t *)region->handle;
		granted.handle.len = sizeof(region->handle);
	} else {
		shared_memory_path(path, region->host ? region->shared.fd : region->device.fd);
		granted.path = path;
	}
	reply.granted = &granted;
	if (strcmp(region->key, SLOTS_KEY) == 0) {
		granted.lease = ++pinner->slots_lease;
		desk_reply_slots(pinner, call, &reply);
	} else {
		call_reply_message(call, &reply.base);
	}
}

/* The region "slots" is new: nothing is in it. */
static int
desk_new_slots(struct pinner *pinner, const struct region *region, struct error *err)
{
	int rc;

	slot_table_close(&pinner->slots);
	rc = slot_table_open(&pinner->slots, region->bytes, model_slot_bytes(&pinner->model));
	if (rc < 0)
		error_sys(err, rc, "%s", region->key);
	return rc;
}

/* Slots that experts are on their way to stay; and where their successor cannot be had, nothing is
 * said to be in them any more. */
static int
desk_lend_slots(struct pinner *pinner, const struct lend_wish *wish, const struct region **ret,
		bool *ret_fresh, struct error *err)
{
	const struct region *old = lending_find(&pinner->lending, SLOTS_KEY);
	struct error ignored;
	int rc;

	if (!pinner->attached || wish->host)
		return error_set(err, pinner->attached ? -EINVAL : -EAGAIN,
				 "slots: device memory, once the model is known");
	if (pinner->first && wish->replace && old && old->bytes != wish->bytes)
		return error_set(err, -EBUSY, "slots: experts are being moved");
	rc = lending_lend(&pinner->lending, wish, ret, ret_fresh, err);
	if (rc == 0 && *ret_fresh) {
		rc = desk_new_slots(pinner, *ret, err);
		if (rc < 0)
			lending_release(&pinner->lending, SLOTS_KEY, &ignored);
	}
	if (!lending_find(&pinner->lending, SLOTS_KEY))
		slot_table_close(&pinner->slots);
	return rc;
}

static int
desk_lend_trunk(struct pinner *pinner, const Hearth__Lend *lend, const struct region **ret,
		struct error *err)
{
	const struct region *region;

	if (device_describe(pinner->device)->computes_from_host)
		return error_set(err, -EINVAL, "trunk: the %s device computes from the arena",
				 device_describe(pinner->device)->name);
	region = lending_find(&pinner->lending, TRUNK_KEY);
	if (!region || !pinner->trunk_there)
		return error_set(err, -EAGAIN, "trunk: not on the device yet");
	if (lend->bytes && lend->bytes != region->bytes)
		return error_set(err, -EEXIST, "trunk: has %llu bytes, asked for %llu",
				 (unsigned long long)region->bytes,
				 (unsigned long long)lend->bytes);
	*ret = region;
	return 0;
}

/* With the lock held. */
static int
desk_lend(struct pinner *pinner, struct call *call, const Hearth__Lend *lend, struct error *err)
{
	struct lend_wish wish = { .key = lend->key,
				  .bytes = lend->bytes,
				  .host = lend->place == HEARTH__PLACE__PLACE_HOST,
				  .replace = lend->replace };
	const struct region *region = NULL;
	bool fresh = false;
	int rc;

	if (lend->place != HEARTH__PLACE__PLACE_HOST && lend->place != HEARTH__PLACE__PLACE_DEVICE)
		return error_set(err, -EINVAL, "%.80s: place %d, want 0 or 1", lend->key,
				 (int)lend->place);
	if (strcmp(lend->key, TRUNK_KEY) == 0)
		rc = desk_lend_trunk(pinner, lend, &region, err);
	else if (strcmp(lend->key, SLOTS_KEY) == 0)
		rc = desk_lend_slots(pinner, &wish, &region, &fresh, err);
	else
		rc = lending_lend(&pinner->lending, &wish, &region, &fresh, err);
	if (rc == 0 && region)
		desk_grant(pinner, call, region, fresh);
	return rc;
}

/* With the lock held. */
static int
desk_release(struct pinner *pinner, struct call *call, const Hearth__Release *release,
	     struct error *err)
{
	Hearth__LendReply reply = HEARTH__LEND_REPLY__INIT;
	int rc;

	if (strcmp(release->key, TRUNK_KEY) == 0)
		return error_set(err, -EINVAL, "trunk: stays as long as the pinner");
	if (strcmp(release->key, SLOTS_KEY) == 0 && pinner->first)
		return error_set(err, -EBUSY, "slots: experts are being moved");
	rc = lending_release(&pinner->lending, release->key, err);
	if (rc < 0)
		return rc;
	if (strcmp(release->key, SLOTS_KEY) == 0)
		slot_table_close(&pinner->slots);
	call_reply_message(call, &reply.base);
	return 0;
}

/* The caller frees it. */
static struct slot_move *
desk_list_moves(const Hearth__Move *move)
{
	struct slot_move *moves = calloc(move->n_moves + move->n_empty + 1, sizeof(*moves));

	for (size_t i = 0; moves && i < move->n_moves; i++)
		moves[i] = (struct slot_move){ .layer = move->moves[i]->layer,
					       .expert = move->moves[i]->expert,
					       .slot = move->moves[i]->slot };
	for (size_t i = 0; moves && i < move->n_empty; i++)
		moves[move->n_moves + i] =
		    (struct slot_move){ .slot = move->empty[i], .empty = true };
	return moves;
}

/* With the lock held. */
static int
desk_move(struct pinner *pinner, struct call *call, const Hearth__Move *move, struct error *err)
{
	struct slot_move *moves;
	uint32_t n;
	int rc;

	if (pinner->slots.n == 0)
		return error_set(err, -ENOENT, "slots: lend the region first");
	if (move->lease != pinner->slots_lease)
		return error_set(err, -ESTALE,
				 "slots: they have been lent again since, to another");
	if (move->slot_bytes != model_slot_bytes(&pinner->model))
		return error_set(err, -EINVAL, "slots: %llu bytes each, this model's have %llu",
				 (unsigned long long)move->slot_bytes,
				 (unsigned long long)model_slot_bytes(&pinner->model));
	if (move->n_moves > MAX_MOVES || move->n_empty > MAX_MOVES - move->n_moves)
		return error_set(err, -EINVAL, "%zu moves, %zu slots to empty: at most %u at once",
				 move->n_moves, move->n_empty, MAX_MOVES);
	n = (uint32_t)(move->n_moves + move->n_empty);
	moves = desk_list_moves(move);
	if (!moves)
		return error_set(err, -ENOMEM, "moves: no memory");
	rc = slot_table_check(&pinner->slots, &pinner->model, pinner->usable, moves, n, err);
	if (rc == 0) {
		rc = mover_order(pinner, call, moves, n);
		if (rc < 0)
			error_sys(err, rc, "moves");
	}
	free(moves);
	return rc;
}

void
desk_answer(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	Hearth__LendRequest *request = hearth__lend_request__unpack(NULL, n, bytes);
	struct pinner *pinner = arg;
	struct error why;
	int rc;

	if (!request) {
		rc = error_set(&why, -EPROTO, "%zu bytes that are no LendRequest", n);
		desk_refuse(call, rc, &why);
		return;
	}
	pthread_mutex_lock(&pinner->lock);
	switch (request->what_case) {
	case HEARTH__LEND_REQUEST__WHAT_LEND:
		rc = desk_lend(pinner, call, request->lend, &why);
		break;
	case HEARTH__LEND_REQUEST__WHAT_RELEASE:
		rc = desk_release(pinner, call, request->release, &why);
		break;
	case HEARTH__LEND_REQUEST__WHAT_MOVE:
		rc = desk_move(pinner, call, request->move, &why);
		break;
	default:
		rc = error_set(&why, -EPROTO, "a LendRequest that asks for nothing");
	}
	pthread_mutex_unlock(&pinner->lock);
	if (rc < 0)
		desk_refuse(call, rc, &why);
	else if (request->what_case != HEARTH__LEND_REQUEST__WHAT_MOVE)
		desk_publish(pinner);
	hearth__lend_request__free_unpacked(request, NULL);
}

/* The board's list of regions, made anew. */
static void
desk_list_regions(Hearth__Pinning *pinning, const struct lending *lending, const char *device)
{
	Hearth__Region **list = calloc(lending->n + 1, sizeof(Hearth__Region *));
	size_t n = 0;

	if (!list)
		return; /* the old list stays */
	for (uint32_t i = 0; i < lending->n; i++) {
		Hearth__Region *region = malloc(sizeof(*region));

		if (!region)
			break;
		hearth__region__init(region);
		board_text(&region->key, "%s", lending->regions[i].key);
		board_text(&region->where, "%s", lending->regions[i].host ? "host" : device);
		region->bytes = lending->regions[i].bytes;
		list[n++] = region;
	}
	for (size_t i = 0; i < pinning->n_regions; i++)
		hearth__region__free_unpacked(pinning->regions[i], NULL);
	free(pinning->regions);
	pinning->regions = list;
	pinning->n_regions = n;
}

void
desk_publish(struct pinner *pinner)
{
	Hearth__Pinning *pinning = board_pinning(board_edit(pinner->board));
	uint64_t room, total;

	pthread_mutex_lock(&pinner->lock);
	if (pinning) {
		if (device_memory_room(pinner->device, &room, &total) == 0) {
			pinning->device_bytes_free = room;
			pinning->device_bytes_total = total;
		}
		pinning->device_bytes_lent = pinner->lending.lent;
		pinning->device_bytes_cap = pinner->lending.cap;
		pinning->expert_moves = pinner->moved;
		desk_list_regions(pinning, &pinner->lending, device_describe(pinner->device)->name);
	}
	pthread_mutex_unlock(&pinner->lock);
	board_publish(pinner->board);
}
