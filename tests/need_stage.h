/* A forward of the plain C arithmetic on a tiny model whose experts are poison until they are
 * published: by a loader that answers `loader.fetch`, or by the pinner's board.  The device is one
 * of the test's: its memory is the host's, and copies to it happen when they are waited for and not
 * before, so that whoever overwrites their source too early is found out. */
#ifndef HEARTH_TESTS_NEED_STAGE_H
#define HEARTH_TESTS_NEED_STAGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/device_ops.h"
#include "tests/arena_maker.h"
#include "tests/scratch.h"
#include "worker/table.h"

#define NEED_CONTEXT 64u
#define NEED_CALLS 256u
#define NEED_POISON 0xff /* of each byte: as a float, NaN */

struct need_copy {
	void *to;
	const void *from;
	uint64_t bytes;
};

struct need_stage {
	struct scratch scratch;
	struct service service;
	struct board *pinner;
	struct upstream upstream;
	struct server *loader; /* NULL: none is there */
	struct arena whole;    /* as the file has it */
	struct arena arena;    /* as the worker sees it; a window behind its slices */
	uint64_t window;       /* offset */
	struct model model;
	struct device device;
	struct need_copy copies[64];
	uint32_t n_copies;
	uint64_t copied; /* calls of copy_in, so far */
	struct fetcher fetcher;
	struct table table;
	struct compute *compute;
	uint8_t *kv;
	/* the loader's; under lock */
	pthread_mutex_t lock;
	bool hold;         /* keeps calls */
	int32_t refuses;   /* with this code */
	bool out_of_arena; /* names places that are none */
	struct gate asked;
	struct call *call; /* kept */
	Hearth__Fetch *question;
	bool *was_asked; /* (layers, experts) */
	uint32_t n_asked;
	struct error err;
	int rc; /* of need_forward_begin's forward */
	pthread_t thread;
	float *logits; /* (vocabulary) */
};

/* `from_host`: the device computes from the arena.  `resident`: experts of each layer that have a
 * home (all: the model's number); the others go through the window. */
void need_open(struct need_stage *stage, bool from_host, uint32_t resident);
void need_close(struct need_stage *stage);

/* need_device.c */
extern const struct device_ops need_device_ops;

/* need_loader.c: where in the arena an expert's matrix belongs. */
uint64_t need_home(const struct need_stage *stage, uint32_t layer, uint32_t expert, enum role role);
void need_loader_start(struct need_stage *stage);
void need_loader_stop(struct need_stage *stage);
/* Publishes what the kept call asks for, and answers it. */
void need_loader_answer(struct need_stage *stage);

/* The pinner says that a layer is filled; its bytes are. */
void need_publish(struct need_stage *stage, uint32_t layer, bool registered);
/* The pinner says the same as before, once more. */
void need_word(struct need_stage *stage);

/* Three tokens from position 0 on. */
int need_forward(struct need_stage *stage);
void need_forward_begin(struct need_stage *stage);
int need_forward_end(struct need_stage *stage);

/* The same tokens on an arena that is whole: the caller frees it. */
float *need_reference(struct need_stage *stage);

/* An expert was used exactly if it was asked for. */
void need_check_asked(struct need_stage *stage);

#endif
