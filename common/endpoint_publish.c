/* Telling all (pub) and following (sub). */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/endpoint.h"
#include "common/endpoint_nng.h"

struct publisher {
	nng_socket socket;
	void (*joined)(void *arg);
	void *arg;
};

static void
publisher_joined(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
	struct publisher *publisher = arg;

	(void)pipe;
	(void)event;
	publisher->joined(publisher->arg);
}

int
publisher_open(struct publisher **ret, const char *dir, const char *name, void (*joined)(void *arg),
	       void *arg, struct error *err)
{
	struct publisher *publisher = calloc(1, sizeof(*publisher));
	int rv, rc;

	if (!publisher)
		return error_set(err, -ENOMEM, "%s: no memory", name);
	publisher->joined = joined;
	publisher->arg = arg;
	endpoint_start();
	rv = nng_pub0_open(&publisher->socket);
	if (rv == 0)
		rv = endpoint_limits(publisher->socket);
	if (rv == 0 && joined)
		rv = nng_pipe_notify(publisher->socket, NNG_PIPE_EV_ADD_POST, publisher_joined,
				     publisher);
	rc = rv ? endpoint_error(err, rv, "open", name)
		: endpoint_listen(publisher->socket, dir, name, err);
	if (rc < 0) {
		publisher_close(publisher);
		return rc;
	}
	*ret = publisher;
	return 0;
}

void
publisher_send(struct publisher *publisher, const uint8_t *bytes, size_t n)
{
	nng_msg *msg;

	if (nng_msg_alloc(&msg, 0) != 0)
		return; /* the next one holds everything */
	if (nng_msg_append(msg, bytes, n) != 0 ||
	    nng_sendmsg(publisher->socket, msg, NNG_FLAG_NONBLOCK) != 0)
		nng_msg_free(msg);
}

void
publisher_close(struct publisher *publisher)
{
	if (!publisher)
		return;
	if (publisher->socket.id) {
		nng_pipe_notify(publisher->socket, NNG_PIPE_EV_ADD_POST, NULL, NULL);
		nng_close(publisher->socket);
	}
	free(publisher);
}

struct follower {
	nng_socket socket;
	nng_aio *aio;
	follower_fn *fn;
	void *arg;
	pthread_mutex_t order; /* one callback at a time; held during fn */
	uint32_t pipe;         /* the connection whose messages count; 0 = none */
	bool closing;
};

/* A message of a connection that is gone may still come out of nng's queue: `pipe` tells. */
static void
follower_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
	struct follower *follower = arg;
	uint32_t id = (uint32_t)nng_pipe_id(pipe);

	pthread_mutex_lock(&follower->order);
	if (event == NNG_PIPE_EV_ADD_PRE) {
		follower->pipe = id;
	} else if (follower->pipe == id) {
		follower->pipe = 0;
		if (!follower->closing)
			follower->fn(follower->arg, NULL, 0);
	}
	pthread_mutex_unlock(&follower->order);
}

static void
follower_received(void *arg)
{
	struct follower *follower = arg;
	int rv = nng_aio_result(follower->aio);
	nng_msg *msg;

	if (rv == NNG_ECLOSED || rv == NNG_ECANCELED)
		return;
	if (rv == 0) {
		msg = nng_aio_get_msg(follower->aio);
		pthread_mutex_lock(&follower->order);
		if (!follower->closing &&
		    (uint32_t)nng_pipe_id(nng_msg_get_pipe(msg)) == follower->pipe)
			follower->fn(follower->arg, nng_msg_body(msg), nng_msg_len(msg));
		pthread_mutex_unlock(&follower->order);
		nng_msg_free(msg);
	}
	nng_recv_aio(follower->socket, follower->aio);
}

int
follower_open(struct follower **ret, const char *dir, const char *name, follower_fn *fn, void *arg,
	      struct error *err)
{
	struct follower *follower = calloc(1, sizeof(*follower));
	int rv, rc;

	if (!follower)
		return error_set(err, -ENOMEM, "%s: no memory", name);
	follower->fn = fn;
	follower->arg = arg;
	pthread_mutex_init(&follower->order, NULL);
	endpoint_start();
	if ((rv = nng_sub0_open(&follower->socket)) == 0 &&
	    (rv = endpoint_limits(follower->socket)) == 0 &&
	    (rv = nng_socket_set(follower->socket, NNG_OPT_SUB_SUBSCRIBE, "", 0)) == 0 &&
	    (rv = nng_pipe_notify(follower->socket, NNG_PIPE_EV_ADD_PRE, follower_pipe,
				  follower)) == 0 &&
	    (rv = nng_pipe_notify(follower->socket, NNG_PIPE_EV_REM_POST, follower_pipe,
				  follower)) == 0)
		rv = nng_aio_alloc(&follower->aio, follower_received, follower);
	rc = rv ? endpoint_error(err, rv, "open", name)
		: endpoint_dial(follower->socket, dir, name, err);
	if (rc < 0) {
		follower_close(follower);
		return rc;
	}
	nng_recv_aio(follower->socket, follower->aio);
	*ret = follower;
	return 0;
}

void
follower_close(struct follower *follower)
{
	if (!follower)
		return;
	pthread_mutex_lock(&follower->order);
	follower->closing = true;
	pthread_mutex_unlock(&follower->order);
	/* The socket first: to stop a receive that waits makes nng 1.5.2 take it from a list that a
	 * message that comes just then works on too. */
	if (follower->socket.id) {
		nng_pipe_notify(follower->socket, NNG_PIPE_EV_ADD_PRE, NULL, NULL);
		nng_pipe_notify(follower->socket, NNG_PIPE_EV_REM_POST, NULL, NULL);
		nng_close(follower->socket);
	}
	if (follower->aio)
		nng_aio_stop(follower->aio);
	nng_aio_free(follower->aio);
	pthread_mutex_destroy(&follower->order);
	free(follower);
}
