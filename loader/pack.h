/* A pack: a whole model in one file, its experts' roles side by side, so that an expert is one
 * range of whole blocks.  All numbers are little-endian.
 *
 *   0               struct pack_head
 *   header_offset   the GGUF header of the model's first file, as it stands there
 *   tensors_offset  struct pack_tensor [n_tensors]
 *   hashes_offset   uint64_t [n_hashes]: of each checksum unit, in the order of common/checksum.h
 *   ...             the trunk's tensors, then layer by layer its experts
 *
 * The directory (all before the trunk) has a hash of its own, so that damage there is told from
 * another format; the weights have the units' hashes, which the reader holds them to. */
#ifndef HEARTH_LOADER_PACK_H
#define HEARTH_LOADER_PACK_H

#include "loader/model_files.h"

#define PACK_MAGIC 0x6b63617048747248ull /* "HrtHpack" */
#define PACK_VERSION 1u
#define PACK_ALIGN 4096u /* of an expert's range */

struct pack_tensor {
	char name[GGUF_MAX_NAME];
	uint32_t type, n_dims;
	uint64_t dims[GGUF_MAX_DIMS];
	uint64_t offset; /* in the pack */
	uint64_t bytes;  /* without what lies between experts */
	uint64_t stride; /* from one expert to the next; 0 in the trunk */
};

struct pack_head {
	uint64_t magic;
	uint32_t version, zero;
	uint64_t bytes;       /* of the whole file */
	uint64_t fingerprint; /* of the model, by loader/fingerprint.h */
	uint64_t header_offset, header_bytes;
	uint64_t tensors_offset, n_tensors;
	uint64_t hashes_offset, n_hashes;
	uint64_t directory_hash; /* XXH3-64 of 0 to the hashes' end, this field as 0 */
};

/* Whether a file says that it is a pack, of whatever version. */
bool pack_is(const char *path);

/* Opens it as a model's only file.  -EBADMSG and one line: another version, cut, damaged, or not
 * what its fingerprint says. */
int pack_open(struct model_files *files, const char *path, struct error *err);

/* Of the directory up to `end`; `bytes` may be changed and is as it was afterwards. */
uint64_t pack_directory_hash(uint8_t *bytes, uint64_t end);

#endif
