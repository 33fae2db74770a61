/* One start of the loader: from a path to a whole arena, told on the board step by step. */
#ifndef HEARTH_LOADER_LOAD_H
#define HEARTH_LOADER_LOAD_H

#include <stdatomic.h>

#include "common/board.h"
#include "common/service.h"
#include "loader/available.h"
#include "loader/cache_calls.h"
#include "loader/choice.h"
#include "loader/demand.h"
#include "loader/outside.h"
#include "loader/pin_wait.h"
#include "loader/reader.h"
#include "loader/reserve.h"

struct load_options {
	const char *dir;
	const char *model;
	const char *read; /* "auto", "buffered", "direct" */
	uint32_t threads; /* 0: as many as are good for the reader */
	enum arena_pages pages;
	int numa_node; /* or NUMA_NODE_AUTO */
	bool verify;
	uint64_t restarts;   /* of this stage, so far */
	bool pin_before;     /* a slice is written only once the pinner is through with it */
	const char *pack;    /* the file to make; NULL: load */
	double resident_gib; /* of experts and window; 0: the whole model */
	const char *profile; /* which experts; NULL: the first ones of each layer */
	/* The system, as tests put others in its place. */
	const struct io_calls *io;
	const struct cache_calls *cache;
	const struct populate_calls *populate;
	const char *root; /* of /proc and /sys: "" */
};

/* With a resident budget, before load_take_arena. */
struct load_budget {
	bool set;
	uint64_t resident; /* bytes the arena will still take */
	uint64_t outside;  /* bytes of experts that are read as they are needed */
};

struct load {
	const struct load_options *options;
	struct service *service;
	struct board *board;
	struct model_files files;
	char name[128]; /* the model's */
	struct placement placement;
	struct checksum_plan plan;
	struct arena_head head;
	struct available available; /* before the arena was reserved */
	struct load_budget budget;
	struct resident resident; /* with a budget, as the next three */
	struct outside *outside;
	uint32_t *batches;        /* (pieces) in which they are read */
	uint64_t *outside_hashes; /* (layers, experts, N_ROLES) of a pack */
	struct choice choice;
	char fallback[512]; /* why direct, once chosen, was not to be had */
	struct arena arena;
	bool adopted;              /* the arena was there; how it was reserved nobody knows */
	struct reserve reserve;    /* of a new one */
	bool without_pool;         /* whose pages ran out while this process loaded */
	struct populate *populate; /* NULL: nothing to read */
	bool *filled;              /* (slices); of an adopted arena, from the begin */
	uint64_t *checksums;       /* (slices) */
	uint32_t threads;          /* that read */
	struct pieces pieces;
	struct piece_queue *queue;
	struct demand *demand; /* without a budget */
	struct fetch_desk *desk;
	struct pin_wait *pin_wait; /* from the first read on, with pin_before */
	uint64_t published_bytes;  /* as the board had them last */
	atomic_bool read_ended;
};

/* With a resident budget that is smaller than the model. */
static inline bool
load_has_window(const struct load *load)
{
	return load->placement.experts != NULL;
}

/* Reads the headers, checks the model whole and decides every place.  Nothing is allocated for the
 * weights yet. */
int load_plan(struct load *load, struct error *err);

/* An arena to fill: the pinner's where it is the very same, else a new one. */
int load_take_arena(struct load *load, struct error *err);

/* Answers `loader.fetch` from now on. */
int load_open_desk(struct load *load, struct error *err);

/* Reads what is not filled; returns when all is, or with -ECANCELED when the process leaves. */
int load_read(struct load *load, struct error *err);

/* No more writing; the files are let go.  With a budget both go on. */
int load_finish(struct load *load, struct error *err);

/* The start has failed: said on the board and to who waits on `loader.fetch`. */
void load_fail(struct load *load, int rc, const struct error *why);

void load_close(struct load *load); /* the arena too */

/* Closes, and is as new: for load_plan, with an arena of its own and no pages from the pool. */
void load_start_over(struct load *load);

#endif
