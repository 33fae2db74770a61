#include "tests/bench_decode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "tests/bench_figures.h"
#include "tests/bench_kv.h"
#include "tests/bench_stack.h"
#include "tests/stack_run.h"

#define MAX_RUNS 16u
#define SPARE 64u       /* positions beyond the context and the tokens */
#define MAX_WARMUPS 50u /* of 16 tokens: more than registering what a machine has takes */
#define MAX_LOOKS 10000u

static void
must(int rc, const struct error *err)
{
	if (rc == 0)
		return;
	log_error("%s", err->text);
	exit(EXIT_SYSTEM);
}

/* Its figures once no request is at work: they are whole then. */
static Hearth__State *
idle_worker(const struct bench_decode *decode)
{
	for (uint32_t i = 0; i < MAX_LOOKS; i++) {
		Hearth__State *worker = bench_ask_board(decode->dir, "worker");

		if (worker->computing && worker->computing->cache &&
		    worker->computing->request == 0)
			return worker;
		hearth__state__free_unpacked(worker, NULL);
	}
	log_error("the worker is still at work");
	exit(EXIT_SYSTEM);
}

static json_t *
ask(const struct bench_decode *decode, uint32_t tokens, const char *prompt)
{
	char n[16];

	snprintf(n, sizeof(n), "%u", tokens);
	return run_json(WORDS("ask", "--name", decode->name, "--json", "--ignore-stop", "-n", n,
			      "--prompt-ids", prompt));
}

/* -- the stack -- */

/* Until all experts are read where they will be from then on. */
static void
warm_up(const struct bench_decode *decode)
{
	bool staged = true;

	for (uint32_t i = 0; i < MAX_WARMUPS && staged; i++) {
		Hearth__State *worker;

		json_decref(ask(decode, 16, "1,2,3,4"));
		worker = idle_worker(decode);
		staged = worker->computing->staged_layers + worker->computing->fetched_layers > 0;
		hearth__state__free_unpacked(worker, NULL);
	}
	if (staged)
		log_warn("experts are staged still: the figures are of that");
}

static void
attach_model(struct bench_decode *decode)
{
	Hearth__State *loader = bench_ask_board(decode->dir, "loader");
	struct arena_want want = { .bytes = loader->arena->bytes,
				   .stamp = loader->arena->stamp,
				   .layout_hash = loader->arena->layout_hash };
	struct error err = { "" };

	must(arena_attach(&decode->arena, loader->arena->path, false, &want, &err), &err);
	must(model_read_arena(&decode->shape, &decode->arena, &err), &err);
	hearth__state__free_unpacked(loader, NULL);
}

/* run.sh up: its status, and the first line that it complains with. */
static int
start_stack(const struct bench_decode *decode, uint64_t vram_mib, uint32_t context,
	    char ret_why[256])
{
	char positions[16], cap[40];
	const char *words[] = { "up",       decode->model,  "--name", decode->name,
				"--device", decode->device, "--ctx",  positions,
				NULL,       NULL,           NULL };
	uint32_t n = 8;
	struct run run;
	int status;

	snprintf(positions, sizeof(positions), "%u", context + decode->tokens + SPARE);
	snprintf(cap, sizeof(cap), "--vram-mib=%llu", (unsigned long long)vram_mib);
	if (vram_mib)
		words[n++] = cap;
	if (decode->more)
		words[n++] = decode->more;
	run_start(&run, words);
	status = run_finish(&run);
	snprintf(ret_why, 256, "%.*s", (int)strcspn(run.err, "\n"), run.err);
	run_close(&run);
	return status;
}

bool
bench_decode_up(struct bench_decode *decode, uint64_t vram_mib, uint32_t context, char ret_why[256])
{
	int status = start_stack(decode, vram_mib, context, ret_why);
	struct error err = { "" };
	Hearth__State *worker;

	if (status == EXIT_INPUT)
		return false;
	if (status != 0) {
		log_error("up: %s", ret_why);
		exit(EXIT_SYSTEM);
	}
	snprintf(decode->dir, sizeof(decode->dir), "%s/hearth-%s", stack_runtime, decode->name);
	attach_model(decode);
	warm_up(decode);
	worker = idle_worker(decode);
	must(bench_kv_fill(decode->dir, worker, decode->opened, &err), &err);
	hearth__state__free_unpacked(worker, NULL);
	return true;
}

void
bench_decode_down(struct bench_decode *decode)
{
	model_close(&decode->shape);
	arena_close(&decode->arena);
	run_do(WORDS("down", "--name", decode->name));
}

/* -- a context -- */

char *
bench_decode_prompt(uint32_t n, uint32_t run, uint32_t vocabulary, uint32_t *ids)
{
	char *text = malloc(2 * (size_t)n + 16);
	uint64_t random = 1;
	size_t at = 0;

	if (!text)
		abort();
	/* One digit each: of 32768 of them one argument of a program still has room. */
	for (uint32_t i = 0; i < n; i++) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		ids[i] = (uint32_t)(random >> 33) % (i + 1 < n ? 10 : vocabulary);
		if (i + 1 == n)
			ids[i] = (ids[i] + run * 7919) % vocabulary;
		at += (size_t)snprintf(text + at, 16, i + 1 < n ? "%u," : "%u", ids[i]);
	}
	return text;
}

void
bench_decode_keep(struct bench_decode *decode, const uint32_t *ids, uint32_t context)
{
	Hearth__State *worker = idle_worker(decode);
	struct error err = { "" };

	must(bench_kv_keep(decode->dir, worker, ids, context - 1, &err), &err);
	hearth__state__free_unpacked(worker, NULL);
}

static int
compare_ids(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static uint32_t
count_distinct(const json_t *ids)
{
	uint32_t n = (uint32_t)json_array_size(ids), distinct = 0;
	uint32_t *all = calloc(n + 1, sizeof(*all));

	if (!all)
		abort();
	for (uint32_t i = 0; i < n; i++)
		all[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
	qsort(all, n, sizeof(*all), compare_ids);
	for (uint32_t i = 0; i < n; i++)
		distinct += i == 0 || all[i] != all[i - 1];
	free(all);
	return distinct;
}

/* One answer behind the context. */
static void
run_once(struct bench_decode *decode, uint32_t context, uint32_t run, struct bench_row *row,
	 double *ret_worker, double *ret_ask)
{
	uint32_t *ids = calloc(context, sizeof(*ids));
	char *prompt;
	json_t *answer, *seconds;

	if (!ids)
		abort();
	prompt = bench_decode_prompt(context, run, decode->shape.vocabulary, ids);
	bench_decode_keep(decode, ids, context);
	answer = ask(decode, decode->tokens, prompt);
	seconds = json_object_get(answer, "seconds");
	row->tokens = (uint32_t)json_array_size(json_object_get(answer, "ids"));
	row->distinct = count_distinct(json_object_get(answer, "ids"));
	*ret_worker = row->tokens / json_number_value(json_object_get(answer, "compute_seconds"));
	*ret_ask = row->tokens / json_number_value(json_object_get(seconds, "total"));
	json_decref(answer);
	free(prompt);
	free(ids);
}

/* What was used between two looks at the worker. */
static void
take_use(struct bench_row *row, const Hearth__State *before, const Hearth__State *after,
	 const struct model *model)
{
	const Hearth__Cache *a = before->computing->cache, *b = after->computing->cache;
	double tokens = (double)(b->tokens - a->tokens), uses = (double)(b->uses - a->uses);
	double kv = (double)after->computing->kv_bytes / after->computing->context;

	row->slots = b->slots;
	row->hits = uses > 0 ? (double)(b->hits - a->hits) / uses : 0;
	bench_traffic_of(&row->traffic, model, 0, kv, row->context + row->tokens / 2.0);
	if (tokens <= 0)
		return;
	row->traffic.bytes[BENCH_SLOTS] = (double)(b->bytes_slots - a->bytes_slots) / tokens;
	row->traffic.bytes[BENCH_ARENA] = (double)(b->bytes_arena - a->bytes_arena) / tokens;
}

/* The context was put there for all `runs`, or the bench measures something else. */
static void
check_kept(const Hearth__State *before, const Hearth__State *after, uint32_t context, uint32_t runs)
{
	uint64_t kept = after->computing->tokens_kept - before->computing->tokens_kept;

	if (kept >= (uint64_t)runs * (context - 1))
		return;
	log_error("context %u: the worker did not find it in its KV cache", context);
	exit(EXIT_SYSTEM);
}

void
bench_decode_row(struct bench_decode *decode, uint64_t vram_mib, uint32_t context,
		 struct bench_row *ret)
{
	double worker[MAX_RUNS], asked[MAX_RUNS];
	uint32_t runs = decode->runs < MAX_RUNS ? decode->runs : MAX_RUNS;
	Hearth__State *before, *after, *pinner;

	*ret = (struct bench_row){ .vram_mib = vram_mib, .context = context };
	snprintf(ret->device, sizeof(ret->device), "%.4s", decode->device);
	snprintf(ret->router, sizeof(ret->router), "%.15s", decode->router);
	for (uint32_t i = 0; i < decode->warm_ups; i++)
		run_once(decode, context, runs + i, ret, &worker[0], &asked[0]);
	before = idle_worker(decode);
	for (uint32_t i = 0; i < runs; i++)
		run_once(decode, context, i, ret, &worker[i], &asked[i]);
	after = idle_worker(decode);
	check_kept(before, after, context, runs);
	pinner = bench_ask_board(decode->dir, "pinner");
	ret->lent = pinner->pinning->device_bytes_lent;
	take_use(ret, before, after, &decode->shape);
	ret->worker = figures_median(worker, runs);
	ret->ask = figures_median(asked, runs);
	ret->limit = 1 / bench_traffic_seconds(&ret->traffic, decode->rates);
	hearth__state__free_unpacked(pinner, NULL);
	hearth__state__free_unpacked(before, NULL);
	hearth__state__free_unpacked(after, NULL);
}
