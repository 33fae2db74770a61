/* hearth tune: shows what the kernel should be set to for a model, sets it (as root), undoes it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/log.h"
#include "common/options.h"
#include "scheduler/hearth.h"
#include "scheduler/stage_line.h"
#include "scheduler/tune.h"

struct tune_options {
	bool apply, undo;
	uint64_t pool_gib;
	const char *model;
};

static int
tune_options_parse(struct tune_options *ret, int argc, char **argv, struct error *err)
{
	struct tune_options options = { 0 };
	const struct option_def defs[] = {
		{ .name = "--apply", .kind = OPTION_FLAG, .to = &options.apply },
		{ .name = "--undo", .kind = OPTION_FLAG, .to = &options.undo },
		{ .name = "--hugetlb-gib",
		  .kind = OPTION_U64,
		  .to = &options.pool_gib,
		  .min = 1,
		  .max = 1 << 20 },
	};
	uint32_t n_words = 0;
	int rc = options_parse(argc + 1, argv - 1, defs, sizeof(defs) / sizeof(*defs),
			       &options.model, 1, &n_words, err);

	if (rc < 0)
		return rc;
	if (options.apply && options.undo)
		return error_set(err, -EINVAL, "--apply and --undo: want one of them");
	if (options.undo && (options.pool_gib || options.model))
		return error_set(err, -EINVAL, "--undo puts all back, want no more words");
	if ((options.apply || options.undo) && geteuid() != 0)
		return error_set(err, -EACCES, "--%s: want root: sudo ./run.sh tune --%s",
				 options.apply ? "apply" : "undo",
				 options.apply ? "apply" : "undo");
	*ret = options;
	return 0;
}

static void
print_switches(const struct tune *tune)
{
	printf("%-30s %-12s %-12s %s\n", "", "now", "wanted", "brings");
	for (uint32_t i = 0; i < N_TUNE_SWITCHES; i++) {
		const struct tune_value *value = &tune->values[i];

		if (!value->there && i == TUNE_SHMEM_2MIB)
			continue; /* an older kernel, and nothing is missed */
		printf("%-30s %-12s %-12s %s\n", value->name,
		       value->there ? value->now : "not here",
		       value->wanted[0] ? value->wanted : "as it is", value->brings);
		printf("    %s\n", value->path);
	}
}

/* Root may lock whatever the limit is. */
static void
print_memlock(uint64_t bytes)
{
	struct rlimit limit = { 0, 0 };
	char now[16];
	bool fine;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	fine = limit.rlim_cur == RLIM_INFINITY || (bytes && limit.rlim_cur >= bytes);
	stage_bytes(now, limit.rlim_cur);
	printf("%-30s %-12s %-12s %s\n", "locked memory (ulimit -l)",
	       limit.rlim_cur == RLIM_INFINITY ? "unlimited" : now, fine ? "as it is" : "unlimited",
	       "the arena stays in RAM where no GPU holds it there");
	if (!fine)
		printf("    in /etc/security/limits.conf, for the next login:\n"
		       "    %s  -  memlock  unlimited\n",
		       geteuid() == 0 ? "YOUR-USER" : "*");
}

static int
tune_set(const struct tune *tune, struct error *err)
{
	int rc;

	if (tune_is_fine(tune)) {
		printf("nothing to set\n");
		return 0;
	}
	rc = tune_apply(tune, err);
	if (rc == 0)
		printf("set; ./run.sh tune --undo puts back what stood there (" TUNE_STATE ")\n");
	return rc;
}

static int
tune_run(const struct tune_options *options, struct error *err)
{
	uint64_t bytes = options->pool_gib << 30;
	struct tune tune;
	uint32_t n;
	int rc = 0;

	if (options->undo) {
		rc = tune_undo("", &n, err);
		if (rc == 0)
			printf("%" PRIu32 " switch%s put back\n", n, n == 1 ? "" : "es");
		return rc;
	}
	if (options->model && !bytes)
		rc = tune_model_bytes(options->model, &bytes, err);
	if (rc < 0)
		return rc;
	tune_look(&tune, "", bytes);
	print_switches(&tune);
	print_memlock(bytes);
	if (options->apply)
		return tune_set(&tune, err);
	if (!tune_is_fine(&tune))
		printf("as root, ./run.sh tune --apply%s sets it until the next boot or --undo\n",
		       bytes ? " with the same words" : "");
	return 0;
}

int
hearth_tune(int argc, char **argv)
{
	struct tune_options options = { 0 };
	struct error err;
	int rc = tune_options_parse(&options, argc, argv, &err);

	if (rc == 0)
		rc = tune_run(&options, &err);
	if (rc < 0)
		log_error("%s", err.text);
	return rc < 0 ? error_exit_code(rc) : 0;
}
