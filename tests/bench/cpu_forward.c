/* Tokens per second of the forward pass on the CPU: cpu_forward MODEL [THREADS ...] */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/golden.h"

#define PROMPT 256u
#define DECODED 128u
#define CONTEXT (PROMPT + DECODED)

/* Seconds for positions from .. to - 1, `step` a call. */
static double
time_tokens(struct compute *compute, const uint32_t *ids, uint32_t from, uint32_t to, uint32_t step,
	    float *logits)
{
	uint64_t start = clock_ns();
	struct error err;

	for (uint32_t at = from; at < to; at += step)
		if (compute_cpu.forward(compute, ids + at, step, at, logits, &err) < 0) {
			fprintf(stderr, "%s\n", err.text);
			exit(EXIT_SYSTEM);
		}
	return (double)(clock_ns() - start) / NS_PER_SECOND;
}

static void
bench(const struct golden_model *golden, uint32_t threads)
{
	struct compute_config config = { .model = &golden->model,
					 .arena = golden->bytes,
					 .trunk = golden->bytes,
					 .context = CONTEXT,
					 .threads = threads,
					 .places = golden->places };
	float *logits = calloc(golden->model.vocabulary, sizeof(*logits));
	uint32_t ids[CONTEXT];
	struct compute *compute;
	double prompt, decode;
	struct error err;

	config.kv = malloc(compute_cpu.kv_bytes(config.model, CONTEXT));
	if (!logits || !config.kv || compute_cpu.open(&compute, &config, &err) < 0)
		exit(EXIT_SYSTEM);
	for (uint32_t i = 0; i < CONTEXT; i++)
		ids[i] = i * 37 % golden->model.vocabulary;
	time_tokens(compute, ids, 0, PROMPT, COMPUTE_BATCH, NULL);
	prompt = time_tokens(compute, ids, 0, PROMPT, COMPUTE_BATCH, NULL);
	decode = time_tokens(compute, ids, PROMPT, CONTEXT, 1, logits);
	printf("%s, %u threads: prompt %.0f tokens/s, decode %.0f tokens/s (%.2f ms a token)\n",
	       compute_cpu.kernels(compute), threads, PROMPT / prompt, DECODED / decode,
	       decode / DECODED * 1e3);
	compute_cpu.close(compute);
	free(config.kv);
	free(logits);
}

int
main(int argc, char **argv)
{
	struct golden_model golden;

	if (argc < 2) {
		fprintf(stderr, "cpu_forward MODEL [THREADS ...]\n");
		return EXIT_INPUT;
	}
	golden_model_open(&golden, argv[1]);
	for (int i = 2; i < argc; i++)
		bench(&golden, (uint32_t)strtoul(argv[i], NULL, 10));
	if (argc == 2)
		bench(&golden, 1);
	golden_model_close(&golden);
	return 0;
}
