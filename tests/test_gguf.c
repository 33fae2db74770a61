/* common/gguf.h: what a header and its keys may hold, and every way in which they may not. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/types.h"
#include "tests/gguf_case.h"

static void
a_right_file_gives_its_tables(void **state)
{
	const uint64_t dims[3] = { 32, 3, 2 };
	struct bytes whole;
	struct builder b;
	struct gguf gguf;

	(void)state;
	case_good(&b);
	case_add_weight(&b);
	builder_tensor(&b, "b.weight", TYPE_Q8_0, 3, dims, NULL, 204);
	case_parse(&b, &whole, &gguf);
	assert_int_equal(gguf.version, 3);
	assert_int_equal(gguf.alignment, 32);
	assert_int_equal(gguf.n_tensors, 2);
	assert_true(gguf_string_is(gguf.tensors[1].name, "b.weight"));
	assert_int_equal(gguf.tensors[0].offset, gguf.data_offset);
	assert_int_equal(gguf.tensors[1].offset, gguf.data_offset + 256);
	assert_int_equal(gguf.tensors[1].bytes, 204);
	assert_int_equal(gguf.tensors[1].dims[3], 1);
	assert_int_equal(gguf.data_offset % 32, 0);
	assert_true(gguf.header_bytes <= gguf.data_offset);
	gguf_close(&gguf);
	bytes_close(&whole);
}

static void
version_2_is_read(void **state)
{
	struct bytes whole;
	struct builder b;
	struct gguf gguf;

	(void)state;
	case_good(&b);
	b.version = 2;
	case_parse(&b, &whole, &gguf);
	assert_int_equal(gguf.version, 2);
	gguf_close(&gguf);
	bytes_close(&whole);
}

static void
other_versions_are_refused_by_number(void **state)
{
	static const uint32_t versions[] = { 0, 1, 4, 0xffffffff };
	struct builder b;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		case_good(&b);
		b.version = versions[i];
		case_refused(&b, -ENOTSUP, "want 2 or 3");
	}
}

static void
big_endian_is_recognised(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	b.version = 0x03000000;
	case_refused(&b, -ENOTSUP, "big-endian");
}

static void
another_magic_is_quoted(void **state)
{
	char bytes[64] = "PK\x03\x04";
	struct error err;
	struct gguf gguf;

	(void)state;
	assert_int_equal(gguf_parse(&gguf, bytes, 64, 64, "a.zip", &err), -EBADMSG);
	assert_non_null(strstr(err.text, "a.zip: begins with 50 4b 03 04"));
}

static void
a_file_below_a_header_is_refused(void **state)
{
	struct error err;
	struct gguf gguf;

	(void)state;
	for (uint64_t n = 0; n < 24; n++) {
		assert_int_equal(gguf_parse(&gguf, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", n,
					    n, "short.gguf", &err),
				 -EBADMSG);
		assert_non_null(strstr(err.text, "want at least 24"));
	}
}

static void
a_header_and_nothing_else_is_refused(void **state)
{
	struct builder b;

	(void)state;
	builder_open(&b);
	case_refused(&b, -EBADMSG, "0 metadata keys");
}

static void
counts_are_bounded_by_the_file(void **state)
{
	static const uint64_t counts[] = { 1000, 1ull << 32, 1ull << 61, UINT64_MAX };
	struct builder b;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		case_good(&b);
		b.n_tensors = counts[i];
		case_refused(&b, -EBADMSG, "tensors, but only");
		case_good(&b);
		b.n_pairs = counts[i];
		case_refused(&b, -EBADMSG, "metadata keys, but only");
	}
}

static void
string_lengths_are_bounded_by_the_file(void **state)
{
	static const uint64_t lengths[] = { 100, 1ull << 40, UINT64_MAX - 7, UINT64_MAX };
	struct builder b;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		case_good(&b);
		builder_raw(&b, "k", GGUF_STRING, &lengths[i], 8);
		case_refused(&b, -EBADMSG, "key k: ");
	}
}

static void
array_counts_are_bounded_by_the_file(void **state)
{
	static const uint32_t kinds[] = { GGUF_U8, GGUF_U32, GGUF_F64, GGUF_STRING };
	struct builder b;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		case_good(&b);
		builder_raw(&b, "k", GGUF_ARRAY, NULL, 0);
		bytes_u32(&b.pairs, kinds[i]);
		bytes_u64(&b.pairs, UINT64_MAX / 4 + 2);
		case_refused(&b, -EBADMSG, "key k: ");
	}
}

static void
a_nested_array_is_refused(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	builder_raw(&b, "k", GGUF_ARRAY, NULL, 0);
	bytes_u32(&b.pairs, GGUF_ARRAY);
	bytes_u64(&b.pairs, 1);
	bytes_zero(&b.pairs, 32);
	case_refused(&b, -EBADMSG, "key k: an array of arrays");
}

static void
an_unknown_value_type_is_refused(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	builder_raw(&b, "k", 13, "12345678", 8);
	case_refused(&b, -EBADMSG, "key k: value type 13, want 0 to 12");
}

static void
a_bool_is_0_or_1(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	builder_raw(&b, "k", GGUF_BOOL, "\2", 1);
	bytes_zero(&b.pairs, 16);
	case_refused(&b, -EBADMSG, "key k: a bool of 2");
}

static void
a_key_of_length_0_is_refused(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	builder_u32(&b, "", 1);
	case_refused(&b, -EBADMSG, "key 1: a name of 0 bytes");
}

static void
a_nul_in_a_name_is_refused(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	bytes_u64(&b.pairs, 3);
	bytes_put(&b.pairs, "a\0b", 3);
	bytes_u32(&b.pairs, GGUF_U32);
	bytes_u32(&b.pairs, 1);
	b.n_pairs++;
	case_refused(&b, -EBADMSG, "key a?b: a NUL byte");

	case_good(&b);
	bytes_u64(&b.infos, 3);
	bytes_put(&b.infos, "a\0b", 3);
	bytes_zero(&b.infos, 24);
	b.n_tensors++;
	case_refused(&b, -EBADMSG, "a?b: a NUL byte");
}

static void
a_key_twice_is_refused(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	builder_u32(&b, "k", 1);
	builder_u32(&b, "other", 1);
	builder_u32(&b, "k", 1);
	case_refused(&b, -EBADMSG, "key k: the name stands twice");
}

/* Whatever the cut: never more than the bytes in hand are read, and the answer is one of two. */
static void
a_header_cut_anywhere_asks_for_more_or_is_refused(void **state)
{
	static const char *const words[] = { "one", "two", "three" };
	struct bytes whole;
	struct builder b;
	struct gguf gguf;
	struct error err;

	(void)state;
	case_good(&b);
	builder_strings(&b, "words", words, 3);
	case_add_weight(&b);
	case_parse(&b, &whole, &gguf);
	for (uint64_t n = 0; n < gguf.header_bytes; n++) {
		uint8_t *cut = malloc(n + 1);
		struct gguf part;

		assert_non_null(cut);
		memcpy(cut, whole.at, n);
		assert_int_equal(gguf_parse(&part, cut, n, whole.n, "f", &err), -ENODATA);
		assert_int_equal(gguf_parse(&part, cut, n, n, "f", &err), -EBADMSG);
		free(cut);
	}
	gguf_close(&gguf);
	bytes_close(&whole);
}

static void
values_are_found_by_key_and_kind(void **state)
{
	struct bytes whole;
	struct builder b;
	struct gguf gguf;
	struct error err;
	struct gguf_string text;
	uint64_t u = 0;
	double f = 0;
	bool flag = false;

	(void)state;
	case_good(&b);
	builder_u16(&b, "small", 7);
	builder_u64(&b, "large", UINT64_MAX);
	builder_raw(&b, "negative", GGUF_I8, "\xff", 1);
	builder_f32(&b, "f", 0.5f);
	builder_bool(&b, "flag", true);
	case_parse(&b, &whole, &gguf);
	assert_int_equal(gguf_find_u64(&gguf, "small", &u, &err), 1);
	assert_int_equal(u, 7);
	assert_int_equal(gguf_find_u64(&gguf, "large", &u, &err), 1);
	assert_true(u == UINT64_MAX);
	assert_int_equal(gguf_find_u64(&gguf, "negative", &u, &err), -EINVAL);
	assert_non_null(strstr(err.text, "key negative: -1"));
	assert_int_equal(gguf_find_u64(&gguf, "none", &u, &err), 0);
	assert_int_equal(gguf_find_u64(&gguf, "f", &u, &err), -EINVAL);
	assert_non_null(strstr(err.text, "key f: float32, want an integer"));
	assert_int_equal(gguf_find_f64(&gguf, "f", &f, &err), 1);
	assert_true(f == 0.5);
	assert_int_equal(gguf_find_bool(&gguf, "flag", &flag, &err), 1);
	assert_true(flag);
	assert_int_equal(gguf_find_bool(&gguf, "f", &flag, &err), -EINVAL);
	assert_int_equal(gguf_find_string(&gguf, "general.architecture", &text, &err), 1);
	assert_true(gguf_string_is(text, "any"));
	assert_int_equal(gguf_find_string(&gguf, "flag", &text, &err), -EINVAL);
	gguf_close(&gguf);
	bytes_close(&whole);
}

static void
strings_of_an_array_come_in_order(void **state)
{
	static const char *const words[] = { "one", "", "three" };
	struct bytes whole;
	struct builder b;
	struct gguf gguf;
	const struct gguf_pair *pair;
	const uint8_t *at;

	(void)state;
	case_good(&b);
	builder_strings(&b, "words", words, 3);
	case_parse(&b, &whole, &gguf);
	pair = gguf_find(&gguf, "words");
	assert_non_null(pair);
	assert_int_equal(pair->count, 3);
	assert_int_equal(pair->element, GGUF_STRING);
	at = pair->at;
	for (size_t i = 0; i < 3; i++)
		assert_true(gguf_string_is(gguf_next_string(&at), words[i]));
	gguf_close(&gguf);
	bytes_close(&whole);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_right_file_gives_its_tables),
		cmocka_unit_test(version_2_is_read),
		cmocka_unit_test(other_versions_are_refused_by_number),
		cmocka_unit_test(big_endian_is_recognised),
		cmocka_unit_test(another_magic_is_quoted),
		cmocka_unit_test(a_file_below_a_header_is_refused),
		cmocka_unit_test(a_header_and_nothing_else_is_refused),
		cmocka_unit_test(counts_are_bounded_by_the_file),
		cmocka_unit_test(string_lengths_are_bounded_by_the_file),
		cmocka_unit_test(array_counts_are_bounded_by_the_file),
		cmocka_unit_test(a_nested_array_is_refused),
		cmocka_unit_test(an_unknown_value_type_is_refused),
		cmocka_unit_test(a_bool_is_0_or_1),
		cmocka_unit_test(a_key_of_length_0_is_refused),
		cmocka_unit_test(a_nul_in_a_name_is_refused),
		cmocka_unit_test(a_key_twice_is_refused),
		cmocka_unit_test(a_header_cut_anywhere_asks_for_more_or_is_refused),
		cmocka_unit_test(values_are_found_by_key_and_kind),
		cmocka_unit_test(strings_of_an_array_come_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
