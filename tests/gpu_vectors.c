#include "tests/gpu_vectors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define GROUP 16u
#define SUM_ERROR 2e-6

static uint32_t
stride_of(uint32_t columns)
{
	return (columns + CUDA_ROW_ALIGN - 1) / CUDA_ROW_ALIGN * CUDA_ROW_ALIGN;
}

struct cuda_vectors
gpu_vectors_open(struct device *device, uint64_t n, uint32_t columns)
{
	return (struct cuda_vectors){
		.rows = { gpu_shared(device, n * stride_of(columns) * sizeof(float)),
			  stride_of(columns) },
		.fixed = { gpu_shared(device, n * CUDA_FIXED_BYTES(columns)),
			   CUDA_FIXED_BYTES(columns) },
	};
}

void
gpu_vectors_close(struct device *device, struct cuda_vectors *vectors, uint64_t n, uint32_t columns)
{
	gpu_shared_free(device, vectors->rows.at, n * stride_of(columns) * sizeof(float));
	gpu_shared_free(device, vectors->fixed.at, n * CUDA_FIXED_BYTES(columns));
}

struct cuda_hidden
gpu_hidden_open(struct device *device, uint64_t n, uint32_t columns)
{
	uint32_t groups = CUDA_SQUARES(columns);

	return (struct cuda_hidden){
		.h = { gpu_shared(device, n * stride_of(columns) * sizeof(float)),
		       stride_of(columns) },
		.x = gpu_vectors_open(device, n, columns),
		.squares = { gpu_shared(device, n * groups * sizeof(float)), groups },
	};
}

void
gpu_hidden_close(struct device *device, struct cuda_hidden *state, uint64_t n, uint32_t columns)
{
	gpu_shared_free(device, state->h.at, n * stride_of(columns) * sizeof(float));
	gpu_vectors_close(device, &state->x, n, columns);
	gpu_shared_free(device, state->squares.at, n * state->squares.stride * sizeof(float));
}

struct cuda_hidden
gpu_hidden_from(const struct cuda_hidden *state, uint64_t first)
{
	struct cuda_hidden ret = *state;

	ret.h.at += first * ret.h.stride;
	ret.x.rows.at += first * ret.x.rows.stride;
	ret.x.fixed.at += first * ret.x.fixed.stride;
	ret.squares.at += first * ret.squares.stride;
	return ret;
}

void
gpu_hidden_make(struct device *device, const struct cuda_hidden *state, const float *weight,
		uint32_t columns, uint32_t tokens)
{
	/* Embedded as itself, row t for token t. */
	const struct cuda_matrix rows = { state->h.at, state->h.stride * sizeof(float), TYPE_F32,
					  tokens };
	struct cuda_input *in = gpu_shared(device, sizeof(*in));
	struct error err;

	for (uint32_t t = 0; t < tokens; t++)
		in->ids[t] = t;
	if (cuda_embed(NULL, &rows, columns, in, *state, weight, tokens, &err) ||
	    cuda_finish(NULL, &err)) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
	gpu_shared_free(device, in, sizeof(*in));
}

double
gpu_product(const float *row, const double *x, uint32_t columns)
{
	double sum = 0;

	for (uint32_t i = 0; i < columns; i++)
		sum += row[i] * x[i];
	return sum;
}

double
gpu_product_error(uint32_t type, const float *row, const double *x, uint32_t columns)
{
	bool fixed = type != TYPE_F32 && type != TYPE_F16 && type != TYPE_BF16;
	double off = 0;

	for (uint32_t i = 0; i < columns; i += GROUP) {
		double largest = 0, weights = 0;

		for (uint32_t j = i; j < i + GROUP && j < columns; j++) {
			largest = fmax(largest, fabs(x[j]));
			weights += fabs((double)row[j]);
			off += SUM_ERROR * fabs(row[j] * x[j]);
		}
		off += fixed ? weights * largest / 32512 / 2 : 0;
	}
	return off;
}
