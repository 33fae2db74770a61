#include "loader/fetch_desk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/log.h"
#include "common/reply.h"
#include "proto/fetch.pb-c.h"

struct fetch_desk {
	struct server *server;
	struct fetch_source source;
};

/* A wish and the call that waits for it. */
struct parked {
	struct fetch_wish wish; /* first: the source gives it back */
	struct call *call;
};

static void
refuse(struct call *call, int rc, const struct error *why)
{
	Hearth__FetchReply refusal = HEARTH__FETCH_REPLY__INIT;

	refusal.error = rc;
	refusal.text = (char *)why->text;
	log_warn("fetch refused: %s", why->text);
	call_reply_message(call, &refusal.base);
}

static void
parked_free(struct parked *parked)
{
	free(parked->wish.experts);
	free(parked);
}

void
fetch_wish_done(struct fetch_wish *wish, const struct fetch_place *places)
{
	struct parked *parked = (struct parked *)wish;
	Hearth__FetchReply answer = HEARTH__FETCH_REPLY__INIT;
	Hearth__FetchedExpert *experts = calloc(wish->n, sizeof(*experts));
	Hearth__FetchedExpert **list = calloc(wish->n, sizeof(Hearth__FetchedExpert *));

	if (!experts || !list)
		abort(); /* a few KiB were not to be had: nothing sane can follow */
	for (uint32_t i = 0; i < wish->n; i++) {
		hearth__fetched_expert__init(&experts[i]);
		experts[i].expert = wish->experts[i];
		experts[i].offset_gate = places[i].role[0];
		experts[i].offset_up = places[i].role[1];
		experts[i].offset_down = places[i].role[2];
		list[i] = &experts[i];
	}
	answer.n_experts = wish->n;
	answer.experts = list;
	call_reply_message(parked->call, &answer.base);
	free(list);
	free(experts);
	parked_free(parked);
}

void
fetch_wish_fail(struct fetch_wish *wish, int rc, const struct error *why)
{
	struct parked *parked = (struct parked *)wish;

	refuse(parked->call, rc, why);
	parked_free(parked);
}

static int
check(const struct fetch_source *source, const Hearth__Fetch *fetch, struct error *err)
{
	if (fetch->layer >= source->n_layers)
		return error_set(err, -EINVAL, "layer %" PRIu32 ", this model has %" PRIu32,
				 fetch->layer, source->n_layers);
	if (fetch->n_experts == 0)
		return error_set(err, -EINVAL, "layer %" PRIu32 ": no experts, want one or more",
				 fetch->layer);
	for (size_t i = 0; i < fetch->n_experts; i++) {
		if (fetch->experts[i] >= source->n_experts)
			return error_set(err, -EINVAL,
					 "layer %" PRIu32 ": expert %" PRIu32
					 ", this model has %" PRIu32,
					 fetch->layer, fetch->experts[i], source->n_experts);
		if (i && fetch->experts[i] <= fetch->experts[i - 1])
			return error_set(err, -EINVAL,
					 "layer %" PRIu32 ": expert %" PRIu32 " behind %" PRIu32
					 ", want each once and ascending",
					 fetch->layer, fetch->experts[i], fetch->experts[i - 1]);
	}
	return 0;
}

static int
park(const struct fetch_desk *desk, struct call *call, const Hearth__Fetch *fetch,
     struct error *err)
{
	const struct fetch_source *source = &desk->source;
	struct parked *parked;
	int rc = check(source, fetch, err);

	if (rc < 0)
		return rc;
	parked = calloc(1, sizeof(*parked));
	if (!parked)
		return error_sys(err, -ENOMEM, "fetch");
	*parked = (struct parked){ .wish = { .layer = fetch->layer,
					     .n = (uint32_t)fetch->n_experts,
					     .begun_ns = clock_ns() },
				   .call = call };
	parked->wish.experts = calloc(fetch->n_experts, sizeof(*fetch->experts));
	if (!parked->wish.experts) {
		parked_free(parked);
		return error_sys(err, -ENOMEM, "fetch");
	}
	memcpy(parked->wish.experts, fetch->experts, fetch->n_experts * sizeof(*fetch->experts));
	rc = source->bring(source->arg, &parked->wish, err);
	if (rc < 0)
		parked_free(parked);
	return rc;
}

static void
answer(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	Hearth__Fetch *fetch = hearth__fetch__unpack(NULL, n, bytes);
	struct error why;
	int rc;

	if (fetch)
		rc = park(arg, call, fetch, &why);
	else
		rc = error_set(&why, -EPROTO, "%zu bytes that are no Fetch", n);
	if (rc < 0)
		refuse(call, rc, &why);
	if (fetch)
		hearth__fetch__free_unpacked(fetch, NULL);
}

int
fetch_desk_open(struct fetch_desk **ret, const char *dir, const struct fetch_source *source,
		struct error *err)
{
	struct fetch_desk *desk = calloc(1, sizeof(*desk));
	int rc;

	if (!desk)
		return error_sys(err, -ENOMEM, "loader.fetch");
	desk->source = *source;
	rc = server_open(&desk->server, dir, "loader.fetch", answer, desk, err);
	if (rc < 0) {
		free(desk);
		return rc;
	}
	*ret = desk;
	return 0;
}

void
fetch_desk_close(struct fetch_desk *desk)
{
	if (!desk)
		return;
	server_close(desk->server);
	free(desk);
}
