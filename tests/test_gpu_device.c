/* The cuda device: lending between processes, registration and its refusals, copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/device.h"
#include "tests/gpu.h"
#include "worker/cuda_kernels.h"

#define MIB (1ull << 20)

static struct device *device;

/* What lies in device memory, seen through a kernel: y = the matrix of one column times 1. */
static void
read_back(struct device *from, const void *at, uint32_t floats, float *ret)
{
	struct error err;
	float *x = gpu_shared(from, 4 * sizeof(*x));
	float *y = gpu_shared(from, floats * sizeof(*y));
	struct cuda_matrices one = {
		.of = { { .at = at, .row_bytes = 4, .type = TYPE_F32, .rows = floats } },
		.n = 1,
		.columns = 1,
	};

	x[0] = 1;
	memset(y, 0xff, floats * sizeof(*y));
	assert_int_equal(cuda_multiply(NULL, &one, (struct cuda_vectors){ .rows = { x, 4 } },
				       (struct cuda_rows){ y, floats }, false, 1, &err),
			 0);
	assert_int_equal(cuda_finish(NULL, &err), 0);
	memcpy(ret, y, floats * sizeof(*y));
	gpu_shared_free(from, x, 4 * sizeof(*x));
	gpu_shared_free(from, y, floats * sizeof(*y));
}

static void
describes_itself(void **state)
{
	const struct device_info *info = device_describe(device);
	uint64_t room = 0, total = 0;

	(void)state;
	assert_true(info->cuda);
	assert_false(info->computes_from_host);
	assert_int_equal(strncmp(info->name, "cuda:0 ", 7), 0);
	assert_string_equal(info->register_method, "cudaHostRegister");
	assert_int_equal(device_memory_room(device, &room, &total), 0);
	assert_true(room > 0 && room <= total);
}

static void
a_device_beyond_the_last_is_not_there(void **state)
{
	struct device *none = NULL;
	struct error err;

	(void)state;
	assert_int_equal(device_open(&none, "cuda:99", &err), -ENODEV);
	assert_non_null(strstr(err.text, "cuda:99: no such GPU"));
	assert_null(none);
}

static void
new_memory_is_zero(void **state)
{
	struct device_memory memory;
	struct error err;
	float values[64];

	(void)state;
	assert_int_equal(device_alloc(device, sizeof(values), &memory, &err), 0);
	assert_int_equal(memory.bytes, sizeof(values));
	assert_false(memory.imported);
	read_back(device, memory.at, 64, values);
	for (int i = 0; i < 64; i++)
		assert_true(values[i] == 0);
	device_free(device, &memory);
	assert_null(memory.at);
}

static void
memory_beyond_the_device_is_refused_and_leaves_no_error(void **state)
{
	struct device_memory memory = { .at = NULL };
	struct error err;

	(void)state;
	assert_int_equal(device_alloc(device, 1ull << 44, &memory, &err), -ENOMEM);
	assert_non_null(strstr(err.text, "no room for"));
	assert_int_equal(device_alloc(device, UINT64_MAX, &memory, &err), -ENOMEM);
	assert_int_equal(device_alloc(device, 0, &memory, &err), -EINVAL);
	assert_null(memory.at);
	new_memory_is_zero(state);
}

static void
copies_arrive(void **state)
{
	const uint32_t n = 300000;
	float *from = malloc(n * sizeof(*from)), *back = malloc(n * sizeof(*back));
	struct device_memory memory;
	struct error err;

	(void)state;
	for (uint32_t i = 0; i < n; i++)
		from[i] = (float)i;
	assert_int_equal(device_alloc(device, n * sizeof(*from), &memory, &err), 0);
	assert_int_equal(device_copy_in(device, memory.at, from, n * sizeof(*from), &err), 0);
	assert_int_equal(device_wait(device, &err), 0);
	read_back(device, memory.at, n, back);
	assert_memory_equal(from, back, n * sizeof(*from));
	device_free(device, &memory);
	free(from);
	free(back);
}

/* In the other process: opens the handle that argv names in hex, and looks. */
static int
borrower(const char *hex)
{
	struct device *other;
	struct device_memory memory;
	struct error err = { "" };
	uint8_t handle[DEVICE_HANDLE_BYTES];
	float values[8];

	for (size_t i = 0; i < DEVICE_HANDLE_BYTES; i++) {
		char byte[3] = { hex[2 * i], hex[2 * i + 1], 0 };

		handle[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	if (device_open(&other, "cuda:0", &err) < 0 ||
	    device_import(other, handle, 3 * MIB, &memory, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	if (!memory.imported || memory.bytes != 3 * MIB)
		return 2;
	read_back(other, (uint8_t *)memory.at + 2 * MIB, 8, values);
	for (int i = 0; i < 8; i++)
		if (values[i] != (float)(i + 1))
			return 3;
	values[0] = 99;
	if (device_copy_in(other, memory.at, values, 4, &err) < 0 || device_wait(other, &err) < 0)
		return 4;
	device_free(other, &memory);
	device_close(other);
	return 0;
}

static void
lends_memory_to_another_process(void **state)
{
	static const float values[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct device_memory memory;
	struct error err;
	uint8_t handle[DEVICE_HANDLE_BYTES];
	char hex[2 * DEVICE_HANDLE_BYTES + 1];
	float back[1];
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(device_alloc(device, 3 * MIB, &memory, &err), 0);
	assert_int_equal(
	    device_copy_in(device, (uint8_t *)memory.at + 2 * MIB, values, sizeof(values), &err),
	    0);
	assert_int_equal(device_wait(device, &err), 0);
	assert_int_equal(device_export(device, &memory, handle, &err), 0);
	for (size_t i = 0; i < DEVICE_HANDLE_BYTES; i++)
		sprintf(hex + 2 * i, "%02x", handle[i]);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		execl("/proc/self/exe", "test_gpu_device", "--borrow", hex, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	read_back(device, memory.at, 1, back);
	assert_true(back[0] == 99);
	device_free(device, &memory);
}

static void
a_handle_of_nothing_is_refused(void **state)
{
	struct device_memory memory = { .at = NULL };
	uint8_t handle[DEVICE_HANDLE_BYTES];
	struct error err;

	(void)state;
	memset(handle, 0x5a, sizeof(handle));
	assert_true(device_import(device, handle, MIB, &memory, &err) < 0);
	assert_null(memory.at);
	new_memory_is_zero(state);
}

/* As the arena is: a memfd sealed against new writable mappings. */
static uint8_t *
sealed_mapping(uint64_t bytes, int *ret_fd)
{
	int fd = memfd_create("arena", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	float *at;
	void *ro;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	for (uint64_t i = 0; i < bytes / 4; i++)
		at[i] = (float)i;
	munmap(at, bytes);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE),
			 0);
	ro = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(ro, MAP_FAILED);
	*ret_fd = fd;
	return ro;
}

static void
registers_a_read_only_sealed_memfd_piece_by_piece(void **state)
{
	const uint64_t piece = 2 * MIB, first = piece / 4 - 8;
	struct error err;
	int fd;
	uint8_t *at = sealed_mapping(3 * piece, &fd);
	float values[16];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(
		    device_register(device, at + (uint64_t)i * piece, piece, true, &err), 0);
	/* A kernel reads across the seam, at the host's own address. */
	read_back(device, at + piece - 32, 16, values);
	for (int i = 0; i < 16; i++)
		assert_true(values[i] == (float)(first + (uint64_t)i));
	for (int i = 0; i < 3; i++)
		device_unregister(device, at + (uint64_t)i * piece, piece);
	munmap(at, 3 * piece);
	close(fd);
}

static void
a_refused_registration_says_why_and_leaves_no_error(void **state)
{
	struct error err = { "" };
	int fd;
	uint8_t *at = sealed_mapping(2 * MIB, &fd);

	(void)state;
	assert_true(device_register(device, at, 2 * MIB, false, &err) < 0);
	assert_non_null(strstr(err.text, "read-only"));
	new_memory_is_zero(state);
	assert_int_equal(device_register(device, at, 0, true, &err), -EINVAL);
	assert_int_equal(device_register(device, at, (64ull << 30) + 1, true, &err), -EINVAL);
	assert_int_equal(device_register(device, at, 2 * MIB, true, &err), 0);
	assert_true(device_register(device, at, 2 * MIB, true, &err) < 0);
	new_memory_is_zero(state);
	device_unregister(device, at, 2 * MIB);
	device_unregister(device, at, 2 * MIB);
	new_memory_is_zero(state);
	munmap(at, 2 * MIB);
	close(fd);
}

static void
a_copy_over_two_registrations_fails_or_arrives_whole(void **state)
{
	const uint64_t piece = 2 * MIB;
	const uint32_t n = (uint32_t)(piece / 4);
	struct error err = { "" };
	struct device_memory memory;
	int fd, rc;
	uint8_t *at = sealed_mapping(2 * piece, &fd);
	float *back = malloc(piece);

	(void)state;
	assert_int_equal(device_alloc(device, piece, &memory, &err), 0);
	assert_int_equal(device_register(device, at, piece, true, &err), 0);
	assert_int_equal(device_register(device, at + piece, piece, true, &err), 0);
	rc = device_copy_in(device, memory.at, at + piece / 2, piece, &err);
	if (rc == 0)
		rc = device_wait(device, &err);
	if (rc == 0) {
		read_back(device, memory.at, n, back);
		assert_memory_equal(back, at + piece / 2, piece);
	} else {
		assert_non_null(strstr(err.text, "registered"));
	}
	new_memory_is_zero(state);
	device_unregister(device, at, piece);
	device_unregister(device, at + piece, piece);
	device_free(device, &memory);
	munmap(at, 2 * piece);
	close(fd);
	free(back);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(describes_itself),
		cmocka_unit_test(a_device_beyond_the_last_is_not_there),
		cmocka_unit_test(new_memory_is_zero),
		cmocka_unit_test(memory_beyond_the_device_is_refused_and_leaves_no_error),
		cmocka_unit_test(copies_arrive),
		cmocka_unit_test(lends_memory_to_another_process),
		cmocka_unit_test(a_handle_of_nothing_is_refused),
		cmocka_unit_test(registers_a_read_only_sealed_memfd_piece_by_piece),
		cmocka_unit_test(a_refused_registration_says_why_and_leaves_no_error),
		cmocka_unit_test(a_copy_over_two_registrations_fails_or_arrives_whole),
	};
	int failed;

	if (argc == 3 && strcmp(argv[1], "--borrow") == 0)
		return borrower(argv[2]);
	device = gpu_open();
	if (!device)
		return 77;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
