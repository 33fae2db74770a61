/* loader/choice.h: the table of decisions, row by row, in GiB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "loader/available.h"
#include "loader/choice.h"

#define GIB (1ull << 30)

static uint64_t
gib(double n)
{
	return (uint64_t)(n * (double)GIB);
}

struct row {
	const char *rule, *what;
	double available, arena, read;
	bool keeps;
};

/* clang-format off */
static const struct row rows[] = {
	{ "classic", "96 GB PC, the wrong inputs of a first version", 83.0, 72.0, 103.7, false },
	{ "classic", "96 GB, budget 72, before the copy",             83.0, 71.7,  0,    true },
	{ "classic", "96 GB, budget 72, copy built (48.94 resident)", 34.06, 0,   22.76, true },
	{ "classic", "96 GB, budget 40, before",                      83.0, 40,   31.7,  true },
	{ "classic", "96 GB, budget 40, built",                       43.0,  0,   31.7,  true },
	{ "classic", "64 GB, budget 40, before",                      55.0, 40,   31.7,  false },
	{ "classic", "64 GB, budget 40, built",                       15.0,  0,   31.7,  false },
	{ "classic", "32 GB, budget 16, before",                      26.0, 16,   55.7,  false },
	{ "classic", "32 GB, budget 16, built",                       10.0,  0,   55.7,  false },
	{ "classic", "32 GB, 34 GiB of experts, budget 8",            26.0,  8,   26.0,  false },
	{ "classic", "64 GB, 33 GiB arena, 36.5 GiB of files",        57,   33,   36.5,  false },
	{ "classic", "128 GB, 33 GiB arena",                         117,   33,   36.5,  true },
	{ "classic", "nothing available",                              0,    0,    1,    false },
	{ "classic", "nothing to read",                               10,   20,    0,    true },
	{ "budget",  "31 GB + 12 GB GPU, budget 18, built",            6.4,  0,   13.6,  true },
	{ "budget",  "31 GB + 12 GB GPU, budget 18, before",          25,   18,   13.6,  true },
	{ "budget",  "cgroup 32, budget 18 built",                    12.1,  0,   22,    true },
	{ "budget",  "cgroup 32, budget 24 built",                     3.8,  0,   16,    true },
	{ "budget",  "cgroup 20, budget 12 built",                     4.7,  0,   28,    true },
	{ "budget",  "cgroup 12, budget 6 built",                      3.5,  0,   34,    true },
	{ "budget",  "no room",                                        1.0,  0,   47,    false },
	{ "budget",  "under the floor",                                2.4,  0,   47,    false },
	{ "budget",  "just a twentieth",                               3.4,  0,   47,    true },
	{ "budget",  "just under a twentieth",                         3.3,  0,   47,    false },
	{ "budget",  "big read set",                                   4.0,  0,  200,    false },
	{ "budget",  "big read set with room",                        12.0,  0,  200,    true },
	{ "budget",  "read below the floor",                           2.5,  0,    1,    true },
};
/* clang-format on */

static void
every_row_of_the_table_holds(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct row *row = &rows[i];
		const struct choice_rule *rule =
		    strcmp(row->rule, "classic") == 0 ? &choice_rule_whole : &choice_rule_budget;

		if (file_cache_keeps(gib(row->available), gib(row->arena), gib(row->read),
				     rule->margin, rule->share, rule->floor) != row->keeps)
			fail_msg("%s: %s: want %s", row->rule, row->what,
				 row->keeps ? "kept" : "not kept");
	}
}

static struct choice_facts
facts_of(double available, double arena, double read, double cached)
{
	return (struct choice_facts){ .available = gib(available),
				      .limit = "MemAvailable",
				      .arena = gib(arena),
				      .read = gib(read),
				      .probe = "cachestat",
				      .looked_bytes = gib(read),
				      .cached_bytes = gib(read * cached) };
}

static struct choice
decide(const struct choice_facts *facts)
{
	struct choice choice;

	choice_make(&choice, facts);
	return choice;
}

static void
a_whole_arena_is_read_direct_when_neither_cached_nor_keepable(void **state)
{
	/* clang-format off */
	static const struct { double available, cached; bool direct; } cases[] = {
		{  57, 0.00, true },  /* cold, no room beside the arena */
		{  57, 0.74, true },
		{  57, 0.75, false }, /* a warm restart stays buffered */
		{  57, 1.00, false },
		{ 117, 0.00, false }, /* cold with room: the next start is warm */
		{ 117, 1.00, false },
	};
	/* clang-format on */

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct choice_facts facts = facts_of(cases[i].available, 33, 36.5, cases[i].cached);

		assert_int_equal(decide(&facts).direct, cases[i].direct);
	}
}

static void
with_a_budget_only_what_can_be_kept_counts(void **state)
{
	struct choice_facts facts = facts_of(3.3, 0, 47, 1);

	(void)state;
	facts.budget = true;
	assert_true(decide(&facts).direct);
	facts = facts_of(3.4, 0, 47, 0);
	facts.budget = true;
	assert_false(decide(&facts).direct);
}

/* What was believed before the resident set was built, and what is so afterwards. */
static void
the_second_decision_switches_either_way(void **state)
{
	/* clang-format off */
	static const struct {
		double available[2], arena[2], read[2];
		bool direct[2];
	} cases[] = {
		{ { 25, 2.4 }, { 18, 0 }, { 13.6, 13.6 }, { false, true } },
		{ { 19, 6.4 }, { 18, 0 }, { 13.6, 13.6 }, { true, false } },
		{ { 25, 6.4 }, { 18, 0 }, { 13.6, 13.6 }, { false, false } },
		{ { 19, 1.0 }, { 18, 0 }, { 47, 47 }, { true, true } },
	};
	/* clang-format on */

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (int k = 0; k < 2; k++) {
			struct choice_facts facts =
			    facts_of(cases[i].available[k], cases[i].arena[k], cases[i].read[k], 0);
			struct choice choice;

			facts.budget = true;
			facts.built = k;
			choice = decide(&facts);
			assert_int_equal(choice.direct, cases[i].direct[k]);
			assert_int_equal(
			    strncmp(choice.reason, "auto, resident set built: ", 26) == 0, k);
		}
}

static void
unknown_memory_is_buffered_and_said(void **state)
{
	struct choice_facts facts = facts_of(0, 33, 36.5, 0);
	struct choice choice;

	(void)state;
	facts.available = AVAILABLE_UNKNOWN;
	choice = decide(&facts);
	assert_false(choice.direct);
	assert_string_equal(choice.reason,
			    "auto: buffered: the files are not cached (0 % of 36.50 GiB by "
			    "cachestat); nothing says how much memory is available");
}

static void
the_reason_has_every_number(void **state)
{
	struct choice_facts facts = facts_of(57, 33, 36.5, 0.5);

	(void)state;
	assert_string_equal(
	    decide(&facts).reason,
	    "auto: direct: the files are not cached (50 % of 36.50 GiB by cachestat); the file "
	    "cache cannot keep them: room 20.00 GiB (57.00 available by MemAvailable - 33.00 "
	    "arena - 4.00 margin), need 36.50 (of 36.50 to read: 100 %, at least 0.00)");
	facts = facts_of(25, 18, 13.6, 0);
	facts.budget = true;
	facts.looked_bytes = 0;
	assert_string_equal(
	    decide(&facts).reason,
	    "auto: buffered: whether the files are cached is unknown; the file cache can keep "
	    "them: room 6.00 GiB (25.00 available by MemAvailable - 18.00 arena - 1.00 margin), "
	    "need 1.50 (of 13.60 to read: 5 %, at least 1.50)");
}

/* A group's folder may have a name as long as a path. */
static void
the_longest_reason_fits(void **state)
{
	struct choice_facts facts = facts_of(1e6, 1e6, 1e6, 0.5);
	struct choice choice;
	char limit[256];

	(void)state;
	memset(limit, 'g', sizeof(limit));
	limit[sizeof(limit) - 1] = '\0';
	facts.limit = limit;
	facts.probe = "timed 64 KiB reads";
	facts.built = true;
	choice = decide(&facts);
	assert_non_null(strstr(choice.reason, "at least 0.00)"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_of_the_table_holds),
		cmocka_unit_test(a_whole_arena_is_read_direct_when_neither_cached_nor_keepable),
		cmocka_unit_test(with_a_budget_only_what_can_be_kept_counts),
		cmocka_unit_test(the_second_decision_switches_either_way),
		cmocka_unit_test(unknown_memory_is_buffered_and_said),
		cmocka_unit_test(the_reason_has_every_number),
		cmocka_unit_test(the_longest_reason_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
