#include "tests/route_trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/golden.h"
#include "worker/sample.h"

#define THREADS 2u

static void *
get_memory(uint64_t bytes)
{
	void *at = calloc(1, bytes);

	if (!at) {
		fprintf(stderr, "no memory for %llu bytes\n", (unsigned long long)bytes);
		exit(EXIT_SYSTEM);
	}
	return at;
}

void
route_trace_open(struct route_trace *ret, const char *name, uint32_t layers, uint32_t experts,
		 uint32_t top_k, uint32_t tokens)
{
	*ret = (struct route_trace){
		.name = name, .layers = layers, .experts = experts, .top_k = top_k, .tokens = tokens
	};
	ret->chosen = get_memory((uint64_t)tokens * layers * top_k * sizeof(*ret->chosen) + 1);
}

void
route_trace_close(struct route_trace *trace)
{
	free(trace->chosen);
	trace->chosen = NULL;
}

/* -- recorded -- */

struct recorder {
	struct route_trace *trace;
	uint32_t token; /* trace->tokens: not recorded */
};

static int
record_layer(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n)
{
	struct recorder *recorder = arg;

	if (recorder->token == recorder->trace->tokens)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		route_trace_at(recorder->trace, recorder->token, layer)[i] = (uint16_t)experts[i];
	return 0;
}

static const float *
step(struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos)
{
	const struct compute_want want = { .logits = true };
	struct compute_result result;
	struct error err;

	if (compute_cpu.forward(compute, ids, n, pos, &want, &result, &err) == 0)
		return result.logits;
	fprintf(stderr, "%s\n", err.text);
	exit(EXIT_SYSTEM);
}

/* `tokens` of them, from token `first` of the trace on. */
static void
record_answer(struct recorder *recorder, struct compute *compute, const struct route_prompt *prompt,
	      uint32_t first, uint32_t tokens, uint32_t vocabulary)
{
	const struct sampling sampling = { .temperature = 0.8f, .top_p = 1, .seed = first + 1 };
	struct sample_scratch *scratch;
	const float *logits;
	uint32_t id;

	if (sample_scratch_open(&scratch, vocabulary) < 0)
		exit(EXIT_SYSTEM);
	recorder->token = recorder->trace->tokens;
	logits = step(compute, prompt->ids, prompt->n, 0);
	for (uint32_t i = 0; i < tokens; i++) {
		id = sample(logits, vocabulary, &sampling, i, scratch);
		recorder->token = first + i;
		logits = step(compute, &id, 1, prompt->n + i);
	}
	sample_scratch_close(scratch);
}

void
route_trace_record(struct route_trace *ret, const char *path, const struct route_prompt *prompts,
		   uint32_t n_prompts, uint32_t tokens)
{
	struct recorder recorder = { .trace = ret };
	uint32_t each = tokens / n_prompts;
	struct golden_model golden;
	struct compute_config config;
	struct compute *compute;
	struct error err;

	golden_model_open(&golden, path);
	route_trace_open(ret, "demo", golden.model.n_layers, golden.model.n_experts,
			 golden.model.top_k, each * n_prompts);
	config = (struct compute_config){ .model = &golden.model,
					  .arena = golden.bytes,
					  .trunk = golden.bytes,
					  .context = COMPUTE_BATCH + each,
					  .threads = THREADS,
					  .places = golden.places,
					  .need_experts = record_layer,
					  .need_arg = &recorder };
	config.kv = get_memory(compute_cpu.kv_bytes(config.model, config.context));
	if (compute_cpu.open(&compute, &config, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(EXIT_SYSTEM);
	}
	for (uint32_t i = 0; i < n_prompts; i++)
		record_answer(&recorder, compute, &prompts[i], i * each, each,
			      golden.model.vocabulary);
	compute_cpu.close(compute);
	free(config.kv);
	golden_model_close(&golden);
}
