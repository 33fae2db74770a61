#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pinner/lending.h"

#define KIB 1024ull

static struct lending lending;
static const struct region *region;
static bool fresh;
static struct error err;

static int
setup(void **state)
{
	(void)state;
	lending = (struct lending){ 0 };
	return device_open(&lending.device, "cpu", &err);
}

static int
teardown(void **state)
{
	(void)state;
	lending_close(&lending);
	device_close(lending.device);
	return 0;
}

static int
lend(const char *key, uint64_t bytes, bool host, bool replace)
{
	struct lend_wish wish = { key, bytes, host, replace };

	return lending_lend(&lending, &wish, &region, &fresh, &err);
}

static void
the_same_key_gives_the_same_memory(void **state)
{
	void *at;

	(void)state;
	assert_int_equal(lend("kv", 64 * KIB, false, false), 0);
	assert_true(fresh);
	at = region->device.at;
	memset(at, 7, 64 * KIB);
	assert_int_equal(lend("kv", 64 * KIB, false, false), 0);
	assert_false(fresh);
	assert_ptr_equal(region->device.at, at);
	assert_int_equal(((uint8_t *)at)[5], 7);
	assert_int_equal(lending.lent, 64 * KIB);
}

static void
new_memory_is_zeroed(void **state)
{
	(void)state;
	assert_int_equal(lend("kv", 64 * KIB, false, false), 0);
	memset(region->device.at, 7, 64 * KIB);
	assert_int_equal(lend("kv", 128 * KIB, false, true), 0);
	assert_true(fresh);
	for (size_t i = 0; i < 128 * KIB; i++)
		assert_int_equal(((uint8_t *)region->device.at)[i], 0);
}

static void
another_size_or_place_is_refused_unless_it_replaces(void **state)
{
	(void)state;
	assert_int_equal(lend("kv", 64 * KIB, false, false), 0);
	assert_int_equal(lend("kv", 32 * KIB, false, false), -EEXIST);
	assert_non_null(strstr(err.text, "65536"));
	assert_int_equal(lend("kv", 64 * KIB, true, false), -EEXIST);
	assert_int_equal(lending.lent, 64 * KIB);
	assert_int_equal(lend("kv", 64 * KIB, true, true), 0);
	assert_int_equal(lending.lent, 0); /* host memory is not the device's */
	assert_int_equal(lending.n, 1);
}

static void
the_cap_holds_for_all_device_memory_together(void **state)
{
	(void)state;
	lending.cap = 100 * KIB;
	assert_int_equal(lend("a", 60 * KIB, false, false), 0);
	assert_int_equal(lend("b", 60 * KIB, false, false), -EOVERFLOW);
	assert_non_null(strstr(err.text, "--vram-mib"));
	assert_int_equal(lend("b", 40 * KIB, false, false), 0);
	assert_int_equal(lend("c", 400 * KIB, true, false), 0);
	assert_int_equal(lend("a", 61 * KIB, false, true), -EOVERFLOW);
	assert_int_equal(lend("a", 60 * KIB, false, false), 0);
	assert_false(fresh);
	assert_int_equal(lending_release(&lending, "b", &err), 0);
	assert_int_equal(lend("a", 100 * KIB, false, true), 0);
}

static void
more_than_the_machine_has_is_refused(void **state)
{
	(void)state;
	assert_int_equal(lend("a", 1ull << 50, false, false), -ENOMEM);
	assert_int_equal(lend("a", UINT64_MAX, false, false), -EINVAL);
	assert_int_equal(lend("a", 0, false, false), -EINVAL);
	assert_int_equal(lending.n, 0);
	assert_int_equal(lending.lent, 0);
}

static void
keys_are_short_and_plain(void **state)
{
	char key[MAX_KEY_BYTES + 2];

	(void)state;
	memset(key, 'k', sizeof(key));
	key[MAX_KEY_BYTES + 1] = '\0';
	assert_int_equal(lend(key, KIB, false, false), -EINVAL);
	key[MAX_KEY_BYTES] = '\0';
	assert_int_equal(lend(key, KIB, false, false), 0);
	assert_int_equal(lend("", KIB, false, false), -EINVAL);
	assert_int_equal(lend("a b", KIB, false, false), -EINVAL);
	assert_int_equal(lend("../a/", KIB, false, false), -EINVAL);
}

static void
the_table_of_regions_has_an_end(void **state)
{
	char key[8] = "k00";

	(void)state;
	for (uint32_t i = 0; i < MAX_REGIONS; i++) {
		key[1] = (char)('0' + i / 10);
		key[2] = (char)('0' + i % 10);
		assert_int_equal(lend(key, KIB, i % 2, false), 0);
	}
	assert_int_equal(lend("more", KIB, false, false), -ENOSPC);
	assert_int_equal(lending_release(&lending, "k05", &err), 0);
	assert_int_equal(lend("more", KIB, false, false), 0);
	assert_null(lending_find(&lending, "k05"));
	assert_non_null(lending_find(&lending, "k31"));
}

static void
what_is_not_lent_cannot_be_released(void **state)
{
	(void)state;
	assert_int_equal(lending_release(&lending, "kv", &err), -ENOENT);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_same_key_gives_the_same_memory, setup,
						teardown),
		cmocka_unit_test_setup_teardown(new_memory_is_zeroed, setup, teardown),
		cmocka_unit_test_setup_teardown(another_size_or_place_is_refused_unless_it_replaces,
						setup, teardown),
		cmocka_unit_test_setup_teardown(the_cap_holds_for_all_device_memory_together, setup,
						teardown),
		cmocka_unit_test_setup_teardown(more_than_the_machine_has_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(keys_are_short_and_plain, setup, teardown),
		cmocka_unit_test_setup_teardown(the_table_of_regions_has_an_end, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_not_lent_cannot_be_released, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
