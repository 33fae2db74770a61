#include "worker/requests.h"

#include "common/log.h"

void
requests_open(struct requests *ret, struct service *service)
{
	*ret = (struct requests){ .service = service };
}

void
requests_close(struct requests *requests)
{
	if (requests->next != NULL)
		hearth__to_worker__free_unpacked(requests->next, NULL);
	requests->next = NULL;
}

/* Under the lock, as all below up to requests_hear; gives back what is to be freed. */
static Hearth__ToWorker *
requests_lose(struct requests *requests)
{
	Hearth__ToWorker *old = requests->next;

	requests->next = NULL;
	requests->next_cancelled = false;
	requests->current_cancelled = false;
	requests->greet = false;
	requests->drop = true;
	return old;
}

static Hearth__ToWorker *
requests_put(struct requests *requests, Hearth__ToWorker *message)
{
	Hearth__ToWorker *old = requests->next;

	requests->next = message;
	requests->next_cancelled = false;
	return old;
}

static void
requests_cancel(struct requests *requests, uint64_t request)
{
	if (requests->next != NULL && requests->next->generate->request == request)
		requests->next_cancelled = true;
	else if (requests->current != 0 && requests->current == request)
		requests->current_cancelled = true;
}

/* NULL, and a line: it makes no sense. */
static Hearth__ToWorker *
message_read(const uint8_t *bytes, size_t n)
{
	Hearth__ToWorker *message = hearth__to_worker__unpack(NULL, n, bytes);

	if (message == NULL) {
		log_warn("work: %zu bytes that are no message: ignored", n);
		return NULL;
	}
	if (message->what_case == HEARTH__TO_WORKER__WHAT_GENERATE &&
	    message->generate->request != 0)
		return message;
	if (message->what_case == HEARTH__TO_WORKER__WHAT_CANCEL)
		return message;
	log_warn("work: a message that is neither a request with an id nor a cancel: ignored");
	hearth__to_worker__free_unpacked(message, NULL);
	return NULL;
}

void
requests_hear(void *arg, enum link_event event, const uint8_t *bytes, size_t n)
{
	struct requests *requests = arg;
	Hearth__ToWorker *message = NULL, *old = NULL;

	if (event == LINK_MESSAGE) {
		message = message_read(bytes, n);
		if (message == NULL)
			return;
	}
	pthread_mutex_lock(&requests->service->lock);
	if (event == LINK_UP) {
		old = requests_lose(requests); /* the news of the old one's end may come later */
		requests->greet = true;
	} else if (event == LINK_DOWN) {
		old = requests_lose(requests);
	} else if (message != NULL && message->what_case == HEARTH__TO_WORKER__WHAT_GENERATE) {
		old = requests_put(requests, message);
	} else if (message != NULL) {
		requests_cancel(requests, message->cancel->request);
		old = message;
	}
	pthread_mutex_unlock(&requests->service->lock);
	if (old != NULL)
		hearth__to_worker__free_unpacked(old, NULL);
	service_wake(requests->service);
}

/* Under the lock. */
static bool
requests_any(const struct requests *requests)
{
	return requests->drop || requests->greet || requests->next != NULL ||
	       requests->current_cancelled;
}

bool
requests_waiting(void *arg)
{
	struct requests *requests = arg;
	bool any;

	pthread_mutex_lock(&requests->service->lock);
	any = requests_any(requests);
	pthread_mutex_unlock(&requests->service->lock);
	return any;
}

bool
requests_lost(struct requests *requests)
{
	bool lost;

	pthread_mutex_lock(&requests->service->lock);
	lost = requests->drop;
	pthread_mutex_unlock(&requests->service->lock);
	return lost;
}

bool
requests_take(struct requests *requests, struct orders *ret)
{
	bool any;

	pthread_mutex_lock(&requests->service->lock);
	any = requests_any(requests);
	if (any) {
		*ret = (struct orders){
			.drop = requests->drop,
			.greet = requests->greet,
			.cancel = requests->current_cancelled && !requests->drop,
			.next = requests->next,
			.cancel_next = requests->next_cancelled,
		};
		if (requests->drop || requests->current_cancelled)
			requests->current = 0;
		if (requests->next != NULL)
			requests->current = requests->next->generate->request;
		requests->next = NULL;
		requests->next_cancelled = requests->current_cancelled = false;
		requests->greet = requests->drop = false;
	}
	pthread_mutex_unlock(&requests->service->lock);
	return any;
}

void
requests_ended(struct requests *requests, uint64_t request)
{
	pthread_mutex_lock(&requests->service->lock);
	if (requests->current == request) {
		requests->current = 0;
		requests->current_cancelled = false;
	}
	pthread_mutex_unlock(&requests->service->lock);
}
