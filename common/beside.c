#include "common/beside.h"

#include <errno.h>
#include <stdbool.h>

int
beside_open(struct beside *ret, const char *path, struct error *err)
{
	ret->path = path;
	if (snprintf(ret->made, sizeof(ret->made), "%s.new", path) >= (int)sizeof(ret->made))
		return error_set(err, -ENAMETOOLONG, "%s: a shorter path, please", path);
	ret->file = fopen(ret->made, "we");
	return ret->file ? 0 : error_path(err, -errno, "%s", ret->made);
}

int
beside_close(struct beside *beside, struct error *err)
{
	bool whole = !ferror(beside->file);
	int rc = 0;

	errno = 0;
	if (fclose(beside->file) != 0 || !whole)
		rc = error_sys(err, errno ? -errno : -EIO, "%s: writing", beside->made);
	else if (rename(beside->made, beside->path) < 0)
		rc = error_path(err, -errno, "%s", beside->path);
	if (rc < 0)
		remove(beside->made);
	return rc;
}
