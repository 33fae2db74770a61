/* Whole stacks on the cpu device: they answer as the reference does, and every way of bringing the
 * bytes in gives the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/stack_bits.h"
#include "tests/stack_run.h"

#define DEMO "tests/data/kjv-16x1m.gguf"
#define MARGIN 0.005 /* below it, rounding may decide between two tokens */

/* Ids as `--prompt-ids` takes them; the caller frees it. */
static char *
joined(const json_t *ids)
{
	char *text = calloc(json_array_size(ids) + 1, 12);
	size_t n = 0;

	assert_non_null(text);
	for (size_t i = 0; i < json_array_size(ids); i++)
		n += (size_t)sprintf(text + n, "%s%lld", i ? "," : "",
				     (long long)json_integer_value(json_array_get(ids, i)));
	return text;
}

/* The greedy ids up to the first close call. */
static void
assert_golden(const json_t *answer, const json_t *golden, const char *what)
{
	const json_t *ids = json_object_get(answer, "ids");
	const json_t *want = json_object_get(golden, "greedy_ids");
	const json_t *margins = json_object_get(golden, "margins");

	assert_int_equal(json_array_size(ids), json_array_size(want));
	for (size_t i = 0; i < json_array_size(want); i++) {
		if (json_real_value(json_array_get(margins, i)) <= MARGIN)
			return;
		if (!json_equal(json_array_get(ids, i), json_array_get(want, i)))
			fail_msg("%s: token %zu differs from the reference", what, i);
	}
}

static void
up(const char *name, const char *model)
{
	run_do(WORDS("up", stack_path(model), "--name", name, "--device", "cpu"));
}

static void
down(const char *name)
{
	run_do(WORDS("down", "--name", name));
}

static void
the_demo_model_answers_as_the_reference(void **state)
{
	json_t *golden = json_load_file(stack_path("tests/data/kjv-16x1m.golden.json"), 0, NULL);
	json_t *cases = json_object_get(golden, "cases"), *answer;

	(void)state;
	assert_true(json_array_size(cases) > 0);
	up("golden", DEMO);
	for (size_t i = 0; i < json_array_size(cases); i++) {
		const json_t *one = json_array_get(cases, i);
		const char *prompt = json_string_value(json_object_get(one, "prompt"));

		answer = run_json(WORDS("ask", "--name", "golden", "--json", "-n", "64",
					"--ignore-stop", "--", prompt));
		assert_true(json_equal(json_object_get(answer, "prompt_ids"),
				       json_object_get(one, "prompt_ids")));
		assert_golden(answer, one, prompt);
		assert_string_equal(json_string_value(json_object_get(answer, "finish")), "length");
		json_decref(answer);
	}
	down("golden");
	json_decref(golden);
}

static void
a_model_without_tokenizer_answers_ids(void **state)
{
	json_t *golden = json_load_file(stack_path("tests/data/odd-shapes.json"), 0, NULL);
	json_t *cases = json_object_get(golden, "cases"), *answer;

	(void)state;
	assert_true(json_array_size(cases) > 0);
	up("odd", "tests/data/odd-shapes.gguf");
	for (size_t i = 0; i < json_array_size(cases); i++) {
		char *ids = joined(json_object_get(json_array_get(cases, i), "prompt_ids"));

		answer = run_json(
		    WORDS("ask", "--name", "odd", "--json", "-n", "24", "--prompt-ids", ids));
		assert_golden(answer, json_array_get(cases, i), ids);
		json_decref(answer);
		free(ids);
	}
	down("odd");
	json_decref(golden);
}

/* The file's pages leave the page cache, so that the next read comes from the drive. */
static void
make_cold(const char *model)
{
	int fd = open(model, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	close(fd);
}

static void
the_way_of_reading_changes_no_bit(void **state)
{
	static const char *const readers[] = { "buffered", "direct" };
	struct bits first = { .n_logits = 0 };

	(void)state;
	for (uint32_t i = 0; i < 4; i++) { /* each reader cold, then warm */
		const char *reader = readers[i / 2];

		if (i % 2 == 0)
			make_cold(stack_path(DEMO));
		run_do(WORDS("up", stack_path(DEMO), "--name", "bits", "--device", "cpu", "--read",
			     reader));
		if (first.ids)
			bits_assert_again(&first, "bits");
		else
			bits_take(&first, "bits");
		down("bits");
	}
	bits_close(&first);
}

static void
a_pack_changes_no_bit(void **state)
{
	static const char *const readers[] = { "buffered", "direct" };
	struct bits first;
	char pack[128];

	(void)state;
	snprintf(pack, sizeof(pack), "%s/demo.pack", stack_runtime);
	run_do(WORDS("pack", stack_path(DEMO), pack));
	run_do(WORDS("pack", stack_path(DEMO), pack)); /* which checks the one that is there */
	up("pack", DEMO);
	bits_take(&first, "pack");
	down("pack");
	for (uint32_t i = 0; i < 2; i++) {
		make_cold(pack);
		run_do(
		    WORDS("up", pack, "--name", "pack", "--device", "cpu", "--read", readers[i]));
		bits_assert_again(&first, "pack");
		run_do(WORDS("restart", "loader", "--name", "pack"));
		run_do(WORDS("verify", "--name", "pack"));
		bits_assert_again(&first, "pack");
		down("pack");
	}
	assert_int_equal(unlink(pack), 0);
	bits_close(&first);
}

static void
a_restart_changes_no_bit(void **state)
{
	static const char *const stages[] = { "worker", "pinner", "loader", "scheduler" };
	struct bits first;

	(void)state;
	up("again", DEMO);
	bits_take(&first, "again");
	bits_assert_again(&first, "again"); /* from a warm KV cache */
	for (uint32_t i = 0; i < 4; i++) {
		run_do(WORDS("restart", stages[i], "--name", "again"));
		bits_assert_again(&first, "again");
	}
	run_do(WORDS("verify", "--name", "again"));
	down("again");
	bits_close(&first);
}

static void
threads_change_no_bit(void **state)
{
	struct bits first;

	(void)state;
	run_do(WORDS("up", stack_path(DEMO), "--name", "threads", "--device", "cpu", "--threads",
		     "1"));
	bits_take(&first, "threads");
	down("threads");
	run_do(WORDS("up", stack_path(DEMO), "--name", "threads", "--device", "cpu", "--threads",
		     "3"));
	bits_assert_again(&first, "threads");
	down("threads");
	bits_close(&first);
}

/* Keys and values of 512 tokens take 2 MiB, so a third of the experts have slots. */
static void
slots_change_no_bit(void **state)
{
	struct bits first;
	json_t *slots;

	(void)state;
	up("slots", DEMO);
	bits_take(&first, "slots");
	down("slots");
	run_do(WORDS("up", stack_path(DEMO), "--name", "slots", "--device", "cpu", "--ctx", "512",
		     "--vram-mib", "5"));
	for (uint32_t i = 0; i < 3; i++) /* while slots fill */
		bits_assert_again(&first, "slots");
	slots = stack_figure("slots", "worker", "slots");
	assert_in_range(json_integer_value(slots), 1, 63);
	json_decref(slots);
	down("slots");
	bits_close(&first);
}

static void
a_seed_gives_the_same_answer_again(void **state)
{
	char *first, *second, *other;

	(void)state;
	up("seed", DEMO);
	first = run_text(
	    WORDS("ask", "--name", "seed", "-n", "40", "--temp", "1.2", "--seed", "7", "And"));
	second = run_text(
	    WORDS("ask", "--name", "seed", "-n", "40", "--temp", "1.2", "--seed", "7", "And"));
	other = run_text(
	    WORDS("ask", "--name", "seed", "-n", "40", "--temp", "1.2", "--seed", "8", "And"));
	assert_string_equal(first, second);
	assert_string_not_equal(first, other);
	down("seed");
	free(first);
	free(second);
	free(other);
}

static void
verify_and_report_agree_with_the_load(void **state)
{
	json_t *report, *layers, *verified;

	(void)state;
	run_do(WORDS("up", stack_path(DEMO), "--name", "sums", "--device", "cpu", "--verify"));
	run_do(WORDS("ask", "--name", "sums", "-n", "16", "In the"));
	verified = run_json(WORDS("verify", "--name", "sums", "--json"));
	report = run_json(WORDS("report", "--name", "sums", "--json"));
	layers = json_object_get(report, "layers");
	assert_int_equal(json_array_size(layers), 5); /* the trunk and four layers */
	assert_int_equal(json_array_size(verified), 5);
	for (size_t i = 0; i < 5; i++) {
		const json_t *one = json_array_get(verified, i);

		assert_true(json_is_true(json_object_get(one, "same")));
		assert_true(json_equal(json_object_get(json_array_get(layers, i), "checksum"),
				       json_object_get(one, "checksum")));
	}
	assert_true(
	    json_is_real(json_object_get(json_object_get(report, "seconds"), "arena_loaded")));
	assert_true(
	    json_is_real(json_object_get(json_object_get(report, "seconds"), "sixteen_tokens")));
	down("sums");
	json_decref(verified);
	json_decref(report);
}

static void
two_stacks_run_side_by_side(void **state)
{
	struct bits one, two;
	json_t *name;
	pid_t worker;

	(void)state;
	up("one", DEMO);
	up("two", DEMO);
	bits_take(&one, "one");
	bits_take(&two, "two");
	bits_assert_same_answer(&one, &two, "two stacks");
	worker = stack_pid("two", "worker");
	down("one");
	bits_assert_again(&two, "two");
	assert_int_equal(stack_pid("two", "worker"), worker);
	name = run_json(WORDS("status", "--json", "--name", "two"));
	assert_string_equal(json_string_value(json_object_get(name, "name")), "two");
	json_decref(name);
	down("two");
	bits_close(&one);
	bits_close(&two);
}

static void
a_client_killed_while_it_reads_harms_nobody(void **state)
{
	struct bits before;
	struct run client;

	(void)state;
	up("client", DEMO);
	bits_take(&before, "client");
	run_start(&client,
		  WORDS("ask", "--name", "client", "-n", "1000", "--ignore-stop", "And it"));
	run_read(&client, 40);
	stack_kill(client.pid);
	assert_int_equal(run_finish(&client), 128 + SIGKILL);
	run_close(&client);
	bits_assert_again(&before, "client");
	down("client");
	bits_close(&before);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(the_demo_model_answers_as_the_reference),
		stack_test(a_model_without_tokenizer_answers_ids),
		stack_test(the_way_of_reading_changes_no_bit),
		stack_test(a_pack_changes_no_bit),
		stack_test(a_restart_changes_no_bit),
		stack_test(threads_change_no_bit),
		stack_test(slots_change_no_bit),
		stack_test(a_seed_gives_the_same_answer_again),
		stack_test(verify_and_report_agree_with_the_load),
		stack_test(two_stacks_run_side_by_side),
		stack_test(a_client_killed_while_it_reads_harms_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
