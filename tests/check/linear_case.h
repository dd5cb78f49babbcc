/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random cases of linear attention.
 *
 * A case is made from (seed, index) alone. All of its tensors lie between guard
 * pages, each flush with one end of a guard of its own; the gaps between rows hold
 * NaN in inputs and a canary in outputs; inputs are remembered, so that a change in
 * them is seen, and so that the oracle has the state that a call goes on from in
 * place.
 */
#ifndef CHECK_LINEAR_CASE_H
#define CHECK_LINEAR_CASE_H

#include "attn/linear_attention.h"
#include "guard.h"
#include "place.h"
#include "random.h"

/** Where each tensor of a case lies. */
enum linear_slot {
    LINEAR_SLOT_Q,
    LINEAR_SLOT_K,
    LINEAR_SLOT_V,
    LINEAR_SLOT_DECAY,
    LINEAR_SLOT_BETA,
    LINEAR_SLOT_RESETS,
    LINEAR_SLOT_STATE_IN, /**< nothing where the state goes on in place */
    LINEAR_SLOT_CU_SEQLENS,
    LINEAR_SLOT_LENGTHS,
    LINEAR_SLOT_OUT,
    LINEAR_SLOT_STATE_OUT,
    LINEAR_SLOT_WORKSPACE,
    LINEAR_SLOTS
};

/** Through which function a case is run. */
enum linear_entry { LINEAR_CALL, LINEAR_IN_WORKSPACE, LINEAR_PLAN, LINEAR_SHARES, LINEAR_ENTRIES };

/** Numbers of decay. */
enum linear_decays {
    DECAY_NONE,
    DECAY_ORDINARY, /**< -0.1 to 0 */
    DECAY_FAST,     /**< -3 to 0 */
    DECAY_STRONG,   /**< around -20 */
    DECAY_ZERO,
    DECAY_INF,  /**< ordinary ones, and -inf */
    DECAY_HUGE, /**< ordinary ones, and -1e30 */
    DECAY_MIXED,
    DECAYS
};

struct linear_case {
    struct guard guard[LINEAR_SLOTS];
    unsigned char *snapshot[LINEAR_SLOTS];
    size_t snapshot_capacity[LINEAR_SLOTS];

    attn_tensor q, k, v, out, decay, beta, resets, state_in, state_out;
    attn_linear_attention_params params;
    enum linear_entry entry;
    enum linear_decays decays;
    int nth;        /**< shares of a phase, of as many as the plan has threads at most */
    int in_place;   /**< state_out is state_in */
    int packed;     /**< q, k and v share a buffer */
    int planted;    /**< numbers that are not finite */
    int unit_keys;  /**< keys have the length 1, or 0 */
    int64_t tokens; /**< of the longest sequence */

    attn_tensor state_before; /**< a copy of state_in */
    float *state_memory;
};

/** Maps the guards. One struct serves any number of cases. */
void linear_case_initialize(struct linear_case *c);
void linear_case_release(struct linear_case *c);

/** Makes case index of the run that seed started, for one instruction set. */
void linear_case_generate(struct linear_case *c, uint64_t seed, uint64_t index, const char *isa);

/** Values of all tensors, once shapes, layouts and options stand. */
void linear_case_fill(struct linear_case *c, struct rng *rng);

/** Standard normal numbers times factor. */
void linear_fill_normal(const attn_tensor *t, float factor, struct rng *rng);

/** Whether the inputs are unchanged and nothing outside the outputs was written; else names what was. */
int linear_case_check_memory(const struct linear_case *c, char *message, size_t size);

/** One line with shapes, strides and options. */
void linear_case_describe(const struct linear_case *c, char *buffer, size_t size);

#endif
