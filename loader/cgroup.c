#include "loader/cgroup.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

FILE *
cgroup_open(const char *folder, const char *name)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", folder, name);

	return n > 0 && n < (int)sizeof(path) ? fopen(path, "re") : NULL;
}

bool
cgroup_take_number(FILE *file, const char *key, uint64_t *ret)
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
find_group(const char *controller, const char *root)
{
	FILE *file = cgroup_open(root, "proc/self/cgroup");
	char *line = NULL, *found = NULL;
	size_t room = 0;

	while (file && !found && getline(&line, &room, file) > 0) {
		char *names = strchr(line, ':');
		char *path = names ? strchr(names + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (controller ? list_has(names + 1, controller) : strcmp(line, "0:") == 0)
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
parse_mount(const char *controller, char *line, char **ret_root, char **ret_mount)
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
	if (controller ? strcmp(kind, "cgroup") != 0 || !options || !list_has(options, controller)
		       : strcmp(kind, "cgroup2") != 0)
		return false;
	*ret_root = field[3];
	*ret_mount = field[4];
	unescape(*ret_root);
	unescape(*ret_mount);
	return true;
}

/* The part of the group's path that the mount of `from` has in front of it; of another namespace,
 * or of a part of the tree that is not the group's: -1. */
static ssize_t
mounted_prefix(const char *group, const char *from)
{
	size_t n = strcmp(from, "/") ? strlen(from) : 0;
	bool is_above = strncmp(group, from, n) == 0 && (group[n] == '/' || group[n] == '\0');

	return is_above && !strstr(group + n, "/..") ? (ssize_t)n : -1;
}

/* The folder of a group: the mount, and the group's path below the group that is mounted there (a
 * container sees its own alone).  Where no mount has the group, the first is all that is seen.
 * *ret_top: where the mount's part ends.  The caller frees. */
static char *
find_folder(const char *controller, const char *root, const char *group, size_t *ret_top)
{
	FILE *file = cgroup_open(root, "proc/self/mountinfo");
	char *line = NULL, *folder = NULL, *from, *mount;
	bool is_found = false;
	size_t room = 0;

	while (file && !is_found && getline(&line, &room, file) > 0) {
		const char *below = "";
		ssize_t n;

		if (!parse_mount(controller, line, &from, &mount))
			continue;
		n = mounted_prefix(group, from);
		is_found = n >= 0;
		if (folder && !is_found)
			continue;
		if (is_found && strcmp(group + n, "/") != 0)
			below = group + n;
		free(folder);
		if (asprintf(&folder, "%s%s%s", root, mount, below) < 0)
			folder = NULL;
		*ret_top = strlen(root) + strlen(mount);
	}
	free(line);
	if (file)
		fclose(file);
	return folder;
}

void
cgroup_walk(const char *controller, const char *root, void (*look)(void *arg, const char *folder),
	    void *arg)
{
	char *group = find_group(controller, root), *slash;
	size_t top = 0;
	char *folder = group ? find_folder(controller, root, group, &top) : NULL;

	while (folder) {
		look(arg, folder);
		slash = strrchr(folder, '/');
		if (!slash || (size_t)(slash - folder) < top)
			break;
		*slash = '\0';
	}
	free(folder);
	free(group);
}
