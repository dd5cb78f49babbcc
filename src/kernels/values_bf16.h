/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P V in pairs of bf16 (v is bf16): pairs of keys. Two rows of V are
 * interleaved once per block of keys, and P is written as pairs, by the header
 * that ATTN_WEIGHTS names (weights_*.h). The denominator is summed from the
 * rounded weights, by the same instruction that multiplies them with V, so
 * rounding does not bias the quotient.
 */
#ifndef ATTN_VALUES_H
#define ATTN_VALUES_H

#include "kernels/dropout.h"
#include "kernels/rows.h"
#include ATTN_WEIGHTS

#include "kernels/value_few.h"
#include "kernels/value_side.h"
#include "kernels/value_tile.h"

/** n elements of two rows as words; second NULL: 0. */
ATTN_INLINE void pack_pair(float *dst, const uint16_t *first, const uint16_t *second, int64_t n)
{
    int64_t c = 0;
    for (; c + VF_LEN <= n; c += VF_LEN) {
        const vw words = vw_interleave(first + c, second ? second + c : first + c);
        vw_store(dst + c, second ? words : vw_first(words));
    }
    for (; c < n; c++) {
        const uint16_t word[2] = {first[c], second ? second[c] : 0};
        memcpy(dst + c, word, sizeof word);
    }
}

/** Elements of a row that are rounded at a time. */
#define ROUNDED 256

/** n rows of V as words of keys; the word of an odd last row has a 0 in its second element. */
static void pack_values(float *dst, const struct attn_rows *src, int n, int64_t dv)
{
    uint16_t rounded[2][ROUNDED];
    for (int j = 0; j < n; j += 2, dst += dv) {
        const char *const first = row_at(src, j), *const second = j + 1 < n ? row_at(src, j + 1) : NULL;
        if (src->dtype == ATTN_BF16) {
            pack_pair(dst, (const void *)first, (const void *)second, dv);
            continue;
        }
        for (int64_t c = 0; c < dv; c += ROUNDED) {
            const int64_t count = dv - c < ROUNDED ? dv - c : ROUNDED;
            bf16_of_row(src, j, c, count, (char *)rounded[0]);
            if (second)
                bf16_of_row(src, j + 1, c, count, (char *)rounded[1]);
            pack_pair(dst + c, rounded[0], second ? rounded[1] : NULL, count);
        }
    }
}

static void make_weights(int nv, const float *m, const int *ends, int n, const float *factor, float *s, float *l)
{
    ATTN_BY_WIDTH(nv, weights_body, m, ends, n, factor, s, l);
}

#ifdef ATTN_ONE_WEIGHTS
#define WEIGHTS_OF_ONE weights_of_one

/** struct attn_value_kernels, weights_of_one. */
static void weights_of_one(float m, int n, float factor, float *s, float *l)
{
    one_weights(m, n, factor, s, l);
}
#else
#define WEIGHTS_OF_ONE NULL
#endif

static void drop_weights(const struct attn_drop *drop, int nv, int n, float *p)
{
    drop_words(2, drop, nv, n, p);
}

static const struct attn_value_kernels value_kernels = {.name = "bf16",
                                                        .keys_per_word = VF_PACK,
                                                        .headroom = WEIGHTS_HEADROOM,
                                                        .pack_values = pack_values,
                                                        .values_of_few = VALUES_OF_FEW,
                                                        .weights = make_weights,
                                                        .weights_of_one = WEIGHTS_OF_ONE,
                                                        .values_side_by_side = VALUES_SIDE_BY_SIDE,
                                                        .drop = drop_weights,
                                                        .values = value_tile,
                                                        .finite = values_finite,
                                                        .values_seen = values_seen};

#endif
