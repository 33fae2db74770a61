#include "tests/bench_handover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cuda_landing.cuh"
#include "worker/cuda_launch.cuh"

#define THREADS 256u
#define PIECES 8u
#define PIECE_BYTES 4608u /* what eight rows of Q4_K take, about a block's share of an expert */
#define BLOCK_BYTES (PIECES * PIECE_BYTES)

/* So long the order is kept back that the next kernel is there, waiting for this one. */
#define HOLD_NS 60000u
#define LIMIT_NS 20000000u /* of a wait for the answer */

enum way {
	WAY_PLAIN,
	WAY_FENCED,
	WAY_FENCED_TWICE,
	WAY_RELEASE,
	WAY_MMIO,
	WAY_FENCED_MMIO,
	WAY_16,
	WAY_32,
	WAY_EXCHANGED,
	WAY_READ_BACK,
	WAYS
};

static const char *const names[WAYS] = {
	"st.relaxed",
	"fence, st.relaxed",
	"fence, st.relaxed, fence",
	"st.release",
	"st.mmio.relaxed",
	"fence, st.mmio.relaxed",
	"fence, 16 bytes",
	"fence, 32 bytes by two lanes",
	"fence, atom.exch",
	"fence, st.relaxed, read back",
};

struct handover {
	struct handover_lines *lines; /* pinned */
	struct handover_times *times; /* on the device */
	uint8_t *memory;
	uint64_t bytes, at; /* at: of what is read next */
};

static __device__ __forceinline__ void
store_released(uint64_t *at, uint64_t value)
{
#if defined(__CUDA_ARCH__)
	asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
#else
	store_for_host(at, value);
#endif
}

static __device__ __forceinline__ void
store_mmio(uint64_t *at, uint64_t value)
{
#if defined(__CUDA_ARCH__)
	asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
#else
	store_for_host(at, value);
#endif
}

static __device__ __forceinline__ void
store_two(uint64_t *at, uint64_t value)
{
#if defined(__CUDA_ARCH__)
	asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %1};" ::"l"(at), "l"(value)
		     : "memory");
#else
	store_for_host(at, value);
#endif
}

static __device__ __forceinline__ void
exchange(uint64_t *at, uint64_t value)
{
#if defined(__CUDA_ARCH__)
	asm volatile("{.reg .u64 old; atom.exch.relaxed.sys.global.b64 old, [%0], %1;}" ::"l"(at),
		     "l"(value)
		     : "memory");
#else
	store_for_host(at, value);
#endif
}

/* By the first thread; WAY_32: by the second too. */
static __device__ __forceinline__ void
store_by(enum way way, uint64_t *order, uint64_t round)
{
	if (way != WAY_PLAIN && way != WAY_RELEASE && way != WAY_MMIO)
		fence_for_host();
	if (way == WAY_RELEASE)
		store_released(order, round);
	else if (way == WAY_MMIO || way == WAY_FENCED_MMIO)
		store_mmio(order, round);
	else if (way == WAY_16 || way == WAY_32)
		store_two(order + 2 * threadIdx.x, round);
	else if (way == WAY_EXCHANGED)
		exchange(order, round);
	else
		store_for_host(order, round);
	if (way == WAY_FENCED_TWICE)
		fence_for_host();
	if (way == WAY_READ_BACK && load_of_host(order) != round)
		order[1] = 0;
}

static __global__ void
order_kernel(struct handover_lines *lines, struct handover_times *times, enum way way,
	     uint64_t round PROBE_PARAM)
{
	uint64_t begin = device_clock();

	PROBE_BEGIN();
	let_next_begin();
	previous_done();
	while (device_clock() - begin < HOLD_NS)
		wait_briefly();
	for (uint32_t i = threadIdx.x; i < HANDOVER_PAYLOAD; i += THREADS)
		lines->payload[i] = round;
	__syncthreads();
	if (threadIdx.x == 0) {
		times->stored = device_clock();
		times->seen = times->read = 0;
	}
	if (threadIdx.x < (way == WAY_32 ? 2u : 1u))
		store_by(way, lines->order, round);
}

static __device__ void
look_for_answer(struct handover_lines *lines, struct handover_times *times, uint64_t round)
{
	uint64_t begin = device_clock(), now = begin;

	while (load_of_host(lines->answer) != round) {
		now = device_clock();
		if (now - begin > LIMIT_NS)
			return;
		wait_briefly();
	}
	times->seen = device_clock();
}

/* Block 0 looks for the answer, the others read a part each, as blocks of the experts do. */
static __global__ void
read_kernel(struct handover_lines *lines, struct handover_times *times, const uint8_t *from,
	    uint64_t round PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, read_memory);
	struct landing *landing =
	    (struct landing *)(read_memory + PIECES * LANDING_ROOM(PIECE_BYTES));

	PROBE_BEGIN();
	if (threadIdx.x == 0)
		landing_open(landing, PIECES);
	landings_opened();
	previous_done();
	if (blockIdx.x == 0) {
		if (threadIdx.x == 0)
			look_for_answer(lines, times, round);
		return;
	}
	from += (uint64_t)(blockIdx.x - 1) * BLOCK_BYTES;
	for (uint32_t i = landing_first(); i < PIECES; i += landing_step())
		landing_ask(landing, read_memory + i * LANDING_ROOM(PIECE_BYTES),
			    from + i * PIECE_BYTES, PIECE_BYTES);
	landing_wait(landing);
	if (threadIdx.x == 0)
		atomicMax((unsigned long long *)&times->read, (unsigned long long)device_clock());
}

extern "C" const char *
handover_way(uint32_t way)
{
	return way < WAYS ? names[way] : NULL;
}

extern "C" struct handover_lines *
handover_lines_of(struct handover *handover)
{
	return handover->lines;
}

static int
open_device(char ret_name[128], struct error *err)
{
	cudaDeviceProp prop;
	int r = cuda_check(cudaSetDevice(0), "cudaSetDevice", err);

	if (!r)
		r = cuda_check(cudaGetDeviceProperties(&prop, 0), "cudaGetDeviceProperties", err);
	if (!r)
		snprintf(ret_name, 128, "%.127s", prop.name);
	return r;
}

extern "C" int
handover_open(struct handover **ret, void *memory, uint64_t bytes, char ret_name[128],
	      struct error *err)
{
	struct handover *h = (struct handover *)calloc(1, sizeof *h);
	int r = h ? open_device(ret_name, err) : error_sys(err, -ENOMEM, "handing over");

	if (!r)
		r = cuda_check(cudaHostAlloc(&h->lines, sizeof *h->lines, cudaHostAllocMapped),
			       "cudaHostAlloc", err);
	if (!r) {
		memset(h->lines, 0, sizeof *h->lines);
		r = cuda_check(cudaMalloc(&h->times, sizeof *h->times), "cudaMalloc", err);
	}
	if (!r)
		r = cuda_check(cudaHostRegister(memory, bytes, cudaHostRegisterMapped),
			       "cudaHostRegister", err);
	if (r) {
		handover_close(h);
		return r;
	}
	h->memory = (uint8_t *)memory;
	h->bytes = bytes;
	*ret = h;
	return 0;
}

extern "C" void
handover_close(struct handover *h)
{
	if (!h)
		return;
	if (h->memory)
		cudaHostUnregister(h->memory);
	cudaFree(h->times);
	cudaFreeHost(h->lines);
	free(h);
}

/* The next part of the memory: never what a cache has of the round before. */
static const uint8_t *
next_part(struct handover *h, uint32_t blocks)
{
	uint64_t bytes = (uint64_t)blocks * BLOCK_BYTES, at = h->at;

	if (at + bytes > h->bytes)
		at = 0;
	h->at = at + bytes;
	return h->memory + at;
}

extern "C" int
handover_round(struct handover *h, uint32_t way, uint64_t round, uint64_t read_bytes,
	       struct handover_times *ret, struct error *err)
{
	uint64_t most = read_bytes < h->bytes ? read_bytes : h->bytes;
	uint32_t blocks = (uint32_t)(most / BLOCK_BYTES);
	uint32_t shared = PIECES * LANDING_ROOM(PIECE_BYTES) + (uint32_t)sizeof(struct landing);
	int r = cuda_launch_behind(true, "order_kernel", order_kernel, dim3(1), dim3(THREADS), 0,
				   NULL, err, h->lines, h->times, (enum way)way, round);

	if (!r)
		r = cuda_launch("read_kernel", read_kernel, dim3(1 + blocks), dim3(THREADS), shared,
				NULL, err, h->lines, h->times, next_part(h, blocks), round);
	if (!r)
		r = cuda_check(cudaStreamSynchronize(NULL), "handing over", err);
	return r ? r
		 : cuda_check(cudaMemcpy(ret, h->times, sizeof *ret, cudaMemcpyDeviceToHost),
			      "copying times", err);
}
