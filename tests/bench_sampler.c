#include "tests/bench_sampler.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/board.h"
#include "common/clock.h"
#include "tests/plot.h"

double
sampler_used_bytes(void)
{
	FILE *meminfo = fopen("/proc/meminfo", "re");
	double total = 0, unused = 0;
	char line[128];

	while (meminfo && fgets(line, sizeof(line), meminfo)) {
		sscanf(line, "MemTotal: %lf", &total);
		sscanf(line, "MemFree: %lf", &unused);
	}
	if (meminfo)
		fclose(meminfo);
	return (total - unused) * 1024;
}

static void
sampler_take(struct sampler *sampler, uint64_t begin)
{
	double used = sampler_used_bytes();
	Hearth__State *loader;
	struct error ignored;

	if (used > sampler->peak_bytes)
		sampler->peak_bytes = used;
	if (sampler->n == SAMPLER_ROOM ||
	    board_ask(sampler->dir, "loader", 1000, &loader, &ignored) < 0)
		return;
	if (loader->reader)
		sampler->samples[sampler->n++] =
		    (struct sample){ (double)(clock_ns() - begin) / 1e9,
				     (double)loader->reader->bytes };
	hearth__state__free_unpacked(loader, NULL);
}

/* The rhythm of the samples is the point here: a clock's, not an event's. */
static void *
sampler_run(void *arg)
{
	struct timespec pause = { .tv_nsec = SAMPLER_EVERY_MS * 1000000 };
	struct sampler *sampler = arg;
	uint64_t begin = clock_ns();

	while (!atomic_load(&sampler->stop)) {
		sampler_take(sampler, begin);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

void
sampler_begin(struct sampler *sampler, const char *dir)
{
	snprintf(sampler->dir, sizeof(sampler->dir), "%s", dir);
	sampler->peak_bytes = 0;
	sampler->n = 0;
	atomic_store(&sampler->stop, false);
	pthread_create(&sampler->thread, NULL, sampler_run, sampler);
}

double
sampler_end(struct sampler *sampler)
{
	atomic_store(&sampler->stop, true);
	pthread_join(sampler->thread, NULL);
	return sampler->peak_bytes;
}

/* Between two samples that lie far enough apart to mean something. */
static double
sampler_rate(const struct sampler *sampler, uint32_t i)
{
	const struct sample *b = &sampler->samples[i], *a = i >= 5 ? b - 5 : &sampler->samples[0];

	return b->seconds > a->seconds ? (b->bytes - a->bytes) / (b->seconds - a->seconds) / 1e9
				       : 0;
}

void
sampler_write_svg(const struct sampler *sampler, const char *path)
{
	double last = sampler->n ? sampler->samples[sampler->n - 1].seconds : 1;
	struct plot plot = { .most_x = last, .most_y = 0.1 };
	static struct plot_point points[SAMPLER_ROOM];

	for (uint32_t i = 0; i < sampler->n; i++) {
		points[i] =
		    (struct plot_point){ sampler->samples[i].seconds, sampler_rate(sampler, i) };
		plot.most_y = points[i].y > plot.most_y ? points[i].y : plot.most_y;
	}
	if (!plot_open(&plot, path, "the loader's throughput, cold and direct: GB/s over seconds",
		       "s"))
		return;
	plot_line(&plot, "#2f6fb5", NULL, false, points, sampler->n);
	if (plot_close(&plot))
		printf("throughput over time: %s\n", path);
}
