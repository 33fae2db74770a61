#include "scheduler/away.h"

#include <string.h>

void
away_explain(const Hearth__State *state, struct error *ret)
{
	error_set(ret, 0,
		  "the %s has left and stays away: %.300s; once that is mended: ./run.sh "
		  "restart %s",
		  state->stage, state->reason, state->stage);
}

static bool
stays_away(const Hearth__State *state)
{
	return state && state->stays_away;
}

/* What the pinner keeps warm goes on without the loader, if it is whole. */
static bool
needs_loader(const Hearth__State *pinner)
{
	if (!pinner || pinner->stays_away)
		return false;
	if (!pinner->arena || !pinner->arena->path[0])
		return true;
	for (size_t i = 0; i < pinner->n_slices; i++) {
		/* Through the window of a resident budget the loader goes on reading. */
		if (!pinner->slices[i]->checksum || !strcmp(pinner->slices[i]->name, "window"))
			return true;
	}
	return false;
}

bool
away_find(Hearth__State *const states[N_STAGES], struct error *ret)
{
	const Hearth__State *who = NULL;

	if (stays_away(states[WORKER]))
		who = states[WORKER];
	if (stays_away(states[PINNER]))
		who = states[PINNER];
	if (stays_away(states[LOADER]) && needs_loader(states[PINNER]))
		who = states[LOADER];
	if (who)
		away_explain(who, ret);
	return who != NULL;
}
