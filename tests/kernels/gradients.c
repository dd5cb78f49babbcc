/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the backward pass adds: the functions of struct attn_gradient_kernels, and
 * those of struct attn_vector_kernels that it alone calls. Sums run from the
 * first word of queries to the last, whatever the shape of the tile.
 */
#include "operands.h"
#include "dtype.h"

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

static void check_round_tile(const struct tile_case *c)
{
    const struct attn_gradient_kernels *kernels = c->set->kernels->gradients;
    const int n = c->shape.n, width = width_of(c);
    const int rows = c->shape.plain ? width : (int)rng_range(c->rng, 1, width);
    const int with_keys = c->shape.plain || rng_percent(c->rng, 50);
    const float *tile = operand_floats(c, (int64_t)n * width);
    uint16_t *by_query = operand_place(c, (size_t)(n * width) * 2);
    float *by_key = operand_place(c, (size_t)((n + 1) / 2 * width) * 4);
    TIME_IF_WANTED(c, kernels->round_tile(c->shape.nv, rows, n, tile, by_query, by_key));
    kernels->round_tile(c->shape.nv, rows, n, tile, by_query, with_keys ? by_key : NULL);
    for (int j = 0; j < n + n % 2; j++) {
        for (int r = 0; r < width; r++) {
            const float x = j < n && r < rows ? tile[j * width + r] : 0.0f;
            const int flushed = c->set->narrow_flushes && fabsf(x) < 0x1p-126f;
            const float expected = flushed ? copysignf(0.0f, x) : dtype_round(ATTN_BF16, x);
            if (j < n)
                expect_float(c, "by query", j, r, dtype_load(ATTN_BF16, by_query, j * width + r), expected);
            if (with_keys)
                expect_float(c, "by key", j, r, dtype_load(ATTN_BF16, by_key, 2 * (j / 2 * width + r) + j % 2),
                             expected);
        }
    }
}

static const struct row rows[] = {
    TILE_ROW("score_gradients", HAS_VECTORS, check_score_gradients),
    TILE_ROW("dot_rows", HAS_VECTORS, check_dot_rows),
    TILE_ROW("add_rows", HAS_GRADIENTS, check_add_rows),
    TILE_ROW("add_rows_seen", HAS_GRADIENTS, check_add_rows_seen),
    TILE_ROW("round_tile", HAS_GRADIENTS | HAS_PAIRS, check_round_tile),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    if (row->needs & HAS_VECTORS)
        return set->kernels->vectors->score_gradients && set->kernels->vectors->dot_rows;
    const struct attn_gradient_kernels *k = set->kernels->gradients;
    return k->add_rows && k->add_rows_seen && (k->round_tile || !(row->needs & HAS_PAIRS));
}

const struct group group_gradients = {
    .name = "gradients",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
