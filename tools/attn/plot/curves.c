/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Curves of a training, say. A segment is drawn column by column, or row by row
 * where it is steep.
 */
#include "curves.h"

#include <math.h>
#include <stdio.h>

#include "layout.h"
#include "viridis.h"

enum { LEFT = 70, RIGHT = 24, TOP = 78, BOTTOM = 58, GAP = 34, PANEL_WIDTH = 640, PANEL_HEIGHT = 180, MARK = 3 };

static const double title_cap = 11, label_cap = 8;

/* The part of the axis that may be empty before the first curve for 0 to be on it. */
static const double most_empty = 0.1;

/* Where a panel stands and what it shows. */
struct panel {
    int x, y;
    double low, high, first, last;
};

static double x_of(const struct panel *p, double x)
{
    return p->x + (x - p->first) / (p->last - p->first) * (PANEL_WIDTH - 1);
}

static double y_of(const struct panel *p, double y)
{
    return p->y + (p->high - y) / (p->high - p->low) * (PANEL_HEIGHT - 1);
}

static void draw_segment(struct canvas *canvas, double x0, double y0, double x1, double y1, struct rgb colour)
{
    const double length = fmax(fmax(fabs(x1 - x0), fabs(y1 - y0)), 1);
    for (int i = 0; i <= (int)ceil(length); i++) {
        const double at = fmin(i / length, 1);
        canvas_rectangle(canvas, (int)lrint(x0 + at * (x1 - x0)), (int)lrint(y0 + at * (y1 - y0)), 2, 2, colour);
    }
}

/* Where the axis begins: at 0, as far as that leaves little of it empty, else where the first curve does. A single
 * place has no range to fit. */
static double first_of(const struct curves *c)
{
    double first = c->last, most = -INFINITY;
    for (int i = 0; i < c->panels; i++)
        for (int64_t j = 0; j < c->curve[i].count; j++)
            if (isfinite(c->curve[i].y[j])) {
                first = fmin(first, c->curve[i].x[j]);
                most = fmax(most, c->curve[i].x[j]);
            }
    const bool little = first >= 0 && first <= most_empty * c->last;
    return little || !(first < most) ? 0 : first;
}

/* The range of a curve's values, with some room. */
static void set_scale(struct panel *p, const struct curve *curve)
{
    p->low = INFINITY;
    p->high = -INFINITY;
    for (int64_t i = 0; i < curve->count; i++)
        if (isfinite(curve->y[i])) {
            p->low = fmin(p->low, curve->y[i]);
            p->high = fmax(p->high, curve->y[i]);
        }
    if (!(p->low <= p->high))
        p->low = p->high = 0;
    const double room = p->high > p->low ? 0.05 * (p->high - p->low) : fmax(fabs(p->high) * 0.1, 0.01);
    p->low -= room;
    p->high += room;
}

static void draw_curve(struct canvas *canvas, const struct panel *p, const struct curve *curve)
{
    const struct rgb colour = viridis(0.35);
    int64_t before = -1;
    for (int64_t i = 0; i < curve->count; i++) {
        if (!isfinite(curve->y[i]))
            continue;
        const double x = x_of(p, curve->x[i]), y = y_of(p, curve->y[i]);
        if (before >= 0)
            draw_segment(canvas, x_of(p, curve->x[before]), y_of(p, curve->y[before]), x, y, colour);
        if (curve->marks)
            canvas_rectangle(canvas, (int)lrint(x) - MARK, (int)lrint(y) - MARK, 2 * MARK + 1, 2 * MARK + 1, colour);
        before = i;
    }
}

/* Numbers below the lowest panel. */
static void draw_steps(struct canvas *canvas, const struct panel *p)
{
    const double step = scale_step(p->last - p->first, 8);
    char text[32];
    for (double tick = ceil(p->first / step - 1e-9); tick * step <= p->last * (1 + 1e-9); tick++) {
        const double x = x_of(p, tick * step);
        scale_number(text, sizeof text, tick * step, step);
        canvas_rectangle(canvas, (int)lrint(x), p->y + PANEL_HEIGHT + 1, 1, 4, colour_faint);
        const double width = canvas_text_width(canvas, label_cap, LABEL_MOST, text);
        canvas_text(canvas, x - width / 2, p->y + PANEL_HEIGHT + 8 + label_cap, label_cap, LABEL_MOST, TEXT_ACROSS,
                    colour_text, text);
    }
}

attn_status plot_curves(struct canvas *canvas, const struct curves *c)
{
    const int height = TOP + c->panels * (PANEL_HEIGHT + GAP) - GAP + BOTTOM;
    canvas_open(canvas, 1);
    CHECK(canvas_size(canvas, LEFT + PANEL_WIDTH + RIGHT, height, 1e8));
    canvas_text(canvas, LEFT, 18 + title_cap, title_cap, TITLE_MOST, TEXT_ACROSS, colour_text, c->title);
    canvas_text(canvas, LEFT, 18 + title_cap + label_cap + 8, label_cap, TITLE_MOST, TEXT_ACROSS, colour_faint,
                c->subtitle);
    const double first = first_of(c);
    for (int i = 0; i < c->panels; i++) {
        struct panel p = {.x = LEFT, .y = TOP + i * (PANEL_HEIGHT + GAP), .first = first, .last = c->last};
        set_scale(&p, &c->curve[i]);
        canvas_text(canvas, p.x, p.y - 7, label_cap, TITLE_MOST, TEXT_ACROSS, colour_text, c->curve[i].name);
        const struct scale scale = {SCALE_LINEAR, p.low, p.high};
        layout_scale_lines(canvas, &scale, p.x, p.y, PANEL_WIDTH, PANEL_HEIGHT);
        layout_scale(canvas, &scale, p.x, p.y, PANEL_HEIGHT, -1);
        draw_curve(canvas, &p, &c->curve[i]);
        canvas_frame(canvas, p.x, p.y, PANEL_WIDTH, PANEL_HEIGHT, colour_faint);
        if (i == c->panels - 1)
            draw_steps(canvas, &p);
    }
    canvas_text(canvas, LEFT + (PANEL_WIDTH - canvas_text_width(canvas, label_cap + 1, TITLE_MOST, c->x_name)) / 2,
                height - 16, label_cap + 1, TITLE_MOST, TEXT_ACROSS, colour_text, c->x_name);
    return ATTN_OK;
}
