#include "tests/front_case.h"

struct front_stage stage;
struct fake_worker worker;

int
front_case_open_alone(void **state)
{
	(void)state;
	front_stage_open(&stage, CASE_QUEUE);
	return 0;
}

int
front_case_close_alone(void **state)
{
	(void)state;
	front_stage_close(&stage);
	return 0;
}

int
front_case_open_decided(void **state)
{
	front_case_open_alone(state);
	front_stage_decide(&stage, front_stage_tokenizer());
	return 0;
}

void
front_case_hello(void)
{
	fake_worker_open(&worker, stage.scratch.dir, CASE_CONTEXT, CASE_VOCABULARY);
}

int
front_case_open(void **state)
{
	front_case_open_decided(state);
	front_case_hello();
	return 0;
}

int
front_case_close(void **state)
{
	fake_worker_close(&worker);
	return front_case_close_alone(state);
}
