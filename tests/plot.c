#include "tests/plot.h"

#include <math.h>

#define WIDTH 900.0
#define HEIGHT 300.0
#define INSET 50.0
#define STEPS 4 /* of an even axis */

static double
place_x(const struct plot *plot, double x)
{
	return INSET + fmin(fmax(x / plot->most_x, 0), 1) * (WIDTH - 2 * INSET);
}

static double
place_y(const struct plot *plot, double y)
{
	double part = plot->least_y > 0 ? log(fmax(y, plot->least_y) / plot->least_y) /
					      log(plot->most_y / plot->least_y)
					: y / plot->most_y;

	return HEIGHT - INSET - fmin(fmax(part, 0), 1) * (HEIGHT - 2 * INSET);
}

static void
mark_y(const struct plot *plot, double y)
{
	double at = place_y(plot, y);

	fprintf(plot->file,
		"<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>"
		"<path d=\"M%g %.1fH%g\" stroke=\"#ddd\"/>\n",
		INSET - 4, at + 4, plot->least_y > 0 ? 0 : 2, y, INSET, at, WIDTH - INSET);
}

/* 1, 2 and 5 of each power of ten. */
static void
mark_decades(const struct plot *plot)
{
	static const double digits[] = { 1, 2, 5 };
	int first = (int)floor(log10(plot->least_y)), last = (int)ceil(log10(plot->most_y));

	for (int power = first; power <= last; power++)
		for (int i = 0; i < 3; i++) {
			double y = digits[i] * pow(10, power);

			if (y >= plot->least_y && y <= plot->most_y)
				mark_y(plot, y);
		}
}

bool
plot_open(struct plot *plot, const char *path, const char *title, const char *unit_x)
{
	plot->file = fopen(path, "we");
	plot->named = 0;
	if (!plot->file)
		return false;
	fprintf(
	    plot->file,
	    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
	    "font-family=\"sans-serif\" font-size=\"11\"><rect width=\"100%%\" height=\"100%%\" "
	    "fill=\"#fff\"/>\n<text x=\"%g\" y=\"20\">%s</text>\n",
	    WIDTH, HEIGHT, INSET, title);
	if (plot->least_y > 0)
		mark_decades(plot);
	for (uint32_t i = 0; i <= STEPS; i++) {
		double x = plot->most_x * i / STEPS;

		if (!(plot->least_y > 0))
			mark_y(plot, plot->most_y * i / STEPS);
		fprintf(plot->file,
			"<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%.1f %s</text>\n",
			place_x(plot, x), HEIGHT - INSET + 16, x, unit_x);
	}
	return true;
}

void
plot_line(struct plot *plot, const char *colour, const char *name, bool dots,
	  const struct plot_point *points, uint32_t n)
{
	if (name)
		fprintf(plot->file,
			"<text x=\"%g\" y=\"%u\" fill=\"%s\" text-anchor=\"end\">%s</text>\n",
			WIDTH - 8, 20 + 13 * plot->named++, colour, name);
	if (!dots)
		fprintf(plot->file,
			"<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
			colour);
	for (uint32_t i = 0; i < n; i++) {
		double x = place_x(plot, points[i].x), y = place_y(plot, points[i].y);

		if (dots)
			fprintf(plot->file,
				"<circle r=\"4\" cx=\"%.1f\" cy=\"%.1f\" fill=\"%s\"/>\n", x, y,
				colour);
		else
			fprintf(plot->file, "%.1f,%.1f ", x, y);
	}
	if (!dots)
		fputs("\"/>\n", plot->file);
}

bool
plot_close(struct plot *plot)
{
	bool written = fputs("</svg>\n", plot->file) >= 0 && !ferror(plot->file);

	return fclose(plot->file) == 0 && written;
}
