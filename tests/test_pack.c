/* loader/pack.h: a pack gives the same bytes as its model, or is refused in one line. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/model.h"
#include "loader/fingerprint.h"
#include "loader/pack_write.h"
#include "tests/pack_case.h"

#define SMALL "tests/data/cgroup/small" /* no room for a file cache */

static struct error err;

static void
an_experts_roles_lie_side_by_side_in_whole_blocks(void **state)
{
	struct model_files pack, model;

	(void)state;
	pack_make_one();
	assert_int_equal(model_files_open(&pack, pack_path, &err), 0);
	assert_int_equal(model_files_open(&model, pack_model, &err), 0);
	assert_int_equal(pack.n_shards, 1);
	assert_true(pack.aligned);
	assert_int_equal(pack.n_tensors, model.n_tensors);
	for (uint64_t i = 0; i < pack.n_tensors; i++) {
		const struct arena_tensor *t = &pack.tensors[i];
		enum role role;

		assert_string_equal(t->name, model.tensors[i].name);
		assert_true(t->bytes == model.tensors[i].bytes);
		if (model_expert_layer(t->name, &role) < 0) {
			assert_int_equal(t->stride, 0);
			continue;
		}
		assert_int_equal(t->stride % PACK_ALIGN, 0);
		/* Three roles of 32 x 64 floats each fit into one range. */
		assert_int_equal(t->file_offset % t->stride / 8192, role);
		assert_int_equal(t->stride, 3 * 8192);
	}
	model_files_close(&pack);
	model_files_close(&model);
}

static void
the_checksums_are_the_models(void **state)
{
	static const char *const readers[] = { "buffered", "direct" };
	struct pack_loaded model, pack;

	(void)state;
	pack_make_one();
	assert_int_equal(pack_load(pack_model, "buffered", "", &model), 0);
	for (int i = 0; i < 2; i++) {
		int rc = pack_load(pack_path, readers[i], "", &pack);

		if (rc == -ENOTSUP) {
			print_message("no direct reading here: %s\n", pack.text);
			continue;
		}
		assert_int_equal(rc, 0);
		assert_memory_equal(model.checksums, pack.checksums, sizeof(pack.checksums));
	}
}

static void
a_split_model_packs_into_one_file(void **state)
{
	struct pack_loaded model, pack;

	(void)state;
	assert_int_equal(pack_make(pack_path, pack_split, &err), 0);
	assert_int_equal(pack_load(pack_split, "buffered", "", &model), 0);
	assert_int_equal(pack_load(pack_path, "buffered", "", &pack), 0);
	assert_memory_equal(model.checksums, pack.checksums, sizeof(pack.checksums));
}

static void
a_pack_of_a_pack_is_the_same_file(void **state)
{
	struct pack_head one, other;
	char first[96];

	(void)state;
	pack_make_one();
	pack_read_head(&one);
	snprintf(first, sizeof(first), "%s", pack_path);
	snprintf(pack_path, sizeof(pack_path), "%s/again.pack", pack_folder);
	assert_int_equal(pack_make(pack_path, first, &err), 0);
	pack_read_head(&other);
	assert_memory_equal(&one, &other, sizeof(one));
}

/* The first layer begins where the trunk ends. */
static void
ranges_off_a_block_are_read_buffered(void **state)
{
	struct pack_loaded model, pack;
	struct model_files files;

	(void)state;
	assert_int_equal(model_files_open(&files, pack_model, &err), 0);
	assert_int_equal(pack_write(pack_path, &files, 256, &err), 0);
	model_files_close(&files);
	assert_int_equal(pack_load(pack_model, "buffered", "", &model), 0);
	assert_int_equal(pack_load(pack_path, "auto", SMALL, &pack), 0);
	assert_string_equal(pack.chosen, "buffered");
	assert_non_null(strstr(pack.fallback, "its experts do not lie at whole blocks"));
	assert_memory_equal(model.checksums, pack.checksums, sizeof(pack.checksums));
	assert_int_equal(pack_load(pack_path, "direct", "", &pack), -ENOTSUP);
	assert_non_null(strstr(pack.text, "want --read buffered or a new pack"));
}

static void
making_it_again_checks_every_byte(void **state)
{
	struct pack_head head;

	(void)state;
	pack_make_one();
	assert_int_equal(pack_make(pack_path, pack_model, &err), 0);
	pack_read_head(&head);
	pack_patch(head.bytes - 200, "\x55\xaa", 2, false);
	assert_int_equal(pack_make(pack_path, pack_model, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "_exps.weight"));
}

static void
what_is_there_already_is_not_overwritten(void **state)
{
	struct tiny tiny = pack_tiny();

	(void)state;
	assert_int_equal(pack_make(pack_model, pack_split, &err), -EEXIST);
	assert_non_null(strstr(err.text, "m.gguf: is there already, and is no pack"));
	pack_make_one();
	tiny.seed = 99;
	tiny_write(&tiny, pack_model);
	assert_int_equal(pack_make(pack_path, pack_model, &err), -EEXIST);
	assert_non_null(strstr(err.text, "m.pack: is there already, and is of the model"));
	assert_int_equal(pack_make(pack_path, pack_split, &err), -EEXIST);
}

static void
a_failure_leaves_no_file(void **state)
{
	char part[120];

	(void)state;
	assert_int_equal(truncate(pack_model, 100000), 0);
	assert_true(pack_make(pack_path, pack_model, &err) < 0);
	assert_int_equal(access(pack_path, F_OK), -1);
	snprintf(part, sizeof(part), "%s/none/m.pack", pack_folder);
	assert_int_equal(pack_make(part, pack_split, &err), -ENOENT);
	snprintf(part, sizeof(part), "%s.part", pack_path);
	assert_int_equal(mkdir(pack_path, 0700), 0); /* appears while it is written */
	{
		struct model_files files;

		assert_int_equal(model_files_open(&files, pack_split, &err), 0);
		assert_true(pack_write(pack_path, &files, PACK_ALIGN, &err) < 0);
		model_files_close(&files);
	}
	assert_int_equal(access(part, F_OK), -1);
}

static void
a_foreign_version_is_refused(void **state)
{
	uint32_t version = PACK_VERSION + 1;

	(void)state;
	pack_make_one();
	pack_patch(offsetof(struct pack_head, version), &version, sizeof(version), true);
	pack_refused("a pack of version 2, want 1");
}

static void
a_cut_pack_is_refused(void **state)
{
	struct pack_head head;

	(void)state;
	pack_make_one();
	pack_read_head(&head);
	assert_int_equal(truncate(pack_path, (off_t)head.bytes - 1), 0);
	pack_refused("want the ");
	assert_int_equal(truncate(pack_path, 50), 0);
	pack_refused("ends at 50");
}

static void
a_damaged_directory_is_refused(void **state)
{
	struct pack_head head;

	(void)state;
	pack_make_one();
	pack_read_head(&head);
	pack_patch(head.tensors_offset + 70, "x", 1, false);
	pack_refused("its directory has the checksum");
}

static void
another_models_fingerprint_is_refused(void **state)
{
	uint64_t fingerprint = 0x1234;

	(void)state;
	pack_make_one();
	pack_patch(offsetof(struct pack_head, fingerprint), &fingerprint, sizeof(fingerprint),
		   true);
	pack_refused("says it is of the model 0000000000001234, and holds ");
}

/* Beyond what the fingerprint samples: the reader finds it before the slice is filled. */
static void
a_damaged_weight_stops_the_load(void **state)
{
	struct pack_head head;

	(void)state;
	pack_make_one();
	pack_read_head(&head);
	pack_patch(head.bytes - 200, "\x55\xaa", 2, false);
	pack_refused("blk.3.ffn_down_exps.weight: 8192 bytes of it have the checksum");
}

static void
a_table_that_lies_is_refused(void **state)
{
	/* clang-format off */
	static const struct { size_t at; uint64_t value; const char *part; } cases[] = {
		{ offsetof(struct pack_head, n_tensors), 1ull << 60, "does not fit" },
		{ offsetof(struct pack_head, n_hashes), UINT64_MAX / 8, "does not fit" },
		{ offsetof(struct pack_head, header_offset), UINT64_MAX - 7, "does not fit" },
		{ offsetof(struct pack_head, header_offset), 0, "does not fit" },
		{ offsetof(struct pack_head, tensors_offset), 1001, "does not fit" },
	};
	/* clang-format on */

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		unlink(pack_path);
		pack_make_one();
		pack_patch(cases[i].at, &cases[i].value, 8, false);
		pack_refused(cases[i].part);
	}
}

static void
a_tensor_that_lies_is_refused(void **state)
{
	/* clang-format off */
	static const struct { size_t at; uint64_t value; const char *part; } cases[] = {
		{ offsetof(struct pack_tensor, offset), 1ull << 62, ": damaged" },
		{ offsetof(struct pack_tensor, offset), 0, ": damaged" },
		{ offsetof(struct pack_tensor, bytes), 1ull << 62, ": damaged" },
		{ offsetof(struct pack_tensor, stride), 4096, ": damaged" }, /* of a trunk tensor */
		{ offsetof(struct pack_tensor, n_dims), 9, ": damaged" },
	};
	/* clang-format on */

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct pack_head head;
		size_t n = cases[i].at == offsetof(struct pack_tensor, n_dims) ? 4 : 8;

		unlink(pack_path);
		pack_make_one();
		pack_read_head(&head);
		pack_patch(head.tensors_offset + cases[i].at, &cases[i].value, n, true);
		pack_refused(cases[i].part);
	}
}

static void
experts_that_lie_over_one_another_are_refused(void **state)
{
	struct model_files files;
	struct pack_head head;
	uint64_t at = 0, same = 0;

	(void)state;
	pack_make_one();
	pack_read_head(&head);
	assert_int_equal(model_files_open(&files, pack_path, &err), 0);
	for (uint64_t i = 0; i < files.n_tensors; i++) {
		if (strcmp(files.tensors[i].name, "blk.1.ffn_gate_exps.weight") == 0)
			same = files.tensors[i].file_offset;
		if (strcmp(files.tensors[i].name, "blk.1.ffn_up_exps.weight") == 0)
			at = i;
	}
	model_files_close(&files);
	pack_patch(head.tensors_offset + at * sizeof(struct pack_tensor) +
		       offsetof(struct pack_tensor, offset),
		   &same, sizeof(same), true);
	pack_refused(" lies over ");
}

static void
the_fingerprint_is_of_the_content(void **state)
{
	struct tiny tiny = pack_tiny();
	struct model_files files;
	uint64_t one, copy, pack, other;

	(void)state;
	pack_make_one();
	assert_int_equal(model_files_open(&files, pack_model, &err), 0);
	assert_int_equal(fingerprint_read(&files, &one, &err), 0);
	model_files_close(&files);
	assert_int_equal(model_files_open(&files, pack_path, &err), 0);
	assert_int_equal(fingerprint_read(&files, &pack, &err), 0);
	model_files_close(&files);
	tiny_write(&tiny, pack_model); /* another time of change */
	assert_int_equal(model_files_open(&files, pack_model, &err), 0);
	assert_int_equal(fingerprint_read(&files, &copy, &err), 0);
	model_files_close(&files);
	tiny.seed = 99;
	tiny_write(&tiny, pack_model);
	assert_int_equal(model_files_open(&files, pack_model, &err), 0);
	assert_int_equal(fingerprint_read(&files, &other, &err), 0);
	model_files_close(&files);
	assert_true(one == copy && one == pack && one != other);
}

#define PACK_TEST(name) cmocka_unit_test_setup_teardown(name, pack_setup, pack_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PACK_TEST(an_experts_roles_lie_side_by_side_in_whole_blocks),
		PACK_TEST(the_checksums_are_the_models),
		PACK_TEST(a_split_model_packs_into_one_file),
		PACK_TEST(a_pack_of_a_pack_is_the_same_file),
		PACK_TEST(ranges_off_a_block_are_read_buffered),
		PACK_TEST(making_it_again_checks_every_byte),
		PACK_TEST(what_is_there_already_is_not_overwritten),
		PACK_TEST(a_failure_leaves_no_file),
		PACK_TEST(a_foreign_version_is_refused),
		PACK_TEST(a_cut_pack_is_refused),
		PACK_TEST(a_damaged_directory_is_refused),
		PACK_TEST(another_models_fingerprint_is_refused),
		PACK_TEST(a_damaged_weight_stops_the_load),
		PACK_TEST(a_table_that_lies_is_refused),
		PACK_TEST(a_tensor_that_lies_is_refused),
		PACK_TEST(experts_that_lie_over_one_another_are_refused),
		PACK_TEST(the_fingerprint_is_of_the_content),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
