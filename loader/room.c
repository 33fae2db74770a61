#include "loader/room.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The number behind `key` at the begin of a line; false: no such file, line or number. */
static bool
read_number(const char *path, const char *key, uint64_t *ret)
{
	FILE *file = fopen(path, "re");
	char line[256];
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file))
		found = strncmp(line, key, strlen(key)) == 0 &&
			sscanf(line + strlen(key), " %" SCNu64, ret) == 1;
	fclose(file);
	return found;
}

/* Cache of files can be dropped; memory shared by a memfd is not counted among it. */
static uint64_t
group_room(const char *group)
{
	uint64_t max, current, active = 0, inactive = 0;
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/memory.max", group);
	if (!read_number(path, "", &max))
		return UINT64_MAX; /* "max" is no number */
	snprintf(path, sizeof(path), "%s/memory.current", group);
	if (!read_number(path, "", &current))
		return UINT64_MAX;
	snprintf(path, sizeof(path), "%s/memory.stat", group);
	read_number(path, "active_file ", &active);
	read_number(path, "inactive_file ", &inactive);
	current -= active + inactive < current ? active + inactive : current;
	return current < max ? max - current : 0;
}

/* This process's group (of version 2) below the root, "" at the root. */
static bool
find_group(const char *proc, char *ret, size_t room)
{
	char path[PATH_MAX], line[PATH_MAX];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "%s/self/cgroup", proc);
	file = fopen(path, "re");
	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		found = strncmp(line, "0::/", 4) == 0 && strlen(line + 3) < room;
		if (found)
			snprintf(ret, room, "%s", strcmp(line + 3, "/") ? line + 3 : "");
	}
	fclose(file);
	return found;
}

uint64_t
room_available(const char *proc, const char *cgroup)
{
	char path[PATH_MAX], group[PATH_MAX / 2];
	uint64_t available = UINT64_MAX, kib, room;
	char *slash;

	snprintf(path, sizeof(path), "%s/meminfo", proc);
	if (read_number(path, "MemAvailable:", &kib))
		available = kib * 1024;
	if (!find_group(proc, group, sizeof(group)))
		return available;
	for (;;) {
		snprintf(path, sizeof(path), "%s%s", cgroup, group);
		room = group_room(path);
		if (room < available)
			available = room;
		slash = strrchr(group, '/');
		if (!slash)
			return available;
		*slash = '\0';
	}
}

int
room_check(uint64_t need, uint64_t available, const char *model, struct error *err)
{
	if (need <= available)
		return 0;
	return error_set(err, -EOVERFLOW,
			 "%s: needs %" PRIu64 " MiB of memory, %" PRIu64
			 " MiB are available: a smaller model or quant would fit",
			 model, (need + (1u << 20) - 1) >> 20, available >> 20);
}
