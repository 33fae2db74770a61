#include "loader/load_pages.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/checked.h"
#include "common/log.h"

/* Ahead of readers that wait for a drive, one thread is enough (it populates 2 GB/s of small pages,
 * 6 of huge ones).  Readers that copy from the cache are as fast at it themselves, and with threads
 * beside them slower: their cores are taken (28 GB/s alone, 14 beside 4, on 16 cores). */
#define AHEAD_THREADS 1

/* What is needed with no expert resident: all but their slices, and the window, which is as large
 * as the largest of these. */
static uint64_t
room_floor(const struct load *load, uint64_t *ret_window)
{
	const struct placement *placement = &load->placement;
	uint64_t experts = 0, window = 0;

	if (load_has_window(load)) {
		*ret_window = load->resident.slot_bytes * load->resident.n_experts;
		for (uint32_t i = 1; i < placement->n_slices; i++)
			experts += placement->slices[i].bytes;
		return load->head.bytes - experts + *ret_window;
	}
	for (uint32_t i = 1; i < placement->n_slices; i++) {
		experts += placement->slices[i].bytes;
		if (placement->slices[i].bytes > window)
			window = placement->slices[i].bytes;
	}
	*ret_window = window;
	return load->head.bytes - experts + window;
}

static int
reserve_once(struct load *load, bool without_pool, struct error *err)
{
	uint64_t window, floor = room_floor(load, &window);
	const struct reserve_want want = {
		.need = { .model = load->files.shards[0].path,
			  .bytes = load->head.bytes,
			  .floor = floor,
			  .window = window },
		.available = &load->available,
		.root = load->options->root,
		.pages = load->options->pages,
		.numa_node = load->options->numa_node,
		.without_pool = without_pool,
	};
	int rc = reserve_arena(&load->arena, &load->reserve, &want, err);

	if (rc < 0)
		return rc;
	rc = load->options->populate->populate(load->arena.base, load->placement.slices[0].offset);
	if (rc == 0)
		return 0;
	arena_close(&load->arena);
	/* "Bad address": touching it would have been a SIGBUS. */
	return error_sys(err, rc == -EFAULT ? -ENOMEM : rc,
			 "no memory for the arena's directory (%s pages)",
			 pages_word(load->reserve.asked));
}

int
load_reserve(struct load *load, struct error *err)
{
	int rc = reserve_once(load, load->without_pool, err);

	if (rc == -ENOMEM && load->options->pages == ARENA_PAGES_AUTO &&
	    load->reserve.asked == ARENA_PAGES_HUGETLB)
		rc = reserve_once(load, true, err);
	return rc;
}

int
load_populate(struct load *load, struct error *err)
{
	const struct populate_config config = {
		.calls = load->options->populate,
		.base = load->arena.base,
		.bytes = load->arena.bytes,
		/* Registering ahead of the readers has touched all that they may write. */
		.threads = load->choice.direct && !load->options->pin_before ? AHEAD_THREADS : 0,
		.watch = !load->adopted && load->reserve.asked == ARENA_PAGES_THP,
	};
	int rc = populate_open(&load->populate, &config, err);

	if (rc < 0)
		return rc;
	populate_skip(load->populate, 0, load->placement.slices[0].offset);
	for (uint32_t i = 0; i < load->placement.n_slices; i++) {
		const struct arena_slice *slice = &load->placement.slices[i];

		if (load->filled[i])
			populate_skip(load->populate, slice->offset, slice->offset + slice->bytes);
	}
	populate_start(load->populate);
	return 0;
}

bool
load_pages_ran_out(const struct load *load)
{
	return load->options->pages == ARENA_PAGES_AUTO && !load->adopted && load->populate &&
	       load->reserve.asked == ARENA_PAGES_HUGETLB && populate_said(load->populate).failed;
}

void
load_pages_explain(const struct load *load, int rc, struct error *err)
{
	struct error line = *err;

	if (rc == -ENOMEM && load->options->pages == ARENA_PAGES_HUGETLB && load->populate)
		error_set(err, rc,
			  "%.300s: the pool does not give the pages it had set aside, a control "
			  "group's limit (hugetlb.2MB.max)?, want --pages auto",
			  line.text);
}

static void
end_populate(struct load *load)
{
	struct populate_said said;

	if (!load->populate)
		return;
	populate_stop(load->populate);
	said = populate_said(load->populate);
	populate_close(load->populate);
	load->populate = NULL;
	load->reserve.slow = said.slow;
	if (said.bytes && said.ns)
		log_info("populated %" PRIu64 " MiB at %.2f GB/s a thread, %" PRIu64
			 " %% ahead of the readers%s%s",
			 said.bytes >> 20, (double)said.bytes / (double)said.ns,
			 100 * said.ahead_bytes / said.bytes,
			 said.overtaken ? ", which overtook it" : "",
			 said.slow ? "; huge pages came too slowly and were given up" : "");
}

/* A process sees only what it has mapped itself: of a warm arena that is nothing yet. */
static void
read_got(struct load *load, struct pages_got *ret)
{
	uint64_t at = (uintptr_t)load->arena.base;
	struct error err;

	*ret = (struct pages_got){ 0 };
	if (load->adopted && madvise(load->arena.base, load->arena.bytes, MADV_POPULATE_READ) < 0)
		log_warn("the warm arena's pages cannot be looked at: %s", strerror(errno));
	if (pages_read_mapping(ret, "/proc/self/smaps", at, at + load->arena.bytes, &err) < 0)
		log_warn("%s", err.text);
}

/* Nobody knows any more how a warm arena was reserved. */
static void
take_over(struct reserve *reserve, const struct load_options *options)
{
	char sys[PATH_MAX];

	*reserve = (struct reserve){ .wanted = options->pages, .numa_node = NUMA_NODE_NONE };
	snprintf(sys, sizeof(sys), "%s/sys", options->root);
	pages_read_kernel(&reserve->kernel, sys);
	snprintf(reserve->numa_note, sizeof(reserve->numa_note),
		 "taken over as the loader before left it");
}

void
load_publish_pages(struct load *load)
{
	struct reserve *reserve = &load->reserve;
	struct pages_got got;
	char advice[256];
	Hearth__Pages *pages;

	end_populate(load);
	if (load->adopted)
		take_over(reserve, load->options);
	read_got(load, &got);
	reserve_advice(advice, sizeof(advice), reserve, &got, load->arena.bytes);
	pages = board_pages(board_edit(load->board));
	if (pages) {
		board_text(&pages->wanted, "%s", pages_word(load->options->pages));
		board_text(&pages->got, "%s", pages_got_word(&got));
		pages->huge_bytes = got.thp + got.hugetlb;
		pages->bytes = got.bytes;
		board_text(&pages->advice, "%s", advice);
		pages->numa_node = reserve->numa_node;
		board_text(&pages->numa_note, "%s", reserve->numa_note);
	}
	board_publish(load->board);
	log_info("pages: %s, %" PRIu64 " of %" PRIu64 " MiB huge (--pages %s)%s%s",
		 got.bytes ? pages_got_word(&got) : "none yet", (got.thp + got.hugetlb) >> 20,
		 got.bytes >> 20, pages_word(load->options->pages), advice[0] ? ": " : "", advice);
}
