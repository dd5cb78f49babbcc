/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks of one tile (a strip of queries by a block of keys).
 *
 * stage_mask() looks at everything that can hide a key from a query in this
 * tile and says which of four cases holds; masks that stand in memory are
 * brought into lane order ([key][query]) on the way. Most tiles of a causal or
 * padded run are MASK_NONE or MASK_DEAD and run no mask code.
 *
 * A hidden score becomes -inf by selection, never by arithmetic, so a NaN in
 * its K row is gone. A NaN or Inf in the V row of a key that is hidden from
 * some lanes only would still turn 0 * V into NaN: tiles with a mask look
 * whether their V block is finite, and take value_tile_masked() if not.
 */
#ifndef ATTN_MASK_H
#define ATTN_MASK_H

#include <float.h>
#include <math.h>
#include <string.h>

#define LOG2E      0x1.715476p+0f
#define LN2        0x1.62e43p-1f

#define LIVE_PITCH ATTN_LIVE_PITCH(STRIP)

enum mask_kind {
    MASK_NONE,     /**< every lane sees every key */
    MASK_DEAD,     /**< no lane sees any key */
    MASK_DIAGONAL, /**< lane r sees key j when j <= r + diagonal */
    MASK_LIVE,     /**< bytes in scratch->live, the diagonal included */
    MASK_BIAS      /**< floats in scratch->bias, -inf where hidden for any reason */
};

struct mask {
    enum mask_kind kind;
    int64_t diagonal; /**< lane r of the strip sees key j of the block when j <= r + diagonal */
    const uint8_t *live;
    const float *bias;
};

/* 16 bytes in the compiler's own vector type: punpck on x86, zip on AArch64. */
typedef uint8_t vb __attribute__((vector_size(16)));

/** Transposes 16 x 16 bytes: four rounds of interleaving row i with row i + 8. */
ATTN_INLINE void transpose_bytes(vb a[16])
{
    vb t[16];
    ATTN_UNROLL
    for (int round = 0; round < 2; round++) {
        ATTN_UNROLL
        for (int i = 0; i < 8; i++) {
            t[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            t[2 * i + 1] =
                __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        ATTN_UNROLL
        for (int i = 0; i < 8; i++) {
            a[2 * i] = __builtin_shufflevector(t[i], t[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            a[2 * i + 1] =
                __builtin_shufflevector(t[i], t[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
    }
}

/** Whether some byte is not 0. */
ATTN_INLINE int any_byte(vb a)
{
    uint64_t halves[2];
    memcpy(halves, &a, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

/** What a staged boolean tile holds. */
struct extent {
    int any, all; /**< some, every element is live */
};

/** live[j * LIVE_PITCH + r] = mask(r, j); rows behind the last repeat it. */
static struct extent stage_live(uint8_t *live, int width, struct attn_grid mask, int rows, int n)
{
    const uint8_t *src = mask.data;
    vb any = {0}, zero = {0};
    if (mask.query_stride == 0) {
        for (int j = 0; j < n; j++) {
            const uint8_t byte = src[j * mask.key_stride];
            any[0] |= byte;
            zero[0] |= byte == 0;
            memset(live + (ptrdiff_t)j * LIVE_PITCH, byte, (size_t)width);
        }
        return (struct extent){any_byte(any), !any_byte(zero)};
    }
    if (mask.key_stride != 1) {
        for (int j = 0; j < n; j++) {
            for (int r = 0; r < width; r++) {
                const uint8_t byte = src[(r < rows ? r : rows - 1) * mask.query_stride + j * mask.key_stride];
                any[0] |= byte;
                zero[0] |= byte == 0;
                live[(ptrdiff_t)j * LIVE_PITCH + r] = byte;
            }
        }
        return (struct extent){any_byte(any), !any_byte(zero)};
    }
    for (int j = 0; j < n; j += 16) {
        const int size = n - j < 16 ? n - j : 16;
        for (int r = 0; r < width; r += 16) {
            vb x[16];
            for (int i = 0; i < 16; i++) {
                const uint8_t *row = src + (r + i < rows ? r + i : rows - 1) * mask.query_stride + j;
                if (j % ATTN_ALIGN == 0) /* a line of the next tile; an address behind the mask does no harm */
                    __builtin_prefetch((const void *)((uintptr_t)row + KEY_BLOCK), 0, 2);
                if (size == 16) {
                    memcpy(&x[i], row, 16);
                } else {
                    memset(&x[i], row[0], 16); /* repeats a byte that counts already */
                    memcpy(&x[i], row, (size_t)size);
                }
                any |= x[i];
                zero |= (vb)(x[i] == 0);
            }
            transpose_bytes(x);
            for (int i = 0; i < size; i++)
                memcpy(live + (ptrdiff_t)(j + i) * LIVE_PITCH + r, &x[i], 16);
        }
    }
    return (struct extent){any_byte(any), !any_byte(zero)};
}

/** bias[j * width + r] = mask(r, j), in natural units still. */
static void stage_bias(float *bias, int width, struct attn_grid mask, int rows, int n)
{
    if (mask.query_stride == 0) {
        for (int j = 0; j < n; j++) {
            const vf b = vf_set1(element_at(mask.dtype, mask.data, j * mask.key_stride));
            for (int r = 0; r < width; r += VF_LEN)
                vf_store(bias + (ptrdiff_t)j * width + r, b);
        }
    } else if (mask.key_stride == 1) {
        const struct attn_rows src = {mask.data, mask.query_stride * row_element(mask.dtype), mask.dtype};
        transpose_in(bias, width, &src, rows, n, 1.0f);
    } else {
        for (int j = 0; j < n; j++)
            for (int r = 0; r < width; r++)
                bias[(ptrdiff_t)j * width + r] =
                    r < rows ? element_at(mask.dtype, mask.data, r * mask.query_stride + j * mask.key_stride) : 0.0f;
    }
}

/**
 * A bias in base 2. What is finite stays finite: masks are often filled with
 * the smallest float, and a row of nothing else is a row of equal biases.
 */
ATTN_INLINE vf bias_in_base2(vf natural)
{
    const vf largest = vf_set1(FLT_MAX), scaled = vf_mul(natural, vf_set1(LOG2E));
    const vf bounded = vf_max(vf_set1(-FLT_MAX), vf_select(vf_gt(scaled, largest), largest, scaled));
    return vf_select(vf_gt(natural, largest), natural, bounded);
}

/** Lanes 0..hidden(j)-1 do not see key j. */
static inline int hidden_lanes(int64_t diagonal, int j, int width)
{
    const int64_t first = j - diagonal;
    return first <= 0 ? 0 : first < width ? (int)first : width;
}

/** Of n keys, those that the lanes before lane see: a prefix. */
static inline int visible_before(int64_t diagonal, int lane, int n)
{
    const int64_t visible = diagonal + lane;
    return visible <= 0 ? 0 : visible < n ? (int)visible : n;
}

/**
 * Finds out how the tile of strip rows first_row.. and keys first_key.. is
 * masked. n has been cut to the keys that some row sees by the diagonal.
 */
static struct mask stage_mask(const struct attn_work *work, const struct attn_scratch *scratch, int width,
                              int64_t first_row, int rows, int64_t first_key, int n)
{
    struct mask mask = {MASK_NONE, first_row + work->diagonal - first_key, scratch->live, scratch->bias};
    const int diagonal = mask.diagonal < n - 1;
    if (diagonal)
        mask.kind = MASK_DIAGONAL;
    if (work->mask.data) {
        struct attn_grid grid = work->mask;
        grid.data = (uint8_t *)grid.data + first_row * grid.query_stride + first_key * grid.key_stride;
        const struct extent extent = stage_live(scratch->live, width, grid, rows, n);
        if (!extent.any) {
            mask.kind = MASK_DEAD;
            return mask;
        }
        if (!extent.all) {
            mask.kind = MASK_LIVE;
            for (int j = 0; diagonal && j < n; j++)
                memset(scratch->live + (ptrdiff_t)j * LIVE_PITCH, 0, (size_t)hidden_lanes(mask.diagonal, j, width));
        }
    }
    if (work->bias.data) {
        struct attn_grid grid = work->bias;
        grid.data =
            (char *)grid.data + (first_row * grid.query_stride + first_key * grid.key_stride) * row_element(grid.dtype);
        stage_bias(scratch->bias, width, grid, rows, n);
        const vf minus_inf = vf_set1(-INFINITY);
        vf visible = vf_zero();
        for (int j = 0; j < n; j++) {
            float *row = scratch->bias + (ptrdiff_t)j * width;
            const int hidden = diagonal ? hidden_lanes(mask.diagonal, j, width) : 0;
            for (int r = 0; r < hidden; r++)
                row[r] = -INFINITY;
            for (int r = 0; r < width; r += VF_LEN) {
                const vf natural = vf_load(row + r);
                vf b = vf_select(vf_eq(natural, minus_inf), minus_inf, bias_in_base2(natural));
                if (mask.kind == MASK_LIVE)
                    b = vf_select(vm_from_bytes(scratch->live + (ptrdiff_t)j * LIVE_PITCH + r), b, minus_inf);
                vf_store(row + r, b);
                visible = vf_select(vf_eq(b, minus_inf), visible, vf_set1(1.0f));
            }
        }
        mask.kind = vm_any(vf_gt(visible, vf_zero())) ? MASK_BIAS : MASK_DEAD;
    }
    return mask;
}

/** The lanes of vector v of the strip that see key j. */
ATTN_INLINE vm mask_lanes(enum mask_kind kind, const struct mask *mask, int width, int j, int v)
{
    if (kind == MASK_NONE)
        return vf_eq(vf_zero(), vf_zero());
    if (kind == MASK_DIAGONAL) {
        const vf lane = vf_add(vf_iota(), vf_set1((float)(v * VF_LEN)));
        return vf_ge(lane, vf_set1((float)hidden_lanes(mask->diagonal, j, width)));
    }
    if (kind == MASK_LIVE)
        return vm_from_bytes(mask->live + (ptrdiff_t)j * LIVE_PITCH + v * VF_LEN);
    const vf b = vf_load(mask->bias + (ptrdiff_t)j * width + v * VF_LEN); /* live: above -inf, or NaN */
    const vf hidden = vf_select(vf_eq(b, vf_set1(-INFINITY)), vf_set1(1.0f), vf_zero());
    return vf_eq(hidden, vf_zero());
}

/** A vector of scores with its mask put on; a bias is added to whole scores, so raw ones are multiplied first. */
ATTN_INLINE vf masked_score(const enum mask_kind kind, const struct mask *mask, int width, int j, int v,
                            const float *factor, vf x)
{
    const vf minus_inf = vf_set1(-INFINITY);
    if (kind == MASK_NONE)
        return x;
    if (kind == MASK_BIAS) {
        const vf b = vf_load(mask->bias + (ptrdiff_t)j * width + v * VF_LEN);
        return vf_select(vf_eq(b, minus_inf), minus_inf,
                         RAW_SCORES ? vf_fma(x, vf_load(factor + v * VF_LEN), b) : vf_add(x, b));
    }
    return vf_select(mask_lanes(kind, mask, width, j, v), x, minus_inf);
}

#endif
