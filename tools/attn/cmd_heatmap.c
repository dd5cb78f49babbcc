/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn heatmap: draws attention weights, from a file or computed from q and k,
 * as heat maps or as bars of one query. The options, and what is written on the
 * picture; the cells are made in heatmap_data.c. --limit-mib bounds the memory
 * of rows, picture and mask, which is the only thing that can be T x T.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "heatmap_data.h"
#include "inputs.h"
#include "labels.h"
#include "plot/picture.h"

enum {
    MAP_OUT = INPUT_COUNT,
    MAP_TO,
    MAP_GRID,
    MAP_BATCH,
    MAP_HEAD,
    MAP_ROW,
    MAP_LABELS,
    MAP_ROW_LABELS,
    MAP_COLUMN_LABELS,
    MAP_TITLE,
    MAP_SIZE,
    MAP_MAX,
    MAP_REDUCE,
    MAP_HIDDEN,
    MAP_LIMIT,
    MAP_COUNT
};

enum { MAX_SIZE = 16384 };

static const char *const scale_names[] = {"linear", "sqrt", "log"};
static const char *const reduce_names[] = {"max", "mean"};
static const char *const hidden_names[] = {"zero", "none"};

struct picture {
    struct option *options;
    bool grid;
    struct inputs inputs;
    struct heatmap_data data;
    struct labels row_labels, column_labels;
    char **panel_titles; /* [titles]: of panels, or of the columns of a grid */
    int titles;
    char title[512], subtitle[512];
};

static void print_help(const struct option *options)
{
    printf("Usage: attn heatmap WEIGHTS -o FILE.png|.svg|.pdf [OPTION]...\n"
           "       attn heatmap -q FILE -k FILE -o FILE.png|.svg|.pdf [OPTION]...\n\n"
           "Draws attention weights: those in the file WEIGHTS (batch, head, query, key, or\n"
           "fewer leading dimensions), or those that follow from q and k.\n\n");
    inputs_print_general(stdout, options);
    options_print(stdout, options + MAP_OUT, MAP_COUNT - MAP_OUT);
    inputs_print_forms(stdout, options);
    printf("\n"
           "  FILE and WEIGHTS are FILE.npy, FILE.npz:NAME, FILE.safetensors:NAME, or - or -:NAME\n"
           "  for standard input. Without --head all heads are drawn, each in a panel. With\n"
           "  --grid a PATTERN stands for NAME, in which * stands for anything: tensors are rows\n"
           "  of panels, heads are columns.\n"
           "\n"
           "  Keys that a query does not see are grey. q, k and the options say which these are;\n"
           "  a file does not, and there weights of exactly 0 are taken for them (--hidden none:\n"
           "  they are drawn as weights). NaN is red.\n"
           "\n"
           "  A matrix with more cells than the picture has pixels is reduced: each cell is then\n"
           "  the greatest in its area (--reduce mean: their mean without the hidden keys). The\n"
           "  T x T matrix is never held in memory.\n");
}

/* Options that mean something only when weights are computed are refused with a file of weights. */
static attn_status check_source(const struct option *options, const struct operands *operands)
{
    char label[64];
    if (operands->count == 0) {
        if (options[INPUT_Q].value == NULL && options[INPUT_K].value == NULL)
            return io_fail(ATTN_INVALID_ARGUMENT, "there is nothing to draw; expected a file of weights, or -q and -k");
        if (options[MAP_GRID].value != NULL)
            return io_fail(ATTN_INVALID_ARGUMENT,
                           "--grid is for the tensors of a file, not for weights that are computed from q and k");
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

/* --scale is a number, for the computation, or a word, for the picture. The word is taken out of the options. */
static void take_scale(struct picture *p)
{
    struct option *option = &p->options[INPUT_SCALE];
    for (int kind = SCALE_LINEAR; option->value != NULL && kind <= SCALE_LOG; kind++) {
        if (strcmp(option->value, scale_names[kind]) != 0)
            continue;
        p->data.kind = (enum scale_kind)kind;
        option->value = NULL;
    }
}

/* panel, all or a number. */
static attn_status take_top(struct picture *p)
{
    const struct option *option = &p->options[MAP_MAX];
    float top = 0;
    if (option->value == NULL || strcmp(option->value, "all") == 0)
        return ATTN_OK;
    if (strcmp(option->value, "panel") == 0) {
        p->data.top = TOP_PANEL;
        return ATTN_OK;
    }
    if (option_float(option, true, &top) != ATTN_OK)
        return io_fail(ATTN_INVALID_ARGUMENT, "--max is '%s'; expected panel, all or a positive number", option->value);
    p->data.top = TOP_GIVEN;
    p->data.given_top = (double)top;
    return ATTN_OK;
}

static attn_status parse(struct picture *p)
{
    const struct option *o = p->options;
    long long limit = 1024, batch = 0, head = -1, row = -1, size = 0;
    int reduce = REDUCE_MAX, hidden = -1;
    CHECK(option_require(&o[MAP_OUT]));
    CHECK(option_integer(&o[MAP_BATCH], 0, INT64_MAX, &batch));
    CHECK(option_integer(&o[MAP_HEAD], 0, INT64_MAX, &head));
    CHECK(option_integer(&o[MAP_ROW], 0, INT64_MAX, &row));
    CHECK(option_integer(&o[MAP_SIZE], 16, MAX_SIZE, &size));
    CHECK(take_top(p));
    CHECK(option_choice(&o[MAP_REDUCE], reduce_names, 2, &reduce));
    CHECK(option_choice(&o[MAP_HIDDEN], hidden_names, 2, &hidden));
    CHECK(option_integer(&o[MAP_LIMIT], 1, 1 << 20, &limit));
    CHECK(inputs_parse(&p->inputs, p->options));
    struct heatmap_data *data = &p->data;
    p->grid = o[MAP_GRID].value != NULL;
    data->batch = batch, data->head = head, data->row = row, data->size = (int)size;
    data->reduce = (enum reduce_by)reduce;
    data->hidden = hidden < 0 ? HIDDEN_KNOWN : hidden == 0 ? HIDDEN_ZERO : HIDDEN_NONE;
    data->limit_bytes = (double)limit * 1048576;
    data->quiet = command_is_quiet();
    if (o[MAP_LABELS].value != NULL && o[MAP_ROW_LABELS].value != NULL && o[MAP_COLUMN_LABELS].value != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--labels has no effect beside --row-labels and --column-labels");
    if (row >= 0 && o[MAP_ROW_LABELS].value != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--row-labels has no effect with --row, which draws keys only");
    return ATTN_OK;
}

static attn_status open_weights(struct picture *p, const struct operands *operands)
{
    if (operands->count > 0)
        return heatmap_open_file(&p->data, operands->values[0], p->grid);
    CHECK(inputs_load(&p->inputs, NULL, (uint64_t)p->data.limit_bytes));
    return heatmap_open_inputs(&p->data, &p->inputs);
}

static attn_status read_labels(struct picture *p)
{
    const struct option *o = p->options;
    const char *both = o[MAP_LABELS].value;
    const char *rows = o[MAP_ROW_LABELS].value != NULL ? o[MAP_ROW_LABELS].value : both;
    const char *columns = o[MAP_COLUMN_LABELS].value != NULL ? o[MAP_COLUMN_LABELS].value : both;
    /* A bar plot names its query by its label when the labels are those of queries, too. */
    bool want_rows = rows != NULL && (p->data.row < 0 || p->data.rows == p->data.columns);
    if (want_rows)
        CHECK(labels_read(&p->row_labels, rows, p->data.rows, "query"));
    if (columns != NULL)
        CHECK(labels_read(&p->column_labels, columns, p->data.columns, "key"));
    p->data.plot.row_labels.text = p->row_labels.text;
    p->data.plot.column_labels.text = p->column_labels.text;
    return ATTN_OK;
}

/* ------------------------------------------------------------------ titles -- */

static void append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* The bytes of a label that a title takes: not more than about so many, and whole characters. */
static int title_bytes(const char *label)
{
    size_t length = strlen(label), most = 120;
    if (length <= most)
        return (int)length;
    while (most > 0 && ((unsigned char)label[most] & 0xc0) == 0x80)
        most--;
    return (int)most;
}

static void make_title(struct picture *p)
{
    const struct heatmap_data *d = &p->data;
    const size_t size = sizeof p->title;
    p->title[0] = '\0';
    if (p->options[MAP_TITLE].value != NULL) {
        append(p->title, size, "%s", p->options[MAP_TITLE].value);
        return;
    }
    append(p->title, size, "Attention weights");
    if (d->row >= 0)
        append(p->title, size, " of query %" PRId64, d->row);
    if (d->row >= 0 && p->row_labels.text != NULL) {
        const char *label = p->row_labels.text[d->row];
        append(p->title, size, " “%.*s”", title_bytes(label), label);
    }
    if (d->sources[0].batch > 1)
        append(p->title, size, ", batch %" PRId64, d->batch);
    if (d->head >= 0 && d->heads > 1)
        append(p->title, size, ", head %" PRId64, d->head);
}

/* What there is, and how to read it. */
static void make_subtitle(struct picture *p)
{
    const struct heatmap_data *d = &p->data;
    const struct plot *plot = &d->plot;
    const size_t size = sizeof p->subtitle;
    const char *by = d->reduce == REDUCE_MAX ? "greatest" : "mean";
    double per_row = (double)plot->rows / plot->bin_rows, per_column = (double)plot->columns / plot->bin_columns;
    p->subtitle[0] = '\0';
    if (d->row < 0)
        append(p->subtitle, size, "%" PRId64 " queries × ", plot->rows);
    append(p->subtitle, size, "%" PRId64 " keys", plot->columns);
    if (d->row >= 0 && per_column > 1)
        append(p->subtitle, size, "; a bar is the %s of %.3g weights", by, per_column);
    else if (per_row > 1 || per_column > 1)
        append(p->subtitle, size, "; a cell is the %s of %.3g × %.3g", by, per_row, per_column);
    if (d->kind != SCALE_LINEAR)
        append(p->subtitle, size, "; %s scale", d->kind == SCALE_SQRT ? "square root" : "logarithmic");
    if (d->top == TOP_PANEL)
        append(p->subtitle, size, "; as fractions of each panel's maximum");
    if (d->has_hidden)
        append(p->subtitle, size, "; grey: hidden");
    if (d->has_nan)
        append(p->subtitle, size, "; red: NaN");
}

static attn_status make_panel_titles(struct picture *p)
{
    const struct heatmap_data *d = &p->data;
    const int heads = d->plot.panels / d->count;
    p->titles = p->grid ? heads : d->plot.panels;
    p->panel_titles = calloc((size_t)p->titles, sizeof *p->panel_titles);
    if (p->panel_titles == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    for (int i = 0; i < p->titles; i++) {
        const int64_t head = d->head >= 0 ? d->head : i;
        const bool top = d->top == TOP_PANEL && !p->grid;
        const int length = top ? asprintf(&p->panel_titles[i], "head %" PRId64 ", up to %.3g", head, d->tops[i])
                               : asprintf(&p->panel_titles[i], "head %" PRId64, head);
        if (length < 0) {
            p->panel_titles[i] = NULL;
            return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
        }
    }
    return ATTN_OK;
}

static attn_status make_titles(struct picture *p)
{
    struct plot *plot = &p->data.plot;
    make_title(p);
    make_subtitle(p);
    CHECK(make_panel_titles(p));
    plot->title = p->title;
    plot->subtitle = p->subtitle;
    plot->row_name = p->data.row < 0 ? "query" : p->data.top == TOP_PANEL ? "weight / maximum" : "weight";
    plot->column_name = "key";
    if (p->grid) {
        plot->across = p->titles;
        plot->grid_columns = p->panel_titles;
        plot->grid_rows = p->data.names.names;
    } else {
        plot->panel_titles = p->panel_titles;
    }
    return ATTN_OK;
}

/* ----------------------------------------------------------------- drawing -- */

/* What a reader of the picture should know. */
static void say_notes(const struct picture *p, const struct canvas *canvas, const char *source)
{
    char text[400];
    if (!findings_none(&p->data.findings, text, sizeof text))
        command_note("%s is drawn as it is, but these are not the weights of a softmax: it holds %s", source, text);
    if (canvas->missing > 0)
        command_note("no installed font has %" PRId64 " of the characters, the first in '%s', and boxes stand for "
                     "them; Debian's packages fonts-noto-core and fonts-noto-cjk have most",
                     canvas->missing, canvas->missing_text);
}

static attn_status draw(struct picture *p, const struct operands *operands)
{
    struct picture_target target;
    struct canvas canvas = {.unit = 0};
    struct heatmap_data *data = &p->data;
    CHECK(picture_output(&target, p->options[MAP_OUT].value, p->options[MAP_TO].value));
    attn_status status = open_weights(p, operands);
    if (status == ATTN_OK)
        status = heatmap_check(data);
    if (status == ATTN_OK)
        status = read_labels(p);
    if (status == ATTN_OK)
        status = heatmap_collect(data);
    if (status == ATTN_OK)
        status = make_titles(p);
    if (status == ATTN_OK)
        status = data->row >= 0 ? plot_bars(&canvas, &data->plot, data->size)
                                : plot_heatmap(&canvas, &data->plot, data->size);
    if (status == ATTN_OK)
        status = picture_write(&canvas, &target);
    if (status == ATTN_OK)
        say_notes(p, &canvas, operands->values[0]);
    canvas_free(&canvas);
    picture_target_free(&target);
    return status;
}

attn_status command_heatmap(int argc, char *const *argv)
{
    struct option options[MAP_COUNT] = {
        [MAP_OUT] = {"output", 'o', "FILE.png", "the picture; or FILE.svg, FILE.pdf, or - for standard output", NULL},
        [MAP_TO] = OPTION_ROW_PICTURE_TO,
        [MAP_GRID] = {"grid", 0, NULL, "all tensors that WEIGHTS matches, a row of panels for each", NULL},
        [MAP_BATCH] = {"batch", 0, "N", "which batch element; default 0", NULL},
        [MAP_HEAD] = {"head", 0, "N", "only this head", NULL},
        [MAP_ROW] = {"row", 0, "N", "a bar plot of this query's weights, instead of a heat map", NULL},
        [MAP_LABELS] = {"labels", 0, "FILE", "text file with the tokens, one on each line, in UTF-8", NULL},
        [MAP_ROW_LABELS] = {"row-labels", 0, "FILE", "the same for the queries alone", NULL},
        [MAP_COLUMN_LABELS] = {"column-labels", 0, "FILE", "the same for the keys alone", NULL},
        [MAP_TITLE] = {"title", 0, "TEXT", "the title of the picture", NULL},
        [MAP_SIZE] = {"size", 0, "N",
                      "pixels of a panel's longest side; above the default text and\n"
                      "lines grow with it",
                      NULL},
        [MAP_MAX] = {"max", 0, "panel|all|X",
                     "the top of the scale: each panel's maximum, that of all (default),\n"
                     "or a weight",
                     NULL},
        [MAP_REDUCE] = {"reduce", 0, "max|mean", "what of several weights a cell or bar shows; default max", NULL},
        [MAP_HIDDEN] = {"hidden", 0, "zero|none", "draw every weight of 0 as a hidden key, or none", NULL},
        [MAP_LIMIT] = {"limit-mib", 0, "N", "refuse what needs a buffer of more MiB; default 1024", NULL},
    };
    inputs_options(options);
    options[INPUT_SCALE].argument = "X|SCALE";
    options[INPUT_SCALE].help = "a number: the factor of q k^T; default 1 / sqrt(head size). Or linear\n"
                                "(default), sqrt or log: how weights become colours or heights";
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
    command_quiet(&options[INPUT_QUIET]);
    struct picture *p = calloc(1, sizeof *p);
    if (p == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    p->options = options;
    take_scale(p);
    attn_status status = check_source(options, &operands);
    if (status == ATTN_OK)
        status = parse(p);
    if (status == ATTN_OK)
        status = draw(p, &operands);
    heatmap_close(&p->data);
    inputs_free(&p->inputs);
    labels_free(&p->row_labels);
    labels_free(&p->column_labels);
    for (int i = 0; p->panel_titles != NULL && i < p->titles; i++)
        free(p->panel_titles[i]);
    free(p->panel_titles);
    free(p);
    return status;
}
