/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small proportional font made of strokes, for the text in pictures. It needs
 * no file and no library and can be drawn at any size and angle. Lengths are in
 * units: capitals are FONT_CAP units high, descenders reach to FONT_DESCENT.
 */
#ifndef ATTN_TOOLS_PLOT_FONT_H
#define ATTN_TOOLS_PLOT_FONT_H

#include <stddef.h>
#include <stdint.h>

#define FONT_CAP     9
#define FONT_DESCENT 12

struct font_point {
    unsigned char x, y; /* y grows downwards; the baseline is at FONT_CAP */
};

struct font_segment {
    struct font_point from, to; /* equal for a dot */
};

struct font_glyph {
    size_t count;
    struct font_segment segments[24];
    int advance; /* to the next glyph, the gap included */
};

/* The glyph of a code point; a box stands for what the font does not have. */
void font_glyph(struct font_glyph *glyph, uint32_t code_point);

/*
 * Takes one code point off the front of UTF-8 text, which must not be empty.
 * A byte that is not UTF-8 gives U+FFFD and is taken alone.
 */
uint32_t font_decode(const char **text);

/* The width of a line of UTF-8 text in units, without the gap after it. */
int font_width(const char *text);

#endif
