/* Following another stage's board, and asking it once. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/board.h"
#include "common/endpoint.h"
#include "common/service.h"

#define STATE_SOCKET_BYTES 64

/* The last message is kept packed: a state that does not parse never becomes the current one. */
struct watch {
	struct follower *follower;
	struct service *service;
	pthread_mutex_t lock;
	uint8_t *bytes;
	size_t n;
	uint64_t changes;      /* from 1 on: nothing heard yet is one */
	uint64_t pid, version; /* of the last message; pid 0: none, or lost */
};

static void
watch_heard(void *arg, const uint8_t *bytes, size_t n)
{
	struct watch *watch = arg;
	uint64_t pid = 0, version = 0;
	Hearth__State *state;
	uint8_t *copy = NULL;

	if (bytes) {
		state = hearth__state__unpack(NULL, n, bytes);
		if (!state)
			return;
		pid = state->pid;
		version = state->version;
		hearth__state__free_unpacked(state, NULL);
		copy = malloc(n ? n : 1);
		if (!copy)
			return; /* the next one holds everything */
		memcpy(copy, bytes, n);
	}
	pthread_mutex_lock(&watch->lock);
	free(watch->bytes);
	watch->bytes = copy;
	watch->n = n;
	if (pid == 0 || pid != watch->pid || version != watch->version)
		watch->changes++;
	watch->pid = pid;
	watch->version = version;
	pthread_mutex_unlock(&watch->lock);
	service_wake(watch->service);
}

int
watch_open(struct watch **ret, const char *dir, const char *stage, struct service *service,
	   struct error *err)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	char name[STATE_SOCKET_BYTES];
	int rc;

	if (!watch)
		return error_set(err, -ENOMEM, "%s.state.pub: no memory", stage);
	watch->service = service;
	watch->changes = 1;
	pthread_mutex_init(&watch->lock, NULL);
	snprintf(name, sizeof(name), "%s.state.pub", stage);
	rc = follower_open(&watch->follower, dir, name, watch_heard, watch, err);
	if (rc < 0) {
		watch_close(watch);
		return rc;
	}
	*ret = watch;
	return 0;
}

void
watch_close(struct watch *watch)
{
	if (!watch)
		return;
	follower_close(watch->follower);
	pthread_mutex_destroy(&watch->lock);
	free(watch->bytes);
	free(watch);
}

Hearth__State *
watch_get(struct watch *watch)
{
	Hearth__State *state = NULL;

	pthread_mutex_lock(&watch->lock);
	if (watch->bytes)
		state = hearth__state__unpack(NULL, watch->n, watch->bytes);
	pthread_mutex_unlock(&watch->lock);
	return state;
}

bool
watch_changed(struct watch *watch, uint64_t *seen)
{
	bool changed;

	pthread_mutex_lock(&watch->lock);
	changed = watch->changes != *seen;
	*seen = watch->changes;
	pthread_mutex_unlock(&watch->lock);
	return changed;
}

int
board_ask(const char *dir, const char *stage, int timeout_ms, Hearth__State **ret,
	  struct error *err)
{
	char name[STATE_SOCKET_BYTES];
	struct client *client;
	Hearth__State *state;
	uint8_t *bytes;
	size_t n;
	int rc;

	snprintf(name, sizeof(name), "%s.state", stage);
	rc = client_open(&client, dir, name, err);
	if (rc < 0)
		return rc;
	rc = client_ask(client, (const uint8_t *)"", 0, timeout_ms, &bytes, &n);
	client_close(client);
	if (rc < 0)
		return error_sys(err, rc, "%s", name);
	state = hearth__state__unpack(NULL, n, bytes);
	free(bytes);
	if (!state)
		return error_set(err, -EPROTO, "%s: an answer that is no state", name);
	*ret = state;
	return 0;
}
