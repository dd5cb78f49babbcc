/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows come a block at a time and are at once reduced to the cells of the picture. So a picture of 131072 x 131072
 * weights needs no more memory than a block of rows and the picture itself.
 */
#include "heatmap_data.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows are computed in blocks of about this size, big enough for every core. */
static const double block_bytes = 64.0 * 1048576;
/* A logarithmic scale has no more than this from its top to its bottom: six powers of ten. */
static const double log_range = 1e6;

/* ----------------------------------------------------------------- sources -- */

static attn_status take_shape(struct heatmap_data *data, int source)
{
    struct weights *w = &data->sources[source];
    w->hidden = data->hidden;
    if (source == 0) {
        data->heads = w->heads;
        data->rows = w->rows;
        data->columns = w->columns;
        return ATTN_OK;
    }
    if (w->heads == data->heads && w->rows == data->rows && w->columns == data->columns)
        return ATTN_OK;
    return io_fail(ATTN_INVALID_FILE,
                   "%s has %" PRId64 " heads, %" PRId64 " queries and %" PRId64 " keys; expected %" PRId64 ", %" PRId64
                   " and %" PRId64 " as %s has, for one grid",
                   w->file.spec, w->heads, w->rows, w->columns, data->heads, data->rows, data->columns,
                   data->sources[0].file.spec);
}

static attn_status open_grid(struct heatmap_data *data, const char *spec)
{
    CHECK(array_names_open(&data->names, spec));
    const size_t count = data->names.count;
    if (count > HEATMAP_MOST_SOURCES)
        return io_fail(ATTN_INVALID_ARGUMENT, "%s names %zu tensors; expected at most %d", spec, count,
                       HEATMAP_MOST_SOURCES);
    data->count = (int)count;
    data->sources = calloc(count, sizeof *data->sources);
    if (data->sources == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < count; i++) {
        char *one;
        if (asprintf(&one, "%s:%s", data->names.path, data->names.names[i]) < 0) {
            status = io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
            break;
        }
        status = weights_from_file(&data->sources[i], one);
        free(one);
        if (status == ATTN_OK)
            status = take_shape(data, (int)i);
    }
    return status;
}

static attn_status one_source(struct heatmap_data *data)
{
    data->count = 1;
    data->sources = calloc(1, sizeof *data->sources);
    if (data->sources == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    return ATTN_OK;
}

attn_status heatmap_open_file(struct heatmap_data *data, const char *spec, bool grid)
{
    if (grid)
        return open_grid(data, spec);
    CHECK(one_source(data));
    CHECK(weights_from_file(data->sources, spec));
    return take_shape(data, 0);
}

attn_status heatmap_open_inputs(struct heatmap_data *data, const struct inputs *inputs)
{
    CHECK(one_source(data));
    CHECK(weights_from_inputs(data->sources, inputs));
    return take_shape(data, 0);
}

void heatmap_close(struct heatmap_data *data)
{
    for (int i = 0; i < data->plot.panels; i++)
        free(data->cells != NULL ? data->cells[i] : NULL);
    free(data->cells);
    free(data->tops);
    for (int i = 0; data->sources != NULL && i < data->count; i++)
        weights_close(&data->sources[i]);
    free(data->sources);
    array_names_free(&data->names);
}

/* --------------------------------------------------------------- selection -- */

static attn_status check_index(const char *option, int64_t value, int64_t count, const char *what)
{
    if (value < count)
        return ATTN_OK;
    return io_fail(ATTN_INVALID_ARGUMENT, "%s is %" PRId64 "; expected 0 to %" PRId64 ", as there are %" PRId64 " %s",
                   option, value, count - 1, count, what);
}

attn_status heatmap_check(struct heatmap_data *data)
{
    for (int i = 0; i < data->count; i++) {
        const struct weights *w = &data->sources[i];
        if (w->batch == 0 || w->heads == 0 || w->rows == 0 || w->columns == 0)
            return io_fail(ATTN_INVALID_FILE,
                           "there is nothing to draw: %" PRId64 " batch elements of %" PRId64 " heads, %" PRId64
                           " queries and %" PRId64 " keys",
                           w->batch, w->heads, w->rows, w->columns);
        CHECK(check_index("--batch", data->batch, w->batch, "batch elements"));
    }
    CHECK(check_index("--head", data->head, data->heads, "heads"));
    CHECK(check_index("--row", data->row, data->rows, "queries"));
    const int64_t heads = data->head >= 0 ? 1 : data->heads;
    if (heads > HEATMAP_MOST_PANELS / data->count)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "%" PRId64 " heads%s are too many for one picture; expected at most %d, or --head N",
                       heads * data->count, data->count > 1 ? " of all layers" : "", HEATMAP_MOST_PANELS);
    if ((double)data->columns * sizeof(float) > data->limit_bytes)
        return io_fail(ATTN_SIZE_OVERFLOW, "a row of %" PRId64 " weights is above the limit of %.0f MiB (--limit-mib)",
                       data->columns, data->limit_bytes / 1048576);
    data->plot.panels = (int)heads * data->count;
    return ATTN_OK;
}

/* ------------------------------------------------------------------- cells -- */

static attn_status reduce_rows(struct heatmap_data *data, const struct weights *w, int64_t head, struct reduce *reduce,
                               float *rows, int64_t block)
{
    const int64_t begin = data->row >= 0 ? data->row : 0, end = data->row >= 0 ? data->row + 1 : w->rows;
    for (int64_t first = begin; first < end; first += block) {
        int64_t count = end - first < block ? end - first : block;
        CHECK(weights_rows(w, data->batch, head, first, count, rows));
        for (int64_t i = 0; i < count; i++) {
            if (w->inputs == NULL)
                findings_add(&data->findings, rows + i * w->columns, w->columns, head, first + i);
            reduce_add(reduce, first + i - begin, rows + i * w->columns);
        }
        progress_add(&data->progress, count);
    }
    return ATTN_OK;
}

static attn_status reduce_head(struct heatmap_data *data, int panel, const struct weights *w, int64_t head)
{
    const struct plot *plot = &data->plot;
    double bytes = block_bytes < data->limit_bytes ? block_bytes : data->limit_bytes;
    int64_t block = (int64_t)(bytes / sizeof(float) / (double)w->columns);
    block = data->row >= 0 || block < 1 ? 1 : block > w->rows ? w->rows : block;
    float *rows = malloc((size_t)block * (size_t)w->columns * sizeof *rows);
    data->cells[panel] = malloc((size_t)plot->bin_rows * (size_t)plot->bin_columns * sizeof *rows);
    struct reduce reduce = {.values = NULL};
    bool fits = rows != NULL && data->cells[panel] != NULL &&
                reduce_create(&reduce, data->reduce, plot->rows, plot->columns, plot->bin_rows, plot->bin_columns);
    attn_status status = fits ? reduce_rows(data, w, head, &reduce, rows, block)
                              : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " rows of %" PRId64 " weights",
                                        block, w->columns);
    if (status == ATTN_OK)
        reduce_cells(&reduce, data->cells[panel]);
    reduce_free(&reduce);
    free(rows);
    return status;
}

/* ------------------------------------------------------------------- scale -- */

/* The least and the greatest cell, and the least above 0, as shares of the panels' own tops where these count. */
struct range {
    double low, high, positive;
};

static struct range find_range(struct heatmap_data *data)
{
    const struct plot *plot = &data->plot;
    const size_t cells = (size_t)plot->bin_rows * (size_t)plot->bin_columns;
    struct range range = {0, 0, INFINITY};
    for (int panel = 0; panel < plot->panels; panel++) {
        double low = 0, high = 0, positive = INFINITY;
        for (size_t i = 0; i < cells; i++) {
            const double value = data->cells[panel][i];
            data->has_hidden |= value == -INFINITY;
            data->has_nan |= isnan(value);
            if (!isfinite(value))
                continue;
            high = fmax(high, value);
            low = fmin(low, value);
            positive = value > 0 ? fmin(positive, value) : positive;
        }
        data->tops[panel] = high > 0 ? high : 1;
        const double unit = data->top == TOP_PANEL ? data->tops[panel] : 1;
        range.high = fmax(range.high, high / unit);
        range.low = fmin(range.low, low / unit);
        range.positive = fmin(range.positive, positive / unit);
    }
    return range;
}

/*
 * From zero, or the least value if there are negative ones, to the greatest. The
 * axis of a bar plot goes on to a round number above, so that the highest bar
 * does not touch the frame.
 */
static attn_status find_scale(struct heatmap_data *data)
{
    const struct range range = find_range(data);
    const bool given = data->top == TOP_GIVEN;
    struct scale scale = {data->kind, range.low, given ? data->given_top : range.high};
    static const char *const names[] = {[SCALE_SQRT] = "sqrt", [SCALE_LOG] = "log"};
    if (data->kind != SCALE_LINEAR && range.low < 0)
        return io_fail(ATTN_INVALID_FILE, "--scale %s is for values from 0 on, but the least one is %.3g",
                       names[data->kind], range.low);
    if (!(scale.high > scale.low))
        scale.high = scale.low + 1;
    if (data->kind == SCALE_LOG) {
        scale.low = fmax(range.positive, scale.high / log_range);
        if (!(scale.low < scale.high))
            scale.low = scale.high / 10;
        if (data->row >= 0 && !given)
            scale.high *= 1.3;
    } else if (data->row >= 0 && !given) {
        scale.high = plot_bar_top(scale.low, scale.high);
    }
    data->plot.scale = scale;
    data->plot.panel_tops = data->top == TOP_PANEL ? data->tops : NULL;
    return ATTN_OK;
}

attn_status heatmap_collect(struct heatmap_data *data)
{
    struct plot *plot = &data->plot;
    plot->rows = data->row >= 0 ? 1 : data->rows;
    plot->columns = data->columns;
    plot->limit_bytes = data->limit_bytes;
    plot->bin_rows = 1;
    if (data->row >= 0)
        plot->bin_columns = plot_bar_bins(plot->columns, plot->panels, data->size);
    else
        plot_heatmap_bins(plot->rows, plot->columns, plot->panels, data->size, &plot->bin_rows, &plot->bin_columns);
    data->cells = calloc((size_t)plot->panels, sizeof *data->cells);
    data->tops = calloc((size_t)plot->panels, sizeof *data->tops);
    if (data->cells == NULL || data->tops == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    const int heads = plot->panels / data->count;
    attn_status status = ATTN_OK;
    progress_start(&data->progress, plot->panels * plot->rows, "rows", data->quiet);
    for (int panel = 0; status == ATTN_OK && panel < plot->panels; panel++)
        status = reduce_head(data, panel, &data->sources[panel / heads], data->head >= 0 ? data->head : panel % heads);
    progress_finish(&data->progress);
    CHECK(status);
    plot->cells = data->cells;
    return find_scale(data);
}
