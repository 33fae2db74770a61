#include "common/beside.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

int
beside_open(struct beside *ret, const char *path, struct error *err)
{
	struct stat st;
	int n = 0;

	ret->path = path;
	ret->made[0] = '\0';
	if (stat(path, &st) < 0 || S_ISREG(st.st_mode))
		n = snprintf(ret->made, sizeof(ret->made), "%s.%d.new", path, (int)getpid());
	if (n >= (int)sizeof(ret->made))
		return error_set(err, -ENAMETOOLONG, "%s: a shorter path, please", path);
	ret->file = fopen(n ? ret->made : path, "we");
	return ret->file ? 0 : error_path(err, -errno, "%s", n ? ret->made : path);
}

int
beside_close(struct beside *beside, struct error *err)
{
	bool whole = !ferror(beside->file), made = beside->made[0] != '\0';
	int rc = 0;

	errno = 0;
	if (fclose(beside->file) != 0 || !whole)
		rc = error_sys(err, errno ? -errno : -EIO, "%s: writing", beside->path);
	else if (made && rename(beside->made, beside->path) < 0)
		rc = error_path(err, -errno, "%s", beside->path);
	if (rc < 0 && made)
		remove(beside->made);
	return rc;
}
