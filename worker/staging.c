#include "worker/staging.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/checked.h"
#include "common/log.h"
#include "worker/cpu_pool.h"

/* Copied by the threads at once, then on their way together. */
#define GROUP_EXPERTS 4u
/* Whole groups: while one is on its way the next ones are copied, and the engine falls behind by
 * less than these. */
#define RING_EXPERTS 16u

_Static_assert(RING_EXPERTS % GROUP_EXPERTS == 0, "the ring holds whole groups");

struct staging {
	struct device *device;
	const struct model *model;
	uint64_t slot_bytes;
	struct cpu_pool *pool;
	uint8_t *ring; /* (RING_EXPERTS, slot_bytes) */
	uint64_t ring_bytes;
	bool pinned;
	struct device_memory own; /* at NULL: the slots are somebody else's */
	uint8_t *slots;           /* (experts, slot_bytes) of device memory */
	uint32_t n;               /* added since begin */
	uint32_t copied;          /* of these, on their way or there */
	const struct model_layer *layer;
	struct expert_place group[GROUP_EXPERTS]; /* where those that are not copied lie */
};

uint64_t
staging_bytes(const struct model *model)
{
	return model->n_experts * model_slot_bytes(model);
}

/* A ring that the driver does not pin is as right, and slower. */
static int
ring_open(struct staging *staging, struct error *err)
{
	struct error why;
	void *at;

	staging->ring_bytes = round_up(RING_EXPERTS * staging->slot_bytes, 4096);
	at = mmap(NULL, staging->ring_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		  -1, 0);
	if (at == MAP_FAILED)
		return error_sys(err, -errno, "staging: %" PRIu64 " bytes", staging->ring_bytes);
	staging->ring = at;
	staging->pinned =
	    device_register(staging->device, at, staging->ring_bytes, false, &why) == 0;
	if (!staging->pinned)
		log_warn("staging: %s", why.text);
	return 0;
}

int
staging_open_at(struct staging **ret, struct device *device, const struct model *model,
		uint32_t threads, void *slots, struct error *err)
{
	struct staging *staging = calloc(1, sizeof(*staging));
	int rc;

	if (staging == NULL)
		return error_set(err, -ENOMEM, "staging: no memory");
	staging->device = device;
	staging->model = model;
	staging->slot_bytes = model_slot_bytes(model);
	rc = cpu_pool_open(&staging->pool, threads, err);
	if (rc == 0)
		rc = ring_open(staging, err);
	if (rc == 0 && slots == NULL)
		rc = device_alloc(device, staging_bytes(model), &staging->own, err);
	if (rc < 0) {
		staging_close(staging);
		return rc;
	}
	staging->slots = slots != NULL ? slots : staging->own.at;
	*ret = staging;
	return 0;
}

int
staging_open(struct staging **ret, struct device *device, const struct model *model,
	     uint32_t threads, struct error *err)
{
	return staging_open_at(ret, device, model, threads, NULL, err);
}

void
staging_close(struct staging *staging)
{
	if (staging == NULL)
		return;
	cpu_pool_close(staging->pool);
	if (staging->own.at != NULL)
		device_free(staging->device, &staging->own);
	if (staging->pinned)
		device_unregister(staging->device, staging->ring, staging->ring_bytes);
	if (staging->ring != NULL)
		munmap(staging->ring, staging->ring_bytes);
	free(staging);
}

void
staging_begin(struct staging *staging)
{
	staging->n = 0;
	staging->copied = 0;
}

static uint8_t *
ring_at(const struct staging *staging, uint32_t i)
{
	return staging->ring + i % RING_EXPERTS * staging->slot_bytes;
}

/* One role of one expert of the group. */
static void
copy_part(void *arg, uint32_t part, uint32_t thread)
{
	const struct staging *staging = arg;
	uint32_t i = part / N_ROLES;
	enum role role = part % N_ROLES;

	(void)thread;
	memcpy(ring_at(staging, staging->copied + i) + model_slot_offset(staging->layer, role),
	       staging->group[i].role[role], staging->layer->role[role].bytes);
}

/* What is in the group goes on its way. */
static int
group_send(struct staging *staging, struct error *err)
{
	uint32_t n = staging->n - staging->copied;
	uint64_t bytes = model_slot_offset(staging->layer, N_ROLES);
	int rc = 0;

	/* Behind its end the ring begins anew: nothing may be on its way from there. */
	if (staging->copied > 0 && staging->copied % RING_EXPERTS == 0)
		rc = device_wait(staging->device, err);
	if (rc < 0)
		return rc;
	cpu_pool_run(staging->pool, copy_part, staging, n * N_ROLES);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rc = device_copy_in(staging->device,
				    staging->slots + (staging->copied + i) * staging->slot_bytes,
				    ring_at(staging, staging->copied + i), bytes, err);
	staging->copied += n;
	return rc;
}

int
staging_add(struct staging *staging, const struct model_layer *layer,
	    const struct expert_place *from, struct expert_place *ret, struct error *err)
{
	const uint8_t *slot = staging->slots + staging->n * staging->slot_bytes;

	assert(staging->n < staging->model->n_experts);
	staging->layer = layer;
	staging->group[staging->n - staging->copied] = *from;
	for (enum role role = 0; role < N_ROLES; role++)
		ret->role[role] = slot + model_slot_offset(layer, role);
	staging->n++;
	return staging->n - staging->copied == GROUP_EXPERTS ? group_send(staging, err) : 0;
}

int
staging_end(struct staging *staging, struct error *err)
{
	int rc = staging->n > staging->copied ? group_send(staging, err) : 0;

	return rc < 0 ? rc : device_wait(staging->device, err);
}
