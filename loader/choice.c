#include "loader/choice.h"

#include <stdio.h>

#include "loader/available.h"

#define GIB (1ull << 30)

const struct choice_rule choice_rule_whole = { .margin = 4 * GIB, .share = 1, .floor = 0 };
const struct choice_rule choice_rule_budget = { .margin = 1 * GIB,
						.share = 0.05,
						.floor = 3 * GIB / 2 };

static uint64_t
room_of(uint64_t available, uint64_t arena, uint64_t margin)
{
	if (available < arena || available - arena < margin)
		return 0;
	return available - arena - margin;
}

static uint64_t
need_of(uint64_t read, double share, uint64_t floor)
{
	uint64_t need = (uint64_t)(share * (double)read);

	if (need < floor)
		need = floor;
	return need < read ? need : read;
}

bool
file_cache_keeps(uint64_t available, uint64_t arena, uint64_t read, uint64_t margin, double share,
		 uint64_t floor)
{
	return room_of(available, arena, margin) >= need_of(read, share, floor);
}

bool
choice_cached(const struct choice_facts *facts)
{
	return facts->looked_bytes &&
	       facts->cached_bytes >= facts->looked_bytes - facts->looked_bytes / 4;
}

static double
gib(uint64_t bytes)
{
	return (double)bytes / (double)GIB;
}

/* "the files are not cached (12 % of 36.50 GiB by cachestat)" */
static int
write_cached(char *to, size_t room, const struct choice *choice)
{
	const struct choice_facts *facts = &choice->facts;

	if (facts->looked_bytes == 0)
		return snprintf(to, room, "whether the files are cached is unknown");
	return snprintf(to, room, "the files are %scached (%.0f %% of %.2f GiB by %s)",
			choice->cached ? "" : "not ",
			100.0 * (double)facts->cached_bytes / (double)facts->looked_bytes,
			gib(facts->looked_bytes), facts->probe);
}

static void
write_reason(struct choice *choice, const struct choice_rule *rule)
{
	const struct choice_facts *facts = &choice->facts;
	char cached[160];
	int n = snprintf(choice->reason, sizeof(choice->reason),
			 "auto%s: %s: ", facts->built ? ", resident set built" : "",
			 choice->direct ? "direct" : "buffered");
	char *to = choice->reason + n;
	size_t room = sizeof(choice->reason) - (size_t)n;

	write_cached(cached, sizeof(cached), choice);
	if (facts->available == AVAILABLE_UNKNOWN) {
		snprintf(to, room, "%s; nothing says how much memory is available", cached);
		return;
	}
	snprintf(to, room,
		 "%s; the file cache can%s keep them: room %.2f GiB (%.2f available by %s - %.2f "
		 "arena - %.2f margin), need %.2f (of %.2f to read: %.0f %%, at least %.2f)",
		 cached, choice->keeps ? "" : "not", gib(choice->room), gib(facts->available),
		 facts->limit, gib(facts->arena), gib(rule->margin), gib(choice->need),
		 gib(facts->read), 100 * rule->share, gib(rule->floor));
}

void
choice_make(struct choice *ret, const struct choice_facts *facts)
{
	const struct choice_rule *rule = facts->budget ? &choice_rule_budget : &choice_rule_whole;
	struct choice choice = { .facts = *facts, .cached = choice_cached(facts) };
	bool known = facts->available != AVAILABLE_UNKNOWN;

	choice.need = need_of(facts->read, rule->share, rule->floor);
	choice.room = known ? room_of(facts->available, facts->arena, rule->margin) : 0;
	choice.keeps = known && file_cache_keeps(facts->available, facts->arena, facts->read,
						 rule->margin, rule->share, rule->floor);
	choice.direct = known && !choice.keeps && (facts->budget || !choice.cached);
	write_reason(&choice, rule);
	*ret = choice;
}
