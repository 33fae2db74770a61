/* Which reader: buffered reads copy every byte through the file cache, which pays only where the
 * cache has the files already or can keep them for the next start.  Plain arithmetic; no I/O. */
#ifndef HEARTH_LOADER_CHOICE_H
#define HEARTH_LOADER_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the cache can keep what it needs of `read` bytes beside an arena that is still to be
 * reserved: room = max(0, available - arena - margin), need = min(read, max(share * read, floor)).
 */
bool file_cache_keeps(uint64_t available, uint64_t arena, uint64_t read, uint64_t margin,
		      double share, uint64_t floor);

struct choice_rule {
	uint64_t margin; /* for everybody else */
	double share;    /* of what is read must find room */
	uint64_t floor;
};

/* All is read once at each start. */
extern const struct choice_rule choice_rule_whole;
/* Experts outside the budget are read as they are needed, some far more often than others. */
extern const struct choice_rule choice_rule_budget;

struct choice_facts {
	bool budget;        /* a resident budget is set */
	bool built;         /* the resident set is: this is the second decision */
	uint64_t available; /* before the arena is reserved; AVAILABLE_UNKNOWN: nothing says */
	const char *limit;  /* what says so */
	uint64_t arena;     /* of it, not resident yet; with a budget: min(budget, all experts) */
	uint64_t read;      /* bytes that will really be read from the files */
	const char *probe;  /* how the cache was looked at; "": not at all */
	uint64_t looked_bytes; /* at these of the files */
	uint64_t cached_bytes; /* that many were cached */
};

struct choice {
	struct choice_facts facts;
	uint64_t room, need;
	bool keeps, cached;
	bool direct;
	char reason[640]; /* the verdict in one line, with every number */
};

/* At least 3 of 4 bytes. */
bool choice_cached(const struct choice_facts *facts);

/* Whole arena: direct when the files are neither cached nor keepable.  Budget: direct when they are
 * not keepable.  Unknown memory: buffered. */
void choice_make(struct choice *ret, const struct choice_facts *facts);

#endif
