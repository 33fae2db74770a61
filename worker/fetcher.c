#include "worker/fetcher.h"

#include <errno.h>
#include <stdlib.h>

#define SOCKET_FETCH "loader.fetch"
#define MESSAGE_OVERHEAD 32u /* all of a question but its experts */
#define EXPERT_BYTES 5u      /* the longest varint of 32 bits */

int
fetcher_open(struct fetcher *ret, const char *dir, struct service *service, uint32_t max,
	     struct error *err)
{
	struct fetcher fetcher = { .service = service };
	int rc;

	fetcher.packed_bytes = MESSAGE_OVERHEAD + (size_t)max * EXPERT_BYTES;
	fetcher.packed = malloc(fetcher.packed_bytes);
	if (fetcher.packed == NULL)
		return error_set(err, -ENOMEM, SOCKET_FETCH ": no memory");
	rc = client_open(&fetcher.client, dir, SOCKET_FETCH, err);
	if (rc < 0) {
		free(fetcher.packed);
		return rc;
	}
	*ret = fetcher;
	pthread_mutex_init(&ret->lock, NULL);
	return 0;
}

static void
fetcher_heard(void *arg, int rc, const uint8_t *bytes, size_t n)
{
	struct fetcher *fetcher = arg;
	Hearth__FetchReply *answer = NULL;

	if (rc == 0) {
		answer = hearth__fetch_reply__unpack(NULL, n, bytes);
		rc = answer != NULL ? 0 : -EPROTO;
	}
	pthread_mutex_lock(&fetcher->lock);
	fetcher->told = true;
	fetcher->rc = rc;
	fetcher->answer = answer;
	pthread_mutex_unlock(&fetcher->lock);
	service_wake(fetcher->service);
}

void
fetcher_drop(struct fetcher *fetcher)
{
	client_drop(fetcher->client);
	pthread_mutex_lock(&fetcher->lock);
	if (fetcher->answer != NULL)
		hearth__fetch_reply__free_unpacked(fetcher->answer, NULL);
	fetcher->answer = NULL;
	fetcher->told = false;
	pthread_mutex_unlock(&fetcher->lock);
}

int
fetcher_begin(struct fetcher *fetcher, uint32_t layer, const uint32_t *experts, uint32_t n)
{
	Hearth__Fetch question = HEARTH__FETCH__INIT;
	size_t bytes;

	fetcher_drop(fetcher);
	question.layer = layer;
	question.experts = (uint32_t *)experts;
	question.n_experts = n;
	bytes = hearth__fetch__get_packed_size(&question);
	if (bytes > fetcher->packed_bytes)
		return -EMSGSIZE;
	hearth__fetch__pack(&question, fetcher->packed);
	return client_begin(fetcher->client, fetcher->packed, bytes, fetcher_heard, fetcher);
}

int
fetcher_look(struct fetcher *fetcher, Hearth__FetchReply **ret)
{
	int rc = 0;

	pthread_mutex_lock(&fetcher->lock);
	if (fetcher->told) {
		rc = fetcher->rc < 0 ? fetcher->rc : 1;
		if (rc == 1)
			*ret = fetcher->answer;
		fetcher->answer = NULL;
		fetcher->told = false;
	}
	pthread_mutex_unlock(&fetcher->lock);
	return rc;
}

void
fetcher_close(struct fetcher *fetcher)
{
	if (fetcher->client == NULL)
		return;
	fetcher_drop(fetcher);
	client_close(fetcher->client);
	free(fetcher->packed);
	pthread_mutex_destroy(&fetcher->lock);
	*fetcher = (struct fetcher){ 0 };
}
