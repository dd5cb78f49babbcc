/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shape of a strip, and how a body written for a constant number of
 * vectors is called with one that is known at run time.
 */
#ifndef ATTN_WIDTH_H
#define ATTN_WIDTH_H

#include "kernels/kernels.h"
#include "simd/simd.h"

/*
 * Bodies are specialised by inlining them with constants. ATTN_SMALL_CODE leaves them general, for builds whose
 * compiler takes minutes over the specialised ones and whose speed does not matter (sanitizers).
 */
#if defined(ATTN_SMALL_CODE)
#define ATTN_INLINE static inline
#define ATTN_UNROLL
#else
#define ATTN_INLINE static inline __attribute__((always_inline))
#define ATTN_UNROLL _Pragma("GCC unroll 16")
#endif

/**
 * Defines a function that is a body with some of its operands, for constants, and that is not inlined. gcc's time grows
 * with the square of a function's size, and bodies for all types of rows make a large one. What is called runs long
 * enough for a call not to be seen.
 */
#define ATTN_APART(name, body, parameters, ...)                                                                        \
    static __attribute__((noinline)) void name parameters                                                              \
    {                                                                                                                  \
        body(__VA_ARGS__);                                                                                             \
    }

/**
 * Behind a load: later ones are not moved before it. For register tiles that leave no room for operands loaded ahead,
 * where gcc would rather spill sums; processors look ahead by themselves.
 */
#define ATTN_LOAD_NO_FURTHER() __asm__ volatile("" : : : "memory")

/** Between loads by p: compilers leave them in this order. Processors fetch ahead what is read in the order of memory,
 * but not if the lines of a row are mixed up. */
#define ATTN_LOAD_IN_ORDER(p) __asm__ volatile("" : "+r"(p))

/** Queries in a full strip. */
#define STRIP (VF_STRIP * VF_LEN)

/**
 * Rows of a register tile: twice as many where the strip has one vector, whose few chains of sums would each wait for
 * the multiply-add before.
 */
#define TILE_ROWS(nv, rows) ((nv) == 1 ? 2 * (rows) : (rows))

/**
 * Queries up to which they are few, and keys (score_few.h) and channels (value_few.h) are the lanes instead. 0: never.
 * Up to half a vector most lanes would have no query. A whole one of 8 lanes is as fast in tiles, but sums of an order
 * of their own make up for it.
 */
#define FEW (VF_LEN == 8 ? 8 : VF_LEN / 2)

/** Calls a body with a constant number of vectors. */
#if VF_STRIP != 3 && VF_STRIP != 4
#error "ATTN_BY_WIDTH has no case for this VF_STRIP"
#endif
#define ATTN_BY_WIDTH(nv, body, ...)                                                                                   \
    do {                                                                                                               \
        if ((nv) == VF_STRIP)                                                                                          \
            body(VF_STRIP, __VA_ARGS__);                                                                               \
        else if (VF_STRIP > 3 && (nv) == 3)                                                                            \
            body(3, __VA_ARGS__);                                                                                      \
        else if ((nv) == 2)                                                                                            \
            body(2, __VA_ARGS__);                                                                                      \
        else                                                                                                           \
            body(1, __VA_ARGS__);                                                                                      \
    } while (0)

#endif
