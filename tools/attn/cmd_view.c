/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn view: puts the weights of all layers and heads of a model into one page
 * of HTML, in which they can be looked at without a server or a network. Tensors
 * of the file that hold no weights are passed over.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "findings.h"
#include "io/replace.h"
#include "labels.h"
#include "options.h"
#include "plot/viridis.h"
#include "progress.h"
#include "view/page.h"
#include "weights.h"

enum {
    VIEW_HELP,
    VIEW_VERSION,
    VIEW_QUIET,
    VIEW_OUT,
    VIEW_BATCH,
    VIEW_HEAD,
    VIEW_LABELS,
    VIEW_ROW_LABELS,
    VIEW_COLUMN_LABELS,
    VIEW_TITLE,
    VIEW_HIDDEN,
    VIEW_LIMIT,
    VIEW_COUNT
};

enum { MOST_LAYERS = 256 };

struct view {
    const struct option *options;
    long long batch, head, limit; /* head: -1 for all; limit in MiB */
    bool hidden, standard;        /* standard: the page goes to standard output */
    char *target;
    struct array_names names; /* of all tensors that were asked for */
    char **layers;            /* [count]: of those that hold weights, among names */
    struct weights *weights;
    int count;
    int64_t heads, rows, columns; /* of each; heads: those that are shown */
    struct labels row_labels, column_labels;
};

static void print_help(const struct option *options)
{
    printf("Usage: attn view FILE[:PATTERN] -o FILE.html [OPTION]...\n\n"
           "Makes a page that shows attention weights in a browser: the layers and heads of a\n"
           "model, and what each token attends to. The page holds all that it needs.\n\n");
    options_print(stdout, options, VIEW_COUNT);
    printf("\n"
           "  FILE is a .safetensors or .npz file, or - for standard input. Each tensor (batch,\n"
           "  head, query, key, or fewer leading dimensions) is a layer; layer9 comes before\n"
           "  layer10. PATTERN chooses among them by name, * standing for anything. Tensors whose\n"
           "  rows do not sum to 1 are passed over. Weights of exactly 0 are shown as keys that\n"
           "  the query does not see (--hidden none: as weights).\n");
}

static attn_status parse(struct view *v)
{
    const struct option *o = v->options;
    static const char *const hidden_names[] = {"zero", "none"};
    int hidden = 0;
    CHECK(option_require(&o[VIEW_OUT]));
    CHECK(option_integer(&o[VIEW_BATCH], 0, INT64_MAX, &v->batch));
    CHECK(option_integer(&o[VIEW_HEAD], 0, INT64_MAX, &v->head));
    CHECK(option_choice(&o[VIEW_HIDDEN], hidden_names, 2, &hidden));
    CHECK(option_integer(&o[VIEW_LIMIT], 1, 1024, &v->limit));
    v->hidden = hidden == 0;
    if (o[VIEW_LABELS].value != NULL && o[VIEW_ROW_LABELS].value != NULL && o[VIEW_COLUMN_LABELS].value != NULL)
        return io_fail(ATTN_INVALID_ARGUMENT, "--labels has no effect beside --row-labels and --column-labels");
    const char *path = o[VIEW_OUT].value;
    const size_t length = strlen(path);
    v->standard = strcmp(path, "-") == 0;
    if (v->standard)
        return ATTN_OK;
    if (length < 5 || strcmp(path + length - 5, ".html") != 0)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "the page '%s' has an unknown format; expected a name that ends in .html, or -", path);
    return replace_target(&v->target, path);
}

/* ------------------------------------------------------------------ layers -- */

/* Reads one head. */
static attn_status read_head(const struct weights *w, int64_t batch, int64_t head, float *values,
                             struct findings *findings)
{
    CHECK(weights_rows(w, batch, head, 0, w->rows, values));
    for (int64_t i = 0; i < w->rows; i++)
        findings_add(findings, values + i * w->columns, w->columns, head, i);
    return ATTN_OK;
}

/* Whether a tensor may hold weights, by its first row: a large file is not read to the end for tensors of another kind.
 */
static attn_status looks_like_weights(const struct weights *w, bool *looks)
{
    char text[400];
    struct findings findings = {0};
    *looks = false;
    if (w->batch == 0 || w->heads == 0 || w->rows == 0 || w->columns == 0)
        return ATTN_OK;
    float *row = malloc((size_t)w->columns * sizeof *row);
    if (row == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " weights", w->columns);
    attn_status status = weights_rows(w, 0, 0, 0, 1, row);
    if (status == ATTN_OK) {
        findings_add(&findings, row, w->columns, 0, 0);
        *looks = findings_none(&findings, text, sizeof text);
    }
    free(row);
    return status;
}

/* All layers have one shape; the first one's batch and heads are checked against the options. */
static attn_status take_layer(struct view *v, const struct weights *w, char *name)
{
    if (v->count == MOST_LAYERS)
        return io_fail(ATTN_INVALID_FILE, "there are more than %d layers; expected a pattern that chooses fewer",
                       MOST_LAYERS);
    if (v->batch >= w->batch)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--batch is %lld; expected 0 to %" PRId64 ", as there are %" PRId64 " batch elements in %s",
                       v->batch, w->batch - 1, w->batch, name);
    if (v->head >= w->heads)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--head is %lld; expected 0 to %" PRId64 ", as there are %" PRId64 " heads in %s", v->head,
                       w->heads - 1, w->heads, name);
    const int64_t heads = v->head >= 0 ? 1 : w->heads;
    if (v->count == 0) {
        v->heads = heads;
        v->rows = w->rows;
        v->columns = w->columns;
    } else if (heads != v->heads || w->rows != v->rows || w->columns != v->columns) {
        return io_fail(ATTN_INVALID_FILE,
                       "%s has %" PRId64 " heads, %" PRId64 " queries and %" PRId64 " keys; expected %" PRId64
                       ", %" PRId64 " and %" PRId64 " as %s has, for one page",
                       name, heads, w->rows, w->columns, v->heads, v->rows, v->columns, v->layers[0]);
    }
    v->weights[v->count] = *w;
    v->weights[v->count].hidden = HIDDEN_NONE;
    v->layers[v->count++] = name;
    return ATTN_OK;
}

/* Opens a tensor as a layer if it holds weights. */
static attn_status open_layer(struct view *v, const char *path, char *name)
{
    char *spec;
    if (asprintf(&spec, "%s:%s", path, name) < 0)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    struct weights w;
    bool looks = false;
    attn_status status = weights_from_file(&w, spec);
    const bool opened = status == ATTN_OK;
    /* A tensor of another type or rank is none of ours; the file itself has been read already. */
    if (opened)
        status = looks_like_weights(&w, &looks);
    else if (status == ATTN_INVALID_FILE)
        status = ATTN_OK;
    if (looks)
        status = take_layer(v, &w, name);
    if (opened && (!looks || status != ATTN_OK))
        weights_close(&w);
    free(spec);
    return status;
}

static attn_status open_layers(struct view *v, const char *spec)
{
    CHECK(array_names_open(&v->names, spec));
    v->layers = calloc(v->names.count, sizeof *v->layers);
    v->weights = calloc(v->names.count, sizeof *v->weights);
    if (v->layers == NULL || v->weights == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    attn_status status = ATTN_OK;
    for (size_t i = 0; status == ATTN_OK && i < v->names.count; i++)
        status = open_layer(v, v->names.path, v->names.names[i]);
    if (status == ATTN_OK && v->count == 0)
        status = io_fail(ATTN_INVALID_FILE,
                         "%s holds no attention weights: no tensor has rows of numbers from 0 on that sum to 1", spec);
    return status;
}

static attn_status check_size(const struct view *v)
{
    /* In double, as no product of four lengths need fit into an integer. */
    const double bytes = 2.0 * (double)v->count * (double)v->heads * (double)v->rows * (double)v->columns;
    if (bytes <= (double)v->limit * 1048576)
        return ATTN_OK;
    return io_fail(ATTN_SIZE_OVERFLOW,
                   "the page would hold %.1f MiB of weights, above the limit of %lld MiB (--limit-mib); a pattern or "
                   "--head chooses fewer",
                   bytes / 1048576, v->limit);
}

static attn_status read_labels(struct view *v)
{
    const struct option *o = v->options;
    const char *both = o[VIEW_LABELS].value;
    const char *rows = o[VIEW_ROW_LABELS].value != NULL ? o[VIEW_ROW_LABELS].value : both;
    const char *columns = o[VIEW_COLUMN_LABELS].value != NULL ? o[VIEW_COLUMN_LABELS].value : both;
    if (rows != NULL)
        CHECK(labels_read(&v->row_labels, rows, v->rows, "query"));
    return columns != NULL ? labels_read(&v->column_labels, columns, v->columns, "key") : ATTN_OK;
}

/* -------------------------------------------------------------------- page -- */

static void write_labels(struct page *page, const char *name, const struct labels *labels)
{
    page_text(page, name);
    if (labels->text == NULL) {
        page_text(page, "null");
        return;
    }
    for (int64_t i = 0; i < labels->count; i++) {
        page_text(page, i > 0 ? "," : "[");
        page_string(page, labels->text[i]);
    }
    page_text(page, "]");
}

static void write_head(struct page *page, const struct view *v)
{
    const char *title = v->options[VIEW_TITLE].value;
    char colour[8];
    page_text(page, "{\"title\":");
    page_string(page, title != NULL ? title : "Attention weights");
    page_text(page, ",\"heads\":");
    page_number(page, v->heads);
    page_text(page, ",\"heads0\":");
    page_number(page, v->head >= 0 ? v->head : 0);
    page_text(page, ",\"rows\":");
    page_number(page, v->rows);
    page_text(page, ",\"columns\":");
    page_number(page, v->columns);
    page_text(page, ",\"hidden\":");
    page_text(page, v->hidden ? "true" : "false");
    /* Whether queries and keys are the same tokens. */
    bool same = v->rows == v->columns;
    for (int64_t i = 0; same && i < v->row_labels.count && i < v->column_labels.count; i++)
        same = strcmp(v->row_labels.text[i], v->column_labels.text[i]) == 0;
    page_text(page, ",\"same\":");
    page_text(page, same ? "true" : "false");
    write_labels(page, ",\"rowLabels\":", &v->row_labels);
    write_labels(page, ",\"columnLabels\":", &v->column_labels);
    page_text(page, ",\"viridis\":\"");
    for (int i = 0; i < 256; i++) {
        const struct rgb c = viridis((i + 0.5) / 256);
        snprintf(colour, sizeof colour, "%02x%02x%02x", c.r, c.g, c.b);
        page_text(page, colour);
    }
    page_text(page, "\",\"layers\":[");
}

static attn_status write_layers(struct page *page, const struct view *v, struct findings *findings)
{
    const size_t matrix = (size_t)v->rows * (size_t)v->columns, count = (size_t)v->heads * matrix;
    float *values = malloc(count * sizeof *values);
    attn_status status = values != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a layer");
    struct progress progress;
    progress_start(&progress, v->count * v->heads, "heads", command_is_quiet());
    for (int layer = 0; status == ATTN_OK && layer < v->count; layer++) {
        page_text(page, layer > 0 ? ",{\"name\":" : "{\"name\":");
        page_string(page, v->layers[layer]);
        page_text(page, ",\"weights\":");
        for (int64_t head = 0; status == ATTN_OK && head < v->heads; head++)
            status = read_head(&v->weights[layer], v->batch, v->head >= 0 ? v->head : head,
                               values + (size_t)head * matrix, findings);
        if (status == ATTN_OK)
            page_halves(page, values, count);
        page_text(page, "}");
        progress_add(&progress, v->heads);
    }
    progress_finish(&progress);
    free(values);
    return status;
}

static attn_status make(struct view *v, const char *spec)
{
    struct findings findings = {0};
    struct page page;
    char text[400];
    CHECK(parse(v));
    CHECK(open_layers(v, spec));
    CHECK(check_size(v));
    CHECK(read_labels(v));
    page_begin(&page);
    write_head(&page, v);
    attn_status status = write_layers(&page, v, &findings);
    page_text(&page, "]}");
    page_end(&page);
    if (status == ATTN_OK && page.failed)
        status = io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the page");
    if (status == ATTN_OK)
        status =
            v->standard ? replace_standard(page.bytes, page.used) : replace_whole(v->target, page.bytes, page.used);
    page_free(&page);
    if (status == ATTN_OK && (size_t)v->count < v->names.count)
        command_note("%zu of the %zu tensors hold no attention weights and are not on the page",
                     v->names.count - (size_t)v->count, v->names.count);
    if (status == ATTN_OK && !findings_none(&findings, text, sizeof text))
        command_note("%s is shown as it is, but these are not the weights of a softmax: it holds %s", spec, text);
    return status;
}

attn_status command_view(int argc, char *const *argv)
{
    struct option options[VIEW_COUNT] = {
        [VIEW_HELP] = OPTION_ROW_HELP,
        [VIEW_VERSION] = OPTION_ROW_VERSION,
        [VIEW_QUIET] = OPTION_ROW_QUIET,
        [VIEW_OUT] = {"output", 'o', "FILE.html", "the page; - for standard output", NULL},
        [VIEW_BATCH] = {"batch", 0, "N", "which batch element; default 0", NULL},
        [VIEW_HEAD] = {"head", 0, "N", "only this head", NULL},
        [VIEW_LABELS] = {"labels", 0, "FILE", "text file with the tokens, one on each line, in UTF-8", NULL},
        [VIEW_ROW_LABELS] = {"row-labels", 0, "FILE", "the same for the queries alone", NULL},
        [VIEW_COLUMN_LABELS] = {"column-labels", 0, "FILE", "the same for the keys alone", NULL},
        [VIEW_TITLE] = {"title", 0, "TEXT", "the title of the page", NULL},
        [VIEW_HIDDEN] = {"hidden", 0, "zero|none", "whether a weight of 0 is a hidden key; default zero", NULL},
        [VIEW_LIMIT] = {"limit-mib", 0, "N", "refuse more MiB of weights, of 2 bytes each; default 64", NULL},
    };
    struct operands operands;
    CHECK(options_parse(options, VIEW_COUNT, argc, argv, &operands, 1));
    if (options[VIEW_HELP].value != NULL) {
        print_help(options);
        return ATTN_OK;
    }
    if (options[VIEW_VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    command_quiet(&options[VIEW_QUIET]);
    if (operands.count == 0)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "there is nothing to show; expected FILE.safetensors[:PATTERN] or FILE.npz[:PATTERN]");
    struct view v = {.options = options, .head = -1, .limit = 64};
    attn_status status = make(&v, operands.values[0]);
    for (int i = 0; i < v.count; i++)
        weights_close(&v.weights[i]);
    free(v.weights);
    free(v.layers);
    array_names_free(&v.names);
    labels_free(&v.row_labels);
    labels_free(&v.column_labels);
    free(v.target);
    return status;
}
