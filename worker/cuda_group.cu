/* The list of who chose which expert: experts in ascending order, and of each its choices in the
 * order of tokens.  One block. */
#include "worker/cuda_group.cuh"
#include "worker/cuda_launch.cuh"

#define WARPS 8u
#define THREADS (WARPS * 32)
#define NOBODY 0xffffffffu

/* How many of the choices, whole fours of them, are e's. */
static __device__ __forceinline__ uint32_t
count_of(const uint32_t *chosen, uint32_t pairs, uint32_t e)
{
	uint32_t n = 0;

#pragma unroll 4
	for (uint32_t i = 0; i < pairs; i += 4) {
		uint4 of = *(const uint4 *)(chosen + i);

		n += (of.x == e) + (of.y == e) + (of.z == e) + (of.w == e);
	}
	return n;
}

/* The sum of the values of the threads before this one, and of all.  `room`: one of each warp. */
static __device__ __forceinline__ uint32_t
sum_before(uint32_t value, uint32_t *room, uint32_t *ret_all)
{
	uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = value, all = 0;

#pragma unroll
	for (uint32_t step = 1; step < 32; step *= 2) {
		uint32_t other = __shfl_up_sync(0xffffffffu, sum, step);

		sum += lane >= step ? other : 0;
	}
	__syncthreads();
	if (lane == 31)
		room[warp] = sum;
	__syncthreads();
	for (uint32_t i = 0; i < WARPS; i++) {
		sum += i < warp ? room[i] : 0;
		all += room[i];
	}
	*ret_all = all;
	return sum - value;
}

static __global__ void
__launch_bounds__(THREADS) group_kernel(struct cuda_moe moe, uint32_t pairs PROBE_PARAM)
{
	CUDA_SHARED(uint32_t, group_memory); /* the choices, rounded up to 4, and WARPS */
	uint32_t padded = (pairs + 3) / 4 * 4, *room = group_memory + padded;
	uint32_t groups = 0, members = 0;

	PROBE_BEGIN();
	previous_done();
	PROBE(PROBE_WAITED);
	let_next_begin();
	for (uint32_t i = threadIdx.x; i < padded; i += THREADS)
		group_memory[i] = i < pairs ? __ldcg(moe.chosen + i) : NOBODY;
	__syncthreads();
	for (uint32_t first = 0; first < moe.experts; first += THREADS) {
		uint32_t e = first + threadIdx.x, new_groups, new_members;
		uint32_t count = e < moe.experts ? count_of(group_memory, padded, e) : 0;
		uint32_t group = groups + sum_before(count > 0, room, &new_groups);
		uint32_t member = members + sum_before(count, room, &new_members);

		if (count > 0)
			moe.groups[group] = cuda_group{ e, member, count };
		for (uint32_t i = 0; i < pairs && count > 0; i++) {
			if (group_memory[i] != e)
				continue;
			moe.members[member++] = i;
			count--;
		}
		groups += new_groups;
		members += new_members;
	}
	for (uint32_t i = groups + threadIdx.x; i < CUDA_GROUPS(moe.experts, pairs); i += THREADS)
		moe.groups[i] = cuda_group{ 0, 0, 0 };
	PROBE_END();
}

int
cuda_group_choices(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	uint32_t pairs = tokens * moe->top_k;
	uint32_t shared = ((pairs + 3) / 4 * 4 + WARPS) * (uint32_t)sizeof(uint32_t);

	return cuda_launch_behind(moe->behind_copy, "group_kernel", group_kernel, 1, THREADS,
				  shared, stream, err, *moe, pairs);
}
