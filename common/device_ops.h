/* The inner door of device.h: what a kind of device implements.  device.c makes and frees the
 * struct device (zeroed) and picks the kind; an open fills it, ops->close frees what impl holds.
 * Each entry means what device.h says of the call of its name; a NULL entry is a call that this
 * kind does not have.  Outputs are untouched on failure. */
#ifndef HEARTH_COMMON_DEVICE_OPS_H
#define HEARTH_COMMON_DEVICE_OPS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/device.h"
#include "common/error.h"

struct device_ops {
	void (*close)(struct device *device);
	int (*memory_room)(struct device *device, uint64_t *ret_free, uint64_t *ret_total);
	int (*alloc)(struct device *device, uint64_t bytes, struct device_memory *ret,
		     struct error *err);
	void (*free)(struct device *device, struct device_memory *memory);
	int (*export_handle)(struct device *device, const struct device_memory *memory,
			     uint8_t ret_handle[DEVICE_HANDLE_BYTES], struct error *err);
	int (*import_handle)(struct device *device, const uint8_t handle[DEVICE_HANDLE_BYTES],
			     uint64_t bytes, struct device_memory *ret, struct error *err);
	int (*import_path)(struct device *device, const char *path, uint64_t bytes,
			   struct device_memory *ret, struct error *err);
	int (*register_range)(struct device *device, void *at, uint64_t bytes, bool read_only,
			      struct error *err);
	void (*unregister_range)(struct device *device, void *at, uint64_t bytes);
	int (*copy_in)(struct device *device, void *to, const void *from, uint64_t bytes,
		       struct error *err);
	int (*wait)(struct device *device, struct error *err);
};

struct device {
	const struct device_ops *ops;
	struct device_info info;
	void *impl; /* the kind's own */
};

int device_cpu_open(struct device *device, struct error *err);

/* `ordinal` -1: the first.  -ENODEV when there is none, and the message says which of: built
 * without CUDA, no driver, no such device. */
int device_cuda_open(struct device *device, int ordinal, struct error *err);

#endif
