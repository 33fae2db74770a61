/* Measures decoding by a whole stack, at one budget and context. */
#ifndef HEARTH_TESTS_BENCH_DECODE_H
#define HEARTH_TESTS_BENCH_DECODE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/device.h"
#include "common/model.h"
#include "tests/bench_rows.h"

struct bench_decode {
	const char *name;      /* of the stack */
	const char *model;     /* its file */
	const char *router;    /* what to call its routing */
	const char *device;    /* the word for `up` */
	const char *more;      /* one more word for it, "--pages=thp", or NULL */
	struct device *opened; /* the same, for bench_kv_fill */
	uint32_t tokens, runs; /* measured: the median of the runs */
	uint32_t warm_ups;     /* runs before them, so that slots are filled by use */
	char dir[128];         /* of the stack */
	const struct bench_rates *rates;
	/* of the stack while it is up */
	struct arena arena;
	struct model shape;
};

/* Starts the stack for `context` positions and some more, and waits until nothing is staged any
 * more.  False: it says that it has no room; how it says so goes to ret_why. */
bool bench_decode_up(struct bench_decode *decode, uint64_t vram_mib, uint32_t context,
		     char ret_why[256]);
void bench_decode_down(struct bench_decode *decode);

/* Of the running stack, with its KV cache as after `context` tokens (bench_kv.h). */
void bench_decode_row(struct bench_decode *decode, uint64_t vram_mib, uint32_t context,
		      struct bench_row *ret);

/* A prompt of n token ids as --prompt-ids takes it, the last one of the run's own; kept ids in
 * `ids`.  The caller frees it. */
char *bench_decode_prompt(uint32_t n, uint32_t run, uint32_t vocabulary, uint32_t *ids);

/* Makes the next prompt of bench_decode_prompt find all but its last token in the cache. */
void bench_decode_keep(struct bench_decode *decode, const uint32_t *ids, uint32_t context);

#endif
