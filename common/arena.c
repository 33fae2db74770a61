#include "common/arena.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/checked.h"
#include "common/model.h"
#include "common/shared_memory.h"

/* Maps fd at a 2 MiB aligned address, so that the kernel may use huge pages for it. */
static int
arena_map(struct arena *arena, bool writable, struct error *err)
{
	uint64_t room = arena->bytes + ARENA_SLICE_ALIGN;
	int prot = PROT_READ | (writable ? PROT_WRITE : 0);
	uint8_t *at, *base;

	at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return error_sys(err, -errno, "arena: %" PRIu64 " bytes of address space", room);
	base = at + (round_up((uintptr_t)at, ARENA_SLICE_ALIGN) - (uintptr_t)at);
	if (base > at)
		munmap(at, (size_t)(base - at));
	munmap(base + arena->bytes, (size_t)(at + room - (base + arena->bytes)));
	if (mmap(base, arena->bytes, prot, MAP_SHARED | MAP_FIXED, arena->fd, 0) == MAP_FAILED) {
		int rc = -errno;

		munmap(base, arena->bytes);
		return error_sys(err, rc, "arena: mapping %" PRIu64 " bytes", arena->bytes);
	}
	arena->base = base;
	arena->writable = writable;
	return 0;
}

static int
arena_stat(struct arena *arena, struct error *err)
{
	struct stat st;

	if (fstat(arena->fd, &st) < 0)
		return error_sys(err, -errno, "arena");
	if (st.st_size <= 0 || (uint64_t)st.st_size % ARENA_SLICE_ALIGN)
		return error_set(err, -EBADMSG, "arena: %lld bytes, want a multiple of %llu",
				 (long long)st.st_size, ARENA_SLICE_ALIGN);
	arena->bytes = (uint64_t)st.st_size;
	arena->inode = st.st_ino;
	return 0;
}

/* A mapping that may not have huge pages, where the kernel knows of none, is as wanted. */
int
arena_advise(const struct arena *arena, enum arena_pages want, struct error *err)
{
	int rc = 0;

	if (want == ARENA_PAGES_4K)
		rc = madvise(arena->base, arena->bytes, MADV_NOHUGEPAGE);
	else if (want == ARENA_PAGES_THP)
		rc = madvise(arena->base, arena->bytes, MADV_HUGEPAGE);
	if (rc < 0 && (errno != EINVAL || want == ARENA_PAGES_THP))
		return error_sys(err, -errno, "arena: madvise");
	return 0;
}

int
arena_create(struct arena *ret, uint64_t bytes, enum arena_pages want, struct error *err)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	struct arena arena = { .fd = -1 };
	uint64_t whole;
	int rc;

	if (bytes == 0 || !checked_round_up(bytes, ARENA_SLICE_ALIGN, &whole) || whole > INT64_MAX)
		return error_set(err, -EOVERFLOW, "arena: %" PRIu64 " bytes", bytes);
	if (want == ARENA_PAGES_HUGETLB)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	arena.fd = memfd_create("hearth-arena", flags);
	if (arena.fd < 0)
		return error_sys(err, -errno, "arena: memfd_create");
	if (ftruncate(arena.fd, (off_t)whole) < 0 ||
	    fcntl(arena.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
		rc = error_sys(err, -errno, "arena: sizing to %" PRIu64 " bytes", whole);
		goto fail;
	}
	rc = arena_stat(&arena, err);
	if (rc == 0)
		rc = arena_map(&arena, true, err);
	if (rc == 0)
		rc = arena_advise(&arena, want, err);
	if (rc < 0)
		goto fail;
	*ret = arena;
	return 0;
fail:
	arena_close(&arena);
	return rc;
}

/* A table of `n` entries of `size` bytes lies within the first `end` bytes and is aligned to 8. */
static bool
table_fits(uint64_t offset, uint64_t n, uint64_t size, uint64_t end)
{
	uint64_t bytes, last;

	return offset % 8 == 0 && checked_mul(n, size, &bytes) &&
	       checked_add(offset, bytes, &last) && last <= end;
}

static int
arena_check_slices(const struct arena *arena, struct error *err)
{
	const struct arena_head *head = arena->head;
	uint64_t at = 0, end;

	for (uint64_t i = 0; i < head->n_slices; i++) {
		const struct arena_slice *slice = &arena->slices[i];

		if (slice->offset % ARENA_SLICE_ALIGN || slice->offset < at ||
		    !checked_add(slice->offset, slice->bytes, &end) || end > arena->bytes ||
		    !memchr(slice->name, '\0', sizeof(slice->name)))
			return error_set(err, -EBADMSG,
					 "arena: slice %" PRIu64 ": %" PRIu64 " bytes at %" PRIu64
					 ": out of order or out of the arena's %" PRIu64 " bytes",
					 i, slice->bytes, slice->offset, arena->bytes);
		at = end;
	}
	return 0;
}

static int
arena_check_tensors(const struct arena *arena, struct error *err)
{
	const struct arena_head *head = arena->head;
	uint64_t extent, end;

	for (uint64_t i = 0; i < head->n_tensors; i++) {
		const struct arena_tensor *tensor = &arena->tensors[i];
		const struct arena_slice *slice;

		if (!memchr(tensor->name, '\0', sizeof(tensor->name)) ||
		    tensor->slice >= head->n_slices)
			return error_set(err, -EBADMSG,
					 "arena: tensor %" PRIu64 ": slice %u of %" PRIu64, i,
					 tensor->slice, head->n_slices);
		if (arena->experts && model_expert_layer(tensor->name, NULL) >= 0)
			continue; /* arena_check_experts */
		slice = &arena->slices[tensor->slice];
		if (tensor->offset < slice->offset || !arena_tensor_extent(tensor, &extent) ||
		    !checked_add(tensor->offset, extent, &end) ||
		    end > slice->offset + slice->bytes)
			return error_set(err, -EBADMSG, "arena: %s: outside its slice",
					 tensor->name);
	}
	return 0;
}

/* Each resident expert's matrix lies in its layer's slice, and an expert is resident whole. */
static int
arena_check_role(const struct arena *arena, const struct arena_tensor *tensor, uint64_t layer,
		 enum role role, struct error *err)
{
	uint64_t n = tensor->dims[2], layers = arena->head->n_slices - 2, bytes, end;
	const struct arena_slice *slice = &arena->slices[1 + layer];

	if (n == 0 || tensor->bytes % n || layer >= layers || tensor->slice != 1 + layer ||
	    arena->head->n_experts / layers != n || arena->head->n_experts % layers)
		return error_set(err, -EBADMSG,
				 "arena: %s: %" PRIu64 " experts of %" PRIu64 " in %" PRIu64
				 " layers",
				 tensor->name, n, arena->head->n_experts, layers);
	bytes = tensor->bytes / n;
	for (uint64_t i = 0; i < n; i++) {
		const uint64_t *at = arena->experts[layer * n + i].role_offset;

		if (!at[ROLE_GATE] != !at[role] ||
		    (at[role] && (at[role] < slice->offset || !checked_add(at[role], bytes, &end) ||
				  end > slice->offset + slice->bytes)))
			return error_set(err, -EBADMSG,
					 "arena: %s: expert %" PRIu64 " at %" PRIu64
					 ": outside its slice, or not whole",
					 tensor->name, i, at[role]);
	}
	return 0;
}

static int
arena_check_experts(const struct arena *arena, struct error *err)
{
	const struct arena_head *head = arena->head;
	int rc = 0;

	if (!arena->experts)
		return 0;
	if (head->n_slices < 3)
		return error_set(err, -EBADMSG,
				 "arena: %" PRIu64 " slices, with a budget want 3 at least",
				 head->n_slices);
	for (uint64_t i = 0; i < head->n_tensors && rc == 0; i++) {
		enum role role;
		int layer = model_expert_layer(arena->tensors[i].name, &role);

		if (layer >= 0)
			rc =
			    arena_check_role(arena, &arena->tensors[i], (uint64_t)layer, role, err);
	}
	return rc;
}

int
arena_check(struct arena *arena, struct error *err)
{
	const struct arena_head *head = (const void *)arena->base;
	uint64_t hash;
	int rc;

	assert(head);
	if (head->magic != ARENA_MAGIC)
		return error_set(err, -EBADMSG, "arena: magic %016" PRIx64 ", want %016llx",
				 head->magic, ARENA_MAGIC);
	if (head->bytes != arena->bytes || head->n_slices == 0 ||
	    !table_fits(head->slices_offset, head->n_slices, sizeof(struct arena_slice),
			arena->bytes) ||
	    !table_fits(head->tensors_offset, head->n_tensors, sizeof(struct arena_tensor),
			arena->bytes) ||
	    (head->flags & ~ARENA_BUDGET) ||
	    !table_fits(head->experts_offset, head->n_experts, sizeof(struct arena_expert),
			arena->bytes) ||
	    !table_fits(head->header_offset, head->header_bytes, 1, arena->bytes) ||
	    !memchr(head->model, '\0', sizeof(head->model)))
		return error_set(err, -EBADMSG,
				 "arena: its directory does not fit its %" PRIu64 " bytes",
				 arena->bytes);
	arena->head = head;
	arena->tensors = (const void *)(arena->base + head->tensors_offset);
	arena->slices = (const void *)(arena->base + head->slices_offset);
	arena->experts =
	    head->flags & ARENA_BUDGET ? (const void *)(arena->base + head->experts_offset) : NULL;
	rc = arena_check_slices(arena, err);
	if (rc == 0)
		rc = arena_check_tensors(arena, err);
	if (rc == 0)
		rc = arena_check_experts(arena, err);
	if (rc < 0)
		return rc;
	hash = arena_layout_hash(arena);
	if (head->layout_hash != hash)
		return error_set(err, -EBADMSG,
				 "arena: layout hash %016" PRIx64 ", its tables have %016" PRIx64,
				 head->layout_hash, hash);
	return 0;
}

uint64_t
arena_layout_hash(const struct arena *arena)
{
	const struct arena_head *head = arena->head;
	uint64_t hash[3] = { 0 };

	hash[0] = XXH3_64bits(arena->tensors, head->n_tensors * sizeof(struct arena_tensor));
	hash[1] = XXH3_64bits(arena->slices, head->n_slices * sizeof(struct arena_slice));
	if (arena->experts)
		hash[2] =
		    XXH3_64bits(arena->experts, head->n_experts * sizeof(struct arena_expert));
	return XXH3_64bits(hash, sizeof(hash));
}

static int
arena_compare(const struct arena *arena, const struct arena_want *want, struct error *err)
{
	const struct arena_head *head = arena->head;

	assert(head);
	if (want->bytes != arena->bytes)
		return error_set(err, -EBADMSG, "arena: %" PRIu64 " bytes, want %" PRIu64,
				 arena->bytes, want->bytes);
	if (want->stamp != head->stamp)
		return error_set(err, -EBADMSG,
				 "arena: its files' stamp is %016" PRIx64 ", want %016" PRIx64,
				 head->stamp, want->stamp);
	if (want->layout_hash != head->layout_hash)
		return error_set(err, -EBADMSG, "arena: layout %016" PRIx64 ", want %016" PRIx64,
				 head->layout_hash, want->layout_hash);
	return 0;
}

int
arena_attach(struct arena *ret, const char *path, bool writable, const struct arena_want *want,
	     struct error *err)
{
	struct arena arena = { .fd = -1 };
	int rc;

	arena.fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (arena.fd < 0)
		return error_path(err, -errno, "arena: %s", path);
	rc = arena_stat(&arena, err);
	if (rc == 0 && !shared_memory_sealed(arena.fd))
		rc = error_set(err, -EBADMSG, "arena: %s is not sealed against resizing", path);
	if (rc == 0)
		rc = arena_map(&arena, writable, err);
	if (rc == 0)
		rc = arena_check(&arena, err);
	if (rc == 0 && want)
		rc = arena_compare(&arena, want, err);
	if (rc < 0) {
		arena_close(&arena);
		return rc;
	}
	*ret = arena;
	return 0;
}

int
arena_seal(struct arena *arena)
{
	return fcntl(arena->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0 ? -errno : 0;
}

int
arena_lock(struct arena *arena)
{
	while (flock(arena->fd, LOCK_EX) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

void
arena_unlock(struct arena *arena)
{
	flock(arena->fd, LOCK_UN);
}

void
arena_close(struct arena *arena)
{
	if (arena->base)
		munmap(arena->base, arena->bytes);
	if (arena->fd > 0 || (arena->base && arena->fd == 0))
		close(arena->fd);
	*arena = (struct arena){ .fd = -1 };
}

const struct arena_tensor *
arena_find_tensor(const struct arena *arena, const char *name)
{
	for (uint64_t i = 0; i < arena->head->n_tensors; i++) {
		if (strcmp(arena->tensors[i].name, name) == 0)
			return &arena->tensors[i];
	}
	return NULL;
}
