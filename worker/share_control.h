/* How much of a layer's experts in host memory the CPU computes beside the GPU: such that both are
 * done at once, and none where that is no faster than the GPU alone.  Plain numbers in, a number
 * out; owns nothing. */
#ifndef HEARTH_WORKER_SHARE_CONTROL_H
#define HEARTH_WORKER_SHARE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

#define SHARE_AUTO (-1.0f)
#define SHARE_WINDOW 4u /* tokens that are looked at together */

/* Of one token. */
struct share_token {
	uint64_t ns;
	uint32_t misses; /* experts in host memory, over all layers */
	uint32_t orders; /* layers that left some of theirs to the CPU */
	uint32_t late;   /* of these, where the GPU had to wait */
};

enum share_phase {
	SHARE_FIXED, /* as it was asked for */
	SHARE_ALONE, /* the GPU, until another trial */
	SHARE_BOTH,  /* the share follows what is late */
	SHARE_TRIAL, /* the other one of the two before, for a window */
};

struct share_control {
	enum share_phase phase, tried_from;
	float both;      /* the share, when it is not 0 */
	uint32_t tokens; /* of this window */
	struct share_token sum;
	struct share_token last; /* the window before */
	uint32_t windows;        /* since the last trial */
	uint32_t until;          /* so many windows to the next one */
};

/* "auto", or a number from 0 to 1.  -EINVAL. */
int share_control_parse(const char *text, float *ret, struct error *err);

/* `share`: 0 to 1, or SHARE_AUTO. */
void share_control_open(struct share_control *control, float share);

/* For the next token. */
float share_control_now(const struct share_control *control);

/* What a token with that share was like. */
void share_control_saw(struct share_control *control, const struct share_token *token);

#endif
