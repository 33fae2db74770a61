#include "common/profile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/beside.h"

#define PROFILE_HEAD "hearth-profile 2 %016" PRIx64 " %" PRIu32 " %" PRIu32 "\n"
#define HEAD_BYTES 96u
#define COUNT_BYTES 21u /* of the largest one and what stands behind it */

static uint64_t
count_of(const struct profile_shape *shape)
{
	return (uint64_t)shape->layers * shape->experts;
}

/* The whole file, ended by a 0; `most` bytes or fewer. */
static int
text_read(const char *path, uint64_t most, char **ret, struct error *err)
{
	FILE *file = fopen(path, "re");
	char *text;
	size_t n;
	int rc = 0;

	if (file == NULL)
		return error_path(err, -errno, "%s", path);
	text = malloc(most + 2);
	if (text == NULL) {
		rc = error_set(err, -ENOMEM, "%s: no memory", path);
		goto out;
	}
	n = fread(text, 1, most + 1, file);
	if (ferror(file))
		rc = error_sys(err, -EIO, "%s", path);
	else if (n > most || memchr(text, 0, n) != NULL)
		rc = error_set(err, -EBADMSG,
			       "%s: no profile of this model: more than %" PRIu64
			       " bytes, or a 0 among them",
			       path, most);
	text[n] = '\0';
out:
	fclose(file);
	if (rc < 0)
		free(text);
	else
		*ret = text;
	return rc;
}

/* NULL: not a line of `experts` counts with one space between them. */
static const char *
line_read(const char *at, uint32_t experts, uint64_t *ret)
{
	char *end;

	for (uint32_t i = 0; i < experts; i++) {
		if (*at < '0' || *at > '9')
			return NULL;
		errno = 0;
		ret[i] = strtoull(at, &end, 10);
		if (errno != 0 || *end != (i + 1 < experts ? ' ' : '\n'))
			return NULL;
		at = end + 1;
	}
	return at;
}

static int
head_check(const char *path, const char *text, const struct profile_shape *shape, struct error *err)
{
	char head[HEAD_BYTES];
	int n = snprintf(head, sizeof(head), PROFILE_HEAD, shape->fingerprint, shape->layers,
			 shape->experts);

	if (strncmp(text, head, (size_t)n) == 0)
		return n;
	return error_set(err, -EBADMSG, "%s: begins with \"%.*s\", want \"%.*s\" (of this model)",
			 path,
			 (int)strnlen(text, strcspn(text, "\n") < 80 ? strcspn(text, "\n") : 80),
			 text, n - 1, head);
}

int
profile_read(const char *path, const struct profile_shape *shape, uint64_t *ret_counts,
	     struct error *err)
{
	uint64_t n = count_of(shape), *counts = NULL;
	const char *at;
	char *text = NULL;
	int rc = text_read(path, HEAD_BYTES + n * COUNT_BYTES, &text, err);

	if (text == NULL)
		return rc;
	rc = head_check(path, text, shape, err);
	if (rc < 0)
		goto out;
	at = text + rc;
	rc = 0;
	counts = calloc(n + 1, sizeof(*counts));
	if (counts == NULL) {
		rc = error_set(err, -ENOMEM, "%s: no memory", path);
		goto out;
	}
	for (uint32_t layer = 0; layer < shape->layers && at != NULL; layer++) {
		at = line_read(at, shape->experts, counts + (uint64_t)layer * shape->experts);
		if (at == NULL)
			rc = error_set(err, -EBADMSG,
				       "%s: layer %" PRIu32 ": not a line of %" PRIu32 " counts",
				       path, layer, shape->experts);
	}
	if (at != NULL && *at != '\0')
		rc = error_set(err, -EBADMSG, "%s: more than %" PRIu32 " layers", path,
			       shape->layers);
	if (rc == 0)
		memcpy(ret_counts, counts, n * sizeof(*counts));
out:
	free(counts);
	free(text);
	return rc;
}

int
profile_write(const char *path, const struct profile_shape *shape, const uint64_t *counts,
	      struct error *err)
{
	struct beside beside;
	int rc = beside_open(&beside, path, err);

	if (rc < 0)
		return rc;
	fprintf(beside.file, PROFILE_HEAD, shape->fingerprint, shape->layers, shape->experts);
	for (uint32_t layer = 0; layer < shape->layers; layer++)
		for (uint32_t expert = 0; expert < shape->experts; expert++)
			fprintf(beside.file, "%" PRIu64 "%c", *counts++,
				expert + 1 < shape->experts ? ' ' : '\n');
	return beside_close(&beside, err);
}
