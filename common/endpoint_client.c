/* Asking (req): one socket for as long as the peer stays; after any failure a new one. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/endpoint_nng.h"

struct client {
	char *dir, *name;
	bool open;
	nng_socket socket;
	atomic_bool lost; /* the peer went since the socket was opened */
};

static void
client_lost(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
	struct client *client = arg;

	(void)pipe;
	(void)event;
	atomic_store(&client->lost, true);
}

int
client_open(struct client **ret, const char *dir, const char *name, struct error *err)
{
	char url[ENDPOINT_URL_BYTES];
	struct client *client;
	int rc = endpoint_url(url, dir, name, err);

	if (rc < 0)
		return rc;
	client = calloc(1, sizeof(*client));
	if (client) {
		client->dir = strdup(dir);
		client->name = strdup(name);
	}
	if (!client || !client->dir || !client->name) {
		client_close(client);
		return error_set(err, -ENOMEM, "%s: no memory", name);
	}
	*ret = client;
	return 0;
}

static void
client_disconnect(struct client *client)
{
	if (client->open)
		nng_close(client->socket);
	client->open = false;
}

static int
client_connect(struct client *client)
{
	struct error ignored;
	int rc, rv;

	if (client->open && !atomic_load(&client->lost))
		return 0;
	client_disconnect(client);
	rc = endpoint_probe(client->dir, client->name);
	if (rc < 0)
		return rc == -ENOENT ? -ECONNREFUSED : rc;
	rv = nng_req0_open(&client->socket);
	if (rv != 0)
		return endpoint_errno(rv);
	client->open = true;
	atomic_store(&client->lost, false);
	if ((rv = endpoint_limits(client->socket)) != 0 ||
	    /* A request is never sent again by itself; a peer's death is said at once. */
	    (rv = nng_socket_set_ms(client->socket, NNG_OPT_REQ_RESENDTIME,
				    NNG_DURATION_INFINITE)) != 0 ||
	    (rv = nng_pipe_notify(client->socket, NNG_PIPE_EV_REM_POST, client_lost, client)) != 0)
		return endpoint_errno(rv);
	return endpoint_dial(client->socket, client->dir, client->name, &ignored);
}

static int
client_exchange(struct client *client, nng_msg **msg, int timeout_ms)
{
	uint64_t begin = clock_ns(), spent;
	int rv;

	if ((rv = nng_socket_set_ms(client->socket, NNG_OPT_SENDTIMEO, timeout_ms)) != 0 ||
	    (rv = nng_sendmsg(client->socket, *msg, 0)) != 0) {
		nng_msg_free(*msg);
		return rv;
	}
	spent = (clock_ns() - begin) / NS_PER_MS;
	if ((int64_t)spent >= timeout_ms)
		return NNG_ETIMEDOUT;
	if ((rv = nng_socket_set_ms(client->socket, NNG_OPT_RECVTIMEO, timeout_ms - (int)spent)) !=
	    0)
		return rv;
	return nng_recvmsg(client->socket, msg, 0);
}

int
client_ask(struct client *client, const uint8_t *bytes, size_t n, int timeout_ms,
	   uint8_t **ret_bytes, size_t *ret_n)
{
	nng_msg *msg;
	uint8_t *copy;
	int rc, rv;

	rc = client_connect(client);
	if (rc < 0)
		goto fail;
	rv = nng_msg_alloc(&msg, 0);
	if (rv == 0)
		rv = nng_msg_append(msg, bytes, n);
	if (rv == 0)
		rv = client_exchange(client, &msg, timeout_ms);
	rc = endpoint_errno(rv);
	if (rc < 0)
		goto fail;
	copy = malloc(nng_msg_len(msg) + 1);
	if (!copy) {
		nng_msg_free(msg);
		return -ENOMEM;
	}
	memcpy(copy, nng_msg_body(msg), nng_msg_len(msg));
	*ret_bytes = copy;
	*ret_n = nng_msg_len(msg);
	nng_msg_free(msg);
	return 0;
fail:
	client_disconnect(client);
	return rc;
}

void
client_close(struct client *client)
{
	if (!client)
		return;
	client_disconnect(client);
	free(client->dir);
	free(client->name);
	free(client);
}
