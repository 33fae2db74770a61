/* A CPU beside the GPU: the memory in which they hand each other experts, the CPU's threads, and
 * how much is left to them.  For the thread that computes. */
#ifndef HEARTH_WORKER_CUDA_SHARING_H
#define HEARTH_WORKER_CUDA_SHARING_H

#ifdef __cplusplus
extern "C" {
#endif

#include "worker/cpu_share.h"
#include "worker/share_control.h"

struct cuda_sharing {
	struct cpu_share *cpu; /* NULL: the GPU is alone */
	/* Pinned and mapped, at the same address for both. */
	struct share_order *order;
	struct share_answer *answer;
	struct share_seen *seen; /* (layers) */
	uint32_t layers;
	/* (layers, experts), as they are for the token that is computed. */
	struct expert_place *places;
	struct share_control control;
	bool missed;                /* the last token did */
	float now;                  /* of this token */
	uint64_t begin_ns, done_ns; /* 0: not known yet */
};

/* Leaves the GPU alone where the config says so, and where it says SHARE_AUTO and the CPU cannot
 * compute any of the experts, or what it needs for that is not to be had (a warning says what).
 * -ENOTSUP: it cannot, and was asked to.  Closing is due after a failure too. */
int cuda_sharing_open(struct cuda_sharing *sharing, const struct compute_config *config,
		      struct error *err);
/* The threads end even where the device cannot be talked to any more. */
void cuda_sharing_close(struct cuda_sharing *sharing);

/* The config's places changed, and nothing that was launched reads those before. */
void cuda_sharing_places(struct cuda_sharing *sharing, const struct compute_config *config);

/* Around the forward of one token, from before the first launch until all of them have been waited
 * for, whether they failed or not; begin gives its share.  `usual`: its time is comparable with
 * that of other tokens. */
float cuda_sharing_begin(struct cuda_sharing *sharing);
void cuda_sharing_end(struct cuda_sharing *sharing, bool usual);
/* Between the two, if they are not one behind the other: now it has been waited for. */
void cuda_sharing_done(struct cuda_sharing *sharing);

#ifdef __cplusplus
}
#endif
#endif
