/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bar plots of one row of weights, a bar for each key, or for several when there are more keys than pixels. Bars start
 * at zero; negative values, which a file may hold, go down from it. The place of a hidden key has the colour that
 * hidden keys have in heat maps.
 */
#include <math.h>

#include "layout.h"
#include "viridis.h"

enum { MAX_BAR = 40 };

static int default_width(int panels)
{
    return panels == 1 ? 720 : panels <= 4 ? 420 : panels <= 64 ? 280 : 120;
}

static int panel_height(int panels)
{
    return panels == 1 ? 280 : panels <= 64 ? 130 : 70;
}

int plot_bar_bins(int64_t columns, int panels, int size)
{
    int64_t most = size > 0 ? size : default_width(panels);
    return (int)(columns < most ? columns : most);
}

double plot_bar_top(double low, double greatest)
{
    const double room = greatest + 0.04 * (greatest - low), step = scale_step(room - low, 10);
    return ceil(room / step - 1e-9) * step;
}

static int panel_width(const struct plot *plot, int size)
{
    int pixels = size > 0 ? size : default_width(plot->panels);
    int bar = plot->bin_columns > 0 ? pixels / plot->bin_columns : pixels;
    if (size == 0 && plot->column_labels.text != NULL && plot->grid_columns == NULL &&
        plot->bin_columns * (int)LABEL_PITCH <= 720 && bar < (int)LABEL_PITCH)
        bar = (int)LABEL_PITCH;
    if (size == 0 && bar > MAX_BAR)
        bar = MAX_BAR;
    int width = plot->bin_columns * (bar > 0 ? bar : 1);
    return width < 120 && size == 0 ? 120 : width > 0 ? width : 1;
}

static void draw_panel(struct canvas *canvas, const struct plot *plot, int panel, int x, int y, int width, int height)
{
    const struct rgb colour = viridis(0.35);
    const double top = plot->panel_tops != NULL ? plot->panel_tops[panel] : 1;
    const int zero = (int)lrint(height * (1 - scale_place(&plot->scale, 0)));
    for (int c = 0; c < plot->bin_columns; c++) {
        const double value = plot->cells[panel][c];
        int left = (int)((int64_t)c * width / plot->bin_columns);
        int right = (int)((int64_t)(c + 1) * width / plot->bin_columns);
        if (isnan(value) || value == -INFINITY)
            canvas_rectangle(canvas, x + left, y, right - left, height, isnan(value) ? colour_nan : colour_hidden);
    }
    layout_scale_lines(canvas, &plot->scale, x, y, width, height);
    for (int c = 0; c < plot->bin_columns; c++) {
        const double value = plot->cells[panel][c];
        int left = (int)((int64_t)c * width / plot->bin_columns);
        int right = (int)((int64_t)(c + 1) * width / plot->bin_columns);
        int gap = (right - left) / 6;
        if (isnan(value) || value == -INFINITY)
            continue;
        int end = (int)lrint(height * (1 - scale_place(&plot->scale, value / top)));
        int upper = end < zero ? end : zero, lower = end < zero ? zero : end;
        canvas_rectangle(canvas, x + left + gap, y + upper, right - left - 2 * gap, lower - upper, colour);
    }
    canvas_frame(canvas, x, y, width, height, colour_faint);
}

attn_status plot_bars(struct canvas *canvas, const struct plot *plot, int size)
{
    canvas_open(canvas, fmax((double)size / default_width(plot->panels), 1));
    int width = panel_width(plot, size), height = canvas_pixels(canvas, panel_height(plot->panels));
    struct axis columns = axis_columns(canvas, &plot->column_labels, plot->columns, width);
    double numbers = layout_scale_width(canvas, &plot->scale, height);
    struct layout layout;
    layout_make(&layout, canvas, plot, width, height, numbers, columns.extent, canvas_pixels(canvas, 6));
    CHECK(canvas_size(canvas, layout.width, layout.height, plot->limit_bytes));
    layout_titles(canvas, &layout, plot, numbers, columns.extent);
    for (int panel = 0; panel < plot->panels; panel++) {
        int x = layout_x(&layout, panel), y = layout_y(&layout, panel);
        draw_panel(canvas, plot, panel, x, y, width, height);
        if (layout_is_left(&layout, panel))
            layout_scale(canvas, &plot->scale, x, y, height, -1);
        if (layout_is_bottom(&layout, plot, panel))
            axis_draw_columns(canvas, &columns, x, y + height);
    }
    return ATTN_OK;
}
