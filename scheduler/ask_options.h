/* What `hearth ask` was told: its words, checked, and the prompt.  Owns the prompt. */
#ifndef HEARTH_SCHEDULER_ASK_OPTIONS_H
#define HEARTH_SCHEDULER_ASK_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct ask_options {
	const char *dir;
	uint64_t max_tokens;
	double temperature;
	uint64_t top_k;
	double top_p;
	uint64_t seed;
	bool json, ids, ignore_stop;
	const char *logits; /* a file's name, or NULL */
	char *text;         /* the prompt, or NULL: prompt_ids */
	uint32_t *prompt_ids;
	size_t n_prompt_ids;
};

/* argv[0] is the command's name.  -EINVAL: the line says what would be right. */
int ask_options_parse(struct ask_options *ret, int argc, char **argv, struct error *err);
void ask_options_close(struct ask_options *options);

/* "1,2,3"; the caller frees *ret. */
int ask_options_ids(const char *list, uint32_t **ret, size_t *ret_n, struct error *err);

#endif
