#include "worker/moving.h"

#include <errno.h>
#include <stdlib.h>

#define SOCKET_LEND "pinner.lend"
#define MESSAGE_OVERHEAD 64u /* all of a request but its moves */
#define MOVE_BYTES 20u       /* three varints of 32 bits, each with its tag, and their length */

int
moving_open(struct moving *ret, const char *dir, struct service *service, uint32_t max,
	    uint32_t lease, struct error *err)
{
	struct moving moving = { .service = service, .max = max, .lease = lease };
	int rc;

	moving.packed_bytes = MESSAGE_OVERHEAD + (size_t)max * MOVE_BYTES;
	moving.packed = malloc(moving.packed_bytes);
	moving.ones = calloc(max, sizeof(*moving.ones));
	moving.list = calloc(max, sizeof(Hearth__Move__One *));
	rc = moving.packed != NULL && moving.ones != NULL && moving.list != NULL
		 ? client_open(&moving.client, dir, SOCKET_LEND, err)
		 : error_set(err, -ENOMEM, SOCKET_LEND ": no memory");
	if (rc < 0) {
		free(moving.packed);
		free(moving.ones);
		free(moving.list);
		return rc;
	}
	for (uint32_t i = 0; i < max; i++)
		moving.list[i] = &moving.ones[i];
	*ret = moving;
	pthread_mutex_init(&ret->lock, NULL);
	return 0;
}

void
moving_close(struct moving *moving)
{
	if (moving->client == NULL)
		return;
	client_close(moving->client);
	free(moving->packed);
	free(moving->ones);
	free(moving->list);
	pthread_mutex_destroy(&moving->lock);
	*moving = (struct moving){ 0 };
}

static int
answer_read(int rc, const uint8_t *bytes, size_t n, struct error *err)
{
	Hearth__LendReply *reply;

	if (rc == -ECONNRESET || rc == -ECONNREFUSED)
		return error_set(err, -ECANCELED, SOCKET_LEND ": move: the pinner is gone");
	if (rc < 0)
		return error_sys(err, rc, SOCKET_LEND ": move");
	reply = hearth__lend_reply__unpack(NULL, n, bytes);
	if (reply == NULL)
		return error_set(err, -EPROTO, SOCKET_LEND ": move: an answer that is none");
	if (reply->error != 0)
		rc = error_set(err, reply->error < 0 ? reply->error : -EPROTO,
			       SOCKET_LEND ": move: %s", reply->text);
	hearth__lend_reply__free_unpacked(reply, NULL);
	return rc;
}

static void
moving_heard(void *arg, int rc, const uint8_t *bytes, size_t n)
{
	struct moving *moving = arg;
	struct error why = { "" };

	rc = answer_read(rc, bytes, n, &why);
	pthread_mutex_lock(&moving->lock);
	moving->told = true;
	moving->rc = rc;
	moving->why = why;
	pthread_mutex_unlock(&moving->lock);
	service_wake(moving->service);
}

int
moving_begin(struct moving *moving, uint64_t slot_bytes, const struct slot_fill *moves, uint32_t n,
	     struct error *err)
{
	Hearth__LendRequest request = HEARTH__LEND_REQUEST__INIT;
	Hearth__Move move = HEARTH__MOVE__INIT;
	size_t bytes;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		hearth__move__one__init(&moving->ones[i]);
		moving->ones[i].layer = moves[i].layer;
		moving->ones[i].expert = moves[i].expert;
		moving->ones[i].slot = moves[i].slot;
	}
	move.slot_bytes = slot_bytes;
	move.lease = moving->lease;
	move.n_moves = n;
	move.moves = moving->list;
	request.what_case = HEARTH__LEND_REQUEST__WHAT_MOVE;
	request.move = &move;
	bytes = hearth__lend_request__pack(&request, moving->packed);
	rc = client_begin(moving->client, moving->packed, bytes, moving_heard, moving);
	return rc < 0 ? answer_read(rc, NULL, 0, err) : 0;
}

int
moving_look(struct moving *moving, struct error *err)
{
	int rc = 0;

	pthread_mutex_lock(&moving->lock);
	if (moving->told) {
		rc = moving->rc < 0 ? moving->rc : 1;
		if (rc < 0)
			*err = moving->why;
		moving->told = false;
	}
	pthread_mutex_unlock(&moving->lock);
	return rc;
}
