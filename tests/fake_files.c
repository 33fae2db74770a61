#include "tests/fake_files.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "common/checked.h"

struct fake_files fake;

static int64_t
fake_direct(uint8_t *to, uint64_t bytes, uint64_t offset, uint64_t got)
{
	atomic_fetch_add(&fake.direct_reads, 1);
	if (((uintptr_t)to | bytes | offset) % IO_BLOCK)
		atomic_store(&fake.misaligned, true);
	if (fake.direct_fails)
		return fake.direct_fails;
	return (int64_t)(fake.odd_direct < got ? got - fake.odd_direct : got);
}

static int64_t
fake_read_at(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	bool direct = fd >= FAKE_DIRECT;
	int file = direct ? fd - FAKE_DIRECT : fd;
	uint32_t call = atomic_fetch_add(&fake.calls, 1);
	uint64_t left = offset < fake.n[file] ? fake.n[file] - offset : 0;
	uint64_t got = bytes < left ? bytes : left;
	int64_t n = (int64_t)got;

	if (fake.interrupts && call % 2 == 0)
		return -EINTR;
	if (fake.fail_with && file == 0 && offset + bytes > fake.fail_at) {
		if (offset >= fake.fail_at)
			return fake.fail_with;
		n = (int64_t)(fake.fail_at - offset);
	}
	if (fake.short_reads && got > IO_BLOCK)
		n = (int64_t)round_down(got / 2 + 1, direct ? IO_BLOCK : 1);
	if (direct)
		n = fake_direct(to, bytes, offset, (uint64_t)n);
	else
		atomic_fetch_add(&fake.buffered_reads, 1);
	if (n > 0)
		memcpy(to, fake.bytes[file] + offset, (size_t)n);
	return n;
}

/* As one read into memory that is in one piece, and as aligned as the several are. */
static int64_t
fake_readv_at(int fd, const struct iovec *to, int n, uint64_t offset)
{
	uint64_t bytes = 0, at = 0;
	uint8_t *whole;
	int64_t got;

	for (int i = 0; i < n; i++) {
		if (fd >= FAKE_DIRECT && ((uintptr_t)to[i].iov_base | to[i].iov_len) % IO_BLOCK)
			atomic_store(&fake.misaligned, true);
		bytes += to[i].iov_len;
	}
	whole = aligned_alloc(IO_BLOCK, round_up(bytes, IO_BLOCK));
	assert(whole);
	got = fake_read_at(fd, whole, bytes, offset);
	for (int i = 0; i < n && got > 0 && at < (uint64_t)got; i++) {
		uint64_t left = (uint64_t)got - at;

		memcpy(to[i].iov_base, whole + at, left < to[i].iov_len ? left : to[i].iov_len);
		at += to[i].iov_len;
	}
	free(whole);
	return got;
}

static int
fake_populate(void *at, uint64_t bytes)
{
	assert(((uintptr_t)at | bytes) % IO_BLOCK == 0);
	return fake.populate_fails;
}

static int
fake_open_direct(int fd)
{
	return fake.open_fails ? fake.open_fails : fd + FAKE_DIRECT;
}

static int
fake_direct_align(int fd, uint32_t *ret)
{
	(void)fd;
	*ret = fake.align;
	return 0;
}

const struct io_calls fake_io = {
	.read_at = fake_read_at,
	.readv_at = fake_readv_at,
	.populate = fake_populate,
	.open_direct = fake_open_direct,
	.direct_align = fake_direct_align,
};

static const struct {
	const char *name;
	uint32_t shard;
	uint64_t gap, bytes; /* gap: before it in the file */
	uint64_t experts;
} table[] = {
	{ "token_embd.weight", 0, 1000, 20000001, 1 },
	{ "blk.0.ffn_gate_exps.weight", 0, 31, 3ull * 700000, 3 },
	{ "blk.0.attn_norm.weight", 0, 0, 1024, 1 },
	{ "blk.0.ffn_up_exps.weight", 0, 0, 3ull * 700000, 3 },
	{ "blk.1.ffn_up_exps.weight", 0, 9000, 3ull * 12345, 3 },
	{ "blk.0.ffn_down_exps.weight", 1, 64, 3ull * 5000, 3 },
	{ "output_norm.weight", 1, 0, 64, 1 },
	{ "blk.1.ffn_gate_exps.weight", 1, 5000, 3ull * 4096, 3 },
	{ "blk.1.ffn_down_exps.weight", 1, 0, 0, 3 }, /* to k * 4096 + 1 */
};

#define TENSORS (sizeof(table) / sizeof(*table))

void
fake_open(struct model_files *files)
{
	uint64_t at[FAKE_FILES] = { 0 };
	uint32_t random = 1;

	fake = (struct fake_files){ .align = IO_BLOCK };
	*files = (struct model_files){ .n_shards = FAKE_FILES, .n_tensors = TENSORS };
	files->shards = calloc(FAKE_FILES, sizeof(*files->shards));
	files->tensors = calloc(TENSORS, sizeof(*files->tensors));
	assert(files->shards && files->tensors);
	for (size_t i = 0; i < TENSORS; i++) {
		struct arena_tensor *t = &files->tensors[i];
		uint32_t shard = table[i].shard;

		snprintf(t->name, sizeof(t->name), "%s", table[i].name);
		t->dims[2] = table[i].experts;
		t->shard = shard;
		t->file_offset = round_up(at[shard] + table[i].gap, 32);
		t->bytes = table[i].bytes;
		if (t->bytes == 0) { /* 3 * n bytes that end a byte behind a block */
			t->bytes = round_up(t->file_offset + 9000, IO_BLOCK) + 1 - t->file_offset;
			while (t->bytes % 3)
				t->bytes += IO_BLOCK;
		}
		at[shard] = t->file_offset + t->bytes;
	}
	for (int i = 0; i < FAKE_FILES; i++) {
		fake.n[i] = at[i];
		fake.bytes[i] = malloc(at[i]);
		assert(fake.bytes[i]);
		for (uint64_t k = 0; k < at[i]; k++)
			fake.bytes[i][k] =
			    (uint8_t)((random = random * 1664525u + 1013904223u) >> 24);
		files->shards[i].fd = i;
		files->shards[i].bytes = at[i];
		files->shards[i].path = i ? "second.gguf" : "first.gguf";
	}
}

void
fake_close(struct model_files *files)
{
	for (int i = 0; i < FAKE_FILES; i++)
		free(fake.bytes[i]);
	free(files->shards);
	free(files->tensors);
}
