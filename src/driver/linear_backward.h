/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of gradients of linear attention.
 *
 *     features      of q and k, and v with a column of ones     with a map, or normalise
 *     sums          gradients of sums that out is divided by    with normalise
 *     pieces        dq, dv and dS; dk                           walks over tokens, as the forward pass is
 *     pieces        dk                                          here with gradients of decays, which want dq's walk
 * first ends          decays; dq and dk of features
 *
 * A piece is some columns of what is wanted of one head of one sequence: dv and dS have S's
 * own columns, dq and dk its rows, for which S lies on its side. Each walks for all
 * heads of out that what it makes is the sum of, one after the other.
 */
#ifndef ATTN_DRIVER_LINEAR_BACKWARD_H
#define ATTN_DRIVER_LINEAR_BACKWARD_H

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

/** Cuts a call for at most threads threads. */
void attn_linear_backward_cut(struct attn_linear_backward *call, const struct attn_kernels *kernels, int threads);

/** Lays a run out in a workspace of attn_run_size() bytes; call has to outlive it. */
struct attn_run *attn_linear_backward_begin(void *workspace, const struct attn_linear_backward *call);

/** Takes a copy of the call into the workspace: what was given need not outlive this. */
void attn_linear_backward_keep(struct attn_run *run);

/* --------------------------------------------------------- for its phases -- */

/** Whether q and k are replaced by features. */
int attn_linear_has_map(const struct attn_linear_backward *call);

/** Heads that a side has gradients of, before features are undone, each the sum over as many heads of out. */
int64_t attn_linear_targets(const struct attn_linear_backward *call, enum attn_linear_side side);

/** Rows of a region: of a head of a batch element, from token on, in channel's column. */
struct attn_rows attn_linear_region_rows(const struct attn_run *run, const struct attn_linear_rows *rows, int64_t batch,
                                         int64_t head, int64_t token, int64_t channel);

/** A piece of a side (linear_walks.c). */
void attn_linear_run_piece(const struct attn_run *run, enum attn_linear_side side, int64_t piece, void *scratch);

/** Clears rows that no sequence has, of gradients that pieces write: all of them where S has no elements. */
void attn_linear_clear_rest(const struct attn_linear_backward *call);

/** Tasks of the phases around the pieces (linear_features.c), and their number. */
int64_t attn_linear_features_tasks(const struct attn_linear_backward *call);
void attn_linear_features_task(const struct attn_run *run, int64_t task, void *scratch);
int64_t attn_linear_sums_tasks(const struct attn_linear_backward *call);
void attn_linear_sums_task(const struct attn_run *run, int64_t task, void *scratch);
int64_t attn_linear_ends_tasks(const struct attn_linear_backward *call);
void attn_linear_ends_task(const struct attn_run *run, int64_t task, void *scratch);
size_t attn_linear_ends_scratch(const struct attn_linear_backward *call);

/** Those of decays (linear_decays.c). */
int64_t attn_linear_decays_tasks(const struct attn_linear_backward *call);
void attn_linear_decays_task(const struct attn_run *run, int64_t task, void *scratch);
size_t attn_linear_decays_scratch(const struct attn_linear_backward *call);

#endif
