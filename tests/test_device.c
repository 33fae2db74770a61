#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "common/device.h"
#include "common/shared_memory.h"

static struct device *device;
static struct error err;

static int
setup(void **state)
{
	(void)state;
	return device_open(&device, "cpu", &err);
}

static int
teardown(void **state)
{
	(void)state;
	device_close(device);
	return 0;
}

static void
a_device_that_does_not_exist_is_named(void **state)
{
	struct device *other;

	(void)state;
	assert_int_equal(device_open(&other, "gpu", &err), -EINVAL);
	assert_string_equal(err.text, "--device gpu: want auto, cpu, cuda or cuda:N");
	assert_int_equal(device_open(&other, "cuda:x", &err), -EINVAL);
	assert_int_equal(device_open(&other, "cuda:", &err), -EINVAL);
	assert_int_equal(device_open(&other, "cuda:999", &err), -ENODEV);
}

static void
auto_takes_what_is_there(void **state)
{
	struct device *other;

	(void)state;
	assert_int_equal(device_open(&other, "auto", &err), 0);
	device_close(other);
}

static void
memory_is_lent_by_path(void **state)
{
	struct device_memory memory, other;
	char path[SHARED_PATH_BYTES];

	(void)state;
	assert_int_equal(device_alloc(device, 10000, &memory, &err), 0);
	shared_memory_path(path, memory.fd);
	assert_int_equal(device_import_path(device, path, 10001, &other, &err), -EBADMSG);
	assert_int_equal(device_import_path(device, path, 10000, &other, &err), 0);
	assert_true(other.imported);
	((uint8_t *)other.at)[9999] = 5;
	assert_int_equal(((uint8_t *)memory.at)[9999], 5);
	device_free(device, &other);
	assert_int_equal(device_copy_in(device, memory.at, "abc", 3, &err), 0);
	assert_int_equal(device_wait(device, &err), 0);
	assert_memory_equal(memory.at, "abc", 3);
	device_free(device, &memory);
	device_free(device, &memory); /* of a freed one is fine */
}

static void
a_refused_lock_says_what_would_help(void **state)
{
	struct rlimit old, low;
	void *at = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int rc;

	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip(); /* under a sanitizer mlock does nothing and says 0 */
#endif
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
	assert_int_equal(device_register(device, at, 4096, true, &err), 0);
	device_unregister(device, at, 4096);
	low = (struct rlimit){ .rlim_cur = 4096, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &low), 0);
	rc = device_register(device, at, 1 << 20, true, &err);
	setrlimit(RLIMIT_MEMLOCK, &old);
	if (rc == 0) /* CAP_IPC_LOCK knows no limit */
		device_unregister(device, at, 1 << 20);
	else
		assert_non_null(strstr(err.text, "ulimit -l is 4 KiB"));
	assert_int_equal(device_register(device, (void *)4096, 4096, true, &err), -ENOMEM);
	assert_non_null(strstr(err.text, "refused"));
	munmap(at, 1 << 20);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_device_that_does_not_exist_is_named, setup,
						teardown),
		cmocka_unit_test_setup_teardown(auto_takes_what_is_there, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_is_lent_by_path, setup, teardown),
		cmocka_unit_test_setup_teardown(a_refused_lock_says_what_would_help, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
