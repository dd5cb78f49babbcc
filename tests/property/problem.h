/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random problems for the property tests: contiguous tensors with options, and
 * results that hold every output, so that two ways to the same result can be
 * compared bit by bit or within the tolerance. Half of them are f32 throughout,
 * the others have q, k, v, out and additive masks of bf16, f16 or a mix; an
 * instruction set for pairs of bf16 gets q, k and v of bf16 only.
 */
#ifndef PROPERTY_PROBLEM_H
#define PROPERTY_PROBLEM_H

#include "attn/attn.h"
#include "random.h"

#include <stdint.h>

#define PROBLEM_MAX_BATCH 4

/** What problem_random() may draw. */
enum problem_features { WITH_MASK = 1, WITH_LENGTHS = 2, WITH_CAUSAL = 4, WITH_ALL = 7 };

struct problem {
    attn_tensor q, k, v; /**< BHTD, owned */
    attn_tensor mask;    /**< full (B, Hq, Tq, Tk), owned; data NULL without one */
    attn_dtype out;      /**< type of the output */
    attn_params params;  /**< without outputs; points into this struct: problem_bind() after an assignment */
    int64_t kv_len[PROBLEM_MAX_BATCH], kv_start[PROBLEM_MAX_BATCH], query_offset[PROBLEM_MAX_BATCH];
};

/** All outputs of a problem, contiguous. */
struct result {
    int64_t batch, heads, tq, tk, dv;
    attn_dtype dtype; /**< of out */
    void *out;
    float *lse, *weights, *key_sums;
};

/** Element at of out. */
float result_out(const struct result *r, int64_t at);
/** Bytes of a row of out, and where row i begins. */
size_t result_row_size(const struct result *r);
const char *result_row(const struct result *r, int64_t row);

void problem_random(struct problem *p, struct rng *rng, const char *isa, int features);
/** The same with few queries, and more keys than a split of them has. */
void problem_long(struct problem *p, struct rng *rng, const char *isa, int features);
/**
 * A problem that is worth as many threads as are asked for: small ones are
 * computed on the calling thread, and would show nothing about threads.
 */
void problem_for_threads(struct problem *p, struct rng *rng, const char *isa, int num_threads);
/** A deep copy, to be changed. */
void problem_copy(struct problem *to, const struct problem *from);
void problem_free(struct problem *p);
/** Points params at the arrays and the mask of this struct. */
void problem_bind(struct problem *p, int kv_len, int kv_start, int query_offset);

/** Makes a tensor a view of n of its own from index first of an axis on; nothing where it has no data. */
void problem_narrow(attn_tensor *t, int axis, int64_t first, int64_t n);

/** Elements of a tensor of a problem. */
int64_t problem_count(const attn_tensor *t);
/** A tensor of normal numbers, or of a boolean mask, whose heads may lie beside each other; data is to be freed. */
attn_tensor problem_tensor(struct rng *rng, attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c);
/** A contiguous copy of a tensor of a problem in another type, to be freed. */
attn_tensor problem_converted(const attn_tensor *t, attn_dtype dtype);

/** Memory for the outputs of a problem, filled with a pattern. */
struct result result_allocate(const struct problem *p);
void result_free(struct result *r);

/** The outputs as tensors, and params that ask for all of them. */
struct call {
    attn_tensor out, lse, weights, key_sums;
    attn_params params;
};
void call_initialize(struct call *call, const struct problem *p, const struct result *r);

/** Runs a problem with all outputs; ends the program with a sentence when the call fails. */
struct result problem_run(const struct problem *p);

/** Runs a call by a plan, whose shares are taken by several callers in turns. */
void problem_run_shares(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                        const attn_params *params);

/** Ends the program with the library's sentence unless status is ATTN_OK. */
void must_succeed(attn_status status, const char *what);

/** Memory that is there, or the end of the program. */
void *must_allocate(int64_t n, size_t size);

/** Whether two results have the same bits in every output. */
int results_equal(const struct result *a, const struct result *b);

/**
 * Whether rows [first, first + part->tq) of batch b, head h of whole have the
 * bits of (part_b, part_h) in part, where part may have fewer keys: then the
 * weights of the others must be 0 in whole.
 */
int rows_equal(const struct result *whole, int64_t b, int64_t h, int64_t first, const struct result *part,
               int64_t part_b, int64_t part_h);

#endif
