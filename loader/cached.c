#include "loader/cached.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

struct probe {
	const struct cache_calls *calls;
	const struct cached_range *ranges;
	uint64_t n;
	uint64_t random;
	struct cached found;
};

/* splitmix64, by Sebastiano Vigna. */
static uint64_t
next_random(struct probe *probe)
{
	uint64_t x = probe->random += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t
sum_bytes(const struct cached_range *ranges, uint64_t n)
{
	uint64_t bytes = 0;

	for (uint64_t i = 0; i < n; i++)
		bytes += ranges[i].bytes;
	return bytes;
}

/* A place anywhere in these ranges, each byte as likely as any other; NULL: they are empty. */
static const struct cached_range *
pick(struct probe *probe, const struct cached_range *ranges, uint64_t n, uint64_t *ret_offset)
{
	uint64_t bytes = sum_bytes(ranges, n);
	uint64_t at = bytes ? next_random(probe) % bytes : 0;

	for (uint64_t i = 0; i < n; i++) {
		if (at < ranges[i].bytes) {
			*ret_offset = ranges[i].offset + at;
			return &ranges[i];
		}
		at -= ranges[i].bytes;
	}
	return NULL;
}

/* Whether read-ahead is off for the files of all ranges. */
static void
expect_random(const struct probe *probe, bool random)
{
	for (uint64_t i = 0; i < probe->n; i++)
		if (i == 0 || probe->ranges[i].fd != probe->ranges[i - 1].fd)
			probe->calls->expect_random(probe->ranges[i].fd, random);
}

static bool
count_pages(struct probe *probe, int (*count)(int, uint64_t, uint64_t, uint64_t *))
{
	struct cached found = { 0 };

	for (uint64_t i = 0; i < probe->n; i++) {
		const struct cached_range *range = &probe->ranges[i];
		uint64_t pages = 0, bytes;

		if (range->bytes == 0)
			continue;
		if (count(range->fd, range->offset, range->bytes, &pages) < 0)
			return false;
		bytes = pages * CACHE_PAGE;
		found.looked += range->bytes;
		found.cached += bytes < range->bytes ? bytes : range->bytes;
	}
	probe->found = found;
	return true;
}

static bool
probe_stat(struct probe *probe)
{
	return count_pages(probe, probe->calls->stat_pages);
}

static bool
probe_core(struct probe *probe)
{
	return count_pages(probe, probe->calls->core_pages);
}

static bool
probe_nowait(struct probe *probe)
{
	struct cached found = { 0 };
	bool can = true;

	expect_random(probe, true);
	for (int i = 0; i < CACHED_SAMPLES && can; i++) {
		const struct cached_range *range;
		uint64_t offset;
		int64_t n;
		char byte;

		range = pick(probe, probe->ranges, probe->n, &offset);
		if (!range)
			break;
		n = probe->calls->read_nowait(range->fd, &byte, 1, offset);
		can = n >= 0 || n == -EAGAIN;
		found.looked += CACHE_PAGE;
		found.cached += n > 0 ? CACHE_PAGE : 0;
	}
	expect_random(probe, false);
	if (can)
		probe->found = found;
	return can;
}

static void
time_file(struct probe *probe, const struct cached_range *ranges, uint64_t n)
{
	char to[CACHED_READ_BYTES];
	const struct cache_calls *calls = probe->calls;

	if (ranges->file_bytes <= CACHED_SMALL_FILE)
		return;
	for (int i = 0; i < CACHED_READS; i++) {
		uint64_t offset, begin, last = ranges->file_bytes - CACHED_READ_BYTES;
		int64_t got;

		if (!pick(probe, ranges, n, &offset))
			return;
		offset -= offset % CACHE_PAGE;
		begin = calls->now_ns();
		got = calls->read_at(ranges->fd, to, sizeof(to), offset < last ? offset : last);
		probe->found.looked += CACHED_READ_BYTES;
		if (got > 0 && calls->now_ns() - begin < CACHED_READ_NS)
			probe->found.cached += CACHED_READ_BYTES;
	}
}

static bool
probe_time(struct probe *probe)
{
	uint64_t end;

	expect_random(probe, true);
	for (uint64_t i = 0; i < probe->n; i = end) {
		for (end = i + 1; end < probe->n && probe->ranges[end].fd == probe->ranges[i].fd;
		     end++)
			;
		time_file(probe, &probe->ranges[i], end - i);
	}
	expect_random(probe, false);
	return probe->found.looked > 0;
}

void
cached_measure(struct cached *ret, const struct cache_calls *calls,
	       const struct cached_range *ranges, uint64_t n, uint64_t seed)
{
	static const struct {
		const char *name;
		bool (*look)(struct probe *probe);
	} probes[] = {
		{ "cachestat", probe_stat },
		{ "preadv2", probe_nowait },
		{ "mincore", probe_core },
		{ "timed reads", probe_time },
	};
	struct probe probe = { .calls = calls, .ranges = ranges, .n = n, .random = seed };

	*ret = (struct cached){ .probe = "none" };
	if (sum_bytes(ranges, n) == 0)
		return;
	for (size_t i = 0; i < sizeof(probes) / sizeof(*probes); i++) {
		if (!probes[i].look(&probe))
			continue;
		probe.found.probe = probes[i].name;
		*ret = probe.found;
		return;
	}
}
