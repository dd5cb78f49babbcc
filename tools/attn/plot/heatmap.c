/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heat maps of matrices, alone or as a grid of heads. Row 0 is at the top, column 0 at the left, as a matrix is
 * written. Cells are square and a whole number of pixels when the matrix has no more cells than the picture has pixels;
 * a matrix that is much longer one way keeps a visible thickness. All panels share one scale and one colour bar.
 */
#include <math.h>

#include "layout.h"
#include "viridis.h"

enum { MAX_CELL = 56, THIN_SIDE = 60, SHORT_SIDE = 120, BAR_GAP = 22, BAR_WIDTH = 16 };

/* The pixels of the longest side of a panel, when the user does not say. */
static int default_size(int panels)
{
    return panels == 1 ? 720 : panels <= 4 ? 400 : panels <= 16 ? 260 : 180;
}

void plot_heatmap_bins(int64_t rows, int64_t columns, int panels, int size, int *bin_rows, int *bin_columns)
{
    int64_t most = size > 0 ? size : default_size(panels);
    *bin_rows = (int)(rows < most ? rows : most);
    *bin_columns = (int)(columns < most ? columns : most);
}

/* Whole pixels per cell, the same both ways unless one side would vanish. */
static void panel_pixels(const struct plot *plot, int size, int *width, int *height)
{
    int longest = plot->bin_rows > plot->bin_columns ? plot->bin_rows : plot->bin_columns;
    int pixels = size > 0 ? size : default_size(plot->panels);
    int cell = longest > 0 ? pixels / longest : 1;
    bool labels = plot->row_labels.text != NULL || plot->column_labels.text != NULL;
    /* Room for every label, if that does not make the picture huge. */
    if (size == 0 && labels && longest * (int)LABEL_PITCH <= 720 && cell < (int)LABEL_PITCH)
        cell = (int)LABEL_PITCH;
    if (size == 0 && cell > MAX_CELL)
        cell = MAX_CELL;
    cell = cell > 0 ? cell : 1;
    int thin = size > 0 && size < THIN_SIDE ? size : THIN_SIDE;
    *width = plot->bin_columns * cell;
    *height = plot->bin_rows * cell;
    if (*width < thin)
        *width = plot->bin_columns > 0 ? (thin + plot->bin_columns - 1) / plot->bin_columns * plot->bin_columns : thin;
    if (*height < thin)
        *height = plot->bin_rows > 0 ? (thin + plot->bin_rows - 1) / plot->bin_rows * plot->bin_rows : thin;
}

static struct rgb cell_colour(const struct plot *plot, double value)
{
    static const struct rgb white = {255, 255, 255}, ink = {34, 44, 74};
    double t = (value - plot->low) / (plot->high - plot->low);
    if (!plot->ink)
        return viridis(t);
    t = fmin(fmax(t, 0), 1);
    return (struct rgb){(unsigned char)lround(white.r + t * (ink.r - white.r)),
                        (unsigned char)lround(white.g + t * (ink.g - white.g)),
                        (unsigned char)lround(white.b + t * (ink.b - white.b))};
}

static void draw_cells(struct canvas *canvas, const struct plot *plot, int panel, int x, int y, int width, int height)
{
    for (int r = 0; r < plot->bin_rows; r++) {
        int top = r * height / plot->bin_rows, bottom = (r + 1) * height / plot->bin_rows;
        for (int c = 0; c < plot->bin_columns; c++) {
            int left = c * width / plot->bin_columns, right = (c + 1) * width / plot->bin_columns;
            double value = plot->cells[panel][(size_t)r * (size_t)plot->bin_columns + (size_t)c];
            canvas_rectangle(canvas, x + left, y + top, right - left, bottom - top, cell_colour(plot, value));
        }
    }
}

static void draw_colour_bar(struct canvas *canvas, const struct plot *plot, int x, int y, int height)
{
    for (int i = 0; i < height; i++)
        canvas_rectangle(canvas, x, y + height - 1 - i, BAR_WIDTH, 1, viridis((i + 0.5) / height));
    canvas_frame(canvas, x, y, BAR_WIDTH, height, colour_faint);
    scale_draw(canvas, plot->low, plot->high, x + BAR_WIDTH, y, height, 1);
}

attn_status plot_heatmap(struct canvas *canvas, const struct plot *plot, int size)
{
    int width, height;
    panel_pixels(plot, size, &width, &height);
    struct axis columns = axis_columns(&plot->column_labels, plot->columns, width);
    struct axis rows = axis_rows(&plot->row_labels, plot->rows, height);
    struct layout layout;
    layout_make(&layout, plot, width, height, rows.extent, columns.extent, 0);
    int bar = 0;
    if (!plot->ink) {
        /* A colour bar of a very flat picture reaches below the cells rather than lose its numbers. */
        bar = layout.bottom - layout.top > SHORT_SIDE ? layout.bottom - layout.top : SHORT_SIDE;
        int numbers = (int)ceil(scale_text_width(plot->low, plot->high, bar));
        layout_make(&layout, plot, width, height, rows.extent, columns.extent,
                    BAR_GAP + BAR_WIDTH + TICK_LENGTH + 6 + numbers);
        if (layout.height < layout.top + bar + 24)
            layout.height = layout.top + bar + 24;
    }
    CHECK(canvas_create(canvas, layout.width, layout.height, plot->limit_bytes));

    layout_titles(canvas, &layout, plot, rows.extent, columns.extent);
    for (int panel = 0; panel < plot->panels; panel++) {
        int x = layout_x(&layout, panel), y = layout_y(&layout, panel);
        draw_cells(canvas, plot, panel, x, y, width, height);
        canvas_frame(canvas, x, y, width, height, colour_faint);
        if (layout_is_left(&layout, panel))
            axis_draw_rows(canvas, &rows, x, y);
        if (layout_is_bottom(&layout, plot, panel))
            axis_draw_columns(canvas, &columns, x, y + height);
    }
    if (!plot->ink)
        draw_colour_bar(canvas, plot, layout.right + BAR_GAP, layout.top, bar);
    return ATTN_OK;
}
