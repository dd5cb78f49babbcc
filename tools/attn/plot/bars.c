/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bar plots of one row of weights, a bar for each key. When there are more keys
 * than pixels a bar shows the greatest weight of its keys: a mean would sink
 * the single peak that one looks for. Bars start at zero; negative values, which
 * a file may hold, go down from it.
 */
#include <math.h>

#include "layout.h"
#include "viridis.h"

enum { MAX_BAR = 40 };

static int default_width(int panels)
{
    return panels == 1 ? 720 : panels <= 4 ? 420 : 280;
}

static int panel_height(int panels)
{
    return panels == 1 ? 280 : 130;
}

int plot_bar_bins(int64_t columns, int panels, int size)
{
    int64_t most = size > 0 ? size : default_width(panels);
    return (int)(columns < most ? columns : most);
}

static int panel_width(const struct plot *plot, int size)
{
    int pixels = size > 0 ? size : default_width(plot->panels);
    int bar = plot->bin_columns > 0 ? pixels / plot->bin_columns : pixels;
    if (size == 0 && plot->column_labels.text != NULL && plot->bin_columns * (int)LABEL_PITCH <= 720 &&
        bar < (int)LABEL_PITCH)
        bar = (int)LABEL_PITCH;
    if (size == 0 && bar > MAX_BAR)
        bar = MAX_BAR;
    int width = plot->bin_columns * (bar > 0 ? bar : 1);
    return width < 120 && size == 0 ? 120 : width > 0 ? width : 1;
}

static void draw_panel(struct canvas *canvas, const struct plot *plot, int panel, int x, int y, int width, int height)
{
    const struct rgb colour = viridis(0.35);
    double range = plot->high - plot->low;
    int zero = (int)lrint(height * plot->high / range);
    scale_lines(canvas, plot->low, plot->high, x, y, width, height);
    for (int c = 0; c < plot->bin_columns; c++) {
        int left = (int)((int64_t)c * width / plot->bin_columns);
        int right = (int)((int64_t)(c + 1) * width / plot->bin_columns);
        int gap = (right - left) / 6;
        double value = plot->cells[panel][c];
        if (isnan(value)) {
            canvas_rectangle(canvas, x + left + gap, y, right - left - 2 * gap, height, viridis(value));
            continue;
        }
        value = value > plot->high ? plot->high : value < plot->low ? plot->low : value;
        int end = (int)lrint(height * (plot->high - value) / range);
        int top = end < zero ? end : zero, bottom = end < zero ? zero : end;
        canvas_rectangle(canvas, x + left + gap, y + top, right - left - 2 * gap, bottom - top, colour);
    }
    canvas_frame(canvas, x, y, width, height, colour_faint);
}

attn_status plot_bars(struct canvas *canvas, const struct plot *plot, int size)
{
    int width = panel_width(plot, size), height = panel_height(plot->panels);
    struct axis columns = axis_columns(&plot->column_labels, plot->columns, width);
    double numbers = scale_text_width(plot->low, plot->high, height);
    struct layout layout;
    layout_make(&layout, plot, width, height, numbers, columns.extent, 6);
    CHECK(canvas_create(canvas, layout.width, layout.height, plot->limit_bytes));
    layout_titles(canvas, &layout, plot, numbers, columns.extent);
    for (int panel = 0; panel < plot->panels; panel++) {
        int x = layout_x(&layout, panel), y = layout_y(&layout, panel);
        draw_panel(canvas, plot, panel, x, y, width, height);
        if (layout_is_left(&layout, panel))
            scale_draw(canvas, plot->low, plot->high, x, y, height, -1);
        if (layout_is_bottom(&layout, plot, panel))
            axis_draw_columns(canvas, &columns, x, y + height);
    }
    return ATTN_OK;
}
