#include "tests/bench_limits.h"

#include <stdio.h>

#include "worker/cuda_launch.cuh"

extern "C" {
#include "tests/bench_ram.h"
}

#define DEVICE_BYTES (2ull << 30) /* far more than the second cache */
#define THREADS 512u
#define BLOCKS_AN_SM 4u /* all that fit */
#define AHEAD 4         /* loads of a thread under way at once */
#define RUNS 5
#define TOGETHER_PASSES 16u

static int sms;

extern "C" int
bench_limits_open(uint32_t ordinal, char ret_name[128], struct error *err)
{
	cudaDeviceProp prop;
	int r = cuda_check(cudaSetDevice((int)ordinal), "cudaSetDevice", err);

	if (!r)
		r = cuda_check(cudaGetDeviceProperties(&prop, (int)ordinal),
			       "cudaGetDeviceProperties", err);
	if (r)
		return r;
	sms = prop.multiProcessorCount;
	snprintf(ret_name, 128, "%.127s", prop.name);
	return 0;
}

/* `never` is written to so that nothing is read in vain, if all bits happen to come out as 0x5a. */
static __global__ void
read_kernel(const uint4 *at, uint64_t n, uint32_t *never PROBE_PARAM)
{
	uint64_t step = (uint64_t)gridDim.x * blockDim.x;
	uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t sum = 0;

	for (; i + (AHEAD - 1) * step < n; i += AHEAD * step) {
		uint4 v[AHEAD];

#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			v[k] = at[i + k * step];
#pragma unroll
		for (int k = 0; k < AHEAD; k++)
			sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
	}
	for (; i < n; i += step)
		sum ^= at[i].x ^ at[i].y ^ at[i].z ^ at[i].w;
	if (sum == 0x5a5a5a5au)
		*never = sum;
}

/* What is timed, once. */
struct job {
	int (*run)(const struct job *job, struct error *err);
	void *to;
	const void *from;
	uint64_t bytes;
	uint32_t passes, blocks; /* of the kernel; blocks: an SM */
};

static int
run_copy(const struct job *job, struct error *err)
{
	return cuda_check(cudaMemcpyAsync(job->to, job->from, job->bytes, cudaMemcpyDefault, 0),
			  "cudaMemcpyAsync", err);
}

static int
run_kernel(const struct job *job, struct error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < job->passes && !r; i++)
		r = cuda_launch("read_kernel", read_kernel, dim3((uint32_t)sms * job->blocks),
				dim3(THREADS), 0, NULL, err, (const uint4 *)job->from,
				job->bytes / sizeof(uint4), (uint32_t *)job->to);
	return r;
}

static int
time_once(const struct job *job, cudaEvent_t begin, cudaEvent_t end, double *ret_seconds,
	  struct error *err)
{
	float ms = 0;
	int r = cuda_check(cudaEventRecord(begin, 0), "cudaEventRecord", err);

	if (!r)
		r = job->run(job, err);
	if (!r)
		r = cuda_check(cudaEventRecord(end, 0), "cudaEventRecord", err);
	if (!r)
		r = cuda_check(cudaEventSynchronize(end), "cudaEventSynchronize", err);
	if (!r)
		r = cuda_check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime", err);
	*ret_seconds = ms / 1e3;
	return r;
}

/* The shortest of `runs`. */
static int
time_job(const struct job *job, int runs, double *ret_seconds, struct error *err)
{
	cudaEvent_t begin = NULL, end = NULL;
	double seconds, best = 1e9;
	int r = cuda_check(cudaEventCreate(&begin), "cudaEventCreate", err);

	if (!r)
		r = cuda_check(cudaEventCreate(&end), "cudaEventCreate", err);
	for (int i = 0; i < runs && !r; i++) {
		r = time_once(job, begin, end, &seconds, err);
		best = seconds < best ? seconds : best;
	}
	if (begin)
		cudaEventDestroy(begin);
	if (end)
		cudaEventDestroy(end);
	*ret_seconds = best;
	return r;
}

/* `touched`: bytes read and written by one run; device memory of twice DEVICE_BYTES is the job's.
 */
static int
time_on_device(struct job *job, double touched, double *ret_gb_s, struct error *err)
{
	uint8_t *memory;
	double seconds = 0;
	int r = cuda_check(cudaMalloc(&memory, 2 * DEVICE_BYTES), "cudaMalloc", err);

	if (r)
		return r;
	job->from = memory;
	job->to = memory + DEVICE_BYTES;
	job->bytes = DEVICE_BYTES;
	r = cuda_check(cudaMemset(memory, 1, 2 * DEVICE_BYTES), "cudaMemset", err);
	if (!r)
		r = time_job(job, RUNS, &seconds, err);
	cudaFree(memory);
	if (!r)
		*ret_gb_s = touched / seconds / 1e9;
	return r;
}

extern "C" int
bench_limits_copy(double *ret_gb_s, struct error *err)
{
	struct job job = { run_copy, NULL, NULL, 0, 1, 0 };

	return time_on_device(&job, 2.0 * DEVICE_BYTES, ret_gb_s, err);
}

extern "C" int
bench_limits_read(double *ret_gb_s, struct error *err)
{
	struct job job = { run_kernel, NULL, NULL, 0, 1, BLOCKS_AN_SM };

	return time_on_device(&job, 1.0 * DEVICE_BYTES, ret_gb_s, err);
}

/* Registers what the job reads, and makes `to_bytes` of device memory for it. */
static int
host_open(struct job *job, uint64_t to_bytes, struct error *err)
{
	void *at = (void *)job->from;
	int r = cuda_check(cudaHostRegister(at, job->bytes, cudaHostRegisterMapped),
			   "cudaHostRegister", err);

	if (r)
		return r;
	r = cuda_check(cudaMalloc(&job->to, to_bytes), "cudaMalloc", err);
	if (r)
		cudaHostUnregister(at);
	return r;
}

static void
host_close(const struct job *job)
{
	cudaFree(job->to);
	cudaHostUnregister((void *)job->from);
}

extern "C" int
bench_limits_to_device(void *at, uint64_t bytes, double *ret_gb_s, struct error *err)
{
	struct job job = { run_copy, NULL, at, bytes, 1, 0 };
	double seconds = 0;
	int r = host_open(&job, bytes, err);

	if (r)
		return r;
	r = time_job(&job, RUNS, &seconds, err);
	host_close(&job);
	if (!r)
		*ret_gb_s = (double)bytes / seconds / 1e9;
	return r;
}

/* How many blocks do best differs from one machine to the next: the best of some. */
static int
time_in_place(struct job *job, double *ret_gb_s, struct error *err)
{
	double seconds = 0, best = 0;
	uint32_t best_blocks = 1;
	int r = 0;

	for (job->blocks = 1; job->blocks <= BLOCKS_AN_SM && !r; job->blocks *= 2) {
		r = time_job(job, RUNS, &seconds, err);
		if (r || (double)job->bytes / seconds <= best)
			continue;
		best = (double)job->bytes / seconds;
		best_blocks = job->blocks;
	}
	job->blocks = best_blocks;
	*ret_gb_s = best / 1e9;
	return r;
}

extern "C" int
bench_limits_in_place(void *at, uint64_t bytes, double *ret_gb_s, struct error *err)
{
	struct job job = { run_kernel, NULL, at, bytes, 1, 0 };
	int r = host_open(&job, sizeof(uint32_t), err);

	if (r)
		return r;
	r = time_in_place(&job, ret_gb_s, err);
	host_close(&job);
	return r;
}

/* The CPU begins once the GPU's blocks are chosen, and ends behind the GPU's last pass. */
static int
time_together(struct job *job, uint32_t threads, double *ret_gpu_gb_s, double *ret_cpu_gb_s,
	      struct error *err)
{
	struct bench_ram *ram;
	double seconds = 0, alone;
	int r = time_in_place(job, &alone, err);

	job->passes = TOGETHER_PASSES;
	if (!r)
		r = bench_ram_begin(&ram, job->from, job->bytes, threads, err);
	if (r)
		return r;
	r = time_job(job, 1, &seconds, err);
	*ret_cpu_gb_s = bench_ram_end(ram);
	*ret_gpu_gb_s = (double)job->bytes * job->passes / seconds / 1e9;
	return r;
}

extern "C" int
bench_limits_together(void *at, uint64_t bytes, uint32_t threads, double *ret_gpu_gb_s,
		      double *ret_cpu_gb_s, struct error *err)
{
	struct job job = { run_kernel, NULL, at, bytes, 1, 0 };
	int r = host_open(&job, sizeof(uint32_t), err);

	if (r)
		return r;
	r = time_together(&job, threads, ret_gpu_gb_s, ret_cpu_gb_s, err);
	host_close(&job);
	return r;
}
