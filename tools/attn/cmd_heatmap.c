/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn heatmap: draws attention weights. They are read from a file, or computed
 * from q and k, a block of rows at a time, and each block is at once reduced to
 * the cells of the picture. So a picture of 131072 x 131072 weights needs no
 * more memory than a block of rows and the picture itself; --limit-mib bounds
 * both and the mask, which is the only other thing that can be T x T.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "inputs.h"
#include "labels.h"
#include "plot/layout.h"
#include "plot/picture.h"
#include "plot/plot.h"
#include "plot/reduce.h"
#include "weights.h"

enum {
    MAP_OUT = INPUT_COUNT,
    MAP_BATCH,
    MAP_HEAD,
    MAP_ROW,
    MAP_LABELS,
    MAP_ROW_LABELS,
    MAP_COLUMN_LABELS,
    MAP_TITLE,
    MAP_SIZE,
    MAP_MAX,
    MAP_LIMIT,
    MAP_COUNT
};

enum { MAX_PANELS = 64, MAX_SIZE = 8192 };

/* Rows are computed in blocks of about this size, big enough for every core. */
static const double block_bytes = 64.0 * 1048576;

struct picture {
    struct option *options;
    long long batch, head, row, size; /* head, row: -1 for all; size: 0 for the default */
    double limit_bytes;
    float high; /* 0: from the data */
    struct inputs inputs;
    struct weights weights;
    struct labels row_labels, column_labels;
    struct plot plot;
    float *cells[MAX_PANELS];
    char *panel_titles[MAX_PANELS];
    char title[256], subtitle[256];
};

static void print_help(const struct option *options)
{
    printf("Usage: attn heatmap WEIGHTS -o FILE.png [OPTION]...\n"
           "       attn heatmap -q FILE -k FILE -o FILE.png [OPTION]...\n\n"
           "Draws attention weights: those in the file WEIGHTS (batch, head, query, key, or\n"
           "fewer leading dimensions), or those that follow from q and k.\n\n");
    inputs_print_general(stdout, options);
    options_print(stdout, options + MAP_OUT, MAP_COUNT - MAP_OUT);
    inputs_print_forms(stdout, options);
    printf("\n"
           "  FILE and WEIGHTS are FILE.npy or FILE.safetensors:NAME. Without --head all heads\n"
           "  are drawn, each in a panel. A matrix with more cells than the picture has pixels\n"
           "  is reduced: each cell is then the mean over its area. The T x T matrix is never\n"
           "  held in memory.\n");
}

/* Options that mean something only when weights are computed are refused with a file of weights. */
static attn_status check_source(const struct option *options, const struct operands *operands)
{
    char label[64];
    if (operands->count == 0) {
        if (options[INPUT_Q].value == NULL && options[INPUT_K].value == NULL)
            return io_fail(ATTN_INVALID_ARGUMENT, "there is nothing to draw; expected a file of weights, or -q and -k");
        CHECK(option_require(&options[INPUT_Q]));
        return option_require(&options[INPUT_K]);
    }
    for (int i = INPUT_Q; i < INPUT_COUNT; i++) {
        if (options[i].value != NULL)
            return io_fail(ATTN_INVALID_ARGUMENT,
                           "option %s computes weights, but %s already holds them; expected one of the two",
                           option_label(&options[i], label), operands->values[0]);
    }
    return ATTN_OK;
}

static attn_status parse(struct picture *p)
{
    const struct option *o = p->options;
    long long limit = 1024;
    p->head = p->row = -1;
    CHECK(option_require(&o[MAP_OUT]));
    CHECK(option_integer(&o[MAP_BATCH], 0, INT64_MAX, &p->batch));
    CHECK(option_integer(&o[MAP_HEAD], 0, INT64_MAX, &p->head));
    CHECK(option_integer(&o[MAP_ROW], 0, INT64_MAX, &p->row));
    CHECK(option_integer(&o[MAP_SIZE], 16, MAX_SIZE, &p->size));
    CHECK(option_float(&o[MAP_MAX], true, &p->high));
    CHECK(option_integer(&o[MAP_LIMIT], 1, 1 << 20, &limit));
    CHECK(inputs_parse(&p->inputs, p->options));
    p->limit_bytes = (double)limit * 1048576;
    if (o[MAP_LABELS].value != NULL && o[MAP_ROW_LABELS].value != NULL && o[MAP_COLUMN_LABELS].value != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--labels has no effect beside --row-labels and --column-labels");
    if (p->row >= 0 && o[MAP_ROW_LABELS].value != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--row-labels has no effect with --row, which draws keys only");
    return ATTN_OK;
}

static attn_status open_weights(struct picture *p, const struct operands *operands)
{
    if (operands->count > 0)
        return weights_from_file(&p->weights, operands->values[0]);
    CHECK(inputs_load(&p->inputs, NULL, (uint64_t)p->limit_bytes));
    return weights_from_inputs(&p->weights, &p->inputs);
}

static attn_status check_index(const char *option, long long value, int64_t count, const char *what)
{
    if (value < count)
        return ATTN_OK;
    return io_fail(ATTN_INVALID_ARGUMENT, "%s is %lld; expected 0 to %" PRId64 ", as there are %" PRId64 " %s", option,
                   value, count - 1, count, what);
}

static attn_status check_extent(struct picture *p)
{
    const struct weights *w = &p->weights;
    if (w->batch == 0 || w->heads == 0 || w->rows == 0 || w->columns == 0)
        return io_fail(ATTN_INVALID_FILE,
                       "there is nothing to draw: %" PRId64 " batch elements of %" PRId64 " heads, %" PRId64
                       " queries and %" PRId64 " keys",
                       w->batch, w->heads, w->rows, w->columns);
    CHECK(check_index("--batch", p->batch, w->batch, "batch elements"));
    CHECK(check_index("--head", p->head, w->heads, "heads"));
    CHECK(check_index("--row", p->row, w->rows, "queries"));
    p->plot.panels = p->head >= 0 ? 1 : (int)(w->heads <= MAX_PANELS ? w->heads : 0);
    if (p->plot.panels == 0)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "%" PRId64 " heads are too many for one picture; expected at most %d, or --head N", w->heads,
                       MAX_PANELS);
    if ((double)w->columns * sizeof(float) > p->limit_bytes)
        return io_fail(ATTN_SIZE_OVERFLOW, "a row of %" PRId64 " weights is above the limit of %.0f MiB (--limit-mib)",
                       w->columns, p->limit_bytes / 1048576);
    return ATTN_OK;
}

static attn_status read_labels(struct picture *p)
{
    const struct option *o = p->options;
    const char *both = o[MAP_LABELS].value;
    const char *rows = o[MAP_ROW_LABELS].value != NULL ? o[MAP_ROW_LABELS].value : both;
    const char *columns = o[MAP_COLUMN_LABELS].value != NULL ? o[MAP_COLUMN_LABELS].value : both;
    /* A bar plot names its query by its label when the labels are those of queries, too. */
    bool want_rows = rows != NULL && (p->row < 0 || p->weights.rows == p->weights.columns);
    if (want_rows)
        CHECK(labels_read(&p->row_labels, rows, p->weights.rows, "query"));
    if (columns != NULL)
        CHECK(labels_read(&p->column_labels, columns, p->weights.columns, "key"));
    p->plot.row_labels.text = p->row_labels.text;
    p->plot.column_labels.text = p->column_labels.text;
    return ATTN_OK;
}

static void make_titles(struct picture *p)
{
    const struct weights *w = &p->weights;
    struct plot *plot = &p->plot;
    char where[96] = "", query[128] = "";
    size_t used = 0;
    if (w->batch > 1)
        used += (size_t)snprintf(where, sizeof where, ", batch %lld", p->batch);
    if (p->head >= 0 && w->heads > 1)
        snprintf(where + used, sizeof where - used, ", head %lld", p->head);
    if (p->row >= 0 && p->row_labels.text != NULL)
        snprintf(query, sizeof query, " of query %lld \"%s\"", p->row, p->row_labels.text[p->row]);
    else if (p->row >= 0)
        snprintf(query, sizeof query, " of query %lld", p->row);
    const char *given = p->options[MAP_TITLE].value;
    if (given != NULL)
        snprintf(p->title, sizeof p->title, "%s", given);
    else
        snprintf(p->title, sizeof p->title, "Attention weights%s%s", query, where);

    double per_row = (double)plot->rows / plot->bin_rows, per_column = (double)plot->columns / plot->bin_columns;
    if (p->row >= 0 && per_column > 1)
        snprintf(p->subtitle, sizeof p->subtitle, "%" PRId64 " keys; a bar is the greatest of %.3g weights",
                 plot->columns, per_column);
    else if (p->row >= 0)
        snprintf(p->subtitle, sizeof p->subtitle, "%" PRId64 " keys", plot->columns);
    else if (per_row > 1 || per_column > 1)
        snprintf(p->subtitle, sizeof p->subtitle,
                 "%" PRId64 " queries x %" PRId64 " keys; a cell is the mean of %.3g x %.3g", plot->rows, plot->columns,
                 per_row, per_column);
    else
        snprintf(p->subtitle, sizeof p->subtitle, "%" PRId64 " queries x %" PRId64 " keys", plot->rows, plot->columns);
    plot->title = p->title;
    plot->subtitle = p->subtitle;
    plot->row_name = p->row >= 0 ? "weight" : "query";
    plot->column_name = "key";
}

/* Reduces one head, block by block. */
static attn_status reduce_head(struct picture *p, int panel, int64_t head)
{
    const struct weights *w = &p->weights;
    struct plot *plot = &p->plot;
    double bytes = block_bytes < p->limit_bytes ? block_bytes : p->limit_bytes;
    int64_t block = (int64_t)(bytes / sizeof(float) / (double)w->columns);
    block = p->row >= 0 || block < 1 ? 1 : block > w->rows ? w->rows : block;
    size_t cells = (size_t)plot->bin_rows * (size_t)plot->bin_columns;
    float *rows = malloc((size_t)block * (size_t)w->columns * sizeof *rows);
    p->cells[panel] = malloc(cells * sizeof *rows);
    struct reduce reduce = {.sums = NULL};
    attn_status status = (rows != NULL && p->cells[panel] != NULL &&
                          reduce_create(&reduce, plot->rows, plot->columns, plot->bin_rows, plot->bin_columns))
                             ? ATTN_OK
                             : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " rows of %" PRId64 " weights",
                                       block, w->columns);
    if (status == ATTN_OK && p->row >= 0) {
        status = weights_rows(w, p->batch, head, p->row, 1, rows);
        if (status == ATTN_OK)
            reduce_maxima(rows, plot->columns, plot->bin_columns, p->cells[panel]);
    } else if (status == ATTN_OK) {
        for (int64_t first = 0; status == ATTN_OK && first < w->rows; first += block) {
            int64_t count = w->rows - first < block ? w->rows - first : block;
            status = weights_rows(w, p->batch, head, first, count, rows);
            for (int64_t i = 0; status == ATTN_OK && i < count; i++)
                reduce_add(&reduce, first + i, rows + i * w->columns);
        }
        if (status == ATTN_OK)
            reduce_means(&reduce, p->cells[panel]);
    }
    reduce_free(&reduce);
    free(rows);
    return status;
}

/*
 * From zero, or the least value if there are negative ones, to the greatest. The
 * axis of a bar plot ends at a round number, so that the highest bar is not cut
 * off by the frame.
 */
static void find_scale(struct picture *p)
{
    struct plot *plot = &p->plot;
    size_t cells = (size_t)plot->bin_rows * (size_t)plot->bin_columns;
    plot->low = 0, plot->high = 0;
    for (int panel = 0; panel < plot->panels; panel++) {
        for (size_t i = 0; i < cells; i++) {
            double value = p->cells[panel][i];
            if (isfinite(value) && value > plot->high)
                plot->high = value;
            if (isfinite(value) && value < plot->low)
                plot->low = value;
        }
    }
    if (p->high > 0)
        plot->high = p->high;
    if (!(plot->high > plot->low))
        plot->high = plot->low + 1;
    if (p->row >= 0 && p->high == 0) {
        double step = scale_step(plot->high - plot->low, 5);
        plot->high = ceil(plot->high / step - 1e-9) * step;
    }
}

static attn_status collect(struct picture *p)
{
    struct plot *plot = &p->plot;
    int size = (int)p->size;
    plot->rows = p->row >= 0 ? 1 : p->weights.rows;
    plot->columns = p->weights.columns;
    plot->limit_bytes = p->limit_bytes;
    if (p->row >= 0) {
        plot->bin_rows = 1;
        plot->bin_columns = plot_bar_bins(plot->columns, plot->panels, size);
    } else {
        plot_heatmap_bins(plot->rows, plot->columns, plot->panels, size, &plot->bin_rows, &plot->bin_columns);
    }
    for (int panel = 0; panel < plot->panels; panel++) {
        int64_t head = p->head >= 0 ? p->head : panel;
        CHECK(reduce_head(p, panel, head));
        if (asprintf(&p->panel_titles[panel], "head %" PRId64, head) < 0) {
            p->panel_titles[panel] = NULL;
            return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
        }
    }
    plot->cells = p->cells;
    plot->panel_titles = p->panel_titles;
    find_scale(p);
    return ATTN_OK;
}

static attn_status draw(struct picture *p, const struct operands *operands)
{
    char *target;
    CHECK(picture_target(&target, p->options[MAP_OUT].value));
    attn_status status = open_weights(p, operands);
    if (status == ATTN_OK)
        status = check_extent(p);
    if (status == ATTN_OK)
        status = read_labels(p);
    if (status == ATTN_OK)
        status = collect(p);
    if (status == ATTN_OK) {
        struct canvas canvas = {.pixels = NULL};
        make_titles(p);
        status =
            p->row >= 0 ? plot_bars(&canvas, &p->plot, (int)p->size) : plot_heatmap(&canvas, &p->plot, (int)p->size);
        if (status == ATTN_OK)
            status = picture_write(&canvas, target);
        canvas_free(&canvas);
    }
    free(target);
    return status;
}

attn_status command_heatmap(int argc, char *const *argv)
{
    struct option options[MAP_COUNT] = {
        [MAP_OUT] = {"output", 'o', "FILE.png", "the picture", NULL},
        [MAP_BATCH] = {"batch", 0, "N", "which batch element; default 0", NULL},
        [MAP_HEAD] = {"head", 0, "N", "only this head", NULL},
        [MAP_ROW] = {"row", 0, "N", "a bar plot of this query's weights, instead of a heat map", NULL},
        [MAP_LABELS] = {"labels", 0, "FILE", "text file with the tokens, one on each line", NULL},
        [MAP_ROW_LABELS] = {"row-labels", 0, "FILE", "the same for the queries alone", NULL},
        [MAP_COLUMN_LABELS] = {"column-labels", 0, "FILE", "the same for the keys alone", NULL},
        [MAP_TITLE] = {"title", 0, "TEXT", "the title of the picture", NULL},
        [MAP_SIZE] = {"size", 0, "N", "pixels of a panel's longest side", NULL},
        [MAP_MAX] = {"max", 0, "X", "the weight at the top of the scale; default: the greatest drawn", NULL},
        [MAP_LIMIT] = {"limit-mib", 0, "N", "refuse what needs a buffer of more MiB; default 1024", NULL},
    };
    inputs_options(options);
    struct operands operands;
    CHECK(options_parse(options, MAP_COUNT, argc, argv, &operands, 1));
    if (options[INPUT_HELP].value != NULL) {
        print_help(options);
        return ATTN_OK;
    }
    if (options[INPUT_VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    struct picture *p = calloc(1, sizeof *p);
    if (p == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    p->options = options;
    p->weights.file.fd = -1;
    attn_status status = check_source(options, &operands);
    if (status == ATTN_OK)
        status = parse(p);
    if (status == ATTN_OK)
        status = draw(p, &operands);
    weights_close(&p->weights);
    inputs_free(&p->inputs);
    labels_free(&p->row_labels);
    labels_free(&p->column_labels);
    for (int i = 0; i < MAX_PANELS; i++) {
        free(p->cells[i]);
        free(p->panel_titles[i]);
    }
    free(p);
    return status;
}
