/* Makes a pack (loader/pack.h) from a model's files. */
#ifndef HEARTH_LOADER_PACK_WRITE_H
#define HEARTH_LOADER_PACK_WRITE_H

#include "loader/model_files.h"

/* Writes `path`.part, and gives it its name once every byte is on the drive; two at once exclude
 * each other.  `align` is that of experts' ranges: PACK_ALIGN.  Sets the tensors' slices. */
int pack_write(const char *path, struct model_files *files, uint64_t align, struct error *err);

/* Holds a pack to the model it is said to be of: the fingerprint, then every byte by its checksum.
 * Sets the tensors' slices. */
int pack_check(struct model_files *pack, const struct model_files *files, struct error *err);

/* What `loader --pack` does: writes it, or, where it is there already, checks it. */
int pack_make(const char *path, const char *model, struct error *err);

#endif
