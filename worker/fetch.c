#include "worker/fetch.h"

#include <errno.h>
#include <stdlib.h>

#define SOCKET_FETCH "loader.fetch"
#define MESSAGE_OVERHEAD 32u /* all of a question but its experts */
#define EXPERT_BYTES 5u      /* the longest varint of 32 bits */

int
fetch_open(struct fetch *ret, const char *dir, struct service *service, uint32_t max,
	   struct error *err)
{
	struct fetch fetch = { .service = service };
	int rc;

	fetch.packed_bytes = MESSAGE_OVERHEAD + (size_t)max * EXPERT_BYTES;
	fetch.packed = malloc(fetch.packed_bytes);
	if (fetch.packed == NULL)
		return error_set(err, -ENOMEM, SOCKET_FETCH ": no memory");
	rc = client_open(&fetch.client, dir, SOCKET_FETCH, err);
	if (rc < 0) {
		free(fetch.packed);
		return rc;
	}
	*ret = fetch;
	pthread_mutex_init(&ret->lock, NULL);
	return 0;
}

static void
fetch_heard(void *arg, int rc, const uint8_t *bytes, size_t n)
{
	struct fetch *fetch = arg;
	Hearth__FetchReply *answer = NULL;

	if (rc == 0) {
		answer = hearth__fetch_reply__unpack(NULL, n, bytes);
		rc = answer != NULL ? 0 : -EPROTO;
	}
	pthread_mutex_lock(&fetch->lock);
	fetch->told = true;
	fetch->rc = rc;
	fetch->answer = answer;
	pthread_mutex_unlock(&fetch->lock);
	service_wake(fetch->service);
}

void
fetch_drop(struct fetch *fetch)
{
	client_drop(fetch->client);
	pthread_mutex_lock(&fetch->lock);
	if (fetch->answer != NULL)
		hearth__fetch_reply__free_unpacked(fetch->answer, NULL);
	fetch->answer = NULL;
	fetch->told = false;
	pthread_mutex_unlock(&fetch->lock);
}

int
fetch_begin(struct fetch *fetch, uint32_t layer, const uint32_t *experts, uint32_t n)
{
	Hearth__Fetch question = HEARTH__FETCH__INIT;
	size_t bytes;

	fetch_drop(fetch);
	question.layer = layer;
	question.experts = (uint32_t *)experts;
	question.n_experts = n;
	bytes = hearth__fetch__get_packed_size(&question);
	if (bytes > fetch->packed_bytes)
		return -EMSGSIZE;
	hearth__fetch__pack(&question, fetch->packed);
	return client_begin(fetch->client, fetch->packed, bytes, fetch_heard, fetch);
}

int
fetch_look(struct fetch *fetch, Hearth__FetchReply **ret)
{
	int rc = 0;

	pthread_mutex_lock(&fetch->lock);
	if (fetch->told) {
		rc = fetch->rc < 0 ? fetch->rc : 1;
		if (rc == 1)
			*ret = fetch->answer;
		fetch->answer = NULL;
		fetch->told = false;
	}
	pthread_mutex_unlock(&fetch->lock);
	return rc;
}

void
fetch_close(struct fetch *fetch)
{
	if (fetch->client == NULL)
		return;
	fetch_drop(fetch);
	client_close(fetch->client);
	free(fetch->packed);
	pthread_mutex_destroy(&fetch->lock);
	*fetch = (struct fetch){ 0 };
}
