/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of the backward pass: cuts a checked call into tasks and runs them.
 *
 * A task owns some keys of a key head: it walks over the blocks of queries of
 * all heads that share it, in order, and has the sums of dK and dV to itself.
 * dQ is a sum over keys: tasks of earlier keys add their part to a block of
 * queries before those of later ones do, in memory that all threads share. So
 * every sum has one order, whoever computes it, and nothing is stored twice.
 *
 * Tasks of a head are handed out in the order of the keys, so one that waits does so for
 * tasks that have begun: it follows them from block to block.
 */
#ifndef ATTN_DRIVER_BACKWARD_H
#define ATTN_DRIVER_BACKWARD_H

#include "driver/driver.h"
#include "pass/gradients.h"

/** How blocks of queries and keys are gone over. */
struct attn_backward_steps {
    struct attn_geometry geometry;    /**< of the forward call */
    struct attn_score_kernels scores; /**< those of the geometry without what is of few queries */
    struct attn_gradient_shape shape;
    size_t scratch_at;    /**< in a thread's scratch: what shape describes */
    int64_t query_blocks; /**< of a head */
};

/** A backward call whose arguments have all been checked. It may not move once it has been cut; copies belong to the
 * original. */
struct attn_backward {
    struct attn_problem forward;   /**< of which out and lse are read */
    attn_tensor dout, dlse;        /**< read; dlse: data NULL if it is absent */
    attn_tensor dq, dk, dv, dmask; /**< written; data NULL, and no elements, where they are not wanted */
    attn_tensor drel_k, drel_q;    /**< the same, of the tables of params.disentangled */
    float *dhead_scale, *dsinks, *dslopes, *dtable; /**< written; NULL: not wanted */
    attn_score_gradient_callback *callback;         /**< NULL without params.callback */
    void *callback_user;
    struct attn_backward_steps steps; /**< the geometry has the phases of this call, too */
    struct attn_backward_steps fixed; /**< of sums over several blocks, whose borders are in their bits: these do not
                                         follow from threads. Only where there are such sums */
    struct attn_value_kernels values; /**< those of both geometries without what is of few queries */
    int coarse;                       /**< tasks as large as they can be are asked for, for however many threads */
    int apart;                        /**< dQ is computed behind dK and dV, not along with them */
    int64_t buckets;                  /**< of params.relative_bias */
    int64_t table_rows;               /**< of params.disentangled's tables */
    int64_t query_tasks;              /**< of all heads: tasks of the phases around the main one */
    int64_t key_tasks;
    int64_t
        key_pieces; /**< of all sequences of a ragged batch, where they have an order of their own; 0: they have none */
    size_t order_at;                                         /**< in what threads share: that order */
    int64_t dq_head;                                         /**< floats of dq's sums: of a head; */
    int64_t dq_block;                                        /**< of a block of queries, 0: as many as its rows have */
    int64_t spans;                                           /**< of a head's blocks: sums of biases by distance */
    size_t delta_at, dots_at, spans_at, reached_at, kept_at; /**< in what threads share, behind the sums of dq */
    size_t relative_dq_at, query_ends_at, key_ends_at, key_dots_at, k_rows_at, q_rows_at; /**< the same */
};

/** Cuts a call for at most threads threads: with coarse, in memory whose size does not follow from them. */
void attn_backward_cut(struct attn_backward *backward, const struct attn_kernels *kernels, int threads);

/** A checked call cut as a plan is, whose shapes and options it has: the plan has to outlive its runs. */
void attn_backward_adopt(struct attn_backward *backward, const struct attn_backward *plan);

/** Lays a run out in a workspace of attn_run_size() bytes, for so many threads; backward has to outlive it. */
struct attn_run *attn_backward_begin(void *workspace, const struct attn_backward *backward);

/** Takes a copy of the call into the workspace: what was given need not outlive this. */
void attn_backward_keep(struct attn_run *run);

#endif
