/* In a process of its own: nothing here has used nng before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/endpoint.h"
#include "tests/scratch.h"

/* The address space that the stacks of nng's threads do not fit in. */
#define LITTLE_BYTES (32ull << 20)

static void
no_reply(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	(void)arg;
	call_reply(call, bytes, n);
}

static void
a_process_that_may_make_no_threads_ends_with_a_line(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	(void)state;
	skip(); /* a sanitizer wants terabytes of address space */
#else
	struct rlimit little = { LITTLE_BYTES, LITTLE_BYTES };
	struct scratch scratch;
	struct server *server;
	struct error err;
	int status;
	pid_t child;

	(void)state;
	scratch_open(&scratch);
	child = fork();
	if (child == 0) {
		setrlimit(RLIMIT_AS, &little);
		_exit(server_open(&server, scratch.dir, "a", no_reply, NULL, &err) < 0 ? EXIT_SYSTEM
										       : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), EXIT_SYSTEM);
	scratch_close(&scratch);
#endif
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_that_may_make_no_threads_ends_with_a_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
