/* loader/model_files.h: a model's shards, found from any one of them, or refused by name. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/types.h"
#include "loader/model_files.h"
#include "tests/gguf_builder.h"
#include "tests/scratch.h"

#define PARTS 3

static const char *
in_folder(const char *name)
{
	static char path[2][160];
	static int turn;

	turn = !turn;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", scratch_of_test.dir, name);
	return path[turn];
}

static const char *
part_path(uint32_t part)
{
	char name[64];

	tiny_split_path(name, sizeof(name), "m", part, PARTS);
	return in_folder(name);
}

static void
write_parts(void)
{
	struct tiny tiny = tiny_default();

	tiny.layers = 4;
	tiny_write_split(&tiny, in_folder("m"), PARTS);
}

static void
expect_refused(const char *path, int code, const char *part, const char *also)
{
	struct model_files files;
	struct error err = { "" };

	assert_int_equal(model_files_open(&files, path, &err), code);
	if (!strstr(err.text, part) || !strstr(err.text, also))
		fail_msg("\"%s\" does not say \"%s\" and \"%s\"", err.text, part, also);
}

static void
a_model_in_one_file_has_one_shard(void **state)
{
	struct tiny tiny = tiny_default();
	struct model_files files;
	struct error err;

	(void)state;
	tiny_write(&tiny, in_folder("one.gguf"));
	assert_int_equal(model_files_open(&files, in_folder("one.gguf"), &err), 0);
	assert_int_equal(files.n_shards, 1);
	assert_int_equal(files.n_tensors, 27);
	assert_string_equal(files.tensors[0].name, "token_embd.weight");
	assert_int_equal(files.tensors[0].bytes, 96 * 64 * 4);
	model_files_close(&files);
}

static void
any_shard_finds_its_siblings(void **state)
{
	uint64_t stamp = 0;

	(void)state;
	write_parts();
	for (uint32_t part = 0; part < PARTS; part++) {
		struct model_files files;
		struct error err = { "" };

		if (model_files_open(&files, part_path(part), &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(files.n_shards, PARTS);
		assert_int_equal(files.n_tensors, 3 + 4 * 12);
		assert_int_equal(files.tensors[0].shard, 0);
		assert_int_equal(files.tensors[files.n_tensors - 1].shard, PARTS - 1);
		assert_non_null(gguf_find(&files.shards[0].gguf, "general.architecture"));
		assert_true(part == 0 || files.stamp == stamp);
		stamp = files.stamp;
		model_files_close(&files);
	}
}

static void
a_missing_shard_is_named(void **state)
{
	(void)state;
	write_parts();
	assert_int_equal(unlink(part_path(1)), 0);
	expect_refused(part_path(2), -ENOENT, part_path(1), "missing: shard 2 of 3");
}

static void
swapped_names_are_told(void **state)
{
	(void)state;
	write_parts();
	assert_int_equal(rename(part_path(1), in_folder("aside")), 0);
	assert_int_equal(rename(part_path(2), part_path(1)), 0);
	assert_int_equal(rename(in_folder("aside"), part_path(2)), 0);
	expect_refused(part_path(0), -EINVAL, part_path(1), "swapped names");
	expect_refused(part_path(2), -EINVAL, part_path(2), "split.no is 1 (from 0)");
}

static void
a_shard_twice_is_told(void **state)
{
	(void)state;
	write_parts();
	assert_int_equal(unlink(part_path(2)), 0);
	assert_int_equal(link(part_path(1), part_path(2)), 0);
	expect_refused(part_path(0), -EINVAL, part_path(2), "swapped names");
}

static void
a_shard_of_a_set_of_another_size_is_told(void **state)
{
	struct tiny tiny = tiny_default();
	char other[160];

	(void)state;
	write_parts();
	tiny.layers = 4;
	tiny_write_split(&tiny, in_folder("m"), 2);
	tiny_split_path(other, sizeof(other), in_folder("m"), 1, 2);
	assert_int_equal(rename(other, part_path(1)), 0);
	expect_refused(part_path(0), -EINVAL, part_path(1), "split.count is 2");
}

static void
a_shard_with_another_name_cannot_find_the_rest(void **state)
{
	(void)state;
	write_parts();
	assert_int_equal(rename(part_path(1), in_folder("b.gguf")), 0);
	expect_refused(in_folder("b.gguf"), -EINVAL,
		       "want a name that ends in -00001-of-00003.gguf", "b.gguf");
}

static void
append(const char *to, const char *from)
{
	FILE *out = fopen(to, "ab"), *in = fopen(from, "rb");
	int byte;

	assert_non_null(out);
	assert_non_null(in);
	while ((byte = fgetc(in)) != EOF)
		fputc(byte, out);
	fclose(in);
	assert_int_equal(fclose(out), 0);
}

static void
joined_shards_are_told(void **state)
{
	(void)state;
	write_parts();
	append(part_path(0), part_path(1));
	expect_refused(part_path(0), -EINVAL, part_path(0), "joined shards");
	append(in_folder("joined.gguf"), part_path(1));
	append(in_folder("joined.gguf"), part_path(2));
	expect_refused(in_folder("joined.gguf"), -EINVAL, "joined.gguf", "joined shards");
}

static void
bytes_behind_the_last_tensor_are_padding_or_refused(void **state)
{
	struct tiny tiny = tiny_default();
	struct model_files files;
	struct builder b;
	struct bytes whole;
	struct error err;

	(void)state;
	builder_open(&b);
	tiny_build(&b, &tiny);
	builder_tensor(&b, "z", TYPE_F32, 1, (const uint64_t[]){ 1 }, NULL, 4);
	builder_finish(&b, &whole);
	bytes_zero(&whole, 28);
	bytes_write(&whole, in_folder("padded.gguf"));
	assert_int_equal(model_files_open(&files, in_folder("padded.gguf"), &err), 0);
	model_files_close(&files);
	bytes_zero(&whole, 1);
	bytes_write(&whole, in_folder("padded.gguf"));
	expect_refused(in_folder("padded.gguf"), -EINVAL, "29 bytes behind the last tensor",
		       "padded.gguf");
	bytes_close(&whole);
	builder_close(&b);
}

static void
a_shard_of_another_quant_is_told(void **state)
{
	struct tiny tiny = tiny_default();
	char path[160];

	(void)state;
	tiny.layers = 4;
	tiny.file_type = 7;
	tiny.type = TYPE_Q8_0;
	tiny.expert_type = TYPE_Q8_0;
	tiny_write_split(&tiny, in_folder("m"), PARTS);
	tiny.expert_type = TYPE_Q4_0;
	tiny_write_split(&tiny, in_folder("other"), PARTS);
	tiny_split_path(path, sizeof(path), in_folder("other"), 1, PARTS);
	assert_int_equal(rename(path, part_path(1)), 0);
	expect_refused(part_path(0), -EINVAL, part_path(1), "a shard of another quant");
}

/* Where metadata stands in every shard it must be the same. */
static void
a_shard_with_other_metadata_is_told(void **state)
{
	struct tiny tiny = tiny_default();

	(void)state;
	write_parts();
	tiny.layers = 4;
	for (int same = 0; same <= 1; same++) {
		struct model_files files;
		struct builder b;
		struct error err;

		builder_open(&b);
		tiny_build_part(&b, &tiny, 1, PARTS);
		builder_string(&b, "general.name", same ? "tiny" : "tinz");
		builder_write(&b, part_path(1));
		builder_close(&b);
		if (!same) {
			expect_refused(part_path(0), -EINVAL, part_path(1),
				       "key general.name differs");
			continue;
		}
		assert_int_equal(model_files_open(&files, part_path(0), &err), 0);
		model_files_close(&files);
	}
}

static void
a_tensor_in_two_shards_is_told(void **state)
{
	struct tiny tiny = tiny_default();
	struct builder b;

	(void)state;
	write_parts();
	tiny.layers = 4;
	builder_open(&b);
	tiny_build_part(&b, &tiny, 1, PARTS);
	builder_tensor(&b, "token_embd.weight", TYPE_F32, 1, (const uint64_t[]){ 8 }, NULL, 32);
	builder_write(&b, part_path(1));
	builder_close(&b);
	expect_refused(part_path(0), -EINVAL, "token_embd.weight is in", part_path(1));
}

static void
a_count_of_tensors_that_does_not_add_up_is_told(void **state)
{
	struct tiny tiny = tiny_default();
	struct builder b;

	(void)state;
	write_parts();
	tiny.layers = 4;
	builder_open(&b);
	tiny_build_part(&b, &tiny, 1, PARTS);
	builder_tensor(&b, "extra", TYPE_F32, 1, (const uint64_t[]){ 8 }, NULL, 32);
	builder_write(&b, part_path(1));
	builder_close(&b);
	expect_refused(part_path(0), -EINVAL, "split.tensors.count is 51, the shards hold 52",
		       "00001-of");
}

static void
what_is_no_file_is_refused(void **state)
{
	(void)state;
	expect_refused(in_folder("none.gguf"), -ENOENT, "none.gguf", "No such file");
	expect_refused(scratch_of_test.dir, -EISDIR, scratch_of_test.dir,
		       "a folder, want a GGUF file");
	assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
	expect_refused(in_folder("fifo"), -EINVAL, "fifo", "no regular file");
}

static void
a_changed_file_has_another_stamp(void **state)
{
	const struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1, .tv_nsec = 5 } };
	struct tiny tiny = tiny_default();
	struct model_files files;
	struct error err;
	uint64_t before;

	(void)state;
	tiny_write(&tiny, in_folder("one.gguf"));
	assert_int_equal(model_files_open(&files, in_folder("one.gguf"), &err), 0);
	before = files.stamp;
	model_files_close(&files);
	assert_int_equal(utimensat(AT_FDCWD, in_folder("one.gguf"), times, 0), 0);
	assert_int_equal(model_files_open(&files, in_folder("one.gguf"), &err), 0);
	assert_true(files.stamp != before);
	model_files_close(&files);
}

/* Larger than the first read of a header. */
static void
a_long_header_is_read_to_its_end(void **state)
{
	struct tiny tiny = tiny_default();
	const uint64_t n = 200000;
	const char **words = calloc(n, sizeof(*words));
	struct model_files files;
	struct builder b;
	struct error err;

	(void)state;
	assert_non_null(words);
	for (uint64_t i = 0; i < n; i++)
		words[i] = "token-text";
	builder_open(&b);
	builder_strings(&b, "tokenizer.ggml.tokens", words, n);
	tiny_build(&b, &tiny);
	builder_write(&b, in_folder("long.gguf"));
	builder_close(&b);
	free(words);
	assert_int_equal(model_files_open(&files, in_folder("long.gguf"), &err), 0);
	assert_true(files.shards[0].gguf.header_bytes > n * 18);
	assert_int_equal(files.n_tensors, 27);
	model_files_close(&files);
}

#define FILES_TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		FILES_TEST(a_model_in_one_file_has_one_shard),
		FILES_TEST(any_shard_finds_its_siblings),
		FILES_TEST(a_missing_shard_is_named),
		FILES_TEST(swapped_names_are_told),
		FILES_TEST(a_shard_twice_is_told),
		FILES_TEST(a_shard_of_a_set_of_another_size_is_told),
		FILES_TEST(a_shard_with_another_name_cannot_find_the_rest),
		FILES_TEST(joined_shards_are_told),
		FILES_TEST(bytes_behind_the_last_tensor_are_padding_or_refused),
		FILES_TEST(a_shard_of_another_quant_is_told),
		FILES_TEST(a_shard_with_other_metadata_is_told),
		FILES_TEST(a_tensor_in_two_shards_is_told),
		FILES_TEST(a_count_of_tensors_that_does_not_add_up_is_told),
		FILES_TEST(what_is_no_file_is_refused),
		FILES_TEST(a_changed_file_has_another_stamp),
		FILES_TEST(a_long_header_is_read_to_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
