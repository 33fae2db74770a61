/* Asking (req): one socket for as long as the peer stays; after any failure a new one. */
#include <errno.h>
#include <pthread.h>
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
	/* of client_begin */
	nng_aio *aio; /* NULL until the first one */
	pthread_mutex_t lock;
	client_fn *fn; /* NULL: nothing is asked; under lock */
	void *arg;
	bool sent; /* under lock */
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
		pthread_mutex_init(&client->lock, NULL);
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
	endpoint_start();
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

/* Sent: now it receives.  Received, or failed: it tells. */
static void
client_moved(void *arg)
{
	struct client *client = arg;
	int rv = nng_aio_result(client->aio);
	client_fn *fn = NULL;
	nng_msg *msg = NULL;

	pthread_mutex_lock(&client->lock);
	if (!client->sent && rv != 0)
		nng_msg_free(nng_aio_get_msg(client->aio));
	if (client->sent && rv == 0)
		msg = nng_aio_get_msg(client->aio);
	if (!client->sent && rv == 0 && client->fn) {
		client->sent = true;
		nng_recv_aio(client->socket, client->aio);
	} else {
		fn = client->fn;
		client->fn = NULL;
	}
	pthread_mutex_unlock(&client->lock);
	if (fn)
		fn(client->arg, endpoint_errno(rv), msg ? nng_msg_body(msg) : NULL,
		   msg ? nng_msg_len(msg) : 0);
	if (msg)
		nng_msg_free(msg);
}

int
client_begin(struct client *client, const uint8_t *bytes, size_t n, client_fn *fn, void *arg)
{
	nng_msg *msg;
	int rc, rv = 0;

	client_drop(client);
	rc = client_connect(client);
	if (rc < 0) {
		client_disconnect(client);
		return rc;
	}
	if (!client->aio)
		rv = nng_aio_alloc(&client->aio, client_moved, client);
	if (rv == 0)
		rv = nng_msg_alloc(&msg, 0);
	if (rv != 0)
		return endpoint_errno(rv);
	rv = nng_msg_append(msg, bytes, n);
	if (rv != 0) {
		nng_msg_free(msg);
		return endpoint_errno(rv);
	}
	nng_aio_set_timeout(client->aio, NNG_DURATION_INFINITE);
	nng_aio_set_msg(client->aio, msg);
	pthread_mutex_lock(&client->lock);
	client->fn = fn;
	client->arg = arg;
	client->sent = false;
	pthread_mutex_unlock(&client->lock);
	nng_send_aio(client->socket, client->aio);
	return 0;
}

void
client_drop(struct client *client)
{
	if (!client->aio)
		return;
	pthread_mutex_lock(&client->lock);
	client->fn = NULL;
	pthread_mutex_unlock(&client->lock);
	nng_aio_cancel(client->aio);
	nng_aio_wait(client->aio);
}

void
client_close(struct client *client)
{
	if (!client)
		return;
	client_drop(client);
	client_disconnect(client);
	nng_aio_free(client->aio);
	pthread_mutex_destroy(&client->lock);
	free(client->dir);
	free(client->name);
	free(client);
}
