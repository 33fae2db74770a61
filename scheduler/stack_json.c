#include "scheduler/stack_json.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "scheduler/stage_line.h"

json_t *
stack_json_hex(uint64_t value)
{
	char text[17];

	snprintf(text, sizeof(text), "%016" PRIx64, value);
	return json_string(text);
}

/* What the reader was chosen by. */
static json_t *
json_of_choice(const Hearth__Reader *reader)
{
	return json_pack(
	    "{s:I, s:s, s:I, s:I, s:I, s:I, s:b, s:s, s:I, s:I, s:b, s:b, s:s}", "available_bytes",
	    (json_int_t)reader->available_bytes, "available_limit", reader->available_limit,
	    "arena_bytes", (json_int_t)reader->arena_bytes, "read_bytes",
	    (json_int_t)reader->read_bytes, "room_bytes", (json_int_t)reader->room_bytes,
	    "need_bytes", (json_int_t)reader->need_bytes, "keeps", (int)reader->keeps, "probe",
	    reader->probe, "looked_bytes", (json_int_t)reader->looked_bytes, "cached_bytes",
	    (json_int_t)reader->cached_bytes, "cached", (int)reader->cached, "built",
	    (int)reader->built, "fallback", reader->fallback);
}

/* What was asked for on `loader.fetch`, and of it what does not stay in memory. */
static json_t *
json_of_demand(const Hearth__Reader *reader)
{
	return json_pack(
	    "{s:I, s:I, s:f, s:{s:I, s:I, s:I, s:I, s:I}}", "requests",
	    (json_int_t)reader->demand_requests, "bytes", (json_int_t)reader->demand_bytes,
	    "wait_seconds", (double)reader->demand_wait_ns / 1e9, "outside", "experts",
	    (json_int_t)reader->outside_experts, "hits", (json_int_t)reader->outside_hits,
	    "windows", (json_int_t)reader->outside_windows, "reads",
	    (json_int_t)reader->outside_reads, "bytes", (json_int_t)reader->outside_bytes);
}

static json_t *
json_of_reader(const Hearth__Reader *reader, uint64_t now_ns)
{
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:o}", "chosen",
			 reader->chosen, "reason", reader->reason, "threads",
			 (json_int_t)reader->threads, "bytes", (json_int_t)reader->bytes,
			 "total_bytes", (json_int_t)reader->total_bytes, "adopted_bytes",
			 (json_int_t)reader->adopted_bytes, "seconds",
			 stage_seconds(reader->begin_ns, reader->end_ns ? reader->end_ns : now_ns),
			 "gb_per_second", stage_read_rate(reader, now_ns), "choice",
			 json_of_choice(reader), "demand", json_of_demand(reader));
}

static json_t *
json_of_arena(const Hearth__Arena *arena)
{
	return json_pack("{s:s, s:I, s:I, s:o, s:o?, s:o}", "path", arena->path, "bytes",
			 (json_int_t)arena->bytes, "inode", (json_int_t)arena->inode, "stamp",
			 stack_json_hex(arena->stamp), "fingerprint",
			 arena->fingerprint ? stack_json_hex(arena->fingerprint) : NULL,
			 "layout_hash", stack_json_hex(arena->layout_hash));
}

static json_t *
json_of_pages(const Hearth__Pages *pages)
{
	return json_pack("{s:s, s:s, s:I, s:I, s:s, s:i, s:s}", "wanted", pages->wanted, "got",
			 pages->got, "huge_bytes", (json_int_t)pages->huge_bytes, "bytes",
			 (json_int_t)pages->bytes, "advice", pages->advice, "numa_node",
			 (int)pages->numa_node, "numa_note", pages->numa_note);
}

static json_t *
json_of_regions(const Hearth__Pinning *pinning)
{
	json_t *list = json_array();

	for (size_t i = 0; i < pinning->n_regions; i++)
		json_array_append_new(list,
				      json_pack("{s:s, s:I, s:s}", "key", pinning->regions[i]->key,
						"bytes", (json_int_t)pinning->regions[i]->bytes,
						"where", pinning->regions[i]->where));
	return list;
}

/* What is registered, and of the rest how much is not and why, and how much of it is locked. */
static json_t *
json_of_registering(const Hearth__Pinning *pinning)
{
	return json_pack(
	    "{s:s, s:o, s:I, s:f, s:f, s:I, s:I, s:s, s:I, s:s}", "order", pinning->order,
	    "cap_bytes",
	    pinning->capped ? json_integer((json_int_t)pinning->cap_bytes) : json_null(),
	    "registered_bytes", (json_int_t)pinning->registered_bytes, "register_seconds",
	    (double)pinning->register_ns / 1e9, "register_seconds_per_gib",
	    stage_register_rate(pinning), "over_cap_bytes", (json_int_t)pinning->over_cap_bytes,
	    "refused_bytes", (json_int_t)pinning->refused_bytes, "refusal", pinning->refusal,
	    "locked_bytes", (json_int_t)pinning->locked_bytes, "locked_note", pinning->locked_note);
}

static json_t *
json_of_pinning(const Hearth__Pinning *pinning)
{
	json_t *json = json_of_registering(pinning);
	json_t *rest = json_pack(
	    "{s:s, s:s, s:I, s:f, s:{s:I, s:I, s:I, s:I}, s:I, s:o}", "device", pinning->device,
	    "method", pinning->method, "uploaded_bytes", (json_int_t)pinning->uploaded_bytes,
	    "upload_seconds", stage_seconds(pinning->upload_begin_ns, pinning->upload_end_ns),
	    "device_bytes", "total", (json_int_t)pinning->device_bytes_total, "free",
	    (json_int_t)pinning->device_bytes_free, "lent", (json_int_t)pinning->device_bytes_lent,
	    "cap", (json_int_t)pinning->device_bytes_cap, "expert_moves",
	    (json_int_t)pinning->expert_moves, "regions", json_of_regions(pinning));

	json_object_update_new(json, rest);
	return json;
}

/* Where they are read, in layers, and what was brought. */
static json_t *
json_of_experts(const Hearth__Computing *computing)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "slot_layers",
			 (json_int_t)computing->slot_layers, "in_place_layers",
			 (json_int_t)computing->in_place_layers, "staged_layers",
			 (json_int_t)computing->staged_layers, "fetched_layers",
			 (json_int_t)computing->fetched_layers, "staged",
			 (json_int_t)computing->staged_experts, "fetched",
			 (json_int_t)computing->fetched_experts, "fetch_seconds",
			 (double)computing->fetch_ns / 1e9);
}

/* The experts' slots. */
static json_t *
json_of_cache(const Hearth__Cache *cache)
{
	return json_pack(
	    "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I}", "slots",
	    (json_int_t)cache->slots, "filled", (json_int_t)cache->filled, "experts",
	    (json_int_t)cache->experts, "slot_bytes", (json_int_t)cache->slot_bytes, "tokens",
	    (json_int_t)cache->tokens, "uses", (json_int_t)cache->uses, "hits",
	    (json_int_t)cache->hits, "bytes_slots", (json_int_t)cache->bytes_slots, "bytes_arena",
	    (json_int_t)cache->bytes_arena, "moves", (json_int_t)cache->moves, "bytes_moved",
	    (json_int_t)cache->bytes_moved, "cpu_threads", (json_int_t)cache->cpu_threads,
	    "cpu_share", (double)cache->cpu_share, "cpu_experts", (json_int_t)cache->cpu_experts);
}

static json_t *
json_of_computing(const Hearth__Computing *computing)
{
	return json_pack(
	    "{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:o?, s:I, s:I, s:I, s:f, s:o, s:o*}", "device",
	    computing->device, "kernels", computing->kernels, "threads",
	    (json_int_t)computing->threads, "context", (json_int_t)computing->context, "kv_bytes",
	    (json_int_t)computing->kv_bytes, "slots", (json_int_t)computing->slots,
	    "attach_seconds", stage_seconds(computing->attach_begin_ns, computing->attach_end_ns),
	    "request", computing->request ? stack_json_hex(computing->request) : NULL, "tokens_in",
	    (json_int_t)computing->tokens_in, "tokens_kept", (json_int_t)computing->tokens_kept,
	    "tokens_out", (json_int_t)computing->tokens_out, "compute_seconds",
	    (double)computing->compute_ns / 1e9, "experts", json_of_experts(computing), "cache",
	    computing->cache ? json_of_cache(computing->cache) : NULL);
}

static json_t *
json_of_serving(const Hearth__Serving *serving)
{
	return json_pack(
	    "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:b}", "queued",
	    (json_int_t)serving->queued, "queue_limit", (json_int_t)serving->queue_limit, "active",
	    (json_int_t)serving->active, "done", (json_int_t)serving->done, "cancelled",
	    (json_int_t)serving->cancelled, "failed", (json_int_t)serving->failed, "refused",
	    (json_int_t)serving->refused, "handed_on", (json_int_t)serving->handed_on, "tokens",
	    (json_int_t)serving->tokens, "tokenizer", (int)serving->tokenizer, "tokenizer_note",
	    serving->tokenizer_note, "worker_linked", (int)serving->worker_linked);
}

static json_t *
json_of_stage(const Hearth__State *state, const char *word, uint64_t now_ns)
{
	json_t *stage;

	if (!state)
		return json_pack("{s:s, s:n, s:n, s:s}", "state", word, "pid", "since", "reason",
				 "");
	stage = json_pack("{s:s, s:I, s:I, s:I, s:s, s:f, s:f}", "state", word, "pid",
			  (json_int_t)state->pid, "since", (json_int_t)state->since_unix,
			  "restarts", (json_int_t)state->restarts, "reason", state->reason,
			  "seconds_to_ready", stage_seconds(state->since_ns, state->ready_ns),
			  "seconds_since_progress", stage_seconds(state->progress_ns, now_ns));
	if (state->reader)
		json_object_set_new(stage, "reader", json_of_reader(state->reader, now_ns));
	if (state->pages)
		json_object_set_new(stage, "pages", json_of_pages(state->pages));
	if (state->arena)
		json_object_set_new(stage, "arena", json_of_arena(state->arena));
	if (state->pinning)
		json_object_update_new(stage, json_of_pinning(state->pinning));
	if (state->computing)
		json_object_update_new(stage, json_of_computing(state->computing));
	if (state->serving)
		json_object_update_new(stage, json_of_serving(state->serving));
	return stage;
}

json_t *
stack_json(const struct stack_view *view)
{
	json_t *stages = json_object(), *slices = json_array();

	for (uint32_t i = 0; i < N_STAGES; i++)
		json_object_set_new(stages, stage_names[i],
				    json_of_stage(view->state[i], view->word[i], view->asked_ns));
	for (uint32_t i = 0; i < stack_slices(view); i++) {
		struct slice_view slice = stack_slice(view, i);

		json_array_append_new(
		    slices,
		    json_pack("{s:s, s:s, s:I, s:o?}", "name", slice.name, "state",
			      stack_slice_word(slice.state), "bytes", (json_int_t)slice.bytes,
			      "checksum", slice.checksum ? stack_json_hex(slice.checksum) : NULL));
	}
	return json_pack("{s:s, s:s, s:o, s:o}", "name", view->name, "model", stack_model(view),
			 "stages", stages, "slices", slices);
}
