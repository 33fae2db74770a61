#include "worker/cpu_share_work.h"

#include <errno.h>
#include <stdlib.h>

#define IN_ROWS LANES_ACT /* of act: a part makes whole groups */
#define OUT_ROWS 64u

int
share_work_open(struct share_work *work, const struct cpu_share_config *config)
{
	work->config = *config;
	work->kernels = lanes_kernels_best();
	work->act_blocks = lanes_blocks(config->model->expert_width);
	work->act = calloc((size_t)SHARE_MAX * work->act_blocks, sizeof(*work->act));
	return work->act ? 0 : -ENOMEM;
}

void
share_work_close(struct share_work *work)
{
	free(work->act);
}

int
share_room_open(struct share_room *room, const struct share_work *work)
{
	uint64_t x = lanes_blocks(work->config.model->hidden);
	uint64_t act = (uint64_t)SHARE_MAX * work->act_blocks;

	room->x[0] = aligned_alloc(SHARE_LINE, (2 * x + act) * sizeof(*room->x[0]));
	if (!room->x[0])
		return -ENOMEM;
	room->x[1] = room->x[0] + x;
	room->act = room->x[1] + x;
	return 0;
}

void
share_room_close(struct share_room *room)
{
	free(room->x[0]);
}

void
share_job_cut(const struct share_work *work, struct share_job *job)
{
	const struct model *model = work->config.model;

	job->in_parts = (model->expert_width - 1) / IN_ROWS + 1;
	job->out_parts = (model->hidden - 1) / OUT_ROWS + 1;
}

static uint32_t
rows_from(uint32_t first, uint32_t at_once, uint32_t all)
{
	return all - first < at_once ? all - first : at_once;
}

/* Rows `first` .. of one role of an expert. */
static void
role_rows(const struct share_work *work, const struct share_job *job, uint32_t expert,
	  enum role role, struct lanes_rows *rows, uint32_t first)
{
	const struct model *model = work->config.model;
	const struct experts *experts = &model->layers[job->layer].role[role];
	const struct expert_place *place =
	    &work->config.places[(uint64_t)job->layer * model->n_experts + expert];

	rows->type = experts->type;
	rows->columns = experts->columns;
	rows->row_bytes = experts->bytes / experts->rows;
	rows->rows = (const uint8_t *)place->role[role] + first * rows->row_bytes;
	work->kernels->rows(rows);
}

static const struct experts *
roles_of(const struct share_work *work, const struct share_job *job)
{
	return work->config.model->layers[job->layer].role;
}

static void
room_take_x(struct share_room *room, const struct share_work *work, const struct share_job *job)
{
	const struct experts *role = roles_of(work, job);
	const struct lanes_fixed *x =
	    (const void *)((const uint8_t *)work->config.order + SHARE_ORDER_BYTES);

	if (room->has_x == job->sequence)
		return;
	lanes_set(role[ROLE_GATE].type, x, work->config.model->hidden, room->x[0]);
	if (role[ROLE_UP].type != role[ROLE_GATE].type)
		lanes_set(role[ROLE_UP].type, x, work->config.model->hidden, room->x[1]);
	room->has_x = job->sequence;
}

void
share_in_part(const struct share_work *work, struct share_room *room, const struct share_job *job,
	      uint32_t part)
{
	const struct experts *role = roles_of(work, job);
	uint32_t i = part / job->in_parts, first = part % job->in_parts * IN_ROWS;
	const struct share_expert *of = &work->config.order->experts[i];
	float gate[IN_ROWS], up[IN_ROWS];
	struct lanes_rows rows = { .y = gate };
	struct lanes_act act = { .gate = gate, .up = up, .weight = of->weight };

	room_take_x(room, work, job);
	act.n = rows_from(first, IN_ROWS, work->config.model->expert_width);
	act.first = first % LANES_COLUMNS;
	rows.n_rows = act.n;
	rows.x = room->x[0];
	role_rows(work, job, of->expert, ROLE_GATE, &rows, first);
	rows.y = up;
	rows.x = room->x[role[ROLE_UP].type != role[ROLE_GATE].type];
	role_rows(work, job, of->expert, ROLE_UP, &rows, first);
	work->kernels->act(&act, &work->act[i * work->act_blocks + first / LANES_COLUMNS]);
}

static void
room_take_act(struct share_room *room, const struct share_work *work, const struct share_job *job)
{
	if (room->has_act == job->sequence)
		return;
	for (uint32_t i = 0; i < job->n; i++)
		lanes_set(roles_of(work, job)[ROLE_DOWN].type, work->act + i * work->act_blocks,
			  work->config.model->expert_width, room->act + i * work->act_blocks);
	room->has_act = job->sequence;
}

void
share_out_part(const struct share_work *work, struct share_room *room, const struct share_job *job,
	       uint32_t part)
{
	uint32_t hidden = work->config.model->hidden;
	uint32_t i = part / job->out_parts, first = part % job->out_parts * OUT_ROWS;
	float *out = (float *)(void *)((uint8_t *)work->config.answer + SHARE_ANSWER_BYTES);
	struct lanes_rows rows = { .y = out + (uint64_t)i * hidden + first };

	room_take_act(room, work, job);
	rows.n_rows = rows_from(first, OUT_ROWS, hidden);
	rows.x = room->act + i * work->act_blocks;
	role_rows(work, job, work->config.order->experts[i].expert, ROLE_DOWN, &rows, first);
}
