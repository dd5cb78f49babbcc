/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of few queries (score_few.h, value_few.h): the sums of those of
 * a tile, held to the same definitions.
 */
#include "operands.h"
#include "operations.h"

#include "dtype.h"
#include "oracle.h"

#include <math.h>
#include <string.h>

/** One vector, of which some lanes have a query. */
static struct tile_case of_few(const struct tile_case *c, int *rows)
{
    struct tile_case few = *c;
    const int most = c->set->lanes / 2;
    few.shape.nv = 1;
    *rows = c->shape.plain ? 1 : (int)rng_range(c->rng, 1, most);
    return few;
}

/** K: words, or elements that are widened where a word is a float. */
struct drawn_keys {
    const char *at;
    ptrdiff_t stride;
    attn_dtype dtype;
    struct drawn_rows rows;
};

static struct drawn_keys draw_keys(const struct tile_case *c, int64_t words)
{
    const int pack = c->set->score_pack;
    if (pack == 1) {
        const struct drawn_rows rows = draw_rows(c, draw_stored_type(c, c->shape.dtype), c->shape.n, words);
        return (struct drawn_keys){rows.rows.data, rows.rows.stride, rows.rows.dtype, rows};
    }
    const struct drawn_words k = draw_words(c, pack, c->shape.n, words);
    return (struct drawn_keys){.at = k.at, .stride = k.stride, .dtype = ATTN_F32};
}

static void check_scores_of_few(const struct tile_case *any)
{
    int rows;
    const struct tile_case few = of_few(any, &rows), *c = &few;
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const int n = c->shape.n, pack = c->set->score_pack, width = c->set->lanes;
    const int64_t words = (c->shape.d + pack - 1) / pack;
    const struct attn_tile_mask mask = draw_mask(c);
    const struct drawn_keys k = draw_keys(c, words);
    const struct drawn_words q =
        draw_words(&(struct tile_case){.set = c->set, .rng = c->rng, .shape = {.plain = 1, .wild = c->shape.wild}},
                   pack, (int)words, width);
    float *factor = operand_floats(c, width), *max = operand_place(c, (size_t)width * 4);
    float *s = operand_place(c, (size_t)(n * width * 4));
    for (int i = 0; i < width; i++)
        factor[i] = fabsf(factor[i]) + 0.125f;
    const struct attn_score_operands x = {.q = (const float *)(const void *)q.at,
                                          .k = k.at,
                                          .k_stride = k.stride,
                                          .words = words,
                                          .rows = rows,
                                          .k_dtype = k.dtype,
                                          .row_scale = k.rows.rows.scale,
                                          .row_scale_stride = k.rows.rows.scale_stride,
                                          .mask = &mask,
                                          .factor = factor,
                                          .s = s};
    TIME_IF_WANTED(c, kernels->scores_of_few(&x, n, max));
    kernels->scores_of_few(&x, n, max);
    for (int lane = 0; lane < rows; lane++) {
        float top = -INFINITY;
        for (int j = 0; j < n; j++) {
            float raw = 0;
            for (int64_t w = 0; w < words; w++) {
                const float element = pack == 1 ? element_of(&k.rows, j, w) : 0.0f;
                const void *const word = pack == 1 ? (const void *)&element : k.at + j * k.stride + w * 4;
                raw = dot_of(c->set, pack, word, q.at + w * q.stride + lane * 4, raw);
            }
            const float score = masked(c->set, &mask, j, lane, kernels->raw, factor[lane], raw);
            top = score > top ? score : top;
            expect_float(c, "s", j, lane, s[j * width + lane], score);
        }
        if (kernels->raw && mask.kind != MASK_BIAS)
            top *= factor[lane];
        expect_float(c, "max", 0, lane, max[lane], top);
    }
}

/** The lanes of a sum added up as vf_sum_across() does. */
static float sum_of_lanes(const struct tile_case *c, const float *lanes)
{
    float square[MAX_LANES * MAX_LANES] = {0}, sums[MAX_LANES];
    memcpy(square, lanes, (size_t)c->set->lanes * sizeof *lanes);
    const struct call call = {.set = c->set, .in = {square}, .out = {sums}};
    call_operation(c->set, "vf_sum_across", &call);
    return sums[0];
}

static void check_scores_free(const struct tile_case *any)
{
    int rows;
    const struct tile_case few = of_few(any, &rows), *c = &few;
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const int n = c->shape.n, pack = c->set->score_pack, width = c->set->lanes;
    const int64_t words = (c->shape.d + pack - 1) / pack;
    const struct attn_tile_mask mask = draw_mask(c);
    const struct drawn_keys k = draw_keys(c, words);
    const struct drawn_words q =
        draw_words(&(struct tile_case){.set = c->set, .rng = c->rng, .shape = {.plain = 1, .wild = c->shape.wild}},
                   pack, rows, words);
    float *factor = operand_floats(c, width), *max = operand_place(c, (size_t)width * 4);
    float *s = operand_place(c, (size_t)(n * width * 4));
    for (int i = 0; i < width; i++)
        factor[i] = fabsf(factor[i]) + 0.125f;
    const struct attn_score_operands x = {.q = (const float *)(const void *)q.at,
                                          .k = k.at,
                                          .k_stride = k.stride,
                                          .words = words,
                                          .rows = rows,
                                          .k_dtype = k.dtype,
                                          .row_scale = k.rows.rows.scale,
                                          .row_scale_stride = k.rows.rows.scale_stride,
                                          .mask = &mask,
                                          .factor = factor,
                                          .s = s,
                                          .next = {{.data = (void *)(uintptr_t)k.at, .stride = k.stride}},
                                          .next_width = {words}};
    TIME_IF_WANTED(c, kernels->scores_free(&x, n, max));
    kernels->scores_free(&x, n, max);
    for (int lane = 0; lane < rows; lane++) {
        float top = -INFINITY;
        for (int j = 0; j < n; j++) {
            float partial[MAX_LANES] = {0};
            for (int64_t w = 0; w < words; w++) {
                const float element = pack == 1 ? number_of(&k.rows, j, w) : 0.0f;
                const void *const word = pack == 1 ? (const void *)&element : k.at + j * k.stride + w * 4;
                partial[w % width] = dot_of(c->set, pack, word, q.at + lane * q.stride + w * 4, partial[w % width]);
            }
            float raw = sum_of_lanes(c, partial);
            if (pack == 1 && attn_is_quantised(k.dtype))
                raw *= scale_of(&k.rows, j);
            const float score = masked(c->set, &mask, j, lane, kernels->raw, factor[lane], raw);
            top = score > top ? score : top;
            expect_float(c, "s", j, lane, s[j * width + lane], score);
        }
        if (kernels->raw && mask.kind != MASK_BIAS)
            top *= factor[lane];
        expect_float(c, "max", 0, lane, max[lane], top);
    }
}

static void check_values_of_few(const struct tile_case *any)
{
    int rows;
    const struct tile_case few = of_few(any, &rows), *c = &few;
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, pack = c->set->value_pack, width = c->set->lanes;
    const int64_t d = c->shape.d;
    const struct drawn_rows v = draw_rows(c, draw_stored_type(c, c->shape.dtype), n, d);
    const int words = (n + pack - 1) / pack;
    const struct attn_few_values x = {.p = operand_floats(c, (int64_t)words * width),
                                      .v = v.rows,
                                      .dv = d,
                                      .rows = rows,
                                      .keys = n,
                                      .o = operand_floats(c, rows * d),
                                      .mode = draw_mode(c),
                                      .alpha = operand_floats(c, rows)};
    TIME_IF_WANTED(c, kernels->values_of_few(&x));
    const float *before = operand_copy(x.o, (size_t)(rows * d) * 4);
    kernels->values_of_few(&x);
    for (int r = 0; r < rows; r++)
        for (int64_t i = 0; i < d; i++) {
            const float at = before[r * d + i];
            float sum = x.mode == ACCUMULATE_FIRST ? 0 : x.mode == ACCUMULATE_ADD ? at : at * x.alpha[r];
            for (int u = 0; u < words; u++) {
                const float element = element_of(&v, pack * u, i);
                const float next = pack == 2 && 2 * u + 1 < n ? element_of(&v, 2 * u + 1, i) : 0.0f;
                const uint16_t pair[2] = {dtype_narrow(ATTN_BF16, (double)element),
                                          dtype_narrow(ATTN_BF16, (double)next)};
                sum = dot_of(c->set, pack, pack == 1 ? (const void *)&element : pair, x.p + u * width + r, sum);
            }
            expect_float(c, "o", r, i, x.o[r * d + i], sum);
        }
}

static void check_write_few(const struct tile_case *any)
{
    int n;
    const struct tile_case few = of_few(any, &n), *c = &few;
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int64_t d = c->shape.d;
    const struct drawn_rows rows = draw_rows(c, c->shape.dtype, n, d);
    const float *src = operand_floats(c, n * d), *factor = operand_floats(c, n);
    char *const *const pointers = (char *const *)(uintptr_t)rows.pointers;
    TIME_IF_WANTED(c, kernels->write_few(pointers, rows.rows.dtype, src, n, d, factor));
    kernels->write_few(pointers, rows.rows.dtype, src, n, d, factor);
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < d; i++)
            expect_float(c, "rows", r, i, element_of(&rows, r, i),
                         dtype_round(rows.rows.dtype, fma_of(c->set, src[r * d + i], factor[r], 0.0f)));
}

static const struct row rows[] = {
    TILE_ROW("scores_of_few", HAS_SCORES | HAS_FEW_SCORES, check_scores_of_few),
    TILE_ROW("scores_free", HAS_SCORES | HAS_FEW_SCORES, check_scores_free),
    TILE_ROW("values_of_few", HAS_VALUES | HAS_FEW_VALUES, check_values_of_few),
    TILE_ROW("write_few", HAS_VECTORS | HAS_FEW, check_write_few),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    return row->needs & HAS_SCORES   ? set->kernels->scores->scores_of_few && set->kernels->scores->scores_free
           : row->needs & HAS_VALUES ? set->kernels->values->values_of_few != NULL
                                     : set->kernels->vectors->write_few != NULL && set->kernels->vectors->few > 0;
}

const struct group group_few = {
    .name = "few",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
