/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Some rows of the output in double precision, for cases that the naive
 * implementation cannot compute, or not without a matrix of Tq x Tk scores.
 */
#ifndef BENCH_ROWS_H
#define BENCH_ROWS_H

#include "problem.h"

/** How many rows are computed. */
#define BENCH_SAMPLED_ROWS 48

/** A query or a key, its sequence and head. */
struct bench_row {
    int64_t sequence, head, token;
};

/**
 * Row n of so many: the first and the last one there are, the others from as many parts of a sequence, head by head.
 * keys: of k and v, instead of q and out.
 */
struct bench_row bench_row_choose(const struct bench_problem *p, bool keys, int64_t n, uint64_t *state);

/** Element (b,h,t,0) of a tensor of floats, whose axes of length 1 go for any index. */
static inline const float *bench_row_floats(const attn_tensor *x, int64_t b, int64_t h, int64_t t)
{
    return (const float *)x->data + (x->shape[0] > 1 ? b * x->stride[0] : 0) +
           (x->shape[1] > 1 ? h * x->stride[1] : 0) + t * x->stride[2];
}

/**
 * Chooses rows of p->out, computes them and puts them in p->expected and
 * p->rows. 0, or -1 after a sentence on stderr.
 */
int bench_rows_create(struct bench_problem *p);

#endif
