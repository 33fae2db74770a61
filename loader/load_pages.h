/* The arena's pages in one start: reserved, populated ahead of the readers, told on the board. */
#ifndef HEARTH_LOADER_LOAD_PAGES_H
#define HEARTH_LOADER_LOAD_PAGES_H

#include "loader/load.h"

/* A new arena, with room for its directory faulted in. */
int load_reserve(struct load *load, struct error *err);

/* Opens load->populate and starts its threads. */
int load_populate(struct load *load, struct error *err);

/* Once all is in place: ends the populate, reads what was got and publishes it. */
void load_publish_pages(struct load *load);

/* Reading failed since the pool, which was not asked for by name, did not give what it had set
 * aside: a new arena without it will do. */
bool load_pages_ran_out(const struct load *load);

/* Adds to the line of a load that failed with `rc` what to do where pages of the pool are why. */
void load_pages_explain(const struct load *load, int rc, struct error *err);

#endif
