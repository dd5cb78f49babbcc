/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of linear attention. A task is some columns of the state of one
 * head of one sequence: it goes through all tokens in their order. Columns do
 * not meet, so where there are fewer states than threads they are cut; what
 * a chunk's keys and queries give to each other is computed by each part then.
 */
#ifndef ATTN_DRIVER_LINEAR_ATTENTION_H
#define ATTN_DRIVER_LINEAR_ATTENTION_H

#include "attn/linear_attention.h"
#include "driver/driver.h"
#include "pass/states.h"

/** How a call is cut, which a plan keeps. */
struct attn_state_cut {
    struct attn_geometry geometry; /**< its phases, threads and sizes */
    struct attn_state_shape shape;
    int64_t parts;                   /**< that the columns of a state are cut into */
    int64_t pieces, pieces_per_task; /**< parts of all states; those of a task, one after the other */
    int hands_on_sums; /**< parts read the sum of keys from where it is to be written: it is written when all have */
};

/** A call whose arguments have all been checked. */
struct attn_linear_attention {
    attn_tensor q, k, v, out;
    attn_tensor decay, beta, resets, projection, state_in,
        state_out;                       /**< copies; data NULL, and no elements, when absent */
    attn_linear_attention_params params; /**< the caller's, completed */
    int isa;                             /**< the set that params.isa named (dispatch.h); 0: none */
    float scale;
    int64_t num_sequences;
    int reads_out; /**< out is the gradient of out: the call is a part of one for gradients */
    struct attn_state_cut cut;
};

/** Cuts a call for at most threads threads. */
void attn_linear_attention_cut(struct attn_linear_attention *call, const struct attn_kernels *kernels, int threads);

/** Lays a run out in a workspace of attn_run_size() bytes, for so many threads; call has to outlive it. */
struct attn_run *attn_linear_attention_begin(void *workspace, const struct attn_linear_attention *call);

/** Takes a copy of the call into the workspace: what was given need not outlive this. */
void attn_linear_attention_keep(struct attn_run *run);

/** A sequence: the batch element it lies in, its first token there, and how many it has. */
struct attn_linear_sequence {
    int64_t batch, first, tokens;
};
struct attn_linear_sequence attn_linear_sequence_of(const struct attn_linear_attention *call, int64_t s);

/** Tokens of a batch element that are in some sequence: none behind them is. */
int64_t attn_linear_live(const struct attn_linear_attention *call, int64_t batch);

/** The state and the heads of q and k that a head of out has. */
struct attn_linear_heads {
    int64_t state, q, k;
};
struct attn_linear_heads attn_linear_heads_of(const struct attn_linear_attention *call, int64_t out_head);

/** A number of a state, or of its gradient; NULL where there is none. */
float *attn_linear_state(const attn_tensor *t, int64_t sequence, int64_t head, int64_t row, int64_t column);

/** The address of a channel of a head's token; NULL for an empty tensor. */
void *attn_linear_address(const attn_tensor *t, int64_t batch, int64_t head, int64_t token, int64_t channel);

/** Row token of a head on the channels from one on; no row for an empty tensor. */
struct attn_rows attn_linear_head(const attn_tensor *t, int64_t batch, int64_t head, int64_t token, int64_t channel);

/** Rows of a batch element become 0 from a token on. */
void attn_linear_clear(const attn_tensor *t, int64_t batch, int64_t from);

/** What every walk over the sequences of a call has; the scales are 1. */
struct attn_state_work attn_linear_work(const struct attn_linear_attention *call, const struct attn_kernels *kernels);

/** What a walk over one of them has: its tokens, and the decays and resets of a state. */
void attn_linear_place(struct attn_state_work *w, const struct attn_linear_attention *call,
                       const struct attn_linear_sequence *s, int64_t state);

/** The parts of columns with which threads are done with so many states first, each of as many as there is room for. */
int64_t attn_state_parts(const struct attn_state_shape *shape, int64_t columns, double states, int threads);

/** Where number i of parts of so many columns begins. */
int64_t attn_state_part(const struct attn_state_shape *shape, int64_t columns, int64_t parts, int64_t i);

/** The most columns that one of parts has, without that of sums. */
int64_t attn_state_widest_part(const struct attn_state_shape *shape, int64_t columns, int64_t parts);

#endif
