/* hearth ask: one request, its answer on stdout as it comes, or one JSON object at its end. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/log.h"
#include "common/utf8.h"
#include "scheduler/ask_options.h"
#include "scheduler/asking.h"
#include "scheduler/hearth.h"
#include "scheduler/output.h"

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
	return output_flush();
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
	int code;

	if (!answer)
		return -ENOMEM;
	if (asking->why.text[0])
		json_object_set_new(answer, "error", json_string(asking->why.text));
	json_dumpf(answer, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	code = output_flush();
	json_decref(answer);
	return code;
}

/* Where the logits go: opened before anything is asked.  A file is written whole or not at all,
 * under another name first; what is no file (a pipe, a device) is written to as it is. */
struct logits_file {
	FILE *file;
	const char *path;
	char temporary[4096]; /* "" where there is none */
};

static int
logits_open(struct logits_file *logits, const char *path, struct error *err)
{
	struct stat st;
	bool exists = stat(path, &st) == 0;

	*logits = (struct logits_file){ .path = path };
	if (exists && S_ISDIR(st.st_mode))
		return error_path(err, -EISDIR, "--logits %s", path);
	if ((!exists || S_ISREG(st.st_mode)) &&
	    snprintf(logits->temporary, sizeof(logits->temporary), "%s.%d.part", path,
		     (int)getpid()) >= (int)sizeof(logits->temporary))
		return error_path(err, -ENAMETOOLONG, "--logits %s", path);
	logits->file = fopen(logits->temporary[0] ? logits->temporary : path, "wbe");
	return logits->file ? 0 : error_path(err, -errno, "--logits %s", path);
}

static int
logits_write(struct logits_file *logits, const struct asking *asking, struct error *err)
{
	bool written;

	if (!asking->n_logits)
		return error_set(err, -ENODATA, "--logits %s: no token came, so there are none",
				 logits->path);
	written = fwrite(asking->logits, 1, asking->n_logits, logits->file) == asking->n_logits;
	written = fclose(logits->file) == 0 && written;
	logits->file = NULL;
	if (!written || (logits->temporary[0] && rename(logits->temporary, logits->path) < 0))
		return error_path(err, -errno, "--logits %s", logits->path);
	logits->temporary[0] = '\0';
	return 0;
}

static void
logits_close(struct logits_file *logits)
{
	if (logits->file)
		fclose(logits->file);
	if (logits->temporary[0])
		unlink(logits->temporary);
}

/* What is left to say once the answer is over. */
static int
print_end(const struct ask_options *options, const struct asking *asking, struct error *err)
{
	int code = 0;

	if (options->json)
		code = print_json(asking);
	else if (!options->ids && asking->n_text && isatty(STDOUT_FILENO)) {
		putchar('\n');
		code = output_flush();
	}
	if (code < 0)
		return error_sys(err, code, "writing the answer");
	if (!options->json && !options->ids && asking->n_ids && !asking->n_text)
		log_warn(
		    "ask: %zu tokens without text (has the model a tokenizer?): --ids prints them",
		    (size_t)asking->n_ids);
	if (!strcmp(asking->finish, "error"))
		return error_set(
		    err, asking->cause == HEARTH__FRONT_ERROR__FRONT_BAD ? -EINVAL : -EIO, "%.500s",
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
	struct logits_file logits = { 0 };
	int code = 0, exit_code = 0;

	prepare(&asking, &sampling, options);
	if (options->logits)
		code = logits_open(&logits, options->logits, err);
	if (code == 0)
		code = asking_open(&asking, err);
	if (code == 0)
		code = asking_run(&asking, err);
	if (code == 0)
		code = print_end(options, &asking, err);
	if (code == 0 && !strcmp(asking.finish, "cancelled"))
		exit_code = HEARTH_INTERRUPTED;
	else if (code == 0 && options->logits)
		code = logits_write(&logits, &asking, err);
	asking_close(&asking);
	logits_close(&logits);
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
	if (code == -EPIPE)
		return HEARTH_UNREAD;
	if (code < 0) {
		log_error("ask: %s", err.text);
		return error_exit_code(code);
	}
	return code;
}
