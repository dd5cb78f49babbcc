/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What heat maps and bar plots share: a grid of equal panels with one set of
 * axes, margins that follow from the text they hold, and the axes' labels.
 * Lengths are in pixels, but for the constants and the heights of text, which
 * are in units of the canvas.
 */
#ifndef ATTN_TOOLS_PLOT_LAYOUT_H
#define ATTN_TOOLS_PLOT_LAYOUT_H

#include "plot.h"

#define TITLE_CAP   13.0
#define LABEL_CAP   9.0
#define TITLE_MOST  2000.0
#define TICK_LENGTH 4
/* The least distance of two lines of labels, baseline to baseline. */
#define LABEL_PITCH 13.0

extern const struct rgb colour_text, colour_faint;

struct layout {
    int width, height;             /* of the picture */
    int panel_width, panel_height; /* of one panel's cells */
    int across, down;              /* panels */
    int left, top;                 /* of the first panel's cells */
    int step_x, step_y;            /* from panel to panel */
    int right;                     /* of the last panel's cells */
    int bottom;
};

/*
 * Places the panels. left_text and bottom_text are what the axes' labels need,
 * right_space what stands right of the panels.
 */
void layout_make(struct layout *layout, struct canvas *canvas, const struct plot *plot, int panel_width,
                 int panel_height, double left_text, double bottom_text, int right_space);
int layout_x(const struct layout *layout, int panel);
int layout_y(const struct layout *layout, int panel);
/* Whether no panel stands below or left of this one, so that it carries the axis. */
bool layout_is_bottom(const struct layout *layout, const struct plot *plot, int panel);
bool layout_is_left(const struct layout *layout, int panel);
/* The title, the panels' titles, and the axes' names. */
void layout_titles(struct canvas *canvas, const struct layout *layout, const struct plot *plot, double left_text,
                   double bottom_text);

/* The labels along one axis of a panel: which are shown, and how. */
struct axis {
    const struct plot_labels *labels;
    int64_t count; /* positions */
    int64_t step;  /* every step-th is labelled */
    int length;
    bool upwards;  /* text of a horizontal axis is turned */
    double extent; /* what the text needs across the axis */
};

struct axis axis_columns(struct canvas *canvas, const struct plot_labels *labels, int64_t count, int length);
struct axis axis_rows(struct canvas *canvas, const struct plot_labels *labels, int64_t count, int length);
/* Draws ticks and labels below (columns) or left of (rows) the point where the axis starts. */
void axis_draw_columns(struct canvas *canvas, const struct axis *axis, int x, int y);
void axis_draw_rows(struct canvas *canvas, const struct axis *axis, int x, int y);

/* The numbers of a vertical scale: right of x (side 1) or left of it (side -1). */
double layout_scale_width(struct canvas *canvas, const struct scale *scale, int length);
void layout_scale(struct canvas *canvas, const struct scale *scale, int x, int y, int length, int side);
/* Faint lines across a panel at the same values. */
void layout_scale_lines(struct canvas *canvas, const struct scale *scale, int x, int y, int width, int length);

#endif
