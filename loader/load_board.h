/* What the loader tells on its board, and when. */
#ifndef HEARTH_LOADER_LOAD_BOARD_H
#define HEARTH_LOADER_LOAD_BOARD_H

#include "loader/load.h"

/* Names the arena with all slices as they are, and the reader. */
int load_publish_arena(struct load *load, struct error *err);

/* The reader's events; arg is the struct load. */
void load_slice_begun(void *arg, uint32_t slice);
void load_bytes_moved(void *arg, uint64_t bytes);
void load_slice_filled(void *arg, uint32_t slice, uint64_t checksum);
void load_demanded(void *arg);

/* What was asked for on `loader.fetch` and what it took (board_refresh). */
void load_fill_demands(void *load, Hearth__State *state);

void load_publish_ready(struct load *load);

#endif
