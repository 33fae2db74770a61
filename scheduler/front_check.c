#include "scheduler/front_check.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "proto/limits.h"

static int
check_sampling(const Hearth__Sampling *sampling, struct error *err)
{
	if (!isfinite(sampling->temperature) || sampling->temperature < 0)
		return error_set(err, -EINVAL, "temperature %g: want 0 (greedy) or more",
				 (double)sampling->temperature);
	if (!isfinite(sampling->top_p) || sampling->top_p < 0 || sampling->top_p > 1)
		return error_set(err, -EINVAL, "top_p %g: want 0 to 1", (double)sampling->top_p);
	return 0;
}

static int
check_ids(const char *what, const uint32_t *ids, size_t n, struct error *err)
{
	if (n >= MAX_CONTEXT)
		return error_set(err, -EINVAL, "%zu %s: want less than %u", n, what, MAX_CONTEXT);
	for (size_t i = 0; i < n; i++) {
		if (ids[i] >= MAX_VOCABULARY)
			return error_set(err, -EINVAL,
					 "%s: number %zu is %" PRIu32
					 ", no vocabulary has more than %u",
					 what, i, ids[i], MAX_VOCABULARY);
	}
	return 0;
}

static int
check_submit(const Hearth__Submit *submit, struct error *err)
{
	size_t n_text = strlen(submit->text);

	if (!submit->request)
		return error_set(err, -EINVAL, "request id 0: want a random number");
	if (n_text && submit->n_prompt_ids)
		return error_set(err, -EINVAL, "both text and prompt_ids: want one of them");
	if (!n_text && !submit->n_prompt_ids)
		return error_set(err, -EINVAL, "an empty prompt: want at least one token");
	if (n_text > MAX_PROMPT_BYTES)
		return error_set(err, -EINVAL, "a prompt of %zu bytes: want at most %u", n_text,
				 MAX_PROMPT_BYTES);
	if (check_ids("prompt_ids", submit->prompt_ids, submit->n_prompt_ids, err) < 0 ||
	    check_ids("given_ids", submit->given_ids, submit->n_given_ids, err) < 0)
		return -EINVAL;
	if (!submit->max_tokens)
		return error_set(err, -EINVAL, "max_tokens 0: want 1 or more");
	if (submit->n_given_ids > submit->max_tokens)
		return error_set(err, -EINVAL, "%zu given_ids: want at most max_tokens, %" PRIu32,
				 submit->n_given_ids, submit->max_tokens);
	return submit->sampling ? check_sampling(submit->sampling, err) : 0;
}

int
front_check(const Hearth__FrontRequest *request, struct error *err)
{
	uint64_t id;

	switch (request->what_case) {
	case HEARTH__FRONT_REQUEST__WHAT_SUBMIT:
		return check_submit(request->submit, err);
	case HEARTH__FRONT_REQUEST__WHAT_READ:
		id = request->read->request;
		break;
	case HEARTH__FRONT_REQUEST__WHAT_CANCEL:
		id = request->cancel->request;
		break;
	default:
		return error_set(err, -EINVAL, "a request that is neither submit, read nor cancel");
	}
	return id ? 0 : error_set(err, -EINVAL, "request id 0: want that of a submit");
}
