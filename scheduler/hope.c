#include "scheduler/hope.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/board.h"
#include "scheduler/away.h"

#define ANSWER_MS 1000
#define LAST_WORDS "run.sh: error: "

bool
hope_supervised(const char *dir)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/control", dir);
	return access(path, F_OK) == 0;
}

/* What run.sh said when it took the stack down by itself. */
static int
came_down(const char *dir, struct error *err)
{
	char path[512], line[512], last[512] = "";
	FILE *log;

	snprintf(path, sizeof(path), "%s/log", dir);
	log = fopen(path, "re");
	while (log && fgets(line, sizeof(line), log)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, LAST_WORDS, strlen(LAST_WORDS)) == 0)
			strcpy(last, line + strlen(LAST_WORDS));
	}
	if (log)
		fclose(log);
	if (!last[0])
		return error_set(err, -ENOTCONN, "the stack was taken down");
	return error_set(err, -ENOTCONN, "the stack came down: %.400s; ./run.sh up starts it again",
			 last);
}

int
hope_look(const char *dir, bool supervised, struct error *err)
{
	Hearth__State *state;
	struct error ignored;
	int rc = 0;

	if (access(dir, F_OK) < 0 || (supervised && !hope_supervised(dir)))
		return came_down(dir, err);
	if (board_ask(dir, "scheduler", ANSWER_MS, &state, &ignored) < 0)
		return 0;
	if (state->stays_away) {
		away_explain(state, err);
		rc = -ENOTCONN;
	}
	hearth__state__free_unpacked(state, NULL);
	return rc;
}
