#include "worker/answer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int
answer_open(struct answer *ret, uint32_t context, uint32_t vocabulary)
{
	uint32_t *ids = malloc((uint64_t)context * sizeof(*ids));

	if (ids == NULL)
		return -ENOMEM;
	*ret = (struct answer){ .ids = ids, .context = context, .vocabulary = vocabulary };
	return 0;
}

void
answer_close(struct answer *answer)
{
	free(answer->ids);
	answer->ids = NULL;
}

static int
generate_check(const Hearth__Generate *generate, uint32_t context, uint32_t vocabulary,
	       struct error *err)
{
	if (generate->n_ids == 0)
		return error_set(err, -EINVAL, "a request without tokens: want 1 to %" PRIu32,
				 context);
	if (generate->n_ids > context)
		return error_set(err, -EINVAL,
				 "%zu tokens: the context has room for %" PRIu32
				 " (a larger --ctx gives more)",
				 generate->n_ids, context);
	if (generate->prompt_tokens == 0 || generate->prompt_tokens > generate->n_ids)
		return error_set(err, -EINVAL,
				 "prompt of %" PRIu32 " tokens in a request of %zu: want 1 to all",
				 generate->prompt_tokens, generate->n_ids);
	for (size_t i = 0; i < generate->n_ids; i++)
		if (generate->ids[i] >= vocabulary)
			return error_set(err, -EINVAL,
					 "token %zu is %" PRIu32 ": the vocabulary has %" PRIu32, i,
					 generate->ids[i], vocabulary);
	return 0;
}

int
answer_begin(struct answer *answer, const Hearth__Generate *generate, struct error *err)
{
	int rc = generate_check(generate, answer->context, answer->vocabulary, err);

	if (rc < 0)
		return rc;
	memcpy(answer->ids, generate->ids, generate->n_ids * sizeof(*generate->ids));
	answer->request = generate->request;
	answer->n_ids = (uint32_t)generate->n_ids;
	answer->prompt_tokens = generate->prompt_tokens;
	answer->max_tokens = generate->max_tokens;
	answer->done = 0;
	answer->sampling = (struct sampling){ .top_p = 1 };
	if (generate->sampling != NULL)
		answer->sampling = (struct sampling){
			.temperature = generate->sampling->temperature,
			.top_k = generate->sampling->top_k,
			.top_p = generate->sampling->top_p,
			.seed = generate->sampling->seed,
		};
	answer->stop_ids = generate->stop_ids;
	answer->n_stop_ids = generate->n_stop_ids;
	answer->want_logits = generate->want_logits;
	return 0;
}

uint32_t
answer_index(const struct answer *answer)
{
	return answer->n_ids - answer->prompt_tokens;
}

void
answer_add(struct answer *answer, uint32_t id)
{
	assert(answer->n_ids < answer->context);
	answer->ids[answer->n_ids++] = id;
}

static bool
is_full(const struct answer *answer, uint32_t more)
{
	return (uint64_t)answer_index(answer) + more >= answer->max_tokens ||
	       (uint64_t)answer->n_ids + more >= answer->context;
}

bool
answer_has_room(const struct answer *answer)
{
	return !is_full(answer, 1);
}

const char *
answer_finish(const struct answer *answer)
{
	uint32_t last = answer->ids[answer->n_ids - 1];

	/* Also of a request that comes with its last token: only its finish was lost. */
	for (size_t i = 0; answer_index(answer) > 0 && i < answer->n_stop_ids; i++)
		if (answer->stop_ids[i] == last)
			return "stop";
	if (is_full(answer, 0))
		return "length";
	return NULL;
}
