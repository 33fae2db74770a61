#include "tests/gpu_kv.h"

#include <math.h>

#define TILE CUDA_KV_TILE
#define LARGEST 32512

uint64_t
gpu_kv_tiles(uint32_t kv_heads, uint32_t context, uint32_t head_dim)
{
	return (uint64_t)kv_heads * CUDA_KV_TILES(context) * CUDA_KV_GROUPS(head_dim);
}

static struct cuda_kv_tile *
tile_of(const struct gpu_kv *kv, uint32_t head, uint32_t pos, uint32_t column)
{
	uint64_t row = (uint64_t)head * CUDA_KV_TILES(kv->context) + pos / TILE;

	return kv->tiles + row * CUDA_KV_GROUPS(kv->head_dim) + column / TILE;
}

/* The high byte; the low one is 8 further on. */
static uint8_t *
byte_of(const struct gpu_kv *kv, uint32_t head, uint32_t pos, uint32_t column)
{
	struct cuda_kv_tile *tile = tile_of(kv, head, pos, column);
	uint32_t p = pos % TILE, c = column % TILE;

	if (kv->values)
		return &tile->run[c / 8][4 * (c % 8) + p / 8][p % 8];
	return &tile->run[p % 8 / 2][8 * (p / 8) + 4 * (p % 2) + c / 8][c % 8];
}

float
gpu_kv_unit(const struct gpu_kv *kv, uint32_t head, uint32_t pos, uint32_t column)
{
	return tile_of(kv, head, pos, column)->unit[pos % TILE];
}

double
gpu_kv_get(const struct gpu_kv *kv, uint32_t head, uint32_t pos, uint32_t column)
{
	const uint8_t *at = byte_of(kv, head, pos, column);

	return (double)gpu_kv_unit(kv, head, pos, column) * (256 * (int8_t)at[0] + (int8_t)at[8]);
}

void
gpu_kv_put(const struct gpu_kv *kv, uint32_t head, uint32_t pos, const float *row)
{
	for (uint32_t first = 0; first < kv->head_dim; first += TILE) {
		uint32_t n = kv->head_dim - first < TILE ? kv->head_dim - first : TILE;
		float largest = 0, unit;

		for (uint32_t i = 0; i < n; i++)
			largest = fmaxf(largest, fabsf(row[first + i]));
		unit = largest / LARGEST;
		tile_of(kv, head, pos, first)->unit[pos % TILE] = unit;
		for (uint32_t i = 0; i < TILE; i++) {
			int v = i < n && unit > 0 ? (int)lrintf(row[first + i] / unit) : 0;
			uint8_t *at = byte_of(kv, head, pos, first + i);

			at[0] = (uint8_t)((v + 128) >> 8);
			at[8] = (uint8_t)v;
		}
	}
}

bool
gpu_kv_same(const struct gpu_kv *a, const struct gpu_kv *b, uint32_t head, uint32_t pos)
{
	for (uint32_t c = 0; c < CUDA_KV_GROUPS(a->head_dim) * TILE; c++) {
		const uint8_t *x = byte_of(a, head, pos, c), *y = byte_of(b, head, pos, c);

		if (x[0] != y[0] || x[8] != y[8] ||
		    gpu_kv_unit(a, head, pos, c) != gpu_kv_unit(b, head, pos, c))
			return false;
	}
	return true;
}

void
gpu_kv_copy(const struct gpu_kv *to, const struct gpu_kv *from, uint32_t head, uint32_t pos)
{
	for (uint32_t c = 0; c < CUDA_KV_GROUPS(to->head_dim) * TILE; c++) {
		const uint8_t *x = byte_of(from, head, pos, c);
		uint8_t *y = byte_of(to, head, pos, c);

		y[0] = x[0];
		y[8] = x[8];
		tile_of(to, head, pos, c)->unit[pos % TILE] = gpu_kv_unit(from, head, pos, c);
	}
}
