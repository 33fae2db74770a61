#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "pinner/pinner.h"
#include "tests/scratch.h"
#include "tests/slot_moves.h"

#define LAYERS 2u
#define EXPERTS 4u
#define MATRIX 512u /* bytes of a role */
#define SLOT_BYTES (N_ROLES * MATRIX)

static struct scratch scratch;
static struct pinner pinner;
static struct server *server;
static struct client *client;
static pthread_t mover;
static struct model_layer layers[LAYERS];
static bool usable[LAYERS + 1];
static struct error err;

/* The byte that fills the matrix of an expert. */
static uint8_t
mark(uint32_t layer, uint32_t expert, uint32_t role)
{
	return (uint8_t)(1 + (layer * EXPERTS + expert) * N_ROLES + role);
}

static void
make_model(void)
{
	pinner.model = (struct model){ .n_layers = LAYERS, .n_experts = EXPERTS, .layers = layers };
	for (uint32_t l = 0; l < LAYERS; l++) {
		for (uint32_t r = 0; r < N_ROLES; r++) {
			struct experts *experts = &layers[l].role[r];

			*experts =
			    (struct experts){ .stride = MATRIX,
					      .bytes = MATRIX,
					      .offset = (l * N_ROLES + r) * EXPERTS * MATRIX };
			for (uint32_t e = 0; e < EXPERTS; e++)
				memset(pinner.arena.base + experts->offset + e * MATRIX,
				       mark(l, e, r), MATRIX);
		}
	}
}

static uint32_t lease; /* of the last grant of slots */

static int
setup(void **state)
{
	(void)state;
	scratch_open(&scratch);
	pinner = (struct pinner){ .attached = true, .usable = usable };
	lease = 0;
	pthread_mutex_init(&pinner.lock, NULL);
	pthread_cond_init(&pinner.moves, NULL);
	if (arena_create(&pinner.arena, ARENA_SLICE_ALIGN, ARENA_PAGES_AUTO, &err) < 0 ||
	    board_open(&pinner.board, scratch.dir, "pinner", &err) < 0 ||
	    device_open(&pinner.device, "cpu", &err) < 0 || mover_start(&pinner, &mover) < 0)
		return -1;
	pinner.lending.device = pinner.device;
	make_model();
	for (uint32_t i = 0; i <= LAYERS; i++)
		usable[i] = true;
	if (server_open(&server, scratch.dir, "pinner.lend", desk_answer, &pinner, &err) < 0)
		return -1;
	return client_open(&client, scratch.dir, "pinner.lend", &err);
}

static int
teardown(void **state)
{
	(void)state;
	client_close(client);
	mover_stop(&pinner, mover);
	server_close(server);
	board_close(pinner.board);
	slot_table_close(&pinner.slots);
	lending_close(&pinner.lending);
	arena_close(&pinner.arena);
	device_close(pinner.device);
	scratch_close(&scratch);
	return 0;
}

static Hearth__LendReply *
ask_bytes(const uint8_t *bytes, size_t n)
{
	Hearth__LendReply *reply;
	uint8_t *answer;
	size_t answer_n;

	assert_int_equal(client_ask(client, bytes, n, 20000, &answer, &answer_n), 0);
	reply = hearth__lend_reply__unpack(NULL, answer_n, answer);
	assert_non_null(reply);
	free(answer);
	return reply;
}

static Hearth__LendReply *
ask(const Hearth__LendRequest *request)
{
	uint8_t bytes[4096];

	assert_true(hearth__lend_request__get_packed_size(request) <= sizeof(bytes));
	return ask_bytes(bytes, hearth__lend_request__pack(request, bytes));
}

static Hearth__LendReply *
ask_region(const char *key, uint64_t bytes, Hearth__Place place, bool replace)
{
	Hearth__LendRequest request = HEARTH__LEND_REQUEST__INIT;
	Hearth__Lend lend = HEARTH__LEND__INIT;
	Hearth__LendReply *reply;

	lend.key = (char *)key;
	lend.bytes = bytes;
	lend.place = place;
	lend.replace = replace;
	request.what_case = HEARTH__LEND_REQUEST__WHAT_LEND;
	request.lend = &lend;
	reply = ask(&request);
	if (reply->granted && reply->granted->lease)
		lease = reply->granted->lease;
	return reply;
}

static Hearth__LendReply *
ask_lend(const char *key, uint64_t bytes, Hearth__Place place)
{
	return ask_region(key, bytes, place, false);
}

/* Packed; the room is enough for the 8 moves that it takes. */
static size_t
pack_move(uint8_t ret[4096], uint64_t slot_bytes, const struct slot_move *moves, size_t n)
{
	Hearth__LendRequest request = HEARTH__LEND_REQUEST__INIT;
	Hearth__Move__One one[8], *list[8];
	Hearth__Move move = HEARTH__MOVE__INIT;

	for (size_t i = 0; i < n; i++) {
		hearth__move__one__init(&one[i]);
		one[i].layer = moves[i].layer;
		one[i].expert = moves[i].expert;
		one[i].slot = moves[i].slot;
		list[i] = &one[i];
	}
	move.lease = lease;
	move.slot_bytes = slot_bytes;
	move.n_moves = n;
	move.moves = list;
	request.what_case = HEARTH__LEND_REQUEST__WHAT_MOVE;
	request.move = &move;
	return hearth__lend_request__pack(&request, ret);
}

static Hearth__LendReply *
ask_move(uint64_t slot_bytes, const struct slot_move *moves, size_t n)
{
	uint8_t bytes[4096];

	return ask_bytes(bytes, pack_move(bytes, slot_bytes, moves, n));
}

static void
done(Hearth__LendReply *reply)
{
	hearth__lend_reply__free_unpacked(reply, NULL);
}

static void
refused(Hearth__LendReply *reply, int code, const char *word)
{
	assert_int_equal(reply->error, code);
	assert_non_null(strstr(reply->text, word));
	assert_null(reply->granted);
	done(reply);
}

static void
no_slot_is_filled(void)
{
	Hearth__LendReply *reply = ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE);

	assert_int_equal(reply->n_slots, 0);
	done(reply);
}

static void
rubbish_is_refused_and_harms_nobody(void **state)
{
	static const uint8_t rubbish[] = { 0xff, 0x00, 0x12, 0x34 };

	(void)state;
	refused(ask_bytes(rubbish, sizeof(rubbish)), -EPROTO, "no LendRequest");
	refused(ask_bytes(rubbish, 0), -EPROTO, "asks for nothing");
	done(ask_lend("kv", 4096, HEARTH__PLACE__PLACE_DEVICE));
	assert_int_equal(pinner.lending.n, 1);
}

static void
a_lent_region_is_the_same_memory_for_the_next_worker(void **state)
{
	struct shared_memory first, second;
	Hearth__LendReply *reply = ask_lend("kv", 4096, HEARTH__PLACE__PLACE_DEVICE);

	(void)state;
	assert_int_equal(reply->error, 0);
	assert_true(reply->granted->fresh);
	assert_int_equal(shared_memory_attach(&first, reply->granted->path, 4096, &err), 0);
	((uint8_t *)first.at)[100] = 42;
	shared_memory_close(&first);
	done(reply);
	client_close(client);
	assert_int_equal(client_open(&client, scratch.dir, "pinner.lend", &err), 0);
	reply = ask_lend("kv", 4096, HEARTH__PLACE__PLACE_DEVICE);
	assert_false(reply->granted->fresh);
	assert_int_equal(shared_memory_attach(&second, reply->granted->path, 4096, &err), 0);
	assert_int_equal(((uint8_t *)second.at)[100], 42);
	shared_memory_close(&second);
	done(reply);
}

static void
a_device_that_computes_from_the_arena_has_no_trunk_to_lend(void **state)
{
	(void)state;
	refused(ask_lend("trunk", 0, HEARTH__PLACE__PLACE_DEVICE), -EINVAL, "arena");
	refused(ask_lend("kv", 4096, (Hearth__Place)7), -EINVAL, "place 7");
}

static void
moved_experts_are_in_their_slots_role_by_role(void **state)
{
	const struct slot_move moves[] = { MOVE(1, 3, 0), MOVE(0, 2, 4) };
	const uint8_t *slots;

	(void)state;
	done(ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE));
	done(ask_move(SLOT_BYTES, moves, 2));
	slots = lending_find(&pinner.lending, "slots")->device.at;
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t r = 0; r < N_ROLES; r++) {
			const uint8_t *at = slots + moves[i].slot * SLOT_BYTES + r * MATRIX;

			assert_int_equal(at[0], mark(moves[i].layer, moves[i].expert, r));
			assert_int_equal(at[MATRIX - 1], at[0]);
		}
}

static void
the_next_worker_is_told_what_the_slots_hold(void **state)
{
	const struct slot_move moves[] = { MOVE(1, 3, 0), MOVE(0, 2, 4) }, again = MOVE(1, 1, 4);
	Hearth__LendReply *reply;

	(void)state;
	done(ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE));
	done(ask_move(SLOT_BYTES, moves, 2));
	done(ask_move(SLOT_BYTES, &again, 1));
	reply = ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE);
	assert_int_equal(reply->n_slots, 2);
	assert_int_equal(reply->slots[1]->slot, 4);
	assert_int_equal(reply->slots[1]->layer, 1);
	assert_int_equal(reply->slots[1]->expert, 1);
	done(reply);
}

/* It waited for its turn while the slots were lent to the next worker. */
static void
the_last_move_of_a_dead_worker_changes_nothing(void **state)
{
	const struct slot_move move = MOVE(1, 3, 0), late = MOVE(0, 2, 0);
	Hearth__LendReply *reply;
	uint32_t mine;

	(void)state;
	done(ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE));
	done(ask_move(SLOT_BYTES, &move, 1));
	mine = lease;
	reply = ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE);
	assert_int_equal(reply->n_slots, 1);
	done(reply);
	assert_int_not_equal(lease, mine);
	lease = mine;
	refused(ask_move(SLOT_BYTES, &late, 1), -ESTALE, "lent again");
	reply = ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE);
	assert_int_equal(reply->n_slots, 1);
	assert_int_equal(reply->slots[0]->expert, 3);
	done(reply);
}

static void
a_move_that_makes_no_sense_changes_nothing(void **state)
{
	const struct slot_move good = MOVE(0, 0, 0), layer = MOVE(LAYERS, 0, 0),
			       expert = MOVE(0, EXPERTS, 0), slot = MOVE(0, 0, 5);
	const struct slot_move twice[] = { MOVE(0, 0, 1), MOVE(0, 1, 1) };
	const struct slot_move half[] = { MOVE(0, 0, 1), MOVE(1, 0, 2) };

	(void)state;
	refused(ask_move(SLOT_BYTES, &good, 1), -ENOENT, "lend the region first");
	done(ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE));
	refused(ask_move(SLOT_BYTES + 1, &good, 1), -EINVAL, "1536");
	refused(ask_move(SLOT_BYTES, &layer, 1), -EINVAL, "layer 2");
	refused(ask_move(SLOT_BYTES, &expert, 1), -EINVAL, "expert 4");
	refused(ask_move(SLOT_BYTES, &slot, 1), -EINVAL, "slot 5");
	refused(ask_move(SLOT_BYTES, twice, 2), -EINVAL, "twice");
	usable[2] = false;
	refused(ask_move(SLOT_BYTES, half, 2), -EAGAIN, "not loaded");
	no_slot_is_filled();
}

static void
released_slots_are_forgotten(void **state)
{
	const struct slot_move move = MOVE(0, 0, 0);
	Hearth__LendRequest request = HEARTH__LEND_REQUEST__INIT;
	Hearth__Release release = HEARTH__RELEASE__INIT;

	(void)state;
	done(ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE));
	done(ask_move(SLOT_BYTES, &move, 1));
	release.key = "slots";
	request.what_case = HEARTH__LEND_REQUEST__WHAT_RELEASE;
	request.release = &release;
	done(ask(&request));
	refused(ask(&request), -ENOENT, "slots");
	refused(ask_move(SLOT_BYTES, &move, 1), -ENOENT, "lend the region first");
}

/* No memfd is to be had for the new ones, and the old ones are gone. */
static void
slots_whose_successor_cannot_be_made_are_forgotten(void **state)
{
	const struct slot_move move = MOVE(0, 0, 0);
	struct rlimit old, none;
	Hearth__LendReply *reply;

	(void)state;
	done(ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE));
	done(ask_move(SLOT_BYTES, &move, 1));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	reply = ask_region("slots", 6 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE, true);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	refused(reply, -EMFILE, "memfd");
	refused(ask_move(SLOT_BYTES, &move, 1), -ENOENT, "lend the region first");
	reply = ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE);
	assert_true(reply->granted->fresh);
	assert_int_equal(reply->n_slots, 0);
	done(reply);
}

static void
move_answered(void *arg, int rc, const uint8_t *bytes, size_t n)
{
	(void)bytes;
	(void)n;
	if (rc == 0)
		gate_pass(arg);
}

static void
while_experts_are_moved_slots_are_not_replaced_and_theirs_are_empty(void **state)
{
	const struct slot_move before = MOVE(0, 1, 4), move = MOVE(0, 0, 4);
	struct gate answered = GATE_INIT;
	Hearth__LendReply *reply;
	struct client *other;
	uint8_t bytes[4096];
	bool waits = false;

	(void)state;
	done(ask_lend("slots", 5 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE));
	done(ask_move(SLOT_BYTES, &before, 1));
	mover_stop(&pinner, mover);
	pinner.stopping = false;
	assert_int_equal(client_open(&other, scratch.dir, "pinner.lend", &err), 0);
	assert_int_equal(client_begin(other, bytes, pack_move(bytes, SLOT_BYTES, &move, 1),
				      move_answered, &answered),
			 0);
	while (!waits) {
		pthread_mutex_lock(&pinner.lock);
		waits = pinner.first != NULL;
		pthread_mutex_unlock(&pinner.lock);
		sched_yield();
	}
	refused(ask_region("slots", 1 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE, true), -EBUSY,
		"being moved");
	no_slot_is_filled();
	assert_int_equal(mover_start(&pinner, &mover), 0);
	assert_true(gate_wait(&answered, 1));
	client_close(other);
	reply = ask_region("slots", 1 * SLOT_BYTES, HEARTH__PLACE__PLACE_DEVICE, true);
	assert_true(reply->granted->fresh);
	done(reply);
}

#define DESK_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		DESK_TEST(rubbish_is_refused_and_harms_nobody),
		DESK_TEST(a_lent_region_is_the_same_memory_for_the_next_worker),
		DESK_TEST(a_device_that_computes_from_the_arena_has_no_trunk_to_lend),
		DESK_TEST(moved_experts_are_in_their_slots_role_by_role),
		DESK_TEST(the_next_worker_is_told_what_the_slots_hold),
		DESK_TEST(the_last_move_of_a_dead_worker_changes_nothing),
		DESK_TEST(a_move_that_makes_no_sense_changes_nothing),
		DESK_TEST(released_slots_are_forgotten),
		DESK_TEST(slots_whose_successor_cannot_be_made_are_forgotten),
		DESK_TEST(while_experts_are_moved_slots_are_not_replaced_and_theirs_are_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
