/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of struct attn_score_kernels, bit by bit: in each lane sums run
 * from the first word to the last, whatever the shape of the tile.
 */
#include "operands.h"
#include "guard.h"
#include "dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define INT8_PAD(n) (((n) + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN)

/** Where word i of a lane is in Q, in words: those of a group side by side, and what is left over by itself. */
static int64_t query_at(const struct tile_case *c, int64_t i, int width, int lane)
{
    const int group = c->set->score_group;
    const int64_t first = i - i % group;
    return first + group > score_words(c) ? i * width + lane : first * width + lane * group + i % group;
}

/** The type of the caller's rows: pairs are made of bf16 alone. */
static attn_dtype row_dtype(const struct tile_case *c)
{
    return c->set->score_pack == 2 ? ATTN_BF16 : c->shape.plain ? ATTN_F32 : c->shape.dtype;
}

static struct attn_int8_memory draw_int8_memory(const struct tile_case *c)
{
    const int64_t pad = INT8_PAD(c->shape.d);
    struct attn_int8_memory memory = {.mean = operand_place(c, (size_t)pad * sizeof(float)),
                                      .row = operand_place(c, (size_t)pad * sizeof(float)),
                                      .zeros = operand_place(c, (size_t)pad * sizeof(float)),
                                      .bytes = operand_place(c, (size_t)(pad * c->set->lanes))};
    for (int64_t i = 0; i < pad; i++) {
        memory.zeros[i] = 0;
        memory.mean[i] = i < c->shape.d ? rng_normal(c->rng) : 0;
    }
    return memory;
}

/** A row less its mean, as floats; the largest size, or NaN if one is not finite. */
static float centred(const struct drawn_rows *rows, int r, const float *mean, int64_t d, float *out)
{
    float top = 0;
    for (int64_t i = 0; i < d; i++) {
        out[i] = element_of(rows, r, i) - (mean ? mean[i] : 0.0f);
        if (!isfinite(out[i]))
            top = NAN;
        else if (fabsf(out[i]) > top)
            top = fabsf(out[i]);
    }
    return top;
}

static int byte_of(float x, float top)
{
    const float inverse = 127.0f / top;
    return (int)nearbyintf(x * (isfinite(inverse) ? inverse : 0.0f));
}

static void check_survey(const struct tile_case *c)
{
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const struct attn_int8_memory memory = draw_int8_memory(c);
    const int64_t d = c->shape.d, known = c->shape.plain ? c->shape.n : rng_range(c->rng, 0, c->shape.n);
    const struct drawn_rows k = draw_rows(c, draw_stored_type(c, row_dtype(c)), c->shape.n, d);
    float sum[MAX_CHANNELS], row[MAX_CHANNELS];
    int plain_sum = 1;
    int64_t count = known;
    TIME_IF_WANTED(c, kernels->survey(&k.rows, known, d, &memory));
    kernels->survey(&k.rows, known, d, &memory);
    for (int64_t i = 0; i < d; i++) {
        sum[i] = 0;
        for (int j = 0; j < known; j++)
            sum[i] += element_of(&k, j, i);
        plain_sum &= isfinite(sum[i]) != 0;
    }
    if (!plain_sum) { /* rows that are not finite do not count */
        count = 0;
        memset(sum, 0, sizeof sum);
        for (int j = 0; j < known; j++) {
            if (isnan(centred(&k, j, NULL, d, row)))
                continue;
            count++;
            for (int64_t i = 0; i < d; i++)
                sum[i] += row[i];
        }
    }
    for (int64_t i = 0; i < INT8_PAD(d); i++) {
        const float mean = i < d && count > 0 ? sum[i] / (float)count : 0.0f;
        expect_float(c, "mean", 0, i, memory.mean[i] + 0.0f, (isfinite(mean) ? mean : 0.0f) + 0.0f);
    }
}

static void check_pack_queries(const struct tile_case *c)
{
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const int lanes = c->set->lanes, width = c->shape.nv * lanes, pack = c->set->score_pack;
    const int first = c->shape.plain ? 0 : lanes * (int)rng_range(c->rng, 0, c->shape.nv - 1);
    const int fill = c->shape.plain ? width : lanes * (int)rng_range(c->rng, 1, c->shape.nv - first / lanes);
    const int n = c->shape.plain ? width : (int)rng_range(c->rng, 0, fill);
    const int64_t d = c->shape.d, words = score_words(c);
    const float scale = c->shape.plain ? 0.18f : (float)RNG_PICK(c->rng, 0, 1, -1, 1, -1, 1, 1) * 0.18f;
    struct drawn_rows rows = draw_rows(c, row_dtype(c), n, d);
    for (int r = n - 1; r > 0 && !c->shape.plain; r--) { /* anywhere in memory */
        const int other = (int)rng_range(c->rng, 0, r);
        const char *kept = rows.pointers[r];
        rows.pointers[r] = rows.pointers[other];
        rows.pointers[other] = kept;
    }
    const struct attn_pack_queries x = {.rows = rows.pointers,
                                        .dtype = rows.rows.dtype,
                                        .n = n,
                                        .first = first,
                                        .fill = fill,
                                        .width = width,
                                        .dk = d,
                                        .scale = scale,
                                        .shifts = 1,
                                        .int8 = kernels->int8 ? draw_int8_memory(c) : (struct attn_int8_memory){0},
                                        .q = operand_place(c, (size_t)(words * width * 4)),
                                        .factor = operand_place(c, (size_t)width * 4),
                                        .validity = operand_place(c, (size_t)width * 4),
                                        .shift = operand_place(c, (size_t)width * 4)};
    TIME_IF_WANTED(c, kernels->pack_queries(&x));
    kernels->pack_queries(&x);
    for (int lane = 0; lane < width; lane++) {
        const int r = lane - first, inside = r >= 0 && r < fill;
        const unsigned char *q = (const unsigned char *)x.q;
        float row[MAX_CHANNELS], top = 0, step = 0, total = 0, partial[MAX_LANES] = {0};
        int bad = 0;
        if (inside && r < n) {
            top = centred(&rows, r, NULL, d, row);
            bad = isnan(top);
            step = top / 127.0f * fabsf(scale);
        }
        for (int64_t i = 0; i < words * pack; i++) {
            const unsigned char *at = q + query_at(c, i / pack, width, lane) * 4 + i % pack * (4 / pack);
            const float element = inside && r < n && i < d ? row[i] : 0.0f;
            if (!inside) {
                expect_word(c, "q outside of the lanes", i, lane, *at, GUARD_CANARY);
            } else if (pack == 1) {
                float got;
                memcpy(&got, at, sizeof got);
                const float wanted = element * scale;
                expect_float(c, "q", i, lane, got + 0.0f, wanted + 0.0f); /* zeros of either sign */
            } else if (pack == 2) {
                uint16_t got;
                memcpy(&got, at, sizeof got);
                if (scale == 0)
                    expect_float(c, "q", i, lane, dtype_widen(ATTN_BF16, got), bad && i < 2 ? NAN : 0.0f);
                else
                    expect_float(c, "q", i, lane, dtype_widen(ATTN_BF16, got) + 0.0f,
                                 (scale < 0 ? -element : element) + 0.0f);
            } else {
                const int sign = scale < 0 ? -1 : 1, usable = !bad && isfinite(step);
                const int byte = r < n && usable ? byte_of(element * (float)sign, top) : 0;
                expect_word(c, "q", i, lane, *at, (uint8_t)(byte + c->set->query_offset));
            }
        }
        if (!inside || pack == 1)
            continue;
        if (pack == 2) {
            expect_float(c, "factor", 0, lane, x.factor[lane], scale == 0 ? 1.0f : fabsf(scale));
            continue;
        }
        const int usable = r < n && !bad && isfinite(step);
        for (int64_t i = 0; usable && i < d; i++)
            partial[i % lanes] = fma_of(c->set, row[i], x.int8.mean[i], partial[i % lanes]);
        for (int i = 0; i < lanes; i++)
            total += partial[i];
        expect_float(c, "factor", 0, lane, x.factor[lane], usable ? fmaxf(step, FLT_MIN) : FLT_MIN);
        expect_float(c, "validity", 0, lane, x.validity[lane], r < n && !usable ? NAN : 1.0f);
        expect_float(c, "shift", 0, lane, x.shift[lane] + 0.0f, usable ? scale * total + 0.0f : 0.0f);
    }
}

static void check_pack_keys(const struct tile_case *c)
{
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const int n = c->shape.n, pack = c->set->score_pack;
    const int64_t d = c->shape.d, words = score_words(c);
    const struct drawn_rows k = draw_rows(c, draw_stored_type(c, row_dtype(c)), n, d);
    const struct attn_int8_memory memory = kernels->int8 ? draw_int8_memory(c) : (struct attn_int8_memory){0};
    /* Rows of int8 are stored in whole vectors: there is room behind the last one. */
    const size_t room = (size_t)(n * words * 4) + (kernels->int8 ? ATTN_ALIGN : 0);
    const struct attn_packed_keys dst = {operand_place(c, room), operand_place(c, (size_t)n * 4),
                                         operand_place(c, (size_t)n * 4)};
    TIME_IF_WANTED(c, kernels->pack_keys(&k.rows, n, d, &memory, &dst));
    kernels->pack_keys(&k.rows, n, d, &memory, &dst);
    for (int j = 0; j < n; j++) {
        float row[MAX_CHANNELS];
        const float top = centred(&k, j, memory.mean, d, row);
        const int8_t *bytes = (const int8_t *)dst.words + j * words * 4;
        int32_t sum = 0;
        for (int64_t i = 0; i < words * pack && !(pack == 4 && isnan(top)); i++) {
            const float element = i < d ? element_of(&k, j, i) : 0.0f;
            if (pack == 4) {
                const int byte = i < d ? byte_of(row[i], top) : 0;
                sum += byte;
                expect_word(c, "k", j, i, (uint8_t)bytes[i], (uint8_t)byte);
            } else {
                const attn_dtype word = pack == 2 ? ATTN_BF16 : ATTN_F32;
                expect_float(c, "k", j, i, dtype_load(word, bytes, i), dtype_round(word, element));
            }
        }
        if (pack == 4) {
            expect_float(c, "step of k", 0, j, dst.scale[j], top / 127.0f);
            if (!isnan(top))
                expect_word(c, "start of k", 0, j, (uint32_t)dst.start[j], (uint32_t)(-c->set->query_offset * sum));
        }
    }
}

static void check_scores(const struct tile_case *c)
{
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const int n = c->shape.n, pack = c->set->score_pack, width = c->shape.nv * c->set->lanes;
    const int64_t words = score_words(c);
    struct attn_tile_mask mask = draw_mask(c);
    if (mask.kind == MASK_DIAGONAL && mask.diagonal < n - width) /* keys that no lane sees have been cut off */
        mask.diagonal = n - width;
    const struct drawn_words k = draw_words(c, pack, n, words),
                             q = draw_words(&(struct tile_case){.set = c->set,
                                                                .rng = c->rng,
                                                                .shape = {.plain = 1, .wild = c->shape.wild}},
                                            pack, (int)words, width);
    float *factor = operand_floats(c, width), *steps = operand_floats(c, n), *max = operand_place(c, (size_t)width * 4);
    int32_t *start = operand_place(c, (size_t)n * sizeof *start);
    float *s = operand_place(c, (size_t)(n * width * 4));
    for (int i = 0; i < width; i++)
        factor[i] = fabsf(factor[i]) + 0.125f;
    for (int j = 0; j < n; j++)
        start[j] = (int32_t)rng_range(c->rng, -100000, 100000);
    const int64_t wanted = c->shape.plain ? 64 : RNG_PICK(c->rng, 5, 64, 256);
    const struct drawn_rows soon = draw_rows(c, ATTN_F32, n, wanted);
    struct attn_score_operands x = {.q = (const float *)(const void *)q.at,
                                    .k = k.at,
                                    .k_stride = k.stride,
                                    .words = words,
                                    .mask = &mask,
                                    .factor = factor,
                                    .k_scale = steps,
                                    .start = start,
                                    .s = s};
    const struct attn_soon rows = {soon.rows, wanted, n, rng_percent(c->rng, 50)};
    x.soon = &rows;
    x.num_soon = !c->shape.plain && rng_percent(c->rng, 50);
    TIME_IF_WANTED(c, kernels->scores(c->shape.nv, &x, n, max));
    kernels->scores(c->shape.nv, &x, n, max);
    for (int lane = 0; lane < width; lane++) {
        float top = -INFINITY;
        for (int j = 0; j < n; j++) {
            float raw = 0;
            if (pack == 4) {
                int32_t sum = start[j];
                for (int64_t i = 0; i < words * 4; i++) {
                    const int8_t key = *(const int8_t *)(k.at + j * k.stride + i);
                    const unsigned char *query =
                        (const unsigned char *)q.at + query_at(c, i / 4, width, lane) * 4 + i % 4;
                    sum += key * (c->set->query_offset ? (int)*query : (int)(int8_t)*query);
                }
                raw = (float)sum * steps[j];
            } else {
                for (int64_t w = 0; w < words; w++)
                    raw =
                        dot_of(c->set, pack, k.at + j * k.stride + w * 4, q.at + query_at(c, w, width, lane) * 4, raw);
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

/** The Euclidean length of words of bf16 or int8, stride bytes apart; INFINITY if one is not finite. */
static double length_of(const struct tile_case *c, const char *at, ptrdiff_t stride, int64_t words)
{
    const int pack = c->set->score_pack;
    double squares = 0;
    for (int64_t i = 0; i < pack * words; i++) {
        const char *const word = at + i / pack * stride;
        const double x =
            pack == 4 ? (double)*(const int8_t *)(word + i % pack) : (double)dtype_load(ATTN_BF16, word, i % pack);
        squares += x * x;
    }
    return isfinite(squares) ? sqrt(squares) : (double)INFINITY;
}

/** Bounds: never too low; nor far above what they bound. A NaN bounds nothing, and is as good as an infinity. */
static void expect_bound(const struct tile_case *c, const char *what, int64_t lane, float got, double exact,
                         double slack)
{
    const int right =
        isinf(exact) ? !(got < INFINITY) : (double)got >= exact && ((double)got <= exact * slack || exact > 1e18);
    if (!right)
        report_failure(c->run, c->number, "%s[%lld] is %a for %a (%d vectors, %d keys, %lld channels)", what,
                       (long long)lane, (double)got, exact, c->shape.nv, c->shape.n, (long long)c->shape.d);
}

static void check_reach(const struct tile_case *c)
{
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const int width = c->shape.nv * c->set->lanes;
    const int64_t words = attn_channel_words(kernels, c->shape.d);
    const struct drawn_words q =
        draw_words(&(struct tile_case){.set = c->set, .rng = c->rng, .shape = {.plain = 1, .wild = c->shape.wild}},
                   c->set->score_pack, (int)words, width);
    float *factor = operand_floats(c, width), *reach = operand_place(c, (size_t)width * 4);
    for (int r = 0; r < width; r++)
        factor[r] = (float)(rng_uniform(c->rng) + 0.125);
    TIME_IF_WANTED(c, kernels->reach(c->shape.nv, words, (const float *)(const void *)q.at, factor, reach));
    kernels->reach(c->shape.nv, words, (const float *)(const void *)q.at, factor, reach);
    for (int r = 0; r < width; r++)
        expect_bound(c, "reach", r, reach[r],
                     length_of(c, q.at + 4 * r, (ptrdiff_t)width * 4, words) * (double)factor[r], 1.01);
}

static void check_longest(const struct tile_case *c)
{
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    const int64_t words = attn_channel_words(kernels, c->shape.d);
    const int n = c->shape.n, steps = c->set->score_pack == 4;
    const struct drawn_words k = draw_words(c, c->set->score_pack, n, words);
    float *step = steps ? operand_floats(c, n) : NULL; /* no step is below 0; that of a row with a NaN or Inf is NaN */
    for (int j = 0; j < n && steps; j++)
        step[j] = isfinite(step[j]) ? fabsf(step[j]) : NAN;
    volatile float kept = 0;
    TIME_IF_WANTED(c, kept = kernels->longest(k.at, k.stride, words, step, n));
    (void)kept;
    double most = 0;
    for (int j = 0; j < n; j++) {
        const double length = length_of(c, k.at + j * k.stride, 4, words) * (steps ? (double)step[j] : 1);
        most = isnan(length) ? (double)INFINITY : fmax(most, length);
    }
    expect_bound(c, "longest", 0, kernels->longest(k.at, k.stride, words, step, n), most, steps ? 1.01 : 4.01);
}

/** Blocks at once against steps one by one; which of them are tame, longest decides. */
static void check_walk(const struct tile_case *c)
{
    const struct attn_score_kernels *scores = c->set->kernels->scores;
    const struct attn_value_kernels *values =
        c->set->kernels->values ? c->set->kernels->values : c->set->extends->values;
    const int nv = c->shape.nv, width = nv * c->set->lanes, blocks = c->shape.plain ? 4 : (int)rng_range(c->rng, 1, 4);
    const int keys = blocks * ATTN_KEY_BLOCK, tame = c->shape.plain ? blocks : (int)rng_range(c->rng, 0, blocks);
    const int64_t d = c->shape.d, words = attn_channel_words(scores, d), channels = attn_value_channels(values, d);
    struct tile_case usual = *c;
    usual.shape.wild = 0;
    const struct drawn_words k = draw_words(&usual, c->set->score_pack, keys, words);
    const struct drawn_rows v = draw_rows(&usual, ATTN_BF16, ATTN_KEY_BLOCK, d);
    usual.shape.plain = 1;
    const struct drawn_words q = draw_words(&usual, c->set->score_pack, (int)words, width);
    float *const steps = c->set->score_pack == 4 ? operand_place(c, (size_t)keys * 4) : NULL; /* of bytes of some 74 */
    for (int j = 0; j < keys && steps; j++)
        steps[j] = (float)(rng_uniform(c->rng) + 0.5) / 5476.0f;
    const size_t block = (size_t)(ATTN_KEY_BLOCK / 2 * channels);
    float *const pieces = operand_place(c, (size_t)blocks * block * 4);
    float *const s = operand_place(c, (size_t)(ATTN_KEY_BLOCK * width) * 4), *const p = operand_place(
                                                                                 c,
                                                                                 (size_t)(ATTN_KEY_BLOCK / 2 * width) *
                                                                                     4);
    float *const o = operand_floats(&usual, channels * width), *const l = operand_floats(&usual, width);
    float *const m = operand_place(c, (size_t)width * 4), *const factor = operand_place(c, (size_t)width * 4);
    float *const reach = operand_place(c, (size_t)width * 4), *const longest = operand_place(c, (size_t)blocks * 4);
    for (int b = 0; b < blocks; b++) {
        values->pack_values(pieces + (size_t)b * block, &v.rows, ATTN_KEY_BLOCK, d);
        longest[b] = b == tame ? 1000.0f : 1.0f;
    }
    for (int r = 0; r < width; r++) { /* no score of these reaches m, nor is 125 below it */
        m[r] = (float)rng_range(c->rng, 20 * 256, 40 * 256) / 256;
        factor[r] = 0.125f / sqrtf((float)d);
        reach[r] = 19.0f;
    }
    const struct attn_walk x = {.q = (const float *)(const void *)q.at,
                                .k = k.at,
                                .k_stride = k.stride,
                                .words = words,
                                .factor = factor,
                                .k_scale = steps,
                                .v = (const char *)pieces,
                                .v_stride = channels * 4,
                                .dv = d,
                                .o = o,
                                .reach = reach,
                                .longest = longest,
                                .m = m,
                                .l = l,
                                .s = s,
                                .p = p};
    TIME_IF_WANTED(c, scores->walk(nv, &x, blocks));
    float *const o1 = operand_copy(o, (size_t)(channels * width) * 4), *const l1 = operand_copy(l, (size_t)width * 4);
    expect_word(c, "blocks", 0, 0, (uint32_t)scores->walk(nv, &x, blocks), (uint32_t)tame);
    const struct attn_tile_mask none = {.kind = MASK_NONE};
    float max[64];
    for (int b = 0; b < tame; b++) {
        int ends[ATTN_MAX_VECTORS] = {ATTN_KEY_BLOCK, ATTN_KEY_BLOCK, ATTN_KEY_BLOCK, ATTN_KEY_BLOCK};
        const struct attn_score_operands step = {.q = x.q,
                                                 .k = k.at + b * ATTN_KEY_BLOCK * k.stride,
                                                 .k_stride = k.stride,
                                                 .words = words,
                                                 .mask = &none,
                                                 .factor = factor,
                                                 .k_scale = steps ? steps + b * ATTN_KEY_BLOCK : NULL,
                                                 .s = s};
        scores->scores(nv, &step, ATTN_KEY_BLOCK, max);
        values->weights(nv, m, ends, ATTN_KEY_BLOCK, factor, s, l1);
        for (int i = 0; i < nv; i++)
            ends[i] = ATTN_KEY_BLOCK / 2;
        const struct attn_value_operands add = {.p = s,
                                                .v = (const char *)(pieces + (size_t)b * block),
                                                .v_stride = channels * 4,
                                                .dv = d,
                                                .ends = ends,
                                                .o = o1,
                                                .mode = ACCUMULATE_ADD};
        values->values(nv, &add);
    }
    for (int r = 0; r < width; r++) {
        expect_float(c, "l", 0, r, l[r], l1[r]);
        for (int64_t i = 0; i < d; i++)
            expect_float(c, "o", i, r, o[i * width + r], o1[i * width + r]);
    }
}

static const struct row rows[] = {
    TILE_ROW("survey", HAS_SCORES | HAS_INT8, check_survey),
    TILE_ROW("pack_queries", HAS_SCORES, check_pack_queries),
    TILE_ROW("pack_keys", HAS_SCORES, check_pack_keys),
    TILE_ROW("scores", HAS_SCORES | HAS_NO_MATRIX, check_scores),
    TILE_ROW("reach", HAS_SCORES | HAS_MATRIX, check_reach),
    TILE_ROW("longest", HAS_SCORES | HAS_MATRIX, check_longest),
    TILE_ROW("walk", HAS_SCORES | HAS_MATRIX, check_walk),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    const struct attn_score_kernels *k = set->kernels->scores;
    if (strcmp(row->name, "survey") == 0)
        return k->survey != NULL;
    if (row->needs & HAS_MATRIX)
        return k->reach && k->longest && k->walk;
    return k->pack_queries && k->pack_keys && k->scores;
}

const struct group group_scores = {
    .name = "score_kernels",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
