#include "worker/attach_slots.h"

#include <errno.h>
#include <inttypes.h>

#include "worker/heat.h"

/* Copying from RAM: more of them do not copy faster. */
#define STAGING_THREADS 8u

#define MIB (1ull << 20)

static uint64_t
up_to_mib(uint64_t bytes)
{
	return (bytes + MIB - 1) / MIB;
}

/* Else the worker's own would go over the cap that the pinner holds the lent memory to. */
static int
check_cap(const struct slot_room *room, struct error *err)
{
	uint64_t need = slot_plan_need(room);

	if (room->cap == 0 || need <= room->cap)
		return 0;
	return error_set(err, -EOVERFLOW,
			 "--vram-mib %" PRIu64 " is too small: kv: %" PRIu64
			 " MiB, scratch and staging: %" PRIu64 " MiB, lent beside: %" PRIu64
			 " MiB; want %" PRIu64 " at least, or a smaller --ctx",
			 (uint64_t)(room->cap / MIB), up_to_mib(room->kv), up_to_mib(room->own),
			 up_to_mib(need - room->kv - room->own), up_to_mib(need));
}

/* Of a GPU: what must be staged before the arena is registered goes through the last slots, where
 * there are more than it takes; a worker that finds all experts in slots stages nothing. */
static uint32_t
fit_slots(struct slot_room *room, const struct model *model, bool *ret_staged_in_slots)
{
	uint32_t all = model->n_layers * model->n_experts;
	uint64_t slot_bytes = model_slot_bytes(model);
	uint32_t with = slot_plan_fit(room, slot_bytes, all), without;

	room->own -= staging_bytes(model);
	without = slot_plan_fit(room, slot_bytes, all);
	*ret_staged_in_slots = with < all && without > model->n_experts;
	if (!*ret_staged_in_slots)
		return with;
	return without < all ? without : all - 1;
}

/* How many experts have room in device memory; none where the arena is as good.  Before this
 * worker's cache is lent: what is lent is then what the pinner's state says.  Slots that must
 * shrink make room first; their contents go. */
int
attach_count_slots(struct attached *attached, const Hearth__State *pinner, struct error *err)
{
	const struct model *model = &attached->model;
	const Hearth__Pinning *pinning = pinner->pinning;
	struct slot_room room = {
		.cap = pinning->device_bytes_cap,
		.lent = pinning->device_bytes_lent,
		.kv_now = upstream_region_bytes(pinner, "kv"),
		.slots_now = upstream_region_bytes(pinner, "slots"),
		.kv = attached->ops->kv_bytes(model, attached->context),
		.own = attached->ops->own_bytes(model, attached->context) +
		       (attached->info->computes_from_host ? 0 : staging_bytes(model)),
	};
	uint64_t total;
	int rc = check_cap(&room, err);

	if (rc < 0 || (attached->info->computes_from_host && room.cap == 0))
		return rc;
	if (attached->info->computes_from_host) {
		attached->n_slots = slot_plan_fit(&room, model_slot_bytes(model),
						  model->n_layers * model->n_experts);
	} else {
		rc = device_memory_room(attached->device, &room.free, &total);
		if (rc < 0)
			return error_sys(err, rc, "%s: free memory", attached->info->name);
		attached->n_slots = fit_slots(&room, model, &attached->staged_in_slots);
	}
	if (room.slots_now == 0 || room.slots_now == attached->n_slots * model_slot_bytes(model))
		return 0;
	return attach_from_pinner(lender_release(&attached->lender, "slots", err));
}

/* The last slots, as many as a layer has experts: nothing is in them, and no dead worker's move is
 * to come into them. */
static int
take_last_slots(struct attached *attached, void **ret, struct error *err)
{
	struct table *table = &attached->table;
	uint32_t n = attached->model.n_experts;
	int rc;

	table->slots.open = table->slots.n - n;
	for (uint32_t slot = table->slots.open; slot < table->slots.n; slot++)
		slot_plan_free(&table->slots, slot);
	rc = lender_empty(&attached->lender, table->slot_bytes, table->slots.open, n, err);
	*ret = table->slots_at + table->slots.open * table->slot_bytes;
	return attach_from_pinner(rc);
}

/* Where every expert is in its slot already, nothing needs it. */
static int
attach_staging(struct attached *attached, struct error *err)
{
	const struct model *model = &attached->model;
	struct table *table = &attached->table;
	uint32_t threads =
	    attached->threads < STAGING_THREADS ? attached->threads : STAGING_THREADS;
	void *slots = NULL;
	int rc = 0;

	if (attached->info->computes_from_host ||
	    table->slots.filled == model->n_layers * model->n_experts)
		return 0;
	if (attached->staged_in_slots)
		rc = take_last_slots(attached, &slots, err);
	return rc < 0
		   ? rc
		   : staging_open_at(&table->staging, attached->device, model, threads, slots, err);
}

void
attach_unstage(struct attached *attached)
{
	struct table *table = &attached->table;

	staging_close(table->staging);
	table->staging = NULL;
	table->slots.open = table->slots.n;
	table->filling = !table->fill_refused && table->slots.filled < table->slots.n;
}

static int
attach_slots(struct attached *attached, const struct attach_config *config, struct error *err)
{
	struct table *table = &attached->table;
	uint64_t bytes = attached->n_slots * table->slot_bytes;
	struct lent lent;
	int rc;

	rc = lender_ask(&attached->lender, "slots", bytes, HEARTH__PLACE__PLACE_DEVICE, false,
			&lent, &table->slots, err);
	if (rc == -EEXIST)
		rc = lender_ask(&attached->lender, "slots", bytes, HEARTH__PLACE__PLACE_DEVICE,
				true, &lent, &table->slots, err);
	if (rc == 0)
		rc = lent_import(&lent, attached->device, &attached->slots, err);
	if (rc < 0)
		return attach_from_pinner(rc);
	table->slots_at = attached->slots.at;
	rc = moving_open(&attached->moving, config->dir, config->upstream->service, table->move_max,
			 attached->lender.slots_lease, err);
	if (rc == 0)
		table->moving = &attached->moving;
	return rc;
}

static uint64_t
sum_of(const uint64_t *counts, const struct profile_shape *shape)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < (uint64_t)shape->layers * shape->experts; i++)
		sum += counts[i];
	return sum;
}

/* What the worker before knew of the experts' use, else what the profile does; the hottest get the
 * slots that are free.  Where all experts have slots there is nothing to choose. */
static int
attach_heat(struct attached *attached, const struct attach_config *config, struct error *err)
{
	const struct model *model = &attached->model;
	const struct profile_shape shape = { .fingerprint = attached->arena.head->stamp,
					     .layers = model->n_layers,
					     .experts = model->n_experts };
	struct slot_policy policy = { .layers = model->n_layers,
				      .experts = model->n_experts,
				      .half_life = SLOT_POLICY_HALF_LIFE,
				      .margin = config->slot_margin };
	const uint64_t *counts = attached->usage.page ? attached->usage.page->counts : NULL;
	struct heat_page *page;
	struct lent lent;
	int rc;

	if (attached->n_slots == model->n_layers * model->n_experts)
		return 0;
	rc = lender_ask(&attached->lender, "heat", heat_bytes(&shape), HEARTH__PLACE__PLACE_HOST,
			false, &lent, NULL, err);
	if (rc == 0)
		rc = lent_attach(&lent, &attached->heat_memory, err);
	if (rc < 0)
		return attach_from_pinner(rc);
	page = attached->heat_memory.at;
	policy.heat = page->heat;
	if (!heat_open(page, &shape) && counts)
		slot_policy_begin(&policy, counts,
				  sum_of(counts, &shape) /
				      ((uint64_t)model->n_layers * model->top_k));
	slot_plan_rank(&attached->table.slots, policy.heat);
	attached->table.policy = policy;
	return 0;
}

int
attach_table(struct attached *attached, const struct attach_config *config, struct error *err)
{
	struct table *table = &attached->table;
	int rc;

	*table = (struct table){ .arena = &attached->arena,
				 .model = &attached->model,
				 .device = attached->device,
				 .upstream = config->upstream,
				 .fetcher = &attached->fetcher };
	rc = fetcher_open(&attached->fetcher, config->dir, config->upstream->service,
			  attached->model.n_experts, err);
	if (rc == 0)
		rc = table_open(table, attached->n_slots, err);
	if (rc == 0 && attached->n_slots != 0)
		rc = attach_slots(attached, config, err);
	if (rc == 0 && attached->n_slots != 0)
		rc = attach_heat(attached, config, err);
	if (rc == 0)
		rc = attach_staging(attached, err);
	if (rc < 0)
		return rc;
	table_place(table);
	table_look(table);
	return 0;
}
