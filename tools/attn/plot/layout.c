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

enum { MARGIN = 18, PANEL_GAP = 18, AXIS_NAME = 22 };

static int round_up(double value)
{
    return (int)ceil(value);
}

/* The number of panels across: near 4:3 as a whole, with few empty places. */
static int panels_across(int panels, int width, int height)
{
    int best = 1;
    double best_cost = INFINITY;
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

static int title_height(const struct plot *plot)
{
    return round_up(TITLE_CAP + 10) + (plot->subtitle[0] != '\0' ? round_up(LABEL_CAP + 10) : 0);
}

void layout_make(struct layout *layout, const struct plot *plot, int panel_width, int panel_height, double left_text,
                 double bottom_text, int right_space)
{
    int panel_title = plot->panels > 1 ? round_up(LABEL_CAP + 9) : 0;
    *layout = (struct layout){.panel_width = panel_width, .panel_height = panel_height};
    layout->across = panels_across(plot->panels, panel_width, panel_height);
    layout->down = (plot->panels + layout->across - 1) / layout->across;
    layout->left = MARGIN + AXIS_NAME + round_up(left_text) + TICK_LENGTH + 4;
    layout->top = MARGIN + title_height(plot) + panel_title;
    layout->step_x = panel_width + PANEL_GAP;
    layout->step_y = panel_height + PANEL_GAP + panel_title;
    layout->right = layout->left + (layout->across - 1) * layout->step_x + panel_width;
    layout->bottom = layout->top + (layout->down - 1) * layout->step_y + panel_height;
    layout->height = layout->bottom + TICK_LENGTH + 4 + round_up(bottom_text) + AXIS_NAME + MARGIN;
    layout->width = layout->right + right_space + MARGIN;
    double title = fmax(canvas_text_width(TITLE_CAP, plot->title), canvas_text_width(LABEL_CAP, plot->subtitle));
    int needed = layout->left + round_up(title) + MARGIN;
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

void layout_titles(struct canvas *canvas, const struct layout *layout, const struct plot *plot, double left_text,
                   double bottom_text)
{
    double y = MARGIN + TITLE_CAP;
    canvas_text(canvas, layout->left, y, TITLE_CAP, TEXT_ACROSS, colour_text, plot->title);
    canvas_text(canvas, layout->left, y + LABEL_CAP + 10, LABEL_CAP, TEXT_ACROSS, colour_faint, plot->subtitle);
    for (int panel = 0; plot->panels > 1 && panel < plot->panels; panel++)
        canvas_text(canvas, layout_x(layout, panel), layout_y(layout, panel) - 7, LABEL_CAP, TEXT_ACROSS, colour_text,
                    plot->panel_titles[panel]);
    double width = canvas_text_width(LABEL_CAP + 1, plot->column_name);
    canvas_text(canvas, (layout->left + layout->right - width) / 2.0,
                layout->bottom + TICK_LENGTH + 4 + ceil(bottom_text) + AXIS_NAME - 4, LABEL_CAP + 1, TEXT_ACROSS,
                colour_text, plot->column_name);
    double length = canvas_text_width(LABEL_CAP + 1, plot->row_name);
    canvas_text(canvas, layout->left - TICK_LENGTH - 4 - ceil(left_text) - 12,
                (layout->top + layout->bottom + length) / 2.0, LABEL_CAP + 1, TEXT_UPWARDS, colour_text,
                plot->row_name);
}

static const char *axis_text(const struct axis *axis, int64_t index, char number[32])
{
    if (axis->labels->text != NULL)
        return axis->labels->text[index];
    snprintf(number, 32, "%lld", (long long)index);
    return number;
}

static double widest(const struct axis *axis)
{
    char number[32];
    double width = 0;
    for (int64_t i = 0; i < axis->count; i += axis->step)
        width = fmax(width, canvas_text_width(LABEL_CAP, axis_text(axis, i, number)));
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

struct axis axis_columns(const struct plot_labels *labels, int64_t count, int length)
{
    struct axis axis = {.labels = labels, .count = count, .step = 1, .length = length};
    if (labels->text == NULL) {
        char number[32];
        snprintf(number, sizeof number, "%lld", (long long)(count > 0 ? count - 1 : 0));
        axis.step = thin_out(&axis, canvas_text_width(LABEL_CAP, number) + 12);
        axis.extent = LABEL_CAP;
        return axis;
    }
    /* Level if all of them fit, otherwise turned. */
    if (widest(&axis) + 8 <= (double)length / (double)(count > 0 ? count : 1)) {
        axis.extent = LABEL_CAP + 3;
        return axis;
    }
    axis.upwards = true;
    axis.step = thin_out(&axis, LABEL_PITCH);
    axis.extent = widest(&axis);
    return axis;
}

struct axis axis_rows(const struct plot_labels *labels, int64_t count, int length)
{
    struct axis axis = {.labels = labels, .count = count, .step = 1, .length = length};
    axis.step = thin_out(&axis, labels->text != NULL ? LABEL_PITCH : LABEL_PITCH + 5);
    /* Numbers that are thinned out anyway need not be packed. */
    if (labels->text == NULL && axis.step > 1)
        axis.step = thin_out(&axis, 2.5 * LABEL_PITCH);
    axis.extent = widest(&axis);
    return axis;
}

/* The middle of a position, in pixels along the axis. */
static double middle(const struct axis *axis, int64_t index)
{
    return ((double)index + 0.5) * axis->length / (double)axis->count;
}

void axis_draw_columns(struct canvas *canvas, const struct axis *axis, int x, int y)
{
    char number[32];
    for (int64_t i = 0; i < axis->count; i += axis->step) {
        const char *text = axis_text(axis, i, number);
        double at = x + middle(axis, i), width = canvas_text_width(LABEL_CAP, text);
        canvas_rectangle(canvas, (int)at, y + 1, 1, TICK_LENGTH, colour_faint);
        if (axis->upwards)
            canvas_text(canvas, at + LABEL_CAP / 2, y + TICK_LENGTH + 5 + width, LABEL_CAP, TEXT_UPWARDS, colour_text,
                        text);
        else
            canvas_text(canvas, at - width / 2, y + TICK_LENGTH + 5 + LABEL_CAP, LABEL_CAP, TEXT_ACROSS, colour_text,
                        text);
    }
}

void axis_draw_rows(struct canvas *canvas, const struct axis *axis, int x, int y)
{
    char number[32];
    for (int64_t i = 0; i < axis->count; i += axis->step) {
        const char *text = axis_text(axis, i, number);
        double at = y + middle(axis, i), width = canvas_text_width(LABEL_CAP, text);
        canvas_rectangle(canvas, x - 1 - TICK_LENGTH, (int)at, TICK_LENGTH, 1, colour_faint);
        canvas_text(canvas, x - TICK_LENGTH - 5 - width, at + LABEL_CAP / 2, LABEL_CAP, TEXT_ACROSS, colour_text, text);
    }
}

static double value_step(double low, double high, int length)
{
    return scale_step(high - low, (int)fmin(fmax(length / 26.0, 2), 10));
}

double scale_text_width(double low, double high, int length)
{
    double step = value_step(low, high, length), width = 0;
    char text[32];
    for (double tick = ceil(low / step - 1e-6); tick * step <= high + step * 1e-6; tick++) {
        scale_number(text, sizeof text, tick * step, step);
        width = fmax(width, canvas_text_width(LABEL_CAP, text));
    }
    return width;
}

void scale_draw(struct canvas *canvas, double low, double high, int x, int y, int length, int side)
{
    double step = value_step(low, high, length);
    char text[32];
    for (double tick = ceil(low / step - 1e-6); tick * step <= high + step * 1e-6; tick++) {
        scale_number(text, sizeof text, tick * step, step);
        double at = y + length - (tick * step - low) / (high - low) * length;
        double width = canvas_text_width(LABEL_CAP, text);
        int pixel = (int)fmin(rint(at), y + length - 1);
        canvas_rectangle(canvas, side > 0 ? x + 1 : x - 1 - TICK_LENGTH, pixel, TICK_LENGTH, 1, colour_faint);
        canvas_text(canvas, side > 0 ? x + TICK_LENGTH + 5 : x - TICK_LENGTH - 5 - width, at + LABEL_CAP / 2, LABEL_CAP,
                    TEXT_ACROSS, colour_text, text);
    }
}

void scale_lines(struct canvas *canvas, double low, double high, int x, int y, int width, int length)
{
    const struct rgb colour = {228, 228, 228};
    double step = value_step(low, high, length);
    for (double tick = ceil(low / step - 1e-6); tick * step <= high + step * 1e-6; tick++) {
        double at = y + length - (tick * step - low) / (high - low) * length;
        canvas_rectangle(canvas, x, (int)fmin(rint(at), y + length - 1), width, 1, colour);
    }
}

/* ------------------------------------------------------------------- ticks -- */

/*
 * Ticks stand at 1, 2 or 5 times a power of ten: the numbers that people count
 * in. A value is written with as many decimals as its step has, so that the
 * ticks of an axis look alike; very small and very large ones use an exponent.
 */
double scale_step(double range, int max_ticks)
{
    double least = range / (max_ticks > 0 ? max_ticks : 1);
    double power = pow(10, floor(log10(least)));
    /* The small slack keeps 0.1 / 0.1 from becoming the next step through rounding. */
    double digits = least / power * (1 - 1e-9);
    return (digits <= 1 ? 1 : digits <= 2 ? 2 : digits <= 5 ? 5 : 10) * power;
}

int64_t scale_index_step(int64_t count, int max_ticks)
{
    double step = count > 0 ? scale_step((double)count, max_ticks) : 1;
    return step < 1 ? 1 : llrint(step);
}

void scale_number(char *text, size_t size, double value, double step)
{
    int decimals = (int)-floor(log10(step) + 1e-9);
    if (fabs(value) < step / 1e6)
        snprintf(text, size, "0");
    else if (decimals > 4 || fabs(value) >= 1e6)
        snprintf(text, size, "%.3g", value);
    else
        snprintf(text, size, "%.*f", decimals > 0 ? decimals : 0, value);
}
