/* common/gguf.h: the tensor table, where its sizes and places may not lead. */
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
dimensions_are_1_to_4(void **state)
{
	static const uint32_t counts[] = { 0, 5, 0xffffffff };
	struct builder b;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		case_good(&b);
		bytes_string(&b.infos, "t");
		bytes_u32(&b.infos, counts[i]);
		bytes_zero(&b.infos, 64);
		b.n_tensors++;
		case_refused(&b, -EBADMSG, "dimensions, want 1 to 4");
	}
}

static void
a_zero_dimension_is_refused(void **state)
{
	const uint64_t dims[2] = { 64, 0 };
	struct builder b;

	(void)state;
	case_good(&b);
	builder_tensor(&b, "t", TYPE_F32, 2, dims, NULL, 256);
	case_refused(&b, -EBADMSG, "t: dimension 1 is 0");
}

static void
a_size_that_wraps_is_refused(void **state)
{
	static const uint64_t dims[][4] = {
		{ 1ull << 62, 1, 1, 1 },
		{ 1ull << 32, 1ull << 30, 1, 1 },
		{ 1ull << 31, 1ull << 31, 1ull << 31, 1 },
		{ 64, 1ull << 60, 1, 16 },
	};
	struct builder b;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		case_good(&b);
		builder_tensor(&b, "t", TYPE_F32, 4, dims[i], NULL, 256);
		case_refused(&b, -EBADMSG, "do not fit 64 bits");
	}
}

static void
rows_are_whole_blocks(void **state)
{
	const uint64_t dims[1] = { 33 };
	struct builder b;

	(void)state;
	case_good(&b);
	builder_tensor(&b, "t", TYPE_Q8_0, 1, dims, NULL, 256);
	case_refused(&b, -EBADMSG, "t: rows of 33 elements, want a multiple of 32 for Q8_0");
}

static void
an_unsupported_type_names_the_supported(void **state)
{
	static const uint32_t types[] = { 3, 31, 1000, 0xffffffff };
	struct builder b;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		case_good(&b);
		builder_tensor(&b, "t", types[i], 1, case_row, NULL, 256);
		case_refused(&b, -ENOTSUP, type_supported_names());
	}
}

static void
alignment_is_a_power_of_two_stored_as_uint32(void **state)
{
	static const uint32_t values[] = { 0, 1, 3, 4, 33, 1u << 21, 1u << 31 };
	struct builder b;

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		case_good(&b);
		builder_u32(&b, "general.alignment", values[i]);
		case_refused(&b, -EBADMSG, "key general.alignment: ");
	}
	case_good(&b);
	builder_u64(&b, "general.alignment", 32);
	case_refused(&b, -EBADMSG, "key general.alignment: value type 10, want 4");
}

static void
the_alignment_key_holds(void **state)
{
	struct bytes whole;
	struct builder b;
	struct gguf gguf;

	(void)state;
	case_good(&b);
	b.alignment = 4096;
	builder_u32(&b, "general.alignment", 4096);
	case_add_weight(&b);
	case_parse(&b, &whole, &gguf);
	assert_int_equal(gguf.alignment, 4096);
	assert_int_equal(gguf.tensors[0].offset, 4096);
	gguf_close(&gguf);
	bytes_close(&whole);
}

static void
an_offset_off_the_alignment_is_refused(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	builder_entry(&b, "t", TYPE_F32, 1, case_row, 16);
	bytes_zero(&b.data, 512);
	case_refused(&b, -EBADMSG, "t: offset 16, want a multiple of 32");
}

static void
a_tensor_may_end_with_the_file_and_not_a_byte_later(void **state)
{
	struct bytes whole;
	struct error err;
	struct builder b;
	struct gguf gguf;

	(void)state;
	case_good(&b);
	case_add_weight(&b);
	builder_finish(&b, &whole);
	assert_int_equal(gguf_parse(&gguf, whole.at, whole.n, whole.n, "f", &err), 0);
	gguf_close(&gguf);
	assert_int_equal(gguf_parse(&gguf, whole.at, whole.n - 1, whole.n - 1, "f", &err),
			 -EBADMSG);
	assert_non_null(strstr(err.text, "a.weight: 256 bytes"));
	bytes_close(&whole);
	builder_close(&b);
}

static void
offsets_near_the_limit_do_not_wrap(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	builder_entry(&b, "t", TYPE_F32, 1, case_row, UINT64_MAX - 31);
	bytes_zero(&b.data, 512);
	case_refused(&b, -EBADMSG, "t: 256 bytes at offset");
}

static void
tensors_that_overlap_are_refused(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	builder_entry(&b, "late", TYPE_F32, 1, case_row, 224);
	builder_entry(&b, "early", TYPE_F32, 1, case_row, 0);
	bytes_zero(&b.data, 512);
	case_refused(&b, -EBADMSG, "inside early");
}

static void
a_tensor_name_twice_is_refused(void **state)
{
	struct builder b;

	(void)state;
	case_good(&b);
	case_add_weight(&b);
	case_add_weight(&b);
	case_refused(&b, -EBADMSG, "a.weight: the name stands twice");
}

static void
tensor_names_have_1_to_63_bytes(void **state)
{
	char name[65] = "";
	struct builder b;

	(void)state;
	case_good(&b);
	builder_tensor(&b, "", TYPE_F32, 1, case_row, NULL, 256);
	case_refused(&b, -EBADMSG, "tensor 0: a name of 0 bytes");
	memset(name, 'x', 64);
	case_good(&b);
	builder_tensor(&b, name, TYPE_F32, 1, case_row, NULL, 256);
	case_refused(&b, -EBADMSG, "tensor 0: a name of 64 bytes, want 1 to 63");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dimensions_are_1_to_4),
		cmocka_unit_test(a_zero_dimension_is_refused),
		cmocka_unit_test(a_size_that_wraps_is_refused),
		cmocka_unit_test(rows_are_whole_blocks),
		cmocka_unit_test(an_unsupported_type_names_the_supported),
		cmocka_unit_test(alignment_is_a_power_of_two_stored_as_uint32),
		cmocka_unit_test(the_alignment_key_holds),
		cmocka_unit_test(an_offset_off_the_alignment_is_refused),
		cmocka_unit_test(a_tensor_may_end_with_the_file_and_not_a_byte_later),
		cmocka_unit_test(offsets_near_the_limit_do_not_wrap),
		cmocka_unit_test(tensors_that_overlap_are_refused),
		cmocka_unit_test(a_tensor_name_twice_is_refused),
		cmocka_unit_test(tensor_names_have_1_to_63_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
