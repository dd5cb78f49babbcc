/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heat maps of matrices, alone or as a grid of heads. Row 0 is at the top, column 0 at the left, as a matrix is
 * written. Cells are square and a whole number of pixels when the matrix has no more cells than the picture has pixels;
 * a matrix that is much longer one way keeps a visible thickness. All panels share one scale and one colour bar.
 */
#include <math.h>
#include <stdlib.h>

#include "layout.h"
#include "viridis.h"

enum { MAX_CELL = 56, THIN_SIDE = 60, SHORT_SIDE = 120, BAR_GAP = 22, BAR_WIDTH = 16 };

/* The pixels of the longest side of a panel, when the user does not say. */
static int default_size(int panels)
{
    return panels == 1 ? 720 : panels <= 4 ? 400 : panels <= 16 ? 260 : panels <= 64 ? 180 : panels <= 256 ? 100 : 64;
}

void plot_heatmap_bins(int64_t rows, int64_t columns, int panels, int size, int *bin_rows, int *bin_columns)
{
    int64_t most = size > 0 ? size : default_size(panels);
    *bin_rows = (int)(rows < most ? rows : most);
    *bin_columns = (int)(columns < most ? columns : most);
}

/* The least whole number of pixels per cell with which so many cells are not thinner than least. */
static int side_pixels(int cells, int cell, int least)
{
    if (cells * cell >= least || cells <= 0)
        return cells > 0 ? cells * cell : least;
    return (least + cells - 1) / cells * cells;
}

/* Whole pixels per cell, the same both ways unless one side would vanish. */
static void panel_pixels(const struct plot *plot, int size, int *width, int *height)
{
    int longest = plot->bin_rows > plot->bin_columns ? plot->bin_rows : plot->bin_columns;
    int pixels = size > 0 ? size : default_size(plot->panels);
    int cell = longest > 0 ? pixels / longest : 1;
    bool labels = plot->row_labels.text != NULL || plot->column_labels.text != NULL;
    /* Room for every label, if that does not make the picture huge. */
    if (size == 0 && labels && plot->grid_columns == NULL && longest * (int)LABEL_PITCH <= 720 &&
        cell < (int)LABEL_PITCH)
        cell = (int)LABEL_PITCH;
    if (size == 0 && cell > MAX_CELL)
        cell = MAX_CELL;
    cell = cell > 0 ? cell : 1;
    int thin = size > 0 && size < THIN_SIDE ? size : THIN_SIDE;
    *width = side_pixels(plot->bin_columns, cell, thin);
    *height = side_pixels(plot->bin_rows, cell, thin);
}

static struct rgb cell_colour(const struct plot *plot, double value, double top)
{
    static const struct rgb white = {255, 255, 255}, ink = {34, 44, 74};
    if (isnan(value))
        return colour_nan;
    if (value == -INFINITY)
        return colour_hidden;
    double t = scale_place(&plot->scale, value / top);
    if (!plot->ink)
        return viridis(t);
    return (struct rgb){(unsigned char)lround(white.r + t * (ink.r - white.r)),
                        (unsigned char)lround(white.g + t * (ink.g - white.g)),
                        (unsigned char)lround(white.b + t * (ink.b - white.b))};
}

static attn_status draw_cells(struct canvas *canvas, const struct plot *plot, int panel, int x, int y, int width,
                              int height)
{
    struct rgb *pixels = malloc((size_t)width * (size_t)height * sizeof *pixels);
    if (pixels == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a picture of %d x %d pixels", width, height);
    const double top = plot->panel_tops != NULL ? plot->panel_tops[panel] : 1;
    for (int r = 0; r < plot->bin_rows; r++) {
        const int above = (int)((int64_t)r * height / plot->bin_rows);
        const int below = (int)((int64_t)(r + 1) * height / plot->bin_rows);
        for (int c = 0; c < plot->bin_columns; c++) {
            const int left = (int)((int64_t)c * width / plot->bin_columns);
            const int right = (int)((int64_t)(c + 1) * width / plot->bin_columns);
            const double value = plot->cells[panel][(size_t)r * (size_t)plot->bin_columns + (size_t)c];
            const struct rgb colour = cell_colour(plot, value, top);
            for (int row = above; row < below; row++)
                for (int column = left; column < right; column++)
                    pixels[(size_t)row * (size_t)width + (size_t)column] = colour;
        }
    }
    attn_status status = canvas_area(canvas, x, y, width, height, pixels);
    free(pixels);
    return status;
}

static attn_status draw_colour_bar(struct canvas *canvas, const struct plot *plot, int x, int y, int height)
{
    const int width = canvas_pixels(canvas, BAR_WIDTH);
    struct rgb *pixels = malloc((size_t)width * (size_t)height * sizeof *pixels);
    if (pixels == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    for (int i = 0; i < width * height; i++)
        pixels[i] = viridis((height - i / width - 0.5) / height);
    attn_status status = canvas_area(canvas, x, y, width, height, pixels);
    free(pixels);
    canvas_frame(canvas, x, y, width, height, colour_faint);
    layout_scale(canvas, &plot->scale, x + width, y, height, 1);
    return status;
}

attn_status plot_heatmap(struct canvas *canvas, const struct plot *plot, int size)
{
    int width, height;
    panel_pixels(plot, size, &width, &height);
    canvas_open(canvas, fmax((double)size / default_size(plot->panels), 1));
    struct axis columns = axis_columns(canvas, &plot->column_labels, plot->columns, width);
    struct axis rows = axis_rows(canvas, &plot->row_labels, plot->rows, height);
    struct layout layout;
    layout_make(&layout, canvas, plot, width, height, rows.extent, columns.extent, 0);
    int bar = 0;
    if (!plot->ink) {
        /* A colour bar of a very flat picture reaches below the cells rather than lose its numbers. */
        const int least = canvas_pixels(canvas, SHORT_SIDE);
        bar = layout.bottom - layout.top > least ? layout.bottom - layout.top : least;
        const double numbers = layout_scale_width(canvas, &plot->scale, bar) / canvas->unit;
        layout_make(&layout, canvas, plot, width, height, rows.extent, columns.extent,
                    canvas_pixels(canvas, BAR_GAP + BAR_WIDTH + TICK_LENGTH + 6 + numbers));
        const int below = layout.top + bar + canvas_pixels(canvas, 24);
        layout.height = layout.height < below ? below : layout.height;
    }
    CHECK(canvas_size(canvas, layout.width, layout.height, plot->limit_bytes));

    layout_titles(canvas, &layout, plot, rows.extent, columns.extent);
    for (int panel = 0; panel < plot->panels; panel++) {
        int x = layout_x(&layout, panel), y = layout_y(&layout, panel);
        CHECK(draw_cells(canvas, plot, panel, x, y, width, height));
        canvas_frame(canvas, x, y, width, height, colour_faint);
        if (layout_is_left(&layout, panel))
            axis_draw_rows(canvas, &rows, x, y);
        if (layout_is_bottom(&layout, plot, panel))
            axis_draw_columns(canvas, &columns, x, y + height);
    }
    return plot->ink ? ATTN_OK
                     : draw_colour_bar(canvas, plot, layout.right + canvas_pixels(canvas, BAR_GAP), layout.top, bar);
}
