/* A warp's ring of pieces: one is read while those behind it are on their way, each as a whole by
 * the copy engine (cuda_landing.cuh), or where there is none by the warp's lanes.  The warp asks
 * for pieces and takes them in the same order, as many as it likes. */
#ifndef HEARTH_WORKER_CUDA_RING_CUH
#define HEARTH_WORKER_CUDA_RING_CUH

#include "worker/cuda_landing.cuh"

template <uint32_t DEPTH> struct ring {
	struct landing *landings; /* (DEPTH) */
	uint8_t *rooms;           /* (DEPTH, room) */
	uint32_t room;            /* bytes, LANDING_ROOM of the longest piece */
	uint32_t slot;            /* of the oldest piece, whose place the next one takes */
	uint32_t parity;          /* of the oldest's turn */
};

/* By one thread, before landings_opened. */
template <uint32_t DEPTH>
static __device__ __forceinline__ void
ring_open(struct landing *landings)
{
	for (uint32_t i = 0; i < DEPTH; i++)
		landing_open(landings + i, 1);
}

/* By a whole warp, into the oldest's place, which nobody reads any more; bytes 0: there is no piece
 * behind the last. */
template <uint32_t DEPTH>
static __device__ __forceinline__ void
ring_ask(const struct ring<DEPTH> &ring, const uint8_t *from, uint32_t bytes)
{
	const struct landing_piece piece =
	    landing_piece_of(ring.rooms + ring.slot * ring.room, from, bytes);

#if HAS_COPY_ENGINE
	__syncwarp();
	if (threadIdx.x % 32 == 0 && bytes > 0)
		engine_ask(ring.landings + ring.slot, piece);
#else
	__syncwarp();
	for (uint32_t i = 16 * (threadIdx.x % 32); i < piece.bytes; i += 512)
		copy16(piece.to + i, piece.from + i);
	copies_end_group();
#endif
}

/* Past a piece that was asked for (the first DEPTH), or was read. */
template <uint32_t DEPTH>
static __device__ __forceinline__ void
ring_step(struct ring<DEPTH> *ring)
{
	bool last = ring->slot + 1 == DEPTH;

	ring->slot = last ? 0 : ring->slot + 1;
	ring->parity ^= last;
}

/* By a whole warp: the oldest piece is there.  Returns its room. */
template <uint32_t DEPTH>
static __device__ __forceinline__ const uint8_t *
ring_wait(const struct ring<DEPTH> &ring)
{
#if HAS_COPY_ENGINE
	engine_wait(ring.landings + ring.slot, ring.parity);
#else
	copies_wait_but<DEPTH - 1>();
	__syncwarp();
#endif
	return ring.rooms + ring.slot * ring.room;
}

#endif
