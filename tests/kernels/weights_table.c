/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights by a table of exponentials (exp2_table_*.h, weights_table.h): its
 * entries, the operation on pairs of vectors, and the function that makes
 * weights of a tile of scores.
 */
#include "matrix.h"
#include "operations.h"

#include <math.h>
#include <string.h>

enum { TABLE_ENTRIES = 64, TABLE_SHARED = 4, TABLE_BIAS = 127 * 256 - 26 };

/** The bits of a weight from fixed point and its entry. */
static uint16_t table_weight(uint32_t x, uint32_t entry)
{
    return (uint16_t)((x + entry + 1) / 2);
}

/** For each fraction the entry with the least squared relative error over the x that share it. */
static const uint8_t *best_entries(void)
{
    static uint8_t entries[TABLE_ENTRIES];
    static int known;
    for (int f = 0; f < TABLE_ENTRIES && !known; f++) {
        double least = INFINITY;
        for (unsigned entry = 0; entry < 256; entry++) {
            double sum = 0;
            for (int i = 0; i < TABLE_SHARED; i++) {
                const int x = 127 * 256 + TABLE_SHARED * f + i;
                const double error =
                    (double)widened(table_weight((uint32_t)x, entry)) / exp2((x - TABLE_BIAS) / 256.0) - 1;
                sum += error * error;
            }
            if (sum < least) {
                least = sum;
                entries[f] = (uint8_t)entry;
            }
        }
    }
    known = 1;
    return entries;
}

/** A weight from t, fixed point in the lower bits of a float. */
static uint16_t weight_of_fixed(float t)
{
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits &= 0xffff;
    return table_weight(bits, best_entries()[bits / TABLE_SHARED % TABLE_ENTRIES]);
}

static void check_table(const struct tile_case *c)
{
    const struct call call = {.set = c->set, .out = {operand_place(c, TABLE_ENTRIES)}};
    TIME_IF_WANTED(c, call_operation(c->set, "exp2_table", &call));
    call_operation(c->set, "exp2_table", &call);
    for (int f = 0; f < TABLE_ENTRIES; f++)
        expect_word(c, "entry", f, 0, ((const uint8_t *)call.out[0])[f], best_entries()[f]);
}

static void check_table_pair(const struct tile_case *c)
{
    const int lanes = c->set->lanes;
    float *t[2] = {operand_place(c, (size_t)lanes * 4), operand_place(c, (size_t)lanes * 4)};
    for (int i = 0; i < 2 * lanes; i++) /* any 16 bits */
        t[i / lanes][i % lanes] = (float)(0x1.8p23 + (double)rng_range(c->rng, 0, 0xffff));
    const struct call call = {.set = c->set, .in = {t[0], t[1]}, .out = {operand_place(c, (size_t)lanes * 4)}};
    TIME_IF_WANTED(c, call_operation(c->set, "exp2_table_pair", &call));
    call_operation(c->set, "exp2_table_pair", &call);
    for (int i = 0; i < lanes; i++)
        expect_word(c, "word", 0, i, ((const uint32_t *)call.out[0])[i],
                    weight_of_fixed(t[0][i]) | (uint32_t)weight_of_fixed(t[1][i]) << 16);
}

/** What a lane subtracts and multiplies by: mostly of the usual size, for which weights are made in one step. */
static void draw_lane(const struct tile_case *c, int whole, float *m, float *factor)
{
    struct rng *rng = c->rng;
    const int wild = !c->shape.plain && rng_percent(rng, c->shape.wild ? 10 : 0);
    *m = (float)(rng_range(rng, -20000, 20000)) / 256.0f + (rng_percent(rng, 10) ? rng_normal(rng) : 0);
    *factor = fabsf(rng_normal(rng)) + 0.125f;
    if (wild && rng_percent(rng, 80))
        *m = (float)RNG_PICK(rng, 4096, 4097, -4097, -4096, 70000, 1 << 24);
    else if (wild)
        *m = rng_percent(rng, 50) ? 3e38f : INFINITY;
    if (!c->shape.plain && rng_percent(rng, 3))
        *m = -INFINITY;
    if (wild && rng_percent(rng, 50))
        *factor = ldexpf(*factor, (int)RNG_PICK(rng, 99, 100, 101, 120, -100));
    if (whole)
        *factor = 1.0f;
}

/** Fixed point of a weight 2^(score factor - base), as the comment of weights_table.h has it. */
static float fixed_of(float score, float m, float factor)
{
    const float zero = 0x1.8p23f, origin = zero + (float)TABLE_BIAS, nan = zero + (float)(2 * 0x7fc0);
    const float base = m == -INFINITY ? 0.0f : m;
    float t;
    if (factor <= 0x1p100f && fabsf(base) <= 4096.0f)
        t = score * (factor * 256.0f) + (origin - base * 256.0f);
    else
        t = fmaf(score * factor - base, 256.0f, origin);
    t = isnan(t) || t > nan ? nan : t;
    return t < zero ? zero : t;
}

static void check_weights(const struct tile_case *c)
{
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int matrix = (c->set->features & HAS_MATRIX) != 0; /* its words are padded to whole registers */
    const int n = c->shape.n, rows = matrix ? rounded_up(n, ROWS) : n;
    const int lanes = c->set->lanes, width = c->shape.nv * lanes;
    const int *ends = draw_ends(c, n, matrix), whole = c->shape.plain || rng_percent(c->rng, 50);
    float *m = operand_place(c, (size_t)width * 4), *factor = operand_place(c, (size_t)width * 4);
    float *s = operand_place(c, (size_t)(rows * width) * 4), *l = operand_floats(c, width);
    for (int r = 0; r < width; r++)
        draw_lane(c, whole, &m[r], &factor[r]);
    for (int j = 0; j < rows; j++)
        for (int r = 0; r < width; r++) {
            const float y = (float)(rng_uniform(c->rng) * 160 - 150) + (isfinite(m[r]) ? m[r] : 0);
            const float special = draw_number(c);
            float *at = s + j * width + r;
            *at = j >= n ? NAN : rng_percent(c->rng, 80) || fabsf(special) < 8 ? y / factor[r] : special;
            if (j < n && (j >= ends[r / lanes] || (!c->shape.plain && rng_percent(c->rng, 5))))
                *at = -INFINITY; /* what a lane does not see has been masked */
        }
    TIME_IF_WANTED(c, kernels->weights(c->shape.nv, m, ends, n, whole ? NULL : factor, s, l));
    const float *scores = operand_copy(s, (size_t)(n * width) * 4), *sums = operand_copy(l, (size_t)width * 4);
    kernels->weights(c->shape.nv, m, ends, n, whole ? NULL : factor, s, l);
    for (int r = 0; r < width; r++) {
        const int words = key_words(ends[r / lanes]);
        float total[2] = {0, 0};
        for (int u = 0; u < (matrix ? rounded_up(words, WORDS) : words); u++) {
            uint16_t expected[2] = {0, 0};
            uint32_t got, word;
            for (int k = 0; k < 2 && u < words && 2 * u + k < n; k++)
                expected[k] = weight_of_fixed(fixed_of(scores[(2 * u + k) * width + r], m[r], factor[r]));
            memcpy(&got, s + u * width + r, sizeof got);
            memcpy(&word, expected, sizeof word);
            expect_word(c, "p", u, r, got, word);
            if (u < words)
                total[u % 2] = dot_of(c->set, 2, (const uint16_t[2]){0x3f80, 0x3f80}, expected, total[u % 2]);
        }
        expect_float(c, "l", 0, r, l[r], sums[r] + (total[0] + total[1]));
    }
}

static const struct row rows[] = {
    TILE_ROW("exp2_table", HAS_TABLE, check_table),
    TILE_ROW("exp2_table_pair", HAS_TABLE, check_table_pair),
    TILE_ROW("weights", HAS_VALUES | HAS_TABLE, check_weights),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    return row->needs & HAS_VALUES ? set->kernels->values->weights != NULL : operation_has_code(row, set);
}

const struct group group_weights_table = {
    .name = "weights_table",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
