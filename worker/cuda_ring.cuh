/* A warp's ring of pieces: one is read while those behind it are on their way, each as a whole by
 * the copy engine (cuda_landing.cuh), or where there is none by the warp's lanes.  The warp asks
 * for pieces and takes them in the same order, as many as it likes. */
#ifndef HEARTH_WORKER_CUDA_RING_CUH
#define HEARTH_WORKER_CUDA_RING_CUH

#include "worker/cuda_landing.cuh"

template <uint32_t DEPTH> struct ring {
	struct landing *landings; /* (DEPTH) */
	uint8_t *rooms;           /* (DEPTH, room) */
	uint32_t room;            /* bytes: of the longest piece, LANDING_ROOM of it for ring_ask */
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

/* The oldest's. */
template <uint32_t DEPTH>
static __device__ __forceinline__ uint8_t *
ring_room(const struct ring<DEPTH> &ring)
{
	return ring.rooms + ring.slot * ring.room;
}

/* By a whole warp, into the oldest's room, which nobody reads any more; no bytes: there is no piece
 * behind the last.  PASSING as of engine_ask. */
template <bool PASSING, uint32_t DEPTH>
static __device__ __forceinline__ void
ring_ask_piece(const struct ring<DEPTH> &ring, const struct landing_piece &piece)
{
	__syncwarp();
#if HAS_COPY_ENGINE
	if (threadIdx.x % 32 == 0 && piece.bytes > 0)
		engine_ask<PASSING>(ring.landings + ring.slot, piece);
#else
	(void)ring;
	for (uint32_t i = 16 * (threadIdx.x % 32); i < piece.bytes; i += 512)
		copy16(piece.to + i, piece.from + i);
	copies_end_group();
#endif
}

template <uint32_t DEPTH>
static __device__ __forceinline__ void
ring_ask(const struct ring<DEPTH> &ring, const uint8_t *from, uint32_t bytes)
{
	ring_ask_piece<false>(ring, landing_piece_of(ring_room(ring), from, bytes));
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
static __device__ __forceinline__ uint8_t *
ring_wait(const struct ring<DEPTH> &ring)
{
#if HAS_COPY_ENGINE
	engine_wait(ring.landings + ring.slot, ring.parity);
#else
	copies_wait_but<DEPTH - 1>();
	__syncwarp();
#endif
	return ring_room(ring);
}

#endif
