/* One load of the files of fake_files.h into memory, and what must come of it (cmocka). */
#ifndef HEARTH_TESTS_READ_CASE_H
#define HEARTH_TESTS_READ_CASE_H

#include "loader/reader.h"
#include "tests/fake_files.h"

struct read_seen {
	uint32_t begun[8], filled[8], demanded, fell_back, ended;
	uint64_t checksums[8];
	uint64_t bytes;
};

struct read_case {
	struct model_files files;
	struct placement placement;
	struct checksum_plan plan;
	struct pieces pieces;
	struct piece_queue *queue;
	uint8_t *arena; /* all 0xa5 at first */
	uint64_t arena_bytes;
	struct read_seen seen;
	struct error err;
};

/* skip: slices that are filled already, or NULL. */
void read_case_open(struct read_case *load, const bool *skip);
/* Every tensor lies `shift` bytes behind where it would be congruent to its file. */
void read_case_open_shifted(struct read_case *load, uint32_t shift);
void read_case_close(struct read_case *load);

struct reader_config read_case_config(struct read_case *load, uint32_t threads, bool direct);
int read_case_run(struct read_case *load, uint32_t threads, bool direct);

/* Runs and closes: every byte is in place, every checksum right, and no other byte written. */
void read_case_expect(struct read_case *load, uint32_t threads, bool direct);
/* The same, direct where it can be had: so many files cannot, each said once. */
void read_case_expect_fallback(struct read_case *load, uint32_t files);
/* Runs and closes: it ends with `code` and a line that says `part`. */
void read_case_stopped(struct read_case *load, bool direct, int code, const char *part);

#endif
