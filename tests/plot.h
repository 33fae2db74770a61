/* A picture of lines over two axes, as SVG. */
#ifndef HEARTH_TESTS_PLOT_H
#define HEARTH_TESTS_PLOT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct plot {
	FILE *file;
	double most_x, most_y; /* where the axes end; both begin at 0 */
	double least_y;        /* above 0: the axis of y begins there and is logarithmic */
	uint32_t named;        /* lines so far that have a name */
};

struct plot_point {
	double x, y;
};

/* `unit_x` stands behind each number of the axis.  False: the file cannot be made. */
bool plot_open(struct plot *plot, const char *path, const char *title, const char *unit_x);
/* Points beyond an axis are put at its end.  name (may be NULL) is what the legend says of it;
 * `dots`: a mark at each point, else a line through them. */
void plot_line(struct plot *plot, const char *colour, const char *name, bool dots,
	       const struct plot_point *points, uint32_t n);
/* False: it could not be written whole. */
bool plot_close(struct plot *plot);

#endif
