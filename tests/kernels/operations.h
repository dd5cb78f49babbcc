/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operation takes and gives: enough to draw its inputs, to place them
 * between guard pages, and to compare its outputs with those of a reference.
 */
#ifndef KERNELS_OPERATIONS_H
#define KERNELS_OPERATIONS_H

#include "rows.h"

enum element {
    F32,             /**< any bits */
    F32_NUMBER,      /**< no NaN */
    F32_BELOW_128,   /**< or NaN: an exponent of 2 that does not overflow */
    F32_NOT_ABOVE_0, /**< or NaN: what the softmax exponentiates */
    F32_BYTE,        /**< -127 to 127 */
    F32_TAME,        /**< of at most TANH_TAME, or NaN */
    BF16,
    F16,
    BYTE,
    INT8,
    I32,
    I32_SUMMABLE, /**< so small that a vector's sum fits 32 bits */
    U32,
    WORD,       /**< of V and P, as many elements as the set packs into 32 bits */
    SCORE_WORD, /**< of Q and K */
    SCORE_SUM   /**< what products of such words are added to: F32 or I32 */
};

enum extent { ABSENT, ONE, HALF, VECTOR, TAIL, SQUARE };

enum comparison {
    SAME_BITS,
    SAME_NUMBERS,               /**< the same bits, or both NaN */
    SAME_VALUES,                /**< a zero's sign does not count either */
    WITHIN_ULP,                 /**< of the exact result in call->exact, by operation->limit */
    WITHIN_ULP_OR_FLUSHED,      /**< the same, and a result below 2^-126 may be 0 */
    WITHIN_RELATIVE_OR_FLUSHED, /**< of the exact result */
};

struct operand {
    enum element element;
    enum extent extent;
};

struct operation {
    struct operand in[MAX_INPUTS], out[MAX_OUTPUTS];
    enum comparison compare;
    double limit; /**< of the error, in its unit */
    void (*reference)(const struct call *call);
};

/* What the group of these rows consists of. */
int operation_has_code(const struct row *row, const struct kernel_set *set);
void check_operation(const struct row *row, const struct kernel_set *set, struct run *run);
double time_operation(const struct row *row, const struct kernel_set *set);

#endif
