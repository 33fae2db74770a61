#include "tests/bench_traffic.h"

const char *const bench_place_names[N_BENCH_PLACES] = { "trunk", "slots", "arena", "kv" };

static double
layer_bytes(const struct model_layer *layer)
{
	const struct matrix *const all[] = { &layer->attn_norm, &layer->q,        &layer->k,
					     &layer->v,         &layer->q_norm,   &layer->k_norm,
					     &layer->out,       &layer->ffn_norm, &layer->router };
	double bytes = 0;

	for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		bytes += (double)all[i]->bytes;
	return bytes;
}

static double
trunk_bytes(const struct model *model)
{
	double bytes = (double)model->output_norm.bytes + (double)model->output.bytes +
		       (double)model->embedding.bytes / model->vocabulary;

	if (model->tied)
		bytes += (double)model->embedding.bytes - (double)model->output.bytes;
	for (uint32_t i = 0; i < model->n_layers; i++)
		bytes += layer_bytes(&model->layers[i]);
	return bytes;
}

double
bench_expert_bytes(const struct model *model)
{
	double bytes = 0;

	for (uint32_t i = 0; i < model->n_layers; i++)
		for (enum role role = 0; role < N_ROLES; role++)
			bytes += (double)model->layers[i].role[role].bytes * model->top_k;
	return bytes;
}

void
bench_traffic_of(struct bench_traffic *ret, const struct model *model, double hits, double kv_bytes,
		 double context)
{
	double experts = bench_expert_bytes(model);

	ret->bytes[BENCH_TRUNK] = trunk_bytes(model);
	ret->bytes[BENCH_SLOTS] = experts * hits;
	ret->bytes[BENCH_ARENA] = experts * (1 - hits);
	ret->bytes[BENCH_KV] = kv_bytes * context;
}

double
bench_traffic_bytes(const struct bench_traffic *traffic)
{
	double bytes = 0;

	for (enum bench_place place = 0; place < N_BENCH_PLACES; place++)
		bytes += traffic->bytes[place];
	return bytes;
}

double
bench_traffic_seconds(const struct bench_traffic *traffic, const struct bench_rates *rates)
{
	double seconds = 0;

	for (enum bench_place place = 0; place < N_BENCH_PLACES; place++)
		if (traffic->bytes[place] > 0)
			seconds += traffic->bytes[place] / (rates->gb_s[place] * 1e9);
	return seconds;
}

double
bench_slots_part(const struct model *model, uint64_t bytes, uint64_t kv_bytes)
{
	double whole = (double)model->n_layers * model->n_experts * (double)model_slot_bytes(model);
	double embedding = (double)model->embedding.bytes;
	double trunk =
	    trunk_bytes(model) - embedding / model->vocabulary + (model->tied ? 0 : embedding);
	double left = (double)bytes - (double)kv_bytes - trunk;

	return left <= 0 ? 0 : left >= whole ? 1 : left / whole;
}
