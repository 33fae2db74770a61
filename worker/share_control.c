#include "worker/share_control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SHARE 0.4f
#define LEAST_SHARE 0.05f
#define STEP 0.12f         /* of a window, if all of it is late, or nothing: half as much */
#define FIRST_WINDOWS 8u   /* to the next trial, where one has changed something */
#define CLEAR_WINDOWS 64u  /* the same where a share clearly won */
#define MOST_WINDOWS 2048u /* a trial costs a window, so ever fewer are made */
#define GAIN 0.97          /* of the GPU's time alone: what is less than that is worth it */
#define CLEAR_GAIN 0.8

int
share_control_parse(const char *text, float *ret, struct error *err)
{
	char *end;
	float share;

	if (strcmp(text, "auto") == 0) {
		*ret = SHARE_AUTO;
		return 0;
	}
	share = strtof(text, &end);
	if (end == text || *end != '\0' || !(share >= 0 && share <= 1))
		return error_set(err, -EINVAL, "--cpu-share %s: want auto, or 0 to 1", text);
	*ret = share;
	return 0;
}

void
share_control_open(struct share_control *control, float share)
{
	*control = (struct share_control){ .phase = SHARE_FIXED, .both = share };
	if (share >= 0)
		return;
	/* What the GPU needs alone, first: a trial follows at once. */
	control->phase = SHARE_ALONE;
	control->both = FIRST_SHARE;
	control->until = 1;
}

static bool
is_alone(const struct share_control *control)
{
	return control->phase == SHARE_ALONE ||
	       (control->phase == SHARE_TRIAL && control->tried_from == SHARE_BOTH);
}

float
share_control_now(const struct share_control *control)
{
	return is_alone(control) ? 0 : control->both;
}

/* Late in all layers: down; in none: up. */
static void
follow(struct share_control *control)
{
	const struct share_token *sum = &control->sum;

	if (sum->orders > 0)
		control->both += STEP * (0.5f - (float)sum->late / (float)sum->orders);
	else /* too few for a whole expert */
		control->both += STEP / 2;
	if (control->both > 1)
		control->both = 1;
	if (control->both < LEAST_SHARE)
		control->both = LEAST_SHARE;
}

/* The time of the window with a share in parts of the one without, each for what it missed. */
static double
relative_time(const struct share_token *both, const struct share_token *alone)
{
	return (double)both->ns * alone->misses / ((double)alone->ns * both->misses);
}

/* The trial's window and the one before it have been seen. */
static void
decide(struct share_control *control)
{
	bool alone = control->tried_from == SHARE_ALONE;
	double time = alone ? relative_time(&control->sum, &control->last)
			    : relative_time(&control->last, &control->sum);
	enum share_phase won = time < GAIN ? SHARE_BOTH : SHARE_ALONE;

	/* What won by little may have been chance, or a share that is still on its way. */
	if (won != control->tried_from)
		control->until = time < CLEAR_GAIN ? CLEAR_WINDOWS : FIRST_WINDOWS;
	else if (control->until < MOST_WINDOWS)
		control->until *= 2;
	control->phase = won;
	control->windows = 0;
}

static void
window_end(struct share_control *control)
{
	if (!is_alone(control))
		follow(control);
	if (control->phase == SHARE_TRIAL) {
		decide(control);
	} else if (++control->windows >= control->until) {
		control->tried_from = control->phase;
		control->phase = SHARE_TRIAL;
	}
	control->last = control->sum;
	control->sum = (struct share_token){ 0 };
	control->tokens = 0;
}

void
share_control_saw(struct share_control *control, const struct share_token *token)
{
	struct share_token *sum = &control->sum;

	if (control->phase == SHARE_FIXED || token->misses == 0)
		return;
	sum->ns += token->ns;
	sum->misses += token->misses;
	sum->orders += token->orders;
	sum->late += token->late;
	if (++control->tokens == SHARE_WINDOW)
		window_end(control);
}
