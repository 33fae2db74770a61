#include "tests/knobs.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/pages.h"

#define MAX_KNOBS 4

static struct {
	char path[128];
	char value[32];
} saved[MAX_KNOBS];
static uint32_t n_saved;
static int turn = -1; /* /sys, locked while a knob is ours */

const char *
knob_get(const char *path)
{
	static char value[32];
	FILE *file;

	value[0] = '\0';
	if (pages_read_choice(path, value, sizeof(value)))
		return value;
	file = fopen(path, "r");
	if (!file)
		return value;
	if (!fgets(value, sizeof(value), file))
		value[0] = '\0';
	fclose(file);
	value[strcspn(value, "\n")] = '\0';
	return value;
}

static bool
write_knob(const char *path, const char *value)
{
	FILE *file = fopen(path, "w");
	bool ok;

	if (!file)
		return false;
	ok = fputs(value, file) >= 0;
	return fclose(file) == 0 && ok;
}

/* Other test programs have put back what they changed. */
static bool
take_turn(void)
{
	if (turn < 0)
		turn = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return turn >= 0 && flock(turn, LOCK_EX) == 0;
}

static bool
save(const char *path)
{
	for (uint32_t i = 0; i < n_saved; i++)
		if (strcmp(saved[i].path, path) == 0)
			return true;
	if (n_saved == MAX_KNOBS || !knob_get(path)[0])
		return false;
	snprintf(saved[n_saved].path, sizeof(saved->path), "%s", path);
	snprintf(saved[n_saved].value, sizeof(saved->value), "%s", knob_get(path));
	n_saved++;
	return true;
}

bool
knob_set(const char *path, const char *value)
{
	if (!take_turn() || !save(path) || !write_knob(path, value))
		return false;
	return strcmp(knob_get(path), value) == 0;
}

int
knobs_restore(void **state)
{
	int rc = 0;

	(void)state;
	while (n_saved) {
		n_saved--;
		if (strcmp(knob_get(saved[n_saved].path), saved[n_saved].value) == 0)
			continue;
		if (!write_knob(saved[n_saved].path, saved[n_saved].value)) {
			fprintf(stderr, "%s stays changed: want %s\n", saved[n_saved].path,
				saved[n_saved].value);
			rc = -1;
		}
	}
	if (turn >= 0)
		close(turn);
	turn = -1;
	return rc;
}

void
knob_need(const char *path, const char *value)
{
	if (knob_set(path, value))
		return;
	print_message(
	    "SKIPPED: %s cannot be set to %s here (want root, and a kernel that has it)\n", path,
	    value);
	skip();
}
