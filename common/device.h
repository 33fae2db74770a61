/* A device: memory that can be lent to another process, registration of host ranges, copies.
 * Two implementations behind one door: `cpu` (lendable memory is a memfd, registering is mlock) and
 * `cuda` (CUDA IPC, cudaHostRegister).  Kernels are behind worker/compute.h.
 * Calls may come from any thread, one at a time each device. */
#ifndef HEARTH_COMMON_DEVICE_H
#define HEARTH_COMMON_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define DEVICE_HANDLE_BYTES 64 /* CUDA_IPC_HANDLE_SIZE */

struct device;

struct device_memory {
	void *at; /* on cpu a host address, on cuda a device address */
	uint64_t bytes;
	int fd;        /* cpu: the memfd; else -1 */
	bool imported; /* opened from a handle, not allocated here */
};

struct device_info {
	char name[128]; /* "cpu", "cuda:0 NVIDIA H200" */
	bool cuda;
	bool computes_from_host; /* weights are read where the arena is: no copies, no slots needed
				  */
	const char *register_method; /* "mlock", "cudaHostRegister" */
	uint32_t ordinal;
};

/* `want`: "auto" (a CUDA device if there is one, else cpu), "cpu", "cuda", "cuda:N".
 * -EINVAL: no such name.  -ENODEV: not there, or built without CUDA; the message says which. */
int device_open(struct device **ret, const char *want, struct error *err);
void device_close(struct device *device);
const struct device_info *device_describe(const struct device *device);
int device_memory_room(struct device *device, uint64_t *ret_free, uint64_t *ret_total);

/* Zeroed.  -ENOMEM when there is no room. */
int device_alloc(struct device *device, uint64_t bytes, struct device_memory *ret,
		 struct error *err);
void device_free(struct device *device, struct device_memory *memory); /* or un-import */

/* A handle that another process of this user can open while the owner lives.  On cpu there is none:
 * the owner's memfd is opened by its path (device_import_path). */
int device_export(struct device *device, const struct device_memory *memory,
		  uint8_t ret_handle[DEVICE_HANDLE_BYTES], struct error *err);
int device_import(struct device *device, const uint8_t handle[DEVICE_HANDLE_BYTES], uint64_t bytes,
		  struct device_memory *ret, struct error *err);
int device_import_path(struct device *device, const char *path, uint64_t bytes,
		       struct device_memory *ret, struct error *err);

/* Registers a host range with the device for this process.  -ENOMEM, -EPERM: refused; the message
 * says what would help, and no error is left behind for the next call. */
int device_register(struct device *device, void *at, uint64_t bytes, bool read_only,
		    struct error *err);
void device_unregister(struct device *device, void *at, uint64_t bytes);

/* Host to device memory, on the device's own copy stream; complete after device_wait. */
int device_copy_in(struct device *device, void *to, const void *from, uint64_t bytes,
		   struct error *err);
int device_wait(struct device *device, struct error *err);

#endif
