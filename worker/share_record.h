/* What two devices hand each other of a layer's experts, in memory that both see.  The one that
 * routes gives an order: everything first, then its sequence, which is never the same twice in the
 * order of giving.  The other answers: everything first, then the order's sequence.  The next order
 * is given only once the answer has been read.  For C and CUDA. */
#ifndef HEARTH_WORKER_SHARE_RECORD_H
#define HEARTH_WORKER_SHARE_RECORD_H

#include <stdint.h>

#define SHARE_MAX 16u /* experts in one order */
#define SHARE_LINE 64u

struct share_expert {
	uint32_t expert;
	float weight;
};

struct share_order {
	uint64_t sequence; /* 0: none yet */
	uint64_t apart[7];
	uint32_t layer, n;
	struct share_expert experts[SHARE_MAX];
	uint32_t behind[14];
};

#define SHARE_ORDER_BYTES 256u /* behind it: the layer's vector in fixed point, whole blocks */

struct share_answer {
	uint64_t sequence;
	uint64_t apart[7];
};

/* Of one layer of a token; written by who gives orders. */
struct share_seen {
	uint32_t misses; /* experts in memory that both read */
	uint32_t given;  /* of these left to the other */
	uint32_t late;   /* 1: the answer was waited for */
};

#define SHARE_ANSWER_BYTES 64u /* behind it: floats, (n, hidden), in the order of `experts` */

#endif
