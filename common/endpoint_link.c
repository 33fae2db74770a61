/* One to one (pair): what is sent waits in a queue of our own, one message at a time in nng, so
 * that a lost peer leaves nothing behind for the next one. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/endpoint.h"
#include "common/endpoint_nng.h"

struct link {
	nng_socket socket;
	nng_aio *receive, *send;
	link_fn *fn;
	void *arg;
	pthread_mutex_t order; /* one callback at a time; held during fn; taken before lock */
	pthread_mutex_t lock;  /* for what follows */
	uint32_t pipe;         /* the peer; 0 = none */
	uint32_t gone;         /* the peer before, whose messages no longer count */
	bool closing;
	bool sending;
	uint32_t head, n; /* of the ring */
	nng_msg *queue[LINK_QUEUE];
};

/* With the lock held. */
static void
link_send_next(struct link *link)
{
	if (link->sending || link->n == 0 || link->closing)
		return;
	link->sending = true;
	nng_aio_set_msg(link->send, link->queue[link->head]);
	link->head = (link->head + 1) % LINK_QUEUE;
	link->n--;
	nng_send_aio(link->socket, link->send);
}

static void
link_sent(void *arg)
{
	struct link *link = arg;

	if (nng_aio_result(link->send) != 0)
		nng_msg_free(nng_aio_get_msg(link->send));
	pthread_mutex_lock(&link->lock);
	link->sending = false;
	link_send_next(link);
	pthread_mutex_unlock(&link->lock);
}

/* With the lock held. */
static void
link_drop_queue(struct link *link)
{
	for (; link->n; link->n--) {
		nng_msg_free(link->queue[link->head]);
		link->head = (link->head + 1) % LINK_QUEUE;
	}
	if (link->sending)
		nng_aio_abort(link->send, NNG_ECONNRESET);
}

/* With order held.  A new peer may be heard of before the loss of the old one: that is told first.
 */
static void
link_adopt(struct link *link, uint32_t id)
{
	bool fresh, lost;

	pthread_mutex_lock(&link->lock);
	fresh = !link->closing && link->pipe != id && link->gone != id;
	lost = fresh && link->pipe != 0;
	if (lost) {
		link->gone = link->pipe;
		link_drop_queue(link);
	}
	if (fresh)
		link->pipe = id;
	pthread_mutex_unlock(&link->lock);
	if (lost)
		link->fn(link->arg, LINK_DOWN, NULL, 0);
	if (fresh)
		link->fn(link->arg, LINK_UP, NULL, 0);
}

static void
link_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
	struct link *link = arg;
	uint32_t id = (uint32_t)nng_pipe_id(pipe);
	bool down;

	pthread_mutex_lock(&link->order);
	if (event == NNG_PIPE_EV_ADD_POST) {
		link_adopt(link, id);
		pthread_mutex_unlock(&link->order);
		return;
	}
	pthread_mutex_lock(&link->lock);
	down = link->pipe == id; /* else one that was turned away */
	if (down) {
		link->pipe = 0;
		link->gone = id;
		link_drop_queue(link);
	}
	down = down && !link->closing;
	pthread_mutex_unlock(&link->lock);
	if (down)
		link->fn(link->arg, LINK_DOWN, NULL, 0);
	pthread_mutex_unlock(&link->order);
}

static void
link_received(void *arg)
{
	struct link *link = arg;
	int rv = nng_aio_result(link->receive);
	nng_msg *msg;
	uint32_t id;
	bool counts;

	if (rv == NNG_ECLOSED || rv == NNG_ECANCELED)
		return;
	if (rv == 0) {
		msg = nng_aio_get_msg(link->receive);
		id = (uint32_t)nng_pipe_id(nng_msg_get_pipe(msg));
		pthread_mutex_lock(&link->order);
		link_adopt(link, id); /* a message may overtake the news of its sender */
		pthread_mutex_lock(&link->lock);
		counts = !link->closing && link->pipe == id;
		pthread_mutex_unlock(&link->lock);
		if (counts)
			link->fn(link->arg, LINK_MESSAGE, nng_msg_body(msg), nng_msg_len(msg));
		pthread_mutex_unlock(&link->order);
		nng_msg_free(msg);
	}
	nng_recv_aio(link->socket, link->receive);
}

static int
link_make(struct link **ret, const char *name, link_fn *fn, void *arg, struct error *err)
{
	struct link *link = calloc(1, sizeof(*link));
	int rv;

	if (!link)
		return error_set(err, -ENOMEM, "%s: no memory", name);
	link->fn = fn;
	link->arg = arg;
	pthread_mutex_init(&link->order, NULL);
	pthread_mutex_init(&link->lock, NULL);
	endpoint_start();
	if ((rv = nng_pair0_open(&link->socket)) == 0 &&
	    (rv = endpoint_limits(link->socket)) == 0 &&
	    (rv = nng_pipe_notify(link->socket, NNG_PIPE_EV_ADD_POST, link_pipe, link)) == 0 &&
	    (rv = nng_pipe_notify(link->socket, NNG_PIPE_EV_REM_POST, link_pipe, link)) == 0 &&
	    (rv = nng_aio_alloc(&link->receive, link_received, link)) == 0)
		rv = nng_aio_alloc(&link->send, link_sent, link);
	if (rv != 0) {
		link_close(link);
		rv = endpoint_error(err, rv, "open", name);
		return rv < 0 ? rv : -EIO;
	}
	*ret = link;
	return 0;
}

static int
link_start(struct link **ret, const char *dir, const char *name, link_fn *fn, void *arg,
	   int (*start)(nng_socket, const char *, const char *, struct error *), struct error *err)
{
	struct link *link = NULL;
	int rc = link_make(&link, name, fn, arg, err);

	if (rc < 0)
		return rc;
	*ret = link; /* callbacks may come before this returns */
	rc = start(link->socket, dir, name, err);
	if (rc < 0) {
		*ret = NULL;
		link_close(link);
		return rc;
	}
	nng_recv_aio(link->socket, link->receive);
	return 0;
}

int
link_listen(struct link **ret, const char *dir, const char *name, link_fn *fn, void *arg,
	    struct error *err)
{
	return link_start(ret, dir, name, fn, arg, endpoint_listen, err);
}

int
link_dial(struct link **ret, const char *dir, const char *name, link_fn *fn, void *arg,
	  struct error *err)
{
	return link_start(ret, dir, name, fn, arg, endpoint_dial, err);
}

int
link_send(struct link *link, const uint8_t *bytes, size_t n)
{
	nng_msg *msg;
	int rc = 0;

	if (nng_msg_alloc(&msg, 0) != 0)
		return -ENOMEM;
	if (nng_msg_append(msg, bytes, n) != 0) {
		nng_msg_free(msg);
		return -ENOMEM;
	}
	pthread_mutex_lock(&link->lock);
	if (link->pipe == 0 || link->closing)
		rc = -ENOTCONN;
	else if (link->n == LINK_QUEUE)
		rc = -ENOBUFS;
	else
		link->queue[(link->head + link->n++) % LINK_QUEUE] = msg;
	link_send_next(link);
	pthread_mutex_unlock(&link->lock);
	if (rc < 0)
		nng_msg_free(msg);
	return rc;
}

void
link_close(struct link *link)
{
	if (!link)
		return;
	pthread_mutex_lock(&link->order);
	pthread_mutex_lock(&link->lock);
	link->closing = true;
	pthread_mutex_unlock(&link->lock);
	pthread_mutex_unlock(&link->order);
	if (link->receive)
		nng_aio_stop(link->receive);
	if (link->send)
		nng_aio_stop(link->send);
	if (link->socket.id) {
		nng_pipe_notify(link->socket, NNG_PIPE_EV_ADD_POST, NULL, NULL);
		nng_pipe_notify(link->socket, NNG_PIPE_EV_REM_POST, NULL, NULL);
		nng_close(link->socket);
	}
	nng_aio_free(link->receive);
	nng_aio_free(link->send);
	link->sending = false;
	link_drop_queue(link);
	pthread_mutex_destroy(&link->order);
	pthread_mutex_destroy(&link->lock);
	free(link);
}
