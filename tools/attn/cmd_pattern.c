/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn pattern: makes a block-sparse pattern, says how dense it is, and draws
 * which blocks it lists. Each pattern takes its own options; one that belongs
 * to another pattern is refused, as it would do nothing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <attn/attn.h>
#include <attn/patterns.h>

#include "commands.h"
#include "options.h"
#include "plot/picture.h"
#include "plot/plot.h"
#include "plot/reduce.h"
#include "progress.h"
#include "wording.h"

enum {
    PATTERN_HELP,
    PATTERN_VERSION,
    PATTERN_QUIET,
    PATTERN_TOKENS,
    PATTERN_TQ,
    PATTERN_TK,
    PATTERN_BLOCK,
    PATTERN_WINDOW,
    PATTERN_GLOBAL,
    PATTERN_RANDOM,
    PATTERN_SEED,
    PATTERN_HEADS,
    PATTERN_HEAD,
    PATTERN_STRIDE,
    PATTERN_CAUSAL,
    PATTERN_OUT,
    PATTERN_TO,
    PATTERN_SIZE,
    PATTERN_REDUCE,
    PATTERN_COUNT
};

enum { MAX_SIZE = 16384 };

enum kind { LONGFORMER, BIGBIRD, STRIDED, KINDS };

static const char *const kind_names[KINDS] = {"longformer", "bigbird", "strided"};

/* For which patterns, as bits, an option from PATTERN_WINDOW to PATTERN_STRIDE is. */
static const unsigned belongs_to[PATTERN_COUNT] = {
    [PATTERN_WINDOW] = 1 << LONGFORMER | 1 << BIGBIRD,
    [PATTERN_GLOBAL] = 1 << LONGFORMER | 1 << BIGBIRD,
    [PATTERN_RANDOM] = 1 << BIGBIRD,
    [PATTERN_SEED] = 1 << BIGBIRD,
    [PATTERN_HEADS] = 1 << BIGBIRD,
    [PATTERN_HEAD] = 1 << BIGBIRD,
    [PATTERN_STRIDE] = 1 << STRIDED,
};

/* No more pixels than this; what a picture of the default size needs is far below it. */
static const double limit_bytes = 1024.0 * 1048576;

struct request {
    enum kind kind;
    long long tq, tk, block, window, global, random, seed, heads, head, stride, size;
    int causal, reduce;
};

static void print_help(const struct option *options)
{
    printf("Usage: attn pattern longformer|bigbird|strided --tokens N [OPTION]...\n\n"
           "Prints how many blocks a block-sparse pattern has and lists, and draws them: query\n"
           "blocks from top to bottom, key blocks from left to right, listed ones dark.\n\n");
    options_print(stdout, options, PATTERN_COUNT);
    printf("\n"
           "  longformer  a window and global blocks\n"
           "  bigbird     a window, global blocks, and random ones\n"
           "  strided     a window of the stride, and every stride-th block\n"
           "\n"
           "  With more blocks than the picture has pixels, a cell is dark when one of its blocks\n"
           "  is listed (--reduce mean: as dark as the share of them that is listed).\n");
}

static attn_status parse_kind(struct request *r, const struct operands *operands)
{
    if (operands->count == 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "no pattern is named; expected longformer, bigbird or strided");
    for (int kind = 0; kind < KINDS; kind++) {
        if (strcmp(operands->values[0], kind_names[kind]) == 0) {
            r->kind = (enum kind)kind;
            return ATTN_OK;
        }
    }
    return io_fail(ATTN_INVALID_ARGUMENT, "unknown pattern '%s'; expected longformer, bigbird or strided",
                   operands->values[0]);
}

/* Refuses options of other patterns. */
static attn_status check_options(const struct request *r, const struct option *options)
{
    char label[64];
    for (int i = PATTERN_WINDOW; i <= PATTERN_STRIDE; i++) {
        if (options[i].value == NULL || belongs_to[i] >> r->kind & 1)
            continue;
        bool shared = (belongs_to[i] & 1 << LONGFORMER) != 0;
        return io_fail(ATTN_INVALID_ARGUMENT, "option %s is for %s, not for %s", option_label(&options[i], label),
                       shared                                ? "longformer and bigbird"
                       : (belongs_to[i] & 1 << BIGBIRD) != 0 ? "bigbird"
                                                             : "strided",
                       kind_names[r->kind]);
    }
    return ATTN_OK;
}

static attn_status parse_sizes(struct request *r, const struct option *o)
{
    if (o[PATTERN_TOKENS].value != NULL && (o[PATTERN_TQ].value != NULL || o[PATTERN_TK].value != NULL))
        return io_fail(ATTN_INVALID_ARGUMENT, "--tokens stands for both --tq and --tk; expected it without them");
    if (o[PATTERN_TOKENS].value == NULL) {
        if (o[PATTERN_TQ].value == NULL && o[PATTERN_TK].value == NULL)
            return io_fail(ATTN_INVALID_ARGUMENT, "option --tokens N is missing, or --tq N and --tk N");
        CHECK(option_require(&o[PATTERN_TQ]));
        CHECK(option_require(&o[PATTERN_TK]));
    }
    long long tokens = 0;
    CHECK(option_integer(&o[PATTERN_TOKENS], 1, INT64_MAX, &tokens));
    r->tq = r->tk = tokens;
    CHECK(option_integer(&o[PATTERN_TQ], 1, INT64_MAX, &r->tq));
    CHECK(option_integer(&o[PATTERN_TK], 1, INT64_MAX, &r->tk));
    CHECK(option_integer(&o[PATTERN_BLOCK], 16, INT64_MAX, &r->block));
    if (r->block % 16 != 0)
        return io_fail(ATTN_INVALID_ARGUMENT, "--block is '%s'; expected a multiple of 16", o[PATTERN_BLOCK].value);
    return ATTN_OK;
}

/* What would do nothing without a picture is refused without one. */
static attn_status parse_picture(struct request *r, const struct option *o)
{
    static const char *const reduce_names[] = {"max", "mean"};
    char label[64];
    for (int i = PATTERN_TO; i <= PATTERN_REDUCE && o[PATTERN_OUT].value == NULL; i++) {
        if (o[i].value != NULL)
            return io_fail(ATTN_INVALID_ARGUMENT, "option %s is for a picture; expected --output beside it",
                           option_label(&o[i], label));
    }
    CHECK(option_integer(&o[PATTERN_SIZE], 16, MAX_SIZE, &r->size));
    return option_choice(&o[PATTERN_REDUCE], reduce_names, 2, &r->reduce);
}

static attn_status parse(struct request *r, const struct option *o)
{
    CHECK(parse_sizes(r, o));
    CHECK(option_integer(&o[PATTERN_WINDOW], 0, INT64_MAX, &r->window));
    CHECK(option_integer(&o[PATTERN_GLOBAL], 0, INT64_MAX, &r->global));
    CHECK(option_integer(&o[PATTERN_RANDOM], 0, INT64_MAX, &r->random));
    CHECK(option_integer(&o[PATTERN_SEED], 0, INT64_MAX, &r->seed));
    CHECK(option_integer(&o[PATTERN_HEADS], 1, INT64_MAX, &r->heads));
    CHECK(option_integer(&o[PATTERN_HEAD], 0, INT64_MAX, &r->head));
    CHECK(option_integer(&o[PATTERN_STRIDE], 1, INT64_MAX, &r->stride));
    if (r->head >= r->heads)
        return io_fail(ATTN_INVALID_ARGUMENT, "--head is %lld; expected 0 to %lld, as --heads is %lld", r->head,
                       r->heads - 1, r->heads);
    r->causal = o[PATTERN_CAUSAL].value != NULL;
    return parse_picture(r, o);
}

static attn_status build(attn_pattern **pattern, const struct request *r)
{
    attn_status status = ATTN_OK;
    switch (r->kind) {
    case LONGFORMER: {
        const attn_longformer options = {.window = r->window, .global = r->global, .causal = r->causal};
        status = attn_pattern_longformer(pattern, r->tq, r->tk, r->block, &options);
        break;
    }
    case BIGBIRD: {
        const attn_bigbird options = {.window = r->window,
                                      .global = r->global,
                                      .random = r->random,
                                      .seed = (uint64_t)r->seed,
                                      .heads = r->heads,
                                      .causal = r->causal};
        status = attn_pattern_bigbird(pattern, r->tq, r->tk, r->block, &options);
        break;
    }
    default: {
        const attn_strided options = {.stride = r->stride, .causal = r->causal};
        status = attn_pattern_strided(pattern, r->tq, r->tk, r->block, &options);
        break;
    }
    }
    return reworded(WORDING_PATTERN, status);
}

/* One head of a pattern, as what is printed and drawn. */
struct view {
    const attn_block_mask *mask;
    const int64_t *offsets; /* of this head's rows */
    int64_t rows, columns, listed;
};

static struct view view_of(const attn_pattern *pattern, const struct request *r)
{
    struct view view = {.mask = attn_pattern_block_mask(pattern)};
    view.rows = view.mask->rows;
    view.columns = r->tk / r->block + (r->tk % r->block > 0);
    view.offsets = view.mask->offsets + r->head * view.rows;
    view.listed = view.offsets[view.rows] - view.offsets[0];
    return view;
}

static attn_status reduce_view(const struct view *view, const struct request *r, struct plot *plot, float *cells)
{
    struct reduce reduce = {.values = NULL};
    float *row = calloc((size_t)view->columns, sizeof *row);
    bool fits = row != NULL && reduce_create(&reduce, (enum reduce_by)r->reduce, view->rows, view->columns,
                                             plot->bin_rows, plot->bin_columns);
    struct progress progress;
    progress_start(&progress, view->rows, "rows", command_is_quiet());
    for (int64_t n = 0; fits && n < view->rows; n++) {
        for (int64_t i = view->offsets[n]; i < view->offsets[n + 1]; i++)
            row[view->mask->columns[i]] = 1;
        reduce_add(&reduce, n, row);
        for (int64_t i = view->offsets[n]; i < view->offsets[n + 1]; i++)
            row[view->mask->columns[i]] = 0;
        progress_add(&progress, 1);
    }
    progress_finish(&progress);
    if (fits)
        reduce_cells(&reduce, cells);
    reduce_free(&reduce);
    free(row);
    return fits ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a row of %" PRId64 " blocks", view->columns);
}

static attn_status draw(const struct view *view, const struct request *r, double density,
                        const struct picture_target *target)
{
    char title[128], subtitle[192], head[48] = "";
    if (r->heads > 1)
        snprintf(head, sizeof head, ", head %lld of %lld", r->head, r->heads);
    snprintf(title, sizeof title, "%s%s, blocks of %lld tokens%s", r->causal ? "causal " : "", kind_names[r->kind],
             r->block, head);
    snprintf(subtitle, sizeof subtitle, "%" PRId64 " × %" PRId64 " blocks, %" PRId64 " of them listed (%.3g %%)",
             view->rows, view->columns, view->listed, 100 * density);
    struct plot plot = {.title = title,
                        .subtitle = subtitle,
                        .row_name = "query block",
                        .column_name = "key block",
                        .rows = view->rows,
                        .columns = view->columns,
                        .panels = 1,
                        .scale = {SCALE_LINEAR, 0, 1},
                        .ink = true,
                        .limit_bytes = limit_bytes};
    plot_heatmap_bins(plot.rows, plot.columns, 1, (int)r->size, &plot.bin_rows, &plot.bin_columns);
    float *cells = malloc((size_t)plot.bin_rows * (size_t)plot.bin_columns * sizeof *cells);
    plot.cells = &cells;
    struct canvas canvas = {.unit = 0};
    attn_status status = cells != NULL ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    if (status == ATTN_OK)
        status = reduce_view(view, r, &plot, cells);
    if (status == ATTN_OK)
        status = plot_heatmap(&canvas, &plot, (int)r->size);
    if (status == ATTN_OK)
        status = picture_write(&canvas, target);
    canvas_free(&canvas);
    free(cells);
    return status;
}

static attn_status make(const struct request *r, const char *path, const char *to)
{
    struct picture_target target = {.path = NULL};
    attn_pattern *pattern = NULL;
    attn_status status = path == NULL ? ATTN_OK : picture_output(&target, path, to);
    if (status == ATTN_OK)
        status = build(&pattern, r);
    if (status == ATTN_OK) {
        const struct view view = view_of(pattern, r);
        const double density = attn_pattern_density(pattern); /* the same in every head */
        status = path == NULL ? ATTN_OK : draw(&view, r, density, &target);
        if (status == ATTN_OK)
            fprintf(target.standard ? stderr : stdout,
                    "block rows     %" PRId64 "\n"
                    "block columns  %" PRId64 "\n"
                    "listed blocks  %" PRId64 "\n"
                    "density        %.6g\n",
                    view.rows, view.columns, view.listed, density);
    }
    attn_pattern_destroy(pattern);
    picture_target_free(&target);
    return status;
}

attn_status command_pattern(int argc, char *const *argv)
{
    struct option options[PATTERN_COUNT] = {
        [PATTERN_HELP] = OPTION_ROW_HELP,
        [PATTERN_VERSION] = OPTION_ROW_VERSION,
        [PATTERN_QUIET] = OPTION_ROW_QUIET,
        [PATTERN_TOKENS] = {"tokens", 0, "N", "queries and keys", NULL},
        [PATTERN_TQ] = {"tq", 0, "N", "queries, where they are not as many as the keys", NULL},
        [PATTERN_TK] = {"tk", 0, "N", "keys", NULL},
        [PATTERN_BLOCK] = {"block", 0, "N", "tokens along each side of a block, a multiple of 16; default 64", NULL},
        [PATTERN_WINDOW] = {"window", 0, "N", "longformer, bigbird: blocks seen on each side; default 1", NULL},
        [PATTERN_GLOBAL] = {"global", 0, "N", "longformer, bigbird: first blocks that see and are seen; default 1",
                            NULL},
        [PATTERN_RANDOM] = {"random", 0, "N", "bigbird: blocks of a row chosen among the others; default 3", NULL},
        [PATTERN_SEED] = {"seed", 0, "N", "bigbird: of the choice; default 0", NULL},
        [PATTERN_HEADS] = {"heads", 0, "N", "bigbird: heads, each with a choice of its own; default 1", NULL},
        [PATTERN_HEAD] = {"head", 0, "N", "bigbird: which head to show; default 0", NULL},
        [PATTERN_STRIDE] = {"stride", 0, "N", "strided: in blocks; default: the square root of the block rows", NULL},
        [PATTERN_CAUSAL] = {"causal", 0, NULL, "leave out the blocks above the diagonal", NULL},
        [PATTERN_OUT] = {"output", 'o', "FILE.png",
                         "the picture; or FILE.svg, FILE.pdf, or - for standard output:\n"
                         "then the numbers go to standard error. Without it only the\n"
                         "numbers are printed",
                         NULL},
        [PATTERN_TO] = OPTION_ROW_PICTURE_TO,
        [PATTERN_SIZE] = {"size", 0, "N", "pixels of the picture's longest side; text grows with it", NULL},
        [PATTERN_REDUCE] = {"reduce", 0, "max|mean", "what of several blocks a cell shows; default max", NULL},
    };
    struct operands operands;
    CHECK(options_parse(options, PATTERN_COUNT, argc, argv, &operands, 1));
    if (options[PATTERN_HELP].value != NULL) {
        print_help(options);
        return ATTN_OK;
    }
    if (options[PATTERN_VERSION].value != NULL) {
        print_version();
        return ATTN_OK;
    }
    command_quiet(&options[PATTERN_QUIET]);
    struct request request = {.block = 64, .window = 1, .global = 1, .random = 3, .heads = 1};
    CHECK(parse_kind(&request, &operands));
    CHECK(check_options(&request, options));
    CHECK(parse(&request, options));
    return make(&request, options[PATTERN_OUT].value, options[PATTERN_TO].value);
}
