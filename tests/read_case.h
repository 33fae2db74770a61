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
	uint8_t *arena;
	struct read_seen seen;
	struct error err;
};

/* skip: slices that are filled already, or NULL. */
void read_case_open(struct read_case *load, const bool *skip);
void read_case_close(struct read_case *load);

struct reader_config read_case_config(struct read_case *load, uint32_t threads, bool direct);
int read_case_run(struct read_case *load, uint32_t threads, bool direct);

/* Runs and closes: every byte is in place and every checksum right. */
void read_case_expect(struct read_case *load, uint32_t threads, bool direct);
/* Runs and closes: it ends with `code` and a line that says `part`. */
void read_case_stopped(struct read_case *load, bool direct, int code, const char *part);

#endif
