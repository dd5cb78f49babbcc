/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows as K and V are stored: widened to floats, and rounded to 8 bits with a
 * scale each, or to 4 with a scale for each group. All bits count.
 */
#include "operands.h"
#include "dtype.h"

#include <math.h>
#include <string.h>

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

/** Rows of whole lines that go past the caches, copied and rounded to 8 bits: the bytes that others have. */
static void check_stream_end(const struct tile_case *c)
{
    const struct attn_vector_kernels *kernels = c->set->kernels->vectors;
    enum { MOST = 3, WIDTH = 128 };
    static _Alignas(64) char copies[2][MOST][WIDTH * 4], bytes[2][MOST][WIDTH];
    float scales[2][MOST];
    const int n = (int)rng_range(c->rng, 1, MOST);
    const struct drawn_rows x = draw_rows(c, c->shape.dtype, n, WIDTH);
    const attn_dtype to = (attn_dtype)RNG_PICK(c->rng, ATTN_F32, ATTN_BF16, ATTN_F16);
    const attn_dtype small = rng_percent(c->rng, 50) ? ATTN_I8 : ATTN_F8_E4M3;
    for (int streams = 0; streams < 2; streams++) {
        const struct attn_rotation copy = {.x = x.rows,
                                           .out = {.data = copies[streams], .stride = WIDTH * 4, .dtype = to},
                                           .num_rows = n,
                                           .width = WIDTH,
                                           .streams = streams};
        const struct attn_quantisation work = {.x = x.rows,
                                               .out = {.data = bytes[streams], .stride = WIDTH, .dtype = small},
                                               .scale = scales[streams],
                                               .scale_stride = 1,
                                               .num_rows = n,
                                               .width = WIDTH,
                                               .streams = streams};
        kernels->rotate(&copy);
        kernels->quantise(&work);
    }
    TIME_IF_WANTED(c, kernels->stream_end());
    kernels->stream_end();
    for (int r = 0; r < n; r++) {
        expect_word(c, "scale", r, 0, memcmp(&scales[0][r], &scales[1][r], sizeof(float)) != 0, 0);
        for (int i = 0; i < WIDTH * (to == ATTN_F32 ? 4 : 2); i++)
            expect_word(c, "copy", r, i, (uint8_t)copies[1][r][i], (uint8_t)copies[0][r][i]);
        for (int i = 0; i < WIDTH; i++)
            expect_word(c, "bytes", r, i, (uint8_t)bytes[1][r][i], (uint8_t)bytes[0][r][i]);
    }
}

static const struct row rows[] = {
    TILE_ROW("widen", HAS_VECTORS, check_widen),
    TILE_ROW("quantise", HAS_VECTORS, check_quantise),
    TILE_ROW("stream_end", HAS_VECTORS, check_stream_end),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    (void)row;
    return set->kernels->vectors->widen && set->kernels->vectors->quantise && set->kernels->vectors->stream_end;
}

const struct group group_stored = {
    .name = "stored",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
