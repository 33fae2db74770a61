#include "tests/stack_run.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"

char stack_runtime[64];
char stack_build[512];
char stack_source[512];

/* The test lies in BUILD/bin and is run in the source folder, as make does it. */
static int
stack_find_folders(void)
{
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0 || !getcwd(stack_source, sizeof(stack_source)))
		return -1;
	self[n] = '\0';
	snprintf(stack_build, sizeof(stack_build), "%s", dirname(dirname(self)));
	return access(stack_path("run.sh"), X_OK);
}

int
stack_setup(void **state)
{
	(void)state;
	strcpy(stack_runtime, "/tmp/hearth-stack-XXXXXX");
	if (stack_find_folders() < 0 || !mkdtemp(stack_runtime))
		return -1;
	setenv("XDG_RUNTIME_DIR", stack_runtime, 1);
	setenv("HEARTH_BUILD", stack_build, 1);
	return 0;
}

static void
stack_show_log(const char *folder)
{
	char path[512], line[1024];
	FILE *log;

	snprintf(path, sizeof(path), "%s/%.255s/log", stack_runtime, folder);
	log = fopen(path, "r");
	print_message("%s:\n", path);
	while (log && fgets(line, sizeof(line), log))
		print_message("  %s", line);
	if (log)
		fclose(log);
}

/* A failed test may have left a stack behind: its log tells why. */
int
stack_teardown(void **state)
{
	DIR *folder = opendir(stack_runtime);
	struct dirent *entry;
	int left = 0;

	(void)state;
	while (folder && (entry = readdir(folder))) {
		struct run run;

		if (strncmp(entry->d_name, "hearth-", 7) != 0)
			continue;
		left++;
		stack_show_log(entry->d_name);
		run_start(&run, WORDS("down", "--name", entry->d_name + 7));
		run_finish(&run);
		run_close(&run);
	}
	if (folder)
		closedir(folder);
	return left == 0 && rmdir(stack_runtime) == 0 ? 0 : -1;
}

const char *
stack_path(const char *below)
{
	static char paths[8][640];
	static uint32_t next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", stack_source, below);
	return path;
}

/* -- running -- */

static void
run_exec(const char *program, const char *const *words, int in, int out, int err)
{
	const char *argv[32] = { program };
	int n = 0;

	while (n < 30 && words[n]) {
		argv[n + 1] = words[n];
		n++;
	}
	setpgid(0, 0);
	signal(SIGINT, SIG_DFL); /* the tests may run in the background of a script */
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	execv(argv[0], (char *const *)(uintptr_t)argv);
	_exit(126);
}

static void
run_program(struct run *run, const char *program, const char *const *words, int in)
{
	int out[2], err[2];

	*run = (struct run){ .deadline_ns = clock_ns() + STACK_LIMIT_S * NS_PER_SECOND,
			     .what = words[0] };
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(err, O_CLOEXEC), 0);
	run->pid = fork();
	assert_true(run->pid >= 0);
	if (run->pid == 0)
		run_exec(program, words, in, out[1], err[1]);
	close(out[1]);
	close(err[1]);
	run->out_fd = out[0];
	run->err_fd = err[0];
	run->out = calloc(1, 1);
	run->err = calloc(1, 1);
}

void
run_start(struct run *run, const char *const *words)
{
	int in = open("/dev/null", O_RDONLY | O_CLOEXEC);

	run_program(run, stack_path("run.sh"), words, in);
	close(in);
}

/* What there is to read; closes the descriptor at its end. */
static void
run_take(int *fd, char **text, size_t *n)
{
	char piece[4096];
	ssize_t got = read(*fd, piece, sizeof(piece));

	if (got <= 0) {
		close(*fd);
		*fd = -1;
		return;
	}
	*text = realloc(*text, *n + (size_t)got + 1);
	assert_non_null(*text);
	memcpy(*text + *n, piece, (size_t)got);
	*n += (size_t)got;
	(*text)[*n] = '\0';
}

/* Waits for the next piece of either stream. */
static void
run_step(struct run *run)
{
	struct pollfd fds[2] = { { .fd = run->out_fd, .events = POLLIN },
				 { .fd = run->err_fd, .events = POLLIN } };
	int64_t left = (int64_t)(run->deadline_ns - clock_ns()) / (int64_t)NS_PER_MS;

	if (left <= 0 || poll(fds, 2, (int)left) == 0) {
		kill(-run->pid, SIGKILL);
		fail_msg("%s: not done after %d s; stdout: %s; stderr: %s", run->what,
			 STACK_LIMIT_S, run->out, run->err);
	}
	if (fds[0].revents)
		run_take(&run->out_fd, &run->out, &run->out_n);
	if (fds[1].revents)
		run_take(&run->err_fd, &run->err, &run->err_n);
}

void
run_read(struct run *run, size_t bytes)
{
	while (run->out_n < bytes && run->out_fd >= 0)
		run_step(run);
	if (run->out_n < bytes)
		fail_msg("ended after %zu bytes, want %zu; stderr: %s", run->out_n, bytes,
			 run->err);
}

bool
run_more(struct run *run, size_t bytes)
{
	size_t want;

	run_ended(run);
	want = run->out_n + bytes;
	while (run->out_n < want && run->out_fd >= 0)
		run_step(run);
	return run->out_n >= want;
}

bool
run_ended(struct run *run)
{
	struct pollfd fds[2] = { { .fd = run->out_fd, .events = POLLIN },
				 { .fd = run->err_fd, .events = POLLIN } };

	while ((run->out_fd >= 0 || run->err_fd >= 0) && poll(fds, 2, 0) > 0) {
		run_step(run);
		fds[0].fd = run->out_fd;
		fds[1].fd = run->err_fd;
	}
	return run->out_fd < 0 && run->err_fd < 0;
}

int
run_finish(struct run *run)
{
	int status;

	while (run->out_fd >= 0 || run->err_fd >= 0)
		run_step(run);
	assert_int_equal(waitpid(run->pid, &status, 0), run->pid);
	run->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void
run_close(struct run *run)
{
	if (run->out_fd >= 0)
		close(run->out_fd);
	if (run->err_fd >= 0)
		close(run->err_fd);
	if (run->pid > 0) {
		kill(-run->pid, SIGKILL);
		waitpid(run->pid, NULL, 0);
	}
	free(run->out);
	free(run->err);
}

void
run_words(struct run *ret, int want, const char *const *words)
{
	int status;

	run_start(ret, words);
	status = run_finish(ret);
	if (status != want)
		fail_msg("run.sh %s ...: exit code %d, want %d; stderr: %s", words[0], status, want,
			 ret->err);
}

char *
run_text(const char *const *words)
{
	struct run run;
	char *text;

	run_words(&run, 0, words);
	text = run.out;
	run.out = NULL;
	run_close(&run);
	return text;
}

json_t *
run_json(const char *const *words)
{
	char *text = run_text(words);
	json_error_t error;
	json_t *json = json_loads(text, 0, &error);

	if (!json)
		fail_msg("run.sh %s: no JSON: %s: %s", words[0], error.text, text);
	free(text);
	return json;
}

void
run_do(const char *const *words)
{
	free(run_text(words));
}

void
run_shell(struct run *ret, int want, const char *format, ...)
{
	int status, in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char command[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	run_program(ret, "/bin/bash", WORDS("-c", command), in);
	close(in);
	status = run_finish(ret);
	if (status != want)
		fail_msg("%s: exit code %d, want %d; stderr: %s", command, status, want, ret->err);
}

void
stack_assert_one_line(const char *text, const char *words)
{
	const char *end = strchr(text, '\n');

	if (!end || end[1] != '\0' || !strstr(text, words))
		fail_msg("want one line with \"%s\": %s", words, text);
}

void
stack_wait_answering(const char *name)
{
	char program[640], dir[128];
	struct run run;
	int in[2];

	snprintf(program, sizeof(program), "%s/bin/hearth", stack_build);
	snprintf(dir, sizeof(dir), "%s/hearth-%s", stack_runtime, name);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0); /* its end would be the order to stop */
	run_program(&run, program, WORDS("wait", "--dir", dir), in[0]);
	close(in[0]);
	assert_int_equal(run_finish(&run), 0);
	close(in[1]);
	run_close(&run);
}
