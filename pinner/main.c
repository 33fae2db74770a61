/* pinner: gets the arena from the loader's state, slice by slice as it is filled; gives registered
 * slices and lent memory that outlive every worker; leaves when its stdin ends, or with 0 to be
 * started afresh when the loader has another arena. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/options.h"
#include "pinner/pinner.h"

struct pinner_options {
	const char *dir;
	const char *device;
	uint64_t vram_mib; /* 0 = no cap */
	struct pin_config pin;
	uint64_t restarts; /* of this stage, so far */
};

static int
pinner_read_options(int argc, char **argv, struct pinner_options *ret, struct error *err)
{
	static const char *const orders[] = { "after", "before", NULL };
	struct pinner_options options = { .device = "auto" };
	const char *order = "after", *gib = "auto";
	const struct option_def defs[] = {
		{ .name = "--dir", .kind = OPTION_TEXT, .to = &options.dir },
		{ .name = "--device", .kind = OPTION_TEXT, .to = &options.device },
		{ .name = "--vram-mib",
		  .kind = OPTION_U64,
		  .to = &options.vram_mib,
		  .max = 1 << 24 },
		{ .name = "--pin-order", .kind = OPTION_TEXT, .to = &order, .choices = orders },
		{ .name = "--restarts",
		  .kind = OPTION_U64,
		  .to = &options.restarts,
		  .max = UINT64_MAX },
		{ .name = "--pin-gib", .kind = OPTION_TEXT, .to = &gib },
	};
	uint32_t n_words;
	int rc =
	    options_parse(argc, argv, defs, sizeof(defs) / sizeof(*defs), NULL, 0, &n_words, err);

	if (rc < 0)
		return rc;
	if (!options.dir)
		return error_set(err, -EINVAL, "--dir: the runtime folder is missing");
	rc = pin_config_read(&options.pin, order, gib, err);
	if (rc < 0)
		return rc;
	*ret = options;
	return 0;
}

/* Names the device on the board before anybody asks for it. */
static int
pinner_introduce(struct pinner *pinner, uint64_t cap, struct error *err)
{
	const struct device_info *info = device_describe(pinner->device);
	Hearth__State *state = board_edit(pinner->board);
	Hearth__Pinning *pinning = board_pinning(state);

	if (pinning) {
		board_text(&pinning->device, "%s", info->name);
		board_text(&pinning->method, "%s", info->register_method);
		board_text(&pinning->order, "%s",
			   pinner->pin_config.order == PIN_BEFORE ? "before" : "after");
		pinning->capped = pinner->pin_config.capped;
		pinning->cap_bytes = pinner->pin_config.cap;
		pinning->device_bytes_cap = cap;
		board_text(&state->reason, "waits for the loader");
	}
	board_publish(pinner->board);
	if (!pinning)
		return error_set(err, -ENOMEM, "state: no memory");
	log_info("device %s, registers by %s", info->name, info->register_method);
	return 0;
}

static int
pinner_loop(struct pinner *pinner, struct watch *loader, struct error *err)
{
	Hearth__State *state;
	uint64_t seen = 0;
	int rc = 0;

	do {
		state = watch_get(loader);
		rc = registrar_follow(pinner, state, err);
		if (state)
			hearth__state__free_unpacked(state, NULL);
	} while (rc == 1 ? !service_leaving(pinner->service)
			 : rc == 0 && service_wait(pinner->service, &seen, 0));
	return rc < 0 ? rc : 0;
}

static int
pinner_serve(struct pinner *pinner, const struct pinner_options *options, struct error *err)
{
	struct server *server = NULL;
	struct watch *loader = NULL;
	pthread_t mover;
	int rc;

	rc = mover_start(pinner, &mover);
	if (rc < 0)
		return error_sys(err, rc, "mover thread");
	rc = server_open(&server, options->dir, "pinner.lend", desk_answer, pinner, err);
	if (rc == 0)
		rc = watch_open(&loader, options->dir, "loader", pinner->service, err);
	if (rc == 0) {
		desk_publish(pinner);
		service_ready(pinner->service);
		rc = pinner_loop(pinner, loader, err);
	}
	rc = registrar_leave(pinner, rc, err);
	service_watchdog();
	watch_close(loader);
	mover_stop(pinner, mover);
	server_close(server);
	return rc;
}

static int
pinner_run(struct service *service, const struct pinner_options *options, struct error *err)
{
	struct pinner pinner = { .service = service, .pin_config = options->pin };
	int rc;

	pthread_mutex_init(&pinner.lock, NULL);
	pthread_cond_init(&pinner.moves, NULL);
	rc = board_open(&pinner.board, options->dir, "pinner", err);
	if (rc < 0)
		return rc;
	board_restarts(pinner.board, options->restarts);
	rc = device_open(&pinner.device, options->device, err);
	if (rc == 0) {
		pinner.lending.device = pinner.device;
		pinner.lending.cap = options->vram_mib << 20;
		rc = pinner_introduce(&pinner, pinner.lending.cap, err);
	}
	if (rc == 0)
		rc = pinner_serve(&pinner, options, err);
	service_watchdog();
	board_close(pinner.board);
	slot_table_close(&pinner.slots);
	lending_close(&pinner.lending);
	registrar_close(&pinner);
	device_close(pinner.device);
	return rc;
}

int
main(int argc, char **argv)
{
	struct pinner_options options = { 0 };
	struct service service;
	struct error err;
	int rc;

	log_open("pinner");
	rc = pinner_read_options(argc, argv, &options, &err);
	if (rc == 0)
		rc = service_open(&service, "pinner", &err);
	if (rc == 0) {
		rc = pinner_run(&service, &options, &err);
		service_close(&service);
	}
	if (rc < 0) {
		log_error("%s", err.text);
		return error_exit_code(rc);
	}
	return 0;
}
