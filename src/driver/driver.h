/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver: cuts a checked problem into tasks and runs them.
 *
 * A task is a block of queries of one (batch, head), or, when sums over all
 * queries are wanted, a whole (batch, head), so that no two tasks write one
 * number. Blocks get smaller when there are few of them; that moves no bit of
 * the result, as lanes do not depend on each other.
 */
#ifndef ATTN_DRIVER_H
#define ATTN_DRIVER_H

#include "driver/ranges.h"
#include "pass/work.h"

/** A request whose arguments have all been checked; params is the caller's, completed. */
struct attn_problem {
    attn_tensor q, k, v, out;
    attn_params params;
    float scale;                              /**< the final factor of q·k */
    int64_t num_sequences;                    /**< the batch, or the sequences of a ragged one */
    attn_tensor mask, lse, weights, key_sums; /**< copies; data NULL when absent */
    attn_tensor rope_q, rope_k, rel_k, rel_q; /**< the same, of rope and disentangled */
    const struct attn_label_range *labels;    /**< what attn_summarise_labels() has made; NULL without documents */
};

/** A sequence: a batch element, or one of a ragged batch. */
struct attn_sequence {
    int64_t batch;            /**< index on the tensors' batch axis */
    int64_t q_first, k_first; /**< index of its first query and key on their token axes */
    int64_t queries, keys;    /**< how many there are */
    int64_t begin, end;       /**< the live ones of its keys, counted from its first */
};

/** Sequence s of a problem whose arrays are right. */
struct attn_sequence attn_sequence_of(const struct attn_problem *problem, int64_t s);

/** How a problem's shape is cut, decided once per plan. */
struct attn_geometry {
    struct attn_kernels kernels;
    int64_t group;          /**< rows that no strip reaches across the multiples of: the blocks of a pattern; or 0 */
    int gathers;            /**< global queries have a strip of their own */
    int64_t rows_per_block; /**< queries of a task */
    int64_t unit, pieces;   /**< a sequence is cut into units of rows, and these into pieces: the blocks */
    int64_t blocks;         /**< of a head: of one sequence, or of all those of a ragged batch, some of them empty */
    int64_t tasks;
    int threads;         /**< that there is scratch for */
    int parallel;        /**< of these, how many are worth starting */
    int key_block;       /**< keys per step */
    size_t scratch_size; /**< bytes a thread, a multiple of ATTN_ALIGN */
    size_t shared_size;  /**< bytes that all threads share, a multiple of ATTN_ALIGN */
};

/** Bytes of working memory that one thread may use. */
#define ATTN_SCRATCH_LIMIT ((size_t)2 << 20)

/** Cuts a problem for at most threads threads. Looks at shapes and at which outputs are wanted, not at data. */
struct attn_geometry attn_geometry_of(const struct attn_problem *problem, const struct attn_kernels *kernels,
                                      int threads);

/** Whether any output has an element: without, there may be more heads or tokens than can be counted through. */
int attn_writes_anything(const struct attn_problem *problem);

/** Bytes that attn_summarise_labels() needs, a multiple of ATTN_ALIGN; 0 without documents. */
size_t attn_labels_size(const struct attn_problem *problem, int key_block);

/** Looks at the documents' labels of all keys once, so that no task has to: sets problem->labels, in memory. */
void attn_summarise_labels(struct attn_problem *problem, int key_block, void *memory);

/** Points a view to the summary of sequence s. */
void attn_view_labels(const struct attn_problem *problem, int64_t s, int key_block, struct attn_view *view);

/**
 * Hands a block of queries of sequence s and head h, if it holds any, to the kernel. s == num_sequences: queries that
 * belong to none.
 */
void attn_run_block(const struct attn_problem *problem, const struct attn_geometry *geometry, int64_t s, int64_t h,
                    int64_t block, void *scratch);

/** Runs task number task of the problem in a thread's scratch. */
void attn_run_task(const struct attn_problem *problem, const struct attn_geometry *geometry, int64_t task,
                   void *scratch);

/** Runs all tasks on OpenMP threads; scratch is geometry->threads times scratch_size bytes. */
void attn_run_parallel(const struct attn_problem *problem, const struct attn_geometry *geometry, void *scratch);

/** out = the rows of x, turned by those of table. Everything has been checked. */
void attn_rotate(const struct attn_kernels *kernels, const attn_tensor *x, const attn_tensor *table,
                 attn_rope_layout layout, const attn_tensor *out, int threads);
/** Computes the rows of a merge, whose arguments have all been checked, on up to threads threads. */
void attn_run_merge(const struct attn_kernels *kernels, const struct attn_merge_work *merge, int threads);

#endif
