#include "loader/available.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The two versions differ in names alone. */
struct version {
	bool first;
	const char *max, *current; /* files */
	/* keys of memory.stat: all cache, and what of it cannot be dropped at once */
	const char *cache, *kept[3];
};

static const struct version versions[] = {
	{ .max = "memory.max",
	  .current = "memory.current",
	  .cache = "file",
	  .kept = { "shmem", "file_dirty", "file_writeback" } },
	{ .first = true,
	  .max = "memory.limit_in_bytes",
	  .current = "memory.usage_in_bytes",
	  .cache = "total_cache",
	  .kept = { "total_shmem", "total_dirty", "total_writeback" } },
};

/* A file of a folder. */
static FILE *
open_text(const char *folder, const char *name)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", folder, name);

	return n > 0 && n < (int)sizeof(path) ? fopen(path, "re") : NULL;
}

/* The number behind the word `key` ("": the first word) in an open file, which it closes; false: no
 * file, line or number. */
static bool
take_number(FILE *file, const char *key, uint64_t *ret)
{
	size_t n = strlen(key);
	bool found = false;
	char line[256];

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file))
		found = strncmp(line, key, n) == 0 && (n == 0 || strchr(" \t", line[n])) &&
			sscanf(line + n, " %" SCNu64, ret) == 1;
	fclose(file);
	return found;
}

static uint64_t
clean_cache(const struct version *version, const char *group)
{
	uint64_t cache = 0, kept;

	take_number(open_text(group, "memory.stat"), version->cache, &cache);
	for (int i = 0; i < 3; i++)
		if (take_number(open_text(group, "memory.stat"), version->kept[i], &kept))
			cache -= kept < cache ? kept : cache;
	return cache;
}

/* What one group allows; AVAILABLE_UNKNOWN: it has no limit, and "max" is no number. */
static uint64_t
group_room(const struct version *version, const char *group)
{
	uint64_t max, current, cache;

	if (!take_number(open_text(group, version->max), "", &max) ||
	    !take_number(open_text(group, version->current), "", &current))
		return AVAILABLE_UNKNOWN;
	cache = clean_cache(version, group);
	current -= cache < current ? cache : current;
	return current < max ? max - current : 0;
}

/* Whether a list of words with commas between them has one. */
static bool
list_has(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = list; *at; at += strcspn(at, ",")) {
		at += *at == ',';
		if (strncmp(at, word, n) == 0 && (at[n] == '\0' || at[n] == ','))
			return true;
	}
	return false;
}

/* /proc/self/cgroup: "0::/a/b" of version 2, "4:memory:/a/b" of version 1.  The caller frees. */
static char *
find_group(const struct version *version, const char *root)
{
	FILE *file = open_text(root, "proc/self/cgroup");
	char *line = NULL, *found = NULL;
	size_t room = 0;

	while (file && !found && getline(&line, &room, file) > 0) {
		char *names = strchr(line, ':');
		char *path = names ? strchr(names + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (version->first ? list_has(names + 1, "memory") : strcmp(line, "0:") == 0)
			found = strdup(path);
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* mountinfo writes blanks and the like as \040. */
static void
unescape(char *text)
{
	char *to = text;

	for (const char *at = text; *at; to++) {
		unsigned code;

		if (*at == '\\' && sscanf(at + 1, "%3o", &code) == 1) {
			*to = (char)code;
			at += 4;
		} else {
			*to = *at++;
		}
	}
	*to = '\0';
}

/* One line of mountinfo; true: the hierarchy's.  *ret_root is the group that is mounted there, both
 * point into the line. */
static bool
parse_mount(const struct version *version, char *line, char **ret_root, char **ret_mount)
{
	char *tail = strstr(line, " - "), *save = NULL, *field[5], *kind, *options;

	if (!tail)
		return false;
	*tail = '\0';
	for (int i = 0; i < 5; i++) {
		field[i] = strtok_r(i ? NULL : line, " ", &save);
		if (!field[i])
			return false;
	}
	kind = strtok_r(tail + 3, " \n", &save);
	if (!kind || !strtok_r(NULL, " \n", &save))
		return false;
	options = strtok_r(NULL, " \n", &save);
	if (version->first ? strcmp(kind, "cgroup") != 0 || !options || !list_has(options, "memory")
			   : strcmp(kind, "cgroup2") != 0)
		return false;
	*ret_root = field[3];
	*ret_mount = field[4];
	unescape(*ret_root);
	unescape(*ret_mount);
	return true;
}

/* The folder of a group: the mount, and the group's path below the group that is mounted there (a
 * container sees its own alone).  *ret_top: where the mount's part ends.  The caller frees. */
static char *
find_folder(const struct version *version, const char *root, const char *group, size_t *ret_top)
{
	FILE *file = open_text(root, "proc/self/mountinfo");
	char *line = NULL, *folder = NULL, *from, *mount;
	size_t room = 0, n;
	int rc = -1;

	while (file && rc < 0 && getline(&line, &room, file) > 0) {
		if (!parse_mount(version, line, &from, &mount))
			continue;
		n = strcmp(from, "/") ? strlen(from) : 0;
		if (strncmp(group, from, n) != 0 || (group[n] != '/' && group[n] != '\0') ||
		    strstr(group + n, "/.."))
			n = strlen(group); /* of another namespace: the mount is all that is seen */
		rc = asprintf(&folder, "%s%s%s", root, mount, group + n);
		*ret_top = strlen(root) + strlen(mount);
	}
	free(line);
	if (file)
		fclose(file);
	return rc < 0 ? NULL : folder;
}

static void
tighten(struct available *ret, uint64_t bytes, const char *limit)
{
	if (bytes >= ret->bytes)
		return;
	ret->bytes = bytes;
	snprintf(ret->limit, sizeof(ret->limit), "%s", limit);
}

static void
walk_groups(struct available *ret, const struct version *version, const char *root)
{
	char *group = find_group(version, root), *slash;
	size_t top = 0;
	char *folder = group ? find_folder(version, root, group, &top) : NULL;

	while (folder) {
		tighten(ret, group_room(version, folder), folder + strlen(root));
		slash = strrchr(folder, '/');
		if (!slash || (size_t)(slash - folder) < top)
			break;
		*slash = '\0';
	}
	free(folder);
	free(group);
}

void
available_read(struct available *ret, const char *root)
{
	uint64_t kib;

	*ret = (struct available){ .bytes = AVAILABLE_UNKNOWN };
	if (take_number(open_text(root, "proc/meminfo"), "MemAvailable:", &kib))
		tighten(ret, kib * 1024, "MemAvailable");
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++)
		walk_groups(ret, &versions[i], root);
}
