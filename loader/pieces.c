#include "loader/pieces.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/checked.h"
#include "loader/io.h"

/* The first piece of a run ends where whole blocks of PIECE_BYTES end. */
static uint64_t
piece_end(const struct run *run, uint64_t at)
{
	uint64_t end = round_down(at, IO_BLOCK) + PIECE_BYTES;
	uint64_t run_end = run->file_offset + run->bytes;

	return end < run_end ? end : run_end;
}

static uint64_t
cut_run(const struct run *run, struct piece *to)
{
	uint64_t n = 0, end;

	for (uint64_t at = run->file_offset; at < run->file_offset + run->bytes; at = end) {
		end = piece_end(run, at);
		if (to)
			to[n] = (struct piece){
				.shard = run->shard,
				.slice = run->slice,
				.file_offset = at,
				.arena_offset = run->arena_offset + (at - run->file_offset),
				.bytes = end - at,
			};
		n++;
	}
	return n;
}

static int
compare_units(const void *a, const void *b, void *arg)
{
	const struct checksum_unit *units = arg;
	uint64_t x = units[*(const uint64_t *)a].offset, y = units[*(const uint64_t *)b].offset;

	return (x > y) - (x < y);
}

/* Pieces and units are both in the order of place, and neither overlap among themselves. */
static void
link_units(struct pieces *pieces, const struct checksum_plan *plan)
{
	uint64_t next = 0;

	for (uint64_t i = 0; i < pieces->n; i++) {
		struct piece *piece = &pieces->list[i];
		uint64_t end = piece->arena_offset + piece->bytes, unit;

		for (; next < plan->n_units; next++) {
			unit = pieces->units[next];
			if (plan->units[unit].offset + plan->units[unit].bytes >
			    piece->arena_offset)
				break;
		}
		piece->first_unit = next;
		for (uint64_t k = next; k < plan->n_units; k++) {
			unit = pieces->units[k];
			if (plan->units[unit].offset >= end)
				break;
			if (pieces->waiting[unit]++ == 0)
				pieces->open[plan->units[unit].slice]++;
			piece->n_units++;
		}
	}
}

int
pieces_open(struct pieces *ret, const struct placement *placement, const struct checksum_plan *plan,
	    const bool *skip, struct error *err)
{
	struct pieces pieces = { 0 };
	uint64_t n = 0;

	for (uint64_t i = 0; i < placement->n_runs; i++)
		if (!skip || !skip[placement->runs[i].slice])
			n += cut_run(&placement->runs[i], NULL);
	pieces.list = calloc(n + 1, sizeof(*pieces.list));
	pieces.units = calloc(plan->n_units + 1, sizeof(*pieces.units));
	pieces.waiting = calloc(plan->n_units + 1, sizeof(*pieces.waiting));
	pieces.open = calloc(placement->n_slices, sizeof(*pieces.open));
	if (!pieces.list || !pieces.units || !pieces.waiting || !pieces.open) {
		pieces_close(&pieces);
		return error_sys(err, -ENOMEM, "%" PRIu64 " pieces", n);
	}
	for (uint64_t i = 0; i < placement->n_runs; i++) {
		const struct run *run = &placement->runs[i];

		if (skip && skip[run->slice])
			continue;
		pieces.n += cut_run(run, &pieces.list[pieces.n]);
		pieces.bytes += run->bytes;
	}
	for (uint64_t i = 0; i < plan->n_units; i++)
		pieces.units[i] = i;
	qsort_r(pieces.units, plan->n_units, sizeof(*pieces.units), compare_units, plan->units);
	link_units(&pieces, plan);
	*ret = pieces;
	return 0;
}

void
pieces_close(struct pieces *pieces)
{
	free(pieces->list);
	free(pieces->units);
	free(pieces->waiting);
	free(pieces->open);
	*pieces = (struct pieces){ 0 };
}
