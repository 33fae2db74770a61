/* worker: gets lent memory from the pinner and requests from the scheduler, gives tokens, one by
 * one; leaves when it is told to, or when the pinner goes or has another arena. */
#include <errno.h>

#include "common/board.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/options.h"
#include "common/service.h"
#include "proto/limits.h"
#include "worker/attach.h"
#include "worker/report.h"
#include "worker/requests.h"
#include "worker/serve.h"
#include "worker/share_control.h"
#include "worker/upstream.h"

/* Between two forwards registering goes on for so long: the layers that are staged meanwhile cost
 * each token more. */
#define REGISTER_NS (20 * NS_PER_MS)

/* So many tokens are counted at once, and then some experts are moved: on a GPU a count costs a
 * copy, less than a hundredth of such tokens.  Where nothing is to be moved it is for the figures
 * alone, and tokens are faster. */
#define COUNT_TOKENS 8u
#define COUNT_TOKENS_STILL 64u

/* Of the experts read elsewhere than in slots since the last count, one in so many may be moved:
 * moves and reads share a link, and no token is to wait long for a move. */
#define MOVE_SHARE 16u

struct worker {
	struct service service;
	struct board *board;
	struct upstream upstream;
	struct attached attached;
	struct requests requests;
	struct report report;
	struct serve *serve;
	uint64_t restarts; /* of this stage, so far */
	uint64_t request;  /* at work as last told; 0 = none */
	bool first;        /* a request is at work and no forward of this process is complete */
	bool settled;      /* the arithmetic is not asked for experts any more */
	uint64_t tokens;   /* computed, and of these counted */
	uint64_t counted;
	uint64_t missed; /* uses of experts outside the slots, in the last count */
};

/* Which experts were used since the last time. */
static int
worker_count(struct worker *worker, struct error *err)
{
	struct attached *attached = &worker->attached;
	struct slot_use *use = &attached->slot_use;
	uint64_t missed = use->uses - use->hits;
	int rc;

	worker->missed = 0;
	if (worker->counted == worker->tokens)
		return 0;
	rc = slot_use_count(use, &attached->table.slots, attached->ops, attached->compute);
	if (rc < 0)
		return error_sys(err, rc, "counting the experts' use");
	worker->missed = use->uses - use->hits - missed;
	if (attached->table.policy.heat != NULL)
		slot_policy_age(&attached->table.policy, use->counts,
				worker->tokens - worker->counted);
	worker->counted = worker->tokens;
	if (attached->usage.page != NULL)
		usage_add(&attached->usage, use->counts);
	return 0;
}

/* A profile that cannot be written is missed at the next start; this one goes on. */
static void
worker_record(struct worker *worker)
{
	struct attached *attached = &worker->attached;
	struct error err;
	int rc = worker_count(worker, &err);

	if (rc == 0 && attached->usage.page != NULL)
		rc = usage_save(&attached->usage, &err);
	if (rc < 0)
		log_warn("%s", err.text);
}

/* Not before the first token: that one does with what is staged. */
static int
worker_register(struct worker *worker)
{
	uint64_t end = clock_ns() + REGISTER_NS;
	int more = worker->first ? 0 : 1;

	while (more == 1 && clock_ns() < end && !requests_waiting(&worker->requests))
		more = table_register(&worker->attached.table);
	return more;
}

/* From here on whole tokens are computed without a word with the host. */
static int
worker_settle(struct worker *worker, struct error *err)
{
	struct attached *attached = &worker->attached;

	if (worker->settled || !table_settled(&attached->table))
		return 0;
	table_place(&attached->table);
	if (attached->ops->places_changed(attached->compute, err) < 0)
		return -EIO;
	attached->ops->ask(attached->compute, false);
	attach_unstage(attached);
	worker->settled = true;
	report_settled(&worker->report);
	return 0;
}

/* What was moved into slots is used, what is wanted there is moved.  While an answer is computed
 * not at each token, and little at once; between answers the link is free. */
static int
worker_move(struct worker *worker, struct error *err)
{
	struct attached *attached = &worker->attached;
	struct table *table = &attached->table;
	uint32_t every = table->policy.heat != NULL ? COUNT_TOKENS : COUNT_TOKENS_STILL;
	bool idle = worker->request == 0, chosen;
	int rc, moved;

	if (!idle && !table->filling && worker->tokens - worker->counted < every)
		return 0;
	rc = worker_count(worker, err);
	if (rc < 0)
		return rc;
	moved = table_moved(table, err);
	if (moved < 0)
		return moved;
	chosen = table_choose(table, idle ? SLOT_POLICY_MAX : worker->missed / MOVE_SHARE);
	if ((moved || chosen) && attached->ops->places_changed(attached->compute, err) < 0)
		return -EIO;
	if (moved && !chosen)
		report_moved(&worker->report);
	return chosen ? table_move(table, err) : 0;
}

/* Between forwards: follow the pinner, fill slots, register the arena. */
static int
worker_upkeep(void *arg, bool woken, struct error *err)
{
	struct worker *worker = arg;
	struct table *table = &worker->attached.table;
	int rc, registered;

	if (woken) {
		rc = upstream_look(&worker->upstream, err);
		if (rc < 0)
			return rc;
		table_look(table);
		report_slices(&worker->report, worker->upstream.state);
	}
	rc = worker_move(worker, err);
	if (rc < 0)
		return rc;
	registered = worker->settled ? 0 : worker_register(worker);
	rc = worker_settle(worker, err);
	return rc < 0 ? rc : registered;
}

static int
worker_wait_trunk(void *arg, struct error *err)
{
	struct worker *worker = arg;

	return table_wait_slice(&worker->attached.table, 0, err);
}

static void
worker_tally(void *arg, const struct serve_tally *tally, bool now)
{
	struct worker *worker = arg;

	worker->first = tally->request != 0 && tally->tokens_in + tally->tokens_out == 0;
	worker->tokens = tally->tokens_in + tally->tokens_out;
	if (worker->request != 0 && tally->request == 0)
		worker_record(worker);
	report_tally(&worker->report, tally, now);
	worker->request = tally->request;
}

static int
worker_open(struct worker *worker, const struct attach_config *config, struct error *err)
{
	int rc = board_open(&worker->board, config->dir, "worker", err);

	if (rc == 0)
		board_restarts(worker->board, worker->restarts);
	if (rc == 0)
		rc = upstream_open(&worker->upstream, config->dir, &worker->service, err);
	return rc;
}

static int
worker_run(struct worker *worker, struct attach_config *config, struct error *err)
{
	struct attached *attached = &worker->attached;
	struct serve_config serve = { .service = &worker->service,
				      .requests = &worker->requests,
				      .dir = config->dir,
				      .upkeep = worker_upkeep,
				      .wait_trunk = worker_wait_trunk,
				      .report = worker_tally,
				      .arg = worker };
	int rc;

	config->board = worker->board;
	config->upstream = &worker->upstream;
	rc = attach_open(attached, config, err);
	if (rc < 0)
		return rc;
	attached->table.interrupted = requests_waiting;
	attached->table.interrupted_arg = &worker->requests;
	worker->report = (struct report){ .board = worker->board, .attached = attached };
	report_attached(&worker->report);
	report_slices(&worker->report, worker->upstream.state);
	serve.ops = attached->ops;
	serve.compute = attached->compute;
	serve.journal = &attached->journal;
	serve.vocabulary = attached->model.vocabulary;
	serve.context = attached->context;
	rc = serve_open(&worker->serve, &serve, err);
	if (rc < 0)
		return rc;
	service_ready(&worker->service);
	rc = serve_run(worker->serve, err);
	worker_record(worker);
	if (rc < 0 && attached->table.failure.text[0] != '\0')
		*err = attached->table.failure; /* the forward that it ended knows the code alone */
	return rc;
}

/* What the last line says depends on whose end it was. */
static int
worker_end(struct worker *worker, int rc, const struct error *err)
{
	if (service_leaving(&worker->service) || rc == 0) {
		board_phase(worker->board, HEARTH__PHASE__PHASE_LEAVING, "told to leave");
		return 0;
	}
	if (rc == -ECANCELED) {
		board_phase(worker->board, HEARTH__PHASE__PHASE_LEAVING, "%s", err->text);
		log_info("%s: leaving, to start anew", err->text);
		return 0;
	}
	board_phase(worker->board, HEARTH__PHASE__PHASE_FAILED, "%s", err->text);
	log_error("%s", err->text);
	return error_exit_code(rc);
}

static void
worker_close(struct worker *worker)
{
	service_watchdog();
	serve_close(worker->serve);
	requests_close(&worker->requests);
	if (worker->attached.device != NULL)
		attach_close(&worker->attached);
	upstream_close(&worker->upstream);
	board_close(worker->board);
	service_close(&worker->service);
}

int
main(int argc, char **argv)
{
	static struct worker worker;
	const char *dir = NULL;
	const char *profile = NULL;
	const char *share = "auto";
	uint64_t context = 0, threads = 0, margin = SLOT_POLICY_MARGIN;
	const struct option_def defs[] = {
		{ .name = "--dir", .kind = OPTION_TEXT, .to = &dir },
		{ .name = "--ctx",
		  .kind = OPTION_U64,
		  .to = &context,
		  .min = MIN_CONTEXT,
		  .max = MAX_CONTEXT },
		{ .name = "--threads",
		  .kind = OPTION_U64,
		  .to = &threads,
		  .min = 1,
		  .max = MAX_THREADS },
		{ .name = "--restarts",
		  .kind = OPTION_U64,
		  .to = &worker.restarts,
		  .max = UINT64_MAX },
		{ .name = "--profile", .kind = OPTION_TEXT, .to = &profile },
		{ .name = "--cpu-share", .kind = OPTION_TEXT, .to = &share },
		{ .name = "--slot-margin", .kind = OPTION_U64, .to = &margin, .max = 1 << 20 },
	};
	struct attach_config config = { .cpu = &compute_cpu, .cuda = &compute_cuda };
	struct error err = { "" };
	uint32_t n_words;
	int rc;

	log_open("worker");
	rc = options_parse(argc, argv, defs, sizeof(defs) / sizeof(defs[0]), NULL, 0, &n_words,
			   &err);
	if (rc == 0 && dir == NULL)
		rc = error_set(&err, -EINVAL, "--dir: want the runtime folder");
	if (rc == 0)
		rc = share_control_parse(share, &config.cpu_share, &err);
	if (rc == 0)
		rc = service_open(&worker.service, "worker", &err);
	if (rc < 0) {
		log_error("%s", err.text);
		return error_exit_code(rc);
	}
	config.dir = dir;
	config.context = (uint32_t)context;
	config.threads = (uint32_t)threads;
	config.profile = profile;
	config.slot_margin = (float)margin;
	requests_open(&worker.requests, &worker.service);
	rc = worker_open(&worker, &config, &err);
	if (rc < 0) {
		log_error("%s", err.text);
		rc = error_exit_code(rc);
	} else {
		rc = worker_end(&worker, worker_run(&worker, &config, &err), &err);
	}
	worker_close(&worker);
	return rc;
}
