#include "scheduler/tune.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/pages.h"

static const struct tune_value known[N_TUNE_SWITCHES] = {
	[TUNE_SHMEM] = { .path = "/sys/" PAGES_SHMEM_KNOB,
			 .name = "huge pages for shared memory",
			 .brings = "reserves at 25 GB/s instead of 5, registers in half the time" },
	[TUNE_SHMEM_2MIB] = { .path = "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/"
				      "shmem_enabled",
			      .name = "the same, pages of 2 MiB",
			      .brings = "the switch above counts for them" },
	[TUNE_POOL] = { .path = "/sys/" PAGES_POOL_KNOB,
			.name = "pool of 2 MiB pages",
			.brings = "huge pages for sure, however fragmented memory is" },
};

/* The word in brackets, or the line where there are none. */
static bool
read_value(const char *root, const char *name, char *ret, size_t room)
{
	char path[PATH_MAX];
	FILE *file;
	bool found;

	snprintf(path, sizeof(path), "%s%s", root, name);
	if (pages_read_choice(path, ret, room))
		return true;
	file = fopen(path, "re");
	if (!file)
		return false;
	found = fgets(ret, (int)room, file) != NULL;
	fclose(file);
	if (found)
		ret[strcspn(ret, "\n")] = '\0';
	return found;
}

static int
write_value(const char *root, const char *name, const char *value, struct error *err)
{
	char path[PATH_MAX], now[24] = "";
	int file, rc = 0;

	snprintf(path, sizeof(path), "%s%s", root, name);
	file = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	if (file < 0)
		return error_path(err, -errno, "%s", path);
	if (write(file, value, strlen(value)) < 0)
		rc = error_sys(err, -errno, "%s: writing %s", path, value);
	close(file);
	if (rc < 0)
		return rc;
	read_value(root, name, now, sizeof(now));
	if (strcmp(now, value) != 0)
		return error_set(
		    err, -EIO, "%s: set to %s, and it is %s%s", path, value, now,
		    strcmp(name, known[TUNE_POOL].path)
			? ""
			: ": no more whole pages are free, more are soon after a boot");
	return 0;
}

static bool
is_one_of(const char *word, const char *const *words)
{
	for (; *words; words++)
		if (strcmp(word, *words) == 0)
			return true;
	return false;
}

static void
want_pool(struct tune_value *value, const char *root, uint64_t bytes)
{
	struct pages_kernel kernel;
	char sys[PATH_MAX];

	snprintf(sys, sizeof(sys), "%s/sys", root);
	pages_read_kernel(&kernel, sys);
	if (value->there && kernel.pool_free < pages_needed(bytes))
		snprintf(value->wanted, sizeof(value->wanted), "%" PRIu64,
			 kernel.pool_all - kernel.pool_free + pages_needed(bytes));
}

void
tune_look(struct tune *ret, const char *root, uint64_t pool_bytes)
{
	static const char *const off[] = { "never", "deny", NULL };
	struct tune tune = { .root = root };

	memcpy(tune.values, known, sizeof(known));
	for (uint32_t i = 0; i < N_TUNE_SWITCHES; i++) {
		struct tune_value *value = &tune.values[i];

		value->there = read_value(root, value->path, value->now, sizeof(value->now));
		if (i != TUNE_POOL && value->there && is_one_of(value->now, off))
			snprintf(value->wanted, sizeof(value->wanted), "%s",
				 i == TUNE_SHMEM ? "advise" : "inherit");
	}
	want_pool(&tune.values[TUNE_POOL], root, pool_bytes);
	*ret = tune;
}

bool
tune_is_fine(const struct tune *tune)
{
	for (uint32_t i = 0; i < N_TUNE_SWITCHES; i++)
		if (tune->values[i].wanted[0])
			return false;
	return true;
}

/* What stood in each switch before; "": it was not set. */
struct kept {
	char value[N_TUNE_SWITCHES][24];
};

static int
keep_read(struct kept *ret, const char *root, struct error *err)
{
	char path[PATH_MAX], line[256];
	struct kept kept = { 0 };
	struct stat st;
	FILE *file;
	int fd;

	snprintf(path, sizeof(path), "%s" TUNE_STATE, root);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_path(err, -errno, "%s", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
		close(fd);
		return error_set(err, -EACCES, "%s: not a file of user %u", path,
				 (unsigned)geteuid());
	}
	file = fdopen(fd, "r");
	while (file && fgets(line, sizeof(line), file)) {
		char name[128], value[24];

		for (uint32_t i = 0;
		     sscanf(line, "%127s %23s", name, value) == 2 && i < N_TUNE_SWITCHES; i++)
			if (strcmp(name, known[i].path) == 0)
				memcpy(kept.value[i], value, sizeof(value));
	}
	if (file)
		fclose(file);
	*ret = kept;
	return 0;
}

/* Whole or not at all: under another name first. */
static int
keep_write(const struct kept *kept, const char *root, struct error *err)
{
	char path[PATH_MAX], new[PATH_MAX + 8];
	FILE *file = NULL;
	bool failed;
	int fd, rc = 0;

	snprintf(path, sizeof(path), "%s" TUNE_STATE, root);
	snprintf(new, sizeof(new), "%s.new", path);
	unlink(new);
	fd = open(new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		file = fdopen(fd, "w");
	if (!file)
		return error_path(err, -errno, "%s", new);
	for (uint32_t i = 0; i < N_TUNE_SWITCHES; i++)
		if (kept->value[i][0])
			fprintf(file, "%s %s\n", known[i].path, kept->value[i]);
	failed = ferror(file) != 0;
	if (fclose(file) != 0 || failed || rename(new, path) < 0)
		rc = error_path(err, errno ? -errno : -EIO, "%s", path);
	if (rc < 0)
		unlink(new);
	return rc;
}

int
tune_apply(const struct tune *tune, struct error *err)
{
	struct kept kept = { 0 };
	int rc = keep_read(&kept, tune->root, err);

	if (rc < 0 && rc != -ENOENT)
		return rc;
	for (uint32_t i = 0; i < N_TUNE_SWITCHES; i++)
		if (tune->values[i].wanted[0] && !kept.value[i][0])
			memcpy(kept.value[i], tune->values[i].now, sizeof(kept.value[i]));
	rc = keep_write(&kept, tune->root, err);
	for (uint32_t i = 0; i < N_TUNE_SWITCHES && rc == 0; i++)
		if (tune->values[i].wanted[0])
			rc = write_value(tune->root, tune->values[i].path, tune->values[i].wanted,
					 err);
	return rc;
}

int
tune_undo(const char *root, uint32_t *ret_n, struct error *err)
{
	char path[PATH_MAX];
	struct kept kept = { 0 };
	uint32_t n = 0;
	int rc = keep_read(&kept, root, err);

	for (uint32_t i = 0; i < N_TUNE_SWITCHES && rc == 0; i++) {
		if (!kept.value[i][0])
			continue;
		rc = write_value(root, known[i].path, kept.value[i], err);
		n++;
	}
	if (rc < 0)
		return rc;
	snprintf(path, sizeof(path), "%s" TUNE_STATE, root);
	if (unlink(path) < 0)
		return error_path(err, -errno, "%s", path);
	*ret_n = n;
	return 0;
}
