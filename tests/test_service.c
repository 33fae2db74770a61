/* common/service.h: when a process ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/service.h"

/* A process whose stdin is a pipe: the other end.  It leaves as told, or never does. */
static int
start(pid_t *ret_pid, bool hangs)
{
	struct service service;
	struct error err;
	uint64_t seen = 0;
	int life[2], set[2];
	char one = 1;

	assert_int_equal(pipe(life), 0);
	assert_int_equal(pipe(set), 0);
	*ret_pid = fork();
	assert_true(*ret_pid >= 0);
	if (*ret_pid > 0) {
		close(life[0]);
		close(set[1]);
		assert_int_equal(read(set[0], &one, 1), 1);
		close(set[0]);
		return life[1];
	}
	close(life[1]);
	dup2(life[0], STDIN_FILENO);
	if (service_open(&service, "test", &err) < 0)
		_exit(1);
	atomic_store(&service.leave_ms, 100);
	if (write(set[1], &one, 1) != 1)
		_exit(1);
	if (hangs) {
		for (;;)
			pause();
	}
	while (service_wait(&service, &seen, 0)) {
	}
	service_close(&service);
	_exit(0);
}

static int
end_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void
the_end_of_stdin_is_the_order_to_leave(void **state)
{
	pid_t pid;
	int life = start(&pid, false), status;

	(void)state;
	close(life);
	status = end_of(pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Nobody may be left to kill it: the supervisor is gone too. */
static void
a_process_that_hangs_ends_all_the_same(void **state)
{
	pid_t pid;
	int life = start(&pid, true), status;

	(void)state;
	close(life);
	status = end_of(pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGALRM);
}

/* In a process of its own, that may have so many descriptors: what service_open says. */
static int
open_with(rlim_t soft, rlim_t hard)
{
	const struct rlimit limit = { .rlim_cur = soft, .rlim_max = hard };
	struct service service;
	struct error err;
	pid_t pid = fork();
	int rc;

	assert_true(pid >= 0);
	if (pid > 0)
		return WEXITSTATUS(end_of(pid));
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		_exit(1);
	rc = service_open(&service, "loader", &err);
	if (rc == 0)
		_exit(0);
	_exit(strcmp(err.text, "63 descriptors are allowed, the loader needs 64: ulimit -n 64")
		  ? 2
		  : error_exit_code(rc));
}

static void
too_few_descriptors_are_said_with_how_many_it_needs(void **state)
{
	(void)state;
	assert_int_equal(open_with(63, 63), EXIT_SYSTEM);
	assert_int_equal(open_with(64, 64), 0);
	assert_int_equal(open_with(16, 64), 0); /* raised as far as it may be */
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_end_of_stdin_is_the_order_to_leave),
		cmocka_unit_test(a_process_that_hangs_ends_all_the_same),
		cmocka_unit_test(too_few_descriptors_are_said_with_how_many_it_needs),
	};

	alarm(60); /* a hang fails */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
