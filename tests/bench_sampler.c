#include "tests/bench_sampler.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/board.h"
#include "common/clock.h"

#define WIDTH 900.0
#define HEIGHT 300.0
#define INSET 50.0

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
	double most = 0.1, last = sampler->n ? sampler->samples[sampler->n - 1].seconds : 1;
	FILE *file = fopen(path, "we");

	if (!file)
		return;
	for (uint32_t i = 0; i < sampler->n; i++)
		most = sampler_rate(sampler, i) > most ? sampler_rate(sampler, i) : most;
	fprintf(
	    file,
	    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
	    "font-family=\"sans-serif\" font-size=\"11\"><rect width=\"100%%\" height=\"100%%\" "
	    "fill=\"#fff\"/>\n<text x=\"%g\" y=\"20\">the loader's throughput, cold and direct: "
	    "GB/s "
	    "over seconds</text>\n",
	    WIDTH, HEIGHT, INSET);
	for (uint32_t i = 0; i <= 4; i++)
		fprintf(file,
			"<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.2f</text>"
			"<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%.1f s</text>\n",
			INSET - 4, HEIGHT - INSET - i / 4.0 * (HEIGHT - 2 * INSET) + 4,
			most * i / 4, INSET + i / 4.0 * (WIDTH - 2 * INSET), HEIGHT - INSET + 16,
			last * i / 4);
	fputs("<polyline fill=\"none\" stroke=\"#2f6fb5\" stroke-width=\"1.5\" points=\"", file);
	for (uint32_t i = 0; i < sampler->n; i++)
		fprintf(file, "%.1f,%.1f ",
			INSET + sampler->samples[i].seconds / last * (WIDTH - 2 * INSET),
			HEIGHT - INSET - sampler_rate(sampler, i) / most * (HEIGHT - 2 * INSET));
	fputs("\"/>\n</svg>\n", file);
	if (fclose(file) == 0)
		printf("throughput over time: %s\n", path);
}
