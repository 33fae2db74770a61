#include "loader/scatter_read.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "common/checked.h"

#define SCRAP_BYTES (1ull << 20) /* a gap that is longer is read in several parts */
#define MOST_PARTS 1024u         /* Linux takes no more in one call */

/* A block that no range has whole, with memory of its own. */
struct edge {
	uint64_t at;
	uint8_t *bytes;
};

struct scatter {
	const struct scatter_range *ranges;
	uint32_t n, n_edges;
	uint64_t block;
	uint64_t from, to;                   /* whole blocks of the file that hold the ranges */
	uint64_t gap;                        /* the longest, in whole blocks */
	struct edge edges[2 * SCATTER_MOST]; /* in the order of the file, each once */
	uint8_t *scrap;
};

/* The parts of one call, from `at` on. */
struct parts {
	struct iovec list[MOST_PARTS];
	int n;
	uint64_t at;
};

void
bounce_close(struct bounce *bounce)
{
	free(bounce->at);
	*bounce = (struct bounce){ 0 };
}

int
bounce_room(struct bounce *bounce, uint64_t bytes, uint64_t align)
{
	void *at;

	if (bounce->bytes >= bytes && bounce->align >= align)
		return 0;
	if (posix_memalign(&at, align, bytes) != 0)
		return -ENOMEM;
	free(bounce->at);
	*bounce = (struct bounce){ .at = at, .bytes = bytes, .align = align };
	return 0;
}

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void
scatter_copy_out(const struct scatter_range *range, uint64_t at, const uint8_t *bytes, uint64_t n)
{
	uint64_t begin = at > range->offset ? at : range->offset;
	uint64_t end = least(at + n, range->offset + range->bytes);

	if (begin < end)
		memcpy(range->place + (begin - range->offset), bytes + (begin - at), end - begin);
}

static void
add_edge(struct scatter *s, uint64_t at)
{
	if (at % s->block == 0)
		return;
	at = round_down(at, s->block);
	if (s->n_edges == 0 || s->edges[s->n_edges - 1].at != at)
		s->edges[s->n_edges++].at = at;
}

static void
survey(struct scatter *s, const struct scatter_file *file)
{
	const struct scatter_range *last = &s->ranges[s->n - 1];

	for (uint32_t i = 0; i < s->n; i++) {
		const struct scatter_range *range = &s->ranges[i];
		uint64_t gap = i ? range->offset - (range[-1].offset + range[-1].bytes) : 0;

		if (round_up(gap, s->block) > s->gap)
			s->gap = round_up(gap, s->block);
		add_edge(s, range->offset);
		add_edge(s, range->offset + range->bytes);
	}
	s->gap = least(s->gap, SCRAP_BYTES);
	s->from = round_down(s->ranges[0].offset, s->block);
	s->to = least(round_up(last->offset + last->bytes, s->block),
		      round_down(file->bytes, s->block));
}

static int
take_memory(struct scatter *s, struct bounce *bounce)
{
	uint64_t align = s->block > sizeof(void *) ? s->block : sizeof(void *);
	int rc = bounce_room(bounce, s->n_edges * s->block + s->gap + align, align);

	for (uint32_t i = 0; i < s->n_edges && rc == 0; i++)
		s->edges[i].bytes = bounce->at + i * s->block;
	s->scrap = bounce->at + s->n_edges * s->block;
	return rc;
}

/* What stands in the file from `from` to `end`, less what is there already or lies behind the last
 * block; and the gap before it. */
static void
put(struct parts *parts, const struct scatter *s, uint64_t from, uint64_t end, uint8_t *place)
{
	uint64_t n;

	end = least(end, s->to);
	while (parts->at < from && from < s->to) {
		n = least(from - parts->at, s->gap);
		assert(parts->n < (int)MOST_PARTS);
		parts->list[parts->n++] = (struct iovec){ s->scrap, n };
		parts->at += n;
	}
	if (parts->at >= end)
		return;
	assert(parts->n < (int)MOST_PARTS);
	parts->list[parts->n++] = (struct iovec){ place + (parts->at - from), end - parts->at };
	parts->at = end;
}

static void
point_at_blocks(const struct scatter *s, uint64_t at, struct parts *ret)
{
	uint32_t edge = 0;

	ret->n = 0;
	ret->at = at;
	for (uint32_t i = 0; i < s->n; i++) {
		const struct scatter_range *range = &s->ranges[i];
		uint64_t end = range->offset + range->bytes;
		uint64_t inner = round_up(range->offset, s->block);
		uint64_t inner_end = round_down(end, s->block);

		for (; edge < s->n_edges && s->edges[edge].at < inner; edge++)
			put(ret, s, s->edges[edge].at, s->edges[edge].at + s->block,
			    s->edges[edge].bytes);
		if (inner < inner_end)
			put(ret, s, inner, inner_end, range->place + (inner - range->offset));
		for (; edge < s->n_edges && s->edges[edge].at < end; edge++)
			put(ret, s, s->edges[edge].at, s->edges[edge].at + s->block,
			    s->edges[edge].bytes);
	}
}

static void
place_edges(const struct scatter *s, uint64_t end)
{
	uint32_t range = 0;

	for (uint32_t i = 0; i < s->n_edges && s->edges[i].at + s->block <= end; i++) {
		const struct edge *edge = &s->edges[i];

		while (s->ranges[range].offset + s->ranges[range].bytes <= edge->at)
			range++;
		for (uint32_t k = range; k < s->n && s->ranges[k].offset < edge->at + s->block; k++)
			scatter_copy_out(&s->ranges[k], edge->at, edge->bytes, s->block);
	}
}

int
scatter_read(const struct scatter_file *file, const struct scatter_range *ranges, uint32_t n,
	     struct bounce *bounce, uint64_t *ret_end)
{
	struct scatter s = { .ranges = ranges, .n = n, .block = file->block };
	struct parts parts;
	uint64_t at;
	int64_t got = 0;
	int rc;

	survey(&s, file);
	*ret_end = at = s.from;
	rc = take_memory(&s, bounce);
	if (rc < 0)
		return rc;
	while (at < s.to) {
		point_at_blocks(&s, at, &parts);
		got = file->io->readv_at(file->fd, parts.list, parts.n, at);
		if (got == -EINTR)
			continue;
		if (got <= 0 || (uint64_t)got < s.block)
			break; /* a read that ends off a block cannot be taken up there */
		at += round_down((uint64_t)got, s.block);
	}
	place_edges(&s, at);
	*ret_end = at;
	return got < 0 ? (int)got : 0;
}
