#include "worker/attach_slots.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "proto/limits.h"

/* What failed lies with the pinner, which may be going just now: no reason not to start the worker
 * again.  But a cap that is too small (-EOVERFLOW) is the user's, and stays so. */
int
attach_from_pinner(int rc)
{
	return rc < 0 && rc != -EOVERFLOW && error_exit_code(rc) == EXIT_INPUT ? -EIO : rc;
}

static uint32_t
cores_allowed(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static int
attach_arena(struct attached *attached, const struct attach_config *config, struct error *err)
{
	struct upstream *upstream = config->upstream;
	const Hearth__Arena *named;
	int rc = upstream_look(upstream, err);

	board_phase(config->board, HEARTH__PHASE__PHASE_STARTING, "waits for the pinner");
	while (rc == 0 && !upstream_bind(upstream))
		rc = upstream_wait(upstream, err);
	if (rc < 0)
		return rc;
	attached->begin_ns = clock_ns();
	named = upstream->state->arena;
	rc = arena_attach(&attached->arena, named->path, false,
			  &(struct arena_want){ .bytes = named->bytes,
						.stamp = named->stamp,
						.layout_hash = named->layout_hash },
			  err);
	if (rc < 0)
		return attach_from_pinner(rc);
	return model_read_arena(&attached->model, &attached->arena, err);
}

static int
attach_device(struct attached *attached, const struct attach_config *config, struct error *err)
{
	const struct model *model = &attached->model;
	char word[32];
	int rc;

	if (attached->arena.head->n_slices < 1 + (uint64_t)model->n_layers)
		return error_set(err, -EBADMSG,
				 "arena: %" PRIu64 " slices, want %" PRIu32 " at least",
				 attached->arena.head->n_slices, 1 + model->n_layers);
	attached->context = config->context;
	if (config->context == 0)
		attached->context = model->context < ATTACH_DEFAULT_CONTEXT
					? model->context
					: ATTACH_DEFAULT_CONTEXT;
	if (attached->context < MIN_CONTEXT)
		return error_set(err, -EINVAL,
				 "a context of %" PRIu32 ", want %u or more (--ctx N): a token of "
				 "the prompt and one of the answer",
				 attached->context, MIN_CONTEXT);
	if (attached->context > model->context)
		log_warn("--ctx %" PRIu32 ": the model was trained for %" PRIu32, attached->context,
			 model->context);
	upstream_device(config->upstream->state, word);
	rc = config->device == NULL ? device_open(&attached->device, word, err) : 0;
	if (rc < 0)
		return rc;
	if (config->device != NULL)
		attached->device = config->device;
	attached->info = device_describe(attached->device);
	attached->ops = attached->info->cuda ? config->cuda : config->cpu;
	attached->threads = config->threads != 0 ? config->threads : cores_allowed();
	return 0;
}

/* The device's own copy of slice 0, once the pinner has made it. */
static int
attach_trunk(struct attached *attached, const struct attach_config *config, struct error *err)
{
	struct upstream *upstream = config->upstream;
	struct lent lent;
	int rc = 0;

	if (attached->info->computes_from_host)
		return 0;
	board_phase(config->board, HEARTH__PHASE__PHASE_LOADING,
		    "waits for the trunk on the device");
	while (rc == 0 && upstream->state->pinning->upload_end_ns == 0)
		rc = upstream_wait(upstream, err);
	if (rc < 0)
		return rc;
	rc = lender_ask(&attached->lender, "trunk", 0, HEARTH__PLACE__PLACE_DEVICE, false, &lent,
			NULL, err);
	if (rc == 0)
		rc = lent_import(&lent, attached->device, &attached->trunk, err);
	return attach_from_pinner(rc);
}

/* The journal first: it is emptied before a cache of another size takes the old one's place, so
 * that it never speaks of keys and values that are gone.  *ret_fresh: the cache is zeroed. */
static int
attach_kv(struct attached *attached, bool *ret_fresh, struct error *err)
{
	struct lender *lender = &attached->lender;
	uint64_t n = journal_bytes(attached->context);
	uint64_t kv_bytes = attached->ops->kv_bytes(&attached->model, attached->context);
	struct lent lent;
	int rc;

	rc =
	    lender_ask(lender, "kv.journal", n, HEARTH__PLACE__PLACE_HOST, false, &lent, NULL, err);
	if (rc == -EEXIST)
		rc = lender_ask(lender, "kv.journal", n, HEARTH__PLACE__PLACE_HOST, true, &lent,
				NULL, err);
	if (rc == 0)
		rc = lent_attach(&lent, &attached->journal_memory, err);
	if (rc < 0)
		return attach_from_pinner(rc);
	rc = lender_ask(lender, "kv", kv_bytes, HEARTH__PLACE__PLACE_DEVICE, false, &lent, NULL,
			err);
	if (rc == -EEXIST) {
		journal_clear(attached->journal_memory.at);
		rc = lender_ask(lender, "kv", kv_bytes, HEARTH__PLACE__PLACE_DEVICE, true, &lent,
				NULL, err);
	}
	if (rc == 0)
		rc = lent_import(&lent, attached->device, &attached->kv, err);
	if (rc < 0)
		return attach_from_pinner(rc);
	*ret_fresh = lent.fresh;
	return 0;
}

static int
attach_compute(struct attached *attached, float cpu_share, bool kv_fresh, struct error *err)
{
	const struct arena *arena = &attached->arena;
	struct compute_config config = {
		.model = &attached->model,
		.arena = arena->base,
		.arena_bytes = arena->bytes,
		.device = attached->device,
		.trunk = attached->info->computes_from_host ? arena->base + arena->slices[0].offset
							    : attached->trunk.at,
		.trunk_offset = arena->slices[0].offset,
		.kv = attached->kv.at,
		.context = attached->context,
		.threads = attached->threads,
		.cpu_share = cpu_share,
		.places = attached->table.places,
		.need_experts = table_need,
		.need_arg = &attached->table,
	};
	struct journal_identity identity = { .stamp = arena->head->stamp,
					     .layout_hash = arena->head->layout_hash,
					     .context = attached->context };
	int rc = attached->ops->open(&attached->compute, &config, err);

	if (rc < 0)
		return rc;
	identity.kernels =
	    journal_kernels(attached->info->name, attached->ops->kernels(attached->compute));
	journal_open(&attached->journal, attached->journal_memory.at, &identity, kv_fresh);
	return 0;
}

/* Lent memory, so that a worker that is killed does not forget what the ones before it counted. */
static int
attach_usage(struct attached *attached, const char *profile, struct error *err)
{
	struct profile_shape shape = { .fingerprint = attached->arena.head->fingerprint,
				       .layers = attached->model.n_layers,
				       .experts = attached->model.n_experts };
	struct lent lent;
	int rc;

	if (profile == NULL)
		return 0;
	if (shape.fingerprint == 0)
		return error_set(err, -EINVAL,
				 "--profile %s: the loader was started without --profile, want it "
				 "for both",
				 profile);
	rc = lender_ask(&attached->lender, "profile", usage_bytes(&shape),
			HEARTH__PLACE__PLACE_HOST, false, &lent, NULL, err);
	if (rc == 0)
		rc = lent_attach(&lent, &attached->usage_memory, err);
	if (rc < 0)
		return attach_from_pinner(rc);
	return usage_open(&attached->usage, attached->usage_memory.at, &shape, profile, err);
}

int
attach_open(struct attached *ret, const struct attach_config *config, struct error *err)
{
	bool kv_fresh = false;
	int rc;

	memset(ret, 0, sizeof(*ret));
	ret->arena.fd = -1;
	rc = attach_arena(ret, config, err);
	if (rc == 0)
		rc = attach_device(ret, config, err);
	if (rc == 0)
		rc = lender_open(&ret->lender, config->dir, err);
	if (rc == 0)
		rc = attach_trunk(ret, config, err);
	if (rc == 0)
		rc = attach_count_slots(ret, config->upstream->state, err);
	if (rc == 0)
		rc = attach_kv(ret, &kv_fresh, err);
	if (rc == 0)
		rc = attach_usage(ret, config->profile, err);
	if (rc == 0)
		rc = attach_table(ret, config, err);
	if (rc == 0)
		rc = attach_compute(ret, config->cpu_share, kv_fresh, err);
	if (rc == 0 && slot_use_open(&ret->slot_use, &ret->model) < 0)
		rc = error_set(err, -ENOMEM, "no memory for what the slots are used for");
	ret->end_ns = clock_ns();
	if (rc < 0)
		attach_close(ret);
	return rc;
}

static void
memory_close(struct attached *attached, struct device_memory *memory)
{
	if (memory->at != NULL)
		device_free(attached->device, memory);
	memory->at = NULL;
}

void
attach_close(struct attached *attached)
{
	if (attached->compute != NULL)
		attached->ops->close(attached->compute);
	attach_unstage(attached);
	slot_use_close(&attached->slot_use);
	if (attached->table.places != NULL)
		table_close(&attached->table);
	moving_close(&attached->moving);
	fetcher_close(&attached->fetcher);
	memory_close(attached, &attached->slots);
	memory_close(attached, &attached->kv);
	memory_close(attached, &attached->trunk);
	shared_memory_close(&attached->heat_memory);
	shared_memory_close(&attached->usage_memory);
	shared_memory_close(&attached->journal_memory);
	lender_close(&attached->lender);
	device_close(attached->device);
	model_close(&attached->model);
	arena_close(&attached->arena);
	memset(attached, 0, sizeof(*attached));
	attached->arena.fd = -1;
}
