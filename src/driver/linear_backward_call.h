/* SPDX-License-Identifier: Apache-2.0 */
/* A call for gradients of linear attention: what it has been given, how it is cut, and the memory that its phases hand
 * on. */
#ifndef ATTN_DRIVER_LINEAR_BACKWARD_CALL_H
#define ATTN_DRIVER_LINEAR_BACKWARD_CALL_H

#include "driver/linear_attention.h"

/** What a piece makes a part of. */
enum attn_linear_side { ATTN_SIDE_Q, ATTN_SIDE_K, ATTN_SIDE_V, ATTN_SIDES };

/** Memory of a run that phases hand on: bytes from the first on, and how many; none where they are 0. */
struct attn_region {
    size_t at, bytes;
};

/** The same as rows of floats, for each of heads heads of a batch element. */
struct attn_linear_rows {
    struct attn_region region;
    int64_t heads;
    int64_t pitch; /**< from one row to the next */
};

/** How a call is cut. */
struct attn_linear_backward_cut {
    struct attn_geometry geometry;
    struct attn_state_shape shape[ATTN_SIDES]; /**< of a walk */
    int64_t parts[ATTN_SIDES];                 /**< that its columns are cut into */
    int64_t pieces[ATTN_SIDES];                /**< 0: not wanted */
    int64_t heads;                             /**< of out */
    int64_t dk, dv;                            /**< rows and columns of S */
    int64_t blocks;                            /**< of ATTN_CHUNK tokens of a batch element */
    int64_t slots;                             /**< of states of a head, of all sequences of a batch element */
    struct attn_state_shape features, sums;    /**< of what makes features, and of the walk for sums */
    struct attn_linear_rows q, k;              /**< features; k's for each state */
    struct attn_linear_rows d_q, d_k;          /**< gradients of features */
    struct attn_linear_rows v, d_out;          /**< with normalise: with the column of sums */
    struct attn_linear_rows added[ATTN_SIDES]; /**< gradients that are sums over heads, before they are rounded */
    struct attn_linear_rows decays;            /**< gradients of decays, for each channel and head of out */
    double bytes;              /**< of all these, perhaps more than memory can have: such a call cannot run */
    struct attn_region states; /**< [batch][heads of out][slots][dv][pitch of decays] */
    struct attn_region kept;   /**< a copy of the call (attn_linear_backward_keep()) */
};

/** A call whose arguments have all been checked. */
struct attn_linear_backward {
    struct attn_linear_attention forward; /**< its out is the gradient of out */
    attn_tensor out;                      /**< with normalise, as the forward call has written it */
    attn_tensor d[ATTN_SIDES], d_decay, d_state_in, d_state_out; /**< no elements: not wanted, or given */
    int wants[ATTN_SIDES], wants_decay, wants_state;             /**< whether they are, where they have no data yet */
    struct attn_linear_backward_cut cut;
};

/** Whether q and k are replaced by features. */
static inline int attn_linear_has_map(const struct attn_linear_backward *call)
{
    return call->forward.params.map != ATTN_FEATURES_NONE;
}

/** Heads that a side has gradients of, before features are undone, each the sum over as many heads of out. */
static inline int64_t attn_linear_targets(const struct attn_linear_backward *call, enum attn_linear_side side)
{
    const struct attn_linear_attention *f = &call->forward;
    const int64_t of_q = attn_linear_has_map(call) ? f->out.shape[1] : f->q.shape[1];
    const int64_t of_k = attn_linear_has_map(call) ? f->v.shape[1] : f->k.shape[1];
    return side == ATTN_SIDE_Q ? of_q : side == ATTN_SIDE_K ? of_k : f->v.shape[1];
}

/** Rows of a region: of a head of a batch element, from token on, in channel's column. */
static inline struct attn_rows attn_linear_region_rows(const struct attn_run *run, const struct attn_linear_rows *rows,
                                                       int64_t batch, int64_t head, int64_t token, int64_t channel)
{
    const int64_t tokens = run->linear_backward->forward.v.shape[2];
    float *const base = (float *)(void *)(run->partials + rows->region.at);
    return (struct attn_rows){.data = base + ((batch * rows->heads + head) * tokens + token) * rows->pitch + channel,
                              .stride = (ptrdiff_t)rows->pitch * ATTN_WORD,
                              .dtype = ATTN_F32};
}

#endif
