#include "tests/stand_in.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stack_run.h"

void
stand_in_open(struct stand_in *ret, const char *stage, const char *script)
{
	static const char *const programs[] = { "loader", "pinner", "worker", "scheduler",
						"hearth" };
	char from[640], to[160];
	FILE *file;

	strcpy(ret->folder, "/tmp/hearth-build-XXXXXX");
	assert_non_null(mkdtemp(ret->folder));
	snprintf(to, sizeof(to), "%s/bin", ret->folder);
	assert_int_equal(mkdir(to, 0700), 0);
	snprintf(ret->gate, sizeof(ret->gate), "%s/gate", ret->folder);
	assert_int_equal(mkfifo(ret->gate, 0600), 0);
	for (uint32_t i = 0; i < 5; i++) {
		snprintf(from, sizeof(from), "%s/bin/%s", stack_build, programs[i]);
		snprintf(to, sizeof(to), "%s/bin/%s", ret->folder, programs[i]);
		if (strcmp(programs[i], stage) != 0) {
			assert_int_equal(symlink(from, to), 0);
			continue;
		}
		file = fopen(to, "w");
		assert_non_null(file);
		fprintf(file, "#!/usr/bin/env bash\ngate=%s real=%s\n%s\n", ret->gate, from,
			script);
		assert_int_equal(fclose(file), 0);
		assert_int_equal(chmod(to, 0700), 0);
	}
	setenv("HEARTH_BUILD", ret->folder, 1);
}

void
stand_in_close(struct stand_in *stand_in)
{
	char command[128];

	setenv("HEARTH_BUILD", stack_build, 1);
	snprintf(command, sizeof(command), "rm -r %s", stand_in->folder);
	assert_int_equal(system(command), 0);
}
