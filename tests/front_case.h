/* The set-up of a test about the scheduler: its inside, with or without a worker.  One at a time.
 */
#ifndef HEARTH_TESTS_FRONT_CASE_H
#define HEARTH_TESTS_FRONT_CASE_H

#include "tests/fake_worker.h"
#include "tests/front_stage.h"

#define CASE_CONTEXT 64u
#define CASE_VOCABULARY 2048u /* of the demo model's tokenizer */
#define CASE_QUEUE 2u         /* requests that wait */

extern struct front_stage stage;
extern struct fake_worker worker;

/* Decided, with the tokenizer, and a worker. */
int front_case_open(void **state);
int front_case_close(void **state);
#define WITH_WORKER(test) cmocka_unit_test_setup_teardown(test, front_case_open, front_case_close)

/* The same before the worker comes, which front_case_hello opens; the test closes it. */
int front_case_open_decided(void **state);
void front_case_hello(void);
#define DECIDED(test) \
	cmocka_unit_test_setup_teardown(test, front_case_open_decided, front_case_close_alone)

/* Not decided, and nobody else is there. */
int front_case_open_alone(void **state);
int front_case_close_alone(void **state);
#define ALONE(test) \
	cmocka_unit_test_setup_teardown(test, front_case_open_alone, front_case_close_alone)

#endif
