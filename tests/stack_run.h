/* Runs run.sh as a user does, from a whole-stack test: in a runtime folder of the test's own, with
 * the programs that were built beside the test, and never longer than STACK_LIMIT_S.  Whatever goes
 * wrong fails the running cmocka test. */
#ifndef HEARTH_TESTS_STACK_RUN_H
#define HEARTH_TESTS_STACK_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Longer than anything here takes, under a sanitizer on a busy machine too: a hang fails. */
#define STACK_LIMIT_S 120

/* Set-up and tear-down of a test or a group: the runtime folder, XDG_RUNTIME_DIR, HEARTH_BUILD;
 * then every stack that was left is taken down, and that is a failure. */
int stack_setup(void **state);
int stack_teardown(void **state);
#define stack_test(f) cmocka_unit_test_setup_teardown(f, stack_setup, stack_teardown)

extern char stack_runtime[64]; /* the runtime folder of all stacks of this test */
extern char stack_build[512];  /* the build folder the programs come from */
extern char stack_source[512]; /* the source folder, where run.sh is */

/* A path below the source folder; one of 8 buffers that take turns. */
const char *stack_path(const char *below);

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

struct run {
	pid_t pid;
	int out_fd, err_fd;
	char *out, *err; /* what has come so far, ended by a 0 */
	size_t out_n, err_n;
	uint64_t deadline_ns;
	const char *what; /* the first word */
};

/* run.sh words... */
void run_start(struct run *run, const char *const *words);
/* Reads until `bytes` of its stdout have come; its end before that fails the test. */
void run_read(struct run *run, size_t bytes);
/* Reads `bytes` more than have come by now; false: its stdout ends before that. */
bool run_more(struct run *run, size_t bytes);
/* Whether its output has ended; takes what has come, waits for nothing. */
bool run_ended(struct run *run);
/* Reads to the end.  The exit status, or 128 + signal. */
int run_finish(struct run *run);
void run_close(struct run *run);

/* The same in one go; the exit status must be `want`.  The caller closes *ret. */
void run_words(struct run *ret, int want, const char *const *words);
/* Likewise, for its stdout (the caller frees it). */
char *run_text(const char *const *words);
/* Likewise, for the JSON it prints; the caller drops it. */
json_t *run_json(const char *const *words);
/* Likewise, and nothing of it is wanted. */
void run_do(const char *const *words);

/* A command of bash, printf-like; the exit status must be `want`.  The caller closes *ret. */
__attribute__((format(printf, 3, 4))) void run_shell(struct run *ret, int want, const char *format,
						     ...);
/* Exactly one line, and these words in it. */
void stack_assert_one_line(const char *text, const char *words);

/* -- looking at a stack -- */

/* status --json's stages.STAGE.KEY; the caller drops it. */
json_t *stack_figure(const char *name, const char *stage, const char *key);
/* A stage's process, which must be there. */
pid_t stack_pid(const char *name, const char *stage);
/* Waits until the stack can answer, as `up` does. */
void stack_wait_answering(const char *name);
/* The supervisor's process. */
pid_t stack_supervisor(const char *name);
/* SIGKILL; comes back when the process is dead. */
void stack_kill(pid_t pid);
/* The same for the supervisor and every keeper of that stack at once. */
void stack_kill_run_sh(const char *name);

/* The runtime folder of one stack, opened; what `stack_wait_left` waits for. */
int stack_open_folder(const char *name);
/* Waits until every process of that stack has left; closes the descriptor. */
void stack_wait_left(int folder);

/* fn(pid, arg) for each process (but the test itself) of the stacks of this test. */
void stack_each_process(void (*fn)(const char *pid, void *arg), void *arg);
/* Processes (but the test itself) that belong to stacks of this test. */
uint32_t stack_count_processes(void);
/* Processes of this machine that hold the memfd with this inode. */
uint32_t stack_count_holders(uint64_t inode);
/* Names in the runtime folder. */
uint32_t stack_count_files(void);
/* Nothing of any stack of this test is left: no process, file or folder. */
void stack_assert_nothing_left(void);

#endif
