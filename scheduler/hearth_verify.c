/* hearth verify: hashes the warm arena again, on all processors, and compares each slice with the
 * checksum that the loader recorded while it read. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arena.h"
#include "common/checksum.h"
#include "common/log.h"
#include "scheduler/hearth.h"
#include "scheduler/output.h"
#include "scheduler/stack_json.h"
#include "scheduler/stack_view.h"

#define MAX_HASHERS 64

/* Hashers take the next unit until there is none; each writes only its own unit's hash. */
struct hashing {
	struct checksum_plan *plan;
	const uint8_t *base;
	_Atomic uint64_t next;
};

static void *
verify_hash(void *arg)
{
	struct hashing *hashing = arg;
	uint64_t i;

	while ((i = atomic_fetch_add(&hashing->next, 1)) < hashing->plan->n_units)
		hashing->plan->units[i].hash =
		    checksum_unit_hash(&hashing->plan->units[i], hashing->base);
	return NULL;
}

static void
verify_hash_all(struct checksum_plan *plan, const uint8_t *base)
{
	struct hashing hashing = { .plan = plan, .base = base };
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[MAX_HASHERS];
	long n = 0;

	while (n + 1 < processors && n < MAX_HASHERS &&
	       pthread_create(&threads[n], NULL, verify_hash, &hashing) == 0)
		n++;
	verify_hash(&hashing);
	while (n > 0)
		pthread_join(threads[--n], NULL);
}

/* Every slice must be there with its checksum before anything is compared. */
static int
verify_recorded(const Hearth__State *loader, uint64_t n_slices, struct error *err)
{
	if (loader->n_slices != n_slices)
		return error_set(err, -EIO, "the loader tells of %zu slices, the arena of %" PRIu64,
				 loader->n_slices, n_slices);
	for (size_t i = 0; i < loader->n_slices; i++) {
		if (loader->slices[i]->state < HEARTH__SLICE_STATE__SLICE_FILLED)
			return error_set(err, -EAGAIN, "%s is not read yet: still loading",
					 loader->slices[i]->name);
		/* What lies in a budget's window changes as it serves. */
		if (!loader->slices[i]->checksum && strcmp(loader->slices[i]->name, "window") != 0)
			return error_set(err, -EIO, "%s: no checksum was recorded",
					 loader->slices[i]->name);
	}
	return 0;
}

static uint32_t
verify_compare(const Hearth__State *loader, const struct checksum_plan *plan, json_t *list)
{
	uint32_t different = 0;

	for (uint32_t i = 0; i < loader->n_slices; i++) {
		const Hearth__Slice *slice = loader->slices[i];
		uint64_t now = checksum_slice(plan, i);
		bool same = now == slice->checksum;

		if (strcmp(slice->name, "window") == 0) {
			if (!list)
				printf("%-12s  not compared: it changes as it serves\n",
				       slice->name);
			continue;
		}
		different += !same;
		if (list)
			json_array_append_new(
			    list, json_pack("{s:s, s:o, s:o, s:b}", "name", slice->name, "checksum",
					    stack_json_hex(now), "recorded",
					    stack_json_hex(slice->checksum), "same", (int)same));
		else if (same)
			printf("%-12s  %016" PRIx64 "  ok\n", slice->name, now);
		else
			printf("%-12s  %016" PRIx64 "  DIFFERENT: %016" PRIx64 " was recorded\n",
			       slice->name, now, slice->checksum);
	}
	return different;
}

/* How many slices differ, or -errno. */
static int
verify_arena(const Hearth__State *loader, bool json, struct error *err)
{
	struct arena_want want = { .bytes = loader->arena->bytes,
				   .stamp = loader->arena->stamp,
				   .layout_hash = loader->arena->layout_hash };
	struct checksum_plan plan = { 0 };
	struct arena arena = { 0 };
	json_t *list = NULL;
	int rc = arena_attach(&arena, loader->arena->path, false, &want, err);

	if (rc < 0)
		return rc;
	rc = verify_recorded(loader, arena.head->n_slices, err);
	if (rc == 0)
		rc = checksum_plan_open_arena(&plan, &arena, err);
	if (rc < 0)
		goto close;
	verify_hash_all(&plan, arena.base);
	list = json ? json_array() : NULL;
	rc = (int)verify_compare(loader, &plan, list);
	if (list) {
		json_dumpf(list, stdout, JSON_INDENT(1));
		putchar('\n');
		json_decref(list);
	} else {
		printf("%zu slices, %d different\n", loader->n_slices, rc);
	}
close:
	checksum_plan_close(&plan);
	arena_close(&arena);
	return rc;
}

int
hearth_verify(int argc, char **argv)
{
	struct stack_options options;
	struct stack_view view = { 0 };
	struct error err;
	int rc = stack_options_parse(&options, argc, argv, "verify"), code;

	if (rc != 0)
		return rc;
	rc = stack_view_ask(&view, options.dir, &err);
	if (rc == 0 && (!view.state[LOADER] || !view.state[LOADER]->arena))
		rc =
		    error_set(&err, -EAGAIN, "the loader is %s and has no arena: nothing to verify",
			      view.word[LOADER]);
	else if (rc == 0)
		rc = verify_arena(view.state[LOADER], options.json, &err);
	if (rc < 0)
		log_error("verify: %s", err.text);
	stack_view_close(&view);
	if (rc < 0)
		return error_exit_code(rc);
	code = output_end("verify");
	return rc == 0 ? code : EXIT_SYSTEM;
}
