#include "tests/fake_device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static struct fake_device *
fake_of(struct device *device)
{
	return device->impl;
}

static int
fake_room(struct device *device, uint64_t *ret_free, uint64_t *ret_total)
{
	(void)device;
	*ret_free = *ret_total = 1ull << 40;
	return 0;
}

static int
fake_alloc(struct device *device, uint64_t bytes, struct device_memory *ret, struct error *err)
{
	void *at = calloc(1, bytes);

	(void)device;
	if (!at)
		return error_set(err, -ENOMEM, "fake: no memory");
	*ret = (struct device_memory){ .at = at, .bytes = bytes, .fd = -1 };
	return 0;
}

static void
fake_free(struct device *device, struct device_memory *memory)
{
	(void)device;
	free(memory->at);
}

static int
fake_export(struct device *device, const struct device_memory *memory,
	    uint8_t ret_handle[DEVICE_HANDLE_BYTES], struct error *err)
{
	(void)device;
	(void)memory;
	(void)err;
	memset(ret_handle, 7, DEVICE_HANDLE_BYTES);
	return 0;
}

/* Held by another description of the same file. */
static bool
arena_is_locked(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;

	if (fd >= 0)
		close(fd);
	return locked;
}

static int
fake_register(struct device *device, void *at, uint64_t bytes, bool read_only, struct error *err)
{
	struct fake_device *fake = fake_of(device);

	if (fake->n < FAKE_CALLS)
		fake->calls[fake->n] = (struct fake_call){ at, bytes };
	fake->n++;
	if (fake->arena && !arena_is_locked(fake->arena))
		fake->unlocked++;
	if (!read_only || bytes == 0)
		return error_set(err, -EINVAL, "fake: nothing to register");
	if (fake->refuse && fake->n >= fake->refuse)
		return error_set(err, -ENOMEM, "fake: the driver is full");
	return 0;
}

static void
fake_unregister(struct device *device, void *at, uint64_t bytes)
{
	(void)device;
	(void)at;
	(void)bytes;
}

/* A copy lies within one registered range, or touches none. */
static bool
copy_straddles(const struct fake_device *fake, const uint8_t *from, uint64_t bytes)
{
	for (uint32_t i = 0; i < fake->n && i < FAKE_CALLS; i++) {
		const struct fake_call *call = &fake->calls[i];

		if (fake->refuse && i + 1 >= fake->refuse)
			break;
		if (from < call->at + call->bytes && call->at < from + bytes &&
		    (from < call->at || from + bytes > call->at + call->bytes))
			return true;
	}
	return false;
}

static int
fake_copy_in(struct device *device, void *to, const void *from, uint64_t bytes, struct error *err)
{
	struct fake_device *fake = fake_of(device);

	(void)err;
	if (copy_straddles(fake, from, bytes))
		fake->straddling++;
	memcpy(to, from, bytes);
	fake->copied += bytes;
	return 0;
}

static int
fake_wait(struct device *device, struct error *err)
{
	(void)device;
	(void)err;
	return 0;
}

static void
fake_close(struct device *device)
{
	(void)device;
}

static const struct device_ops fake_ops = {
	.close = fake_close,
	.memory_room = fake_room,
	.alloc = fake_alloc,
	.free = fake_free,
	.export_handle = fake_export,
	.register_range = fake_register,
	.unregister_range = fake_unregister,
	.copy_in = fake_copy_in,
	.wait = fake_wait,
};

void
fake_device_open(struct fake_device *fake)
{
	*fake = (struct fake_device){
		.device = { .ops = &fake_ops,
			    .info = { .name = "fake", .cuda = true, .register_method = "fakery" } },
	};
	fake->device.impl = fake;
}
