/* Cuts text into the words that a tokenizer merges within, by the pattern its model was trained
 * with.  Bytes that are no UTF-8 are words of their own, each run of them one: they become byte
 * tokens and are never lost.  Not changed after open; each walk is one thread's. */
#ifndef HEARTH_SCHEDULER_SPLITTER_H
#define HEARTH_SCHEDULER_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/gguf.h"

struct splitter {
	const char *name;
	bool whole_words; /* a word that is a token stays one, whatever the merges say */
	bool begins_text; /* where the file does not say add_bos_token */
	struct pcre2_real_code_8 *code;
};

/* `name` as tokenizer.ggml.pre has it: qwen2; llama-bpe, llama3, llama-v3.  -ENOTSUP: another. */
int splitter_open(struct splitter *ret, struct gguf_string name, struct error *err);
void splitter_close(struct splitter *splitter); /* of a zeroed one is fine */

struct split {
	const struct splitter *splitter;
	const uint8_t *at; /* the text */
	size_t n;
	size_t done;  /* bytes given out */
	size_t valid; /* end of the UTF-8 stretch that `done` lies in; <= done: not looked yet */
	struct pcre2_real_match_data_8 *match;
};

int split_open(struct split *ret, const struct splitter *splitter); /* 0 or -ENOMEM */
/* Any number of texts, one after the other. */
void split_begin(struct split *split, const uint8_t *at, size_t n);
/* 1: *ret_at is the next word; 0: the end; -errno: the pattern gave up. */
int split_next(struct split *split, const uint8_t **ret_at, size_t *ret_n);
void split_close(struct split *split); /* of a zeroed one is fine */

#endif
