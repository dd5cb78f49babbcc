/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of struct attn_value_kernels, bit by bit: in each lane sums run
 * from the first word of keys to the last, whatever the shape of the tile.
 */
#include "operands.h"
#include "dtype.h"
#include "oracle.h"

#include <math.h>
#include <string.h>

static int words_of(const struct tile_case *c, int n)
{
    return (n + c->set->value_pack - 1) / c->set->value_pack;
}

/** Words of n keys, with what fills their last group. */
static int words_in_groups(const struct tile_case *c, int n)
{
    const int group = c->set->value_group;
    return (words_of(c, n) + group - 1) / group * group;
}

/** Where word i of row u is in rows of so many words, in words: those of a group of rows side by side. */
static int64_t place_of(const struct tile_case *c, int u, int64_t i, int64_t width)
{
    const int group = c->set->value_group;
    return (u - u % group) * width + i * group + u % group;
}

/** Rows of words of V, in groups; the stride is that of one row. */
static struct drawn_words draw_values(const struct tile_case *c, int n)
{
    const int group = c->set->value_group;
    struct drawn_words v = draw_words(c, c->set->value_pack, words_in_groups(c, n) / group, c->shape.d * group);
    v.stride /= group;
    return v;
}

/** Word i of row u of V. */
static const char *value_at(const struct tile_case *c, const struct drawn_words *v, int u, int64_t i)
{
    const int group = c->set->value_group;
    return v->at + (u - u % group) * v->stride + (i * group + u % group) * 4;
}

/** Words of weights, or of anything else in lane order. */
static float *draw_lanes(const struct tile_case *c, int words)
{
    const int pack = c->set->value_pack, width = c->shape.nv * c->set->lanes;
    char *at = operand_place(c, (size_t)words * (size_t)width * 4);
    for (int i = 0; i < words * width * pack; i++)
        dtype_store(pack == 2 ? ATTN_BF16 : ATTN_F32, at, i, draw_number(c));
    return (float *)(void *)at;
}

static void check_pack_values(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, pack = c->set->value_pack;
    const int64_t d = c->shape.d;
    const struct drawn_rows v = draw_rows(c, draw_stored_type(c, pack == 2 ? ATTN_BF16 : c->shape.dtype), n, d);
    const attn_dtype word = pack == 2 ? ATTN_BF16 : ATTN_F32;
    float *dst = operand_place(c, (size_t)(words_in_groups(c, n) * d) * 4);
    TIME_IF_WANTED(c, kernels->pack_values(dst, &v.rows, n, d));
    kernels->pack_values(dst, &v.rows, n, d);
    for (int j = 0; j < words_in_groups(c, n) * pack; j++)
        for (int64_t i = 0; i < d; i++)
            expect_float(c, "v", j, i, dtype_load(word, dst, place_of(c, j / pack, i, d) * pack + j % pack),
                         j < n ? dtype_round(word, element_of(&v, j, i)) : 0.0f);
}

static void check_weights(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, pack = c->set->value_pack, lanes = c->set->lanes, width = c->shape.nv * lanes;
    const int *ends = draw_ends(c, n, 0);
    const int room = words_in_groups(c, n) > n ? words_in_groups(c, n) : n;
    float *s = operand_floats(c, (int64_t)room * width), *m = operand_floats(c, width), *l = operand_floats(c, width);
    float *factor = operand_floats(c, width);
    const int whole = c->shape.plain || rng_percent(c->rng, 50);
    for (int r = 0; r < width; r++) {
        factor[r] = fabsf(factor[r]) + 0.125f;
        m[r] = !c->shape.plain && rng_percent(c->rng, 5) ? -INFINITY : fabsf(m[r]) + 8;
        for (int j = 0; j < n; j++) /* what a lane does not see has been masked */
            if (j >= ends[r / lanes] || (!c->shape.plain && rng_percent(c->rng, 5)))
                s[j * width + r] = -INFINITY;
    }
    TIME_IF_WANTED(c, kernels->weights(c->shape.nv, m, ends, n, whole ? NULL : factor, s, l));
    const float *scores = operand_copy(s, (size_t)(n * width) * 4), *sums = operand_copy(l, (size_t)width * 4);
    kernels->weights(c->shape.nv, m, ends, n, whole ? NULL : factor, s, l);
    for (int v = 0; v < c->shape.nv; v++) {
        float total[MAX_LANES] = {0}, x[MAX_LANES], p[2][MAX_LANES];
        for (int j = 0; j < ends[v]; j += pack) {
            for (int k = 0; k < pack; k++) {
                for (int i = 0; i < lanes; i++) {
                    const int r = v * lanes + i;
                    const float base = m[r] == -INFINITY ? 0.0f : m[r];
                    const float score = j + k < n ? scores[(j + k) * width + r] : -INFINITY;
                    x[i] = score * (whole ? 1.0f : factor[r]) - base;
                }
                apply(c->set, pack == 2 ? "vf_exp2_bf16" : "vf_exp2", p[k], x);
            }
            for (int i = 0; i < lanes; i++) {
                const int r = v * lanes + i;
                const float *got = s + place_of(c, j / pack, r, width);
                if (pack == 1) {
                    expect_float(c, "p", j, r, *got, p[0][i]);
                    total[i] += p[0][i];
                    continue;
                }
                const uint16_t word[2] = {dtype_narrow(ATTN_BF16, (double)p[0][i]),
                                          j + 1 < n ? dtype_narrow(ATTN_BF16, (double)p[1][i]) : 0};
                const uint16_t ones[2] = {0x3f80, 0x3f80};
                for (int k = 0; k < 2; k++)
                    expect_float(c, "p", j + k, r, dtype_load(ATTN_BF16, got, k), dtype_widen(ATTN_BF16, word[k]));
                total[i] = dot_of(c->set, 2, ones, word, total[i]);
            }
        }
        for (int i = 0; i < lanes; i++)
            expect_float(c, "l", 0, v * lanes + i, l[v * lanes + i], sums[v * lanes + i] + total[i]);
    }
}

static int dropped(const struct attn_drop *drop, int64_t query, int64_t key)
{
    uint32_t words[4];
    oracle_philox(
        (const uint32_t[4]){(uint32_t)(key / 4), (uint32_t)query, (uint32_t)drop->head, (uint32_t)drop->batch},
        drop->key, words);
    return words[key % 4] < drop->threshold;
}

static void check_drop(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, pack = c->set->value_pack, width = c->shape.nv * c->set->lanes;
    const struct attn_drop drop = {.wanted = 1,
                                   .key = {(uint32_t)rng_bits(c->rng), (uint32_t)rng_bits(c->rng)},
                                   .threshold = 0x4ccccccd,
                                   .keep_scale = 1 / 0.7f,
                                   .batch = rng_range(c->rng, 0, 9),
                                   .head = rng_range(c->rng, 0, 99),
                                   .query_index = rng_range(c->rng, 0, 1 << 20),
                                   .first = rng_range(c->rng, 0, 1 << 20)};
    float *p = draw_lanes(c, words_in_groups(c, n));
    TIME_IF_WANTED(c, kernels->drop(&drop, c->shape.nv, n, p));
    const uint16_t *halves = operand_copy(p, (size_t)(words_in_groups(c, n) * width) * 4);
    kernels->drop(&drop, c->shape.nv, n, p);
    for (int j = 0; j < n; j++) {
        for (int r = 0; r < width; r++) {
            const int64_t at = place_of(c, j / pack, r, width) * pack + j % pack;
            const attn_dtype dtype = pack == 2 ? ATTN_BF16 : ATTN_F32;
            expect_float(c, "p", j, r, dtype_load(dtype, p, at),
                         dropped(&drop, drop.query_index + r, drop.first + j) ? 0.0f : dtype_load(dtype, halves, at));
        }
    }
}

static void check_values(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int words = words_of(c, c->shape.n), pack = c->set->value_pack, lanes = c->set->lanes;
    const int width = c->shape.nv * lanes;
    const int64_t d = c->shape.d;
    const struct drawn_words v = draw_values(c, c->shape.n);
    const int *ends = draw_ends(c, words, 0);
    float *o = operand_floats(c, d * width);
    const struct attn_value_operands x = {.p = draw_lanes(c, words_in_groups(c, c->shape.n)),
                                          .v = v.at,
                                          .v_stride = v.stride,
                                          .dv = d,
                                          .ends = ends,
                                          .o = o,
                                          .mode = draw_mode(c),
                                          .alpha = operand_floats(c, width)};
    TIME_IF_WANTED(c, kernels->values(c->shape.nv, &x));
    const float *before = operand_copy(o, (size_t)(d * width) * 4);
    kernels->values(c->shape.nv, &x);
    for (int64_t i = 0; i < d; i++) {
        for (int r = 0; r < width; r++) {
            float sum = start_of(x.mode, before[i * width + r], x.alpha[r]);
            for (int j = 0; j < ends[r / lanes]; j++)
                sum = dot_of(c->set, pack, value_at(c, &v, j, i), x.p + place_of(c, j, r, width), sum);
            expect_float(c, "o", i, r, o[i * width + r], sum);
        }
    }
}

static void check_finite(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int words = words_of(c, c->shape.n), whole = words_in_groups(c, c->shape.n), pack = c->set->value_pack;
    const int64_t d = c->shape.d;
    const struct drawn_words v = draw_values(c, c->shape.n);
    const attn_dtype dtype = pack == 2 ? ATTN_BF16 : ATTN_F32;
    volatile int kept = 0;
    TIME_IF_WANTED(c, kept = kernels->finite(v.at, v.stride, words, d));
    (void)kept;
    if (rng_percent(c->rng, 70)) { /* one number at most that is not finite, at any place */
        for (int j = 0; j < whole; j++)
            for (int64_t i = 0; i < d * pack; i++)
                dtype_store(dtype, (char *)(uintptr_t)value_at(c, &v, j, i / pack), i % pack,
                            rng_normal(c->rng) * 1e38f);
        if (rng_percent(c->rng, 70))
            dtype_store(
                dtype,
                (char *)(uintptr_t)value_at(c, &v, (int)rng_range(c->rng, 0, whole - 1), rng_range(c->rng, 0, d - 1)),
                rng_range(c->rng, 0, pack - 1), rng_percent(c->rng, 50) ? NAN : INFINITY);
    }
    int finite = 1; /* the last group counts whole */
    for (int j = 0; j < whole; j++)
        for (int64_t i = 0; i < d * pack; i++)
            finite &= isfinite(dtype_load(dtype, value_at(c, &v, j, i / pack), i % pack)) != 0;
    expect_word(c, "finite", 0, 0, kernels->finite(v.at, v.stride, words, d) != 0, (uint32_t)finite);
}

static void check_values_seen(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, words = words_of(c, n), pack = c->set->value_pack, width = c->shape.nv * c->set->lanes;
    const int64_t d = c->shape.d;
    const struct attn_tile_mask mask = draw_mask(c);
    const struct drawn_words v = draw_values(c, n);
    float *o = operand_floats(c, d * width);
    const struct attn_value_operands x = {.p = draw_lanes(c, words_in_groups(c, c->shape.n)),
                                          .v = v.at,
                                          .v_stride = v.stride,
                                          .dv = d,
                                          .o = o,
                                          .mode = draw_mode(c),
                                          .alpha = operand_floats(c, width)};
    TIME_IF_WANTED(c, kernels->values_seen(c->shape.nv, &mask, &x, n));
    const float *before = operand_copy(o, (size_t)(d * width) * 4);
    kernels->values_seen(c->shape.nv, &mask, &x, n);
    for (int64_t i = 0; i < d; i++) {
        for (int r = 0; r < width; r++) {
            float sum = start_of(x.mode, before[i * width + r], x.alpha[r]);
            for (int j = 0; j < words; j++) {
                uint32_t word;
                memcpy(&word, value_at(c, &v, j, i), sizeof word);
                const int first = mask_sees(&mask, j * pack, r);
                const int second = pack == 2 && 2 * j + 1 < n && mask_sees(&mask, 2 * j + 1, r);
                if (pack == 2) /* the half of a key that is hidden is 0 */
                    word &= (first ? 0xffffu : 0) | (second ? 0xffff0000u : 0);
                if (first || second)
                    sum = dot_of(c->set, pack, &word, x.p + place_of(c, j, r, width), sum);
            }
            expect_float(c, "o", i, r, o[i * width + r], sum);
        }
    }
}

static void check_values_to_rows(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int keys = c->shape.n, lanes = c->set->lanes, width = c->shape.nv * lanes;
    const int n = c->shape.plain ? width : (int)rng_range(c->rng, 1, width);
    const int64_t d = c->shape.d;
    const struct drawn_words v = draw_words(c, 1, keys, d);
    const struct drawn_rows rows = draw_rows(c, c->shape.dtype, n, d);
    const struct attn_value_rows x = {.p = draw_lanes(c, keys),
                                      .width = width,
                                      .v = v.at,
                                      .v_stride = v.stride,
                                      .dv = d,
                                      .ends = draw_ends(c, keys, 0),
                                      .factor = operand_floats(c, n),
                                      .rows = (char *const *)(uintptr_t)rows.pointers,
                                      .dtype = rows.rows.dtype,
                                      .n = n};
    TIME_IF_WANTED(c, kernels->values_to_rows(&x));
    kernels->values_to_rows(&x);
    for (int64_t i = 0; i < d; i++) {
        for (int r = 0; r < n; r++) {
            float sum = 0.0f;
            for (int j = 0; j < x.ends[r / lanes]; j++)
                sum = dot_of(c->set, 1, v.at + j * v.stride + i * 4, x.p + j * width + r, sum);
            expect_float(c, "rows", r, i, element_of(&rows, r, i),
                         dtype_round(x.dtype, fma_of(c->set, sum, x.factor[r], 0.0f)));
        }
    }
}

static const struct row rows[] = {
    TILE_ROW("pack_values", HAS_VALUES | HAS_NO_MATRIX, check_pack_values),
    TILE_ROW("weights", HAS_VALUES | HAS_NO_TABLE, check_weights),
    TILE_ROW("drop", HAS_VALUES, check_drop),
    TILE_ROW("values", HAS_VALUES | HAS_NO_MATRIX, check_values),
    TILE_ROW("finite", HAS_VALUES | HAS_NO_MATRIX, check_finite),
    TILE_ROW("values_seen", HAS_VALUES | HAS_NO_MATRIX, check_values_seen),
    TILE_ROW("values_to_rows", HAS_FLOAT_VALUES, check_values_to_rows),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    const struct attn_value_kernels *k = set->kernels->values;
    if (row->needs & HAS_FLOAT_VALUES)
        return k->values_to_rows != NULL;
    return k->pack_values && k->weights && k->drop && k->values && k->finite && k->values_seen;
}

const struct group group_values = {
    .name = "value_kernels",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
