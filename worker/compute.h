/* The model's arithmetic on one device, behind one door: cpu and cuda.  Holds no state that would
 * be missed: weights lie in the arena (or lent device memory), keys and values in a lent region.
 *
 * The bits of a result depend on the device, the tokens and their positions only: not on how many
 * tokens one call computes, nor on threads, slots or where an expert lies.  So a successor that
 * computes a prompt again gets the very same tokens. */
#ifndef HEARTH_WORKER_COMPUTE_H
#define HEARTH_WORKER_COMPUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/device.h"
#include "common/error.h"
#include "common/model.h"

/* Where each expert's matrices are now: slots in device memory, or the arena. */
struct expert_place {
	const void *role[N_ROLES]; /* an address the device can read */
};

struct compute_config {
	const struct model *model;
	const uint8_t *arena; /* host base: matrix.offset counts from here */
	uint64_t arena_bytes; /* experts that lie there may be computed by the CPU: cpu_share */
	struct device *device;
	const uint8_t
	    *trunk; /* slice 0 where the device reads it; (arena + slice 0's offset) on cpu */
	uint64_t trunk_offset; /* of slice 0 in the arena: trunk + (matrix.offset - trunk_offset) */
	void *kv;              /* kv_bytes of it, lent */
	uint32_t context;      /* positions the KV cache has room for */
	uint32_t threads;      /* of the CPU, which may compute beside a GPU */
	float cpu_share; /* cuda: of a layer's experts in the arena, what the CPU computes: 0 to
			  * 1, or SHARE_AUTO (share_control.h) */
	struct expert_place *places; /* (layers, experts), host; see places_changed */
	/* Called once a layer's routing is known and before its experts are used, with the distinct
	 * experts, ascending, that the call needs.  0: the layer's places are right for these (they
	 * may have changed); < 0 ends the call with that code.  NULL: all is there. */
	int (*need_experts)(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n);
	void *need_arg;
};

/* The most tokens one forward takes: prompts are cut into such batches. */
#define COMPUTE_BATCH 64

/* What a CPU computes of a GPU's experts. */
struct compute_share {
	uint32_t threads; /* 0: nothing, ever */
	float now;        /* of a layer's experts in the arena */
	uint64_t experts; /* so far */
};

/* What a forward is to give beside keys and values. */
struct compute_want {
	bool logits; /* all of them, not the greatest alone */
	/* The caller is likely to go on with the greatest, at the next position: the device may
	 * begin with that at once.  A next forward of just that token finds it begun, any other
	 * drops it; no bit of a result depends on it. */
	bool ahead;
};

/* Of the last token. */
struct compute_result {
	uint32_t greatest;   /* as sample_greatest() (sample.h) has it */
	float logit;         /* of that */
	bool ahead;          /* what follows is begun */
	const float *logits; /* (vocabulary), the device's own, in host memory, until its next call;
			      * NULL: not wanted */
};

struct compute;

struct compute_ops {
	/* Bytes of KV cache for `context` positions. */
	uint64_t (*kv_bytes)(const struct model *model, uint32_t context);
	/* Bytes of device memory the step needs of its own, beside what is lent. */
	uint64_t (*own_bytes)(const struct model *model, uint32_t context);
	int (*open)(struct compute **ret, const struct compute_config *config, struct error *err);
	void (*close)(struct compute *compute);
	const char *(*kernels)(
	    const struct compute *compute); /* "avx512", "avx2", "c", "cuda sm_90" */
	/* `places` changed; called between forwards.  On return nothing that was begun, ahead or
	 * not, reads the places before. */
	int (*places_changed)(struct compute *compute, struct error *err);
	/* Computes tokens ids[0..n-1] at positions pos..pos+n-1 (1 <= n <= COMPUTE_BATCH, pos + n
	 * <= context), writing their keys and values (and perhaps those of the next position, as
	 * `ahead` says).  want NULL: nothing but these, and ret is not written.  -errno. */
	int (*forward)(struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos,
		       const struct compute_want *want, struct compute_result *ret,
		       struct error *err);
	/* Whether need_experts is called, from the next forward on (after open it is).  Where it is
	 * not, a device is not asked in the middle of a token. */
	void (*ask)(struct compute *compute, bool ask);
	/* Adds to counts[(layers, experts)] how often each was chosen since the last call, also by
	 * tokens begun ahead and dropped; between forwards.  -errno. */
	int (*usage)(struct compute *compute, uint64_t *counts);
	/* No forward follows for now: ends what was begun ahead, if only by waiting for it.  NULL:
	 * that ends by itself. */
	void (*drop)(struct compute *compute);
	/* NULL: it leaves nothing to others. */
	void (*share)(const struct compute *compute, struct compute_share *ret);
};

extern const struct compute_ops compute_cpu;
extern const struct compute_ops compute_cuda; /* in a CPU-only build: open says -ENODEV */

#endif
