#include "worker/lender.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "common/log.h"

/* Longer than replacing the largest cache takes. */
#define LENDER_TIMEOUT_MS 60000

int
lender_open(struct lender *ret, const char *dir, struct error *err)
{
	return client_open(&ret->client, dir, "pinner.lend", err);
}

void
lender_close(struct lender *lender)
{
	client_close(lender->client);
	lender->client = NULL;
}

/* *ret is the caller's to free; it says that all went well. */
static int
lender_exchange(struct lender *lender, const Hearth__LendRequest *request, const char *what,
		Hearth__LendReply **ret, struct error *err)
{
	size_t n = hearth__lend_request__get_packed_size(request), n_reply;
	uint8_t *bytes = malloc(n), *reply_bytes;
	Hearth__LendReply *reply;
	int rc;

	if (bytes == NULL)
		return error_set(err, -ENOMEM, "pinner.lend: %s: no memory", what);
	hearth__lend_request__pack(request, bytes);
	rc = client_ask(lender->client, bytes, n, LENDER_TIMEOUT_MS, &reply_bytes, &n_reply);
	free(bytes);
	if (rc == -ECONNRESET || rc == -ECONNREFUSED)
		return error_set(err, -ECANCELED, "pinner.lend: %s: the pinner is gone", what);
	if (rc < 0)
		return error_sys(err, rc, "pinner.lend: %s", what);
	reply = hearth__lend_reply__unpack(NULL, n_reply, reply_bytes);
	free(reply_bytes);
	if (reply == NULL)
		return error_set(err, -EPROTO, "pinner.lend: %s: an answer that is none", what);
	if (reply->error != 0) {
		rc = error_set(err, reply->error < 0 ? reply->error : -EPROTO,
			       "pinner.lend: %s: %s", what, reply->text);
		hearth__lend_reply__free_unpacked(reply, NULL);
		return rc;
	}
	*ret = reply;
	return 0;
}

static int
granted_read(const Hearth__Granted *granted, const char *key, uint64_t bytes, struct lent *ret,
	     struct error *err)
{
	struct lent lent = { 0 };

	if (granted == NULL || granted->bytes < bytes ||
	    strlen(granted->path) >= sizeof(lent.path) ||
	    (granted->handle.len != 0 && granted->handle.len != DEVICE_HANDLE_BYTES))
		return error_set(err, -EPROTO,
				 "pinner.lend: %s: granted %" PRIu64 " bytes, want %" PRIu64
				 ", a short path and a handle of 0 or %d bytes",
				 key, granted != NULL ? granted->bytes : 0, bytes,
				 DEVICE_HANDLE_BYTES);
	lent.bytes = granted->bytes;
	lent.fresh = granted->fresh;
	strcpy(lent.path, granted->path);
	lent.has_handle = granted->handle.len != 0;
	if (lent.has_handle)
		memcpy(lent.handle, granted->handle.data, DEVICE_HANDLE_BYTES);
	*ret = lent;
	return 0;
}

static void
slots_adopt(struct slot_plan *slots, const Hearth__LendReply *reply)
{
	uint32_t wrong = 0;

	for (size_t i = 0; i < reply->n_slots; i++) {
		const Hearth__Slot *slot = reply->slots[i];

		if (!slot_plan_hold(slots,
				    &(struct slot_fill){ slot->layer, slot->expert, slot->slot }))
			wrong++;
	}
	if (wrong != 0)
		log_warn("%" PRIu32 " of %zu slots are named twice or out of range: filled anew",
			 wrong, reply->n_slots);
}

int
lender_ask(struct lender *lender, const char *key, uint64_t bytes, Hearth__Place place,
	   bool replace, struct lent *ret, struct slot_plan *slots, struct error *err)
{
	Hearth__LendRequest request = HEARTH__LEND_REQUEST__INIT;
	Hearth__Lend lend = HEARTH__LEND__INIT;
	Hearth__LendReply *reply;
	int rc;

	lend.key = (char *)key;
	lend.bytes = bytes;
	lend.place = place;
	lend.replace = replace;
	request.what_case = HEARTH__LEND_REQUEST__WHAT_LEND;
	request.lend = &lend;
	rc = lender_exchange(lender, &request, key, &reply, err);
	if (rc < 0)
		return rc;
	rc = granted_read(reply->granted, key, bytes, ret, err);
	if (rc == 0 && slots != NULL) {
		lender->slots_lease = reply->granted->lease;
		slots_adopt(slots, reply);
	}
	hearth__lend_reply__free_unpacked(reply, NULL);
	return rc;
}

int
lender_release(struct lender *lender, const char *key, struct error *err)
{
	Hearth__LendRequest request = HEARTH__LEND_REQUEST__INIT;
	Hearth__Release release = HEARTH__RELEASE__INIT;
	Hearth__LendReply *reply;
	int rc;

	release.key = (char *)key;
	request.what_case = HEARTH__LEND_REQUEST__WHAT_RELEASE;
	request.release = &release;
	rc = lender_exchange(lender, &request, key, &reply, err);
	if (rc == -ENOENT)
		return 0;
	if (rc == 0)
		hearth__lend_reply__free_unpacked(reply, NULL);
	return rc;
}

int
lender_empty(struct lender *lender, uint64_t slot_bytes, uint32_t first, uint32_t n,
	     struct error *err)
{
	Hearth__LendRequest request = HEARTH__LEND_REQUEST__INIT;
	Hearth__Move move = HEARTH__MOVE__INIT;
	uint32_t *slots = malloc(n * sizeof(*slots));
	Hearth__LendReply *reply;
	int rc;

	if (slots == NULL)
		return error_set(err, -ENOMEM, "pinner.lend: slots: no memory");
	for (uint32_t i = 0; i < n; i++)
		slots[i] = first + i;
	move.slot_bytes = slot_bytes;
	move.lease = lender->slots_lease;
	move.n_empty = n;
	move.empty = slots;
	request.what_case = HEARTH__LEND_REQUEST__WHAT_MOVE;
	request.move = &move;
	rc = lender_exchange(lender, &request, "slots", &reply, err);
	if (rc == 0)
		hearth__lend_reply__free_unpacked(reply, NULL);
	free(slots);
	return rc;
}

int
lent_import(const struct lent *lent, struct device *device, struct device_memory *ret,
	    struct error *err)
{
	if (lent->has_handle)
		return device_import(device, lent->handle, lent->bytes, ret, err);
	return device_import_path(device, lent->path, lent->bytes, ret, err);
}

int
lent_attach(const struct lent *lent, struct shared_memory *ret, struct error *err)
{
	struct shared_memory memory;
	int rc = shared_memory_attach(&memory, lent->path, lent->bytes, err);

	if (rc < 0)
		return rc;
	/* The lock goes with the descriptor: at the latest when the process is gone. */
	if (flock(memory.fd, LOCK_EX | LOCK_NB) < 0) {
		rc = error_sys(err, -errno, "lent memory %s: another worker holds it", lent->path);
		shared_memory_close(&memory);
		return rc;
	}
	*ret = memory;
	return 0;
}
