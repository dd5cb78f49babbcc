/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the backward pass adds: the functions of struct attn_gradient_kernels, and
 * those of struct attn_vector_kernels that it alone calls. Sums run from the
 * first word of queries to the last, whatever the shape of the tile; on matrix
 * registers they change once, by the product of a whole group.
 */
#include "kernels/gradient_sums.h"
#include "operands.h"
#include "dtype.h"
#include "matrix.h"

#include <math.h>
#include <string.h>

static int width_of(const struct tile_case *c)
{
    return c->shape.nv * c->set->lanes;
}

static void check_score_gradients(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int n = c->shape.n, width = width_of(c);
    const int drops = !c->shape.plain && rng_percent(c->rng, 40), caps = !c->shape.plain && rng_percent(c->rng, 40);
    const struct attn_tile_mask mask = draw_mask(c);
    const int64_t size = (int64_t)n * width;
    const struct attn_score_gradients x = {.mask = &mask,
                                           .keys = n,
                                           .p = operand_floats(c, size),
                                           .kept = drops ? operand_floats(c, size) : NULL,
                                           .keep_scale = 1 / 0.7f,
                                           .capped = caps ? operand_floats(c, size) : NULL,
                                           .cap = 3.5f,
                                           .delta = operand_floats(c, width),
                                           .dp = operand_floats(c, size)};
    TIME_IF_WANTED(c, kernels->score_gradients(c->shape.nv, &x));
    const float *before = operand_copy(x.dp, (size_t)size * 4);
    kernels->score_gradients(c->shape.nv, &x);
    for (int j = 0; j < n; j++) {
        for (int r = 0; r < width; r++) {
            const int64_t at = (int64_t)j * width + r;
            float ds = x.p[at] * (before[at] - x.delta[r]);
            if (drops)
                ds = x.kept[at] * x.keep_scale * before[at] - x.p[at] * x.delta[r];
            const float t = caps ? x.capped[at] / x.cap : 0.0f;
            if (caps)
                ds *= fma_of(c->set, -t, t, 1.0f);
            expect_float(c, "ds", j, r, x.dp[at] + 0.0f, (mask_sees(&mask, j, r) ? ds : 0.0f) + 0.0f);
        }
    }
}

static void check_dot_rows(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int n = c->shape.n, lanes = c->set->lanes;
    const int64_t d = c->shape.d;
    const struct drawn_rows a = draw_rows(c, c->shape.dtype, n, d), b = draw_rows(c, ATTN_F32, n, d);
    float *dst = operand_place(c, (size_t)n * 4);
    TIME_IF_WANTED(c, kernels->dot_rows(dst, &a.rows, &b.rows, n, d));
    kernels->dot_rows(dst, &a.rows, &b.rows, n, d);
    for (int j = 0; j < n; j++) {
        float sums[MAX_LANES] = {0}, all = 0.0f;
        for (int64_t i = 0; i < d; i++)
            sums[i % lanes] = fma_of(c->set, element_of(&a, j, i), element_of(&b, j, i), sums[i % lanes]);
        for (int i = 0; i < lanes; i++)
            all += sums[i];
        expect_float(c, "dot", j, 0, dst[j], all);
    }
}

/** Words of queries of a tile, [keys][strip], and the rows that they meet. */
struct sums {
    struct attn_row_sums x;
    struct drawn_words rows;
    int words; /**< of queries */
};

static struct sums draw_sums(const struct tile_case *c)
{
    const int n = c->shape.n, pack = c->set->value_pack, width = width_of(c);
    const int rows = c->shape.plain ? width : (int)rng_range(c->rng, 1, width);
    struct sums s = {.words = (rows + pack - 1) / pack};
    char *p = operand_place(c, (size_t)(n * width) * 4 / (size_t)pack);
    for (int i = 0; i < n * width; i++)
        dtype_store(pack == 2 ? ATTN_BF16 : ATTN_F32, p, i, draw_number(c));
    s.rows = draw_words(c, pack, s.words, c->shape.d);
    s.x = (struct attn_row_sums){.p = p,
                                 .pitch = (ptrdiff_t)width * 4 / pack,
                                 .keys = n,
                                 .rows = rows,
                                 .diagonal = ATTN_NO_DIAGONAL,
                                 .x = s.rows.at,
                                 .x_stride = s.rows.stride,
                                 .channels = c->shape.d,
                                 .sum = operand_floats(c, n * c->shape.d)};
    return s;
}

static const char *weight_at(const struct sums *s, int j, int u)
{
    return s->x.p + j * s->x.pitch + u * 4;
}

static void check_add_rows(const struct tile_case *c)
{
    const struct attn_gradient_kernels *kernels = c->set->kernels->gradients;
    const int n = c->shape.n, pack = c->set->value_pack;
    const int64_t d = c->shape.d;
    struct sums s = draw_sums(c);
    /* What a diagonal hides has been made 0, and may be left out; a register tile begins where its first key does. */
    s.x.diagonal =
        c->shape.plain || c->shape.wild || rng_percent(c->rng, 50) ? ATTN_NO_DIAGONAL : rng_range(c->rng, -n, s.x.rows);
    for (int j = 0; j < n; j++)
        for (int r = 0; r < s.x.rows; r++)
            if (j > r + s.x.diagonal)
                dtype_store(pack == 2 ? ATTN_BF16 : ATTN_F32, (char *)(uintptr_t)s.x.p, (int64_t)j * width_of(c) + r,
                            0.0f);
    TIME_IF_WANTED(c, kernels->add_rows(&s.x));
    const float *before = operand_copy(s.x.sum, (size_t)(n * d) * 4);
    kernels->add_rows(&s.x);
    for (int j = 0; j < n; j++) {
        for (int64_t i = 0; i < d; i++) {
            float sum = before[j * d + i];
            for (int u = 0; u < s.words; u++)
                sum = dot_of(c->set, pack, s.rows.at + u * s.rows.stride + i * 4, weight_at(&s, j, u), sum);
            expect_float(c, "sum", j, i, s.x.sum[j * d + i] + 0.0f, sum + 0.0f);
        }
    }
}

static void check_add_rows_seen(const struct tile_case *c)
{
    const struct attn_gradient_kernels *kernels = c->set->kernels->gradients;
    const int n = c->shape.n, pack = c->set->value_pack;
    const int64_t d = c->shape.d;
    struct sums s = draw_sums(c);
    const struct attn_tile_mask mask = draw_mask(c);
    for (int j = 0; j < n; j++) /* what is hidden is 0 */
        for (int r = 0; r < width_of(c); r++)
            if (r >= s.x.rows || !mask_sees(&mask, j, r))
                dtype_store(pack == 2 ? ATTN_BF16 : ATTN_F32, (char *)(uintptr_t)s.x.p, (int64_t)j * width_of(c) + r,
                            0.0f);
    TIME_IF_WANTED(c, kernels->add_rows_seen(&mask, c->shape.nv, &s.x));
    const float *before = operand_copy(s.x.sum, (size_t)(n * d) * 4);
    kernels->add_rows_seen(&mask, c->shape.nv, &s.x);
    for (int j = 0; j < n; j++) {
        for (int64_t i = 0; i < d; i++) {
            float sum = before[j * d + i];
            for (int u = 0; u < s.words; u++) {
                const int first = mask_sees(&mask, j, pack * u);
                const int second = pack == 2 && 2 * u + 1 < s.x.rows && mask_sees(&mask, j, 2 * u + 1);
                uint32_t word;
                memcpy(&word, s.rows.at + u * s.rows.stride + i * 4, 4);
                if (!first && !second)
                    continue;
                if (pack == 2) /* the first query of a word is its lower half */
                    word &= (first ? 0xffffu : 0u) | (second ? 0xffff0000u : 0u);
                sum = dot_of(c->set, pack, &word, weight_at(&s, j, u), sum);
            }
            expect_float(c, "sum", j, i, s.x.sum[j * d + i] + 0.0f, sum + 0.0f);
        }
    }
}

/** Words of weights [keys, up to a multiple of 16][32 queries], 0 where a query is not among rows, or hidden; behind
 * them NaN, which reaches nothing. */
static char *draw_group(const struct tile_case *c, int rows, const struct attn_tile_mask *mask)
{
    const int n = c->shape.n, keys = rounded_up(n, ROWS);
    char *p = operand_place(c, (size_t)(keys * PAIRED) * 2);
    for (int j = 0; j < keys; j++)
        for (int r = 0; r < PAIRED; r++) {
            const float x = draw_number(c);
            dtype_store(ATTN_BF16, p, j * PAIRED + r, j >= n ? NAN : r < rows && mask_sees(mask, j, r) ? x : 0.0f);
        }
    return p;
}

/** What a group on matrix registers adds to: rows of whole vectors of channels, of which the last ones are 0. */
static struct attn_row_sums draw_group_sums(const struct tile_case *c, const struct attn_tile_mask *mask)
{
    const int n = c->shape.n, width = width_of(c);
    const int rows = c->shape.plain ? width : (int)rng_range(c->rng, 1, width);
    const int64_t d = c->shape.d, channels = rounded_up(d, ROWS), gap = c->shape.plain ? 0 : rng_range(c->rng, 0, 9);
    const ptrdiff_t stride = (ptrdiff_t)(channels + gap) * 4;
    char *x = operand_place(c, (size_t)(WORDS - 1) * (size_t)stride + (size_t)channels * 4);
    memset(x, 0xff, (size_t)(WORDS - 1) * (size_t)stride + (size_t)channels * 4);
    for (int r = 0; r < PAIRED; r++)
        for (int64_t i = 0; i < channels; i++) {
            const float number = draw_number(c);
            dtype_store(ATTN_BF16, x + r / 2 * stride, 2 * i + r % 2, r < rows && i < d ? number : 0.0f);
        }
    return (struct attn_row_sums){.p = draw_group(c, rows, mask),
                                  .pitch = PAIRED * 2,
                                  .keys = n,
                                  .rows = rows,
                                  .diagonal = mask->kind == MASK_DIAGONAL ? mask->diagonal : ATTN_NO_DIAGONAL,
                                  .x = x,
                                  .x_stride = stride,
                                  .channels = d,
                                  .sum = operand_floats(c, n * channels)};
}

/** The sum of key j and channel i, as it was before, with the group's product; finite: without what of x is not. */
static float group_sum(const struct attn_row_sums *x, const float *before, int j, int64_t i, int finite)
{
    uint16_t row[PAIRED], column[PAIRED];
    memcpy(row, x->p + j * x->pitch, sizeof row);
    for (int r = 0; r < PAIRED; r++) {
        memcpy(&column[r], x->x + r / 2 * x->x_stride + 4 * i + r % 2 * 2, sizeof *column);
        if (finite && !isfinite(widened(column[r])))
            column[r] = 0;
    }
    return product(row, column, before[j * rounded_up(x->channels, ROWS) + i]);
}

/** A key that no query sees may keep its bits, of which those of a denormal sum are others. */
static int seen_by_some(const struct attn_row_sums *x, int j)
{
    return j <= x->rows - 1 + x->diagonal;
}

static void check_add_group(const struct tile_case *c)
{
    const struct attn_gradient_kernels *kernels = c->set->kernels->gradients;
    const int n = c->shape.n, stride = rounded_up(c->shape.d, ROWS);
    struct attn_tile_mask mask = {.kind = MASK_NONE};
    if (!c->shape.plain && !c->shape.wild && rng_percent(c->rng, 50))
        mask = (struct attn_tile_mask){.kind = MASK_DIAGONAL, .diagonal = rng_range(c->rng, -n, width_of(c))};
    const struct attn_row_sums x = draw_group_sums(c, &mask);
    TIME_IF_WANTED(c, kernels->add_rows(&x));
    const float *before = operand_copy(x.sum, (size_t)(n * stride) * 4);
    kernels->add_rows(&x);
    for (int j = 0; j < n; j++)
        for (int64_t i = 0; i < c->shape.d; i++)
            expect_float(c, "sum", j, i, x.sum[j * stride + i],
                         seen_by_some(&x, j) ? group_sum(&x, before, j, i, 0) : before[j * stride + i]);
}

static void check_add_group_seen(const struct tile_case *c)
{
    const struct attn_gradient_kernels *kernels = c->set->kernels->gradients;
    const int n = c->shape.n, stride = rounded_up(c->shape.d, ROWS);
    const struct attn_tile_mask mask = draw_mask(c);
    const struct attn_row_sums x = draw_group_sums(c, &mask);
    TIME_IF_WANTED(c, kernels->add_rows_seen(&mask, c->shape.nv, &x));
    const float *before = operand_copy(x.sum, (size_t)(n * stride) * 4);
    kernels->add_rows_seen(&mask, c->shape.nv, &x);
    for (int j = 0; j < n; j++)
        for (int64_t i = 0; i < c->shape.d; i++) {
            float sum = seen_by_some(&x, j) ? group_sum(&x, before, j, i, 1) : before[j * stride + i];
            for (int u = 0; u < WORDS; u++) {
                uint16_t word[2], weights[2];
                memcpy(word, x.x + u * x.x_stride + 4 * i, sizeof word);
                memcpy(weights, x.p + j * x.pitch + 4 * u, sizeof weights);
                for (int k = 0; k < 2; k++)
                    if (isfinite(widened(word[k])) || 2 * u + k >= x.rows || !mask_sees(&mask, j, 2 * u + k))
                        word[k] = weights[k] = 0;
                if (word[0] || word[1])
                    sum = dot_of(c->set, 2, word, weights, sum);
            }
            expect_float(c, "sum", j, i, x.sum[j * stride + i], sum);
        }
}

static void check_pack_rows(const struct tile_case *c)
{
    const struct attn_gradient_kernels *kernels = c->set->kernels->gradients;
    const int pack = c->set->value_pack, width = width_of(c);
    const int n = c->shape.plain ? width : (int)rng_range(c->rng, 1, width);
    const int words = (int)attn_query_words(kernels, n);
    const int64_t d = c->shape.d, channels = attn_sum_channels(kernels, d);
    const attn_dtype word = pack == 2 ? ATTN_BF16 : ATTN_F32;
    const struct drawn_rows rows = draw_rows(c, pack == 2 ? ATTN_BF16 : c->shape.dtype, n, d);
    float *dst = operand_place(c, (size_t)(words * channels) * 4);
    TIME_IF_WANTED(c, kernels->pack_rows(dst, &rows.rows, n, d));
    kernels->pack_rows(dst, &rows.rows, n, d);
    for (int r = 0; r < words * pack; r++)
        for (int64_t i = 0; i < channels; i++)
            expect_float(c, "rows", r, i, dtype_load(word, dst + r / pack * channels, i * pack + r % pack),
                         r < n && i < d ? dtype_round(word, element_of(&rows, r, i)) : 0.0f);
}

/** Keys of whole words, or on matrix registers of whole groups. */
static int keys_in_words(const struct tile_case *c)
{
    return rounded_up(c->shape.n, c->set->features & HAS_MATRIX ? PAIRED : 2);
}

static void check_round_tile(const struct tile_case *c)
{
    const struct attn_gradient_kernels *kernels = c->set->kernels->gradients;
    const int n = c->shape.n, width = width_of(c), pitch = 2 * (int)attn_query_words(kernels, width);
    const int rows = c->shape.plain ? width : (int)rng_range(c->rng, 1, width);
    const int with_keys = c->shape.plain || rng_percent(c->rng, 50);
    const float *tile = operand_floats(c, (int64_t)n * width);
    uint16_t *by_query = operand_place(c, (size_t)(n * pitch) * 2);
    float *by_key = operand_place(c, (size_t)(keys_in_words(c) / 2 * width) * 4);
    TIME_IF_WANTED(c, kernels->round_tile(c->shape.nv, rows, n, tile, by_query, by_key));
    kernels->round_tile(c->shape.nv, rows, n, tile, by_query, with_keys ? by_key : NULL);
    for (int j = 0; j < n; j++)
        for (int r = width; r < pitch; r++)
            expect_float(c, "by query", j, r, dtype_load(ATTN_BF16, by_query, j * pitch + r), 0.0f);
    for (int j = 0; j < keys_in_words(c); j++) {
        for (int r = 0; r < width; r++) {
            const float x = j < n && r < rows ? tile[j * width + r] : 0.0f;
            const int flushed = c->set->narrow_flushes && fabsf(x) < 0x1p-126f;
            const float expected = flushed ? copysignf(0.0f, x) : dtype_round(ATTN_BF16, x);
            if (j < n)
                expect_float(c, "by query", j, r, dtype_load(ATTN_BF16, by_query, j * pitch + r), expected);
            if (with_keys)
                expect_float(c, "by key", j, r, dtype_load(ATTN_BF16, by_key, 2 * (j / 2 * width + r) + j % 2),
                             expected);
        }
    }
}

static const struct row rows[] = {
    TILE_ROW("score_gradients", HAS_VECTORS, check_score_gradients),
    TILE_ROW("dot_rows", HAS_VECTORS, check_dot_rows),
    TILE_ROW("pack_rows", HAS_GRADIENTS, check_pack_rows),
    TILE_ROW("add_rows", HAS_GRADIENTS | HAS_NO_MATRIX, check_add_rows),
    TILE_ROW("add_rows_seen", HAS_GRADIENTS | HAS_NO_MATRIX, check_add_rows_seen),
    TILE_ROW("add_rows", HAS_GRADIENTS | HAS_MATRIX, check_add_group),
    TILE_ROW("add_rows_seen", HAS_GRADIENTS | HAS_MATRIX, check_add_group_seen),
    TILE_ROW("round_tile", HAS_GRADIENTS | HAS_PAIRS, check_round_tile),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    if (row->needs & HAS_VECTORS)
        return set->kernels->vectors->score_gradients && set->kernels->vectors->dot_rows;
    const struct attn_gradient_kernels *k = set->kernels->gradients;
    return k->pack_rows && k->add_rows && k->add_rows_seen && (k->round_tile || !(row->needs & HAS_PAIRS));
}

const struct group group_gradients = {
    .name = "gradients",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
