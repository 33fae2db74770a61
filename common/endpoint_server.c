/* Answering (rep): one nng context and one aio for each call that may wait at once. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/endpoint.h"
#include "common/endpoint_nng.h"

struct call {
	struct server *server;
	nng_ctx ctx;
	nng_aio *aio;
	bool sending; /* what the aio is at; changed only while it is idle */
};

struct server {
	nng_socket socket;
	server_fn *fn;
	void *arg;
	atomic_bool closing;
	struct call calls[SERVER_CALLS];
};

static void
call_receive(struct call *call)
{
	call->sending = false;
	nng_ctx_recv(call->ctx, call->aio);
}

static void
call_done(void *arg)
{
	struct call *call = arg;
	int rv = nng_aio_result(call->aio);
	nng_msg *msg;

	if (atomic_load(&call->server->closing) || rv == NNG_ECLOSED || rv == NNG_ECANCELED) {
		if (rv == 0 && !call->sending)
			nng_msg_free(nng_aio_get_msg(call->aio));
		return;
	}
	if (call->sending || rv != 0) {
		if (call->sending && rv != 0)
			nng_msg_free(nng_aio_get_msg(call->aio)); /* not sent: still ours */
		call_receive(call);
		return;
	}
	msg = nng_aio_get_msg(call->aio);
	call->server->fn(call->server->arg, call, nng_msg_body(msg), nng_msg_len(msg));
	nng_msg_free(msg);
}

void
call_reply(struct call *call, const uint8_t *bytes, size_t n)
{
	nng_msg *msg;

	if (nng_msg_alloc(&msg, 0) != 0 || nng_msg_append(msg, bytes, n) != 0)
		abort(); /* a few KiB were not to be had: nothing sane can follow */
	call->sending = true;
	nng_aio_set_msg(call->aio, msg);
	nng_ctx_send(call->ctx, call->aio);
}

int
server_open(struct server **ret, const char *dir, const char *name, server_fn *fn, void *arg,
	    struct error *err)
{
	struct server *server = calloc(1, sizeof(*server));
	int rv, rc;

	if (!server)
		return error_set(err, -ENOMEM, "%s: no memory", name);
	server->fn = fn;
	server->arg = arg;
	endpoint_start();
	rv = nng_rep0_open(&server->socket);
	if (rv == 0)
		rv = endpoint_limits(server->socket);
	for (int i = 0; rv == 0 && i < SERVER_CALLS; i++) {
		struct call *call = &server->calls[i];

		call->server = server;
		rv = nng_ctx_open(&call->ctx, server->socket);
		if (rv == 0)
			rv = nng_aio_alloc(&call->aio, call_done, call);
	}
	if (rv != 0) {
		server_close(server);
		return endpoint_error(err, rv, "open", name);
	}
	rc = endpoint_listen(server->socket, dir, name, err);
	if (rc < 0) {
		server_close(server);
		return rc;
	}
	for (int i = 0; i < SERVER_CALLS; i++)
		call_receive(&server->calls[i]);
	*ret = server;
	return 0;
}

void
server_close(struct server *server)
{
	if (!server)
		return;
	atomic_store(&server->closing, true);
	for (int i = 0; i < SERVER_CALLS; i++) {
		if (server->calls[i].aio)
			nng_aio_stop(server->calls[i].aio);
	}
	if (server->socket.id)
		nng_close(server->socket);
	for (int i = 0; i < SERVER_CALLS; i++)
		nng_aio_free(server->calls[i].aio);
	free(server);
}
