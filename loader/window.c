#include "loader/window.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int
window_open(struct window *ret, uint32_t n, uint32_t n_experts)
{
	struct window window = { .n = n };

	window.holds = malloc((n + 1ull) * sizeof(*window.holds));
	window.used = calloc(n + 1ull, sizeof(*window.used));
	window.slot_of = malloc((n_experts + 1ull) * sizeof(*window.slot_of));
	if (!window.holds || !window.used || !window.slot_of) {
		window_close(&window);
		return -ENOMEM;
	}
	memset(window.holds, 0xff, (n + 1ull) * sizeof(*window.holds));
	memset(window.slot_of, 0xff, (n_experts + 1ull) * sizeof(*window.slot_of));
	*ret = window;
	return 0;
}

void
window_close(struct window *window)
{
	free(window->holds);
	free(window->used);
	free(window->slot_of);
	*window = (struct window){ 0 };
}

void
window_begin(struct window *window)
{
	window->fetch++;
}

uint32_t
window_take(struct window *window, uint32_t expert, bool *ret_fresh)
{
	uint32_t slot = window->slot_of[expert];

	*ret_fresh = slot == WINDOW_NONE;
	if (slot == WINDOW_NONE) {
		slot = 0;
		for (uint32_t i = 1; i < window->n; i++)
			if (window->used[i] < window->used[slot])
				slot = i;
		if (window->n == 0 || window->used[slot] == window->fetch)
			return WINDOW_NONE;
		if (window->holds[slot] != WINDOW_NONE)
			window->slot_of[window->holds[slot]] = WINDOW_NONE;
		window->holds[slot] = expert;
		window->slot_of[expert] = slot;
	}
	window->used[slot] = window->fetch;
	return slot;
}

void
window_forget(struct window *window, uint32_t expert)
{
	uint32_t slot = window->slot_of[expert];

	if (slot == WINDOW_NONE)
		return;
	window->holds[slot] = WINDOW_NONE;
	window->used[slot] = 0;
	window->slot_of[expert] = WINDOW_NONE;
}
