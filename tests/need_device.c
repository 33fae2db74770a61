/* The rest of need_stage.h: its device. */
#include "tests/need_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct need_stage *
stage_of(struct device *device)
{
	return device->impl;
}

static int
device_make(struct device *device, uint64_t bytes, struct device_memory *ret, struct error *err)
{
	(void)device;
	(void)err;
	*ret = (struct device_memory){ .at = malloc(bytes), .bytes = bytes, .fd = -1 };
	memset(ret->at, NEED_POISON, bytes);
	return 0;
}

static void
device_unmake(struct device *device, struct device_memory *memory)
{
	(void)device;
	free(memory->at);
}

static int
device_pin(struct device *device, void *at, uint64_t bytes, bool read_only, struct error *err)
{
	(void)device;
	(void)at;
	(void)bytes;
	(void)read_only;
	(void)err;
	return 0;
}

static void
device_unpin(struct device *device, void *at, uint64_t bytes)
{
	(void)device;
	(void)at;
	(void)bytes;
}

static int
device_copy(struct device *device, void *to, const void *from, uint64_t bytes, struct error *err)
{
	struct need_stage *stage = stage_of(device);

	(void)err;
	assert_true(stage->n_copies < 64);
	stage->copies[stage->n_copies++] = (struct need_copy){ to, from, bytes };
	stage->copied++;
	return 0;
}

static int
device_finish(struct device *device, struct error *err)
{
	struct need_stage *stage = stage_of(device);

	(void)err;
	for (uint32_t i = 0; i < stage->n_copies; i++)
		memcpy(stage->copies[i].to, stage->copies[i].from, stage->copies[i].bytes);
	stage->n_copies = 0;
	return 0;
}

const struct device_ops need_device_ops = { .alloc = device_make,
					    .free = device_unmake,
					    .register_range = device_pin,
					    .unregister_range = device_unpin,
					    .copy_in = device_copy,
					    .wait = device_finish };
