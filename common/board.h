/* A stage's board: its one State message, which others follow and anyone may ask for; and a watch:
 * the board of another stage, as last heard.  Messages are protobuf-c's Hearth__State. */
#ifndef HEARTH_COMMON_BOARD_H
#define HEARTH_COMMON_BOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "proto/state.pb-c.h"

struct board;
struct service;

/* Serves `<stage>.state` and publishes on `<stage>.state.pub`, again every second.  The state
 * starts as PHASE_STARTING with stage, pid and since set. */
int board_open(struct board **ret, const char *dir, const char *stage, struct error *err);
void board_close(struct board *board);

/* Takes the lock and gives the state to change; board_publish lets go and tells everybody.  The
 * state owns its strings: set them with board_text. */
Hearth__State *board_edit(struct board *board);
void board_publish(struct board *board);

/* Sets a string field of the state (between edit and publish) to a new text, made fit by
 * utf8_clean; frees the old one. */
__attribute__((format(printf, 2, 3))) void board_text(char **field, const char *format, ...);

/* The usual three lines: edit, set phase and reason, publish. */
__attribute__((format(printf, 3, 4))) void board_phase(struct board *board, Hearth__Phase phase,
						       const char *format, ...);

/* This process is the stage's first one but so many, as its supervisor says. */
void board_restarts(struct board *board, uint64_t n);

/* The working thread moved: cheap, published with the next heartbeat. */
void board_progress(struct board *board);

/* Figures that change too often to be told each time: `fn` brings them up to date, with the state
 * locked, for whoever asks and for each heartbeat.  NULL: nobody does any more. */
void board_refresh(struct board *board, void (*fn)(void *arg, Hearth__State *state), void *arg);

/* Makes the sub-message or array if it is not there; zeroed.  Call between edit and publish. */
Hearth__Reader *board_reader(Hearth__State *state);
Hearth__Pinning *board_pinning(Hearth__State *state);
Hearth__Computing *board_computing(Hearth__State *state);
Hearth__Cache *board_cache(Hearth__Computing *computing);
Hearth__Serving *board_serving(Hearth__State *state);
Hearth__Arena *board_arena(Hearth__State *state);
Hearth__Pages *board_pages(Hearth__State *state);
int board_slices(Hearth__State *state, uint32_t n); /* n zeroed slices */

struct watch;

/* Follows `stage`; wakes `service` at each change and loss. */
int watch_open(struct watch **ret, const char *dir, const char *stage, struct service *service,
	       struct error *err);
void watch_close(struct watch *watch);

/* The last state heard while the stage is connected, else NULL.  The caller lets it go with
 * hearth__state__free_unpacked(state, NULL). */
Hearth__State *watch_get(struct watch *watch);

/* Something is new since *seen, which is set: another state, or a loss.  A heartbeat that repeats
 * the last state is not.  Cheap. */
bool watch_changed(struct watch *watch, uint64_t *seen);

/* Asks a stage once.  -ECONNREFUSED: it is not there; -ETIMEDOUT: it hangs. */
int board_ask(const char *dir, const char *stage, int timeout_ms, Hearth__State **ret,
	      struct error *err);

#endif
