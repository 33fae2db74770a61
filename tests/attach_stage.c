#include "tests/attach_stage.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/device_ops.h"
#include "common/shared_memory.h"
#include "tests/quiet_service.h"

/* -- loader and pinner -- */

void
loader_fill(struct attach_stage *stage, uint32_t slice)
{
	int rc;

	stage->loader->slices[slice]->state = HEARTH__SLICE_STATE__SLICE_FILLED;
	do {
		rc = registrar_follow(&stage->pinner, stage->loader, &stage->err);
	} while (rc == 1);
	if (rc < 0)
		fail_msg("%s", stage->err.text);
}

void
loader_fill_all(struct attach_stage *stage)
{
	for (uint32_t i = 0; i < stage->arena.head->n_slices; i++)
		loader_fill(stage, i);
}

static void
loader_make(struct attach_stage *stage)
{
	Hearth__Arena *named;
	char path[SHARED_PATH_BYTES];

	stage->loader = malloc(sizeof(*stage->loader));
	hearth__state__init(stage->loader);
	named = board_arena(stage->loader);
	shared_memory_path(path, stage->arena.fd);
	board_text(&named->path, "%s", path);
	named->bytes = stage->arena.bytes;
	named->inode = stage->arena.inode;
	named->stamp = stage->arena.head->stamp;
	named->layout_hash = stage->arena.head->layout_hash;
	board_slices(stage->loader, (uint32_t)stage->arena.head->n_slices);
}

void
pinner_start(struct attach_stage *stage)
{
	struct pinner *pinner = &stage->pinner;
	Hearth__Pinning *pinning;

	*pinner = (struct pinner){ .service = &stage->pinner_service };
	pthread_mutex_init(&pinner->lock, NULL);
	pthread_cond_init(&pinner->moves, NULL);
	assert_int_equal(board_open(&pinner->board, stage->scratch.dir, "pinner", &stage->err), 0);
	assert_int_equal(device_open(&pinner->device, "cpu", &stage->err), 0);
	pinner->lending.device = pinner->device;
	pinning = board_pinning(board_edit(pinner->board));
	board_text(&pinning->device, "cpu");
	board_publish(pinner->board);
	assert_int_equal(mover_start(pinner, &stage->mover), 0);
	assert_int_equal(server_open(&stage->desk, stage->scratch.dir, "pinner.lend", desk_answer,
				     pinner, &stage->err),
			 0);
}

void
pinner_stop(struct attach_stage *stage)
{
	struct pinner *pinner = &stage->pinner;

	mover_stop(pinner, stage->mover);
	server_close(stage->desk);
	board_close(pinner->board);
	slot_table_close(&pinner->slots);
	lending_close(&pinner->lending);
	registrar_close(pinner);
	device_close(pinner->device);
	pthread_cond_destroy(&pinner->moves);
	pthread_mutex_destroy(&pinner->lock);
}

void
pinner_cap(struct attach_stage *stage, uint32_t n)
{
	pthread_mutex_lock(&stage->pinner.lock);
	stage->pinner.lending.cap =
	    fake_compute_ops.kv_bytes(NULL, CONTEXT) + n * model_slot_bytes(&stage->pinner.model);
	pthread_mutex_unlock(&stage->pinner.lock);
	desk_publish(&stage->pinner);
}

uint64_t
pinner_lent(struct attach_stage *stage, const char *key)
{
	const struct region *region;
	uint64_t bytes;

	pthread_mutex_lock(&stage->pinner.lock);
	region = lending_find(&stage->pinner.lending, key);
	bytes = region != NULL ? region->bytes : 0;
	pthread_mutex_unlock(&stage->pinner.lock);
	return bytes;
}

uint64_t
pinner_moved(struct attach_stage *stage)
{
	uint64_t moved;

	pthread_mutex_lock(&stage->pinner.lock);
	moved = stage->pinner.moved;
	pthread_mutex_unlock(&stage->pinner.lock);
	return moved;
}

/* -- a device with memory of its own -- */

static uint64_t gpu_free;

static int
gpu_room(struct device *device, uint64_t *ret_free, uint64_t *ret_total)
{
	(void)device;
	*ret_free = gpu_free;
	*ret_total = 1ull << 40;
	return 0;
}

/* No driver refuses it. */
static int
gpu_register(struct device *device, void *at, uint64_t bytes, bool read_only, struct error *err)
{
	(void)err;
	(void)read_only;
	return device != NULL && at != NULL && bytes != 0 ? 0 : -EINVAL;
}

static void
gpu_of(struct device *device)
{
	static struct device_ops ops;

	ops = *device->ops;
	ops.memory_room = gpu_room;
	ops.register_range = gpu_register;
	device->ops = &ops;
	device->info.computes_from_host = false;
}

void
gpu_make(struct attach_stage *stage, uint64_t free_bytes)
{
	gpu_free = free_bytes;
	stage->gpu = true;
	gpu_of(stage->pinner.device);
}

/* -- worker -- */

void
worker_prepare(struct attach_stage *stage)
{
	const char *dir = stage->scratch.dir;

	quiet_service_open(&stage->service, "test");
	stage->attached = (struct attached){ 0 };
	assert_int_equal(board_open(&stage->board, dir, "worker", &stage->err), 0);
	assert_int_equal(upstream_open(&stage->upstream, dir, &stage->service, &stage->err), 0);
	stage->config = (struct attach_config){ .dir = dir,
						.context = CONTEXT,
						.threads = 1,
						.upstream = &stage->upstream,
						.board = stage->board,
						.slot_margin = SLOT_POLICY_MARGIN,
						.cpu = &fake_compute_ops,
						.cuda = &compute_cuda };
	if (stage->gpu) {
		assert_int_equal(device_open(&stage->config.device, "cpu", &stage->err), 0);
		gpu_of(stage->config.device);
	}
}

void
worker_attach(struct attach_stage *stage)
{
	worker_prepare(stage);
	if (attach_open(&stage->attached, &stage->config, &stage->err) < 0)
		fail_msg("%s", stage->err.text);
}

void
worker_leave(struct attach_stage *stage)
{
	if (stage->attached.device != NULL)
		attach_close(&stage->attached);
	upstream_close(&stage->upstream);
	board_close(stage->board);
	quiet_service_close(&stage->service);
}

void
worker_follow(struct attach_stage *stage, bool (*wanted)(const struct attach_stage *))
{
	int rc = upstream_look(&stage->upstream, &stage->err);

	while (rc == 0 && (stage->upstream.state == NULL || !wanted(stage)))
		rc = upstream_wait(&stage->upstream, &stage->err);
	if (rc < 0)
		fail_msg("%s", stage->err.text);
	table_look(&stage->attached.table);
}

uint32_t
worker_move(struct attach_stage *stage, uint32_t most)
{
	struct table *table = &stage->attached.table;
	uint32_t n = 0;
	int rc = 0;

	while (rc >= 0 && table_choose(table, most)) {
		rc = table_move(table, &stage->err);
		n++;
		while (rc == 0 && table->n_moves != 0) {
			rc = table_moved(table, &stage->err);
			if (rc == 0 && table->n_moves != 0)
				rc = upstream_wait(&stage->upstream, &stage->err);
		}
	}
	if (rc < 0)
		fail_msg("%s", stage->err.text);
	return n;
}

bool
all_usable(const struct attach_stage *stage)
{
	const Hearth__State *state = stage->upstream.state;

	for (uint32_t i = 0; i < stage->arena.head->n_slices; i++)
		if (!upstream_slice_usable(state, i))
			return false;
	return true;
}

bool
trunk_usable(const struct attach_stage *stage)
{
	return upstream_slice_usable(stage->upstream.state, 0);
}

bool
first_layer_usable(const struct attach_stage *stage)
{
	return upstream_slice_usable(stage->upstream.state, 1);
}

int
attach_setup(void **state)
{
	struct attach_stage *stage = calloc(1, sizeof(*stage));
	struct tiny tiny = tiny_default();

	scratch_open(&stage->scratch);
	quiet_service_open(&stage->pinner_service, "test");
	arena_make(&stage->arena, &tiny);
	loader_make(stage);
	pinner_start(stage);
	*state = stage;
	return 0;
}

int
attach_teardown(void **state)
{
	struct attach_stage *stage = *state;

	pinner_stop(stage);
	hearth__state__free_unpacked(stage->loader, NULL);
	arena_close(&stage->arena);
	scratch_close(&stage->scratch);
	free(stage);
	return 0;
}
