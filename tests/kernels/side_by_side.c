/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of few queries and rows that follow each other (score_side.h,
 * value_side.h): held to those of rows anywhere, which few.c holds to the
 * definitions, and of whose sums they promise the bits.
 */
#include "operands.h"
#include "operations.h"

#include "dtype.h"

#include <math.h>
#include <string.h>

/** Words of a row of one of the widths that the functions take. */
static int64_t draw_width(const struct tile_case *c)
{
    return c->shape.plain ? ATTN_SIDE_WORDS : ATTN_SIDE_WORDS >> rng_range(c->rng, 0, 2);
}

/** Keys of a block: as many as there may be, or less. */
static int draw_keys(const struct tile_case *c)
{
    return c->shape.plain ? ATTN_KEY_BLOCK : (int)rng_range(c->rng, 1, ATTN_KEY_BLOCK);
}

/** Rows of K or V side by side, and the same as a list. */
struct drawn_run {
    struct attn_row_run run;
    struct attn_listed_rows listed;
};

/** Of any type, or if not any of those whose sums are free; of pairs bf16 or, where sums are free, what they take as it
 * lies. */
static struct drawn_run draw_run(const struct tile_case *c, int pack, int n, int64_t channels, int any, int free)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16, ATTN_I8, ATTN_F8_E4M3, ATTN_I4};
    const struct tile_case gapless = {.set = c->set, .rng = c->rng, .shape = {.plain = 1, .wild = c->shape.wild}};
    const struct attn_score_kernels *const scores = c->set->kernels->scores;
    const int exact = free && scores && scores->exact_pairs && (c->shape.plain || rng_percent(c->rng, 60));
    const attn_dtype dtype = pack != 2 ? types[rng_range(c->rng, 0, any ? 5 : 3)]
                             : exact   ? types[rng_range(c->rng, c->shape.plain ? 5 : 4, 5)]
                                       : ATTN_BF16;
    const struct drawn_rows drawn = draw_rows(&gapless, dtype, n, channels);
    const char **const list = operand_place(c, (size_t)n * sizeof *list);
    const float **const scales = operand_place(c, (size_t)n * sizeof *scales);
    const ptrdiff_t apart = (ptrdiff_t)(attn_row_scales(dtype, channels) + rng_range(c->rng, 0, 2));
    const float *const scale = operand_floats(c, n * apart);
    for (int j = 0; j < n; j++) {
        list[j] = drawn.pointers[j];
        scales[j] = scale + j * apart;
    }
    return (struct drawn_run){.run = {drawn.rows.data, dtype, scale, apart, n, NULL},
                              .listed = {.at = list, .scale = scales, .dtype = dtype}};
}

/** Asks a run of ATTN_I4 in pairs whether a scale is wrong, and makes one so now and then. Returns whether it has. */
static int spoil_run(const struct tile_case *c, struct drawn_run *rows, int64_t channels, int *wrong)
{
    *wrong = 0;
    if (rows->run.dtype != ATTN_I4)
        return 0;
    rows->run.wrong = wrong;
    if (c->shape.plain || rng_percent(c->rng, 50))
        return 0;
    const int64_t j = rng_range(c->rng, 0, rows->run.n - 1), g = rng_range(c->rng, 0, attn_groups_of(channels) - 1);
    float *const scale = (float *)(uintptr_t)rows->run.scale + j * rows->run.scale_stride + g;
    *scale = (const float[]){NAN, INFINITY, -INFINITY}[rng_range(c->rng, 0, 2)];
    return 1;
}

/** That it is known; if nothing is wild, no other is said to be. */
static void expect_known(const struct tile_case *c, int spoilt, int wrong)
{
    if (spoilt || !c->shape.wild)
        expect_word(c, "wrong", 0, 0, (uint32_t)wrong, (uint32_t)spoilt);
}

/** Queries: of types that take one, one. */
static int draw_queries(const struct tile_case *c, attn_dtype dtype, int takes_one)
{
    const int one =
        c->shape.plain || takes_one || ((dtype == ATTN_F8_E4M3 || dtype == ATTN_I4) && c->set->score_pack == 1);
    return one || rng_percent(c->rng, 40) ? 1 : (int)rng_range(c->rng, 2, most_few(c->set));
}

/** Lanes of a tile are what few queries have. */
static void check_scores(const struct tile_case *c, int ordered)
{
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const int pack = c->set->score_pack, n = draw_keys(c), width = c->set->lanes;
    const int64_t words = draw_width(c), rounded = attn_int4_words(2 * words); /* of whole slices, for ATTN_I4 */
    struct drawn_run k = draw_run(c, pack, n, words * pack, ordered, !ordered);
    const int int4 = pack == 2 && k.run.dtype == ATTN_I4, rows = draw_queries(c, k.run.dtype, ordered);
    const int64_t row = int4 ? rounded : words, pitch = n + rng_range(c->rng, 0, 3);
    float *const q = operand_place(c, (size_t)(rows * row) * 4);
    float *const lanes = operand_place(c, (size_t)(words * width) * 4);
    memset(q, 0, (size_t)(rows * row) * 4); /* where a slice has no channels */
    memset(lanes, 0, (size_t)(words * width) * 4);
    for (int r = 0; r < rows; r++)
        for (int64_t w = 0; w < words; w++) {
            uint16_t pair[2] = {dtype_narrow(ATTN_BF16, (double)draw_number(c)),
                                dtype_narrow(ATTN_BF16, (double)draw_number(c))};
            const float number = draw_number(c);
            memcpy(&q[r * row + w], pack == 2 ? (const void *)pair : (const void *)&number, sizeof *q);
            lanes[w * width + r] = q[r * row + w];
        }
    float *const s = operand_place(c, (size_t)(rows * pitch) * 4), *const tile =
                                                                       operand_place(c, (size_t)(n * width) * 4);
    float *const max = operand_place(c, (size_t)width * 4), *const factor = operand_floats(c, width);
    float most[MAX_LANES];
    for (int lane = 0; lane < width; lane++)
        factor[lane] = 1.0f;
    const float *const own = ordered ? lanes : q;
    int wrong;
    const int spoilt = pack == 2 && spoil_run(c, &k, words * pack, &wrong);
    if (ordered) {
        TIME_IF_WANTED(c, kernels->ordered_side_by_side(&k.run, own, words, s, most));
        kernels->ordered_side_by_side(&k.run, own, words, s, most);
    } else {
        TIME_IF_WANTED(c, kernels->scores_side_by_side(&k.run, own, words, rows, s, (ptrdiff_t)pitch, most));
        kernels->scores_side_by_side(&k.run, own, words, rows, s, (ptrdiff_t)pitch, most);
    }
    if (pack == 2)
        expect_known(c, spoilt, wrong);
    static const struct attn_tile_mask none = {.kind = MASK_NONE};
    if (pack == 2 && k.run.dtype == ATTN_BF16)
        k.listed.dtype = ATTN_F32; /* as words are called */
    const struct attn_score_operands x = {
        .q = own, .words = words, .rows = rows, .listed = k.listed, .mask = &none, .factor = factor, .s = tile};
    if (ordered)
        kernels->scores_of_few(&x, n, max);
    else
        kernels->scores_free(&x, n, max);
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < n; j++)
            expect_float(c, "s", j, r, s[r * pitch + j], tile[j * width + r]);
        expect_float(c, "max", 0, r, most[r], max[r]);
    }
}

static void check_scores_side_by_side(const struct tile_case *c)
{
    check_scores(c, 0);
}

static void check_ordered_side_by_side(const struct tile_case *c)
{
    check_scores(c, 1);
}

static void check_weights_of_one(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = draw_keys(c), width = c->set->lanes, words = (n + c->set->value_pack - 1) / c->set->value_pack;
    float *const s = operand_floats(c, n), *const tile = operand_place(c, (size_t)(n * width) * 4);
    float *const m = operand_floats(c, width), *const l = operand_floats(c, width),
                 *const factor = operand_floats(c, width);
    float sum = l[0];
    *factor = fabsf(*factor) + 0.125f;
    *m = c->shape.plain || rng_percent(c->rng, 95) ? fabsf(floorf(*m)) + 8 : -INFINITY;
    for (int j = 0; j < n; j++)
        for (int lane = 0; lane < width; lane++)
            tile[j * width + lane] = s[j];
    TIME_IF_WANTED(c, kernels->weights_of_one(*m, n, *factor, s, &sum));
    kernels->weights_of_one(*m, n, *factor, s, &sum);
    const int ends[] = {n, n, n, n};
    kernels->weights(1, m, ends, n, factor, tile, l);
    for (int u = 0; u < words; u++) {
        uint32_t got, expected;
        memcpy(&got, &s[u], sizeof got);
        memcpy(&expected, &tile[u * width], sizeof expected);
        if (c->set->value_pack == 1)
            expect_float(c, "p", u, 0, s[u], tile[u * width]);
        else
            expect_word(c, "p", u, 0, got, expected);
    }
    expect_float(c, "l", 0, 0, sum, l[0]);
}

static void check_values_side_by_side(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int pack = c->set->value_pack, n = draw_keys(c), width = c->set->lanes, words = (n + pack - 1) / pack;
    const int64_t dv = draw_width(c);
    const int free = (int)rng_range(c->rng, 0, 1);
    struct drawn_run v = draw_run(c, pack, n, dv, 1, free);
    const int rows = draw_queries(c, v.run.dtype, 0);
    const int64_t pitch = words + rng_range(c->rng, 0, 3);
    float *const p = operand_place(c, (size_t)(rows * pitch) * 4), *const tile =
                                                                       operand_floats(c, (int64_t)words * width);
    for (int r = 0; r < rows; r++)
        for (int u = 0; u < words; u++) {
            const uint16_t pair[2] = {dtype_narrow(ATTN_BF16, (double)draw_number(c)),
                                      2 * u + 1 < n ? dtype_narrow(ATTN_BF16, (double)draw_number(c)) : (uint16_t)0};
            const float number = draw_number(c);
            memcpy(&p[r * pitch + u], pack == 2 ? (const void *)pair : (const void *)&number, sizeof *p);
            tile[u * width + r] = p[r * pitch + u];
        }
    float *const o = operand_floats(c, rows * dv), *const alpha = operand_floats(c, rows);
    float *const expected = operand_copy(o, (size_t)(rows * dv) * 4);
    const enum attn_accumulate mode = draw_mode(c);
    int wrong;
    const int spoilt = pack == 2 && spoil_run(c, &v, dv, &wrong);
    TIME_IF_WANTED(c, kernels->values_side_by_side(&v.run, rows, p, (ptrdiff_t)pitch, free, dv, mode, alpha, o));
    kernels->values_side_by_side(&v.run, rows, p, (ptrdiff_t)pitch, free, dv, mode, alpha, o);
    const struct attn_few_values x = {.p = tile,
                                      .v = v.listed,
                                      .dv = dv,
                                      .rows = rows,
                                      .keys = n,
                                      .free = free,
                                      .o = expected,
                                      .mode = mode,
                                      .alpha = alpha};
    kernels->values_of_few(&x);
    if (pack == 2)
        expect_known(c, spoilt, wrong);
    for (int r = 0; r < rows; r++)
        for (int64_t i = 0; i < dv; i++)
            expect_float(c, "o", r, i, o[r * dv + i], expected[r * dv + i]);
}

static const struct row rows[] = {
    TILE_ROW("scores_side_by_side", HAS_SCORES | HAS_FEW_SCORES, check_scores_side_by_side),
    TILE_ROW("ordered_side_by_side", HAS_SCORES | HAS_FEW_SCORES, check_ordered_side_by_side),
    TILE_ROW("weights_of_one", HAS_FLOAT_VALUES | HAS_FEW_VALUES, check_weights_of_one),
    TILE_ROW("values_side_by_side", HAS_FLOAT_VALUES | HAS_FEW_VALUES, check_values_side_by_side),
    TILE_ROW("weights_of_one_in_pairs", HAS_VALUES | HAS_FEW_VALUES | HAS_TABLE, check_weights_of_one),
    TILE_ROW("values_side_by_side_in_pairs", HAS_VALUES | HAS_FEW_VALUES | HAS_TABLE, check_values_side_by_side),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    return row->needs & HAS_SCORES
               ? set->kernels->scores->scores_side_by_side && set->kernels->scores->ordered_side_by_side
               : set->kernels->values->weights_of_one && set->kernels->values->values_side_by_side;
}

const struct group group_side_by_side = {
    .name = "side_by_side",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
