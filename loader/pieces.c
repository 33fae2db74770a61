#include "loader/pieces.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static int
compare_units(const void *a, const void *b, void *arg)
{
	const struct checksum_unit *units = arg;
	uint64_t x = units[*(const uint64_t *)a].offset, y = units[*(const uint64_t *)b].offset;

	return (x > y) - (x < y);
}

/* Whether the unit, the next in the order of place, becomes part of the piece before it. */
static bool
piece_takes(const struct piece *piece, uint64_t run, const struct checksum_unit *unit)
{
	return piece->run == run && unit->offset + unit->bytes - piece->arena_offset <= PIECE_BYTES;
}

static void
add_unit(struct pieces *pieces, const struct placement *placement, uint64_t r,
	 const struct checksum_unit *unit, uint64_t place)
{
	const struct run *run = &placement->runs[r];
	struct piece *piece = pieces->n ? &pieces->list[pieces->n - 1] : NULL;

	if (!piece || !piece_takes(piece, r, unit)) {
		piece = &pieces->list[pieces->n++];
		*piece = (struct piece){
			.shard = run->shard,
			.slice = run->slice,
			.run = r,
			.file_offset = run->file_offset + (unit->offset - run->arena_offset),
			.arena_offset = unit->offset,
			.first_unit = place,
		};
		pieces->in_slice[run->slice]++;
	}
	piece->bytes = unit->offset + unit->bytes - piece->arena_offset;
	piece->n_units++;
	pieces->of_unit[pieces->units[place]] = pieces->n - 1;
}

/* Runs and units are both in the order of place, and neither overlap among themselves. */
static void
cut(struct pieces *pieces, const struct placement *placement, const struct checksum_plan *plan,
    const bool *skip)
{
	uint64_t r = 0;

	for (uint64_t i = 0; i < plan->n_units; i++) {
		const struct checksum_unit *unit = &plan->units[pieces->units[i]];

		while (r < placement->n_runs &&
		       unit->offset >= placement->runs[r].arena_offset + placement->runs[r].bytes)
			r++;
		if (r == placement->n_runs || unit->offset < placement->runs[r].arena_offset ||
		    (skip && skip[unit->slice])) {
			pieces->of_unit[pieces->units[i]] = PIECE_NONE;
			pieces->skipped_bytes += unit->bytes;
		} else {
			add_unit(pieces, placement, r, unit, i);
		}
	}
	for (uint64_t i = 0; i < pieces->n; i++)
		pieces->bytes += pieces->list[i].bytes;
}

int
pieces_open(struct pieces *ret, const struct placement *placement, const struct checksum_plan *plan,
	    const bool *skip, struct error *err)
{
	struct pieces pieces = { .n_slices = placement->n_slices };

	pieces.list = calloc(plan->n_units + 1, sizeof(*pieces.list));
	pieces.units = calloc(plan->n_units + 1, sizeof(*pieces.units));
	pieces.of_unit = calloc(plan->n_units + 1, sizeof(*pieces.of_unit));
	pieces.in_slice = calloc(placement->n_slices, sizeof(*pieces.in_slice));
	if (!pieces.list || !pieces.units || !pieces.of_unit || !pieces.in_slice) {
		pieces_close(&pieces);
		return error_sys(err, -ENOMEM, "%" PRIu64 " pieces", plan->n_units);
	}
	for (uint64_t i = 0; i < plan->n_units; i++)
		pieces.units[i] = i;
	qsort_r(pieces.units, plan->n_units, sizeof(*pieces.units), compare_units, plan->units);
	cut(&pieces, placement, plan, skip);
	*ret = pieces;
	return 0;
}

uint64_t
pieces_find(const struct pieces *pieces, uint64_t place)
{
	uint64_t low = 0, high = pieces->n;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		const struct piece *piece = &pieces->list[middle];

		if (place < piece->arena_offset)
			high = middle;
		else if (place >= piece->arena_offset + piece->bytes)
			low = middle + 1;
		else
			return middle;
	}
	return PIECE_NONE;
}

void
pieces_close(struct pieces *pieces)
{
	free(pieces->list);
	free(pieces->units);
	free(pieces->of_unit);
	free(pieces->in_slice);
	*pieces = (struct pieces){ 0 };
}
