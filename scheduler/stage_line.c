#include "scheduler/stage_line.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"

double
stage_seconds(uint64_t from_ns, uint64_t to_ns)
{
	return from_ns && to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

double
stage_read_rate(const Hearth__Reader *reader, uint64_t now_ns)
{
	double seconds = stage_seconds(reader->begin_ns, reader->end_ns ? reader->end_ns : now_ns);

	return seconds > 0 ? (double)reader->bytes / seconds / 1e9 : 0;
}

double
stage_register_rate(const Hearth__Pinning *pinning)
{
	double gib = (double)pinning->registered_bytes / (double)(1u << 30);

	return gib > 0 ? (double)pinning->register_ns / 1e9 / gib : 0;
}

void
stage_bytes(char ret[16], uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double n = (double)bytes;
	uint32_t unit = 0;

	while (n >= 1024 && unit < 4) {
		n /= 1024;
		unit++;
	}
	snprintf(ret, 16, "%.*f %s", unit == 0 || n >= 100 ? 0 : n >= 10 ? 1 : 2, n, units[unit]);
}

/* A growing line: each piece after the first has a comma before it. */
struct line {
	char *text;
	size_t n;
};

__attribute__((format(printf, 2, 3))) static void
line_add(struct line *line, const char *format, ...)
{
	char piece[STAGE_LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(piece, sizeof(piece), format, args);
	va_end(args);
	line->n += (size_t)snprintf(line->text + line->n, STAGE_LINE_BYTES - line->n, "%s%s",
				    line->n ? ", " : "", piece);
	if (line->n >= STAGE_LINE_BYTES)
		line->n = STAGE_LINE_BYTES - 1; /* cut */
}

static void
line_outside(struct line *line, const Hearth__Reader *reader)
{
	char bytes[16];

	if (reader->outside_experts == 0)
		return;
	stage_bytes(bytes, reader->outside_bytes);
	line_add(line, "brought %" PRIu64 " experts that do not stay (%s in %" PRIu64 " reads)",
		 reader->outside_experts, bytes, reader->outside_reads);
	line_add(line, "%.3f s for %" PRIu64 " requests", (double)reader->demand_wait_ns / 1e9,
		 reader->demand_requests);
}

static void
line_reader(struct line *line, const Hearth__Reader *reader, uint64_t now_ns)
{
	char bytes[16], total[16];
	const char *numbers;

	stage_bytes(bytes, reader->bytes);
	stage_bytes(total, reader->total_bytes);
	if (reader->end_ns == 0 && reader->total_bytes)
		line_add(line, "%3.0f %% of %s",
			 100.0 * (double)reader->bytes / (double)reader->total_bytes, total);
	else if (reader->bytes || !reader->adopted_bytes)
		line_add(line, "read %s in %.3f s", bytes,
			 stage_seconds(reader->begin_ns, reader->end_ns));
	if (reader->bytes)
		line_add(line, "%.2f GB/s", stage_read_rate(reader, now_ns));
	if (reader->adopted_bytes) {
		stage_bytes(bytes, reader->adopted_bytes);
		line_add(line, "took over %s warm", bytes);
	}
	line_add(line, "%s, %" PRIu32 " threads", reader->chosen, reader->threads);
	numbers = strstr(reader->reason, " ("); /* they are in the report */
	if (reader->reason[0])
		line_add(line, "%.*s",
			 numbers ? (int)(numbers - reader->reason) : (int)strlen(reader->reason),
			 reader->reason);
	if (reader->fallback[0])
		line_add(line, "not direct: %s", reader->fallback);
	line_outside(line, reader);
}

static void
line_pages(struct line *line, const Hearth__Pages *pages)
{
	char huge[16];

	stage_bytes(huge, pages->huge_bytes);
	line_add(line, "pages %s", pages->got);
	if (pages->huge_bytes && pages->huge_bytes < pages->bytes)
		line_add(line, "%s of them huge", huge);
	if (pages->advice[0])
		line_add(line, "better ones: ./run.sh tune");
}

static void
line_pinning(struct line *line, const Hearth__Pinning *pinning)
{
	char bytes[16];

	stage_bytes(bytes, pinning->registered_bytes);
	line_add(line, "%s", pinning->device);
	if (pinning->registered_bytes) {
		line_add(line, "registered %s by %s in %.3f s", bytes, pinning->method,
			 (double)pinning->register_ns / 1e9);
		line_add(line, "%.3f s/GiB %s reading", stage_register_rate(pinning),
			 pinning->order);
	}
	if (pinning->over_cap_bytes) {
		stage_bytes(bytes, pinning->over_cap_bytes);
		line_add(line, "%s not registered: over --pin-gib %" PRIu64, bytes,
			 pinning->cap_bytes >> 30);
	}
	if (pinning->refused_bytes) {
		stage_bytes(bytes, pinning->refused_bytes);
		line_add(line, "%s not registered: %s", bytes, pinning->refusal);
	}
	if (pinning->locked_bytes) {
		stage_bytes(bytes, pinning->locked_bytes);
		line_add(line, "%s locked instead", bytes);
	}
	if (pinning->locked_note[0])
		line_add(line, "no more is locked: %s", pinning->locked_note);
	if (pinning->uploaded_bytes) {
		stage_bytes(bytes, pinning->uploaded_bytes);
		line_add(line, "uploaded %s in %.3f s", bytes,
			 stage_seconds(pinning->upload_begin_ns, pinning->upload_end_ns));
	}
	for (size_t i = 0; i < pinning->n_regions; i++) {
		stage_bytes(bytes, pinning->regions[i]->bytes);
		line_add(line, "lends %s %s", pinning->regions[i]->key, bytes);
	}
	if (pinning->expert_moves)
		line_add(line, "%" PRIu64 " experts moved", pinning->expert_moves);
}

/* Of the experts: how many have slots, and how many of those chosen were there. */
static void
line_cache(struct line *line, const Hearth__Cache *cache)
{
	line_add(line, "%" PRIu32 " of %" PRIu32 " slots filled for %" PRIu32 " experts",
		 cache->filled, cache->slots, cache->experts);
	if (cache->uses)
		line_add(line, "%.1f %% hits", 100.0 * (double)cache->hits / (double)cache->uses);
}

static void
line_share(struct line *line, const Hearth__Cache *cache)
{
	line_add(line, "CPU share %.2f, %" PRIu64 " experts by %" PRIu32 " threads",
		 (double)cache->cpu_share, cache->cpu_experts, cache->cpu_threads);
}

static void
line_computing(struct line *line, const Hearth__Computing *computing)
{
	char bytes[16];

	stage_bytes(bytes, computing->kv_bytes);
	line_add(line, "%s", computing->device);
	if (computing->kernels[0])
		line_add(line, "%s kernels", computing->kernels);
	if (computing->threads)
		line_add(line, "%" PRIu32 " threads", computing->threads);
	line_add(line, "context %" PRIu32 " (%s)", computing->context, bytes);
	if (computing->cache && computing->cache->slots)
		line_cache(line, computing->cache);
	if (computing->cache && computing->cache->cpu_threads)
		line_share(line, computing->cache);
	line_add(line, "%" PRIu64 " tokens in, %" PRIu64 " kept, %" PRIu64 " out",
		 computing->tokens_in, computing->tokens_kept, computing->tokens_out);
	if (computing->request)
		line_add(line, "serves %016" PRIx64, computing->request);
}

static void
line_serving(struct line *line, const Hearth__Serving *serving)
{
	if (serving->worker_linked)
		line_add(line, "worker linked");
	line_add(line, "%" PRIu32 " active, %" PRIu32 " of %" PRIu32 " queued, %" PRIu64 " done",
		 serving->active, serving->queued, serving->queue_limit, serving->done);
	if (serving->cancelled)
		line_add(line, "%" PRIu64 " cancelled", serving->cancelled);
	if (serving->failed)
		line_add(line, "%" PRIu64 " failed", serving->failed);
	if (serving->refused)
		line_add(line, "%" PRIu64 " refused", serving->refused);
	if (serving->handed_on)
		line_add(line, "%" PRIu64 " handed on", serving->handed_on);
	line_add(line, "%" PRIu64 " tokens", serving->tokens);
	if (!serving->tokenizer && serving->tokenizer_note[0]) /* else it is not known yet */
		line_add(line, "no tokenizer: %s", serving->tokenizer_note);
}

void
stage_line(char ret[STAGE_LINE_BYTES], const Hearth__State *state, uint64_t now_ns)
{
	struct line line = { .text = ret };

	ret[0] = '\0';
	if (state->reason[0])
		line_add(&line, "%s", state->reason);
	if (state->reader)
		line_reader(&line, state->reader, now_ns);
	if (state->pages && state->pages->got[0])
		line_pages(&line, state->pages);
	if (state->pinning)
		line_pinning(&line, state->pinning);
	if (state->computing)
		line_computing(&line, state->computing);
	if (state->serving)
		line_serving(&line, state->serving);
}
