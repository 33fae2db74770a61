/* The second half of stack_run.h: looking at stacks from outside, through /proc and their folders.
 */
#include "tests/stack_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

json_t *
stack_figure(const char *name, const char *stage, const char *key)
{
	json_t *status = run_json(WORDS("status", "--json", "--name", name));
	json_t *value =
	    json_object_get(json_object_get(json_object_get(status, "stages"), stage), key);

	if (!value)
		fail_msg("status --json: no stages.%s.%s", stage, key);
	json_incref(value);
	json_decref(status);
	return value;
}

/* Reads a file of /proc, ends it with a 0; 0 bytes where it cannot be read. */
static size_t
proc_read(const char *pid, const char *file, char *to, size_t room)
{
	char path[64];
	size_t n = 0;
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "/proc/%.16s/%s", pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && n < room - 1 && (got = read(fd, to + n, room - 1 - n)) > 0)
		n += (size_t)got;
	if (fd >= 0)
		close(fd);
	to[n] = '\0';
	return n;
}

typedef bool process_fn(const char *pid, const void *arg);

/* Counts the processes (but this one) that `fn` says yes to; *ret_last is the lowest such pid. */
static uint32_t
count_processes(process_fn *fn, const void *arg, pid_t *ret_lowest)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	uint32_t n = 0;

	assert_non_null(proc);
	while ((entry = readdir(proc))) {
		pid_t pid = (pid_t)atoi(entry->d_name);

		if (!isdigit((unsigned char)entry->d_name[0]) || pid == getpid() ||
		    !fn(entry->d_name, arg))
			continue;
		n++;
		if (ret_lowest && (*ret_lowest == 0 || pid < *ret_lowest))
			*ret_lowest = pid;
	}
	closedir(proc);
	return n;
}

/* Started, however far down, by a run.sh of this test: it has its XDG_RUNTIME_DIR. */
static bool
is_of_this_test(const char *pid, const void *arg)
{
	static char environment[65536];
	size_t n = proc_read(pid, "environ", environment, sizeof(environment));
	char want[96];

	(void)arg;
	snprintf(want, sizeof(want), "XDG_RUNTIME_DIR=%s", stack_runtime);
	for (size_t i = 0; i < n; i += strlen(environment + i) + 1)
		if (strcmp(environment + i, want) == 0)
			return true;
	return false;
}

uint32_t
stack_count_processes(void)
{
	return count_processes(is_of_this_test, NULL, NULL);
}

struct visit {
	void (*fn)(const char *pid, void *arg);
	void *arg;
};

static bool
visit_process(const char *pid, const void *arg)
{
	const struct visit *visit = arg;

	if (!is_of_this_test(pid, NULL))
		return false;
	visit->fn(pid, visit->arg);
	return true;
}

void
stack_each_process(void (*fn)(const char *pid, void *arg), void *arg)
{
	struct visit visit = { .fn = fn, .arg = arg };

	count_processes(visit_process, &visit, NULL);
}

/* "bash", ".../run.sh", "supervise", "--name", name; its keepers have the same words. */
static bool
is_supervisor(const char *pid, const void *arg)
{
	static char words[65536];
	size_t n, at = 0;
	const char *want[3] = { "supervise", "--name", arg };
	uint32_t matched = 0;

	if (!is_of_this_test(pid, NULL))
		return false;
	n = proc_read(pid, "cmdline", words, sizeof(words));
	for (; at < n && matched < 3; at += strlen(words + at) + 1)
		matched = strcmp(words + at, want[matched]) == 0 ? matched + 1 : 0;
	return matched == 3;
}

pid_t
stack_supervisor(const char *name)
{
	pid_t pid = 0;

	/* The keepers are its children, and younger. */
	count_processes(is_supervisor, name, &pid);
	if (pid == 0)
		fail_msg("%s: no supervisor found", name);
	return pid;
}

struct stage_of {
	const char *folder, *stage;
};

/* "BUILD/bin/<stage>", "--dir", folder, ... */
static bool
is_stage(const char *pid, const void *arg)
{
	const struct stage_of *of = arg;
	static char words[65536];
	size_t n = proc_read(pid, "cmdline", words, sizeof(words));
	const char *name = strrchr(words, '/');
	size_t at = strlen(words) + 1;

	return name && strcmp(name + 1, of->stage) == 0 && at < n &&
	       strcmp(words + at, "--dir") == 0 &&
	       strcmp(words + at + sizeof("--dir"), of->folder) == 0;
}

pid_t
stack_pid(const char *name, const char *stage)
{
	char folder[128];
	struct stage_of of = { .folder = folder, .stage = stage };
	pid_t pid = 0;

	snprintf(folder, sizeof(folder), "%s/hearth-%s", stack_runtime, name);
	if (count_processes(is_stage, &of, &pid) != 1)
		fail_msg("%s: no %s, or several", name, stage);
	return pid;
}

void
stack_kill(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd death = { .fd = fd, .events = POLLIN };

	assert_true(fd >= 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(poll(&death, 1, STACK_LIMIT_S * 1000), 1);
	close(fd);
}

struct found {
	const char *name;
	pid_t pids[16];
	uint32_t n;
};

static void
note_supervisor(const char *pid, void *arg)
{
	struct found *found = arg;

	if (is_supervisor(pid, found->name) && found->n < 16)
		found->pids[found->n++] = (pid_t)atoi(pid);
}

/* All are known before the first one dies: without its supervisor a keeper does not stay. */
void
stack_kill_run_sh(const char *name)
{
	struct found found = { .name = name };

	stack_each_process(note_supervisor, &found);
	assert_true(found.n >= 5);
	while (found.n)
		kill(found.pids[--found.n], SIGKILL);
}

static bool
holds_memfd(const char *pid, const void *arg)
{
	char path[64];
	struct dirent *entry;
	struct stat st;
	bool found = false;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
	fds = opendir(path);
	while (fds && !found && (entry = readdir(fds)))
		found = fstatat(dirfd(fds), entry->d_name, &st, 0) == 0 && S_ISREG(st.st_mode) &&
			st.st_nlink == 0 && st.st_ino == *(const uint64_t *)arg;
	if (fds)
		closedir(fds);
	return found;
}

uint32_t
stack_count_holders(uint64_t inode)
{
	return count_processes(holds_memfd, &inode, NULL);
}

int
stack_open_folder(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/hearth-%s", stack_runtime, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void
on_alarm(int signal_number)
{
	(void)signal_number; /* it has ended a call, and that is all it is for */
}

/* All processes of a stack share the lock on its folder. */
void
stack_wait_left(int folder)
{
	struct sigaction action = { .sa_handler = on_alarm };
	int rc;

	sigaction(SIGALRM, &action, NULL);
	alarm(STACK_LIMIT_S);
	rc = flock(folder, LOCK_EX);
	alarm(0);
	close(folder);
	if (rc < 0)
		fail_msg("somebody of the stack is still there after %d s", STACK_LIMIT_S);
}

uint32_t
stack_count_files(void)
{
	DIR *folder = opendir(stack_runtime);
	uint32_t n = 0;

	assert_non_null(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n - 2; /* "." and ".." */
}

void
stack_assert_nothing_left(void)
{
	assert_int_equal(stack_count_files(), 0);
	assert_int_equal(stack_count_processes(), 0);
}
