/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of one instruction set, each between loads and stores of its
 * own, compiled with the set's flags. Its file in src/isa (SET_FILE) says which
 * headers are its own; what that file exports by itself, the tables of kernels,
 * is left out here and taken from the library. This file exports one symbol,
 * the table of the operations.
 *
 * A row for a further operation is a line here and one in vector_operations.c or
 * word_operations.c.
 */
#define ATTN_ISA_KERNELS_H
#include SET_FILE
#include "simd/words.h"
#ifdef ATTN_MATRIX
#include ATTN_MATRIX
#endif
#ifdef __AVX512VBMI__
#include "simd/exp2_table_avx512.h"
#endif
#include "rows.h"

#if VS_PACK != 4
#define VS_OFFSET 0
#endif

/* Clobbering memory keeps each repetition, and its loads and stores, where it is; the addresses stay in registers. */
#define RUN(name, ...)                                                                                                 \
    static void run_##name(const struct call *call, int64_t repeat)                                                    \
    {                                                                                                                  \
        const struct call copy = *call, *const c = &copy;                                                              \
        do {                                                                                                           \
            __VA_ARGS__;                                                                                               \
            __asm__ volatile("" : : : "memory");                                                                       \
        } while (--repeat > 0);                                                                                        \
    }

/* Vectors of floats and of integers from the inputs, and to the outputs. */
#define A       vf_load(c->in[0])
#define B       vf_load(c->in[1])
#define C       vf_load(c->in[2])
#define UA      vu_load(c->in[0])
#define UB      vu_load(c->in[1])
#define UC      vu_load(c->in[2])
#define PUT(x)  vf_store(c->out[0], x)
#define PUTU(x) vu_store(c->out[0], x)

/* A mask as floats: 1 where it is set, else 0. */
#define PUTM(m) vf_store(c->out[0], vf_select(m, vf_set1(1.0f), vf_zero()))

/** A vector of halves to two outputs. */
static inline void store_halves(const struct call *c, vu halves)
{
    unsigned char both[VF_LEN * 4];
    vu_store(both, halves);
    memcpy(c->out[0], both, sizeof both / 2);
    memcpy(c->out[1], both + sizeof both / 2, sizeof both / 2);
}

/** Of words the lower halves, then the upper ones. */
static inline void store_words(const struct call *c, vu words)
{
    uint32_t each[VF_LEN];
    vu_store(each, words);
    for (int i = 0; i < VF_LEN; i++)
        for (int k = 0; k < 2; k++) {
            const uint16_t half = (uint16_t)(each[i] >> 16 * k);
            memcpy((char *)c->out[k] + 2 * i, &half, sizeof half);
        }
}

/** The upper or the lower (left: 8) bytes of two vectors of bf16, loaded in pairs. Other bits than theirs would show.
 */
static inline vu bytes_of_bf16(const struct call *c, int left)
{
    vu x[4];
    for (int i = 0; i < 4; i += 2) {
        vf a, b;
        vf_load_pair_bf16(c->in[i / 2], &a, &b);
        x[i] = vu_bits_of(a);
        x[i + 1] = vu_bits_of(b);
    }
    for (int i = 0; i < 4; i++)
        x[i] = vu_or(vu_shift_right_signed(vu_shift_left(x[i], left), 24), vu_shift_left(x[i], 16));
    return vu_bytes_of_pairs(x[0], x[1], x[2], x[3]);
}

RUN(vf_zero, PUT(vf_zero()))
RUN(vf_set1, PUT(vf_set1(*(const float *)c->in[0])))
RUN(vf_iota, PUT(vf_iota()))
RUN(vf_load, PUT(A))
RUN(vf_store, PUT(A))
RUN(vf_load_tail, PUT(vf_load_tail(c->in[0], c->n)))
RUN(vf_store_tail, vf_store_tail(c->out[0], A, c->n))
RUN(vf_load_bf16, PUT(vf_load_bf16(c->in[0])))
RUN(vf_load_f16, PUT(vf_load_f16(c->in[0])))
RUN(vf_store_bf16, vf_store_bf16(c->out[0], A))
RUN(vf_store_f16, vf_store_f16(c->out[0], A))
RUN(vf_add, PUT(vf_add(A, B)))
RUN(vf_sub, PUT(vf_sub(A, B)))
RUN(vf_mul, PUT(vf_mul(A, B)))
RUN(vf_div, PUT(vf_div(A, B)))
RUN(vf_fma, PUT(vf_fma(A, B, C)))
RUN(vf_floor, PUT(vf_floor(A)))
RUN(vf_abs, PUT(vf_abs(A)))
RUN(vf_max, PUT(vf_max(A, B)))
RUN(vf_gt, PUTM(vf_gt(A, B)))
RUN(vf_ge, PUTM(vf_ge(A, B)))
RUN(vf_eq, PUTM(vf_eq(A, B)))
RUN(vf_select, PUT(vf_select(vm_from_bytes(c->in[2]), A, B)))
RUN(vm_from_bytes, PUTM(vm_from_bytes(c->in[0])))
RUN(vm_any, *(uint32_t *)c->out[0] = vm_any(vm_from_bytes(c->in[0])) != 0)
RUN(vf_exp2, PUT(vf_exp2(A)))
RUN(vf_exp, PUT(vf_exp(A)))
RUN(vf_log, PUT(vf_log(A)))
RUN(vf_tanh, PUT(vf_tanh(A)))
RUN(vf_tanh_fast, PUT(vf_tanh_fast(A)))
RUN(vf_exp_twice, PUT(vf_exp_twice(A)))

RUN(vf_deinterleave, vf even, odd; vf_deinterleave(A, B, &even, &odd); PUT(even); vf_store(c->out[1], odd))
RUN(vf_interleave, vf a, b; vf_interleave(A, B, &a, &b); PUT(a); vf_store(c->out[1], b))
RUN(vf_transpose, vf a[VF_LEN]; for (int i = 0; i < VF_LEN; i++) a[i] = vf_load((const float *)c->in[0] + i * VF_LEN);
    vf_transpose(a); for (int i = 0; i < VF_LEN; i++) vf_store((float *)c->out[0] + i * VF_LEN, a[i]))
RUN(vf_transpose_from4, vf a[VF_LEN];
    for (int i = 0; i < VF_LEN && i < 4; i++) a[i] = vf_load((const float *)c->in[0] + i * VF_LEN);
    vf_transpose_from4(a); for (int i = 0; i < VF_LEN; i++) vf_store((float *)c->out[0] + i * VF_LEN, a[i]))
RUN(vf_transpose_to4, vf a[VF_LEN];
    for (int i = 0; i < VF_LEN; i++) a[i] = vf_load((const float *)c->in[0] + i * VF_LEN); vf_transpose_to4(a);
    for (int i = 0; i < VF_LEN; i++) vf_store((float *)c->out[0] + i * VF_LEN, i < 4 ? a[i] : vf_zero()))
RUN(vf_transpose_from8, vf a[VF_LEN];
    for (int i = 0; i < VF_LEN && i < 8; i++) a[i] = vf_load((const float *)c->in[0] + i * VF_LEN);
    vf_transpose_from8(a); for (int i = 0; i < VF_LEN; i++) vf_store((float *)c->out[0] + i * VF_LEN, a[i]))
RUN(vf_transpose_to8, vf a[VF_LEN];
    for (int i = 0; i < VF_LEN; i++) a[i] = vf_load((const float *)c->in[0] + i * VF_LEN); vf_transpose_to8(a);
    for (int i = 0; i < VF_LEN; i++) vf_store((float *)c->out[0] + i * VF_LEN, i < 8 ? a[i] : vf_zero()))

RUN(vu_set1, PUTU(vu_set1(*(const uint32_t *)c->in[0])))
RUN(vu_iota, PUTU(vu_iota()))
RUN(vu_load, PUTU(UA))
RUN(vu_store, PUTU(UA))
RUN(vu_add, PUTU(vu_add(UA, UB)))
RUN(vu_and, PUTU(vu_and(UA, UB)))
RUN(vu_or, PUTU(vu_or(UA, UB)))
RUN(vu_xor, PUTU(vu_xor(UA, UB)))
RUN(vu_xor3, PUTU(vu_xor3(UA, UB, UC)))
RUN(vu_at_least, PUTU(vu_at_least(UA, UB)))
RUN(vu_max, PUTU(vu_max(UA, UB)))
RUN(vu_max_halves, PUTU(vu_max_halves(UA, UB)))
RUN(vu_choose, PUTU(vu_choose(UA, UB, UC)))
RUN(vu_shift_left, PUTU(vu_shift_left(UA, 9)); vu_store(c->out[1], vu_shift_left(UA, 31)))
RUN(vu_shift_right, PUTU(vu_shift_right(UA, 9)); vu_store(c->out[1], vu_shift_right(UA, 31)))
RUN(vu_and_xor, PUTU(vu_and_xor(UA, UB, UC)))
RUN(vf_of_bits, PUT(vf_of_bits(UA)))
RUN(vf_of_ints, PUT(vf_of_ints(UA)))
RUN(vf_load_int8, PUT(vf_load_int8(c->in[0])))
RUN(vf_sum_across, vf a[VF_LEN]; for (int i = 0; i < VF_LEN; i++) a[i] = vf_load((const float *)c->in[0] + i * VF_LEN);
    PUT(vf_sum_across(a)))
#if VF_LEN == 16
RUN(vf_sum_quarters, vf a[4]; for (int i = 0; i < 4; i++) a[i] = vf_load(c->in[i]); PUT(vf_sum_quarters(a)))
RUN(vf_add_quarters, vf a[4]; for (int i = 0; i < 4; i++) a[i] = vf_load(c->in[i]); PUT(vf_add_quarters(a)))
RUN(vf_turn_quarters, PUT(vf_turn_quarters(A)))
#endif
RUN(vf_max_across, *(float *)c->out[0] = vf_max_across(A))
RUN(vf_load_f8, PUT(vf_load_f8(c->in[0])))
RUN(vf_load_int4, PUT(vf_load_int4(c->in[0], 0)); vf_store(c->out[1], vf_load_int4(c->in[0], 4)))
RUN(vf_scaled_int4, vf low, high; vf_scaled_int4(c->in[0], c->in[1], &low, &high); PUT(low); vf_store(c->out[1], high))
RUN(vu_bits_of, PUTU(vu_bits_of(A)))
RUN(vu_store_bytes, vu_store_bytes(c->out[0], UA))
RUN(vu_shift_right_signed, PUTU(vu_shift_right_signed(UA, 9)); vu_store(c->out[1], vu_shift_right_signed(UA, 31)))
RUN(vu_rounded, PUTU(vu_rounded(A)))
RUN(vf_narrow_bf16, store_halves(c, vf_narrow_bf16(A, B)))
RUN(vf_narrow_f16, store_halves(c, vf_narrow_f16(A, B)))
RUN(vf_pair_bf16, store_words(c, vf_pair_bf16(A, B)))
RUN(vf_pair_f16, store_words(c, vf_pair_f16(A, B)))
RUN(vu_bytes_of4, vu x[4]; for (int i = 0; i < 4; i++) x[i] = vu_rounded(vf_load_int8(c->in[i]));
    PUTU(vu_bytes_of4(x[0], x[1], x[2], x[3])))
/* Their order is undone, so the one is tested by the other. */
RUN(vf_load_pair_bf16, PUTU(bytes_of_bf16(c, 0)); vu_store(c->out[1], bytes_of_bf16(c, 8)))
RUN(vu_bytes_of_pairs, PUTU(bytes_of_bf16(c, 0)); vu_store(c->out[1], bytes_of_bf16(c, 8)))
/* To addresses that are aligned. */
RUN(vu_stream, _Alignas(64) unsigned char line[VF_LEN * 4]; vu_stream(line, UA); vu_stream_end();
    memcpy(c->out[0], line, sizeof line))
RUN(vu_stream_end, PUTU(UA); vu_stream_end())
RUN(vf_nibble, PUT(vf_nibble(UA, 0)); vf_store(c->out[1], vf_nibble(UA, 20)))
RUN(vu_mul_wide, vu high, low; vu_mul_wide(UA, UB, &high, &low); PUTU(high); vu_store(c->out[1], low))

/* Words are vectors of VF_LEN * 4 bytes; memcpy writes the types that have no store of their own. */
#define PUT_VECTOR(type, x)                                                                                            \
    const type kept = x;                                                                                               \
    memcpy(c->out[0], &kept, sizeof kept)

RUN(vw_load, PUT_VECTOR(vw, vw_load(c->in[0])))
RUN(vw_load_tail, PUT_VECTOR(vw, vw_load_tail(c->in[0], c->n)))
RUN(vw_set1, PUT_VECTOR(vw, vw_set1(c->in[0])))
RUN(vf_dot, PUT(vf_dot(vw_load(c->in[0]), vw_load(c->in[1]), C)))
RUN(vq_load, PUT_VECTOR(vq, vq_load(c->in[0])))
RUN(vq_set1, PUT_VECTOR(vq, vq_set1(c->in[0])))
RUN(vs_zero, PUT_VECTOR(vs, vs_zero()))
RUN(vs_dot, vs sum; memcpy(&sum, c->in[2], sizeof sum);
    PUT_VECTOR(vs, vs_dot(vq_load(c->in[0]), vq_load(c->in[1]), sum)))

#if VF_PACK == 2
RUN(vw_store, vw_store(c->out[0], vw_load(c->in[0])))
RUN(vw_pair, vw_store(c->out[0], vw_pair(A, B)))
RUN(vw_round, vw_round(c->out[0], A))
RUN(vw_interleave, vw_store(c->out[0], vw_interleave(c->in[0], c->in[1])))
RUN(vw_of_first, vw_store(c->out[0], vw_of_first(c->in[0])))
RUN(vw_add_second, vw_store(c->out[0], vw_add_second(vw_load(c->in[0]), c->in[1])))
RUN(vw_first, vw_store(c->out[0], vw_first(vw_load(c->in[0]))))
RUN(vw_second, vw_store(c->out[0], vw_second(vw_load(c->in[0]))))
RUN(vw_ones, vw_store(c->out[0], vw_ones()))
RUN(vw_negate, vw_store(c->out[0], vw_negate(vw_load(c->in[0]))))
#ifdef VW_F8
RUN(vw_weigh, vw_store(c->out[0], vw_weigh(vw_load(c->in[0]), B, C)))
RUN(vw_of_f8, vw words[2]; vw_of_f8(vw_load(c->in[0]), words); vw_store(c->out[0], words[0]);
    vw_store(c->out[1], words[1]))
RUN(vw_load_f8, vw words[4]; vw_load_f8(c->in[0], 64, words); vw_load_f8(c->in[0], 41, words + 2);
    for (int i = 0; i < 16; i++) vw_store((float *)c->out[0] + i * VF_LEN, words[i % 4]))
RUN(vw_zip_f8, vw words[4]; vw_zip_f8(c->in[0], c->in[1], 64, words);
    for (int i = 0; i < 4; i++) vw_store((float *)c->out[0] + i * VF_LEN, words[i]);
    vw_zip_f8(c->in[0], c->in[1], 41, words);
    for (int i = 0; i < 4; i++) vw_store((float *)c->out[0] + (4 + i) * VF_LEN, words[i]);
    vw_zip_f8(c->in[0], NULL, 64, words);
    for (int i = 0; i < 4; i++) vw_store((float *)c->out[0] + (8 + i) * VF_LEN, words[i]);
    for (int i = 12; i < 16; i++) vf_store((float *)c->out[0] + i * VF_LEN, vf_zero()))
#endif
#ifdef VW_INT4
static inline vf channels_at(const struct call *c, int i)
{
    return vf_load((const float *)c->in[0] + i * VF_LEN);
}
RUN(vw_int4, vw_store(c->out[0], vw_int4(vw_load(c->in[0]), 0)); vw_store(c->out[1], vw_int4(vw_load(c->in[0]), 3)))
RUN(vw_zip_quarters, vw zipped[2]; vw_zip_quarters(vw_load(c->in[0]), vw_load(c->in[1]), zipped);
    vw_store(c->out[0], zipped[0]); vw_store(c->out[1], zipped[1]))
RUN(vf_load_quarters, const float *const p[] = {c->in[0], c->in[1], c->in[2], c->in[3]}; PUT(vf_load_quarters(p, 4));
    vf_store(c->out[1], vf_load_quarters(p, 3)))
RUN(vw_weigh_quarters, uint64_t p; vw pairs[2]; memcpy(&p, c->in[1], sizeof p); vw_weigh_quarters(A, p, pairs);
    vw_store(c->out[0], pairs[0]); vw_store(c->out[1], pairs[1]))
RUN(vf_to_int4, vf channels[8]; vf to[4][2]; for (int i = 0; i < 8; i++) channels[i] = channels_at(c, i);
    vf_to_int4(channels, to);
    for (int i = 0; i < 16; i++) vf_store((float *)c->out[0] + i * VF_LEN, i < 8 ? to[i / 2][i % 2] : vf_zero()))
RUN(vf_from_int4, vf channels[8]; vf from[4][2]; for (int i = 0; i < 8; i++) from[i / 2][i % 2] = channels_at(c, i);
    vf_from_int4(from, channels);
    for (int i = 0; i < 16; i++) vf_store((float *)c->out[0] + i * VF_LEN, i < 8 ? channels[i] : vf_zero()))
#endif
#ifndef __AVX512VBMI__
RUN(vf_exp2_bf16, PUT(vf_exp2_bf16(A)))
#endif
#endif

#if VS_PACK == 4
static inline vs load_sums(const void *p)
{
    vs sums;
    memcpy(&sums, p, sizeof sums);
    return sums;
}

static inline void store_sums(void *p, vs sums)
{
    memcpy(p, &sums, sizeof sums);
}

RUN(vs_set1, store_sums(c->out[0], vs_set1(*(const int32_t *)c->in[0])))
RUN(vs_add, store_sums(c->out[0], vs_add(load_sums(c->in[0]), load_sums(c->in[1]))))
RUN(vs_sum, *(int32_t *)c->out[0] = vs_sum(load_sums(c->in[0])))
RUN(vs_float, PUT(vs_float(load_sums(c->in[0]))))
RUN(vs_quantize, store_sums(c->out[1], vs_quantize(c->out[0], A)))
RUN(vs_dot_nibbles, uint32_t words[VF_LEN]; memcpy(words, c->in[1], sizeof words);
    for (int i = 0; i < VF_LEN; i++) words[i] &= 0x0f0f0f0fu;
    store_sums(c->out[0], vs_dot_nibbles(vq_load(c->in[0]), vq_load(words), load_sums(c->in[2]))))
#endif

#if VF_GROUP == 2
RUN(vf_mm, PUT(vf_mm(vw_load(c->in[0]), vw_load(c->in[1]), C)))
RUN(vf_halves, vf low, high; vf_halves(A, B, &low, &high); PUT(low); vf_store(c->out[1], high))
RUN(vw_zip, vw low, high; vw_zip(vw_load(c->in[0]), vw_load(c->in[1]), &low, &high); vw_store(c->out[0], low);
    vw_store(c->out[1], high))
RUN(vw_unzip, vw first, second; vw_unzip(vw_load(c->in[0]), vw_load(c->in[1]), &first, &second);
    vw_store(c->out[0], first); vw_store(c->out[1], second))
RUN(vw_evens, vw_store(c->out[0], vw_evens(vw_load(c->in[0]))))
RUN(vw_evens_twice, vw_store(c->out[0], vw_evens_twice(vw_load(c->in[0]))))
#endif

#if VS_GROUP == 2
RUN(vq_rows, PUT_VECTOR(vq, vq_rows(c->in[0], c->in[1])))
RUN(vq_rows_word, PUT_VECTOR(vq, vq_rows_word(c->in[0], c->in[1])))
RUN(vq_load_twice, PUT_VECTOR(vq, vq_load_twice(c->in[0])))
RUN(vs_mm, vs sum; memcpy(&sum, c->in[2], sizeof sum); PUT_VECTOR(vs, vs_mm(vq_load(c->in[0]), vq_load(c->in[1]), sum)))
RUN(vs_halves, vs a; vs b; vs low; vs high; memcpy(&a, c->in[0], sizeof a); memcpy(&b, c->in[1], sizeof b);
    vs_halves(a, b, &low, &high); memcpy(c->out[0], &low, sizeof low); memcpy(c->out[1], &high, sizeof high))
#endif

#if VF_LEN == 16
RUN(vm_first, PUTM(vm_first(c->n)))
#elif VF_LEN == 8
RUN(vm_first, PUTM(_mm256_castsi256_ps(vm_first(c->n))))
#endif

#ifdef __AVX512VBMI__
RUN(exp2_table, vw_store(c->out[0], exp2_table()))
RUN(exp2_table_pair, vw_store(c->out[0], exp2_table_pair(exp2_table(), A, B)))
#endif

#ifdef ATTN_MATRIX
/* All registers, the rows of one behind those of the one before. */
#define EACH_REGISTER(operation, at)                                                                                   \
    do {                                                                                                               \
        char *const rows = (char *)(uintptr_t)(at);                                                                    \
        const ptrdiff_t next = MATRIX_ROWS * c->stride;                                                                \
        operation(0, rows, c->stride);                                                                                 \
        operation(1, rows + next, c->stride);                                                                          \
        operation(2, rows + 2 * next, c->stride);                                                                      \
        operation(3, rows + 3 * next, c->stride);                                                                      \
        operation(4, rows + 4 * next, c->stride);                                                                      \
        operation(5, rows + 5 * next, c->stride);                                                                      \
        operation(6, rows + 6 * next, c->stride);                                                                      \
        operation(7, rows + 7 * next, c->stride);                                                                      \
    } while (0)
#define LOAD_ALL  EACH_REGISTER(matrix_load, c->in[0])
#define STORE_ALL EACH_REGISTER(matrix_store, c->out[0])

RUN(matrix_enter, matrix_enter(); LOAD_ALL; matrix_enter(); STORE_ALL; matrix_leave())
RUN(matrix_leave, matrix_enter(); matrix_leave(); if (c->n) matrix_zero(0))
RUN(matrix_load, matrix_enter(); LOAD_ALL; STORE_ALL; matrix_leave())
RUN(matrix_stream, matrix_enter(); EACH_REGISTER(matrix_stream, c->in[0]); STORE_ALL; matrix_leave())
RUN(matrix_store, matrix_enter(); matrix_load(3, c->in[0], c->stride); matrix_store(3, c->out[0], c->stride);
    matrix_store(3, c->out[1], c->stride); matrix_leave())
RUN(matrix_zero, matrix_enter(); LOAD_ALL; matrix_zero(2); matrix_zero(7); STORE_ALL; matrix_leave())
RUN(matrix_dot_bf16, matrix_enter(); matrix_load(4, c->in[0], c->stride); matrix_load(1, c->in[1], c->stride);
    matrix_load(6, c->in[2], c->stride); matrix_dot_bf16(6, 4, 1); matrix_store(6, c->out[0], c->stride);
    matrix_leave())
#if defined(ATTN_EMULATED) || defined(__AMX_INT8__)
#define MATRIX_INT8
RUN(matrix_dot_int8, matrix_enter(); matrix_load(4, c->in[0], c->stride); matrix_load(1, c->in[1], c->stride);
    matrix_load(6, c->in[2], c->stride); matrix_dot_int8(6, 4, 1); matrix_store(6, c->out[0], c->stride);
    matrix_leave())
#endif
#endif

#define ROW(x)                                                                                                         \
    {                                                                                                                  \
        .name = #x, .run = run_##x                                                                                     \
    }

static const struct set_operation operations[] = {
    ROW(vf_zero),
    ROW(vf_set1),
    ROW(vf_iota),
    ROW(vf_load),
    ROW(vf_store),
    ROW(vf_load_tail),
    ROW(vf_store_tail),
    ROW(vf_load_bf16),
    ROW(vf_load_f16),
    ROW(vf_store_bf16),
    ROW(vf_store_f16),
    ROW(vf_add),
    ROW(vf_sub),
    ROW(vf_mul),
    ROW(vf_div),
    ROW(vf_fma),
    ROW(vf_floor),
    ROW(vf_abs),
    ROW(vf_max),
    ROW(vf_gt),
    ROW(vf_ge),
    ROW(vf_eq),
    ROW(vf_select),
    ROW(vm_from_bytes),
    ROW(vm_any),
    ROW(vf_exp2),
    ROW(vf_exp),
    ROW(vf_log),
    ROW(vf_tanh),
    ROW(vf_tanh_fast),
    ROW(vf_exp_twice),
    ROW(vf_deinterleave),
    ROW(vf_interleave),
    ROW(vf_transpose),
    ROW(vf_transpose_from4),
    ROW(vf_transpose_to4),
    ROW(vf_transpose_from8),
    ROW(vf_transpose_to8),
    ROW(vu_set1),
    ROW(vu_iota),
    ROW(vu_load),
    ROW(vu_store),
    ROW(vu_add),
    ROW(vu_and),
    ROW(vu_or),
    ROW(vu_xor),
    ROW(vu_xor3),
    ROW(vu_at_least),
    ROW(vu_max),
    ROW(vu_max_halves),
    ROW(vu_choose),
    ROW(vu_shift_left),
    ROW(vu_shift_right),
    ROW(vu_and_xor),
    ROW(vf_of_bits),
    ROW(vf_of_ints),
    ROW(vf_load_int8),
    ROW(vf_sum_across),
#if VF_LEN == 16
    ROW(vf_sum_quarters),
    ROW(vf_add_quarters),
    ROW(vf_turn_quarters),
#endif
    ROW(vf_max_across),
    ROW(vf_load_f8),
    ROW(vf_load_int4),
    ROW(vf_scaled_int4),
    ROW(vu_bits_of),
    ROW(vu_store_bytes),
    ROW(vu_shift_right_signed),
    ROW(vu_rounded),
    ROW(vf_narrow_bf16),
    ROW(vf_narrow_f16),
    ROW(vf_pair_bf16),
    ROW(vf_pair_f16),
    ROW(vu_bytes_of4),
    ROW(vf_load_pair_bf16),
    ROW(vu_bytes_of_pairs),
    ROW(vu_stream),
    ROW(vu_stream_end),
    ROW(vf_nibble),
    ROW(vu_mul_wide),
    ROW(vw_load),
    ROW(vw_load_tail),
    ROW(vw_set1),
    ROW(vf_dot),
    ROW(vq_load),
    ROW(vq_set1),
    ROW(vs_zero),
    ROW(vs_dot),
#if VF_PACK == 2
    ROW(vw_store),
    ROW(vw_pair),
    ROW(vw_round),
    ROW(vw_interleave),
    ROW(vw_of_first),
    ROW(vw_add_second),
    ROW(vw_first),
    ROW(vw_second),
    ROW(vw_ones),
    ROW(vw_negate),
#ifdef VW_F8
    ROW(vw_weigh),
    ROW(vw_of_f8),
    ROW(vw_load_f8),
    ROW(vw_zip_f8),
#endif
#ifdef VW_INT4
    ROW(vw_int4),
    ROW(vw_zip_quarters),
    ROW(vf_load_quarters),
    ROW(vw_weigh_quarters),
    ROW(vf_to_int4),
    ROW(vf_from_int4),
#endif
#ifndef __AVX512VBMI__
    ROW(vf_exp2_bf16),
#endif
#endif
#if VS_PACK == 4
    ROW(vs_set1),
    ROW(vs_add),
    ROW(vs_sum),
    ROW(vs_float),
    ROW(vs_quantize),
    ROW(vs_dot_nibbles),
#endif
#if VF_GROUP == 2
    ROW(vf_mm),
    ROW(vf_halves),
    ROW(vw_zip),
    ROW(vw_unzip),
    ROW(vw_evens),
    ROW(vw_evens_twice),
#endif
#if VS_GROUP == 2
    ROW(vq_rows),
    ROW(vq_rows_word),
    ROW(vq_load_twice),
    ROW(vs_mm),
    ROW(vs_halves),
#endif
#if VF_LEN > 4
    ROW(vm_first),
#endif
#ifdef __AVX512VBMI__
    ROW(exp2_table),
    ROW(exp2_table_pair),
#endif
#ifdef ATTN_MATRIX
    ROW(matrix_enter),
    ROW(matrix_leave),
    ROW(matrix_load),
    ROW(matrix_stream),
    ROW(matrix_store),
    ROW(matrix_zero),
    ROW(matrix_dot_bf16),
#endif
#ifdef MATRIX_INT8
    ROW(matrix_dot_int8),
#endif
};

#ifdef MATRIX_INT8
#define MATRIX_FEATURE (HAS_MATRIX | HAS_MATRIX_INT8)
#elif defined(ATTN_MATRIX)
#define MATRIX_FEATURE HAS_MATRIX
#else
#define MATRIX_FEATURE HAS_NO_MATRIX
#endif
#ifdef __AVX512VBMI__
#define TABLE_FEATURE HAS_TABLE
#else
#define TABLE_FEATURE HAS_NO_TABLE
#endif
#ifdef VW_F8
#define F8_FEATURE HAS_F8
#else
#define F8_FEATURE 0
#endif
#ifdef VW_INT4
#define INT4_FEATURE HAS_INT4
#else
#define INT4_FEATURE 0
#endif

#define EXP2(name, function)                                                                                           \
    static void name(float *dst, const float *src, int64_t n)                                                          \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i += VF_LEN)                                                                        \
            vf_store(dst + i, function(vf_load(src + i)));                                                             \
    }

EXP2(exp2_own, vf_exp2)
#if VF_LEN == 16
EXP2(exp2_linked, Sleef_exp2f16_u10avx512f)
EXP2(exp2_finz, Sleef_finz_exp2f16_u10avx512f)
#elif VF_LEN == 8
EXP2(exp2_linked, Sleef_exp2f8_u10avx2)
EXP2(exp2_finz, Sleef_finz_exp2f8_u10avx2)
#elif VF_LEN == 4
EXP2(exp2_linked, Sleef_exp2f4_u10advsimd)
EXP2(exp2_finz, Sleef_finz_exp2f4_u10advsimd)
#else
EXP2(exp2_linked, Sleef_exp2f1_u10purec)
#endif

#define TEXT_OF(x)      #x
#define TEXT(x)         TEXT_OF(x)
#define JOINED(a, b)    a##b
#define JOINED_AS(a, b) JOINED(a, b)
#define TABLE_OF(name)  JOINED_AS(kernel_set_, name)

extern const struct kernel_set TABLE_OF(SET);
extern const struct attn_isa_kernels JOINED_AS(attn_kernels_, SET);
extern const struct attn_isa_kernels JOINED_AS(attn_kernels_, SET_BASE);

const struct kernel_set TABLE_OF(SET) = {
    .name = TEXT(SET),
    .needs = SET_NEEDS,
    .kernels = &JOINED_AS(attn_kernels_, SET),
    .extends = &JOINED_AS(attn_kernels_, SET_BASE),
    .features = (VF_PACK == 2 ? HAS_PAIRS : 0) | (VS_PACK == 4 ? HAS_INT8 : 0) | (VF_LEN > 4 ? HAS_FIRST_LANES : 0) |
                MATRIX_FEATURE | TABLE_FEATURE | (VF_GROUP > 1 ? HAS_VALUE_GROUPS : 0) |
                (VS_GROUP > 1 ? HAS_SCORE_GROUPS : 0) | (VF_LEN == 16 ? HAS_QUARTERS : 0) | INT4_FEATURE | F8_FEATURE,
    .lanes = VF_LEN,
    .strip_vectors = VF_STRIP,
    .value_pack = VF_PACK,
    .score_pack = VS_PACK,
    .value_group = VF_GROUP,
    .score_group = VS_GROUP,
    .query_offset = VS_OFFSET,
    .two_roundings = VF_LEN == 1,
#if defined(__aarch64__)
    .round_to_odd = 1,
#else
    .narrow_flushes = 1,
#endif
    .operations = operations,
    .num_operations = sizeof operations / sizeof *operations,
    .exp2 = exp2_own,
    .exp2_most = VF_LEN == 16  ? 128.0f
                 : VF_LEN == 1 ? 0.0f
                               : 62.0f,
    .exp2_linked = exp2_linked,
#if VF_LEN > 1
    .exp2_finz = exp2_finz,
#endif
};
