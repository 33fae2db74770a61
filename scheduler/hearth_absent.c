/* hearth absent: stands in for a stage that left for a reason which no restart mends, so that its
 * board says so; leaves when its stdin ends. */
#include <errno.h>
#include <string.h>

#include "common/board.h"
#include "common/log.h"
#include "common/options.h"
#include "common/service.h"
#include "scheduler/hearth.h"
#include "scheduler/stack_view.h"

static const char *
absent_stage(const char *word)
{
	for (uint32_t i = 0; i < N_STAGES; i++)
		if (strcmp(stage_names[i], word) == 0)
			return stage_names[i];
	return NULL;
}

static int
absent_stand(const char *dir, const char *stage, const char *reason, struct error *err)
{
	struct service service;
	struct board *board;
	Hearth__State *state;
	uint64_t seen = 0;
	int rc = service_open(&service, stage, err);

	if (rc < 0)
		return rc;
	rc = board_open(&board, dir, stage, err);
	if (rc == 0) {
		state = board_edit(board);
		state->stays_away = true;
		state->phase = HEARTH__PHASE__PHASE_FAILED;
		board_text(&state->reason, "%s", reason);
		board_publish(board);
		while (service_wait(&service, &seen, 0))
			;
		service_watchdog();
		board_close(board);
	}
	service_close(&service);
	return rc;
}

int
hearth_absent(int argc, char **argv)
{
	const char *dir = NULL, *words[2];
	const struct option_def defs[] = {
		{ .name = "--dir", .kind = OPTION_TEXT, .to = &dir },
	};
	struct error err;
	uint32_t n_words;
	int rc = options_parse(argc + 1, argv - 1, defs, 1, words, 2, &n_words, &err);

	if (rc == 0 && (!dir || n_words != 2 || !absent_stage(words[0])))
		rc = error_set(&err, -EINVAL, "want --dir DIR STAGE REASON");
	if (rc == 0)
		rc = absent_stand(dir, absent_stage(words[0]), words[1], &err);
	if (rc < 0) {
		log_error("absent: %s", err.text);
		return error_exit_code(rc);
	}
	return 0;
}
