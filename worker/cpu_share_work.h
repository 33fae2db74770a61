/* The parts of an order: groups of act, then rows of down.  Any thread does any part, with a room
 * of its own; which ones are left is the caller's to count. */
#ifndef HEARTH_WORKER_CPU_SHARE_WORK_H
#define HEARTH_WORKER_CPU_SHARE_WORK_H

#include "worker/cpu_lanes.h"
#include "worker/cpu_share.h"

struct share_work {
	struct cpu_share_config config;
	const struct lanes_kernels *kernels;
	uint32_t act_blocks;
	struct lanes_fixed *act; /* (SHARE_MAX, act_blocks), of the order at hand */
};

/* What an order says, read once. */
struct share_job {
	uint64_t sequence;
	uint32_t layer, n;
	uint32_t in_parts, out_parts; /* of one expert */
};

/* A thread's vectors, as rows of their types want them. */
struct share_room {
	uint64_t has_x, has_act;  /* of which order */
	struct lanes_block *x[2]; /* for gate, and for up where its type is another */
	struct lanes_block *act;  /* (SHARE_MAX, act_blocks) */
};

/* -ENOMEM; closing is due after it too. */
int share_work_open(struct share_work *work, const struct cpu_share_config *config);
void share_work_close(struct share_work *work);
int share_room_open(struct share_room *room, const struct share_work *work);
void share_room_close(struct share_room *room);

/* Sets in_parts and out_parts. */
void share_job_cut(const struct share_work *work, struct share_job *job);

/* Part `part` of job->n * job->in_parts. */
void share_in_part(const struct share_work *work, struct share_room *room,
		   const struct share_job *job, uint32_t part);
/* Part `part` of job->n * job->out_parts, once all of the first kind are done. */
void share_out_part(const struct share_work *work, struct share_room *room,
		    const struct share_job *job, uint32_t part);

#endif
