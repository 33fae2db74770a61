/* Cuts a model in one file into three shards, the roles of its experts apart: gates in the first,
 * ups in the second, downs in the third, all else in turn.  Dies on its own mistakes, as the
 * builder does. */
#ifndef HEARTH_TESTS_GGUF_SPLIT_H
#define HEARTH_TESTS_GGUF_SPLIT_H

#define SPLIT_SHARDS 3u

/* Writes <stem>-00001-of-00003.gguf ... */
void gguf_split(const char *model, const char *stem);

#endif
