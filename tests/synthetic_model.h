/* Writes synthetic qwen3moe GGUF files of seeded random blocks, with several threads at the speed
 * of the drive.  The bytes depend on the structure alone.  There is no tokenizer: such a model
 * answers prompts of token ids.
 *
 * A token's own embedding is most of what every layer sees (what layers add is small beside it), so
 * that different tokens route as if at random: what synthetic_router.h wants.
 */
#ifndef HEARTH_TESTS_SYNTHETIC_MODEL_H
#define HEARTH_TESTS_SYNTHETIC_MODEL_H

#include <stdint.h>

#include "common/error.h"

#define SYNTHETIC_SHAPES "tiny", "small", "qwen3-30b-a3b"
#define SYNTHETIC_MAX_THREADS 64u

struct synthetic {
	const char *shape; /* of SYNTHETIC_SHAPES */
	uint32_t layers;   /* 0: the shape's */
	uint64_t bytes;    /* as many layers as fit, at least one; 0: as `layers` says */
	double zipf;       /* the exponent of how often experts are chosen; 0: uniform */
	uint64_t seed;
	uint32_t threads; /* 1 to SYNTHETIC_MAX_THREADS */
};

struct synthetic_made {
	uint32_t layers;
	uint64_t bytes;
};

int synthetic_write(const struct synthetic *synthetic, const char *path, struct synthetic_made *ret,
		    struct error *err);

#endif
