/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file quantise.h
 * @brief Keys and values in 8 or 4 bits, with a scale for each token and head, or for each 32 channels.
 *
 * What a cache of keys and values holds is read again for every token that is
 * decoded. In 8 bits it is a quarter of what it is in f32 and half of that in bf16;
 * in 4 bits, with their scales, it is five eighths of that in 8. docs/numerics.md has
 * the errors.
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
 *
 * In 4 bits rows are whole groups (ATTN_I4), of which the last one may have fewer
 * channels:
 *
 * @code
 *     enum { GROUPS = (D + 31) / 32 };
 *     uint8_t bytes[T * GROUPS * 16];                 // attn_row_size(ATTN_I4, D) each
 *     float scales[T * GROUPS];
 *     attn_tensor small = attn_bhtd(bytes, 1, 1, T, GROUPS * 32), scale = attn_bhtd(scales, 1, 1, T, GROUPS);
 *     small.dtype = ATTN_I4;
 *     small.shape[3] = D;                             // strides stay those of whole groups
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
 * becomes the type's largest number; or to 4 bits: each 32 channels get the
 * smallest step of which neither end is cut off.
 *
 *     top   = the largest |x[c]| of the row;  most = 127 for ATTN_I8, 448 for ATTN_F8_E4M3
 *     scale = top / most,  out[c] = x[c] * (most / top) rounded to nearest, ties to even
 *
 * in f32, step by step, so the numbers are the same on every instruction set. A row
 * of zeros has the scale 0 and zeros, and so has one whose most / top is not finite
 * (top below 1.4e-36). A row with a NaN or an infinity has the scale NaN and zeros:
 * attn_forward() refuses a live key with such a scale. To ATTN_I4, of a group:
 *
 *     low = the largest -x[c], high = the largest x[c], both 0 at least
 *     step = max(low / 8, high / 7), inverse = min(8 / low, 7 / high)  if low >= high;
 *     step = max(high / 8, low / 7), inverse = min(8 / high, 7 / low)  else, and both become negative
 *     scale = step,  out[c] = x[c] * inverse rounded to nearest, ties to even
 *
 * A group whose step is below 2^-126 in size has the scale 0 and zeros, one with a
 * NaN or an infinity the scale NaN and zeros. Numbers behind the last channel of a
 * row are 0.
 *
 * @param x           (B, H, T, d) f32, bf16 or f16, any strides
 * @param out         (B, H, T, d) ATTN_I8, ATTN_F8_E4M3 or ATTN_I4, written
 * @param scale       f32, written: out is to be multiplied by it. (B, H, T, 1) of any strides; for ATTN_I4
 *                    (B, H, T, ceil(d / 32)), those of a row side by side
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
