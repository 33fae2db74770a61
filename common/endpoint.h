/* What crosses a process, as bytes over nng ipc sockets in the runtime folder.  The only user of
 * nng. Sockets are `<dir>/<name>`; all receive limits are MAX_MESSAGE_BYTES.  Callbacks run on
 * nng's threads: they take locks, work briefly and return; they never call the close functions.
 * Bytes are the callee's for the length of the call only. */
#ifndef HEARTH_COMMON_ENDPOINT_H
#define HEARTH_COMMON_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* -- answering (rep) -- */

struct server;
struct call; /* one request that has not been answered */

/* Must call call_reply once for each call: now, or later from any thread. */
typedef void server_fn(void *arg, struct call *call, const uint8_t *bytes, size_t n);

/* That wait for an answer at once, more wait in nng: a full queue of readers and as many again. */
#define SERVER_CALLS 128

int server_open(struct server **ret, const char *dir, const char *name, server_fn *fn, void *arg,
		struct error *err);
/* The call is gone afterwards.  A client that left costs nothing. */
void call_reply(struct call *call, const uint8_t *bytes, size_t n);
/* No callback runs or comes afterwards; calls not answered are dropped. */
void server_close(struct server *server);

/* -- asking (req) -- */

struct client;

int client_open(struct client **ret, const char *dir, const char *name, struct error *err);
/* Sends and waits.  Never sends twice.  -ECONNREFUSED: nobody listens; -ECONNRESET: the peer went;
 * -ETIMEDOUT.  *ret_bytes is malloc'd: the caller frees it.  One thread at a time. */
int client_ask(struct client *client, const uint8_t *bytes, size_t n, int timeout_ms,
	       uint8_t **ret_bytes, size_t *ret_n);

/* The same without waiting: fn(arg, rc, bytes, n) once, on a thread of nng's, unless it is dropped
 * before; rc as client_ask's, bytes NULL unless it is 0.  One at a time, and none beside
 * client_ask.  -ECONNREFUSED and other failures at once: fn is not called. */
typedef void client_fn(void *arg, int rc, const uint8_t *bytes, size_t n);
int client_begin(struct client *client, const uint8_t *bytes, size_t n, client_fn *fn, void *arg);
/* Forgets what was begun, if anything: fn does not run or come afterwards. */
void client_drop(struct client *client);

void client_close(struct client *client);

/* -- telling all (pub) and following (sub) -- */

struct publisher;
struct follower;

/* `joined` (may be NULL): a follower has come; publish again so that it has something. */
int publisher_open(struct publisher **ret, const char *dir, const char *name,
		   void (*joined)(void *arg), void *arg, struct error *err);
void publisher_send(struct publisher *publisher, const uint8_t *bytes, size_t n);
void publisher_close(struct publisher *publisher);

/* fn(arg, bytes, n) with each message; fn(arg, NULL, 0) when the connection is lost.  Connects
 * again by itself, as often as the publisher comes back. */
typedef void follower_fn(void *arg, const uint8_t *bytes, size_t n);
int follower_open(struct follower **ret, const char *dir, const char *name, follower_fn *fn,
		  void *arg, struct error *err);
void follower_close(struct follower *follower);

/* -- one to one (pair) -- */

struct link;

enum link_event { LINK_UP, LINK_DOWN, LINK_MESSAGE };
typedef void link_fn(void *arg, enum link_event event, const uint8_t *bytes, size_t n);

/* The dialer connects again by itself.  A second dialer is turned away while there is one. */
int link_listen(struct link **ret, const char *dir, const char *name, link_fn *fn, void *arg,
		struct error *err);
int link_dial(struct link **ret, const char *dir, const char *name, link_fn *fn, void *arg,
	      struct error *err);
/* Queued in order; -ENOTCONN while there is no peer, -ENOBUFS when LINK_QUEUE wait. */
#define LINK_QUEUE 256
int link_send(struct link *link, const uint8_t *bytes, size_t n);
void link_close(struct link *link);

#endif
