#include "tests/endpoint_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void
endpoint_echo(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	(void)arg;
	call_reply(call, bytes, n);
}

void
endpoint_park(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	struct endpoint_parking *parking = arg;

	(void)bytes;
	(void)n;
	parking->calls[atomic_fetch_add(&parking->n, 1)] = call;
	gate_pass(&parking->gate);
}

int
endpoint_ask(struct client *client, const char *text, int timeout_ms, char *ret, size_t room)
{
	uint8_t *bytes;
	size_t n;
	int rc = client_ask(client, (const uint8_t *)text, strlen(text), timeout_ms, &bytes, &n);

	if (rc < 0)
		return rc;
	assert_true(n < room);
	memcpy(ret, bytes, n);
	ret[n] = '\0';
	free(bytes);
	return 0;
}

static void *
asker_thread(void *arg)
{
	struct endpoint_asker *asker = arg;
	char answer[8];

	asker->rc = endpoint_ask(asker->client, "x", 20000, answer, sizeof(answer));
	return NULL;
}

void
endpoint_asker_start(struct endpoint_asker *asker)
{
	assert_int_equal(pthread_create(&asker->thread, NULL, asker_thread, asker), 0);
}
