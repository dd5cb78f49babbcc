/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A picture of which the format is not known yet: rectangles, cells and text are
 * recorded, and picture.h plays them back as PNG, SVG or PDF. Text is set by
 * Pango, which takes whatever fonts are installed for the scripts it meets. What
 * lies outside the picture is cut off.
 */
#ifndef ATTN_TOOLS_PLOT_CANVAS_H
#define ATTN_TOOLS_PLOT_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/error.h"

struct rgb {
    unsigned char r, g, b;
};

struct _cairo;
struct _cairo_surface;
struct _PangoLayout;

/* canvas_free() and canvas_open() take a zeroed one. */
struct canvas {
    double unit; /* pixels per unit; text, lines and gaps are given in units */
    int width, height;
    struct _cairo_surface *surface;
    struct _cairo *draw;
    struct _PangoLayout *line;
    int64_t missing;       /* characters drawn so far that no font has */
    char missing_text[64]; /* the first text with one of them */
};

enum text_direction {
    TEXT_ACROSS, /* left to right */
    TEXT_UPWARDS /* bottom to top, turned a quarter to the left */
};

/* Text can be measured as soon as the canvas is open, and things be drawn once it has a size. */
void canvas_open(struct canvas *canvas, double unit);
/* limit bounds the bytes that pixels of this number need. */
attn_status canvas_size(struct canvas *canvas, int width, int height, double limit_bytes);
void canvas_free(struct canvas *canvas);

/* So many units in whole pixels. */
int canvas_pixels(const struct canvas *canvas, double units);

void canvas_rectangle(struct canvas *canvas, int x, int y, int width, int height, struct rgb colour);
/* One unit wide, around the outside of the given rectangle. */
void canvas_frame(struct canvas *canvas, int x, int y, int width, int height, struct rgb colour);
/* An area of width times height pixels, row by row. */
attn_status canvas_area(struct canvas *canvas, int x, int y, int width, int height, const struct rgb *pixels);

/*
 * Writes a line of text whose baseline starts at (x, y), in pixels. cap_height
 * is the height of a capital in units. Text that is wider than most units ends
 * in an ellipsis; bytes that are not UTF-8 become U+FFFD.
 */
void canvas_text(struct canvas *canvas, double x, double y, double cap_height, double most,
                 enum text_direction direction, struct rgb colour, const char *text);
/* In pixels. */
double canvas_text_width(struct canvas *canvas, double cap_height, double most, const char *text);

#endif
