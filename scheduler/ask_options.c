#include "scheduler/ask_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/options.h"
#include "proto/limits.h"

int
ask_options_ids(const char *list, uint32_t **ret, size_t *ret_n, struct error *err)
{
	size_t n = 0, room = 1;
	uint32_t *ids;

	for (const char *at = list; *at; at++)
		room += *at == ',';
	ids = malloc(room * sizeof(*ids));
	if (!ids)
		return error_sys(err, -ENOMEM, "--prompt-ids");
	for (const char *at = list; n < room; n++) {
		size_t digits = strspn(at, "0123456789"), whole = strcspn(at, ",");
		unsigned long id = digits < 10 ? strtoul(at, NULL, 10) : MAX_VOCABULARY;

		if (!digits || digits != whole || id >= MAX_VOCABULARY) {
			error_set(err, -EINVAL,
				  "--prompt-ids: number %zu is '%.*s', want 0 to %u, as in 1,2,3",
				  n + 1, (int)(whole > 32 ? 32 : whole), at, MAX_VOCABULARY - 1);
			free(ids);
			return -EINVAL;
		}
		ids[n] = (uint32_t)id;
		at += whole + 1;
	}
	*ret = ids;
	*ret_n = n;
	return 0;
}

/* All of stdin as text. */
static int
read_stdin(char **ret, struct error *err)
{
	char *text = malloc(MAX_PROMPT_BYTES + 2u);
	size_t n;

	if (!text)
		return error_sys(err, -ENOMEM, "the prompt");
	n = fread(text, 1, MAX_PROMPT_BYTES + 1u, stdin);
	text[n] = 0;
	if (ferror(stdin) || n > MAX_PROMPT_BYTES || strlen(text) != n) {
		if (ferror(stdin))
			error_sys(err, -EIO, "the prompt on stdin");
		else if (n > MAX_PROMPT_BYTES)
			error_set(err, -EINVAL, "the prompt on stdin: want at most %u bytes",
				  MAX_PROMPT_BYTES);
		else
			error_set(err, -EINVAL, "the prompt on stdin: byte %zu is 0, want text",
				  strlen(text));
		n = ferror(stdin) ? EIO : EINVAL;
		free(text);
		return -(int)n;
	}
	*ret = text;
	return 0;
}

static int
take_prompt(struct ask_options *options, const char *word, const char *ids, struct error *err)
{
	if (word && ids)
		return error_set(err, -EINVAL, "both a prompt and --prompt-ids: want one of them");
	if (ids)
		return ask_options_ids(ids, &options->prompt_ids, &options->n_prompt_ids, err);
	if (!word)
		return error_set(err, -EINVAL, "no prompt: want PROMPT, - (stdin) or --prompt-ids");
	if (!strcmp(word, "-"))
		return read_stdin(&options->text, err);
	if (strlen(word) > MAX_PROMPT_BYTES)
		return error_set(err, -EINVAL, "a prompt of %zu bytes: want at most %u",
				 strlen(word), MAX_PROMPT_BYTES);
	options->text = strdup(word);
	return options->text ? 0 : error_sys(err, -ENOMEM, "the prompt");
}

int
ask_options_parse(struct ask_options *ret, int argc, char **argv, struct error *err)
{
	struct ask_options options = { .max_tokens = 128, .top_p = 1 };
	const char *word = NULL, *ids = NULL;
	uint32_t n_words = 0;
	const struct option_def defs[] = {
		{ .name = "--dir", .kind = OPTION_TEXT, .to = &options.dir },
		{ .name = "-n",
		  .kind = OPTION_U64,
		  .to = &options.max_tokens,
		  .min = 1,
		  .max = MAX_CONTEXT },
		{ .name = "--temp", .kind = OPTION_FLOAT, .to = &options.temperature },
		{ .name = "--top-k",
		  .kind = OPTION_U64,
		  .to = &options.top_k,
		  .max = MAX_VOCABULARY },
		{ .name = "--top-p", .kind = OPTION_FLOAT, .to = &options.top_p },
		{ .name = "--seed", .kind = OPTION_U64, .to = &options.seed, .max = UINT64_MAX },
		{ .name = "--json", .kind = OPTION_FLAG, .to = &options.json },
		{ .name = "--ids", .kind = OPTION_FLAG, .to = &options.ids },
		{ .name = "--ignore-stop", .kind = OPTION_FLAG, .to = &options.ignore_stop },
		{ .name = "--logits", .kind = OPTION_TEXT, .to = &options.logits },
		{ .name = "--prompt-ids", .kind = OPTION_TEXT, .to = &ids },
	};
	int code = options_parse(argc, argv, defs, sizeof(defs) / sizeof(defs[0]), &word, 1,
				 &n_words, err);

	if (code < 0)
		return code;
	if (!options.dir)
		return error_set(err, -EINVAL, "--dir DIR is missing: the stack's runtime folder");
	if (options.top_p > 1)
		return error_set(err, -EINVAL, "--top-p %g: want 0 to 1", options.top_p);
	if (access(options.dir, F_OK) < 0)
		return error_path(err, -errno, "%s: is the stack up?", options.dir);
	code = take_prompt(&options, n_words ? word : NULL, ids, err);
	if (code < 0)
		return code;
	*ret = options;
	return 0;
}

void
ask_options_close(struct ask_options *options)
{
	free(options->text);
	free(options->prompt_ids);
}
