#include "tests/pack_case.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/pack_write.h"
#include "tests/scratch.h"

char pack_model[96], pack_split[96], pack_path[96], pack_folder[64];

static struct service service;
static struct board *board;
static struct error err;

struct tiny
pack_tiny(void)
{
	struct tiny tiny = tiny_default();

	tiny.layers = PACK_SLICES - 1;
	return tiny;
}

int
pack_setup(void **state)
{
	struct tiny tiny = pack_tiny();
	char stem[80];

	(void)state;
	snprintf(pack_folder, sizeof(pack_folder), "/tmp/hearth-pack-XXXXXX");
	if (!mkdtemp(pack_folder))
		return -1;
	snprintf(pack_model, sizeof(pack_model), "%s/m.gguf", pack_folder);
	snprintf(pack_path, sizeof(pack_path), "%s/m.pack", pack_folder);
	tiny_write(&tiny, pack_model);
	snprintf(stem, sizeof(stem), "%s/s", pack_folder);
	tiny_write_split(&tiny, stem, 3);
	tiny_split_path(pack_split, sizeof(pack_split), stem, 2, 3);
	service = (struct service){ .stage = "loader" };
	pthread_mutex_init(&service.lock, NULL);
	pthread_cond_init(&service.wake, NULL);
	return board_open(&board, pack_folder, "loader", &err);
}

int
pack_teardown(void **state)
{
	(void)state;
	board_close(board);
	return scratch_remove(pack_folder);
}

void
pack_make_one(void)
{
	if (pack_make(pack_path, pack_model, &err) != 0)
		fail_msg("%s", err.text);
}

static int
none_cached(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret)
{
	(void)fd;
	(void)offset;
	(void)bytes;
	*ret = 0;
	return 0;
}

int
pack_load(const char *path, const char *read, const char *root, struct pack_loaded *ret)
{
	struct cache_calls cache = cache_system;
	struct load_options options = { .dir = pack_folder,
					.model = path,
					.read = read,
					.threads = 3,
					.io = &io_system,
					.cache = &cache,
					.populate = &populate_system,
					.root = root };
	struct load load = {
		.options = &options, .service = &service, .board = board, .arena = { .fd = -1 }
	};
	int rc = load_plan(&load, &err);

	cache.stat_pages = none_cached;
	if (rc == 0)
		rc = load_take_arena(&load, &err);
	if (rc == 0)
		rc = load_read(&load, &err);
	if (rc == 0)
		rc = load_finish(&load, &err);
	*ret = (struct pack_loaded){ 0 };
	snprintf(ret->text, sizeof(ret->text), "%s", rc < 0 ? err.text : "");
	if (rc == 0) {
		const Hearth__Reader *reader = board_edit(board)->reader;

		assert_int_equal(load.placement.n_slices, PACK_SLICES);
		memcpy(ret->checksums, load.checksums, sizeof(ret->checksums));
		snprintf(ret->chosen, sizeof(ret->chosen), "%s", reader->chosen);
		snprintf(ret->fallback, sizeof(ret->fallback), "%s", reader->fallback);
		board_publish(board);
	}
	load_close(&load);
	return rc;
}

void
pack_refused(const char *part)
{
	struct pack_loaded loaded;

	assert_int_equal(pack_load(pack_path, "buffered", "", &loaded), -EBADMSG);
	if (!strstr(loaded.text, part) || !strstr(loaded.text, "m.pack: "))
		fail_msg("\"%s\" does not say \"%s\"", loaded.text, part);
	assert_null(strchr(loaded.text, '\n'));
}

void
pack_read_head(struct pack_head *ret)
{
	int fd = open(pack_path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, ret, sizeof(*ret), 0), sizeof(*ret));
	close(fd);
}

static void
seal_directory(int fd)
{
	struct pack_head head;
	uint64_t end, hash;
	uint8_t *bytes;

	assert_int_equal(pread(fd, &head, sizeof(head), 0), sizeof(head));
	end = head.hashes_offset + head.n_hashes * sizeof(uint64_t);
	bytes = malloc(end);
	assert_non_null(bytes);
	assert_int_equal(pread(fd, bytes, end, 0), end);
	hash = pack_directory_hash(bytes, end);
	assert_int_equal(
	    pwrite(fd, &hash, sizeof(hash), offsetof(struct pack_head, directory_hash)),
	    sizeof(hash));
	free(bytes);
}

void
pack_patch(uint64_t offset, const void *bytes, size_t n, bool seal)
{
	int fd = open(pack_path, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, n, (off_t)offset), n);
	if (seal)
		seal_directory(fd);
	close(fd);
}
