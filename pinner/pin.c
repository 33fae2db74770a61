/* Registering and locking slices of the arena, as the plan has it.  Registration that is refused
 * costs speed, not correctness: it is noted and the start goes on. */
#include <errno.h>
#include <inttypes.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/memory_lock.h"
#include "pinner/pinner.h"

#define LOCK_PIECE (64ull << 20) /* what was locked before a refusal is known to so much */

/* One call into the device.  No two pinners register one range at once (arena_lock says who else
 * need not look). */
static int
pin_call(struct pinner *pinner, uint64_t offset, uint64_t bytes, uint64_t *ret_ns,
	 struct error *err)
{
	uint64_t begin;
	int rc = arena_lock(&pinner->arena);

	if (rc < 0)
		return error_sys(err, rc, "flock of the arena");
	pthread_mutex_lock(&pinner->lock);
	begin = clock_ns();
	rc = device_register(pinner->device, pinner->arena.base + offset, bytes, true, err);
	*ret_ns += clock_ns() - begin;
	pthread_mutex_unlock(&pinner->lock);
	arena_unlock(&pinner->arena);
	return rc;
}

/* A mapping's advice counts for who touches a page first: ahead of the reader that is this one. */
static void
pin_look_at_pages(struct pinner *pinner, uint64_t bytes, uint64_t ns)
{
	struct error why;

	if (!pinner->asks_huge || !pin_pages_are_slow(bytes, ns))
		return;
	pinner->asks_huge = false;
	log_warn("huge pages come too slowly, the rest of the arena gets small ones");
	if (arena_advise(&pinner->arena, ARENA_PAGES_4K, &why) < 0)
		log_warn("%s", why.text);
}

static bool
pin_worker_serves(struct pinner *pinner)
{
	bool serves;

	pthread_mutex_lock(&pinner->lock);
	serves = lending_find(&pinner->lending, KV_KEY) != NULL;
	pthread_mutex_unlock(&pinner->lock);
	return serves;
}

/* Bytes of the slices that are not registered for this reason, from `fate` on. */
static uint64_t
pin_sum(const struct pin_plan *plan, enum pin_fate from, enum pin_fate to)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < plan->n; i++) {
		if (plan->slices[i].fate >= from && plan->slices[i].fate <= to)
			sum += plan->place[i].bytes;
	}
	return sum;
}

static void
pin_note(const struct pin_config *config, enum pin_fate fate, char **note)
{
	if (fate == PIN_OVER_CAP && !(*note)[0])
		board_text(note, "not registered: over --pin-gib %" PRIu64, config->cap >> 30);
	else if (fate == PIN_ENDED && !(*note)[0])
		board_text(note, "not registered: a slice before it was refused");
}

/* Between board_edit and board_publish. */
static void
pin_show(struct pinner *pinner, Hearth__State *state)
{
	const struct pin_plan *plan = &pinner->plan;

	for (uint32_t i = 0; i < plan->n; i++) {
		const struct pin_slice *from = &plan->slices[i];
		Hearth__Slice *slice = state->slices[i];

		slice->settled = from->fate != PIN_OPEN;
		if (from->filled)
			slice->state = from->fate == PIN_REGISTERED
					   ? HEARTH__SLICE_STATE__SLICE_REGISTERED
					   : HEARTH__SLICE_STATE__SLICE_FILLED;
		pin_note(&plan->config, from->fate, &slice->note);
	}
}

static void
pin_mark_usable(struct pinner *pinner)
{
	pthread_mutex_lock(&pinner->lock);
	for (uint32_t i = 0; i < pinner->plan.n; i++)
		pinner->usable[i] = pin_plan_usable(&pinner->plan, i);
	pthread_mutex_unlock(&pinner->lock);
}

void
pin_publish(struct pinner *pinner)
{
	Hearth__State *state;

	pin_mark_usable(pinner);
	state = board_edit(pinner->board);
	board_pinning(state)->over_cap_bytes = pin_sum(&pinner->plan, PIN_OVER_CAP, PIN_OVER_CAP);
	pin_show(pinner, state);
	board_publish(pinner->board);
}

void
pin_register(struct pinner *pinner, uint32_t i)
{
	const struct arena_slice *slice = &pinner->arena.slices[i];
	bool serving = pin_worker_serves(pinner);
	uint64_t begin = clock_ns(), done = 0, ns = 0, n;
	Hearth__Pinning *pinning;
	Hearth__State *state;
	struct error why;
	int rc = 0;

	while (rc == 0 && (n = pin_plan_call(&pinner->plan, i, done, serving)) > 0) {
		rc = pin_call(pinner, slice->offset + done, n, &ns, &why);
		if (rc == 0)
			done += n;
	}
	pin_look_at_pages(pinner, done, ns);
	if (rc == 0)
		pin_plan_registered(&pinner->plan, i);
	else
		pin_plan_refused(&pinner->plan, i);
	pin_mark_usable(pinner);
	state = board_edit(pinner->board);
	pinning = board_pinning(state);
	state->slices[i]->begin_ns = begin;
	state->slices[i]->end_ns = clock_ns();
	pinning->registered_bytes += done;
	pinning->register_ns += ns;
	if (rc < 0) {
		log_warn("%s: %s: registration ends here", slice->name, why.text);
		pinning->refused_bytes = pin_sum(&pinner->plan, PIN_REFUSED, PIN_ENDED) - done;
		board_text(&pinning->refusal, "%s: %s", slice->name, why.text);
		board_text(&state->slices[i]->note, "not registered: %s", why.text);
	}
	pin_show(pinner, state);
	board_publish(pinner->board);
}

void
pin_lock(struct pinner *pinner, uint32_t i)
{
	const struct arena_slice *slice = &pinner->arena.slices[i];
	uint64_t done = 0, n;
	Hearth__Pinning *pinning;
	struct error why;
	int rc = 0;

	while (rc == 0 && done < slice->bytes) {
		n = slice->bytes - done < LOCK_PIECE ? slice->bytes - done : LOCK_PIECE;
		rc = memory_lock(pinner->arena.base + slice->offset + done, n, &why);
		if (rc == 0)
			done += n;
	}
	pin_plan_lock_tried(&pinner->plan, i, rc == 0);
	pinning = board_pinning(board_edit(pinner->board));
	pinning->locked_bytes += done;
	if (rc < 0) {
		log_warn("%s: %s", slice->name, why.text);
		board_text(&pinning->locked_note, "%s: %s", slice->name, why.text);
	}
	board_publish(pinner->board);
}

int
pin_copy(struct pinner *pinner, void *to, uint32_t slice, uint64_t offset, uint64_t bytes,
	 struct error *err)
{
	uint8_t *at = to;
	int rc = 0;

	for (uint64_t done = 0, n; rc == 0 && done < bytes; done += n) {
		n = pin_plan_copy_bytes(&pinner->plan, slice, offset + done, bytes - done);
		rc = device_copy_in(pinner->device, at + done, pinner->arena.base + offset + done,
				    n, err);
	}
	return rc;
}
