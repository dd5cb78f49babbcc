/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of f32, bf16 and f16 as vectors of floats. Arithmetic is in f32
 * throughout: what is narrower is widened, exactly, on its way in, and what
 * goes out is rounded once. Rows of K and V may be quantised: then a number is
 * multiplied by the scale of its row or group, and the product, rounded to f32,
 * is the element.
 *
 * The bodies take the type as a constant; ATTN_BY_DTYPE calls them with one
 * that is known at run time, and ATTN_BY_STORED with one of K or V.
 */
#ifndef ATTN_ROWS_H
#define ATTN_ROWS_H

#include "kernels/element.h"
#include "kernels/prefetch.h"
#include "kernels/width.h"

#include <string.h>

#define ATTN_BY_DTYPE(dtype, body, ...)                                                                                \
    do {                                                                                                               \
        if ((dtype) == ATTN_F32)                                                                                       \
            body(ATTN_F32, __VA_ARGS__);                                                                               \
        else if ((dtype) == ATTN_BF16)                                                                                 \
            body(ATTN_BF16, __VA_ARGS__);                                                                              \
        else                                                                                                           \
            body(ATTN_F16, __VA_ARGS__);                                                                               \
    } while (0)

#define ATTN_BY_STORED(dtype, body, ...)                                                                               \
    do {                                                                                                               \
        if ((dtype) == ATTN_I8)                                                                                        \
            body(ATTN_I8, __VA_ARGS__);                                                                                \
        else if ((dtype) == ATTN_F8_E4M3)                                                                              \
            body(ATTN_F8_E4M3, __VA_ARGS__);                                                                           \
        else if ((dtype) == ATTN_I4)                                                                                   \
            body(ATTN_I4, __VA_ARGS__);                                                                                \
        else                                                                                                           \
            ATTN_BY_DTYPE(dtype, body, __VA_ARGS__);                                                                   \
    } while (0)

/** Define a function for each type of a row, of K or V for the second, that is body with it and other operands. */
#define ATTN_APART_DTYPE(name, body, parameters, ...)                                                                  \
    ATTN_APART(name##_f32, body, parameters, ATTN_F32, __VA_ARGS__)                                                    \
    ATTN_APART(name##_bf16, body, parameters, ATTN_BF16, __VA_ARGS__)                                                  \
    ATTN_APART(name##_f16, body, parameters, ATTN_F16, __VA_ARGS__)

#define ATTN_APART_STORED(name, body, parameters, ...)                                                                 \
    ATTN_APART(name##_i8, body, parameters, ATTN_I8, __VA_ARGS__)                                                      \
    ATTN_APART(name##_f8, body, parameters, ATTN_F8_E4M3, __VA_ARGS__)                                                 \
    ATTN_APART(name##_i4, body, parameters, ATTN_I4, __VA_ARGS__)                                                      \
    ATTN_APART_DTYPE(name, body, parameters, __VA_ARGS__)

/** Call these. */
#define ATTN_BY_DTYPE_APART(dtype, name, ...)                                                                          \
    do {                                                                                                               \
        if ((dtype) == ATTN_F32)                                                                                       \
            name##_f32(__VA_ARGS__);                                                                                   \
        else if ((dtype) == ATTN_BF16)                                                                                 \
            name##_bf16(__VA_ARGS__);                                                                                  \
        else                                                                                                           \
            name##_f16(__VA_ARGS__);                                                                                   \
    } while (0)

#define ATTN_BY_STORED_APART(dtype, name, ...)                                                                         \
    do {                                                                                                               \
        if ((dtype) == ATTN_I8)                                                                                        \
            name##_i8(__VA_ARGS__);                                                                                    \
        else if ((dtype) == ATTN_F8_E4M3)                                                                              \
            name##_f8(__VA_ARGS__);                                                                                    \
        else if ((dtype) == ATTN_I4)                                                                                   \
            name##_i4(__VA_ARGS__);                                                                                    \
        else                                                                                                           \
            ATTN_BY_DTYPE_APART(dtype, name, __VA_ARGS__);                                                             \
    } while (0)

/** Calls body with the vectors of so many lanes that a row is. */
#define ATTN_SIDE_BY_WIDTH(width, body, dtype, ...)                                                                    \
    do {                                                                                                               \
        if ((width) == ATTN_SIDE_WORDS)                                                                                \
            body(dtype, ATTN_SIDE_WORDS / VF_LEN, __VA_ARGS__);                                                        \
        else if ((width) == ATTN_SIDE_WORDS / 2)                                                                       \
            body(dtype, ATTN_SIDE_WORDS / 2 / VF_LEN, __VA_ARGS__);                                                    \
        else                                                                                                           \
            body(dtype, ATTN_SIDE_WORDS / 4 / VF_LEN, __VA_ARGS__);                                                    \
    } while (0)

/** Row i. */
ATTN_INLINE char *row_at(const struct attn_rows *rows, int64_t i)
{
    return (char *)rows->data + i * rows->stride;
}

/** VF_LEN elements; of quantised rows the numbers, without their scale. */
ATTN_INLINE vf row_load(const attn_dtype dtype, const void *p)
{
    return dtype == ATTN_F32    ? vf_load(p)
           : dtype == ATTN_BF16 ? vf_load_bf16(p)
           : dtype == ATTN_F16  ? vf_load_f16(p)
           : dtype == ATTN_I8   ? vf_load_int8(p)
                                : vf_load_f8(p);
}

/** The first n elements, the rest 0; reads no byte behind them. */
ATTN_INLINE vf row_load_tail(const attn_dtype dtype, const void *p, int n)
{
    if (dtype == ATTN_F32)
        return vf_load_tail(p, n);
    uint16_t t[VF_LEN] = {0};
    memcpy(t, p, (size_t)(n * attn_element_size(dtype)));
    return row_load(dtype, t);
}

ATTN_INLINE void row_store(const attn_dtype dtype, void *p, vf a)
{
    if (dtype == ATTN_F32)
        vf_store(p, a);
    else if (dtype == ATTN_BF16)
        vf_store_bf16(p, a);
    else
        vf_store_f16(p, a);
}

ATTN_INLINE void row_store_tail(const attn_dtype dtype, void *p, vf a, int n)
{
    if (dtype == ATTN_F32) {
        vf_store_tail(p, a, n);
    } else {
        uint16_t t[VF_LEN];
        row_store(dtype, t, a);
        memcpy(p, t, (size_t)n * sizeof *t);
    }
}

/** The scales of row i; NULL if the type has none. */
ATTN_INLINE const float *scales_at(const attn_dtype dtype, const struct attn_rows *rows, int64_t i)
{
    return attn_is_quantised(dtype) ? rows->scale + i * rows->scale_stride : NULL;
}

/** Where channel c of a row lies: of ATTN_I4 the byte that has it. */
ATTN_INLINE const char *stored_at(const attn_dtype dtype, const char *row, int64_t c)
{
    const int64_t half = ATTN_I4_GROUP / 2;
    return row + (dtype == ATTN_I4 ? c / ATTN_I4_GROUP * half + c % half : c * attn_element_size(dtype));
}

/** The scale of channel c and its neighbours; 1 if the type has none. */
ATTN_INLINE float stored_scale(const attn_dtype dtype, const float *scales, int64_t c)
{
    return dtype == ATTN_I4 ? scales[c / ATTN_I4_GROUP] : attn_is_quantised(dtype) ? *scales : 1.0f;
}

/** The scales from channel c on, where a group begins; scales may be NULL. */
ATTN_INLINE const float *scales_in(const attn_dtype dtype, const float *scales, int64_t c)
{
    return dtype == ATTN_I4 ? scales + c / ATTN_I4_GROUP : scales;
}

/** The bit at which a number of ATTN_I4 begins in its byte. */
ATTN_INLINE int stored_bit(int64_t c)
{
    return c % ATTN_I4_GROUP < ATTN_I4_GROUP / 2 ? 0 : 4;
}

/** VF_LEN numbers of a row of K or V from channel c on, a multiple of VF_LEN, without their scales. */
ATTN_INLINE vf stored_numbers(const attn_dtype dtype, const char *row, int64_t c)
{
    const char *const at = stored_at(dtype, row, c);
    return dtype == ATTN_I4 ? vf_load_int4((const uint8_t *)at, stored_bit(c)) : row_load(dtype, at);
}

/** The same of the first n, the rest 0. */
ATTN_INLINE vf stored_numbers_tail(const attn_dtype dtype, const char *row, int64_t c, int n)
{
    const char *const at = stored_at(dtype, row, c);
    if (dtype != ATTN_I4)
        return row_load_tail(dtype, at, n);
    uint8_t numbers[VF_LEN] = {0}; /* whatever lies behind the last channel */
    memcpy(numbers, at, (size_t)n);
    return vf_load_int4(numbers, stored_bit(c));
}

/** The elements. */
ATTN_INLINE vf stored_load(const attn_dtype dtype, const char *row, int64_t c, const float *scales)
{
    const vf numbers = stored_numbers(dtype, row, c);
    return attn_is_quantised(dtype) ? vf_mul(numbers, vf_set1(stored_scale(dtype, scales, c))) : numbers;
}

/** The same of the first n, the rest 0 or NaN. */
ATTN_INLINE vf stored_load_tail(const attn_dtype dtype, const char *row, int64_t c, int n, const float *scales)
{
    const vf numbers = stored_numbers_tail(dtype, row, c, n);
    return attn_is_quantised(dtype) ? vf_mul(numbers, vf_set1(stored_scale(dtype, scales, c))) : numbers;
}

/** The elements of a whole group of ATTN_I4, from channel c on. */
ATTN_INLINE void stored_group(const char *row, int64_t c, const float *scales, vf *elements)
{
    const uint8_t *const at = (const uint8_t *)stored_at(ATTN_I4, row, c);
    const float *const scale = scales_in(ATTN_I4, scales, c);
    ATTN_UNROLL
    for (int u = 0; u < ATTN_I4_GROUP / 2 / VF_LEN; u++)
        vf_scaled_int4(at + u * VF_LEN, scale, &elements[u], &elements[ATTN_I4_GROUP / 2 / VF_LEN + u]);
}

/** n rows of cols elements as floats, one behind the other. */
ATTN_INLINE void widen_rows(const attn_dtype dtype, float *dst, const struct attn_rows *src, int n, int64_t cols)
{
    for (int j = 0; j < n; j++) {
        const char *row = row_at(src, j);
        const float *scales = scales_at(dtype, src, j);
        int64_t c = 0;
        for (; c + VF_LEN <= cols; c += VF_LEN)
            vf_store(dst + j * cols + c, stored_load(dtype, row, c, scales));
        if (c < cols) {
            const int rest = (int)(cols - c);
            vf_store_tail(dst + j * cols + c, stored_load_tail(dtype, row, c, rest, scales), rest);
        }
    }
}

/** Rows of K or V as floats, one behind the other. */
static inline void widen_stored(float *dst, const struct attn_rows *src, int n, int64_t cols)
{
    ATTN_BY_STORED(src->dtype, widen_rows, dst, src, n, cols);
}

/** n elements of a row, from element c on, in bf16. */
ATTN_INLINE void round_body(const attn_dtype dtype, const char *row, const float *scales, int64_t c, int64_t n,
                            char *dst)
{
    for (int64_t i = 0; i < n; i += VF_LEN) {
        const int rest = n - i < VF_LEN ? (int)(n - i) : VF_LEN;
        if (rest == VF_LEN)
            row_store(ATTN_BF16, dst + 2 * i, stored_load(dtype, row, c + i, scales));
        else
            row_store_tail(ATTN_BF16, dst + 2 * i, stored_load_tail(dtype, row, c + i, rest, scales), rest);
    }
}

/** The same of a row of any type, c being a multiple of VF_LEN; scales as of scales_at(). */
static inline void bf16_elements(attn_dtype dtype, const char *row, const float *scales, int64_t c, int64_t n,
                                 char *dst)
{
    if (dtype == ATTN_BF16)
        memcpy(dst, row + 2 * c, (size_t)n * 2);
    else
        ATTN_BY_STORED(dtype, round_body, row, scales, c, n, dst);
}

/** The same of row i. */
static inline void bf16_of_row(const struct attn_rows *rows, int64_t i, int64_t c, int64_t n, char *dst)
{
    bf16_elements(rows->dtype, row_at(rows, i), scales_at(rows->dtype, rows, i), c, n, dst);
}

/** Rows of a kind that will be wanted soon and have not been asked for. */
struct soon_rows {
    const char *next;
    ptrdiff_t stride, bytes;
    int left, at_once, write;
};

/** Lines that one of so many turns asks for, if they ask for all. */
ATTN_INLINE int64_t soon_lines(const struct attn_score_operands *x, int turns)
{
    int64_t lines = 0;
    for (int i = 0; i < x->num_soon; i++) {
        const ptrdiff_t bytes = (ptrdiff_t)attn_row_bytes(x->soon[i].rows.dtype, x->soon[i].width);
        lines += x->soon[i].num * ((bytes + ATTN_ALIGN - 1) / ATTN_ALIGN);
    }
    return lines / turns;
}

/** All kinds, which so many turns ask for. */
ATTN_INLINE void begin_asking(const struct attn_score_operands *x, int turns, struct soon_rows kinds[ATTN_MAX_SOON])
{
    for (int i = 0; i < x->num_soon; i++) {
        const struct attn_soon *const soon = &x->soon[i];
        kinds[i] = (struct soon_rows){.next = soon->rows.data,
                                      .stride = soon->rows.stride,
                                      .bytes = (ptrdiff_t)attn_row_bytes(soon->rows.dtype, soon->width),
                                      .left = soon->num,
                                      .at_once = (soon->num + turns - 1) / turns,
                                      .write = soon->write};
    }
}

/** One of these turns. */
ATTN_INLINE void ask_for_soon(int num, struct soon_rows kinds[ATTN_MAX_SOON])
{
    for (int i = 0; i < num; i++) {
        struct soon_rows *const rows = &kinds[i];
        for (int r = 0; r < rows->at_once && rows->left > 0; r++, rows->left--, rows->next += rows->stride) {
            if (rows->write)
                prefetch_row(rows->next, rows->bytes, 1);
            else
                prefetch_row(rows->next, rows->bytes, 0);
        }
    }
}

/** Asks for rows first..end-1 of those that are wanted next. */
ATTN_INLINE void ask_for_next(const struct attn_listed_rows *listed, int first, int end, const int near)
{
    for (int i = first; i < end; i++)
        for (ptrdiff_t c = 0; c < listed->next_bytes; c += ATTN_ALIGN) {
            if (near)
                __builtin_prefetch(listed->next[i] + c, 0, 3);
            else
                __builtin_prefetch(listed->next[i] + c, 0, 2);
        }
}

/** Asks for what is to be fetched beside rows first..end-1 of a list. */
ATTN_INLINE void ask_for_rows(const struct attn_listed_rows *listed, int first, int end)
{
    end = end < listed->num_next ? end : listed->num_next;
    if (listed->near)
        ask_for_next(listed, first, end, 1);
    else
        ask_for_next(listed, first, end, 0);
}

#endif
