/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of struct attn_vector_kernels: transposes, the steps of the
 * softmax between the products, rotation and merging. All bits count, but for
 * the merge of parts, whose exponentials are libm's.
 */
#include "operands.h"
#include "dtype.h"

#include <float.h>
#include <math.h>
#include <string.h>

static int width_of(const struct tile_case *c)
{
    return c->shape.nv * c->set->lanes;
}

/** Rows of a strip: all of them, or fewer. */
static int draw_row_count(const struct tile_case *c)
{
    return c->shape.plain ? width_of(c) : (int)rng_range(c->rng, 0, width_of(c));
}

static void check_read_rows(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int width = width_of(c), n = draw_row_count(c);
    const int64_t d = c->shape.d, pitch = width + (c->shape.plain ? 0 : rng_range(c->rng, 0, 7));
    const struct drawn_rows rows = draw_rows(c, c->shape.dtype, n, d);
    const float factor = rng_normal(c->rng);
    float *dst = operand_place(c, (size_t)((d - 1) * pitch + width) * 4);
    TIME_IF_WANTED(c, kernels->read_rows(dst, pitch, width, rows.pointers, rows.rows.dtype, n, d, factor));
    kernels->read_rows(dst, pitch, width, rows.pointers, rows.rows.dtype, n, d, factor);
    for (int64_t i = 0; i < d; i++)
        for (int r = 0; r < width; r++) {
            const float expected = (r < n ? element_of(&rows, r, i) : 0.0f) * factor;
            expect_float(c, "dst", i, r, dst[i * pitch + r] + 0.0f, expected + 0.0f);
        }
}

static void check_write_rows(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int width = width_of(c), n = draw_row_count(c);
    const int64_t d = c->shape.d;
    const struct drawn_rows rows = draw_rows(c, c->shape.dtype, n, d);
    const float *src = operand_floats(c, d * width), *factor = operand_floats(c, width);
    TIME_IF_WANTED(
        c, kernels->write_rows((char *const *)(uintptr_t)rows.pointers, rows.rows.dtype, src, width, n, d, factor));
    kernels->write_rows((char *const *)(uintptr_t)rows.pointers, rows.rows.dtype, src, width, n, d, factor);
    for (int64_t i = 0; i < d; i++)
        for (int r = 0; r < n; r++)
            expect_float(c, "rows", r, i, element_of(&rows, r, i),
                         dtype_round(rows.rows.dtype, fma_of(c->set, src[i * width + r], factor[r], 0.0f)));
}

/** A bias in base 2: what is finite stays finite. */
static float in_base2(float natural)
{
    const float scaled = natural * ATTN_LOG2E;
    return isfinite(natural) && isinf(scaled) ? copysignf(FLT_MAX, scaled) : scaled;
}

static void check_join_bias(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int width = width_of(c), n = c->shape.n, natural = c->shape.plain || rng_percent(c->rng, 70);
    const int with_distances = !c->shape.plain && rng_percent(c->rng, 50);
    const int with_live = !c->shape.plain && rng_percent(c->rng, 50);
    const ptrdiff_t pitch = width + rng_range(c->rng, 0, 5);
    float *bias = operand_floats(c, (int64_t)n * width), *distances = operand_floats(c, n - 1 + width);
    uint8_t *live = operand_place(c, (size_t)((n - 1) * pitch + width));
    const int hidden = rng_percent(c->rng, 20) ? 100 : 40;
    for (int64_t i = 0; i < (n - 1) * pitch + width; i++)
        live[i] = rng_percent(c->rng, hidden) ? 0 : 255;
    for (int i = 0; i < n - 1 + width; i++)
        distances[i] = rng_percent(c->rng, 20) ? -INFINITY : distances[i];
    for (int i = 0; i < n * width; i++)
        bias[i] = rng_percent(c->rng, 20) ? -INFINITY : bias[i];
    volatile int kept = 0;
    TIME_IF_WANTED(c, kept = kernels->join_bias(c->shape.nv, n, bias, 1, NULL, NULL, 0));
    (void)kept;
    const float *before = operand_copy(bias, (size_t)(n * width) * 4);
    const int visible = kernels->join_bias(c->shape.nv, n, bias, natural, with_distances ? distances : NULL,
                                           with_live ? live : NULL, pitch);
    int sees = 0;
    for (int j = 0; j < n; j++)
        for (int r = 0; r < width; r++) {
            const float given = natural ? before[j * width + r] : 0.0f;
            const float distance = with_distances ? distances[n - 1 - j + r] : 0.0f;
            float expected = given == -INFINITY || distance == -INFINITY ? -INFINITY : in_base2(given) + distance;
            if (isnan(given)) /* scaling keeps what is no number */
                expected = distance == -INFINITY ? -INFINITY : NAN;
            if (with_live && !live[j * pitch + r])
                expected = -INFINITY;
            sees |= expected != -INFINITY;
            expect_float(c, "bias", j, r, bias[j * width + r] + 0.0f, expected + 0.0f);
        }
    expect_word(c, "visible", 0, 0, visible != 0, (uint32_t)sees);
}

static void check_finish_scores(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int width = width_of(c), n = c->shape.n, lanes = c->set->lanes;
    const struct attn_tile_mask mask = draw_mask(c);
    float *s = operand_floats(c, (int64_t)n * width), *max = operand_place(c, (size_t)width * 4);
    const float *factor = !c->shape.plain && rng_percent(c->rng, 50) ? operand_floats(c, width) : NULL;
    const float cap = c->shape.plain || rng_percent(c->rng, 50) ? 0.0f : 3.5f;
    TIME_IF_WANTED(c, kernels->finish_scores(c->shape.nv, &mask, n, factor, cap, s, max));
    const float *before = operand_copy(s, (size_t)(n * width) * 4);
    kernels->finish_scores(c->shape.nv, &mask, n, factor, cap, s, max);
    for (int v = 0; v < c->shape.nv; v++) {
        float top[MAX_LANES], x[MAX_LANES], bent[MAX_LANES];
        for (int j = 0; j < n; j++) {
            for (int i = 0; i < lanes; i++) {
                const int r = v * lanes + i;
                bent[i] = before[j * width + r] * (factor ? factor[r] : 1.0f);
                x[i] = bent[i] / (cap == 0 ? 1.0f : cap);
            }
            if (cap != 0)
                apply(c->set, "vf_tanh", bent, x);
            for (int i = 0; i < lanes; i++) {
                const int r = v * lanes + i;
                const float score = masked(c->set, &mask, j, r, 0, 1, cap == 0 ? bent[i] : cap * bent[i]);
                top[i] = j == 0 || score > top[i] ? score : top[i];
                if (j == 0 && isnan(score))
                    top[i] = -INFINITY;
                expect_float(c, "s", j, r, s[j * width + r], score);
            }
        }
        for (int i = 0; i < lanes; i++)
            expect_float(c, "max", 0, v * lanes + i, max[v * lanes + i], top[i]);
    }
}

static void check_multiply(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int64_t n = (int64_t)c->shape.n * width_of(c);
    float *s = operand_floats(c, n);
    const float x = c->shape.plain ? 1.0f : rng_normal(c->rng);
    TIME_IF_WANTED(c, kernels->multiply(s, n, x));
    const float *before = operand_copy(s, (size_t)n * 4);
    kernels->multiply(s, n, x);
    for (int64_t i = 0; i < n; i++)
        expect_float(c, "s", 0, i, s[i], before[i] * x);
}

static void check_hide_again(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int width = width_of(c), n = c->shape.n;
    const struct attn_tile_mask mask = draw_mask(c);
    float *s = operand_floats(c, (int64_t)n * width), *max = operand_place(c, (size_t)width * 4);
    for (int i = 0; i < n * width; i++) /* what the callback hides, and often only what the mask does */
        if (rng_percent(c->rng, 2))
            s[i] = -INFINITY;
    volatile int kept = 0;
    TIME_IF_WANTED(c, kept = kernels->hide_again(c->shape.nv, &mask, n, s, max));
    (void)kept;
    const float *before = operand_copy(s, (size_t)(n * width) * 4);
    const int hides = kernels->hide_again(c->shape.nv, &mask, n, s, max);
    int more = 0;
    for (int r = 0; r < width; r++) {
        float top = -INFINITY;
        for (int j = 0; j < n; j++) {
            const float x = before[j * width + r] * ATTN_LOG2E;
            const float score = mask_sees(&mask, j, r) ? x : -INFINITY;
            more |= mask_sees(&mask, j, r) && x == -INFINITY;
            top = score > top ? score : top;
            expect_float(c, "s", j, r, s[j * width + r], score);
        }
        expect_float(c, "max", 0, r, max[r], top);
    }
    expect_word(c, "hides", 0, 0, hides != 0, (uint32_t)more);
}

/** Where a maximum goes for the sake of a higher one. */
static float raised(float max, float m, float headroom)
{
    if (!(max > m) || headroom == 0.0f)
        return max > m ? max : m;
    return (fabsf(max) < 0x1p15f ? floorf(max * 256 + 0.5f) / 256 : max) + headroom;
}

static void check_raise_maximum(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int width = width_of(c), lanes = c->set->lanes;
    float *max = operand_floats(c, width), *m = operand_floats(c, width), *l = operand_floats(c, width);
    float *alpha = operand_floats(c, width);
    const int higher = rng_percent(c->rng, 50);
    const float headroom = c->shape.plain || rng_percent(c->rng, 50) ? 0.0f : 24.0f;
    for (int r = 0; r < width; r++) { /* m is never NaN: maxima leave that out */
        if (isnan(m[r]) || rng_percent(c->rng, 20))
            m[r] = -INFINITY;
        if (isnan(max[r]) || rng_percent(c->rng, 20))
            max[r] = -INFINITY;
        if (!higher && rng_percent(c->rng, 95) && max[r] > m[r])
            max[r] = m[r];
    }
    volatile int kept = 0;
    TIME_IF_WANTED(c, (m[0] = -9.0f, kept = kernels->raise_maximum(c->shape.nv, headroom, max, m, l, alpha)));
    (void)kept;
    const float *m0 = operand_copy(m, (size_t)width * 4), *l0 = operand_copy(l, (size_t)width * 4);
    const float *alpha0 = operand_copy(alpha, (size_t)width * 4);
    const int grew = kernels->raise_maximum(c->shape.nv, headroom, max, m, l, alpha);
    int grows = 0;
    for (int r = 0; r < width; r++)
        grows |= max[r] > m0[r];
    expect_word(c, "grew", 0, 0, grew != 0, (uint32_t)grows);
    for (int v = 0; v < c->shape.nv; v++) {
        float x[MAX_LANES], a[MAX_LANES];
        for (int i = 0; i < lanes; i++) {
            const int r = v * lanes + i;
            const float top = raised(max[r], m0[r], headroom);
            x[i] = m0[r] - (top == -INFINITY ? 0.0f : top);
        }
        apply(c->set, "vf_exp2", a, x);
        for (int i = 0; i < lanes; i++) {
            const int r = v * lanes + i;
            expect_float(c, "m", 0, r, m[r], raised(max[r], m0[r], headroom));
            expect_float(c, "l", 0, r, l[r], grows ? l0[r] * a[i] : l0[r]);
            expect_float(c, "alpha", 0, r, alpha[r], grows ? a[i] : alpha0[r]);
        }
    }
}

static void check_finish(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int width = width_of(c), lanes = c->set->lanes, int8 = rng_percent(c->rng, 40);
    float *l = operand_floats(c, width), *validity = operand_floats(c, width);
    const float *m = operand_floats(c, width), *shift = operand_floats(c, width);
    for (int r = 0; r < width; r++) {
        l[r] = rng_percent(c->rng, 20) ? 0.0f : fabsf(l[r]);
        validity[r] = rng_percent(c->rng, 20) ? NAN : 1.0f;
    }
    const struct attn_finish x = {.m = m,
                                  .l = l,
                                  .validity = int8 ? validity : NULL,
                                  .shift = int8 ? shift : NULL,
                                  .headroom = c->shape.plain || rng_percent(c->rng, 50) ? 0.0f : 24.0f,
                                  .keep_scale = rng_percent(c->rng, 50) ? 1.0f : 1.25f,
                                  .inverse = operand_place(c, (size_t)width * 4),
                                  .lse = c->shape.plain || rng_percent(c->rng, 70) ? operand_place(c, (size_t)width * 4)
                                                                                   : NULL};
    TIME_IF_WANTED(c, kernels->finish(c->shape.nv, &x));
    kernels->finish(c->shape.nv, &x);
    for (int v = 0; v < c->shape.nv; v++) {
        float scaled[MAX_LANES], logs[MAX_LANES];
        for (int i = 0; i < lanes; i++)
            scaled[i] = ldexpf(l[v * lanes + i], (int)x.headroom);
        apply(c->set, "vf_log", logs, scaled);
        for (int i = 0; i < lanes; i++) {
            const int r = v * lanes + i;
            const float one = int8 ? validity[r] : 1.0f, lower = m[r] - x.headroom;
            const float base = int8 ? lower + shift[r] : lower;
            expect_float(c, "inverse", 0, r, x.inverse[r], l[r] == 0 ? 0.0f : one / l[r] * x.keep_scale);
            if (x.lse)
                expect_float(c, "lse", 0, r, x.lse[r],
                             l[r] == 0 ? -INFINITY : one * fma_of(c->set, base, ATTN_LN2, logs[i]));
        }
    }
}

static void check_normalise(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int width = width_of(c), n = c->shape.n;
    const struct attn_tile_mask mask = draw_mask(c);
    float *p = operand_floats(c, (int64_t)n * width);
    float *inverse = operand_floats(c, width);
    for (int r = 0; r < width && c->shape.plain; r++) /* again and again it would lead to denormals, which are slow */
        inverse[r] = 1.0f;
    TIME_IF_WANTED(c, kernels->normalise(c->shape.nv, &mask, n, inverse, p));
    const float *before = operand_copy(p, (size_t)(n * width) * 4);
    kernels->normalise(c->shape.nv, &mask, n, inverse, p);
    for (int j = 0; j < n; j++)
        for (int r = 0; r < width; r++)
            expect_float(c, "p", j, r, p[j * width + r],
                         mask_sees(&mask, j, r) ? before[j * width + r] * inverse[r] : 0.0f);
}

static void check_rotate(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int n = c->shape.n, in_place = !c->shape.plain && rng_percent(c->rng, 40);
    const int64_t d = c->shape.d, pairs = c->shape.plain ? d / 2 : rng_range(c->rng, 0, d / 2);
    const ptrdiff_t stride = rng_percent(c->rng, 20) ? 0 : 2 * pairs + rng_range(c->rng, 0, 3);
    const struct drawn_rows x = draw_rows(c, c->shape.dtype, n, d);
    const attn_dtype to = rng_percent(c->rng, 50) ? ATTN_F32 : c->shape.dtype;
    const struct drawn_rows out = in_place ? x : draw_rows(c, to, n, d);
    const float *table = operand_floats(c, (n - 1) * stride + 2 * pairs);
    const struct attn_rotation rotation = {.x = x.rows,
                                           .out = out.rows,
                                           .table = table,
                                           .table_stride = stride,
                                           .num_rows = n,
                                           .pairs = pairs,
                                           .width = d,
                                           .layout =
                                               rng_percent(c->rng, 50) ? ATTN_ROPE_HALF_SPLIT : ATTN_ROPE_INTERLEAVED};
    float *before = operand_place(c, (size_t)(n * d) * 4);
    for (int j = 0; j < n; j++)
        for (int64_t i = 0; i < d; i++)
            before[j * d + i] = element_of(&x, j, i);
    TIME_IF_WANTED(c, kernels->rotate(&rotation));
    kernels->rotate(&rotation);
    for (int j = 0; j < n; j++) {
        const float *row = before + j * d, *angles = table + j * stride;
        for (int64_t i = 0; i < d; i++) {
            const int split = rotation.layout == ATTN_ROPE_HALF_SPLIT, second = split ? i >= pairs : (int)(i % 2);
            const int64_t pair = split ? i % (pairs ? pairs : 1) : i / 2;
            const int64_t first_at = split ? pair : 2 * pair, second_at = split ? pairs + pair : 2 * pair + 1;
            float expected = row[i];
            if (i < 2 * pairs && !second)
                expected = fma_of(c->set, row[second_at], angles[pairs + pair] * -1, row[first_at] * angles[pair]);
            else if (i < 2 * pairs)
                expected = fma_of(c->set, row[first_at], angles[pairs + pair], row[second_at] * angles[pair]);
            expect_float(c, "out", j, i, element_of(&out, j, i), dtype_round(out.rows.dtype, expected));
        }
    }
}

/** Against the definition in double: weights are rounded to f32, and each part adds a rounding. */
static void check_merge(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    enum { MOST = 70 };
    const int parts = (int)rng_range(c->rng, 1, rng_percent(c->rng, 5) ? MOST : 5), rows = c->shape.n;
    const int64_t d = rng_percent(c->rng, 2) ? rng_range(c->rng, 500, 1100) : c->shape.d;
    attn_tensor tensors[MOST], lses[MOST];
    float *numbers = operand_place(c, (size_t)(parts * rows) * 4);
    struct tile_case usual = *c;
    usual.shape.wild = 0;
    for (int i = 0; i < parts; i++) {
        const attn_dtype dtype =
            c->shape.plain ? ATTN_F32 : (attn_dtype)RNG_PICK(c->rng, ATTN_F32, ATTN_BF16, ATTN_F16);
        char *at = i < 8 ? operand_place(c, (size_t)(rows * d) * (dtype == ATTN_F32 ? 4 : 2)) : tensors[i % 8].data;
        tensors[i] = i < 8 ? (attn_tensor){at, dtype, {1, 1, rows, d}, {0, 0, d, 1}} : tensors[i % 8];
        lses[i] = (attn_tensor){numbers + (ptrdiff_t)i * rows, ATTN_F32, {1, 1, rows, 1}, {0, 0, 1, 1}};
        for (int64_t k = 0; k < rows * d && i < 8; k++)
            dtype_store(dtype, at, k, draw_number(&usual));
        for (int r = 0; r < rows; r++)
            numbers[i * rows + r] = rng_percent(c->rng, 20) ? -INFINITY : 5 * rng_normal(c->rng);
    }
    float *out_data = operand_place(c, (size_t)(rows * d) * 4), *lse_data = operand_place(c, (size_t)rows * 4);
    const attn_tensor out = {out_data, ATTN_F32, {1, 1, rows, d}, {0, 0, d, 1}};
    const attn_tensor lse = {lse_data, ATTN_F32, {1, 1, rows, 1}, {0, 0, 1, 1}};
    const struct attn_merge_work work = {parts, tensors, lses, &out, &lse, 0, rows};
    TIME_IF_WANTED(c, kernels->merge(&work));
    kernels->merge(&work);
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int i = 0; i < parts; i++)
            sum += exp((double)numbers[i * rows + r]);
        if (!(fabs((double)lse_data[r] - log(sum)) <= 1e-6 * (1 + fabs(log(sum)))) && sum > 0)
            report_failure(c->run, c->number, "lse of row %d is %g, expected %g", r, (double)lse_data[r], log(sum));
        if (sum == 0)
            expect_float(c, "lse", 0, r, lse_data[r], -INFINITY);
        for (int64_t k = 0; k < d; k++) {
            double mean = 0, size = 0;
            for (int i = 0; i < parts && sum > 0; i++) {
                const double x = (double)dtype_load(tensors[i].dtype, tensors[i].data, r * d + k);
                mean += exp((double)numbers[i * rows + r]) / sum * x;
                size += exp((double)numbers[i * rows + r]) / sum * fabs(x);
            }
            if (!(fabs((double)out_data[r * d + k] - mean) <= (parts + 2) * 0x1p-23 * size))
                report_failure(c->run, c->number, "out[%d][%lld] is %g, expected %g, of %d parts", r, (long long)k,
                               (double)out_data[r * d + k], mean, parts);
        }
    }
}

static void check_exp2(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int n = c->shape.plain ? 16 * c->set->lanes : (int)rng_range(c->rng, 0, 3 * c->set->lanes);
    const int lanes = c->set->lanes;
    float *src = operand_floats(c, n), *dst = operand_place(c, (size_t)n * 4);
    for (int i = 0; i < n; i++)
        src[i] = -fabsf(src[i] * 20);
    TIME_IF_WANTED(c, kernels->exp2(dst, src, n));
    kernels->exp2(dst, src, n);
    for (int i = 0; i < n; i++) { /* whatever the neighbours are */
        float x[MAX_LANES] = {0}, y[MAX_LANES];
        x[i * 7 % lanes] = src[i];
        apply(c->set, "vf_exp2", y, x);
        expect_float(c, "dst", 0, i, dst[i], y[i * 7 % lanes]);
    }
}

static const struct row rows[] = {
    TILE_ROW("read_rows", HAS_VECTORS, check_read_rows),
    TILE_ROW("write_rows", HAS_VECTORS, check_write_rows),
    TILE_ROW("join_bias", HAS_VECTORS, check_join_bias),
    TILE_ROW("finish_scores", HAS_VECTORS, check_finish_scores),
    TILE_ROW("multiply", HAS_VECTORS, check_multiply),
    TILE_ROW("hide_again", HAS_VECTORS, check_hide_again),
    TILE_ROW("raise_maximum", HAS_VECTORS, check_raise_maximum),
    TILE_ROW("finish", HAS_VECTORS, check_finish),
    TILE_ROW("normalise", HAS_VECTORS, check_normalise),
    TILE_ROW("rotate", HAS_VECTORS, check_rotate),
    TILE_ROW("merge", HAS_VECTORS, check_merge),
    TILE_ROW("exp2", HAS_VECTORS, check_exp2),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    const struct attn_vector_kernels *k = set->kernels->vectors;
    (void)row;
    return k->read_rows && k->write_rows && k->join_bias && k->finish_scores && k->multiply && k->hide_again &&
           k->raise_maximum && k->finish && k->normalise && k->rotate && k->merge && k->exp2;
}

const struct group group_vectors = {
    .name = "vector_kernels",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
