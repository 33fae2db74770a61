/* The rest of table.h: what a forward that asks for experts waits for and brings. */
#include <errno.h>
#include <inttypes.h>

#include "common/checked.h"
#include "common/clock.h"
#include "common/log.h"
#include "worker/table.h"

static bool
table_interrupted(const struct table *table)
{
	return table->interrupted != NULL && table->interrupted(table->interrupted_arg);
}

/* -ECANCELED, or something has happened. */
static int
table_wait(struct table *table, struct error *err)
{
	int rc;

	if (table_interrupted(table))
		return error_set(err, -ECANCELED, "interrupted");
	rc = upstream_wait(table->upstream, err);
	if (rc == 0)
		table_look(table);
	return rc;
}

int
table_wait_slice(struct table *table, uint32_t slice, struct error *err)
{
	int rc = 0;

	while (rc == 0 && !table->filled[slice])
		rc = table_wait(table, err);
	return rc;
}

static bool
has_home(const struct table *table, uint32_t which)
{
	return table->home[which].role[ROLE_GATE] != NULL;
}

/* What was asked for, at places within the arena. */
static int
answer_check(const struct table *table, uint32_t layer, uint32_t n,
	     const Hearth__FetchReply *answer, struct error *err)
{
	if (answer->n_experts != n)
		return error_set(err, -EPROTO,
				 "loader.fetch: %zu experts came, %" PRIu32 " were asked for",
				 answer->n_experts, n);
	for (uint32_t i = 0; i < n; i++) {
		const Hearth__FetchedExpert *one = answer->experts[i];
		const uint64_t at[N_ROLES] = { one->offset_gate, one->offset_up, one->offset_down };

		if (one->expert != table->absent[i])
			return error_set(err, -EPROTO,
					 "loader.fetch: expert %" PRIu32 " came, want %" PRIu32,
					 one->expert, table->absent[i]);
		for (enum role role = 0; role < N_ROLES; role++) {
			uint64_t end;

			if (!checked_add(at[role], table->model->layers[layer].role[role].bytes,
					 &end) ||
			    end > table->arena->bytes)
				return error_set(err, -EPROTO,
						 "loader.fetch: expert %" PRIu32 " at %" PRIu64
						 ": the arena has %" PRIu64 " bytes",
						 one->expert, at[role], table->arena->bytes);
		}
	}
	return 0;
}

static int
answer_take(struct table *table, uint32_t layer, uint32_t n, const Hearth__FetchReply *answer,
	    struct error *err)
{
	const uint8_t *base = table->arena->base;
	int rc;

	if (answer->error < 0)
		return error_set(err, answer->error, "loader.fetch: layer %" PRIu32 ": %s", layer,
				 answer->text);
	rc = answer_check(table, layer, n, answer, err);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < n; i++) {
		const Hearth__FetchedExpert *one = answer->experts[i];
		uint32_t which = table_which(table, layer, one->expert);

		table->fetched[which] = has_home(table, which);
		table->lent[one->expert] =
		    (struct expert_place){ { base + one->offset_gate, base + one->offset_up,
					     base + one->offset_down } };
	}
	table->fetched_experts += n;
	return 0;
}

/* 1: they are there; 0: something has to happen first.  A loader that is lost, or not there, is
 * asked again at the next word of the pinner. */
static int
bring_look(struct table *table, uint32_t layer, uint32_t n, bool *asked, struct error *err)
{
	Hearth__FetchReply *answer;
	int rc;

	if (table->fetcher == NULL)
		return 0;
	if (!*asked)
		*asked = fetcher_begin(table->fetcher, layer, table->absent, n) == 0;
	rc = *asked ? fetcher_look(table->fetcher, &answer) : 0;
	if (rc < 0)
		*asked = false;
	if (rc <= 0)
		return 0;
	rc = answer_take(table, layer, n, answer, err);
	hearth__fetch_reply__free_unpacked(answer, NULL);
	return rc < 0 ? rc : 1;
}

/* The first n of `absent`.  Those with a home are there once the whole slice is, at the latest, and
 * then a loader that fails to bring them ahead does no harm. */
static int
bring(struct table *table, uint32_t layer, uint32_t n, struct error *err)
{
	uint64_t begin = clock_ns();
	bool asked = false, refused = false;
	int rc = 0;

	while (rc == 0) {
		if (table->homeless[layer] == 0 && table->filled[1 + layer])
			break;
		if (!refused)
			rc = bring_look(table, layer, n, &asked, err);
		if (rc < 0 && table->homeless[layer] == 0) {
			log_warn("%s", err->text);
			refused = true;
			rc = 0;
		}
		if (rc == 0)
			rc = table_wait(table, err);
	}
	if (table->fetcher != NULL)
		fetcher_drop(table->fetcher);
	table->fetch_ns += clock_ns() - begin;
	return rc < 0 ? rc : 0;
}

/* The first table->absent of the experts needed: neither in a slot nor in the arena. */
static uint32_t
find_absent(struct table *table, uint32_t layer, const uint32_t *experts, uint32_t n)
{
	uint32_t n_absent = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t which = table_which(table, layer, experts[i]);

		if (table->slots.slot_of[which] == SLOT_NONE &&
		    !(has_home(table, which) &&
		      (table->filled[1 + layer] || table->fetched[which])))
			table->absent[n_absent++] = experts[i];
	}
	return n_absent;
}

/* All are in the arena, or in slots: those that the device cannot read in place are staged. */
static int
reach(struct table *table, uint32_t layer, const uint32_t *experts, uint32_t n, struct error *err)
{
	const struct device_info *info = device_describe(table->device);
	bool in_place = table_in_place(table, layer);
	int rc = 0;

	if (table->staging != NULL)
		staging_begin(table->staging);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		uint32_t which = table_which(table, layer, experts[i]);
		const struct expert_place *from =
		    has_home(table, which) ? &table->home[which] : &table->lent[experts[i]];

		if (table->slots.slot_of[which] != SLOT_NONE)
			continue;
		if (info->computes_from_host || (in_place && has_home(table, which))) {
			table->places[which] = *from;
			continue;
		}
		rc = staging_add(table->staging, &table->model->layers[layer], from,
				 &table->places[which], err);
		table->staged_experts++;
	}
	return rc == 0 && table->staging != NULL ? staging_end(table->staging, err) : rc;
}

int
table_need(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n)
{
	struct table *table = arg;
	struct error err = { "" };
	uint32_t n_absent;
	int rc = 0;

	if (table_source(table, layer) <= SOURCE_ARENA)
		return 0;
	n_absent = find_absent(table, layer, experts, n);
	if (n_absent > 0)
		rc = bring(table, layer, n_absent, &err);
	if (rc == 0)
		rc = reach(table, layer, experts, n, &err);
	if (rc < 0 && rc != -ECANCELED) /* a cancelled request is no reason to leave */
		table->failure = err;
	return rc;
}
