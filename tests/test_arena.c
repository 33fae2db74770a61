#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/arena.h"
#include "common/shared_memory.h"
#include "tests/scratch.h"

static struct arena arena;
static char path[SHARED_PATH_BYTES];
static struct error err;

/* Two slices; one tensor in each. */
static int
setup(void **state)
{
	struct arena_head *head;
	struct arena_tensor *tensors;
	struct arena_slice *slices;

	(void)state;
	if (arena_create(&arena, 3 * ARENA_SLICE_ALIGN - 5, ARENA_PAGES_AUTO, &err) < 0)
		return -1;
	head = (void *)arena.base;
	*head = (struct arena_head){ .magic = ARENA_MAGIC,
				     .bytes = arena.bytes,
				     .stamp = 11,
				     .tensors_offset = 4096,
				     .n_tensors = 2,
				     .slices_offset = 8192,
				     .n_slices = 2,
				     .header_offset = 12288,
				     .header_bytes = 100,
				     .model = "m.gguf" };
	tensors = (void *)(arena.base + 4096);
	slices = (void *)(arena.base + 8192);
	for (uint32_t i = 0; i < 2; i++) {
		snprintf(slices[i].name, sizeof(slices[i].name), "slice %u", i);
		slices[i].offset = (i + 1) * ARENA_SLICE_ALIGN;
		slices[i].bytes = 4096;
		snprintf(tensors[i].name, sizeof(tensors[i].name), "t%u", i);
		tensors[i].offset = slices[i].offset + 32;
		tensors[i].bytes = 64;
		tensors[i].slice = i;
	}
	arena.head = head;
	arena.tensors = tensors;
	arena.slices = slices;
	head->layout_hash = arena_layout_hash(&arena);
	shared_memory_path(path, arena.fd);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	arena_close(&arena);
	return 0;
}

static void
rehash(void)
{
	((struct arena_head *)arena.base)->layout_hash = arena_layout_hash(&arena);
}

static void
who_attaches_sees_the_same_bytes(void **state)
{
	struct arena other;

	(void)state;
	assert_int_equal(arena_check(&arena, &err), 0);
	assert_int_equal(arena.bytes, 3 * ARENA_SLICE_ALIGN);
	assert_int_equal((uintptr_t)arena.base % ARENA_SLICE_ALIGN, 0);
	arena.base[ARENA_SLICE_ALIGN + 40] = 9;
	assert_int_equal(arena_attach(&other, path, false, NULL, &err), 0);
	assert_int_equal(other.base[ARENA_SLICE_ALIGN + 40], 9);
	assert_int_equal(other.inode, arena.inode);
	assert_int_equal((uintptr_t)other.base % ARENA_SLICE_ALIGN, 0);
	assert_ptr_equal(arena_find_tensor(&other, "t1"), &other.tensors[1]);
	assert_null(arena_find_tensor(&other, "t2"));
	arena_close(&other);
}

static void
another_identity_is_refused_with_both_values(void **state)
{
	struct arena_want want = { .bytes = arena.bytes,
				   .stamp = 12,
				   .layout_hash = arena.head->layout_hash };
	struct arena other;

	(void)state;
	assert_int_equal(arena_attach(&other, path, false, &want, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "000000000000000b"));
	assert_non_null(strstr(err.text, "000000000000000c"));
	want.stamp = 11;
	want.layout_hash++;
	assert_int_equal(arena_attach(&other, path, false, &want, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "layout"));
	want.layout_hash--;
	want.bytes--;
	assert_int_equal(arena_attach(&other, path, false, &want, &err), -EBADMSG);
}

static void
nobody_can_resize_it(void **state)
{
	(void)state;
	assert_int_equal(ftruncate(arena.fd, 4096), -1);
	assert_int_equal(errno, EPERM);
}

static void
once_sealed_nobody_can_map_it_to_write(void **state)
{
	struct arena other;

	(void)state;
	assert_int_equal(arena_attach(&other, path, true, NULL, &err), 0);
	other.base[ARENA_SLICE_ALIGN + 41] = 3;
	arena_close(&other);
	assert_int_equal(arena_seal(&arena), 0);
	assert_true(arena_attach(&other, path, true, NULL, &err) < 0);
	assert_int_equal(arena_attach(&other, path, false, NULL, &err), 0);
	assert_int_equal(other.base[ARENA_SLICE_ALIGN + 41], 3);
	arena_close(&other);
}

static void
what_is_no_arena_is_refused(void **state)
{
	struct shared_memory plain;
	struct arena other;
	char plain_path[SHARED_PATH_BYTES];
	int fd;

	(void)state;
	assert_int_equal(arena_attach(&other, "/nonexistent", false, NULL, &err), -ENOENT);
	assert_int_equal(shared_memory_create(&plain, "x", ARENA_SLICE_ALIGN, &err), 0);
	shared_memory_path(plain_path, plain.fd);
	assert_int_equal(arena_attach(&other, plain_path, false, NULL, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "magic"));
	shared_memory_close(&plain);
	assert_int_equal(shared_memory_create(&plain, "x", 4096, &err), 0);
	shared_memory_path(plain_path, plain.fd);
	assert_int_equal(arena_attach(&other, plain_path, false, NULL, &err), -EBADMSG);
	shared_memory_close(&plain);
	fd = memfd_create("unsealed", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, (off_t)ARENA_SLICE_ALIGN), 0);
	shared_memory_path(plain_path, fd);
	assert_int_equal(arena_attach(&other, plain_path, false, NULL, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "sealed"));
	close(fd);
}

static void
a_file_on_a_drive_is_refused_as_not_sealed(void **state)
{
	struct shared_memory memory;
	struct scratch scratch;
	struct arena other;
	char file[96];
	int fd;

	(void)state;
	scratch_open(&scratch);
	snprintf(file, sizeof(file), "%s/file", scratch.dir);
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)ARENA_SLICE_ALIGN), 0);
	assert_int_equal(arena_attach(&other, file, false, NULL, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "sealed"));
	assert_int_equal(shared_memory_attach(&memory, file, ARENA_SLICE_ALIGN, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "sealed"));
	close(fd);
	scratch_close(&scratch);
}

static void
a_directory_that_points_outside_is_refused(void **state)
{
	struct arena_head *head = (void *)arena.base, good = *head;
	struct arena_tensor *tensors = (void *)(arena.base + 4096);
	struct arena_slice *slices = (void *)(arena.base + 8192);

	(void)state;
	head->n_tensors = UINT64_MAX / 8;
	assert_int_equal(arena_check(&arena, &err), -EBADMSG);
	*head = good;
	head->slices_offset = arena.bytes;
	assert_int_equal(arena_check(&arena, &err), -EBADMSG);
	*head = good;
	head->header_bytes = arena.bytes;
	assert_int_equal(arena_check(&arena, &err), -EBADMSG);
	*head = good;
	slices[1].bytes = arena.bytes;
	rehash();
	assert_int_equal(arena_check(&arena, &err), -EBADMSG);
	slices[1].bytes = 4096;
	slices[1].offset = ARENA_SLICE_ALIGN;
	rehash();
	assert_int_equal(arena_check(&arena, &err), -EBADMSG);
	slices[1].offset = 2 * ARENA_SLICE_ALIGN;
	tensors[1].bytes = UINT64_MAX;
	rehash();
	assert_int_equal(arena_check(&arena, &err), -EBADMSG);
	tensors[1].bytes = 64;
	tensors[1].slice = 2;
	rehash();
	assert_int_equal(arena_check(&arena, &err), -EBADMSG);
	tensors[1].slice = 1;
	rehash();
	assert_int_equal(arena_check(&arena, &err), 0);
}

static void
tables_changed_behind_the_hash_are_noticed(void **state)
{
	(void)state;
	((struct arena_tensor *)(arena.base + 4096))->type = 1;
	assert_int_equal(arena_check(&arena, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "layout hash"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(who_attaches_sees_the_same_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(another_identity_is_refused_with_both_values, setup,
						teardown),
		cmocka_unit_test_setup_teardown(nobody_can_resize_it, setup, teardown),
		cmocka_unit_test_setup_teardown(once_sealed_nobody_can_map_it_to_write, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_is_no_arena_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_file_on_a_drive_is_refused_as_not_sealed, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_directory_that_points_outside_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(tables_changed_behind_the_hash_are_noticed, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
