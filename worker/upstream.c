#include "worker/upstream.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int
upstream_open(struct upstream *ret, const char *dir, struct service *service, struct error *err)
{
	*ret = (struct upstream){ .service = service };
	return watch_open(&ret->watch, dir, "pinner", service, err);
}

void
upstream_close(struct upstream *upstream)
{
	watch_close(upstream->watch);
	upstream->watch = NULL;
	if (upstream->state != NULL)
		hearth__state__free_unpacked(upstream->state, NULL);
	upstream->state = NULL;
}

int
upstream_look(struct upstream *upstream, struct error *err)
{
	Hearth__State *state;

	if (watch_changed(upstream->watch, &upstream->changes)) {
		state = watch_get(upstream->watch);
		if (upstream->state != NULL)
			hearth__state__free_unpacked(upstream->state, NULL);
		upstream->state = state;
	}
	state = upstream->state;
	if (!upstream->bound)
		return 0;
	if (state == NULL)
		return error_set(err, -ECANCELED, "the pinner (pid %" PRIu32 ") is gone",
				 upstream->pid);
	if (state->pid != upstream->pid)
		return error_set(err, -ECANCELED,
				 "another pinner is there: pid %" PRIu32 ", was %" PRIu32,
				 state->pid, upstream->pid);
	if (state->arena == NULL || state->arena->inode != upstream->inode)
		return error_set(err, -ECANCELED,
				 "the pinner has another arena: inode %" PRIu64 ", was %" PRIu64,
				 state->arena != NULL ? state->arena->inode : 0, upstream->inode);
	return 0;
}

int
upstream_wait(struct upstream *upstream, struct error *err)
{
	if (!service_wait(upstream->service, &upstream->seen, 0))
		return error_set(err, -ECANCELED, "told to leave");
	return upstream_look(upstream, err);
}

bool
upstream_bind(struct upstream *upstream)
{
	const Hearth__State *state = upstream->state;

	if (state == NULL || state->arena == NULL || state->arena->path[0] == '\0' ||
	    state->pinning == NULL || state->pinning->device[0] == '\0')
		return false;
	upstream->bound = true;
	upstream->pid = state->pid;
	upstream->inode = state->arena->inode;
	return true;
}

bool
upstream_slice_filled(const Hearth__State *state, uint32_t slice)
{
	return slice < state->n_slices &&
	       state->slices[slice]->state >= HEARTH__SLICE_STATE__SLICE_FILLED;
}

bool
upstream_slice_registered(const Hearth__State *state, uint32_t slice)
{
	return slice < state->n_slices &&
	       state->slices[slice]->state >= HEARTH__SLICE_STATE__SLICE_REGISTERED;
}

bool
upstream_slice_usable(const Hearth__State *state, uint32_t slice)
{
	/* A note says why it will not be registered. */
	return upstream_slice_registered(state, slice) ||
	       (upstream_slice_filled(state, slice) && state->slices[slice]->note[0] != '\0');
}

void
upstream_device(const Hearth__State *state, char ret_word[32])
{
	size_t n = strcspn(state->pinning->device, " ");

	n = n < 31 ? n : 31;
	memcpy(ret_word, state->pinning->device, n);
	ret_word[n] = '\0';
}

uint64_t
upstream_region_bytes(const Hearth__State *state, const char *key)
{
	for (size_t i = 0; i < state->pinning->n_regions; i++)
		if (strcmp(state->pinning->regions[i]->key, key) == 0)
			return state->pinning->regions[i]->bytes;
	return 0;
}
