/* The first half of model_read: the shape from the metadata, every limit checked, and whatever
 * would ask for arithmetic that Hearth does not have refused. */
#ifndef HEARTH_COMMON_MODEL_KEYS_H
#define HEARTH_COMMON_MODEL_KEYS_H

#include "common/model.h"
#include "proto/limits.h"

/* Sets all of *ret but what tensors tell: layers, vocabulary, tied and the matrices. */
int model_read_keys(struct model *ret, const struct gguf *gguf, const char *file,
		    struct error *err);

#endif
