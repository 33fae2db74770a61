#include "tests/machine.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/scratch.h"

static struct machine machine;

int
machine_setup(void **state)
{
	snprintf(machine.dir, sizeof(machine.dir), "/tmp/hearth-machine-XXXXXX");
	if (!mkdtemp(machine.dir))
		return -1;
	*state = &machine;
	return 0;
}

int
machine_teardown(void **state)
{
	(void)state;
	return scratch_remove(machine.dir);
}

const char *
machine_path(const struct machine *of, const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", of->dir, name);
	return path;
}

void
machine_write(const struct machine *of, const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", of->dir, name);
	for (char *at = strchr(path + strlen(of->dir) + 1, '/'); at; at = strchr(at + 1, '/')) {
		*at = '\0';
		mkdir(path, 0700);
		*at = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

const char *
machine_read(const struct machine *of, const char *name)
{
	static char line[256];
	FILE *file = fopen(machine_path(of, name), "r");

	assert_non_null(file);
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return line;
}

void
machine_pool(const struct machine *of, uint64_t all, uint64_t free, uint64_t reserved)
{
	const char *const names[] = { "nr_hugepages", "free_hugepages", "resv_hugepages" };
	const uint64_t numbers[] = { all, free, reserved };
	char name[96], text[32];

	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "sys/kernel/mm/hugepages/hugepages-2048kB/%s",
			 names[i]);
		snprintf(text, sizeof(text), "%" PRIu64 "\n", numbers[i]);
		machine_write(of, name, text);
	}
}
