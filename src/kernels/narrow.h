/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16 and numbers of 8 and 4 bits out of words of 32 bits, in which they lie in memory:
 * one number of each word of a vector. So a vector of words is moved once for
 * 2, 4 or 8 vectors of numbers.
 *
 * Bits that are put into the mantissa of a power of two make a float, from which
 * that power is subtracted; the sign, turned over, stands for half the range.
 * E4M3 becomes the upper half of a float with an exponent that is 120 less,
 * denormals as such. That is wrong for NaN, and where the processor takes
 * denormals for 0: words_are_finite(), keeps_denormals().
 */
#ifndef ATTN_NARROW_H
#define ATTN_NARROW_H

#include "kernels/rows.h"

/** Whether numbers of a type are taken out of words. */
ATTN_INLINE int is_narrow(const attn_dtype dtype)
{
    return dtype == ATTN_BF16 || dtype == ATTN_I8 || dtype == ATTN_F8_E4M3 || dtype == ATTN_I4;
}

/** Numbers in a word. */
ATTN_INLINE int narrow_numbers(const attn_dtype dtype)
{
    return dtype == ATTN_I4 ? 8 : dtype == ATTN_BF16 ? 2 : 4;
}

/** Two's complement of so many bits from bit lowest on, all below bit 23. */
ATTN_INLINE vf narrow_field(vu words, const int bits, const int lowest)
{
    const uint32_t mask = ((1u << bits) - 1) << lowest, half = 1u << (bits - 1 + lowest);
    const uint32_t power = (uint32_t)(127 + 23 - lowest) << 23; /* its last bit has the weight 1 << lowest */
    const vu start = vu_set1(power | half);
    return vf_sub(vf_of_bits(vu_and_xor(words, vu_set1(mask), start)), vf_of_bits(start));
}

/** Byte m of each word as int8. */
ATTN_INLINE vf narrow_int8(vu words, const int m)
{
    return m == 3   ? vf_of_ints(vu_shift_right_signed(words, 24))
           : m == 2 ? narrow_field(vu_shift_right(words, 16), 8, 0)
                    : narrow_field(words, 8, 8 * m);
}

/** The four bits from bit on, a multiple of 4. */
ATTN_INLINE vf narrow_int4(vu words, const int bit)
{
    if (bit == 28)
        return vf_of_ints(vu_shift_right_signed(words, 28));
#ifdef VF_NIBBLE_BY_TABLE
    if (bit == 0 || bit > 16)
        return vf_nibble(vu_xor(words, vu_set1(0x88888888u)), bit);
#endif
    return bit > 16 ? narrow_field(vu_shift_right(words, 16), 4, bit - 16) : narrow_field(words, 4, bit);
}

/** Byte m of each word in E4M3. */
ATTN_INLINE vf narrow_f8(vu words, const int m)
{
    const vu high = m == 3 ? words : vu_shift_left(words, 24 - 8 * m);
    const vu bits = vu_and(vu_shift_right_signed(high, 4), vu_set1(0x87f00000u));
    return vf_mul(vf_of_bits(bits), vf_set1(0x1p120f));
}

/** Half m of each word, of bf16. */
ATTN_INLINE vf narrow_bf16(vu words, const int m)
{
    return vf_of_bits(m == 0 ? vu_shift_left(words, 16) : vu_and(words, vu_set1(0xffff0000u)));
}

/** Number i of each word: of ATTN_I4 the lower halves of the bytes come before the upper ones. */
ATTN_INLINE vf narrow_number(const attn_dtype dtype, vu words, const int i)
{
    return dtype == ATTN_BF16 ? narrow_bf16(words, i)
           : dtype == ATTN_I8 ? narrow_int8(words, i)
           : dtype == ATTN_I4 ? narrow_int4(words, 8 * (i % 4) + 4 * (i / 4))
                              : narrow_f8(words, i);
}

/** 4 VF_LEN channels, from their order to that of bytes in words: vector m gets each fourth from m on. */
ATTN_INLINE void to_bytes(vf a[4])
{
    vf even[2], odd[2];
    ATTN_UNROLL
    for (int i = 0; i < 2; i++)
        vf_deinterleave(a[2 * i], a[2 * i + 1], &even[i], &odd[i]);
    vf_deinterleave(even[0], even[1], &a[0], &a[2]);
    vf_deinterleave(odd[0], odd[1], &a[1], &a[3]);
}

/** The way back. */
ATTN_INLINE void from_bytes(vf a[4])
{
    vf even[2], odd[2];
    vf_interleave(a[0], a[2], &even[0], &even[1]);
    vf_interleave(a[1], a[3], &odd[0], &odd[1]);
    ATTN_UNROLL
    for (int i = 0; i < 2; i++)
        vf_interleave(even[i], odd[i], &a[2 * i], &a[2 * i + 1]);
}

/** Sets the highest bit of bytes of seen if a number of E4M3 at their place is NaN. */
ATTN_INLINE vu note_nan(vu seen, vu words)
{
    return vu_or(seen, vu_add(vu_and(words, vu_set1(0x7f7f7f7fu)), vu_set1(0x01010101u)));
}

/** Whether note_nan() has seen none. */
ATTN_INLINE int words_are_finite(vu seen)
{
    return !vm_any(vf_gt(vf_of_ints(vu_shift_right(vu_and(seen, vu_set1(0x80808080u)), 7)), vf_zero()));
}

/** Whether arithmetic of this thread keeps denormals. */
ATTN_INLINE int keeps_denormals(void)
{
    const volatile float least = 0x1p-129f;
    return least * 0x1p120f != 0;
}

#endif
