#include "worker/report.h"

#include <inttypes.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"

void
report_attached(struct report *report)
{
	const struct attached *attached = report->attached;
	Hearth__State *state = board_edit(report->board);
	Hearth__Computing *computing = board_computing(state);

	board_text(&state->model, "%.255s", attached->arena.head->model);
	board_text(&state->model_name, "%s", attached->model.name);
	if (computing != NULL) {
		board_text(&computing->device, "%s", attached->info->name);
		board_text(&computing->kernels, "%s", attached->ops->kernels(attached->compute));
		computing->threads = attached->info->cuda ? 0 : attached->threads;
		computing->context = attached->context;
		computing->kv_bytes = attached->kv.bytes;
		computing->slots = attached->table.slots.n;
		computing->attach_begin_ns = attached->begin_ns;
		computing->attach_end_ns = attached->end_ns;
	}
	board_publish(report->board);
	log_info("%s: %s on %s, context %" PRIu32 ", slots for %" PRIu32 " of %" PRIu32
		 " experts, %" PRIu32 " tokens warm, attached in %.3f s",
		 attached->model.name, attached->ops->kernels(attached->compute),
		 attached->info->name, attached->context, attached->table.slots.n,
		 attached->model.n_layers * attached->model.n_experts,
		 attached->journal.page->count,
		 (double)(attached->end_ns - attached->begin_ns) / NS_PER_SECOND);
}

static void
report_sources(const struct table *table, uint32_t ret[N_SOURCES])
{
	memset(ret, 0, N_SOURCES * sizeof(*ret));
	for (uint32_t layer = 0; layer < table->model->n_layers; layer++)
		ret[table_source(table, layer)]++;
}

static void
report_cache(const struct attached *attached, Hearth__Computing *computing)
{
	const struct table *table = &attached->table;
	const struct slot_use *use = &attached->slot_use;
	Hearth__Cache *cache = board_cache(computing);

	if (cache == NULL)
		return;
	cache->slots = table->slots.n;
	cache->filled = table->slots.filled;
	cache->experts = attached->model.n_layers * attached->model.n_experts;
	cache->slot_bytes = table->slot_bytes;
	cache->tokens = slot_use_tokens(use);
	cache->uses = use->uses;
	cache->hits = use->hits;
	cache->bytes_slots = use->bytes_slots;
	cache->bytes_arena = use->bytes_arena;
	cache->moves = table->moved;
	cache->bytes_moved = table->bytes_moved;
	if (attached->ops->share != NULL) {
		struct compute_share share;

		attached->ops->share(attached->compute, &share);
		cache->cpu_threads = share.threads;
		cache->cpu_share = share.now;
		cache->cpu_experts = share.experts;
	}
}

static void
report_table(const struct attached *attached, Hearth__Computing *computing)
{
	const struct table *table = &attached->table;
	uint32_t layers[N_SOURCES];

	report_sources(table, layers);
	computing->slot_layers = layers[SOURCE_SLOTS];
	computing->in_place_layers = layers[SOURCE_ARENA];
	computing->staged_layers = layers[SOURCE_STAGING];
	computing->fetched_layers = layers[SOURCE_FETCH];
	computing->staged_experts = table->staged_experts;
	computing->fetched_experts = table->fetched_experts;
	computing->fetch_ns = table->fetch_ns;
	report_cache(attached, computing);
}

static void
report_phase(const struct attached *attached, Hearth__State *state)
{
	const struct table *table = &attached->table;
	uint32_t n = 1 + attached->model.n_layers, usable = 0;

	for (uint32_t i = 0; i < n; i++)
		usable += table->usable[i];
	if (usable < n) {
		state->phase = HEARTH__PHASE__PHASE_LOADING;
		board_text(&state->reason, "waits for %" PRIu32 " of %" PRIu32 " slices",
			   n - usable, n);
		return;
	}
	state->phase = HEARTH__PHASE__PHASE_READY;
	if (table->register_bytes != 0)
		board_text(&state->reason, "registered %" PRIu64 " bytes in %.3f s",
			   table->register_bytes, (double)table->register_ns / NS_PER_SECOND);
	else
		board_text(&state->reason, "%s", "");
}

void
report_settled(struct report *report)
{
	const struct table *table = &report->attached->table;
	uint32_t layers[N_SOURCES];

	report_sources(table, layers);
	log_info("experts of %" PRIu32 " layers in slots, of %" PRIu32
		 " in place; registered %" PRIu64 " MiB in %.3f s, staged %" PRIu64
		 " experts, fetched %" PRIu64 " in %.3f s",
		 layers[SOURCE_SLOTS], layers[SOURCE_ARENA], table->register_bytes >> 20,
		 (double)table->register_ns / NS_PER_SECOND, table->staged_experts,
		 table->fetched_experts, (double)table->fetch_ns / NS_PER_SECOND);
}

void
report_moved(struct report *report)
{
	Hearth__Computing *computing = board_computing(board_edit(report->board));

	if (computing != NULL)
		report_table(report->attached, computing);
	board_publish(report->board);
}

void
report_slices(struct report *report, const Hearth__State *pinner)
{
	const struct attached *attached = report->attached;
	uint32_t n = 1 + attached->model.n_layers;
	Hearth__State *state;

	if (report->pinner_version == pinner->version)
		return;
	report->pinner_version = pinner->version;
	state = board_edit(report->board);
	if (state->n_slices != n && board_slices(state, n) == 0)
		for (uint32_t i = 0; i < n; i++)
			board_text(&state->slices[i]->name, "%s", attached->arena.slices[i].name);
	for (uint32_t i = 0; i < n; i++) {
		if (i >= state->n_slices || i >= pinner->n_slices)
			continue;
		state->slices[i]->state = attached->table.usable[i]
					      ? HEARTH__SLICE_STATE__SLICE_READY
					      : pinner->slices[i]->state;
		state->slices[i]->offset = pinner->slices[i]->offset;
		state->slices[i]->bytes = pinner->slices[i]->bytes;
		state->slices[i]->checksum = pinner->slices[i]->checksum;
	}
	report_phase(attached, state);
	if (board_computing(state) != NULL)
		report_table(attached, board_computing(state));
	board_publish(report->board);
}

void
report_tally(struct report *report, const struct serve_tally *tally, bool now)
{
	uint64_t time = clock_ns();
	Hearth__Computing *computing;
	Hearth__State *state;

	if (!now && time - report->told_ns < NS_PER_SECOND) {
		board_progress(report->board);
		return;
	}
	report->told_ns = time;
	state = board_edit(report->board);
	report_phase(report->attached, state);
	computing = board_computing(state);
	if (computing != NULL) {
		computing->request = tally->request;
		computing->tokens_in = tally->tokens_in;
		computing->tokens_kept = tally->tokens_kept;
		computing->tokens_out = tally->tokens_out;
		computing->compute_ns = tally->compute_ns;
		computing->first_token_ns = tally->first_token_ns;
		computing->sixteenth_token_ns = tally->sixteenth_token_ns;
		report_table(report->attached, computing);
	}
	board_publish(report->board);
}
