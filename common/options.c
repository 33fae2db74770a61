#include "common/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct option_def *
option_find(const struct option_def *defs, uint32_t n_defs, const char *word, size_t n)
{
	for (uint32_t i = 0; i < n_defs; i++) {
		if (strlen(defs[i].name) == n && strncmp(defs[i].name, word, n) == 0)
			return &defs[i];
		if (defs[i].alias && strlen(defs[i].alias) == n &&
		    strncmp(defs[i].alias, word, n) == 0)
			return &defs[i];
	}
	return NULL;
}

static int
option_set_u64(const struct option_def *def, const char *value, struct error *err)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end || errno)
		return error_set(err, -EINVAL, "%s %s: want a whole number", def->name, value);
	if (n < def->min || n > def->max)
		return error_set(err, -EINVAL, "%s %s: want %llu to %llu", def->name, value,
				 (unsigned long long)def->min, (unsigned long long)def->max);
	*(uint64_t *)def->to = n;
	return 0;
}

static int
option_set_float(const struct option_def *def, const char *value, struct error *err)
{
	char *end;
	double x = strtod(value, &end);

	if (end == value || *end || !isfinite(x) || x < 0)
		return error_set(err, -EINVAL, "%s %s: want a number of 0 or more", def->name,
				 value);
	*(double *)def->to = x;
	return 0;
}

static int
option_set_text(const struct option_def *def, const char *value, struct error *err)
{
	char list[256] = "";
	size_t n = 0;

	for (uint32_t i = 0; def->choices && def->choices[i]; i++) {
		if (strcmp(def->choices[i], value) == 0)
			break;
		if (n + strlen(def->choices[i]) + 3 < sizeof(list)) {
			n += strlen(strcat(strcat(list, i ? ", " : ""), def->choices[i])) - n;
		}
		if (!def->choices[i + 1])
			return error_set(err, -EINVAL, "%s %s: want one of %s", def->name, value,
					 list);
	}
	*(const char **)def->to = value;
	return 0;
}

static int
option_set(const struct option_def *def, const char *value, struct error *err)
{
	switch (def->kind) {
	case OPTION_U64:
		return option_set_u64(def, value, err);
	case OPTION_FLOAT:
		return option_set_float(def, value, err);
	default:
		return option_set_text(def, value, err);
	}
}

/* One option at argv[*i]; *i ends on the last word used. */
static int
option_take(int argc, char **argv, int *i, const struct option_def *defs, uint32_t n_defs,
	    struct error *err)
{
	const char *word = argv[*i];
	const char *equal = strchr(word, '=');
	size_t n = equal ? (size_t)(equal - word) : strlen(word);
	const struct option_def *def = option_find(defs, n_defs, word, n);

	if (!def)
		return error_set(err, -EINVAL, "%.*s: no such option", (int)n, word);
	if (def->kind == OPTION_FLAG) {
		if (equal)
			return error_set(err, -EINVAL, "%s: takes no value", def->name);
		*(bool *)def->to = true;
		return 0;
	}
	if (equal)
		return option_set(def, equal + 1, err);
	if (*i + 1 >= argc)
		return error_set(err, -EINVAL, "%s: wants a value behind it", def->name);
	return option_set(def, argv[++*i], err);
}

int
options_parse(int argc, char **argv, const struct option_def *defs, uint32_t n_defs,
	      const char **words, uint32_t max_words, uint32_t *n_words, struct error *err)
{
	bool only_words = false;
	uint32_t n = 0;
	int rc;

	for (int i = 1; i < argc; i++) {
		if (!only_words && strcmp(argv[i], "--") == 0) {
			only_words = true;
		} else if (!only_words && argv[i][0] == '-' && argv[i][1] != '\0') {
			rc = option_take(argc, argv, &i, defs, n_defs, err);
			if (rc < 0)
				return rc;
		} else if (n < max_words) {
			words[n++] = argv[i];
		} else {
			return error_set(err, -EINVAL, "%s: one word too many", argv[i]);
		}
	}
	*n_words = n;
	return 0;
}
