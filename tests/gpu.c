#include "tests/gpu.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/gguf.h"
#include "tests/random_rows.h"

#define PAGE 4096u

static void
must(int rc, const struct error *err)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s\n", err->text);
	abort();
}

struct device *
gpu_open(void)
{
	struct device *device;
	struct error err;
	int rc = device_open(&device, "cuda", &err);

	if (rc != -ENODEV)
		must(rc, &err);
	if (rc == 0)
		return device;
	fprintf(stderr, "skipped: %s\n", err.text);
	return NULL;
}

uint32_t
gpu_many(const struct device *device, uint32_t many, uint32_t few)
{
	bool slow = strstr(device_describe(device)->name, "tests/cuda_cpu");

	return slow && few < many ? few : many;
}

void *
gpu_shared(struct device *device, uint64_t bytes)
{
	struct error err = { "" };
	void *at;

	bytes = round_up(bytes, PAGE);
	at = aligned_alloc(PAGE, bytes);
	assert(at != NULL);
	memset(at, 0, bytes);
	must(device_register(device, at, bytes, false, &err), &err);
	return at;
}

void
gpu_shared_free(struct device *device, void *at, uint64_t bytes)
{
	device_unregister(device, at, round_up(bytes, PAGE));
	free(at);
}

float
gpu_random(uint64_t *seed)
{
	return random_float_of(seed);
}

void
gpu_random_row(const struct type_info *info, uint8_t *row, uint32_t columns, uint64_t *seed)
{
	random_row_of(seed, info, row, columns);
}

static void
read_file(struct gpu_model *ret, const char *path)
{
	FILE *file = fopen(path, "rb");

	if (!file) {
		fprintf(stderr, "%s: no such file\n", path);
		abort();
	}
	fseek(file, 0, SEEK_END);
	ret->file_bytes = (uint64_t)ftell(file);
	rewind(file);
	ret->file = gpu_shared(ret->device, ret->file_bytes);
	if (fread(ret->file, 1, ret->file_bytes, file) != ret->file_bytes)
		abort();
	fclose(file);
}

static void
read_model(struct gpu_model *ret, const char *path)
{
	struct error err = { "" };
	struct gguf gguf;
	struct arena_tensor *tensors;

	must(gguf_parse(&gguf, ret->file, ret->file_bytes, ret->file_bytes, path, &err), &err);
	tensors = calloc(gguf.n_tensors, sizeof(*tensors));
	assert(tensors != NULL);
	for (uint64_t i = 0; i < gguf.n_tensors; i++) {
		const struct gguf_tensor *from = &gguf.tensors[i];
		struct arena_tensor *to = &tensors[i];

		memcpy(to->name, from->name.at, from->name.bytes);
		to->type = from->type;
		to->n_dims = from->n_dims;
		memcpy(to->dims, from->dims, sizeof(to->dims));
		to->offset = from->offset;
		to->bytes = from->bytes;
	}
	must(model_read(&ret->model, &gguf, tensors, gguf.n_tensors, path, &err), &err);
	free(tensors);
	gguf_close(&gguf);
}

static void
place_experts(struct gpu_model *ret, bool slots)
{
	const struct model *model = &ret->model;
	uint64_t n = (uint64_t)model->n_layers * model->n_experts;
	struct error err = { "" };

	ret->places = calloc(n, sizeof(*ret->places));
	assert(ret->places != NULL);
	if (slots)
		must(device_alloc(ret->device, n * model_slot_bytes(model), &ret->slots, &err),
		     &err);
	for (uint64_t i = 0; i < n; i++) {
		const struct model_layer *layer = &model->layers[i / model->n_experts];
		uint8_t *slot = (uint8_t *)ret->slots.at + i * model_slot_bytes(model);

		for (enum role role = 0; role < N_ROLES; role++) {
			const struct experts *experts = &layer->role[role];
			uint8_t *at =
			    ret->file + experts->offset + i % model->n_experts * experts->stride;
			uint8_t *to = slot + model_slot_offset(layer, role);

			ret->places[i].role[role] = at;
			if (!slots || i % 2 != 0)
				continue;
			must(device_copy_in(ret->device, to, at, experts->bytes, &err), &err);
			ret->places[i].role[role] = to;
		}
	}
	must(device_wait(ret->device, &err), &err);
}

/* The rest of the config is set here. */
static void
model_open(struct gpu_model *ret, struct device *device, const char *path, uint32_t context,
	   bool slots, struct compute_config config)
{
	struct error err = { "" };

	*ret = (struct gpu_model){ .device = device };
	read_file(ret, path);
	read_model(ret, path);
	must(device_alloc(device, ret->file_bytes, &ret->trunk, &err), &err);
	must(device_copy_in(device, ret->trunk.at, ret->file, ret->file_bytes, &err), &err);
	must(device_alloc(device, compute_cuda.kv_bytes(&ret->model, context), &ret->kv, &err),
	     &err);
	place_experts(ret, slots);
	config.model = &ret->model;
	config.arena = ret->file;
	config.arena_bytes = ret->file_bytes;
	config.device = device;
	config.trunk = ret->trunk.at;
	config.kv = ret->kv.at;
	config.context = context;
	config.places = ret->places;
	must(compute_cuda.open(&ret->compute, &config, &err), &err);
}

void
gpu_model_open(struct gpu_model *ret, struct device *device, const char *path, uint32_t context,
	       bool slots,
	       int (*need)(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n),
	       void *need_arg)
{
	struct compute_config config = { .threads = 1, .need_experts = need, .need_arg = need_arg };

	model_open(ret, device, path, context, slots, config);
}

void
gpu_model_open_sharing(struct gpu_model *ret, struct device *device, const char *path,
		       uint32_t context, bool slots, float share, uint32_t threads)
{
	struct compute_config config = { .threads = 1 + threads, .cpu_share = share };

	model_open(ret, device, path, context, slots, config);
}

void
gpu_model_close(struct gpu_model *model)
{
	compute_cuda.close(model->compute);
	device_free(model->device, &model->slots);
	device_free(model->device, &model->kv);
	device_free(model->device, &model->trunk);
	free(model->places);
	model_close(&model->model);
	gpu_shared_free(model->device, model->file, model->file_bytes);
}
