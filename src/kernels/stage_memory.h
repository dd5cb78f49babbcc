/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks that stand in memory, brought into lane order ([key][query]) for one
 * tile.
 */
#ifndef ATTN_STAGE_MEMORY_H
#define ATTN_STAGE_MEMORY_H

#include <string.h>

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
        transpose_in(bias, width, width, &src, rows, n, 1.0f);
    } else {
        for (int j = 0; j < n; j++)
            for (int r = 0; r < width; r++)
                bias[(ptrdiff_t)j * width + r] =
                    r < rows ? element_at(mask.dtype, mask.data, r * mask.query_stride + j * mask.key_stride) : 0.0f;
    }
}

#endif
