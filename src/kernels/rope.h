/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ATTN_KERNELS_ROPE_H
#define ATTN_KERNELS_ROPE_H
static void rotate_rows(const struct attn_rows *dst, const struct attn_rows *src, const float *table,
                        ptrdiff_t table_stride, int64_t n, int64_t pairs, int64_t width, attn_rope_layout layout)
{
    for (int64_t i = 0; i < n; i++) {
        float *to = (float *)(void *)row_at(dst, i);
        const char *from = row_at(src, i);
        const float *row = table + i * table_stride;
        for (int64_t c = 0; c < width; c++)
            to[c] = element_at(src->dtype, from, c);
        for (int64_t c = 0; c < pairs; c++) {
            const int64_t a = layout == ATTN_ROPE_HALF_SPLIT ? c : 2 * c;
            const int64_t b = layout == ATTN_ROPE_HALF_SPLIT ? c + pairs : 2 * c + 1;
            const float x = to[a], y = to[b];
            to[a] = x * row[c] - y * row[pairs + c];
            to[b] = y * row[c] + x * row[pairs + c];
        }
    }
}
#endif
