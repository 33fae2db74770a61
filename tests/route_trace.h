/* What a router chose, token by token and layer by layer: recorded from a model, or made up. */
#ifndef HEARTH_TESTS_ROUTE_TRACE_H
#define HEARTH_TESTS_ROUTE_TRACE_H

#include <stdint.h>

struct route_trace {
	const char *name;
	uint32_t layers, experts, top_k, tokens;
	uint16_t *chosen; /* (tokens, layers, top_k) */
};

/* Dies where there is no memory. */
void route_trace_open(struct route_trace *ret, const char *name, uint32_t layers, uint32_t experts,
		      uint32_t top_k, uint32_t tokens);
void route_trace_close(struct route_trace *trace);

static inline uint16_t *
route_trace_at(const struct route_trace *trace, uint32_t token, uint32_t layer)
{
	return trace->chosen + ((uint64_t)token * trace->layers + layer) * trace->top_k;
}

/* How a made-up router chooses. */
struct route_maker {
	const char *name;
	double skew;    /* an expert's weight is 1 / rank^skew; 0 = uniform */
	double stays;   /* of the experts of the token before, this share is chosen again */
	uint32_t drift; /* tokens until every expert has another rank; 0 = never */
	uint32_t topics, topic_tokens; /* each topic has ranks of its own, and they take turns */
	uint64_t seed;
};

/* Fills the whole trace. */
void route_trace_make(struct route_trace *trace, const struct route_maker *maker);

/* The file's model on the CPU, going on from `n_prompts` prompts of token ids (one after another,
 * each in a context of its own), sampled at temperature 0.8. */
struct route_prompt {
	const uint32_t *ids;
	uint32_t n;
};
void route_trace_record(struct route_trace *ret, const char *path,
			const struct route_prompt *prompts, uint32_t n_prompts, uint32_t tokens);

#endif
