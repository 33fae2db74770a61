/* hearth ask: one request, its answer on stdout as it comes, or one JSON object at its end. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/log.h"
#include "scheduler/ask_options.h"
#include "scheduler/asking.h"
#include "scheduler/hearth.h"
#include "scheduler/utf8.h"

/* Flushed each time: a reader at a pipe sees each token. */
static int
print_more(void *arg, const uint32_t *ids, size_t n_ids, const uint8_t *text, size_t n_text)
{
	const struct ask_options *options = arg;

	if (options->json)
		return 0;
	for (size_t i = 0; options->ids && i < n_ids; i++)
		printf("%u\n", ids[i]);
	if (!options->ids && n_text)
		fwrite(text, 1, n_text, stdout);
	return fflush(stdout) ? -EPIPE : 0;
}

/* JSON holds characters only: each byte that belongs to none becomes U+FFFD. */
static json_t *
json_of_text(const uint8_t *text, size_t n)
{
	uint8_t *clean = malloc(3 * n + 1);
	size_t n_clean = 0;
	uint32_t character;
	json_t *string;

	if (!clean)
		return NULL;
	for (size_t i = 0; i < n;) {
		size_t length = utf8_decode(text + i, n - i, &character);

		n_clean += utf8_encode(length ? character : 0xfffd, clean + n_clean);
		i += length ? length : 1;
	}
	string = json_stringn((const char *)clean, n_clean);
	free(clean);
	return string;
}

static json_t *
json_of_ids(const uint32_t *ids, size_t n)
{
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(array, json_integer(ids[i]));
	return array;
}

static int
print_json(const struct asking *asking)
{
	json_t *answer =
	    json_pack("{s:o, s:o, s:o, s:s, s:{s:f, s:f, s:f}, s:f}", "prompt_ids",
		      json_of_ids(asking->prompt_ids, asking->n_prompt_ids), "ids",
		      json_of_ids(asking->ids, asking->n_ids), "text",
		      json_of_text(asking->text, asking->n_text), "finish", asking->finish,
		      "seconds", "queued", asking->queued_s, "first_token", asking->first_token_s,
		      "total", asking->total_s, "compute_seconds", asking->compute_s);
	int code = 0;

	if (!answer)
		return -ENOMEM;
	if (asking->why.text[0])
		json_object_set_new(answer, "error", json_string(asking->why.text));
	if (json_dumpf(answer, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) < 0 ||
	    putchar('\n') < 0 || fflush(stdout))
		code = -EPIPE;
	json_decref(answer);
	return code;
}

/* Whole or not at all: under another name first. */
static int
write_logits(const char *path, const struct asking *asking, struct error *err)
{
	char temporary[4096];
	FILE *file;
	bool written;
	int code;

	if (!asking->n_logits)
		return error_set(err, -ENODATA, "%s: no token came, so there are no logits", path);
	if (snprintf(temporary, sizeof(temporary), "%s.%d.part", path, (int)getpid()) >=
	    (int)sizeof(temporary))
		return error_sys(err, -ENAMETOOLONG, "%s", path);
	file = fopen(temporary, "wbe");
	if (!file)
		return error_sys(err, -errno, "%s", temporary);
	written = fwrite(asking->logits, 1, asking->n_logits, file) == asking->n_logits;
	written = fclose(file) == 0 && written;
	if (written && rename(temporary, path) == 0)
		return 0;
	code = -errno;
	unlink(temporary);
	return error_sys(err, code, "%s", path);
}

/* What is left to say once the answer is over. */
static int
print_end(const struct ask_options *options, const struct asking *asking, struct error *err)
{
	int code = 0;

	if (options->json)
		code = print_json(asking);
	else if (!options->ids && asking->n_text && isatty(STDOUT_FILENO))
		code = putchar('\n') < 0 || fflush(stdout) ? -EPIPE : 0;
	if (code < 0)
		return error_sys(err, code, "writing the answer");
	if (!strcmp(asking->finish, "error"))
		return error_set(err, -EIO, "%.500s",
				 asking->why.text[0] ? asking->why.text : "the worker failed");
	return 0;
}

static void
prepare(struct asking *asking, Hearth__Sampling *sampling, struct ask_options *options)
{
	Hearth__Submit *submit = &asking->submit;

	hearth__sampling__init(sampling);
	sampling->temperature = (float)options->temperature;
	sampling->top_k = (uint32_t)options->top_k;
	sampling->top_p = (float)options->top_p;
	sampling->seed = options->seed;
	asking->dir = options->dir;
	asking->take = print_more;
	asking->arg = options;
	hearth__submit__init(submit);
	if (options->text)
		submit->text = options->text;
	submit->prompt_ids = options->prompt_ids;
	submit->n_prompt_ids = options->n_prompt_ids;
	submit->max_tokens = (uint32_t)options->max_tokens;
	submit->sampling = sampling;
	submit->want_logits = options->logits != NULL;
	submit->ignore_stop = options->ignore_stop;
}

static int
ask(struct ask_options *options, struct error *err)
{
	struct asking asking = { 0 };
	Hearth__Sampling sampling;
	int code, exit_code = 0;

	prepare(&asking, &sampling, options);
	code = asking_open(&asking, err);
	if (code == 0)
		code = asking_run(&asking, err);
	if (code == 0)
		code = print_end(options, &asking, err);
	if (code == 0 && !strcmp(asking.finish, "cancelled"))
		exit_code = HEARTH_INTERRUPTED;
	else if (code == 0 && options->logits)
		code = write_logits(options->logits, &asking, err);
	asking_close(&asking);
	return code < 0 ? code : exit_code;
}

int
hearth_ask(int argc, char **argv)
{
	struct ask_options options = { 0 };
	struct error err;
	/* argv[-1] is "ask": what the parser takes for the program's name. */
	int code = ask_options_parse(&options, argc + 1, argv - 1, &err);

	if (code == 0)
		code = ask(&options, &err);
	ask_options_close(&options);
	if (code < 0) {
		log_error("ask: %s", err.text);
		return error_exit_code(code);
	}
	return code;
}
