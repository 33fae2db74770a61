/* What a stack made of its model: every slice's checksum, and the first logits and the ids of one
 * answer.  Equal for every way of starting (cmocka). */
#ifndef HEARTH_TESTS_STACK_BITS_H
#define HEARTH_TESTS_STACK_BITS_H

#include <jansson.h>
#include <stddef.h>

struct bits {
	float logits[4096];
	size_t n_logits;
	json_t *ids;
	json_t *status; /* `status --json`, once the answer was there */
};

/* Asks the stack; the caller closes *ret. */
void bits_take(struct bits *ret, const char *name);
void bits_close(struct bits *bits);

/* `what` is said when it fails. */
void bits_assert_same_answer(const struct bits *first, const struct bits *now, const char *what);
/* Asks the stack again and compares. */
void bits_assert_again(const struct bits *first, const char *name);
void bits_assert_same_slices(const struct bits *first, const struct bits *now, const char *what);

/* status.stages.STAGE.KEY, or .KEY.BELOW; the status keeps it. */
const json_t *bits_figure(const struct bits *bits, const char *stage, const char *key,
			  const char *below);
const char *bits_text(const struct bits *bits, const char *stage, const char *key,
		      const char *below);
json_int_t bits_number(const struct bits *bits, const char *stage, const char *key,
		       const char *below);

#endif
