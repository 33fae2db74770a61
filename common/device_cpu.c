/* The CPU as a device: lendable memory is a memfd, registering is mlock, copies are memcpy. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/device.h"
#include "common/device_ops.h"
#include "common/memory_lock.h"
#include "common/shared_memory.h"

#define KIB ((uint64_t)1024)

static void
cpu_close(struct device *device)
{
	(void)device;
}

static int
cpu_memory_room(struct device *device, uint64_t *ret_free, uint64_t *ret_total)
{
	uint64_t total = 0, available = 0;
	FILE *meminfo = fopen("/proc/meminfo", "re");
	char line[128];

	(void)device;
	if (!meminfo)
		return -errno;
	while (fgets(line, sizeof(line), meminfo)) {
		sscanf(line, "MemTotal: %" SCNu64, &total);
		sscanf(line, "MemAvailable: %" SCNu64, &available);
	}
	fclose(meminfo);
	if (total == 0)
		return -EIO;
	*ret_free = available * KIB;
	*ret_total = total * KIB;
	return 0;
}

static void
cpu_memory(struct device_memory *ret, const struct shared_memory *memory, bool imported)
{
	*ret = (struct device_memory){
		.at = memory->at, .bytes = memory->bytes, .fd = memory->fd, .imported = imported
	};
}

static int
cpu_alloc(struct device *device, uint64_t bytes, struct device_memory *ret, struct error *err)
{
	struct shared_memory memory;
	int rc = shared_memory_create(&memory, "hearth-lent", bytes, err);

	(void)device;
	if (rc == 0)
		cpu_memory(ret, &memory, false);
	return rc;
}

static void
cpu_free(struct device *device, struct device_memory *memory)
{
	struct shared_memory shared = { memory->at, memory->bytes, memory->fd };

	(void)device;
	shared_memory_close(&shared);
}

static int
cpu_import_path(struct device *device, const char *path, uint64_t bytes, struct device_memory *ret,
		struct error *err)
{
	struct shared_memory memory;
	int rc = shared_memory_attach(&memory, path, bytes, err);

	(void)device;
	if (rc == 0)
		cpu_memory(ret, &memory, true);
	return rc;
}

static int
cpu_register(struct device *device, void *at, uint64_t bytes, bool read_only, struct error *err)
{
	(void)device;
	(void)read_only;
	return memory_lock(at, bytes, err);
}

static void
cpu_unregister(struct device *device, void *at, uint64_t bytes)
{
	(void)device;
	munlock(at, bytes);
}

static int
cpu_copy_in(struct device *device, void *to, const void *from, uint64_t bytes, struct error *err)
{
	(void)device;
	(void)err;
	memcpy(to, from, bytes);
	return 0;
}

static int
cpu_wait(struct device *device, struct error *err)
{
	(void)device;
	(void)err;
	return 0;
}

static const struct device_ops cpu_ops = {
	.close = cpu_close,
	.memory_room = cpu_memory_room,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.import_path = cpu_import_path,
	.register_range = cpu_register,
	.unregister_range = cpu_unregister,
	.copy_in = cpu_copy_in,
	.wait = cpu_wait,
};

int
device_cpu_open(struct device *device, struct error *err)
{
	(void)err;
	device->ops = &cpu_ops;
	device->info = (struct device_info){ .name = "cpu",
					     .computes_from_host = true,
					     .register_method = "mlock" };
	return 0;
}
