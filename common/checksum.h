/* The checksum of a slice does not depend on how or in which order its bytes came: each tensor is
 * cut into units (an expert's matrix; 1 MiB of a trunk tensor), each unit is hashed with XXH3-64,
 * and a slice's checksum is the XXH3-64 of its units' hashes in the order of tensor names, then of
 * place in the tensor.  So it agrees between readers, page sizes, shards and packs. */
#ifndef HEARTH_COMMON_CHECKSUM_H
#define HEARTH_COMMON_CHECKSUM_H

#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"

#define CHECKSUM_TRUNK_UNIT (1ull << 20)

struct checksum_unit {
	uint64_t offset; /* in the arena */
	uint64_t bytes;
	uint32_t slice;
	uint32_t tensor;
	uint64_t hash; /* once known */
};

struct checksum_plan {
	uint64_t n_units;
	struct checksum_unit *units; /* slice by slice, each in the canonical order */
	uint64_t n_slices;
	uint64_t *first; /* (n_slices + 1): the units of slice i are first[i] .. first[i + 1] - 1 */
};

int checksum_plan_open(struct checksum_plan *ret, const struct arena_tensor *tensors,
		       uint64_t n_tensors, uint64_t n_slices, struct error *err);
/* With a resident budget: keeps the experts' units that are resident, at their places in `experts`
 * (layers, experts of each).  `each` (may be NULL) has a value a unit, and keeps the same ones. */
void checksum_plan_keep(struct checksum_plan *plan, const struct arena_tensor *tensors,
			const struct arena_expert *experts, uint64_t *each);
/* Of an arena as it is. */
int checksum_plan_open_arena(struct checksum_plan *ret, const struct arena *arena,
			     struct error *err);
void checksum_plan_close(struct checksum_plan *plan);

uint64_t checksum_unit_hash(const struct checksum_unit *unit, const uint8_t *arena_base);
/* From the units' hashes; the whole arena's is that of the slices' checksums in order. */
uint64_t checksum_slice(const struct checksum_plan *plan, uint32_t slice);
uint64_t checksum_whole(const uint64_t *slices, uint64_t n_slices);

#endif
