/* The subcommands of `hearth`.  Each takes the words behind its own name, needs `--dir D` (the
 * runtime folder of a stack), prints its result on stdout and its one error line on stderr, and
 * returns the exit code: 0, EXIT_INPUT or EXIT_SYSTEM. */
#ifndef HEARTH_SCHEDULER_HEARTH_H
#define HEARTH_SCHEDULER_HEARTH_H

/* Also HEARTH_INTERRUPTED, after Ctrl-C. */
int hearth_ask(int argc, char **argv);
int hearth_status(int argc, char **argv);
int hearth_report(int argc, char **argv);
int hearth_verify(int argc, char **argv);
int hearth_wait(int argc, char **argv);
int hearth_absent(int argc, char **argv);
int hearth_tune(int argc, char **argv); /* asks no stack: without --dir */

/* As a shell says it of a process that a signal has ended: 128 + SIGINT, 128 + SIGPIPE. */
#define HEARTH_INTERRUPTED 130
#define HEARTH_UNREAD 141 /* whoever read the output has left; no line says so */

#endif
