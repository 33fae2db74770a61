/* What a model is, by its content: the same for a copy of its files and for a pack made from them,
 * another for any other model, quant or split: what a pack and a profile are kept by.  (The stamp
 * of model_files.h is of the very files, and changes with a copy.)  It reads a few KiB, so it can
 * be asked at each start; that every byte is right is what checksums are for.
 *
 * XXH3-64 of, in this order: the first file's GGUF header, as it stands there; for each tensor in
 * the order of names its name (64 bytes), type, number of dimensions, the four dimensions and its
 * bytes (little-endian); and FINGERPRINT_SAMPLES samples.  Sample i is of tensor i * n / samples in
 * that order: the first FINGERPRINT_SAMPLE_BYTES (or all, if fewer) of its expert i modulo their
 * number, or of the tensor itself where it has none. */
#ifndef HEARTH_LOADER_FINGERPRINT_H
#define HEARTH_LOADER_FINGERPRINT_H

#include "loader/model_files.h"

#define FINGERPRINT_SAMPLES 64u
#define FINGERPRINT_SAMPLE_BYTES 64u

int fingerprint_read(const struct model_files *files, uint64_t *ret, struct error *err);

#endif
