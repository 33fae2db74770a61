/* What the endpoint_*.c files share: addresses, nng's error numbers, options set on every socket.
 */
#ifndef HEARTH_COMMON_ENDPOINT_NNG_H
#define HEARTH_COMMON_ENDPOINT_NNG_H

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <nng/protocol/pubsub0/pub.h>
#include <nng/protocol/pubsub0/sub.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>

#include "common/error.h"
#include "proto/limits.h"

#define ENDPOINT_URL_BYTES (sizeof("ipc://") + MAX_SOCKET_PATH)

/* A dialer tries again after 2 to 50 ms: a restarted stage is found before a person notices. */
#define RECONNECT_MIN_MS 2
#define RECONNECT_MAX_MS 50

/* Before the first use of nng.  nng 1.5.2 waits for itself for ever when it cannot make its threads
 * (ulimit -v, -u): then the process says so and ends with EXIT_SYSTEM. */
void endpoint_start(void);

/* -EINVAL when the path is too long for a socket. */
int endpoint_url(char ret[ENDPOINT_URL_BYTES], const char *dir, const char *name,
		 struct error *err);

/* The receive limit, and for dialers the times between tries. */
int endpoint_limits(nng_socket socket);

/* Listens; a stale socket is replaced, anything else at that path is refused with -EEXIST. */
int endpoint_listen(nng_socket socket, const char *dir, const char *name, struct error *err);
int endpoint_dial(nng_socket socket, const char *dir, const char *name, struct error *err);

/* 0 if somebody listens on the socket file: -ENOENT, -ECONNREFUSED.  Makes no connection. */
int endpoint_probe(const char *dir, const char *name);

/* -errno for nng's number, and the line for it. */
int endpoint_errno(int nng_error);
int endpoint_error(struct error *err, int nng_error, const char *what, const char *name);

#endif
