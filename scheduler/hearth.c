/* hearth: gets a command, asks the stages of a running stack over their sockets, gives the answer
 * on stdout, leaves when it is complete. */
#include "scheduler/hearth.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/descriptors.h"
#include "common/error.h"
#include "common/log.h"

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *usage;
};

static const struct command commands[] = {
	{ "ask", hearth_ask,
	  "[-n N] [--temp T] [--top-k K] [--top-p P] [--seed S] [--json] [--ids]\n"
	  "             [--logits FILE] [--ignore-stop] (PROMPT | - | --prompt-ids 1,2,3)" },
	{ "status", hearth_status, "[--json] [--watch]" },
	{ "report", hearth_report, "[--json] [--svg FILE] [--trace FILE]" },
	{ "verify", hearth_verify, "[--json]" },
	{ "wait", hearth_wait, "" },
	{ "absent", hearth_absent, "STAGE REASON" },
	{ "tune", hearth_tune, "[--apply] [--undo] [--hugetlb-gib N] [MODEL.gguf]" },
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void
print_usage(FILE *to)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(to, "%s hearth %s %s%s\n", i ? "      " : "usage:", commands[i].name,
			commands[i].run == hearth_tune ? "" : "--dir DIR ", commands[i].usage);
}

/* What is closed would be the next socket's number, and what is printed would go there. */
static int
open_standard(const char *command)
{
	if (fcntl(STDOUT_FILENO, F_GETFD) < 0) {
		log_error("%s: stdout is closed: want a place for the answer", command);
		return EXIT_SYSTEM;
	}
	while (fcntl(STDIN_FILENO, F_GETFD) < 0 || fcntl(STDERR_FILENO, F_GETFD) < 0)
		if (open("/dev/null", O_RDWR) < 0)
			return EXIT_SYSTEM;
	return 0;
}

int
main(int argc, char **argv)
{
	struct error err;

	log_open("hearth");
	signal(SIGPIPE, SIG_IGN); /* a reader that left is a failed write, with its line */
	if (argc < 2) {
		print_usage(stderr);
		return EXIT_INPUT;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		print_usage(stdout);
		return 0;
	}
	if (open_standard(argv[1]) != 0)
		return EXIT_SYSTEM;
	setvbuf(stdout, NULL, _IOFBF,
		1u << 20); /* whole outputs: output_flush sees what went wrong */
	if (descriptors_want("hearth command", COMMAND_DESCRIPTORS, &err) < 0) {
		log_error("%s: %s", argv[1], err.text);
		return EXIT_SYSTEM;
	}
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 2, argv + 2);
	}
	log_error("%s: no such command, want ask, status, report, verify, wait, absent or tune",
		  argv[1]);
	return EXIT_INPUT;
}
