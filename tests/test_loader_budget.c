/* loader/load_budget.h: a real start with a resident budget: the reader is decided twice and its
 * second verdict is what reads, and what is brought is told. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/endpoint.h"
#include "common/profile.h"
#include "loader/fingerprint.h"
#include "loader/load.h"
#include "loader/pack_write.h"
#include "proto/fetch.pb-c.h"
#include "tests/gguf_builder.h"
#include "tests/scratch.h"

#define SMALL "tests/data/cgroup/small"
#define LARGE "tests/data/cgroup/no-limits"
#define LAYERS 4
#define BUDGET_GIB 0.0004 /* the window of 8 experts, and a few that stay */
#define MUCH (40ull << 30)

static struct scratch scratch;
static char model[96];
static struct service service;
static struct board *board;
static struct load load;
static struct load_options options;
static struct io_calls io;
static struct cache_calls cache;
static struct error err;
static atomic_uint direct_reads, buffered_reads;

static void
count(int fd)
{
	atomic_fetch_add(fd == load.files.shards[0].fd ? &buffered_reads : &direct_reads, 1);
}

static int64_t
read_counted(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	count(fd);
	return io_system.read_at(fd, to, bytes, offset);
}

static int64_t
readv_counted(int fd, const struct iovec *to, int n, uint64_t offset)
{
	count(fd);
	return io_system.readv_at(fd, to, n, offset);
}

static int
any_align(int fd, uint32_t *ret)
{
	(void)fd;
	*ret = IO_BLOCK;
	return 0;
}

/* An ordinary descriptor stands in, so that it works on any file system. */
static int
open_again(int fd)
{
	char path[64];
	int other;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDONLY | O_CLOEXEC);
	return other < 0 ? -errno : other;
}

static int
nothing_cached(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret)
{
	(void)fd;
	(void)offset;
	(void)bytes;
	*ret = 0;
	return 0;
}

static int
setup(void **state)
{
	struct tiny tiny = tiny_default();

	(void)state;
	scratch_open(&scratch);
	tiny.layers = LAYERS;
	snprintf(model, sizeof(model), "%s/m.gguf", scratch.dir);
	tiny_write(&tiny, model);
	service = (struct service){ .stage = "loader" };
	pthread_mutex_init(&service.lock, NULL);
	pthread_cond_init(&service.wake, NULL);
	io = io_system;
	io.read_at = read_counted;
	io.readv_at = readv_counted;
	io.direct_align = any_align;
	io.open_direct = open_again;
	cache = cache_system;
	cache.stat_pages = nothing_cached;
	return board_open(&board, scratch.dir, "loader", &err);
}

static int
teardown(void **state)
{
	(void)state;
	load_close(&load);
	board_close(board);
	scratch_close(&scratch);
	return 0;
}

static void
must(int rc)
{
	if (rc < 0)
		fail_msg("%s", err.text);
}

/* A start on a machine that looks like `before`, and like `built` once the resident set is there.
 * So much seems to be outside that room for it decides. */
static void
start(const char *read, const char *before, const char *built)
{
	options = (struct load_options){ .dir = scratch.dir,
					 .model = model,
					 .read = read,
					 .threads = 2,
					 .numa_node = NUMA_NODE_AUTO,
					 .resident_gib = BUDGET_GIB,
					 .io = &io,
					 .cache = &cache,
					 .populate = &populate_system,
					 .root = before };
	load = (struct load){
		.options = &options, .service = &service, .board = board, .arena = { .fd = -1 }
	};
	must(load_plan(&load, &err));
	assert_true(load.resident.n_in > 0 && load.resident.n_in < load.placement.n_experts);
	load.budget.outside = MUCH;
	must(load_take_arena(&load, &err));
	must(load_open_desk(&load, &err));
	must(load_read(&load, &err));
	options.root = built;
	must(load_finish(&load, &err));
}

/* Asks for every expert of a layer. */
static void
fetch_layer(uint32_t layer)
{
	Hearth__Fetch fetch = HEARTH__FETCH__INIT;
	uint32_t experts[64];
	uint8_t bytes[256], *answer;
	Hearth__FetchReply *reply;
	struct client *client;
	size_t n;

	fetch.layer = layer;
	fetch.n_experts = load.resident.n_experts;
	fetch.experts = experts;
	for (uint32_t i = 0; i < load.resident.n_experts; i++)
		experts[i] = i;
	assert_int_equal(client_open(&client, scratch.dir, "loader.fetch", &err), 0);
	assert_int_equal(client_ask(client, bytes, hearth__fetch__pack(&fetch, bytes),
				    GATE_SECONDS * 1000, &answer, &n),
			 0);
	reply = hearth__fetch_reply__unpack(NULL, n, answer);
	assert_non_null(reply);
	assert_int_equal(reply->error, 0);
	hearth__fetch_reply__free_unpacked(reply, NULL);
	free(answer);
	client_close(client);
}

static void
expect_reads(const char *before, const char *built, bool direct)
{
	start("auto", before, built);
	assert_int_equal(load.choice.direct, direct);
	atomic_store(&direct_reads, 0);
	atomic_store(&buffered_reads, 0);
	fetch_layer(LAYERS - 1);
	assert_int_equal(atomic_load(&direct_reads) > 0, direct);
	if (!direct)
		assert_true(atomic_load(&buffered_reads) > 0);
}

static void
room_that_is_gone_once_the_set_is_built_makes_the_reads_direct(void **state)
{
	(void)state;
	expect_reads(LARGE, SMALL, true);
	assert_true(load.choice.facts.built);
}

static void
room_that_has_come_makes_them_buffered(void **state)
{
	(void)state;
	expect_reads(SMALL, LARGE, false);
}

static void
room_as_before_changes_nothing(void **state)
{
	(void)state;
	expect_reads(LARGE, LARGE, false);
	load_close(&load);
	expect_reads(SMALL, SMALL, true);
}

static void
what_was_brought_is_told_to_who_asks(void **state)
{
	const Hearth__Reader *reader;
	Hearth__State *said;
	uint32_t out = 0;

	(void)state;
	start("buffered", LARGE, LARGE);
	for (uint32_t i = 0; i < load.resident.n_experts; i++)
		out += !load.resident.in[i];
	fetch_layer(0);
	fetch_layer(0);
	assert_int_equal(board_ask(scratch.dir, "loader", GATE_SECONDS * 1000, &said, &err), 0);
	reader = said->reader;
	assert_int_equal(reader->demand_requests, 2);
	assert_int_equal(reader->outside_experts, out);
	assert_int_equal(reader->outside_hits, out);
	assert_int_equal(reader->outside_windows, N_ROLES * out);
	assert_int_equal(reader->outside_reads, 1); /* neighbours, all of them */
	assert_true(reader->outside_bytes >= N_ROLES * out * 8192ull);
	assert_true(reader->demand_wait_ns > 0 && reader->first_demand_ns > 0);
	hearth__state__free_unpacked(said, NULL);
}

/* So far as to know which experts stay; the line of a refusal is in err. */
static int
plan_with(const char *path, const char *profile)
{
	options = (struct load_options){ .dir = scratch.dir,
					 .model = path,
					 .read = "buffered",
					 .resident_gib = BUDGET_GIB,
					 .profile = profile,
					 .io = &io,
					 .cache = &cache,
					 .populate = &populate_system,
					 .root = LARGE };
	load = (struct load){
		.options = &options, .service = &service, .board = board, .arena = { .fd = -1 }
	};
	return load_plan(&load, &err);
}

/* A profile by which the last experts of the last layer are the most used. */
static void
make_profile(const char *path)
{
	uint64_t counts[LAYERS * 8] = { 0 };
	struct profile_shape shape = { .layers = LAYERS, .experts = 8 };
	struct model_files files;

	for (uint64_t i = 0; i < LAYERS * 8; i++)
		counts[i] = i;
	must(model_files_open(&files, model, &err));
	must(fingerprint_read(&files, &shape.fingerprint, &err));
	model_files_close(&files);
	must(profile_write(path, &shape, counts, &err));
}

static void
expect_by_profile(const char *path, const char *profile)
{
	must(plan_with(path, profile));
	assert_int_equal(load.resident.n_in, 3);
	for (uint64_t i = 0; i < LAYERS * 8; i++)
		assert_int_equal(load.resident.in[i], i >= LAYERS * 8 - 3);
	assert_true(load.head.fingerprint != 0);
	load_close(&load);
}

static void
a_copied_or_touched_model_keeps_its_profile_and_another_one_gets_none(void **state)
{
	const struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1, .tv_nsec = 5 } };
	struct tiny tiny = tiny_default();
	char profile[96], copy[96], pack[96];
	uint64_t stamp;

	(void)state;
	tiny.layers = LAYERS;
	snprintf(profile, sizeof(profile), "%s/profile", scratch.dir);
	snprintf(copy, sizeof(copy), "%s/copy.gguf", scratch.dir);
	snprintf(pack, sizeof(pack), "%s/m.pack", scratch.dir);
	make_profile(profile);
	expect_by_profile(model, profile);
	stamp = load.head.stamp;
	tiny_write(&tiny, copy);
	expect_by_profile(copy, profile);
	must(pack_make(pack, model, &err));
	expect_by_profile(pack, profile);
	assert_int_equal(utimensat(AT_FDCWD, model, times, 0), 0);
	expect_by_profile(model, profile);
	assert_true(load.head.stamp != stamp); /* these are not the files of a warm arena */
	tiny.seed = 99;
	tiny_write(&tiny, copy);
	assert_int_equal(plan_with(copy, profile), -EBADMSG);
	assert_non_null(strstr(err.text, "(of this model)"));
}

#define BUDGET_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		BUDGET_TEST(room_that_is_gone_once_the_set_is_built_makes_the_reads_direct),
		BUDGET_TEST(room_that_has_come_makes_them_buffered),
		BUDGET_TEST(room_as_before_changes_nothing),
		BUDGET_TEST(what_was_brought_is_told_to_who_asks),
		BUDGET_TEST(a_copied_or_touched_model_keeps_its_profile_and_another_one_gets_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
