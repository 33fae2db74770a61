#include "common/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/device_ops.h"

/* "cuda" is ordinal -1 (the first), "cuda:N" is N.  False: neither. */
static bool
device_ordinal(const char *want, int *ret)
{
	char *end;
	long n;

	if (strcmp(want, "cuda") == 0) {
		*ret = -1;
		return true;
	}
	if (strncmp(want, "cuda:", 5) != 0 || want[5] < '0' || want[5] > '9')
		return false;
	n = strtol(want + 5, &end, 10);
	if (*end || n > 1023)
		return false;
	*ret = (int)n;
	return true;
}

int
device_open(struct device **ret, const char *want, struct error *err)
{
	struct device *device;
	int ordinal, rc;

	device = calloc(1, sizeof(*device));
	if (!device)
		return error_set(err, -ENOMEM, "device %s: no memory", want);
	if (strcmp(want, "cpu") == 0) {
		rc = device_cpu_open(device, err);
	} else if (strcmp(want, "auto") == 0) {
		rc = device_cuda_open(device, -1, err);
		if (rc == -ENODEV)
			rc = device_cpu_open(device, err);
	} else if (device_ordinal(want, &ordinal)) {
		rc = device_cuda_open(device, ordinal, err);
	} else {
		rc = error_set(err, -EINVAL, "--device %s: want auto, cpu, cuda or cuda:N", want);
	}
	if (rc < 0) {
		free(device);
		return rc;
	}
	*ret = device;
	return 0;
}

void
device_close(struct device *device)
{
	if (!device)
		return;
	device->ops->close(device);
	free(device);
}

const struct device_info *
device_describe(const struct device *device)
{
	return &device->info;
}

int
device_memory_room(struct device *device, uint64_t *ret_free, uint64_t *ret_total)
{
	return device->ops->memory_room(device, ret_free, ret_total);
}

int
device_alloc(struct device *device, uint64_t bytes, struct device_memory *ret, struct error *err)
{
	return device->ops->alloc(device, bytes, ret, err);
}

void
device_free(struct device *device, struct device_memory *memory)
{
	if (memory->at)
		device->ops->free(device, memory);
	*memory = (struct device_memory){ .fd = -1 };
}

int
device_export(struct device *device, const struct device_memory *memory,
	      uint8_t ret_handle[DEVICE_HANDLE_BYTES], struct error *err)
{
	if (!device->ops->export_handle)
		return error_set(err, -ENOTSUP, "%s: memory is opened by its path",
				 device->info.name);
	return device->ops->export_handle(device, memory, ret_handle, err);
}

int
device_import(struct device *device, const uint8_t handle[DEVICE_HANDLE_BYTES], uint64_t bytes,
	      struct device_memory *ret, struct error *err)
{
	if (!device->ops->import_handle)
		return error_set(err, -ENOTSUP, "%s: memory is opened by its path",
				 device->info.name);
	return device->ops->import_handle(device, handle, bytes, ret, err);
}

int
device_import_path(struct device *device, const char *path, uint64_t bytes,
		   struct device_memory *ret, struct error *err)
{
	if (!device->ops->import_path)
		return error_set(err, -ENOTSUP, "%s: memory is opened by its handle",
				 device->info.name);
	return device->ops->import_path(device, path, bytes, ret, err);
}

int
device_register(struct device *device, void *at, uint64_t bytes, bool read_only, struct error *err)
{
	return device->ops->register_range(device, at, bytes, read_only, err);
}

void
device_unregister(struct device *device, void *at, uint64_t bytes)
{
	device->ops->unregister_range(device, at, bytes);
}

int
device_copy_in(struct device *device, void *to, const void *from, uint64_t bytes, struct error *err)
{
	return device->ops->copy_in(device, to, from, bytes, err);
}

int
device_wait(struct device *device, struct error *err)
{
	return device->ops->wait(device, err);
}
