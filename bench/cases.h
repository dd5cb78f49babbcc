/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of shapes and options that attn-bench measures. Adding a case is
 * adding a row in cases.c; a figure that it has to reach is a row in bars.c.
 */
#ifndef BENCH_CASES_H
#define BENCH_CASES_H

#include "attn/attn.h"

#include <stdbool.h>

/** How q, k, v and out lie in memory. */
enum bench_layout { BENCH_BHTD, BENCH_BTHD };

struct bench_case {
    const char *id;   /**< short and unique; bars.c refers to it */
    attn_dtype dtype; /**< of q, k, v and out */
    attn_qk qk;       /**< how scores are computed */
    int64_t batch, heads, kv_heads, tq, tk, d;
    attn_causal causal;
    enum bench_layout layout;
    bool bool_mask; /**< boolean (B,1,Tq,Tk), one pair in 64 hidden: no tile can be skipped or run without it */
    bool padded;    /**< kv_len spread evenly over the batch, half of Tk on average */
    bool compare;   /**< measured against the naive implementation */
};

extern const struct bench_case bench_cases[];
extern const int bench_num_cases;

/** The case called id, or NULL. */
const struct bench_case *bench_case_find(const char *id);

/** Longest name with its terminator. */
#define BENCH_NAME_SIZE 160

/** Whether the library can run the case where isa is asked for: int8 scores need instructions of their own. */
bool bench_case_supported(const struct bench_case *c, attn_isa isa);

/** The instruction set whose kernels run the case where isa is asked for: only bf16 makes use of products of bf16. */
attn_isa bench_case_isa(const struct bench_case *c, attn_isa isa);

/** Whether kernels of isa look at attn_params.exp: those for pairs of bf16 have one form of exp. */
bool bench_exp_matters(attn_isa isa);

/** "sleef" or "fast", and "bf16" for kernels of an isa where that makes no difference. */
const char *bench_exp_name(attn_exp exp, attn_isa isa);

/**
 * "forward/f32/B1/H8/Tq2048/Tk2048/d64/causal:none/exp:sleef/layout:bhtd", then
 * /kv_heads, /mask, /padded and /qk. isa is the one that is asked for.
 */
void bench_forward_name(const struct bench_case *c, attn_isa isa, attn_exp exp, char name[BENCH_NAME_SIZE]);

/** The same with "naive" for "forward" and without /exp. */
void bench_naive_name(const struct bench_case *c, char name[BENCH_NAME_SIZE]);

#endif
