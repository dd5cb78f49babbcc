/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lays out panels in a grid, with axes and text. Only the leftmost panels carry the row axis and only the
 * lowest of each column the column axis, as the panels share them. Every margin
 * is measured from the text that goes there, so nothing overlaps and nothing is
 * cut off, whatever the labels are.
 *
 *     +--------------------------------------+
 *     | title, subtitle                      |
 *     |        head 0        head 1          |
 *     | query  +-------+     +-------+   bar |
 *     |        |       |     |       |       |
 *     |        +-------+     +-------+       |
 *     |            labels, column name       |
 *     +--------------------------------------+
 */
#include "layout.h"

#include <math.h>
#include <stdio.h>

const struct rgb colour_text = {34, 34, 34}, colour_faint = {110, 110, 110};

enum { MARGIN = 18, PANEL_GAP = 18, AXIS_NAME = 22, TITLE_LINE = 23, LABEL_LINE = 19, PANEL_LINE = 18 };

static int round_up(double value)
{
    return (int)ceil(value);
}

/* The number of panels across: near 4:3 as a whole, with few empty places. */
static int panels_across(const struct plot *plot, int width, int height)
{
    int best = 1, panels = plot->panels;
    double best_cost = INFINITY;
    if (plot->across > 0)
        return plot->across;
    for (int across = 1; across <= panels; across++) {
        int down = (panels + across - 1) / across;
        double ratio = (double)across * width / ((double)down * height);
        double cost = fabs(log(ratio / 1.4)) + 0.3 * (across * down - panels);
        if (cost < best_cost) {
            best_cost = cost;
            best = across;
        }
    }
    return best;
}

void layout_make(struct layout *layout, struct canvas *canvas, const struct plot *plot, int panel_width,
                 int panel_height, double left_text, double bottom_text, int right_space)
{
    const int margin = canvas_pixels(canvas, MARGIN), name = canvas_pixels(canvas, AXIS_NAME);
    const int ticks = canvas_pixels(canvas, TICK_LENGTH + 4), gap = canvas_pixels(canvas, PANEL_GAP);
    const int heads = canvas_pixels(canvas, TITLE_LINE + (plot->subtitle[0] != '\0' ? LABEL_LINE : 0) +
                                                (plot->grid_columns != NULL ? PANEL_LINE : 0));
    int panel_title = plot->panels > 1 ? canvas_pixels(canvas, PANEL_LINE) : 0;
    *layout = (struct layout){.panel_width = panel_width, .panel_height = panel_height};
    layout->across = panels_across(plot, panel_width, panel_height);
    layout->down = (plot->panels + layout->across - 1) / layout->across;
    layout->left = margin + name + round_up(left_text) + ticks;
    layout->top = margin + heads + panel_title;
    layout->step_x = panel_width + gap;
    layout->step_y = panel_height + gap + panel_title;
    layout->right = layout->left + (layout->across - 1) * layout->step_x + panel_width;
    layout->bottom = layout->top + (layout->down - 1) * layout->step_y + panel_height;
    layout->height = layout->bottom + ticks + round_up(bottom_text) + name + margin;
    layout->width = layout->right + right_space + margin;
    double title = fmax(canvas_text_width(canvas, TITLE_CAP, TITLE_MOST, plot->title),
                        canvas_text_width(canvas, LABEL_CAP, TITLE_MOST, plot->subtitle));
    int needed = layout->left + round_up(title) + margin;
    if (layout->width < needed)
        layout->width = needed;
}

int layout_x(const struct layout *layout, int panel)
{
    return layout->left + panel % layout->across * layout->step_x;
}

int layout_y(const struct layout *layout, int panel)
{
    return layout->top + panel / layout->across * layout->step_y;
}

bool layout_is_bottom(const struct layout *layout, const struct plot *plot, int panel)
{
    return panel + layout->across >= plot->panels;
}

bool layout_is_left(const struct layout *layout, int panel)
{
    return panel % layout->across == 0;
}

/* A grid has the names of its columns above the first row, and the name of a row above the row. */
static void draw_panel_titles(struct canvas *canvas, const struct layout *layout, const struct plot *plot)
{
    const double u = canvas->unit, most = layout->panel_width / u + PANEL_GAP - 4;
    for (int panel = 0; plot->panels > 1 && panel < plot->panels; panel++) {
        const int x = layout_x(layout, panel), y = layout_y(layout, panel);
        const bool first_row = panel < layout->across;
        if (plot->grid_columns == NULL) {
            canvas_text(canvas, x, y - 7 * u, LABEL_CAP, most, TEXT_ACROSS, colour_text, plot->panel_titles[panel]);
            continue;
        }
        if (first_row)
            canvas_text(canvas, x, y - (7 + PANEL_LINE) * u, LABEL_CAP, most, TEXT_ACROSS, colour_faint,
                        plot->grid_columns[panel]);
        if (layout_is_left(layout, panel))
            canvas_text(canvas, x, y - 7 * u, LABEL_CAP, (layout->right - layout->left) / u, TEXT_ACROSS, colour_text,
                        plot->grid_rows[panel / layout->across]);
    }
}

void layout_titles(struct canvas *canvas, const struct layout *layout, const struct plot *plot, double left_text,
                   double bottom_text)
{
    const double u = canvas->unit, y = (MARGIN + TITLE_CAP) * u, name_cap = LABEL_CAP + 1;
    canvas_text(canvas, layout->left, y, TITLE_CAP, TITLE_MOST, TEXT_ACROSS, colour_text, plot->title);
    canvas_text(canvas, layout->left, y + (LABEL_CAP + 10) * u, LABEL_CAP, TITLE_MOST, TEXT_ACROSS, colour_faint,
                plot->subtitle);
    draw_panel_titles(canvas, layout, plot);
    double width = canvas_text_width(canvas, name_cap, TITLE_MOST, plot->column_name);
    canvas_text(canvas, (layout->left + layout->right - width) / 2.0,
                layout->bottom + ceil(bottom_text) + (TICK_LENGTH + AXIS_NAME) * u, name_cap, TITLE_MOST, TEXT_ACROSS,
                colour_text, plot->column_name);
    double length = canvas_text_width(canvas, name_cap, TITLE_MOST, plot->row_name);
    canvas_text(canvas, layout->left - ceil(left_text) - (TICK_LENGTH + 16) * u,
                (layout->top + layout->bottom + length) / 2.0, name_cap, TITLE_MOST, TEXT_UPWARDS, colour_text,
                plot->row_name);
}

/* -------------------------------------------------------------------- axes -- */

static const char *axis_text(const struct axis *axis, int64_t index, char number[32])
{
    if (axis->labels->text != NULL)
        return axis->labels->text[index];
    snprintf(number, 32, "%lld", (long long)index);
    return number;
}

static double label_width(struct canvas *canvas, const char *text)
{
    return canvas_text_width(canvas, LABEL_CAP, LABEL_MOST, text);
}

static void draw_label(struct canvas *canvas, double x, double y, enum text_direction direction, const char *text)
{
    canvas_text(canvas, x, y, LABEL_CAP, LABEL_MOST, direction, colour_text, text);
}

static double widest(struct canvas *canvas, const struct axis *axis)
{
    char number[32];
    double width = 0;
    for (int64_t i = 0; i < axis->count; i += axis->step)
        width = fmax(width, label_width(canvas, axis_text(axis, i, number)));
    return width;
}

/* Labels go on every k-th position as space allows; numbers on round ones. */
static int64_t thin_out(const struct axis *axis, double pitch)
{
    int fit = (int)fmax(axis->length / pitch, 1);
    if (axis->labels->text == NULL)
        return scale_index_step(axis->count, fit);
    return (axis->count + fit - 1) / fit > 0 ? (axis->count + fit - 1) / fit : 1;
}

struct axis axis_columns(struct canvas *canvas, const struct plot_labels *labels, int64_t count, int length)
{
    struct axis axis = {.labels = labels, .count = count, .step = 1, .length = length};
    const double u = canvas->unit;
    if (labels->text == NULL) {
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)(count > 0 ? count - 1 : 0));
        axis.step = thin_out(&axis, label_width(canvas, number) + 12 * u);
        axis.extent = LABEL_CAP * u;
        return axis;
    }
    /* Level if all of them fit, otherwise turned. Where there are many they cannot, and need not be measured. */
    if ((double)length >= 8 * u * (double)count &&
        widest(canvas, &axis) + 8 * u <= (double)length / (double)(count > 0 ? count : 1)) {
        axis.extent = (LABEL_CAP + 3) * u;
        return axis;
    }
    axis.upwards = true;
    axis.step = thin_out(&axis, LABEL_PITCH * u);
    axis.extent = widest(canvas, &axis);
    return axis;
}

struct axis axis_rows(struct canvas *canvas, const struct plot_labels *labels, int64_t count, int length)
{
    struct axis axis = {.labels = labels, .count = count, .step = 1, .length = length};
    axis.step = thin_out(&axis, (labels->text != NULL ? LABEL_PITCH : LABEL_PITCH + 5) * canvas->unit);
    /* Numbers that are thinned out anyway need not be packed. */
    if (labels->text == NULL && axis.step > 1)
        axis.step = thin_out(&axis, 2.5 * LABEL_PITCH * canvas->unit);
    axis.extent = widest(canvas, &axis);
    return axis;
}

/* The middle of a position along the axis. */
static double middle(const struct axis *axis, int64_t index)
{
    return ((double)index + 0.5) * axis->length / (double)axis->count;
}

void axis_draw_columns(struct canvas *canvas, const struct axis *axis, int x, int y)
{
    char number[32];
    const double u = canvas->unit;
    const int line = canvas_pixels(canvas, 1), tick = canvas_pixels(canvas, TICK_LENGTH);
    for (int64_t i = 0; i < axis->count; i += axis->step) {
        const char *text = axis_text(axis, i, number);
        double at = x + middle(axis, i), width = label_width(canvas, text), below = y + (TICK_LENGTH + 5) * u;
        canvas_rectangle(canvas, (int)at, y + line, line, tick, colour_faint);
        if (axis->upwards)
            draw_label(canvas, at + LABEL_CAP / 2 * u, below + width, TEXT_UPWARDS, text);
        else
            draw_label(canvas, at - width / 2, below + LABEL_CAP * u, TEXT_ACROSS, text);
    }
}

void axis_draw_rows(struct canvas *canvas, const struct axis *axis, int x, int y)
{
    char number[32];
    const double u = canvas->unit;
    const int line = canvas_pixels(canvas, 1), tick = canvas_pixels(canvas, TICK_LENGTH);
    for (int64_t i = 0; i < axis->count; i += axis->step) {
        const char *text = axis_text(axis, i, number);
        double at = y + middle(axis, i), width = label_width(canvas, text);
        canvas_rectangle(canvas, x - line - tick, (int)at, tick, line, colour_faint);
        draw_label(canvas, x - (TICK_LENGTH + 5) * u - width, at + LABEL_CAP / 2 * u, TEXT_ACROSS, text);
    }
}

/* ------------------------------------------------------------------ scales -- */

double layout_scale_width(struct canvas *canvas, const struct scale *scale, int length)
{
    double ticks[SCALE_MOST_TICKS], step, width = 0;
    char text[32];
    int count = scale_ticks(scale, length / canvas->unit, ticks, &step);
    for (int i = 0; i < count; i++) {
        scale_number(text, sizeof text, ticks[i], step);
        width = fmax(width, label_width(canvas, text));
    }
    return width;
}

/* The first pixel of a line at a value. */
static int line_at(const struct scale *scale, double value, int y, int length, int line)
{
    return (int)fmin(rint(y + length - scale_place(scale, value) * length), y + length - line);
}

void layout_scale(struct canvas *canvas, const struct scale *scale, int x, int y, int length, int side)
{
    double ticks[SCALE_MOST_TICKS], step;
    char text[32];
    const double u = canvas->unit;
    const int line = canvas_pixels(canvas, 1), tick = canvas_pixels(canvas, TICK_LENGTH);
    int count = scale_ticks(scale, length / u, ticks, &step);
    for (int i = 0; i < count; i++) {
        scale_number(text, sizeof text, ticks[i], step);
        double at = y + length - scale_place(scale, ticks[i]) * length, width = label_width(canvas, text);
        canvas_rectangle(canvas, side > 0 ? x + line : x - line - tick, line_at(scale, ticks[i], y, length, line), tick,
                         line, colour_faint);
        draw_label(canvas, side > 0 ? x + (TICK_LENGTH + 5) * u : x - (TICK_LENGTH + 5) * u - width,
                   at + LABEL_CAP / 2 * u, TEXT_ACROSS, text);
    }
}

void layout_scale_lines(struct canvas *canvas, const struct scale *scale, int x, int y, int width, int length)
{
    const struct rgb colour = {228, 228, 228};
    double ticks[SCALE_MOST_TICKS], step;
    const int line = canvas_pixels(canvas, 1);
    int count = scale_ticks(scale, length / canvas->unit, ticks, &step);
    for (int i = 0; i < count; i++)
        canvas_rectangle(canvas, x, line_at(scale, ticks[i], y, length, line), width, line, colour);
}
