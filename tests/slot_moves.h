/* A move of an expert into a slot, as tests write it. */
#ifndef HEARTH_TESTS_SLOT_MOVES_H
#define HEARTH_TESTS_SLOT_MOVES_H

#include "pinner/slot_table.h"

#define MOVE(layer_, expert_, slot_)                                    \
	{                                                               \
		.layer = (layer_), .expert = (expert_), .slot = (slot_) \
	}

#endif
