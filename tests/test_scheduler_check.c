/* A client's message by itself: what makes no sense is refused with what would be right. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "scheduler/front_check.h"

static Hearth__FrontRequest request;
static Hearth__Submit submit;
static Hearth__Sampling sampling;
static uint32_t ids[] = { 1, 2, 3 };

/* A submit that is right. */
static int
make(void **state)
{
	(void)state;
	hearth__front_request__init(&request);
	hearth__submit__init(&submit);
	hearth__sampling__init(&sampling);
	request.what_case = HEARTH__FRONT_REQUEST__WHAT_SUBMIT;
	request.submit = &submit;
	submit.request = 7;
	submit.prompt_ids = ids;
	submit.n_prompt_ids = 3;
	submit.max_tokens = 2;
	submit.sampling = &sampling;
	return 0;
}

static void
assert_refused(const char *said)
{
	struct error err;

	assert_int_equal(front_check(&request, &err), -EINVAL);
	if (!strstr(err.text, said))
		fail_msg("'%s' does not say '%s'", err.text, said);
}

static void
what_is_right_passes(void **state)
{
	struct error err;

	(void)state;
	assert_int_equal(front_check(&request, &err), 0);
	submit.n_prompt_ids = 0;
	submit.text = (char *)"text";
	submit.sampling = NULL;
	submit.given_ids = ids;
	submit.n_given_ids = 2;
	assert_int_equal(front_check(&request, &err), 0);
}

static void
nothing_is_no_request(void **state)
{
	(void)state;
	request.what_case = HEARTH__FRONT_REQUEST__WHAT__NOT_SET;
	assert_refused("neither submit, read nor cancel");
}

static void
id_0_names_nobody(void **state)
{
	static Hearth__Read read = HEARTH__READ__INIT;
	static Hearth__Cancel cancel = HEARTH__CANCEL__INIT;

	(void)state;
	submit.request = 0;
	assert_refused("request id 0");
	request.what_case = HEARTH__FRONT_REQUEST__WHAT_READ;
	request.read = &read;
	assert_refused("request id 0");
	request.what_case = HEARTH__FRONT_REQUEST__WHAT_CANCEL;
	request.cancel = &cancel;
	assert_refused("request id 0");
}

static void
a_prompt_is_text_or_ids(void **state)
{
	(void)state;
	submit.text = (char *)"text";
	assert_refused("both text and prompt_ids");
	submit.text = (char *)"";
	submit.n_prompt_ids = 0;
	assert_refused("an empty prompt");
}

static void
counts_have_limits(void **state)
{
	(void)state;
	submit.max_tokens = 0;
	assert_refused("max_tokens 0: want 1 or more");
	submit.max_tokens = 2;
	submit.given_ids = ids;
	submit.n_given_ids = 3;
	assert_refused("3 given_ids: want at most max_tokens, 2");
	submit.n_given_ids = 0;
	submit.n_prompt_ids = MAX_CONTEXT;
	assert_refused("1048576 prompt_ids: want less than 1048576");
}

static void
an_id_no_vocabulary_has_is_refused(void **state)
{
	uint32_t wrong[] = { 1, MAX_VOCABULARY };

	(void)state;
	submit.prompt_ids = wrong;
	submit.n_prompt_ids = 2;
	assert_refused("prompt_ids: number 1 is 1048576");
	submit.prompt_ids = ids;
	submit.given_ids = wrong;
	submit.n_given_ids = 2;
	assert_refused("given_ids: number 1 is 1048576");
}

static void
sampling_is_finite_and_in_range(void **state)
{
	const float temperatures[] = { -1, NAN, INFINITY }, top_ps[] = { -0.5f, 1.5f, NAN };

	(void)state;
	for (int i = 0; i < 3; i++) {
		sampling.temperature = temperatures[i];
		assert_refused("temperature");
		sampling.temperature = 0;
		sampling.top_p = top_ps[i];
		assert_refused("top_p");
		sampling.top_p = 0;
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(what_is_right_passes, make),
		cmocka_unit_test_setup(nothing_is_no_request, make),
		cmocka_unit_test_setup(id_0_names_nobody, make),
		cmocka_unit_test_setup(a_prompt_is_text_or_ids, make),
		cmocka_unit_test_setup(counts_have_limits, make),
		cmocka_unit_test_setup(an_id_no_vocabulary_has_is_refused, make),
		cmocka_unit_test_setup(sampling_is_finite_and_in_range, make),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
