#include "loader/pin_wait.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct pin_wait {
	struct watch *pinner;
	uint64_t inode;
	uint32_t n;
	atomic_bool *may; /* (n) */
	bool *judged;     /* (n) main only */
};

void
pin_wait_judge(const Hearth__State *pinner, uint64_t inode, uint32_t n, bool *ret_may)
{
	bool known = pinner && pinner->pinning && pinner->pinning->order[0];
	bool after = known && strcmp(pinner->pinning->order, "before") != 0;
	bool ours =
	    known && pinner->arena && pinner->arena->inode == inode && pinner->n_slices == n;

	for (uint32_t i = 0; i < n; i++)
		ret_may[i] = after || (ours && pinner->slices[i]->settled &&
				       (i + 1 == n || pinner->slices[i + 1]->settled));
}

int
pin_wait_open(struct pin_wait **ret, const char *dir, struct service *service, uint32_t n_slices,
	      struct error *err)
{
	struct pin_wait *wait = calloc(1, sizeof(*wait));
	int rc;

	if (!wait)
		return error_sys(err, -ENOMEM, "waiting for the pinner");
	wait->n = n_slices;
	wait->may = calloc(n_slices + (size_t)1, sizeof(*wait->may));
	wait->judged = calloc(n_slices + (size_t)1, sizeof(*wait->judged));
	if (wait->may && wait->judged)
		rc = watch_open(&wait->pinner, dir, "pinner", service, err);
	else
		rc = error_sys(err, -ENOMEM, "%" PRIu32 " slices", n_slices);
	if (rc < 0) {
		pin_wait_close(wait);
		return rc;
	}
	*ret = wait;
	return 0;
}

void
pin_wait_aim(struct pin_wait *wait, uint64_t inode)
{
	wait->inode = inode;
	for (uint32_t i = 0; i < wait->n; i++)
		atomic_store(&wait->may[i], false);
}

bool
pin_wait_look(struct pin_wait *wait)
{
	Hearth__State *state = watch_get(wait->pinner);
	bool more = false;

	pin_wait_judge(state, wait->inode, wait->n, wait->judged);
	for (uint32_t i = 0; i < wait->n; i++)
		more |= atomic_exchange(&wait->may[i], wait->judged[i]) < wait->judged[i];
	if (state)
		hearth__state__free_unpacked(state, NULL);
	return more;
}

bool
pin_wait_may_write(void *arg, uint32_t slice)
{
	struct pin_wait *wait = arg;

	return atomic_load(&wait->may[slice]);
}

void
pin_wait_close(struct pin_wait *wait)
{
	if (!wait)
		return;
	watch_close(wait->pinner);
	free(wait->may);
	free(wait->judged);
	free(wait);
}
