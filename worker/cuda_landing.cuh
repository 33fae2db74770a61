/* Bytes that lie side by side, brought into a block's shared memory as one piece by the copy engine
 * of its SM (cp.async.bulk): without instructions of the block, and in whole lines of 128 bytes,
 * for a piece lies in a line of shared memory as it does in a line of device or host memory. (Where
 * it does not, the engine asks for half lines, which over PCIe take as long as whole ones.)  A
 * landing counts pieces in, and is used once, or by a ring (cuda_ring.cuh) again and again.  Where
 * there is no such engine, and on the CPU (tests/cuda_cpu), the threads that would wait copy. */
#ifndef HEARTH_WORKER_CUDA_LANDING_CUH
#define HEARTH_WORKER_CUDA_LANDING_CUH

#include "worker/cuda_ptx.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_COPY_ENGINE 1
#else
#define HAS_COPY_ENGINE 0
#endif

struct __align__(8) landing
{
	uint64_t barrier;
};

#define LINE 128u
#define LANDING_ROOM(bytes) (((bytes) + 2 * (LINE - 1)) / LINE * LINE) /* from any place */

/* Where in its room, a multiple of LINE, a piece from there begins. */
static __device__ __forceinline__ uint32_t
landing_place(const void *from)
{
	return (uint32_t)(uintptr_t)from % LINE;
}

/* By one thread, for so many pieces.  Then landings_opened, by all; or landing_opened by the thread
 * that opened it, which asks, and some barrier before others wait. */
static __device__ __forceinline__ void
landing_open(struct landing *landing, uint32_t pieces)
{
#if HAS_COPY_ENGINE
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(
			 (uint32_t)__cvta_generic_to_shared(&landing->barrier)),
		     "r"(pieces)
		     : "memory");
#else
	(void)landing;
	(void)pieces;
#endif
}

static __device__ __forceinline__ void
landing_opened(void)
{
#if HAS_COPY_ENGINE
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

static __device__ __forceinline__ void
landings_opened(void)
{
	landing_opened();
	__syncthreads();
}

/* Pieces are asked for in a loop from landing_first() on by landing_step(): each by a thread of its
 * own, or all by all threads. */
static __device__ __forceinline__ uint32_t
landing_first(void)
{
	return HAS_COPY_ENGINE ? threadIdx.x : 0;
}

static __device__ __forceinline__ uint32_t
landing_step(void)
{
	return HAS_COPY_ENGINE ? blockDim.x : 1;
}

/* A piece that comes into `room`, in whole 16 bytes: with it comes what lies beside it in its first
 * and last. */
struct landing_piece {
	const uint8_t *from;
	uint8_t *to;
	uint32_t bytes;
};

static __device__ __forceinline__ struct landing_piece
landing_piece_of(uint8_t *room, const uint8_t *from, uint32_t bytes)
{
	uint32_t beside = (uint32_t)(uintptr_t)from % 16;

	return landing_piece{ from - beside, room + landing_place(from) - beside,
			      bytes ? (beside + bytes + 15) / 16 * 16 : 0 };
}

/* By one thread.  PASSING: bytes that are read once a token: in the second cache they make room for
 * all else. */
template <bool PASSING = false>
static __device__ __forceinline__ void
engine_ask(struct landing *landing, const struct landing_piece &piece)
{
#if HAS_COPY_ENGINE
#define COPY "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
	uint32_t barrier = (uint32_t)__cvta_generic_to_shared(&landing->barrier);
	uint32_t to = (uint32_t)__cvta_generic_to_shared(piece.to);
	uint64_t first_out;

	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
		     "r"(piece.bytes)
		     : "memory");
	if (piece.bytes == 0)
		return;
	if constexpr (PASSING) {
		asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first_out));
		asm volatile(COPY ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
			     "l"(__cvta_generic_to_global(piece.from)), "r"(piece.bytes),
			     "r"(barrier), "l"(first_out)
			     : "memory");
	} else {
		asm volatile(COPY " [%0], [%1], %2, [%3];" ::"r"(to),
			     "l"(__cvta_generic_to_global(piece.from)), "r"(piece.bytes),
			     "r"(barrier)
			     : "memory");
	}
#undef COPY
#else
	(void)landing;
	(void)piece;
#endif
}

/* What the block's threads wrote to where a piece is to come. */
static __device__ __forceinline__ void
engine_after_writes(void)
{
#if HAS_COPY_ENGINE
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* By the thread or threads that ask. */
static __device__ __forceinline__ void
landing_ask(struct landing *landing, uint8_t *room, const uint8_t *from, uint32_t bytes)
{
	const struct landing_piece piece = landing_piece_of(room, from, bytes);

#if HAS_COPY_ENGINE
	engine_ask(landing, piece);
#else
	(void)landing;
	for (uint32_t i = 16 * threadIdx.x; i < piece.bytes; i += 16 * blockDim.x)
		copy16(piece.to + i, piece.from + i);
#endif
}

/* Pieces have come in for the time (0, 1, ...) of which `parity` is the last bit; by all who
 * want to read them. */
static __device__ __forceinline__ void
engine_wait(struct landing *landing, uint32_t parity)
{
#if HAS_COPY_ENGINE
	asm volatile("{\n\t"
		     ".reg .pred there;\n"
		     "again:\n\t"
		     "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n\t"
		     "@!there bra again;\n\t"
		     "}" ::"r"((uint32_t)__cvta_generic_to_shared(&landing->barrier)),
		     "r"(parity)
		     : "memory");
#else
	(void)landing;
	(void)parity;
#endif
}

/* By the whole block: all pieces are there, and what the threads that asked wrote before. */
static __device__ __forceinline__ void
landing_wait(struct landing *landing)
{
#if HAS_COPY_ENGINE
	engine_wait(landing, 0);
#else
	(void)landing;
	copies_wait();
	__syncthreads();
#endif
}

#endif
