/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An RGB picture in memory with the few things that plots need: rectangles and
 * antialiased text at any angle. What lies outside the picture is cut off.
 */
#ifndef ATTN_TOOLS_PLOT_CANVAS_H
#define ATTN_TOOLS_PLOT_CANVAS_H

#include <stdbool.h>
#include <stddef.h>

#include "io/error.h"

struct rgb {
    unsigned char r, g, b;
};

struct canvas {
    int width, height;
    unsigned char *pixels; /* height rows of width times r, g, b */
};

enum text_direction {
    TEXT_ACROSS, /* left to right */
    TEXT_UPWARDS /* bottom to top, turned a quarter to the left */
};

/* White; limit bounds the bytes of the pixels. */
attn_status canvas_create(struct canvas *canvas, int width, int height, double limit_bytes);
void canvas_free(struct canvas *canvas);

void canvas_rectangle(struct canvas *canvas, int x, int y, int width, int height, struct rgb colour);
/* One pixel wide, around the outside of the given rectangle. */
void canvas_frame(struct canvas *canvas, int x, int y, int width, int height, struct rgb colour);

/*
 * Writes a line of text whose baseline starts at (x, y). cap_height is the
 * height of a capital in pixels.
 */
void canvas_text(struct canvas *canvas, double x, double y, double cap_height, enum text_direction direction,
                 struct rgb colour, const char *text);
double canvas_text_width(double cap_height, const char *text);

#endif
