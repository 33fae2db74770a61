#include "loader/load_choice.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "loader/cached.h"
#include "loader/fetch.h"
#include "loader/pack.h"

/* The stretches of the files that are to be read. */
static int
look_at_cache(const struct load *load, struct cached *ret, struct error *err)
{
	const struct placement *placement = &load->placement;
	struct cached_range *ranges = calloc(placement->n_runs + 1, sizeof(*ranges));
	uint64_t n = 0;

	if (!ranges)
		return error_sys(err, -ENOMEM, "%" PRIu64 " ranges", placement->n_runs);
	for (uint32_t shard = 0; shard < load->files.n_shards; shard++)
		for (uint64_t i = 0; i < placement->n_runs; i++) {
			const struct run *run = &placement->runs[i];

			if (run->shard == shard && !load->filled[run->slice])
				ranges[n++] =
				    (struct cached_range){ .fd = load->files.shards[shard].fd,
							   .offset = run->file_offset,
							   .bytes = run->bytes,
							   .file_bytes =
							       load->files.shards[shard].bytes };
		}
	cached_measure(ret, load->options->cache, ranges, n, clock_ns() ^ (uint64_t)getpid());
	free(ranges);
	return 0;
}

/* What the arena will still take of the available memory.  Of one that was taken over, what is
 * filled is resident; pages of the pool are not among what is available. */
static uint64_t
arena_to_come(const struct load *load)
{
	uint64_t bytes = load->budget.set ? load->budget.resident : load->head.bytes;

	if (!load->adopted && load->reserve.asked == ARENA_PAGES_HUGETLB)
		return 0;
	if (load->budget.set)
		return bytes;
	for (uint32_t i = 0; i < load->placement.n_slices; i++)
		if (load->filled[i])
			bytes -= load->placement.slices[i].bytes;
	return bytes;
}

int
load_check_direct(const struct load *load, struct error *err)
{
	struct fetch fetch;
	int rc;

	if (load->files.hashes && !load->files.aligned)
		return error_set(err, -ENOTSUP,
				 "%s: its experts do not lie at whole blocks of %u bytes, want "
				 "--read buffered or a new pack",
				 load->files.shards[0].path, PACK_ALIGN);
	rc = fetch_open(&fetch, load->options->io, &load->files, &load->placement, NULL, true, NULL,
			err);
	if (rc == 0)
		fetch_close(&fetch);
	return rc;
}

/* What --read auto does. */
static int
choose(struct load *load, struct error *err)
{
	struct choice_facts facts = load->choice.facts;
	struct cached cached = { 0 };
	struct error why;
	int rc;

	if (load->pieces.bytes == 0 && !facts.budget) {
		snprintf(load->choice.reason, sizeof(load->choice.reason),
			 "auto: there is nothing to read");
		return 0;
	}
	rc = look_at_cache(load, &cached, err);
	if (rc < 0)
		return rc;
	facts.probe = cached.probe;
	facts.looked_bytes = cached.looked;
	facts.cached_bytes = cached.cached;
	choice_make(&load->choice, &facts);
	if (load->choice.direct && load_check_direct(load, &why) < 0)
		load_fall_back(load, why.text);
	return 0;
}

static uint32_t
count_threads(const struct load *load)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (load->options->threads)
		return load->options->threads;
	return reader_default_threads(cores < 1 ? 1 : (uint32_t)cores, load->choice.direct);
}

int
load_choose(struct load *load, struct error *err)
{
	const char *read = load->options->read;
	int rc = 0;

	load->choice = (struct choice){
		.facts = { .budget = load->budget.set,
			   .available = load->available.bytes,
			   .limit = load->available.limit,
			   .arena = arena_to_come(load),
			   .read = load->budget.set ? load->budget.outside : load->pieces.bytes,
			   .probe = "" },
		.direct = strcmp(read, "direct") == 0,
	};
	load->fallback[0] = '\0';
	snprintf(load->choice.reason, sizeof(load->choice.reason), "--read %s", read);
	if (strcmp(read, "auto") == 0)
		rc = choose(load, err);
	load->threads = count_threads(load);
	return rc;
}

bool
load_choose_again(struct load *load, uint64_t outside)
{
	struct choice_facts facts = load->choice.facts;
	bool direct = load->choice.direct, refused = load->fallback[0] != '\0';
	Hearth__State *state;
	struct error why;

	if (strcmp(load->options->read, "auto") != 0)
		return false;
	available_read(&load->available, load->options->root);
	facts.built = true;
	facts.available = load->available.bytes;
	facts.limit = load->available.limit;
	facts.arena = 0;
	facts.read = outside;
	choice_make(&load->choice, &facts);
	if (refused)
		load->choice.direct = false; /* it was tried once */
	else if (load->choice.direct && !direct && load_check_direct(load, &why) < 0)
		load_fall_back(load, why.text);
	log_info("reader %s", load->choice.reason);
	state = board_edit(load->board);
	if (state->reader)
		load_fill_choice(load, state->reader);
	board_publish(load->board);
	return load->choice.direct != direct;
}

void
load_fall_back(struct load *load, const char *why)
{
	Hearth__State *state = board_edit(load->board);

	if (load->choice.direct) {
		log_warn("direct was chosen, reading buffered: %s", why);
		load->choice.direct = false;
		snprintf(load->fallback, sizeof(load->fallback), "%s", why);
		if (state->reader)
			load_fill_choice(load, state->reader);
	}
	board_publish(load->board);
}

void
load_fill_choice(const struct load *load, Hearth__Reader *reader)
{
	const struct choice *choice = &load->choice;
	const struct choice_facts *facts = &choice->facts;
	bool known = facts->available != AVAILABLE_UNKNOWN;

	board_text(&reader->chosen, "%s", choice->direct ? "direct" : "buffered");
	board_text(&reader->reason, "%s", choice->reason);
	board_text(&reader->fallback, "%s", load->fallback);
	board_text(&reader->available_limit, "%s", facts->limit);
	reader->available_bytes = known ? facts->available : 0;
	reader->arena_bytes = facts->arena;
	reader->read_bytes = facts->read;
	reader->room_bytes = choice->room;
	reader->need_bytes = choice->need;
	reader->keeps = choice->keeps;
	board_text(&reader->probe, "%s", facts->probe);
	reader->looked_bytes = facts->looked_bytes;
	reader->cached_bytes = facts->cached_bytes;
	reader->cached = choice->cached;
	reader->built = facts->built;
}
