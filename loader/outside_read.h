/* One request of a wish for experts outside the resident set: read, put in place, and compared with
 * the checksums that a pack has.  Any number of threads at once, each with a bounce of its own. */
#ifndef HEARTH_LOADER_OUTSIDE_READ_H
#define HEARTH_LOADER_OUTSIDE_READ_H

#include "loader/batch.h"
#include "loader/outside.h"

/* `windows`: (request->n) of this request; each one's tag is its matrix in config->hashes. */
int outside_read(const struct outside_config *config, struct fetch *fetch,
		 const struct batch_request *request, const struct batch_window *windows,
		 struct bounce *bounce, struct error *err);

#endif
