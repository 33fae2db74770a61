/* Watches a load from outside while it runs: the bytes its reader has, and the machine's memory in
 * use (file cache included), many times a second, on a thread of its own. */
#ifndef HEARTH_TESTS_BENCH_SAMPLER_H
#define HEARTH_TESTS_BENCH_SAMPLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define SAMPLER_ROOM 8192
#define SAMPLER_EVERY_MS 20

struct sampler {
	char dir[128]; /* of the stack */
	pthread_t thread;
	atomic_bool stop;
	double peak_bytes;
	uint32_t n;
	struct sample {
		double seconds; /* since sampler_begin */
		double bytes;   /* read so far */
	} samples[SAMPLER_ROOM];
};

double sampler_used_bytes(void); /* MemTotal - MemFree */
void sampler_begin(struct sampler *sampler, const char *dir);
double sampler_end(struct sampler *sampler); /* the peak of sampler_used_bytes */
/* GB/s over time. */
void sampler_write_svg(const struct sampler *sampler, const char *path);

#endif
