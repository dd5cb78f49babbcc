/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows as K and V are stored: widened to floats, and rounded to 8 bits with a
 * scale each, or to 4 with a scale for each group. All bits count.
 */
#include "operands.h"
#include "dtype.h"

#include <math.h>

static void check_widen(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int n = c->shape.n;
    const int64_t d = c->shape.d;
    const struct drawn_rows rows = draw_rows(c, draw_stored_type(c, c->shape.dtype), n, d);
    float *dst = operand_place(c, (size_t)(n * d) * 4);
    TIME_IF_WANTED(c, kernels->widen(dst, &rows.rows, n, d));
    kernels->widen(dst, &rows.rows, n, d);
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < d; i++)
            expect_float(c, "dst", r, i, dst[r * d + i], element_of(&rows, r, i));
}

/** Rows in 4 bits: each group from its two ends, and zeros behind the last channel. */
static void expect_groups(const struct tile_case *c, const struct drawn_rows *x, const struct drawn_rows *out, int n,
                          int64_t d)
{
    for (int r = 0; r < n; r++)
        for (int64_t first = 0; first < d; first += 32) {
            float low = 0, high = 0;
            int finite = 1;
            for (int64_t i = first; i < first + 32 && i < d; i++) {
                const float number = element_of(x, r, i);
                finite &= isfinite(number) != 0;
                low = fmaxf(low, -number);
                high = fmaxf(high, number);
            }
            const float sign = high > low ? -1.0f : 1.0f, most = fmaxf(low, high), other = fminf(low, high);
            const float step = fmaxf(most / 8, other / 7), inverse = fminf(8 / most, 7 / other);
            const int zeros = !finite || step < 0x1p-126f;
            expect_float(c, "scale", first, r, scale_of(out, r, first), !finite ? NAN : zeros ? 0.0f : sign * step);
            for (int64_t i = first; i < first + 32; i++) {
                const float number = zeros || i >= d ? 0.0f : rintf(element_of(x, r, i) * (sign * inverse));
                expect_float(c, "out", r, i, dtype_i4_at(out->pointers[r], i) + 0.0f, number + 0.0f);
            }
        }
}

static void check_quantise(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    const int n = c->shape.n, to_int8 = c->shape.plain || rng_percent(c->rng, 50);
    const int to_groups = !c->shape.plain && rng_percent(c->rng, 40);
    const int64_t d = c->shape.d;
    const struct drawn_rows x = draw_rows(c, c->shape.dtype, n, d);
    const struct drawn_rows out = draw_rows(c, to_groups ? ATTN_I4 : to_int8 ? ATTN_I8 : ATTN_F8_E4M3, n, d);
    float *const scale = (float *)(uintptr_t)out.rows.scale;
    const struct attn_quantisation work = {
        .x = x.rows, .out = out.rows, .scale = scale, .scale_stride = out.rows.scale_stride, .num_rows = n, .width = d};
    TIME_IF_WANTED(c, kernels->quantise(&work));
    kernels->quantise(&work);
    if (to_groups) {
        expect_groups(c, &x, &out, n, d);
        return;
    }
    const float most = to_int8 ? 127.0f : 448.0f;
    for (int r = 0; r < n; r++) {
        float top = 0;
        int finite = 1;
        for (int64_t i = 0; i < d; i++) {
            const float size = fabsf(element_of(&x, r, i));
            finite &= isfinite(size) != 0;
            top = size > top ? size : top;
        }
        const int zeros = !finite || !isfinite(most / top);
        expect_float(c, "scale", 0, r, scale[r * work.scale_stride], !finite ? NAN : zeros ? 0.0f : top / most);
        for (int64_t i = 0; i < d; i++) {
            const float number = element_of(&x, r, i) * (most / top);
            const uint8_t expected = zeros ? 0 : to_int8 ? (uint8_t)(int8_t)rintf(number) : dtype_to_f8(number);
            expect_word(c, "out", r, i, (uint8_t)out.pointers[r][i], expected);
        }
    }
}

static const struct row rows[] = {
    TILE_ROW("widen", HAS_VECTORS, check_widen),
    TILE_ROW("quantise", HAS_VECTORS, check_quantise),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    (void)row;
    return set->kernels->vectors->widen && set->kernels->vectors->quantise;
}

const struct group group_stored = {
    .name = "stored",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
