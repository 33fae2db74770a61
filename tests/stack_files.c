#include "tests/stack_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

void
file_copy(const char *from, const char *to)
{
	FILE *in = fopen(from, "re"), *out = fopen(to, "we");
	char bytes[65536];
	size_t n;

	assert_non_null(in);
	assert_non_null(out);
	while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
		assert_int_equal(fwrite(bytes, 1, n, out), n);
	fclose(in);
	assert_int_equal(fclose(out), 0);
}

void
file_flip(const char *path, long at)
{
	FILE *file = fopen(path, "r+e");
	uint8_t bytes[64];
	size_t n;

	assert_non_null(file);
	for (; fseek(file, at, SEEK_SET) == 0 && (n = fread(bytes, 1, sizeof(bytes), file)) > 0;
	     at += 4096) {
		for (size_t i = 0; i < n; i++)
			bytes[i] ^= 0xff;
		assert_int_equal(fseek(file, at, SEEK_SET), 0);
		assert_int_equal(fwrite(bytes, 1, n, file), n);
	}
	assert_int_equal(fclose(file), 0);
}
