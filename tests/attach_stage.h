/* A worker beside the pinner's own desk, registrar and mover on the cpu device, all in one process;
 * the loader is a message that the test writes. */
#ifndef HEARTH_TESTS_ATTACH_STAGE_H
#define HEARTH_TESTS_ATTACH_STAGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "pinner/pinner.h"
#include "tests/arena_maker.h"
#include "tests/fake_compute.h"
#include "tests/scratch.h"
#include "worker/attach.h"

#define CONTEXT 128u

struct attach_stage {
	struct scratch scratch;
	struct arena arena;
	Hearth__State *loader; /* as the registrar is to hear it */
	struct service pinner_service, service;
	struct pinner pinner;
	struct server *desk;
	pthread_t mover;
	bool gpu; /* gpu_make has been called */
	/* one worker's life */
	struct board *board;
	struct upstream upstream;
	struct attach_config config;
	struct attached attached;
	struct error err;
};

/* cmocka's setup and teardown: the pinner is there, nothing is loaded yet. */
int attach_setup(void **state);
int attach_teardown(void **state);

void loader_fill(struct attach_stage *stage, uint32_t slice);
void loader_fill_all(struct attach_stage *stage);

void pinner_start(struct attach_stage *stage);
void pinner_stop(struct attach_stage *stage);
/* From here on pinner and worker compute on a device that does not read the arena but where it is
 * registered, and that has so much memory free: host memory in truth.  Before anything is filled.
 */
void gpu_make(struct attach_stage *stage, uint64_t free_bytes);
/* Room in slots for `n` experts beside what a worker borrows. */
void pinner_cap(struct attach_stage *stage, uint32_t n);
uint64_t pinner_lent(struct attach_stage *stage, const char *key);
uint64_t pinner_moved(struct attach_stage *stage);

/* All but attach_open; config may be changed before it. */
void worker_prepare(struct attach_stage *stage);
void worker_attach(struct attach_stage *stage);
void worker_leave(struct attach_stage *stage);
/* Moves experts into slots until there is nothing to move; `most`: as table_choose's.  Returns how
 * often it asked the pinner. */
uint32_t worker_move(struct attach_stage *stage, uint32_t most);
/* Follows the pinner until its state says what the test wants. */
void worker_follow(struct attach_stage *stage, bool (*wanted)(const struct attach_stage *));
bool all_usable(const struct attach_stage *stage);
bool trunk_usable(const struct attach_stage *stage);
bool first_layer_usable(const struct attach_stage *stage);

#endif
