/* The registrar: attaches the arena the loader names, has its slices registered as the plan says,
 * and brings the trunk to a device that does not compute from the arena. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/pages.h"
#include "common/shared_memory.h"
#include "pinner/pinner.h"

#define COPY_PIECE (64ull << 20) /* so that no copy call keeps the lock for long */

static int
registrar_attach(struct pinner *pinner, const Hearth__Arena *named, struct error *err)
{
	struct arena_want want = { .bytes = named->bytes,
				   .stamp = named->stamp,
				   .layout_hash = named->layout_hash };
	struct pin_plan plan = { 0 };
	struct arena arena;
	struct model model;
	bool *usable;
	uint32_t n;
	int rc;

	/* Another one in its place, without a head yet: the loader is giving the one it named up
	 * just now, which is no reason not to start the pinner again. */
	rc = arena_attach(&arena, named->path, false, &want, err);
	if (rc < 0)
		return rc == -EBADMSG ? -EIO : rc;
	rc = model_read_arena(&model, &arena, err);
	if (rc < 0) {
		arena_close(&arena);
		return rc;
	}
	n = (uint32_t)arena.head->n_slices;
	usable = calloc(n, sizeof(*usable));
	if (!usable || pin_plan_open(&plan, &pinner->pin_config, arena.slices, n) < 0) {
		free(usable);
		model_close(&model);
		arena_close(&arena);
		return error_set(err, -ENOMEM, "arena: no memory for its slices");
	}
	pthread_mutex_lock(&pinner->lock);
	pinner->arena = arena;
	pinner->model = model;
	pinner->plan = plan;
	pinner->usable = usable;
	pinner->attached = true;
	pthread_mutex_unlock(&pinner->lock);
	return 0;
}

void
registrar_close(struct pinner *pinner)
{
	if (!pinner->attached)
		return;
	model_close(&pinner->model);
	arena_close(&pinner->arena);
	pin_plan_close(&pinner->plan);
	free(pinner->usable);
}

/* With `before` this process touches the arena's pages first, and asks for what the loader asked.
 */
static void
registrar_ask_pages(struct pinner *pinner, const Hearth__Pages *pages)
{
	enum arena_pages asked;
	struct error why;

	if (pinner->pin_config.order != PIN_BEFORE || !pages ||
	    pages_of_word(&asked, pages->asked) < 0)
		return;
	pinner->asks_huge = asked == ARENA_PAGES_THP;
	if (arena_advise(&pinner->arena, asked, &why) < 0)
		log_warn("%s", why.text);
}

/* The board names the arena through this process's own descriptor. */
static int
registrar_publish_arena(struct pinner *pinner, const Hearth__State *loader, struct error *err)
{
	const struct arena *arena = &pinner->arena;
	Hearth__State *state = board_edit(pinner->board);
	Hearth__Arena *named = board_arena(state);
	char path[SHARED_PATH_BYTES];
	int rc = named ? board_slices(state, (uint32_t)arena->head->n_slices) : -ENOMEM;

	if (rc == 0) {
		shared_memory_path(path, arena->fd);
		board_text(&named->path, "%s", path);
		named->bytes = arena->bytes;
		named->inode = arena->inode;
		named->stamp = arena->head->stamp;
		named->fingerprint = arena->head->fingerprint;
		named->layout_hash = arena->head->layout_hash;
		for (size_t i = 0; i < state->n_slices; i++) {
			board_text(&state->slices[i]->name, "%s", arena->slices[i].name);
			state->slices[i]->offset = arena->slices[i].offset;
			state->slices[i]->bytes = arena->slices[i].bytes;
		}
		board_text(&state->model, "%s", loader->model);
		board_text(&state->model_name, "%s", loader->model_name);
		state->phase = HEARTH__PHASE__PHASE_LOADING;
		board_text(&state->reason, "registering %s the loader",
			   pinner->pin_config.order == PIN_BEFORE ? "ahead of" : "behind");
	} else {
		error_sys(err, rc, "state");
	}
	board_publish(pinner->board);
	return rc;
}

/* Takes over what the loader has filled since.  A loader that was restarted may say less than is
 * known: the arena is the same, and what was filled stays so. */
static void
registrar_note_filled(struct pinner *pinner, const Hearth__State *loader)
{
	struct pin_plan *plan = &pinner->plan;
	Hearth__State *state = NULL; /* while it is being changed */

	for (uint32_t i = 0; i < plan->n && i < loader->n_slices; i++) {
		if (plan->slices[i].filled ||
		    loader->slices[i]->state < HEARTH__SLICE_STATE__SLICE_FILLED)
			continue;
		if (!state)
			state = board_edit(pinner->board);
		pin_plan_note_filled(plan, i);
		state->slices[i]->checksum = loader->slices[i]->checksum;
	}
	if (!state)
		return; /* nothing to tell: the loader only went on */
	board_publish(pinner->board);
	pin_publish(pinner);
}

static int
registrar_copy_trunk(struct pinner *pinner, const struct region *region, struct error *err)
{
	const struct arena_slice *slice = &pinner->arena.slices[0];
	uint8_t *to = region->device.at;
	int rc = 0;

	for (uint64_t at = 0; rc == 0 && at < slice->bytes; at += COPY_PIECE) {
		uint64_t n = slice->bytes - at < COPY_PIECE ? slice->bytes - at : COPY_PIECE;

		pthread_mutex_lock(&pinner->lock);
		rc = pin_copy(pinner, to + at, 0, slice->offset + at, n, err);
		if (rc == 0)
			rc = device_wait(pinner->device, err);
		pthread_mutex_unlock(&pinner->lock);
	}
	return rc;
}

static int
registrar_upload_trunk(struct pinner *pinner, struct error *err)
{
	struct lend_wish wish = { .key = TRUNK_KEY, .bytes = pinner->arena.slices[0].bytes };
	const struct region *region;
	uint64_t begin = clock_ns();
	Hearth__Pinning *pinning;
	bool fresh;
	int rc;

	pthread_mutex_lock(&pinner->lock);
	rc = lending_lend(&pinner->lending, &wish, &region, &fresh, err);
	pthread_mutex_unlock(&pinner->lock);
	if (rc == 0)
		rc = registrar_copy_trunk(pinner, region, err);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&pinner->lock);
	pinner->trunk_there = true;
	pthread_mutex_unlock(&pinner->lock);
	desk_publish(pinner); /* who sees the upload's end counts the trunk among what is lent */
	pinning = board_pinning(board_edit(pinner->board));
	pinning->uploaded_bytes = wish.bytes;
	pinning->upload_begin_ns = begin;
	pinning->upload_end_ns = clock_ns();
	board_publish(pinner->board);
	return 0;
}

/* The arena that the loader names is attached, and its news are taken over. */
static int
registrar_hear(struct pinner *pinner, const Hearth__State *loader, struct error *err)
{
	int rc = 0;

	if (!pinner->attached) {
		rc = registrar_attach(pinner, loader->arena, err);
		/* Its loader has just gone (EACCES: not yet waited for, and its files are root's by
		 * then): the next one names another. */
		if (rc == -ENOENT || rc == -EACCES) {
			log_warn("%s: waiting for the loader to name it again", err->text);
			return 0;
		}
		if (rc == 0)
			rc = registrar_publish_arena(pinner, loader, err);
		if (rc == 0)
			registrar_ask_pages(pinner, loader->pages);
		if (rc == 0)
			pin_publish(pinner); /* what is over the cap holds up no reader */
	} else if (loader->arena->inode != pinner->arena.inode) {
		rc = error_set(err, -ESTALE, "the loader has another arena now");
	}
	if (rc == 0 && !pin_plan_done(&pinner->plan))
		registrar_note_filled(pinner, loader);
	return rc;
}

/* The trunk goes first: a worker can do nothing without it. */
static int
registrar_step(struct pinner *pinner, bool needs_trunk, struct error *err)
{
	struct pin_plan *plan = &pinner->plan;
	uint32_t i;

	if (needs_trunk && !pinner->trunk_there && pin_plan_usable(plan, 0)) {
		int rc = registrar_upload_trunk(pinner, err);

		return rc < 0 ? rc : 1;
	}
	i = pin_plan_next(plan);
	if (i < plan->n) {
		pin_register(pinner, i);
		return 1;
	}
	i = pin_plan_next_lock(plan);
	/* On the cpu registering is locking: what is not registered is not to be locked either. */
	if (i < plan->n && device_describe(pinner->device)->cuda) {
		pin_lock(pinner, i);
		return 1;
	}
	return 0;
}

int
registrar_follow(struct pinner *pinner, const Hearth__State *loader, struct error *err)
{
	bool needs_trunk = !device_describe(pinner->device)->computes_from_host;
	int rc = 0;

	if (loader && loader->arena && loader->arena->inode != 0)
		rc = registrar_hear(pinner, loader, err);
	if (rc < 0 || !pinner->attached)
		return rc;
	rc = registrar_step(pinner, needs_trunk, err);
	if (rc >= 0 && !pinner->ready && pin_plan_done(&pinner->plan) &&
	    (!needs_trunk || pinner->trunk_there)) {
		pinner->ready = true;
		desk_publish(pinner);
		board_phase(pinner->board, HEARTH__PHASE__PHASE_READY, "%s", "");
	}
	return rc;
}

int
registrar_leave(struct pinner *pinner, int rc, const struct error *why)
{
	if (rc < 0 && rc != -ESTALE) {
		board_phase(pinner->board, HEARTH__PHASE__PHASE_FAILED, "%s", why->text);
		return rc;
	}
	if (rc == -ESTALE)
		log_info("%s: leaving, to be started afresh", why->text);
	board_phase(pinner->board, HEARTH__PHASE__PHASE_LEAVING, "%s",
		    rc == -ESTALE ? why->text : "told to leave");
	return 0;
}
