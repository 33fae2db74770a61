#include "loader/adopt.h"

#include <errno.h>
#include <inttypes.h>

#include "common/board.h"

#define ASK_MS                                                                            \
	200 /* an answer takes less than one; a pinner that hangs must not stop the start \
	     */

static int
attach(struct arena *ret, const Hearth__Arena *named, const struct arena_head *head,
       struct error *why)
{
	struct arena_want want = { .bytes = head->bytes,
				   .stamp = head->stamp,
				   .layout_hash = head->layout_hash };
	int rc = arena_attach(ret, named->path, true, &want, why);

	if (rc == -EPERM || rc == -EACCES)
		rc = arena_attach(ret, named->path, false, &want, why);
	return rc;
}

static bool
take(struct arena *ret, const Hearth__State *pinner, const struct arena_head *head, bool *filled,
     uint64_t *checksums, struct error *why)
{
	const Hearth__Arena *named = pinner->arena;

	if (!named || !named->path || !named->path[0]) {
		error_set(why, -ENOENT, "the pinner has none");
		return false;
	}
	if (named->bytes != head->bytes || named->stamp != head->stamp ||
	    named->layout_hash != head->layout_hash || pinner->n_slices != head->n_slices) {
		error_set(why, -EBADMSG,
			  "the pinner's is of model %016" PRIx64 " layout %016" PRIx64
			  ", want %016" PRIx64 " %016" PRIx64,
			  named->stamp, named->layout_hash, head->stamp, head->layout_hash);
		return false;
	}
	if (attach(ret, named, head, why) < 0)
		return false;
	for (size_t i = 0; i < pinner->n_slices; i++) {
		const Hearth__Slice *slice = pinner->slices[i];

		filled[i] = slice->state >= HEARTH__SLICE_STATE__SLICE_FILLED && slice->checksum;
		checksums[i] = filled[i] ? slice->checksum : 0;
	}
	return true;
}

bool
adopt_arena(struct arena *ret, const char *dir, const struct arena_head *head, bool *filled,
	    uint64_t *checksums, struct error *ret_why)
{
	Hearth__State *pinner;
	bool taken;

	if (board_ask(dir, "pinner", ASK_MS, &pinner, ret_why) < 0)
		return false;
	taken = take(ret, pinner, head, filled, checksums, ret_why);
	hearth__state__free_unpacked(pinner, NULL);
	return taken;
}

static bool
look_at_set(const Hearth__Arena *named, uint64_t stamp, uint64_t budget, uint64_t n, bool *ret)
{
	struct arena arena;
	struct error why;
	bool same;

	if (!named || !named->path || !named->path[0] || named->stamp != stamp ||
	    arena_attach(&arena, named->path, false, NULL, &why) < 0)
		return false;
	same = arena.experts && arena.head->stamp == stamp && arena.head->budget_bytes == budget &&
	       arena.head->n_experts == n;
	for (uint64_t i = 0; i < n && same; i++)
		ret[i] = arena.experts[i].role_offset[0] != 0;
	arena_close(&arena);
	return same;
}

bool
adopt_resident(const char *dir, uint64_t stamp, uint64_t budget, uint64_t n, bool *ret)
{
	Hearth__State *pinner;
	struct error why;
	bool taken;

	if (board_ask(dir, "pinner", ASK_MS, &pinner, &why) < 0)
		return false;
	taken = look_at_set(pinner->arena, stamp, budget, n, ret);
	hearth__state__free_unpacked(pinner, NULL);
	return taken;
}
