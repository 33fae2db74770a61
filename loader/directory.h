/* The arena's own directory: head, tables and the first shard's header, as common/arena.h lays them
 * out. */
#ifndef HEARTH_LOADER_DIRECTORY_H
#define HEARTH_LOADER_DIRECTORY_H

#include "loader/model_files.h"
#include "loader/placement.h"

/* All of the head, the layout's hash too: it is known before there is an arena. */
struct arena_head directory_head(const struct placement *placement,
				 const struct model_files *files);

/* Into a new arena of head->bytes; then checks it and sets the arena's pointers. */
int directory_write(struct arena *arena, const struct arena_head *head,
		    const struct placement *placement, const struct model_files *files,
		    struct error *err);

#endif
