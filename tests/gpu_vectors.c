#include "tests/gpu_vectors.h"

#include <math.h>

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
