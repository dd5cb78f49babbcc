/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of the backward pass: what it has been given, how it is cut, and where its tasks find what they share.
 * driver/backward.c says which phases there are, and how that memory is laid out.
 */
#ifndef ATTN_DRIVER_BACKWARD_CALL_H
#define ATTN_DRIVER_BACKWARD_CALL_H

#include "driver/driver.h"
#include "driver/tensors.h"
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

/** Batch elements whose heads are cut one by one: all sequences of a ragged batch are one. */
static inline int64_t attn_backward_elements(const struct attn_problem *problem)
{
    return problem->params.ragged ? 1 : problem->q.shape[0];
}

/** Whether sums of dQ are wanted. */
static inline int attn_backward_sums_queries(const struct attn_backward *b)
{
    return attn_has_elements(&b->dq) || b->dhead_scale;
}

/** Whether sums of rows of rel_q are wanted, for dK or for the gradient of a head's factor. */
static inline int attn_backward_sums_positions(const struct attn_backward *b)
{
    return attn_has_elements(&b->forward.rel_q) && (attn_has_elements(&b->dk) || b->dhead_scale);
}

/** Floats that threads share, by their place in that memory. */
static inline float *attn_backward_floats(const struct attn_run *run, size_t at)
{
    return (float *)(void *)(run->partials - run->geometry->labels_size + at);
}

#endif
