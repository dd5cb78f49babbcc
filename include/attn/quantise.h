/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file quantise.h
 * @brief Keys and values in 8 bits, with a scale for each token and head.
 *
 * What a cache of keys and values holds is read again for every token that is
 * decoded. In 8 bits it is read four times as fast as f32 and twice as fast as
 * bf16; docs/numerics.md has the errors.
 *
 * @code
 *     int8_t bytes[T * D];
 *     float scales[T];
 *     attn_tensor small = attn_bhtd(bytes, 1, 1, T, D), scale = attn_bhtd(scales, 1, 1, T, 1);
 *     small.dtype = ATTN_I8;
 *     attn_quantise(&k, &small, &scale, 0);
 *     params.k_scale = &scale;                        // and k is small
 *     attn_forward(&q, &small, &v, &out, &params);
 * @endcode
 */
#ifndef ATTN_QUANTISE_H
#define ATTN_QUANTISE_H

#include "attn/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Rounds rows to 8 bits: each row gets the scale with which its largest size
 * becomes the type's largest number.
 *
 *     top   = the largest |x[c]| of the row;  most = 127 for ATTN_I8, 448 for ATTN_F8_E4M3
 *     scale = top / most,  out[c] = x[c] * (most / top) rounded to nearest, ties to even
 *
 * in f32, step by step, so the numbers are the same on every instruction set. A row
 * of zeros has the scale 0 and zeros, and so has one whose most / top is not finite
 * (top below 1.4e-36). A row with a NaN or an infinity has the scale NaN and zeros:
 * attn_forward() refuses a live key with such a scale.
 *
 * @param x           (B, H, T, d) f32, bf16 or f16, any strides
 * @param out         (B, H, T, d) ATTN_I8 or ATTN_F8_E4M3, written
 * @param scale       (B, H, T, 1) f32, written: out is to be multiplied by it; any strides
 * @param num_threads 0: attn_default_num_threads()
 * @return ATTN_OK, or what is wrong with an argument; nothing has been written then
 *
 * out and scale have memory of their own. May be called from several threads at
 * once. @since 0.1
 */
ATTN_API attn_status attn_quantise(const attn_tensor *x, const attn_tensor *out, const attn_tensor *scale,
                                   int num_threads);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_QUANTISE_H */
