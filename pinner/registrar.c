/* The registrar: attaches the arena the loader names, registers each slice once the loader has
 * filled it, in order, and brings the trunk to a device that does not compute from the arena. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/shared_memory.h"
#include "pinner/pinner.h"

#define COPY_PIECE (64ull << 20) /* so that no copy call keeps the lock for long */

static int
registrar_attach(struct pinner *pinner, const Hearth__Arena *named, struct error *err)
{
	struct arena_want want = { .bytes = named->bytes,
				   .fingerprint = named->fingerprint,
				   .layout_hash = named->layout_hash };
	struct arena arena;
	struct model model;
	bool *usable, *filled;
	int rc;

	rc = arena_attach(&arena, named->path, false, &want, err);
	if (rc < 0)
		return rc;
	rc = model_read_arena(&model, &arena, err);
	if (rc < 0) {
		arena_close(&arena);
		return rc;
	}
	usable = calloc(arena.head->n_slices, sizeof(*usable));
	filled = calloc(arena.head->n_slices, sizeof(*filled));
	if (!usable || !filled) {
		free(usable);
		free(filled);
		model_close(&model);
		arena_close(&arena);
		return error_set(err, -ENOMEM, "arena: no memory for its slices");
	}
	pthread_mutex_lock(&pinner->lock);
	pinner->arena = arena;
	pinner->model = model;
	pinner->usable = usable;
	pinner->filled = filled;
	pinner->attached = true;
	pthread_mutex_unlock(&pinner->lock);
	return 0;
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
		board_text(&state->reason, "registering behind the loader");
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
	Hearth__State *state = board_edit(pinner->board);

	for (size_t i = 0; i < state->n_slices && i < loader->n_slices; i++) {
		Hearth__Slice *slice = state->slices[i];

		if (pinner->filled[i] ||
		    loader->slices[i]->state < HEARTH__SLICE_STATE__SLICE_FILLED)
			continue;
		pinner->filled[i] = true;
		slice->state = HEARTH__SLICE_STATE__SLICE_FILLED;
		slice->checksum = loader->slices[i]->checksum;
	}
	board_publish(pinner->board);
}

/* The first slice that is filled and not yet usable; n_slices: none. */
static uint64_t
registrar_next(const struct pinner *pinner)
{
	uint64_t i;

	for (i = 0; i < pinner->arena.head->n_slices; i++) {
		if (pinner->filled[i] && !pinner->usable[i])
			break;
	}
	return i;
}

/* Registration that is refused costs speed, not correctness: it is noted and the start goes on. */
static void
registrar_register(struct pinner *pinner, uint64_t i)
{
	const struct arena_slice *slice = &pinner->arena.slices[i];
	uint64_t begin = clock_ns(), end;
	Hearth__Pinning *pinning;
	Hearth__State *state;
	struct error why;
	int rc = 0;

	if (slice->bytes > 0) {
		rc = arena_lock(&pinner->arena);
		if (rc < 0)
			error_sys(&why, rc, "flock of the arena");
		begin = clock_ns();
		if (rc == 0) {
			pthread_mutex_lock(&pinner->lock);
			rc = device_register(pinner->device, pinner->arena.base + slice->offset,
					     slice->bytes, true, &why);
			pthread_mutex_unlock(&pinner->lock);
			arena_unlock(&pinner->arena);
		}
	}
	end = clock_ns();
	pthread_mutex_lock(&pinner->lock);
	pinner->usable[i] = true;
	pthread_mutex_unlock(&pinner->lock);
	state = board_edit(pinner->board);
	pinning = board_pinning(state);
	state->slices[i]->begin_ns = begin;
	state->slices[i]->end_ns = end;
	if (rc == 0) {
		state->slices[i]->state = HEARTH__SLICE_STATE__SLICE_REGISTERED;
		pinning->registered_bytes += slice->bytes;
		pinning->register_ns += end - begin;
	} else {
		if (pinning->refused_bytes == 0)
			log_warn("%s: %s", slice->name, why.text);
		pinning->refused_bytes += slice->bytes;
		board_text(&pinning->refusal, "%s", why.text);
		board_text(&state->slices[i]->note, "not registered: %s", why.text);
	}
	board_publish(pinner->board);
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
		rc = device_copy_in(pinner->device, to + at,
				    pinner->arena.base + slice->offset + at, n, err);
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
	pinning = board_pinning(board_edit(pinner->board));
	pinning->uploaded_bytes = wish.bytes;
	pinning->upload_begin_ns = begin;
	pinning->upload_end_ns = clock_ns();
	board_publish(pinner->board);
	desk_publish(pinner);
	return 0;
}

static bool
registrar_is_done(const struct pinner *pinner)
{
	for (uint64_t i = 0; i < pinner->arena.head->n_slices; i++) {
		if (!pinner->usable[i])
			return false;
	}
	return true;
}

int
registrar_follow(struct pinner *pinner, const Hearth__State *loader, struct error *err)
{
	bool needs_trunk = !device_describe(pinner->device)->computes_from_host;
	uint64_t i;
	int rc;

	if (!loader->arena || loader->arena->inode == 0)
		return 0;
	if (!pinner->attached) {
		rc = registrar_attach(pinner, loader->arena, err);
		if (rc == 0)
			rc = registrar_publish_arena(pinner, loader, err);
		if (rc < 0)
			return rc;
	} else if (loader->arena->inode != pinner->arena.inode) {
		return error_set(err, -ESTALE, "the loader has another arena now");
	}
	if (registrar_is_done(pinner))
		return 0;
	registrar_note_filled(pinner, loader);
	while ((i = registrar_next(pinner)) < pinner->arena.head->n_slices &&
	       !service_leaving(pinner->service)) {
		registrar_register(pinner, i);
		if (i == 0 && needs_trunk) {
			rc = registrar_upload_trunk(pinner, err);
			if (rc < 0)
				return rc;
		}
	}
	if (registrar_is_done(pinner)) {
		desk_publish(pinner);
		board_phase(pinner->board, HEARTH__PHASE__PHASE_READY, "%s", "");
	}
	return 0;
}
