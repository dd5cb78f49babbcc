/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws rectangles and text into a picture in memory. Text is antialiased by distance: a pixel's ink is how far its
 * centre lies inside the nearest stroke's half width, taken over all strokes of the glyph at once, so that strokes
 * which meet do not darken each other. Cost is pixels times strokes of each glyph, nothing for labels.
 */
#include "canvas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "font.h"

attn_status canvas_create(struct canvas *canvas, int width, int height, double limit_bytes)
{
    *canvas = (struct canvas){.width = width, .height = height};
    double bytes = 3.0 * width * height;
    if (bytes > limit_bytes)
        return io_fail(ATTN_SIZE_OVERFLOW,
                       "the picture of %d x %d pixels needs %.1f MiB, above the limit of %.1f MiB (--limit-mib)", width,
                       height, bytes / 1048576, limit_bytes / 1048576);
    size_t size = (size_t)width * (size_t)height * 3;
    canvas->pixels = malloc(size > 0 ? size : 1);
    if (canvas->pixels == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a picture of %d x %d pixels", width, height);
    memset(canvas->pixels, 0xff, size);
    return ATTN_OK;
}

void canvas_free(struct canvas *canvas)
{
    free(canvas->pixels);
    canvas->pixels = NULL;
}

static unsigned char *pixel(struct canvas *canvas, int x, int y)
{
    return canvas->pixels + ((size_t)y * (size_t)canvas->width + (size_t)x) * 3;
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

void canvas_rectangle(struct canvas *canvas, int x, int y, int width, int height, struct rgb colour)
{
    int left = clamp(x, 0, canvas->width), right = clamp(x + width, 0, canvas->width);
    int top = clamp(y, 0, canvas->height), bottom = clamp(y + height, 0, canvas->height);
    for (int row = top; row < bottom; row++) {
        for (int column = left; column < right; column++) {
            unsigned char *p = pixel(canvas, column, row);
            p[0] = colour.r, p[1] = colour.g, p[2] = colour.b;
        }
    }
}

void canvas_frame(struct canvas *canvas, int x, int y, int width, int height, struct rgb colour)
{
    canvas_rectangle(canvas, x - 1, y - 1, width + 2, 1, colour);
    canvas_rectangle(canvas, x - 1, y + height, width + 2, 1, colour);
    canvas_rectangle(canvas, x - 1, y, 1, height, colour);
    canvas_rectangle(canvas, x + width, y, 1, height, colour);
}

/* Where text units lie on the picture: origin plus unit steps along the line and down from it. */
struct frame {
    double x, y, unit;
    double along_x, along_y, down_x, down_y;
};

static double distance(const struct font_segment *s, double x, double y)
{
    double dx = s->to.x - s->from.x, dy = s->to.y - s->from.y;
    double length2 = dx * dx + dy * dy;
    double t = length2 > 0 ? ((x - s->from.x) * dx + (y - s->from.y) * dy) / length2 : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return hypot(x - s->from.x - t * dx, y - s->from.y - t * dy);
}

static void draw_glyph(struct canvas *canvas, const struct frame *at, const struct font_glyph *glyph, struct rgb colour)
{
    /* A sixth of the height is too fat for capitals, an eighth too thin: one in seven. */
    double half = at->unit * FONT_CAP / 14;
    if (half < 0.55)
        half = 0.55;
    /* The glyph's box with a margin, turned, in pixels. */
    double w = glyph->advance, h = FONT_DESCENT, margin = half + 1.5;
    double xs[4], ys[4];
    for (int corner = 0; corner < 4; corner++) {
        double u = (corner & 1 ? w : 0) * at->unit, v = ((corner & 2 ? h : 0) - FONT_CAP) * at->unit;
        xs[corner] = at->x + u * at->along_x + v * at->down_x;
        ys[corner] = at->y + u * at->along_y + v * at->down_y;
    }
    double x0 = fmin(fmin(xs[0], xs[1]), fmin(xs[2], xs[3])) - margin;
    double x1 = fmax(fmax(xs[0], xs[1]), fmax(xs[2], xs[3])) + margin;
    double y0 = fmin(fmin(ys[0], ys[1]), fmin(ys[2], ys[3])) - margin;
    double y1 = fmax(fmax(ys[0], ys[1]), fmax(ys[2], ys[3])) + margin;
    int left = (int)fmax(floor(x0), 0), right = (int)fmin(ceil(x1), canvas->width);
    int top = (int)fmax(floor(y0), 0), bottom = (int)fmin(ceil(y1), canvas->height);
    for (int py = top; py < bottom; py++) {
        for (int px = left; px < right; px++) {
            double dx = px + 0.5 - at->x, dy = py + 0.5 - at->y;
            double u = (dx * at->along_x + dy * at->along_y) / at->unit;
            double v = (dx * at->down_x + dy * at->down_y) / at->unit + FONT_CAP;
            double nearest = 1e9;
            for (size_t i = 0; i < glyph->count; i++)
                nearest = fmin(nearest, distance(&glyph->segments[i], u, v));
            double ink = half + 0.5 - nearest * at->unit;
            ink = ink < 0 ? 0 : ink > 1 ? 1 : ink;
            unsigned char *p = pixel(canvas, px, py);
            p[0] = (unsigned char)lrint(p[0] + ink * (colour.r - p[0]));
            p[1] = (unsigned char)lrint(p[1] + ink * (colour.g - p[1]));
            p[2] = (unsigned char)lrint(p[2] + ink * (colour.b - p[2]));
        }
    }
}

void canvas_text(struct canvas *canvas, double x, double y, double cap_height, enum text_direction direction,
                 struct rgb colour, const char *text)
{
    struct frame at = {.x = x, .y = y, .unit = cap_height / FONT_CAP};
    bool across = direction == TEXT_ACROSS;
    at.along_x = across ? 1 : 0, at.along_y = across ? 0 : -1;
    at.down_x = across ? 0 : 1, at.down_y = across ? 1 : 0;
    while (*text != '\0') {
        struct font_glyph glyph;
        font_glyph(&glyph, font_decode(&text));
        draw_glyph(canvas, &at, &glyph, colour);
        at.x += glyph.advance * at.unit * at.along_x;
        at.y += glyph.advance * at.unit * at.along_y;
    }
}

double canvas_text_width(double cap_height, const char *text)
{
    return font_width(text) * cap_height / FONT_CAP;
}
