/* Command lines: `--name VALUE`, `--name=VALUE`, `--flag`, `--`, and positional words.
 * A table says what there is; a message says which option is wrong and what would be right. */
#ifndef HEARTH_COMMON_OPTIONS_H
#define HEARTH_COMMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

/* Of `--threads`, in every stage that takes it: more than any machine has cores. */
#define MAX_THREADS 1024u

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_U64, OPTION_FLOAT };

struct option_def {
	const char *name;  /* "--threads", "-n" */
	const char *alias; /* or NULL */
	enum option_kind kind;
	void *to;                   /* bool *, const char **, uint64_t *, double * */
	uint64_t min, max;          /* of an OPTION_U64 */
	const char *const *choices; /* of an OPTION_TEXT: NULL-ended, or NULL for any */
};

/* Positional words go to words[0 .. *n_words-1]; more than max_words is an error.  -EINVAL. */
int options_parse(int argc, char **argv, const struct option_def *defs, uint32_t n_defs,
		  const char **words, uint32_t max_words, uint32_t *n_words, struct error *err);

#endif
