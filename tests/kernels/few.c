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
    const int most = most_few(c->set);
    few.shape.nv = 1;
    if (!c->shape.plain && rng_percent(c->rng, 30)) { /* words of narrow numbers hold many channels */
        few.shape.n = (int)rng_range(c->rng, 1, ATTN_KEY_BLOCK);
        few.shape.d = rng_range(c->rng, 1, 300);
    }
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

/** A type that pairs take as it lies, if this case has one; else ATTN_F32. */
static attn_dtype draw_exact(const struct tile_case *c)
{
    if (!c->set->kernels->scores || !c->set->kernels->scores->exact_pairs || c->shape.plain || rng_percent(c->rng, 40))
        return ATTN_F32;
    return (attn_dtype)RNG_PICK(c->rng, ATTN_I4, ATTN_F8_E4M3);
}

static struct drawn_keys draw_keys(const struct tile_case *c, int64_t words, int free)
{
    const int pack = c->set->score_pack;
    const attn_dtype exact = free && pack == 2 ? draw_exact(c) : ATTN_F32;
    if (exact != ATTN_F32) {
        const struct drawn_rows rows = draw_rows(c, exact, c->shape.n, exact == ATTN_I4 ? c->shape.d : 2 * words);
        return (struct drawn_keys){rows.rows.data, rows.rows.stride, exact, rows};
    }
    if (pack == 1) {
        const attn_dtype any = draw_stored_type(c, c->shape.dtype);
        const struct drawn_rows rows = draw_rows(c, free && attn_turns_faster(any) ? ATTN_I8 : any, c->shape.n, words);
        return (struct drawn_keys){rows.rows.data, rows.rows.stride, rows.rows.dtype, rows};
    }
    const struct drawn_words k = draw_words(c, pack, c->shape.n, words);
    return (struct drawn_keys){.at = k.at, .stride = k.stride, .dtype = ATTN_F32};
}

/** Where n rows are, and their scales; with others to ask for meanwhile, some rows that are not there among them. */
static struct attn_listed_rows list_rows(const struct tile_case *c, const char *at, ptrdiff_t stride,
                                         const struct drawn_rows *rows)
{
    const int n = c->shape.n;
    const char **list = operand_place(c, (size_t)n * sizeof *list);
    const float **scale = operand_place(c, (size_t)n * sizeof *scale);
    for (int j = 0; j < n; j++) {
        list[j] = at + j * stride;
        scale[j] = rows->rows.scale ? rows->rows.scale + j * rows->rows.scale_stride : NULL;
    }
    return (struct attn_listed_rows){.at = list,
                                     .scale = scale,
                                     .dtype = rows->rows.data ? rows->rows.dtype : ATTN_F32,
                                     .next = list,
                                     .num_next = (int)rng_range(c->rng, 0, n),
                                     .next_bytes = rng_range(c->rng, 0, 4 * c->shape.d)};
}

/** Queries row by row in the order of the numbers of ATTN_I4: zeros stand for channels that there are not. */
static struct drawn_words draw_int4_queries(const struct tile_case *c, int rows, int64_t d)
{
    const struct drawn_words q = draw_words(c, 2, rows, attn_int4_words(d));
    for (int r = 0; r < rows; r++)
        for (int64_t i = 0; i < 2 * attn_int4_words(d); i++)
            if (i / 128 * 128 + attn_int4_channel((int)(i % 128)) >= d)
                memset((char *)(uintptr_t)q.at + r * q.stride + 2 * i, 0, 2);
    return q;
}

/** What the scores of few queries are made of. */
struct drawn_scores {
    int64_t words; /**< of a row */
    struct attn_tile_mask mask;
    struct drawn_keys k;
    struct drawn_words q; /**< in lane order, or row by row */
    float *factor, *s, *max;
    struct attn_score_operands x; /**< that point to these; but for mask, which the caller's copy has to have */
};

static struct drawn_scores draw_scores(const struct tile_case *c, int rows, int by_row)
{
    const int n = c->shape.n, pack = c->set->score_pack, width = c->set->lanes;
    const int64_t words = (c->shape.d + pack - 1) / pack;
    const struct tile_case queries = {.set = c->set, .rng = c->rng, .shape = {.plain = 1, .wild = c->shape.wild}};
    struct drawn_scores d = {.words = words, .mask = draw_mask(c), .k = draw_keys(c, words, by_row)};
    d.q = d.k.dtype == ATTN_I4 && by_row ? draw_int4_queries(&queries, rows, c->shape.d)
          : by_row                       ? draw_words(&queries, pack, rows, words)
                                         : draw_words(&queries, pack, (int)words, width);
    d.factor = operand_floats(c, width);
    d.max = operand_place(c, (size_t)width * 4);
    d.s = operand_place(c, (size_t)(n * width * 4));
    for (int i = 0; i < width; i++)
        d.factor[i] = fabsf(d.factor[i]) + 0.125f;
    d.x = (struct attn_score_operands){.q = (const float *)(const void *)d.q.at,
                                       .words = words,
                                       .rows = rows,
                                       .listed = list_rows(c, d.k.at, d.k.stride, &d.k.rows),
                                       .factor = d.factor,
                                       .s = d.s};
    return d;
}

/** That a lane has its scores, which a function gives before factor and mask, and their maximum. */
static void expect_scores(const struct tile_case *c, const struct drawn_scores *d, int lane,
                          float (*raw_of)(const struct tile_case *c, const struct drawn_scores *d, int lane, int j))
{
    const int raw_scores = c->set->kernels->scores->raw, width = c->set->lanes;
    float top = -INFINITY;
    for (int j = 0; j < c->shape.n; j++) {
        const float score = masked(c->set, &d->mask, j, lane, raw_scores, d->factor[lane], raw_of(c, d, lane, j));
        top = score > top ? score : top;
        expect_float(c, "s", j, lane, d->s[j * width + lane], score);
    }
    if (raw_scores && d->mask.kind != MASK_BIAS)
        top *= d->factor[lane];
    expect_float(c, "max", 0, lane, d->max[lane], top);
}

/** One chain of sums over the channels. */
static float ordered_sum(const struct tile_case *c, const struct drawn_scores *d, int lane, int j)
{
    const int pack = c->set->score_pack;
    float raw = 0;
    for (int64_t w = 0; w < d->words; w++) {
        const float element = pack == 1 ? element_of(&d->k.rows, j, w) : 0.0f;
        const void *const word = pack == 1 ? (const void *)&element : d->k.at + j * d->k.stride + w * 4;
        raw = dot_of(c->set, pack, word, d->q.at + w * d->q.stride + lane * 4, raw);
    }
    return raw;
}

static void check_scores_of_few(const struct tile_case *any)
{
    int rows;
    const struct tile_case few = of_few(any, &rows), *c = &few;
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    struct drawn_scores d = draw_scores(c, rows, 0);
    d.x.mask = &d.mask;
    TIME_IF_WANTED(c, kernels->scores_of_few(&d.x, c->shape.n, d.max));
    kernels->scores_of_few(&d.x, c->shape.n, d.max);
    for (int lane = 0; lane < rows; lane++)
        expect_scores(c, &d, lane, ordered_sum);
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

/** A sum in each lane, and then these. A scale of a whole row multiplies what comes of it. */
static float free_sum(const struct tile_case *c, const struct drawn_scores *d, int lane, int j)
{
    const int pack = c->set->score_pack, width = c->set->lanes;
    float partial[MAX_LANES] = {0};
    for (int64_t w = 0; w < d->words; w++) {
        const int exact = pack == 2 && attn_is_quantised(d->k.dtype);
        const float element = pack == 1 || exact ? number_of(&d->k.rows, j, pack * w) : 0.0f;
        const uint16_t pair[2] = {dtype_narrow(ATTN_BF16, (double)element),
                                  exact ? dtype_narrow(ATTN_BF16, (double)number_of(&d->k.rows, j, 2 * w + 1))
                                        : (uint16_t)0};
        const void *const word = exact       ? (const void *)pair
                                 : pack == 1 ? (const void *)&element
                                             : d->k.at + j * d->k.stride + w * 4;
        partial[w % width] = dot_of(c->set, pack, word, d->q.at + lane * d->q.stride + w * 4, partial[w % width]);
    }
    const float raw = sum_of_lanes(c, partial);
    return attn_is_quantised(d->k.dtype) ? raw * scale_of(&d->k.rows, j, 0) : raw;
}

/** The same of ATTN_I4 in pairs: four lanes of a group, its scale, and then the groups of all slices of 128 channels.
 */
static float free_int4_sum(const struct tile_case *c, const struct drawn_scores *d, int lane, int j)
{
    float quarters[4] = {0};
    for (int64_t group = 0; group * 32 < c->shape.d; group++) {
        const int64_t slice = group / 4;
        const char *const q = d->q.at + lane * d->q.stride + slice * 256;
        float x[4] = {0};
        for (int t = 0; t < 4; t++)
            for (int i = 0; i < 4; i++) { /* elements 2i, 2i + 1 of the group are a word */
                const int64_t first = group * 32 + (t % 2 ? 16 : 0) + 4 * i + t / 2;
                const uint16_t pair[2] = {
                    dtype_narrow(ATTN_BF16, (double)dtype_i4_at(d->k.rows.pointers[j], first)),
                    dtype_narrow(ATTN_BF16, (double)dtype_i4_at(d->k.rows.pointers[j], first + 2))};
                x[i] = dot_of(c->set, 2, pair, q + t * 64 + group % 4 * 16 + i * 4, x[i]);
            }
        const float sum = (x[0] + x[2]) + (x[1] + x[3]);
        quarters[group % 4] = fma_of(c->set, sum, scale_of(&d->k.rows, j, group * 32), quarters[group % 4]);
    }
    return (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]);
}

static void check_scores_free(const struct tile_case *any)
{
    int rows;
    const struct tile_case few = of_few(any, &rows), *c = &few;
    const struct attn_score_kernels *kernels = c->set->kernels->scores;
    struct drawn_scores d = draw_scores(c, rows, 1);
    d.x.mask = &d.mask;
    TIME_IF_WANTED(c, kernels->scores_free(&d.x, c->shape.n, d.max));
    kernels->scores_free(&d.x, c->shape.n, d.max);
    for (int lane = 0; lane < rows; lane++)
        expect_scores(c, &d, lane, d.k.dtype == ATTN_I4 && c->set->score_pack == 2 ? free_int4_sum : free_sum);
}

static void check_weights_of_few(const struct tile_case *any)
{
    int rows;
    const struct tile_case few = of_few(any, &rows), *c = &few;
    const struct attn_value_kernels *kernels = c->set->kernels->values;
    const int n = c->shape.n, width = c->set->lanes;
    float *s = operand_floats(c, (int64_t)n * width), *m = operand_floats(c, width), *l = operand_floats(c, width);
    float *factor = operand_floats(c, width);
    const int whole = c->shape.plain || rng_percent(c->rng, 50);
    rows = rows < ATTN_FEW_WEIGHTS ? rows : ATTN_FEW_WEIGHTS;
    for (int r = 0; r < width; r++) {
        factor[r] = fabsf(factor[r]) + 0.125f;
        m[r] = !c->shape.plain && rng_percent(c->rng, 5) ? -INFINITY : fabsf(m[r]) + 8;
        for (int j = 0; j < n; j++) /* what a lane does not see has been masked */
            if (!c->shape.plain && rng_percent(c->rng, 5))
                s[j * width + r] = -INFINITY;
    }
    TIME_IF_WANTED(c, kernels->weights_of_few(rows, m, n, whole ? NULL : factor, s, l));
    const float *scores = operand_copy(s, (size_t)(n * width) * 4), *sums = operand_copy(l, (size_t)width * 4);
    kernels->weights_of_few(rows, m, n, whole ? NULL : factor, s, l);
    float total[MAX_LANES] = {0}, x[MAX_LANES] = {0}, p[MAX_LANES];
    for (int j = 0; j < n; j++) {
        for (int r = 0; r < rows; r++)
            x[r] = scores[j * width + r] * (whole ? 1.0f : factor[r]) - (m[r] == -INFINITY ? 0.0f : m[r]);
        apply(c->set, "vf_exp2", p, x);
        for (int r = 0; r < rows; r++) {
            expect_float(c, "p", j, r, s[j * width + r], p[r]);
            total[r] += p[r];
        }
    }
    for (int r = 0; r < rows; r++)
        expect_float(c, "l", 0, r, l[r], sums[r] + total[r]);
}

/** Two numbers that bf16 has exactly, the weights of which have been multiplied by their scales and rounded. */
static float add_exact_pair(const struct tile_case *c, const struct attn_few_values *x, const struct drawn_rows *v,
                            int u, int r, int64_t i, float sum)
{
    uint16_t p[2], number[2] = {0, 0}, weight[2] = {0, 0};
    memcpy(p, &x->p[u * c->set->lanes + r], sizeof p);
    for (int k = 0; k < 2 && 2 * u + k < x->keys; k++) {
        const float product = dtype_widen(ATTN_BF16, p[k]) * scale_of(v, 2 * u + k, i);
        number[k] = dtype_narrow(ATTN_BF16, (double)number_of(v, 2 * u + k, i));
        weight[k] = dtype_narrow(ATTN_BF16, (double)(c->set->narrow_flushes ? flushed(product) : product));
    }
    return dot_of(c->set, 2, number, weight, sum);
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
                                      .v = list_rows(c, v.rows.data, v.rows.stride, &v),
                                      .dv = d,
                                      .rows = rows,
                                      .keys = n,
                                      .free = (int)rng_range(c->rng, 0, 1),
                                      .o = operand_floats(c, rows * d),
                                      .mode = draw_mode(c),
                                      .alpha = operand_floats(c, rows)};
    const int by_weight = x.free && pack == 1 && attn_is_quantised(v.rows.dtype) && v.rows.dtype != ATTN_I4;
    const int in_pairs = x.free && (v.rows.dtype == ATTN_I4 || v.rows.dtype == ATTN_F8_E4M3) &&
                         c->set->kernels->scores && c->set->kernels->scores->exact_pairs;
    if (in_pairs) { /* scales have been checked, and what stands for no key has no weight */
        for (int j = 0; j < n; j++)
            for (int64_t g = 0; g < attn_row_scales(v.rows.dtype, d); g++)
                if (!isfinite(x.v.scale[j][g]))
                    ((float *)(uintptr_t)x.v.scale[j])[g] = 1.0f;
        for (int r = 0; n % 2 && r < rows; r++)
            memset((char *)(uintptr_t)&x.p[(words - 1) * width + r] + 2, 0, 2);
    }
    TIME_IF_WANTED(c, kernels->values_of_few(&x));
    const float *before = operand_copy(x.o, (size_t)(rows * d) * 4);
    kernels->values_of_few(&x);
    for (int r = 0; r < rows; r++)
        for (int64_t i = 0; i < d; i++) {
            const float at = before[r * d + i];
            float sum = x.mode == ACCUMULATE_FIRST ? 0 : x.mode == ACCUMULATE_ADD ? at : at * x.alpha[r];
            for (int u = 0; in_pairs && u < words; u++)
                sum = add_exact_pair(c, &x, &v, u, r, i, sum);
            for (int u = 0; !in_pairs && u < words; u++) {
                const float element = by_weight ? number_of(&v, u, i) : element_of(&v, pack * u, i);
                const float weight = by_weight ? x.p[u * width + r] * scale_of(&v, u, 0) : x.p[u * width + r];
                const float next = pack == 2 && 2 * u + 1 < n ? element_of(&v, 2 * u + 1, i) : 0.0f;
                const uint16_t pair[2] = {dtype_narrow(ATTN_BF16, (double)element),
                                          dtype_narrow(ATTN_BF16, (double)next)};
                sum = dot_of(c->set, pack, pack == 1 ? (const void *)&element : pair, &weight, sum);
            }
            if (in_pairs) /* the sign of a zero goes when it is written */
                expect_float(c, "o", r, i, x.o[r * d + i] + 0.0f, sum + 0.0f);
            else
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
    TILE_ROW("weights_of_few", HAS_FLOAT_VALUES | HAS_FEW_VALUES, check_weights_of_few),
    TILE_ROW("values_of_few", HAS_VALUES | HAS_FEW_VALUES, check_values_of_few),
    TILE_ROW("write_few", HAS_VECTORS | HAS_FEW, check_write_few),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    return row->needs & HAS_SCORES         ? set->kernels->scores->scores_of_few && set->kernels->scores->scores_free
           : row->needs & HAS_FLOAT_VALUES ? set->kernels->values->weights_of_few != NULL
           : row->needs & HAS_VALUES       ? set->kernels->values->values_of_few != NULL
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
