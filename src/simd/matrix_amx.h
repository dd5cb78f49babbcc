/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix registers of Intel's AMX: eight of 16 rows by 64 bytes, which Intel
 * calls tiles (Intel 64 and IA-32 Architectures Software Developer's Manual,
 * volume 1, chapter 18). The names of every matrix_*.h, in which a register is
 * a literal number 0 to 7:
 *   MATRIX_ROWS, MATRIX_WORDS        rows of a register, words of 32 bits in a row
 *   matrix_enter, matrix_leave       before the first use on a thread, and after the last
 *   matrix_load(r, p, stride)        rows of 64 bytes, stride bytes apart
 *   matrix_stream(r, p, stride)      the same of what is not wanted again soon: it stays out of L1
 *   matrix_store(r, p, stride)
 *   matrix_zero(r)
 *   matrix_dot_bf16(c, a, b)         c += a b: c [16][16] floats, a [16][32] bf16, b [16 pairs of rows][16] pairs
 *   matrix_dot_int8(c, a, b)         the same: c [16][16] int32, a [16][64] int8, b [16 fours of rows][16] fours; this
 *                                    one needs AMX-INT8, the others AMX-BF16
 *
 * A product of int8 is exact, and its sums wrap around. One of bf16 adds 32 terms to an element of c. It makes two sums
 * that begin at 0, one of the products of the first elements of the 16 pairs and one of the second ones, each product
 * added with one rounding; then it adds the two, and that to c. It rounds to nearest even, takes denormals for 0 and
 * makes 0 of denormal results, whatever MXCSR says. matrix_emulated.h gives the same bits.
 *
 * The instructions are written out: gcc 12's intrinsics do not tell the compiler
 * that a load reads memory.
 */
#ifndef ATTN_MATRIX_SIMD_H
#define ATTN_MATRIX_SIMD_H

#include <stdint.h>

#define MATRIX_ROWS  16
#define MATRIX_WORDS 16

/** All registers whole. The system has been asked for them (src/cpu). */
static void matrix_enter(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } __attribute__((aligned(64))) config = {
        .palette = 1,
        .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

static void matrix_leave(void)
{
    __asm__ volatile("tilerelease");
}

#define matrix_load(r, p, stride)                                                                                      \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #r : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define matrix_stream(r, p, stride)                                                                                    \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #r : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define matrix_store(r, p, stride)                                                                                     \
    __asm__ volatile("tilestored %%tmm" #r ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define matrix_zero(r)           __asm__ volatile("tilezero %%tmm" #r : :)
#define matrix_dot_bf16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#define matrix_dot_int8(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#endif
