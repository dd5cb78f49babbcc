/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of additive attention share: a checked call, which keys its
 * queries see, and a block of queries at work.
 *
 * What hides keys (lengths, causality, windows, patterns, documents, trees, masks,
 * ragged batches) is checked and found by the core: a call is a problem of
 * the core's, whose q are projected queries and whose k are projected keys, and a
 * query is a strip of one row. For such a strip causality and windows leave a
 * range of keys; anything else leaves numbers that are added, of which -inf hides.
 */
#ifndef ATTN_NN_ADDITIVE_H
#define ATTN_NN_ADDITIVE_H

#include "api/check.h"
#include "nn/kernels/nn_kernels.h"
#include "nn/memory.h"
#include "pass/pass.h"

/** Keys of a split, counted from the first live one: part of the definition of the result, as ATTN_SPLIT_KEYS is in the
 * core. A key costs as much here as a dozen or more there, so fewer are worth a thread. */
#define NN_ADDITIVE_SPLIT 256

/** Queries of a block at most: they share a block of keys while it is in a near cache. */
#define NN_ADDITIVE_QUERIES 16

/* ------------------------------------------------------------------- a call -- */

/** A problem that has been checked; any of its tensors may have a shape alone while sizes are wanted. q: (B, 1, Tq,
 * d_attention) W_q q; a stride of 0 repeats rows. k: (B, 1, Tk, d_attention) W_k k + b. */
struct attn_problem nn_additive_problem(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                        const attn_tensor *out, const attn_params *params);

/**
 * Checks options and outputs on request of a call with these operands, which have been checked. out NULL: there is
 * none, as in a backward pass. depth as in attn_check().
 */
attn_status nn_check_additive(const attn_params *params, const attn_tensor *q, const attn_tensor *k,
                              const attn_tensor *v, const attn_tensor *out, enum check_depth depth);

/** Additive attention that has been checked. */
struct nn_additive {
    const struct attn_nn_kernels *kernels;
    const float *score; /**< from nn_additive_vector() */
    const struct attn_problem *problem;
    struct nn_progress *progress; /**< NULL: nobody looks */
};

/** Memory that it can make use of. */
struct nn_need nn_additive_need(const struct attn_problem *problem);

/** Runs it in memory of at least as many bytes as it needs. */
void nn_additive_run(const struct nn_additive *call, void *memory, size_t size);

/* --------------------------------------------------------- what a query sees -- */

/** How blocks of queries of so many rows are cut, as attn_work_of() wants it. */
struct attn_geometry nn_additive_geometry(int64_t block_queries);

/** Blocks of queries that a call has; of a ragged batch some are empty. */
int64_t nn_additive_blocks(const struct attn_problem *problem, int64_t block_queries);

/** Block number block of all: its work, of which kernels and scratch mean nothing. Returns 0 if it holds no query. */
int nn_additive_work_of(const struct attn_run *run, int64_t block, struct attn_work *work);

/** Begins a pass over the keys of a block, with a strip for each query. */
void nn_additive_begin(struct pass *pass, const struct attn_work *work);

/** What a query sees of a span of keys. */
struct nn_additive_seen {
    int lo, hi;                 /**< keys of the span outside of which it sees none */
    int listed;                 /**< bias says what it sees of lo..hi-1; else all */
    float bias[ATTN_KEY_BLOCK]; /**< what is added to scores; -inf hides. Of keys lo..hi-1 alone */
};

/** The unit of what masks add. */
enum nn_additive_unit { NN_ADDITIVE_BASE2, NN_ADDITIVE_NATURAL };

void nn_additive_see(const struct pass *pass, const struct strip *strip, const struct span *span,
                     enum nn_additive_unit unit, struct nn_additive_seen *seen);

/* -------------------------------------------------------- a block of queries -- */

/** What some keys have given to a block of queries. */
struct nn_additive_sums {
    float *m; /**< [queries] */
    float *l; /**< [queries][NN_ADDITIVE_LANES] */
    float *o; /**< [queries][values]; nothing where no query has seen a key, which every l of 0 says */
};

/** Whether no query has seen a key. */
int nn_additive_is_empty(const struct nn_additive_sums *sums, int64_t queries);

/** Bytes of sums, a multiple of ATTN_ALIGN; base NULL: that alone. */
size_t nn_additive_sums_in(struct nn_additive_sums *sums, char *base, int64_t queries, int64_t values);

/** Splits of the keys that a block of queries may see: first to end - 1. */
struct nn_additive_range {
    int64_t first, end;
};

/** All that a block may see. */
struct nn_additive_range nn_additive_splits(const struct pass *pass);

/** Bytes of room for exponentials of so many channels, a multiple of ATTN_ALIGN; base NULL: that alone. */
size_t nn_additive_exps_in(struct nn_additive_exps *exps, char *base, int64_t channels);

/** What a split, of such a range, gives to a block of queries; exps is room. */
void nn_additive_split(const struct nn_additive *call, const struct pass *pass, int64_t split,
                       struct nn_additive_exps *exps, struct nn_additive_sums *sums);

/** Joins what a split has given to what the splits before it have. */
void nn_additive_join(const struct nn_additive *call, const struct attn_work *work, const struct nn_additive_sums *next,
                      struct nn_additive_sums *sums);

/** Before the first of these splits, where weights are wanted: scores of all their keys as if none were seen. */
void nn_additive_clear(const struct attn_work *work, struct nn_additive_range splits);

/** Writes the rows. */
void nn_additive_finish(const struct nn_additive *call, const struct attn_work *work,
                        const struct nn_additive_sums *sums);

/**
 * The vector v of the additive score as the kernel wants it: times log2(e) / temperature. The caller frees *score. name
 * is that of v, which has been checked.
 */
attn_status nn_additive_vector(float **score, const char *name, const attn_tensor *v, float temperature);

#endif
