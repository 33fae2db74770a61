#include "loader/batch.h"

#include <stdbool.h>
#include <stdlib.h>

static int
compare_windows(const void *a, const void *b)
{
	const struct batch_window *x = a, *y = b;

	if (x->shard != y->shard)
		return x->shard < y->shard ? -1 : 1;
	return (x->file_offset > y->file_offset) - (x->file_offset < y->file_offset);
}

/* The window does not begin before the request. */
static bool
takes(const struct batch_request *request, const struct batch_window *window)
{
	uint64_t end = request->file_offset + request->bytes;

	return request->shard == window->shard && request->n < BATCH_WINDOWS &&
	       (window->file_offset < end || window->file_offset - end < BATCH_GAP) &&
	       window->file_offset + window->bytes - request->file_offset <= BATCH_REQUEST;
}

uint64_t
batch_merge(struct batch_window *windows, uint64_t n, struct batch_request *ret)
{
	uint64_t n_requests = 0;

	if (n == 0)
		return 0;
	qsort(windows, n, sizeof(*windows), compare_windows);
	for (uint64_t i = 0; i < n; i++) {
		const struct batch_window *window = &windows[i];
		struct batch_request *request = n_requests ? &ret[n_requests - 1] : NULL;
		uint64_t end = window->file_offset + window->bytes;

		if (!request || !takes(request, window)) {
			ret[n_requests++] =
			    (struct batch_request){ .shard = window->shard,
						    .file_offset = window->file_offset,
						    .bytes = window->bytes,
						    .first = i,
						    .n = 1 };
			continue;
		}
		request->n++;
		if (end > request->file_offset + request->bytes)
			request->bytes = end - request->file_offset;
	}
	return n_requests;
}
