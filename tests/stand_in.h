/* A build folder like the real one, in which one stage is a script: for whole-stack tests. */
#ifndef HEARTH_TESTS_STAND_IN_H
#define HEARTH_TESTS_STAND_IN_H

struct stand_in {
	char folder[64];
	char gate[80]; /* a FIFO for the script's use */
};

/* HEARTH_BUILD is this folder until it is closed.  The script is bash; it finds the FIFO as $gate
 * and the stage's program as $real. */
void stand_in_open(struct stand_in *ret, const char *stage, const char *script);
void stand_in_close(struct stand_in *stand_in);

#endif
