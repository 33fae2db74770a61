/* How the context is cut into splits, and asking for what they begin with. */
#ifndef HEARTH_WORKER_CUDA_SOON_CUH
#define HEARTH_WORKER_CUDA_SOON_CUH

#include "worker/cuda_kernels.h"
#include "worker/cuda_ptx.cuh"

#define SPLIT_LEAST 256u /* positions: a tile for each of 8 warps */

static __host__ __device__ constexpr uint32_t
up(uint32_t n, uint32_t by)
{
	return (n + by - 1) / by;
}

/* Of each split but the last, of at most `most`; whole tiles. */
static __device__ __forceinline__ uint32_t
split_positions(uint32_t length, uint32_t most)
{
	return max(up(up(length, most), CUDA_KV_TILE) * CUDA_KV_TILE, SPLIT_LEAST);
}

/* The position lies there since before the forward's first kernel began. */
static __device__ __forceinline__ void
soon_ask_tiles(const struct cuda_soon &soon)
{
	uint32_t length = __ldcg(&soon.in->pos) + 1;
	uint32_t positions = split_positions(length, soon.splits_most);
	uint32_t pieces = soon.kv_heads * up(length, positions) * soon.n_tiles;

	for (uint32_t i = blockIdx.x + gridDim.x * threadIdx.x; i < pieces;
	     i += gridDim.x * blockDim.x) {
		uint32_t head = i % soon.kv_heads, n = i / soon.kv_heads;
		uint32_t pos = n / soon.n_tiles * positions + n % soon.n_tiles * CUDA_KV_TILE;
		uint64_t at = head * soon.head_tiles + (uint64_t)(pos / CUDA_KV_TILE) * soon.groups;

		if (pos >= length)
			continue;
		prefetch_bytes(soon.keys + at, soon.groups * sizeof *soon.keys);
		prefetch_bytes(soon.values + at, soon.groups * sizeof *soon.values);
	}
}

#define SOON_PIECE (16u << 10)

/* Whole pieces of 16 bytes from the first multiple of 16 on. */
static __device__ __forceinline__ void
soon_ask_bytes(const uint8_t *at, uint64_t n)
{
	uint32_t beside = (0u - (uint32_t)(uintptr_t)at) % 16;
	uint64_t step = (uint64_t)gridDim.x * blockDim.x * SOON_PIECE;

	n = n < beside + 16 ? 0 : (n - beside) / 16 * 16;
	for (uint64_t i = (uint64_t)(blockIdx.x + gridDim.x * threadIdx.x) * SOON_PIECE; i < n;
	     i += step)
		prefetch_bytes(at + beside + i,
			       (uint32_t)(n - i < SOON_PIECE ? n - i : SOON_PIECE));
}

/* By all threads of a grid of one row, each of them a piece by turns: so all SMs ask alike, which
 * each do so through one engine. */
static __device__ __forceinline__ void
soon_ask(const struct cuda_soon &soon)
{
	if (soon.in)
		soon_ask_tiles(soon);
	for (uint32_t i = 0; i < CUDA_SOON_MATRICES; i++)
		if (soon.matrix[i].n > 0)
			soon_ask_bytes((const uint8_t *)soon.matrix[i].at, soon.matrix[i].n);
}

#endif
