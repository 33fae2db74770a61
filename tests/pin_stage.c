#include "tests/pin_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/shared_memory.h"
#include "tests/arena_maker.h"
#include "tests/scratch.h"

static struct scratch scratch;
static struct service service;
static char path[SHARED_PATH_BYTES];
struct pin_stage pinning;

static void
make_loader(void)
{
	Hearth__Arena *named;

	pinning.loader = malloc(sizeof(*pinning.loader));
	hearth__state__init(pinning.loader);
	named = board_arena(pinning.loader);
	board_text(&named->path, "%s", path);
	named->bytes = pinning.arena.bytes;
	named->inode = pinning.arena.inode;
	named->stamp = pinning.arena.head->stamp;
	named->layout_hash = pinning.arena.head->layout_hash;
	board_slices(pinning.loader, SLICES);
}

int
pin_setup(void **state)
{
	struct tiny tiny = tiny_default();

	(void)state;
	tiny.layers = SLICES - 1;
	scratch_open(&scratch);
	service = (struct service){ .stage = "pinner" };
	pthread_mutex_init(&service.lock, NULL);
	arena_make(&pinning.arena, &tiny);
	shared_memory_path(path, pinning.arena.fd);
	make_loader();
	fake_device_open(&pinning.fake);
	pinning.fake.arena = path;
	pinning.locked_bytes = 0;
	pinning.refuse_lock = false;
	pinning.pinner = (struct pinner){ .service = &service, .device = &pinning.fake.device };
	pinning.pinner.lending.device = &pinning.fake.device;
	pthread_mutex_init(&pinning.pinner.lock, NULL);
	pthread_cond_init(&pinning.pinner.moves, NULL);
	if (board_open(&pinning.pinner.board, scratch.dir, "pinner", &pinning.err) < 0)
		return -1;
	board_pinning(board_edit(pinning.pinner.board));
	board_publish(pinning.pinner.board);
	return 0;
}

int
pin_teardown(void **state)
{
	(void)state;
	board_close(pinning.pinner.board);
	slot_table_close(&pinning.pinner.slots);
	lending_close(&pinning.pinner.lending);
	registrar_close(&pinning.pinner);
	hearth__state__free_unpacked(pinning.loader, NULL);
	arena_close(&pinning.arena);
	scratch_close(&scratch);
	return 0;
}

void
follow(void)
{
	int rc;

	do {
		rc = registrar_follow(&pinning.pinner, pinning.loader, &pinning.err);
	} while (rc == 1);
	if (rc < 0)
		fail_msg("%s", pinning.err.text);
}

void
fill(uint32_t slice)
{
	pinning.loader->slices[slice]->state = HEARTH__SLICE_STATE__SLICE_FILLED;
	pinning.loader->slices[slice]->checksum = 100 + slice;
	follow();
}

void
fill_all(void)
{
	for (uint32_t i = 0; i < SLICES; i++)
		fill(i);
}

uint64_t
bytes_of(uint32_t from, uint32_t to)
{
	uint64_t sum = 0;

	for (uint32_t i = from; i < to; i++)
		sum += pinning.arena.slices[i].bytes;
	return sum;
}

/* A slice as the board has it. */
void
expect_slice(uint32_t i, Hearth__SliceState want, bool settled, const char *note)
{
	const Hearth__Slice *slice = board_edit(pinning.pinner.board)->slices[i];

	assert_int_equal(slice->state, want);
	assert_int_equal(slice->settled, settled);
	if (!note)
		assert_string_equal(slice->note, "");
	else if (!strstr(slice->note, note))
		fail_msg("%s: \"%s\" does not say \"%s\"", slice->name, slice->note, note);
	board_publish(pinning.pinner.board);
}

/* The figures; the board's own, for the test alone. */
const Hearth__Pinning *
figures(Hearth__Phase *ret_phase)
{
	Hearth__State *state = board_edit(pinning.pinner.board);

	board_publish(pinning.pinner.board);
	if (ret_phase)
		*ret_phase = state->phase;
	return state->pinning;
}

void
expect_ready(void)
{
	const struct region *trunk = lending_find(&pinning.pinner.lending, TRUNK_KEY);
	Hearth__Phase phase;

	figures(&phase);
	assert_int_equal(phase, HEARTH__PHASE__PHASE_READY);
	assert_int_equal(pinning.fake.straddling, 0);
	assert_int_equal(pinning.fake.unlocked, 0);
	assert_non_null(trunk);
	assert_memory_equal(trunk->device.at, pinning.arena.base + pinning.arena.slices[0].offset,
			    pinning.arena.slices[0].bytes);
}
