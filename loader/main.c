/* loader: gets a model's path; gives the arena with every byte of it in place, slice by slice, and
 * keeps it; leaves when its stdin ends.
 * With --pack it makes a pack of the model, and that is all. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/options.h"
#include "loader/load.h"
#include "loader/load_pages.h"
#include "loader/numa.h"
#include "loader/pack_write.h"

static int
read_node(const char *word, int *ret, struct error *err)
{
	char *end;
	long node;

	errno = 0;
	node = strtol(word, &end, 10);
	if (errno || end == word || *end || node < 0 || node >= NUMA_MAX_NODES)
		return error_set(err, -EINVAL, "--numa-node %s: want auto or a number below %d",
				 word, NUMA_MAX_NODES);
	*ret = (int)node;
	return 0;
}

static int
read_options(int argc, char **argv, struct load_options *ret, struct error *err)
{
	static const char *const orders[] = { "after", "before", NULL };
	static const char *const reads[] = { "auto", "buffered", "direct", NULL };
	static const char *const pages[] = { "auto", "4k", "thp", "hugetlb", NULL };
	struct load_options options = { .read = "auto",
					.numa_node = NUMA_NODE_AUTO,
					.io = &io_system,
					.cache = &cache_system,
					.populate = &populate_system,
					.root = "" };
	const char *wanted_pages = "auto", *node = "auto";
	const char *order = "after";
	uint64_t threads = 0;   /* as the reader likes */
	double resident = -1.0; /* the whole model */
	const struct option_def defs[] = {
		{ .name = "--dir", .kind = OPTION_TEXT, .to = &options.dir },
		{ .name = "--read", .kind = OPTION_TEXT, .to = &options.read, .choices = reads },
		{ .name = "--threads",
		  .kind = OPTION_U64,
		  .to = &threads,
		  .min = 1,
		  .max = MAX_THREADS },
		{ .name = "--pages", .kind = OPTION_TEXT, .to = &wanted_pages, .choices = pages },
		{ .name = "--numa-node", .kind = OPTION_TEXT, .to = &node },
		{ .name = "--pin-order", .kind = OPTION_TEXT, .to = &order, .choices = orders },
		{ .name = "--pack", .kind = OPTION_TEXT, .to = &options.pack },
		{ .name = "--resident-gib", .kind = OPTION_FLOAT, .to = &resident },
		{ .name = "--profile", .kind = OPTION_TEXT, .to = &options.profile },
		{ .name = "--restarts",
		  .kind = OPTION_U64,
		  .to = &options.restarts,
		  .max = UINT64_MAX },
		{ .name = "--verify", .kind = OPTION_FLAG, .to = &options.verify },
	};
	uint32_t n_words = 0;
	int rc = options_parse(argc, argv, defs, sizeof(defs) / sizeof(*defs), &options.model, 1,
			       &n_words, err);

	if (rc < 0)
		return rc;
	if (!options.dir && !options.pack)
		return error_set(err, -EINVAL, "--dir: the runtime folder is missing");
	if (n_words == 0)
		return error_set(err, -EINVAL,
				 "want a model: loader --dir DIR [OPTIONS] MODEL.gguf, or loader "
				 "--pack FILE MODEL.gguf");
	if (resident != -1.0 && !(resident > 0 && resident < 1 << 24))
		return error_set(err, -EINVAL, "--resident-gib %g: want more than 0 GiB", resident);
	options.resident_gib = resident > 0 ? resident : 0;
	options.threads = (uint32_t)threads;
	pages_of_word(&options.pages, wanted_pages); /* one of the choices */
	if (strcmp(node, "auto") != 0)
		rc = read_node(node, &options.numa_node, err);
	if (rc < 0)
		return rc;
	options.pin_before = strcmp(order, "before") == 0;
	*ret = options;
	return 0;
}

static int
load_whole(struct load *load, struct error *err)
{
	int rc = load_plan(load, err);

	if (rc == 0)
		rc = load_take_arena(load, err);
	if (rc == 0)
		rc = load_open_desk(load, err);
	if (rc < 0)
		return rc;
	service_ready(load->service);
	rc = load_read(load, err);
	if (rc == 0)
		rc = load_finish(load, err);
	return rc;
}

static int
run(struct service *service, const struct load_options *options, struct error *err)
{
	struct load load = { .options = options, .service = service, .arena = { .fd = -1 } };
	uint64_t seen = 0;
	int rc = board_open(&load.board, options->dir, "loader", err);

	if (rc < 0)
		return rc;
	board_text(&board_edit(load.board)->model, "%s", options->model);
	board_publish(load.board);
	board_restarts(load.board, options->restarts);
	rc = load_whole(&load, err);
	if (rc < 0 && load_pages_ran_out(&load)) {
		log_warn("%s: starts again without huge pages from the pool", err->text);
		load_start_over(&load);
		rc = load_whole(&load, err);
	}
	if (rc < 0)
		load_pages_explain(&load, rc, err);
	if (rc == -ECANCELED && service_leaving(service))
		rc = 0;
	if (rc < 0)
		load_fail(&load, rc, err);
	while (rc == 0 && service_wait(service, &seen, 0))
		;
	service_watchdog();
	if (rc == 0)
		board_phase(load.board, HEARTH__PHASE__PHASE_LEAVING, "%s", "");
	load_close(&load); /* whose threads may have news to the last */
	board_close(load.board);
	return rc;
}

static int
pack(const struct load_options *options)
{
	struct error err;
	int rc = pack_make(options->pack, options->model, &err);

	if (rc < 0)
		log_error("%s", err.text);
	return rc < 0 ? error_exit_code(rc) : 0;
}

int
main(int argc, char **argv)
{
	struct load_options options = { 0 };
	struct service service;
	struct error err;
	int rc;

	log_open("loader");
	rc = read_options(argc, argv, &options, &err);
	if (rc == 0 && options.pack)
		return pack(&options);
	if (rc == 0)
		rc = service_open(&service, "loader", &err);
	if (rc < 0) {
		log_error("%s", err.text);
		return error_exit_code(rc);
	}
	rc = run(&service, &options, &err);
	if (rc < 0)
		log_error("%s", err.text);
	service_watchdog();
	service_close(&service);
	return rc < 0 ? error_exit_code(rc) : 0;
}
