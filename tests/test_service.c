/* common/service.h: when a process ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_end_of_stdin_is_the_order_to_leave),
		cmocka_unit_test(a_process_that_hangs_ends_all_the_same),
	};

	alarm(60); /* a hang fails */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
