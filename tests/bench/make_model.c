/* make_model: writes a synthetic model, tests/synthetic_model.h says of what.
 *
 *   make_model [--shape NAME] [--layers N | --size-gib N] [--zipf S] [--seed N] FILE
 *
 * --zipf 0: every expert is chosen equally often; 1: one of rank r about 1 / r as often as the
 * first, and so on. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/log.h"
#include "common/options.h"
#include "proto/limits.h"
#include "tests/synthetic_model.h"

struct words {
	uint64_t layers, threads;
	double gib;
	const char *tokenizer, *path;
};

static int
read_words(int argc, char **argv, struct words *words, struct synthetic *ret, struct error *err)
{
	static const char *const names[] = { SYNTHETIC_SHAPES, NULL };
	static const char *const tokenizers[] = { "none", NULL };
	const struct option_def defs[] = {
		{ .name = "--shape", .kind = OPTION_TEXT, .to = &ret->shape, .choices = names },
		{ .name = "--layers",
		  .kind = OPTION_U64,
		  .to = &words->layers,
		  .min = 1,
		  .max = MAX_LAYERS },
		{ .name = "--size-gib", .kind = OPTION_FLOAT, .to = &words->gib },
		{ .name = "--zipf", .kind = OPTION_FLOAT, .to = &ret->zipf },
		{ .name = "--seed", .kind = OPTION_U64, .to = &ret->seed, .max = UINT64_MAX },
		{ .name = "--threads",
		  .kind = OPTION_U64,
		  .to = &words->threads,
		  .min = 1,
		  .max = SYNTHETIC_MAX_THREADS },
		{ .name = "--tokenizer",
		  .kind = OPTION_TEXT,
		  .to = &words->tokenizer,
		  .choices = tokenizers },
	};
	uint32_t n;
	int rc = options_parse(argc, argv, defs, sizeof(defs) / sizeof(defs[0]), &words->path, 1,
			       &n, err);

	if (rc == 0 && n != 1)
		return error_set(err, -EINVAL, "want the path of the file to write");
	if (rc == 0 && words->layers && words->gib > 0)
		return error_set(err, -EINVAL, "--layers and --size-gib: want one of them");
	if (rc == 0 && !(ret->zipf >= 0 && ret->zipf <= 4))
		return error_set(err, -EINVAL, "--zipf %g: want 0 to 4", ret->zipf);
	ret->layers = (uint32_t)words->layers;
	ret->bytes = (uint64_t)(words->gib * (1 << 30));
	ret->threads = (uint32_t)words->threads;
	return rc;
}

int
main(int argc, char **argv)
{
	struct words words = { .threads = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) };
	struct synthetic synthetic = { .shape = "tiny", .seed = 1 };
	struct synthetic_made made;
	struct error err;
	int rc;

	log_open("make_model");
	if (words.threads > SYNTHETIC_MAX_THREADS)
		words.threads = SYNTHETIC_MAX_THREADS;
	rc = read_words(argc, argv, &words, &synthetic, &err);
	if (rc == 0)
		rc = synthetic_write(&synthetic, words.path, &made, &err);
	if (rc == 0)
		log_info("%s: %s of %" PRIu32 " layers, %" PRIu64 " bytes", words.path,
			 synthetic.shape, made.layers, made.bytes);
	else
		log_error("%s", err.text);
	return rc < 0 ? error_exit_code(rc) : 0;
}
