/* The arena: one memfd with the whole model, and the only place that maps it.
 *
 *   0                 struct arena_head
 *   tensors_offset    struct arena_tensor [n_tensors]
 *   slices_offset     struct arena_slice [n_slices]
 *   header_offset     the GGUF header bytes of the first shard (metadata, tokenizer)
 *   slices[0].offset  the trunk: all tensors that are not experts; 2 MiB aligned, as each slice
 *   slices[i].offset  the experts of MoE layer i - 1
 *
 * With a resident budget (ARENA_BUDGET) a layer's slice holds its resident experts only, each of
 * their matrices at a place of its own, which the table of experts tells; an expert tensor's own
 * offset then says no more than where its slice begins.  A last slice, "window", is where the
 * loader brings the others for a while.
 *
 *   experts_offset    struct arena_expert [n_experts]: (layers, experts)
 *
 * The directory (all before slice 0) is complete before the arena is named to anybody.  Which
 * slices are filled is not said here but in the stages' states.  The loader makes the arena and
 * alone writes to it; everybody else maps it read-only.  The kernel frees it with its last holder.
 */
#ifndef HEARTH_COMMON_ARENA_H
#define HEARTH_COMMON_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "common/checked.h"
#include "common/error.h"
#include "common/gguf.h"

#define ARENA_MAGIC 0x32616e6572616568ull /* "hearena2" */
#define ARENA_SLICE_ALIGN (2ull << 20)    /* a huge page: none belongs to two slices */

struct arena_tensor {
	char name[GGUF_MAX_NAME];
	uint32_t type;
	uint32_t n_dims;
	uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is contiguous */
	uint64_t offset;              /* in the arena */
	uint64_t bytes;
	uint32_t slice;
	uint32_t shard;       /* of the model's files, from 0 */
	uint64_t file_offset; /* in that file */
	/* Of experts that do not lie side by side (a pack): bytes from one to the next, in the file
	 * and in the arena; 0: they do. */
	uint64_t stride;
};

/* Bytes from the first to the last, with what lies between a strided tensor's experts; false: more
 * than fit. */
static inline bool
arena_tensor_extent(const struct arena_tensor *tensor, uint64_t *ret)
{
	uint64_t experts = tensor->dims[2], before;

	if (tensor->stride == 0) {
		*ret = tensor->bytes;
		return true;
	}
	return experts != 0 && tensor->stride >= tensor->bytes / experts &&
	       checked_mul(experts - 1, tensor->stride, &before) &&
	       checked_add(before, tensor->bytes / experts, ret);
}

struct arena_slice {
	char name[32]; /* "trunk", "layer 0", ... */
	uint64_t offset;
	uint64_t bytes; /* padding included; a multiple of 4096 */
};

/* Where an expert's gate, up and down lie in the arena; all 0: it is not resident. */
struct arena_expert {
	uint64_t role_offset[3];
};

#define ARENA_BUDGET (1ull << 0)

struct arena_head {
	uint64_t magic;
	uint64_t bytes;       /* of the whole memfd; a multiple of ARENA_SLICE_ALIGN */
	uint64_t stamp;       /* of the very files: each header, size and time of change */
	uint64_t fingerprint; /* of the model, by its content; 0: nobody has asked for it */
	uint64_t layout_hash; /* of the tables */
	uint64_t flags;
	uint64_t budget_bytes; /* as it was asked for; 0 without ARENA_BUDGET */
	uint64_t tensors_offset, n_tensors;
	uint64_t slices_offset, n_slices;
	uint64_t experts_offset, n_experts; /* of all layers; 0 without ARENA_BUDGET */
	uint64_t header_offset, header_bytes;
	char model[256]; /* path of the first shard, cut if longer */
};

struct arena {
	int fd;
	uint8_t *base; /* 2 MiB aligned */
	uint64_t bytes;
	uint64_t inode;
	bool writable;
	const struct arena_head *head;
	const struct arena_tensor *tensors;
	const struct arena_slice *slices;
	const struct arena_expert *experts; /* NULL without ARENA_BUDGET */
};

/* A new memfd of `bytes` (rounded up to ARENA_SLICE_ALIGN), sealed against resizing, mapped to
 * write.  The caller fills the directory, then calls arena_check.
 *
 * Pages are asked for, not got: common/pages.h reads what came of it.  ARENA_PAGES_HUGETLB is the
 * exception: every page is set aside here, or it fails with -ENOMEM. */
enum arena_pages {
	ARENA_PAGES_AUTO, /* whatever the kernel does unasked */
	ARENA_PAGES_4K,
	ARENA_PAGES_THP,
	ARENA_PAGES_HUGETLB,
};
int arena_create(struct arena *ret, uint64_t bytes, enum arena_pages want, struct error *err);

/* Which pages this process' mapping gets where it is the first to touch them; as arena_create has
 * done for the maker's. */
int arena_advise(const struct arena *arena, enum arena_pages want, struct error *err);

/* Maps an arena that a state message named, and checks its directory.  `want` (may be NULL) is what
 * the message said of it: another stamp, layout or size is refused with both values. */
struct arena_want {
	uint64_t bytes;
	uint64_t stamp;
	uint64_t layout_hash;
};
int arena_attach(struct arena *ret, const char *path, bool writable, const struct arena_want *want,
		 struct error *err);

/* Checks the directory (bounds, order, alignment, both hashes' presence) and sets the pointers. */
int arena_check(struct arena *arena, struct error *err);

/* Hash of the tables, as head->layout_hash must be. */
uint64_t arena_layout_hash(const struct arena *arena);

/* No new writable mapping from now on (the existing one stays).  -errno. */
int arena_seal(struct arena *arena);

/* While held, no other pinner registers memory of this arena (two that register one range at once
 * slow each other down): the last one may still be at it when its successor begins.  A worker takes
 * it not: it registers only what its pinner has told to be registered, which is when the pinner's
 * call is over, and it must not wait between two tokens for a call about another range.  Waits. */
int arena_lock(struct arena *arena);
void arena_unlock(struct arena *arena);

/* Of any state: zeroed, half made, open. */
void arena_close(struct arena *arena);

/* NULL: none of that name. */
const struct arena_tensor *arena_find_tensor(const struct arena *arena, const char *name);

#endif
