/* The pinner's registrar over a device that refuses where the test wants, behind a loader that is a
 * message the test writes. */
#ifndef HEARTH_TESTS_PIN_STAGE_H
#define HEARTH_TESTS_PIN_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "pinner/pinner.h"
#include "tests/fake_device.h"

#define SLICES 5u /* the trunk and four layers */

struct pin_stage {
	struct arena arena; /* as the loader has it, with all its bytes */
	struct fake_device fake;
	struct pinner pinner;
	Hearth__State *loader;
	struct error err;
	uint64_t locked_bytes; /* by the mlock that stands in for the system's, in the test */
	bool refuse_lock;
};

extern struct pin_stage pinning;

/* cmocka's; pinner.pin_config may be changed until the first follow. */
int pin_setup(void **state);
int pin_teardown(void **state);

void follow(void); /* until there is nothing more to do */
void fill(uint32_t slice);
void fill_all(void);
uint64_t bytes_of(uint32_t from, uint32_t to); /* of slices */

/* A slice as the board has it; note NULL: none, else a part of it. */
void expect_slice(uint32_t i, Hearth__SliceState want, bool settled, const char *note);
/* The board's figures, and its phase. */
const Hearth__Pinning *figures(Hearth__Phase *ret_phase);
/* Ready, the trunk on the device, each call under the arena's lock, no copy that straddles. */
void expect_ready(void);

#endif
