/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of tiles on matrix registers, whose operands lie otherwise than
 * in vectors: V in pieces, rows of words and of sums padded to whole registers.
 *
 * All of it is written out in plain C, one element after the other. What is
 * padding holds NaN where it may, since none of it must come into a result.
 */
#include "matrix.h"

#include <math.h>
#include <string.h>

/** The sum of n products of bytes. */
static int32_t byte_product(const void *a, const void *b, int64_t n)
{
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((const int8_t *)a)[i] * ((const int8_t *)b)[i];
    return sum;
}

/** Words in lane order from at on, as the column that a lane has of them. */
static void gather(const void *at, int width, int lane, int64_t words, uint16_t *column)
{
    for (int64_t w = 0; w < words; w++)
        memcpy(column + 2 * w, (const char *)at + (w * width + lane) * 4, 4);
}

static void check_scores(const struct tile_case *c)
{
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const int n = c->shape.n, width = c->shape.nv * c->set->lanes;
    const int64_t words = score_words(c);
    struct attn_tile_mask mask = draw_mask(c);
    if (mask.kind == MASK_DIAGONAL && mask.diagonal < n - width) /* keys that no lane sees have been cut off */
        mask.diagonal = n - width;
    const int pack = c->set->score_pack;
    const struct drawn_words k = draw_words(c, pack, n, words);
    const struct tile_case contiguous = {
        .set = c->set, .rng = c->rng, .shape = {.plain = !c->shape.wild, .wild = c->shape.wild}};
    char *q = operand_place(c, (size_t)(words * width) * 4);
    for (int64_t i = 0; i < words * width * pack; i++)
        if (pack == 4)
            q[i] = (char)rng_range(c->rng, -127, 127);
        else
            dtype_store(ATTN_BF16, q, i, draw_number(&contiguous));
    float *steps = pack == 4 ? operand_floats(c, n) : NULL;
    float *factor = operand_floats(c, width), *max = operand_place(c, (size_t)width * 4);
    for (int i = 0; i < width; i++)
        factor[i] = fabsf(factor[i]) + 0.125f;
    float *s = operand_place(c, (size_t)(rounded_up(n, ROWS) * width) * 4);
    const struct drawn_rows soon = draw_rows(c, ATTN_BF16, n, 64);
    struct attn_score_operands x = {.q = (const float *)(const void *)q,
                                    .k = k.at,
                                    .k_stride = k.stride,
                                    .words = words,
                                    .mask = &mask,
                                    .factor = factor,
                                    .k_scale = steps,
                                    .s = s};
    const struct attn_soon rows = {soon.rows, 64, n, rng_percent(c->rng, 50)};
    x.soon = &rows;
    x.num_soon = !c->shape.plain && rng_percent(c->rng, 50);
    TIME_IF_WANTED(c, kernels->scores(c->shape.nv, &x, n, max));
    kernels->scores(c->shape.nv, &x, n, max);
    for (int lane = 0; lane < width; lane++) {
        uint16_t query[MAX_CHANNELS], key[MAX_CHANNELS];
        float top = -INFINITY;
        gather(q, width, lane, words, query);
        for (int j = 0; j < n; j++) {
            float raw = 0;
            memcpy(key, k.at + j * k.stride, (size_t)words * 4);
            for (int64_t i = 0; pack == 2 && i < 2 * words; i += PAIRED)
                raw = product(key + i, query + i, raw);
            if (pack == 4)
                raw = (float)byte_product(key, query, 4 * words) * steps[j];
            const float score = masked(c->set, &mask, j, lane, 1, factor[lane], raw);
            top = score > top ? score : top;
            expect_float(c, "s", j, lane, s[j * width + lane], score);
        }
        expect_float(c, "max", 0, lane, max[lane], mask.kind == MASK_BIAS ? top : top * factor[lane]);
    }
}

/** V^T in pieces of 16 channels by 32 keys, those of a group of keys one behind the other. */
struct pieces {
    char *at;
    int keys;         /**< whole groups */
    int64_t channels; /**< whole pieces */
    ptrdiff_t stride; /**< from word to word of keys, if a group were rows of words */
};

static char *piece_element(const struct pieces *v, int j, int64_t i)
{
    return v->at + (j / PAIRED * (v->channels / ROWS) + i / ROWS) * PIECE + i % ROWS * ROW_BYTES + j % PAIRED * 2;
}

static float piece_value(const struct pieces *v, int j, int64_t i)
{
    return dtype_load(ATTN_BF16, piece_element(v, j, i), 0);
}

static struct pieces place_pieces(const struct tile_case *c, int keys)
{
    struct pieces v = {.keys = rounded_up(keys, PAIRED), .channels = rounded_up(c->shape.d, ROWS)};
    v.stride = v.channels * 4;
    v.at = operand_place(c, (size_t)(v.keys * v.channels) * 2);
    return v;
}

/** Numbers for keys and d channels; the keys behind them are what behind is, the channels what beside is. */
static struct pieces draw_pieces(const struct tile_case *c, int keys, float behind, float beside)
{
    const struct pieces v = place_pieces(c, keys);
    for (int j = 0; j < v.keys; j++)
        for (int64_t i = 0; i < v.channels; i++) {
            const float x = draw_number(c);
            dtype_store(ATTN_BF16, piece_element(&v, j, i), 0, i >= c->shape.d ? beside : j >= keys ? behind : x);
        }
    return v;
}

static void check_pack_values(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n;
    const struct drawn_rows rows = draw_rows(c, ATTN_BF16, n, c->shape.d);
    const struct pieces v = place_pieces(c, n);
    TIME_IF_WANTED(c, kernels->pack_values((float *)(void *)v.at, &rows.rows, n, c->shape.d));
    kernels->pack_values((float *)(void *)v.at, &rows.rows, n, c->shape.d);
    for (int j = 0; j < v.keys; j++)
        for (int64_t i = 0; i < v.channels; i++)
            expect_float(c, "v", j, i, piece_value(&v, j, i), j < n && i < c->shape.d ? element_of(&rows, j, i) : 0.0f);
}

/**
 * Words of weights for keys that vectors see up to ends (in keys), 0 to the end of that group, and NaN behind it. A
 * weight of a lane that does not see its key is 0, or a denormal, which counts as one.
 */
static float *draw_weights(const struct tile_case *c, const int *ends, const struct attn_tile_mask *mask)
{
    const int lanes = c->set->lanes, width = c->shape.nv * lanes, words = rounded_up(key_words(c->shape.n), WORDS);
    char *p = operand_place(c, (size_t)(words * width) * 4);
    for (int j = 0; j < 2 * words; j++)
        for (int r = 0; r < width; r++) {
            const int end = ends[r / lanes];
            float x = draw_number(c);
            if (j >= rounded_up(end, PAIRED))
                x = NAN;
            else if (j >= end)
                x = 0;
            else if (!mask_sees(mask, j, r))
                x = rng_percent(c->rng, 50) ? 0.0f : widened(9);
            dtype_store(ATTN_BF16, p, (j / 2 * width + r) * 2 + j % 2, x);
        }
    return (float *)(void *)p;
}

/** Sums to go on from, with NaN in the rows behind the last channel. */
static float *draw_sums(const struct tile_case *c)
{
    const int width = c->shape.nv * c->set->lanes;
    const int64_t channels = rounded_up(c->shape.d, ROWS);
    float *o = operand_place(c, (size_t)(channels * width) * 4);
    for (int64_t i = 0; i < channels * width; i++)
        o[i] = i < c->shape.d * width ? draw_number(c) : NAN;
    return o;
}

/** The sum of channel i in a lane: products of the groups that its vector sees; finite: without what of V is not. */
static float sum_of(const struct tile_case *c, const struct attn_value_operands *x, const struct pieces *v, int end,
                    int64_t i, int r, const float *before, int finite)
{
    const int width = c->shape.nv * c->set->lanes;
    float sum = start_of(x->mode, before[i * width + r], x->alpha[r]);
    for (int j = 0; j < rounded_up(end, PAIRED); j += PAIRED) {
        uint16_t row[PAIRED], column[PAIRED];
        memcpy(row, piece_element(v, j, i), sizeof row);
        gather(x->p + j / 2 * width, width, r, WORDS, column);
        for (int k = 0; k < PAIRED; k++)
            if (finite && !isfinite(widened(row[k])))
                row[k] = 0;
        sum = product(row, column, sum);
    }
    return sum;
}

static void check_values(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int lanes = c->set->lanes, width = c->shape.nv * lanes;
    const struct attn_tile_mask mask = {.kind = MASK_NONE};
    const int *keys = draw_ends(c, c->shape.n, 1);
    int *ends = operand_place(c, (size_t)c->shape.nv * sizeof *ends);
    for (int v = 0; v < c->shape.nv; v++)
        ends[v] = key_words(keys[v]);
    const struct pieces v = draw_pieces(c, c->shape.n, 0.0f, NAN);
    const struct attn_value_operands x = {.p = draw_weights(c, keys, &mask),
                                          .v = v.at,
                                          .v_stride = v.stride,
                                          .dv = c->shape.d,
                                          .ends = ends,
                                          .o = draw_sums(c),
                                          .mode = draw_mode(c),
                                          .alpha = operand_floats(c, width)};
    TIME_IF_WANTED(c, kernels->values(c->shape.nv, &x));
    const float *before = operand_copy(x.o, (size_t)(c->shape.d * width) * 4);
    kernels->values(c->shape.nv, &x);
    for (int64_t i = 0; i < c->shape.d; i++)
        for (int r = 0; r < width; r++)
            expect_float(c, "o", i, r, x.o[i * width + r], sum_of(c, &x, &v, keys[r / lanes], i, r, before, 0));
}

static void check_finite(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, words = key_words(n);
    const struct pieces v = draw_pieces(c, n, 0.0f, 0.0f);
    volatile int kept = 0;
    TIME_IF_WANTED(c, kept = kernels->finite(v.at, v.stride, words, c->shape.d));
    (void)kept;
    if (rng_percent(c->rng, 70)) { /* one number at most that is not finite, at any place */
        for (int j = 0; j < n; j++)
            for (int64_t i = 0; i < c->shape.d; i++)
                dtype_store(ATTN_BF16, piece_element(&v, j, i), 0, rng_normal(c->rng) * 1e37f);
        if (rng_percent(c->rng, 70))
            dtype_store(ATTN_BF16,
                        piece_element(&v, (int)rng_range(c->rng, 0, n - 1), rng_range(c->rng, 0, c->shape.d - 1)), 0,
                        rng_percent(c->rng, 50) ? NAN : -INFINITY);
    }
    int finite = 1;
    for (int j = 0; j < n; j++)
        for (int64_t i = 0; i < c->shape.d; i++)
            finite &= isfinite(piece_value(&v, j, i)) != 0;
    expect_word(c, "finite", 0, 0, kernels->finite(v.at, v.stride, words, c->shape.d) != 0, (uint32_t)finite);
}

/** Behind the keys of a run there may be others of its last group; they have no weights, but may be anything. */
static void check_values_seen(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, lanes = c->set->lanes, width = c->shape.nv * lanes;
    struct attn_tile_mask mask = draw_mask(c);
    if (mask.kind == MASK_DIAGONAL && mask.diagonal < 1 - width) /* some lane sees a key */
        mask.diagonal = 1 - width;
    int *ends = operand_place(c, (size_t)c->shape.nv * sizeof *ends); /* in keys */
    for (int v = 0; v < c->shape.nv; v++)
        ends[v] = mask.kind == MASK_DIAGONAL ? attn_visible_before(mask.diagonal, (v + 1) * lanes, n) : n;
    const struct pieces v = draw_pieces(c, n, rng_percent(c->rng, 50) ? NAN : 1.0f, NAN);
    const struct attn_value_operands x = {.p = draw_weights(c, ends, &mask),
                                          .v = v.at,
                                          .v_stride = v.stride,
                                          .dv = c->shape.d,
                                          .ends = ends,
                                          .o = draw_sums(c),
                                          .mode = draw_mode(c),
                                          .alpha = operand_floats(c, width)};
    TIME_IF_WANTED(c, kernels->values_seen(c->shape.nv, &mask, &x, n));
    const float *before = operand_copy(x.o, (size_t)(c->shape.d * width) * 4);
    kernels->values_seen(c->shape.nv, &mask, &x, n);
    for (int64_t i = 0; i < c->shape.d; i++)
        for (int r = 0; r < width; r++) {
            float sum = sum_of(c, &x, &v, ends[r / lanes], i, r, before, 1);
            for (int j = 0; j < n; j++) {
                if (isfinite(piece_value(&v, j, i)) || !mask_sees(&mask, j, r))
                    continue;
                uint16_t value[2] = {0, 0}, weight[2];
                memcpy(&value[j % 2], piece_element(&v, j, i), 2);
                memcpy(weight, x.p + j / 2 * width + r, sizeof weight);
                weight[1 - j % 2] = 0;
                sum = dot_of(c->set, 2, value, weight, sum);
            }
            expect_float(c, "o", i, r, x.o[i * width + r], sum);
        }
}

static const struct row rows[] = {
    TILE_ROW("scores", HAS_MATRIX | HAS_SCORES, check_scores),
    TILE_ROW("pack_values", HAS_MATRIX | HAS_VALUES, check_pack_values),
    TILE_ROW("values", HAS_MATRIX | HAS_VALUES, check_values),
    TILE_ROW("finite", HAS_MATRIX | HAS_VALUES, check_finite),
    TILE_ROW("values_seen", HAS_MATRIX | HAS_VALUES, check_values_seen),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    if (row->needs & HAS_SCORES)
        return set->kernels->scores->scores != NULL;
    const struct attn_value_kernels *k = set->kernels->values;
    return k->pack_values && k->values && k->finite && k->values_seen;
}

const struct group group_matrix = {
    .name = "matrix_kernels",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
