/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Panels of a state that lies on its side: columns fade, one by one, so lanes hold
 * decays, and what a pair of tokens gives to the gradient of those between them
 * (pass/chunk_columns.c). All widths are whole vectors.
 */
#ifndef ATTN_STATE_COLUMNS_H
#define ATTN_STATE_COLUMNS_H

#include "kernels/rows.h"
#include "kernels/states.h"

/** struct attn_state_kernels, fade_columns. */
static void fade_columns(float *to, ptrdiff_t to_pitch, const float *from, ptrdiff_t from_pitch, int64_t n, int width,
                         const float *by)
{
    for (int64_t r = 0; r < n; r++)
        for (int c = 0; c < width; c += VF_LEN)
            vf_store(to + r * to_pitch + c, vf_mul(vf_load(from + r * from_pitch + c), vf_load(by + c)));
}

/** struct attn_state_kernels, add_numbers. */
static void add_numbers(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LEN)
        vf_store(to + i, vf_add(vf_load(to + i), vf_load(from + i)));
}

/** A vector of columns: rows stay in registers, and each token fades on its way through them. */
ATTN_INLINE void near_vector(const int partners, const struct attn_near_columns *x, int c)
{
    vf o[ATTN_NEAR_TOKENS], terms[ATTN_NEAR_TOKENS], sums[ATTN_NEAR_TOKENS];
    for (int i = 0; i < x->n; i++) {
        o[i] = vf_load(x->o + i * x->width + c);
        sums[i] = vf_zero();
    }
    for (int j = 0; j < x->n; j++) {
        vf u = vf_load(x->u + j * x->width + c);
        o[j] = vf_fma(vf_set1(x->scores[j * ATTN_CHUNK + j]), u, o[j]);
        for (int i = j + 1; i < x->n; i++) {
            const vf score = vf_set1(x->scores[i * ATTN_CHUNK + j]);
            u = vf_mul(u, vf_load(x->decay + i * x->width + c));
            o[i] = vf_fma(score, u, o[i]);
            if (partners)
                terms[i] = vf_mul(vf_mul(score, u), vf_load(x->partners.rows + i * x->width + c));
        }
        vf sum = vf_zero();
        for (int i = x->n - 1; i > j && partners; i--) {
            sum = vf_add(sum, terms[i]);
            sums[i] = vf_add(sums[i], sum);
        }
    }
    for (int i = 0; i < x->n; i++) {
        float *const to = x->partners.sums + i * x->partners.pitch + c;
        vf_store(x->o + i * x->width + c, o[i]);
        if (partners)
            vf_store(to, vf_fma(vf_set1(x->partners.factor), sums[i], vf_load(to)));
    }
}

/** struct attn_state_kernels, near_columns. */
static void near_columns(const struct attn_near_columns *x)
{
    for (int c = 0; c < x->width; c += VF_LEN) {
        if (x->partners.rows)
            near_vector(1, x, c);
        else
            near_vector(0, x, c);
    }
}

/** struct attn_state_kernels, sum_later. */
static void sum_later(const struct attn_partners *x, const float *o, int n, int width, int skip, int add)
{
    const vf factor = vf_set1(x->factor);
    for (int c = 0; c < width; c += VF_LEN) {
        vf sum = vf_zero();
        for (int i = n - 1; i >= skip; i--) {
            float *const to = x->sums + i * x->pitch + c;
            sum = vf_fma(vf_load(x->rows + i * width + c), vf_load(o + i * width + c), sum);
            vf_store(to, add ? vf_fma(factor, sum, vf_load(to)) : vf_mul(factor, sum));
        }
    }
}

/** struct attn_state_kernels, add_products. */
static void add_products(float *sums, ptrdiff_t pitch, int n, int width, const float *by, const float *a,
                         ptrdiff_t a_pitch, const float *b, int64_t rows)
{
    for (int c = 0; c < width; c += VF_LEN) {
        vf even = vf_zero(), odd = vf_zero();
        int64_t r = 0;
        for (; r + 2 <= rows; r += 2) {
            even = vf_fma(vf_load(a + r * a_pitch + c), vf_load(b + r * width + c), even);
            odd = vf_fma(vf_load(a + (r + 1) * a_pitch + c), vf_load(b + (r + 1) * width + c), odd);
        }
        if (r < rows)
            even = vf_fma(vf_load(a + r * a_pitch + c), vf_load(b + r * width + c), even);
        const vf sum = vf_mul(vf_add(even, odd), vf_load(by + c));
        for (int i = 0; i < n; i++)
            vf_store(sums + i * pitch + c, vf_add(vf_load(sums + i * pitch + c), sum));
    }
}

#endif
