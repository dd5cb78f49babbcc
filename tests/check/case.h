/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random cases for the forward pass.
 *
 * A case is made from (seed, index) alone. All of its tensors and arrays lie
 * between guard pages (support/guard.h), each in a guard of its own, flush
 * with one end; inputs are remembered so that a change in them is seen, and
 * the gaps between rows hold NaN in inputs and a canary in outputs.
 */
#ifndef CHECK_CASE_H
#define CHECK_CASE_H

#include "attn/attn.h"
#include "attn/backward.h"
#include "guard.h"
#include "oracle_backward.h"
#include "random.h"

#include <stdint.h>

#define CASE_MAX_ROWS 64

/** Where each tensor and array of a case lies. */
enum case_slot {
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_MASK,
    SLOT_KV_LEN,
    SLOT_KV_START,
    SLOT_QUERY_OFFSET,
    SLOT_WEIGHT_ROWS,
    SLOT_PREFIX_LEN,
    SLOT_WINDOW_GLOBAL,
    SLOT_BLOCK_OFFSETS,
    SLOT_BLOCK_COLUMNS,
    SLOT_SEGMENTS_Q,
    SLOT_SEGMENTS_K,
    SLOT_ANCESTORS,
    SLOT_CU_SEQLENS_Q,
    SLOT_CU_SEQLENS_K,
    SLOT_HEAD_SCALE,
    SLOT_SINKS,
    SLOT_ALIBI_SLOPES,
    SLOT_BIAS_TABLE,
    SLOT_REL_K,
    SLOT_REL_Q,
    SLOT_ROPE_Q,
    SLOT_ROPE_K,
    SLOT_K_POOL,
    SLOT_V_POOL,
    SLOT_BLOCK_TABLE,
    SLOT_PAGED_KV_LEN,
    SLOT_K_NUMBERS,
    SLOT_V_NUMBERS,
    SLOT_K_SCALE,
    SLOT_V_SCALE,
    SLOT_D_OUT,
    SLOT_D_LSE,
    SLOT_FIRST_OUTPUT,
    SLOT_OUT = SLOT_FIRST_OUTPUT,
    SLOT_LSE,
    SLOT_WEIGHTS,
    SLOT_KEY_SUMS,
    SLOT_SCORES,
    SLOT_D_Q,
    SLOT_D_K,
    SLOT_D_V,
    SLOT_D_MASK, /* these in the order of enum gradient_of, too */
    SLOT_D_ALIBI_SLOPES,
    SLOT_D_RELATIVE_BIAS,
    SLOT_D_SINKS,
    SLOT_D_HEAD_SCALE,
    SLOT_D_REL_K,
    SLOT_D_REL_Q,
    SLOT_LAST_OUTPUT = SLOT_D_REL_Q,
    SLOT_WORKSPACE,
    SLOTS
};

enum case_values { VALUES_NORMAL, VALUES_HUGE, VALUES_INF, VALUES_NAN, VALUES_DENORMAL, VALUES_CONSTANT, VALUES_KINDS };

/** Through which function the case is run. */
enum case_entry { ENTRY_FORWARD, ENTRY_PLAN_RUN, ENTRY_PLAN_SHARE, ENTRIES };

/** The type of each tensor that has a choice; mask: if it is additive. */
struct case_types {
    attn_dtype q, k, v, out, mask;
};

/** Options by which attention takes other forms: each alone, and in combinations. */
enum case_form {
    FORM_QUERY_OFFSET, /**< positions without causality */
    FORM_PREFIX_LEN,
    FORM_WINDOW,
    FORM_BLOCK_MASK,
    FORM_SEGMENTS,
    FORM_TREE,
    FORM_RAGGED,
    FORM_HEAD_SCALE,
    FORM_SOFTCAP,
    FORM_SINKS,
    FORM_ALIBI,
    FORM_RELATIVE_BIAS,
    FORM_DISENTANGLED,
    FORM_ROPE,
    FORM_CALLBACK,
    FORM_DROPOUT,
    FORM_WEIGHT_CALLBACK,
    FORMS
};

/** What the callback of a case does to a score. */
enum case_callback_kind {
    CALLBACK_NOTHING,
    CALLBACK_ADD,       /**< adds a function of the indices */
    CALLBACK_HALVE,     /**< halves it first */
    CALLBACK_HIDE,      /**< hides some keys, by their indices */
    CALLBACK_OVERWRITE, /**< writes a function of the indices, also where a key is hidden already */
    CALLBACK_BEND,      /**< makes s / (1 + |s|) of a score s, and 0 of one that is hidden */
    CALLBACK_KINDS
};

/** What the callback of weights does to one. */
enum case_weight_kind {
    WEIGHT_NOTHING,
    WEIGHT_CLEAR,     /**< puts 0 for some keys, by their indices */
    WEIGHT_STEER,     /**< halves it and adds a function of the indices */
    WEIGHT_OVERWRITE, /**< writes a function of the indices, also where a key is hidden */
    WEIGHT_KINDS
};

struct test_case;

struct case_callback {
    enum case_callback_kind kind;
    uint64_t seed;
    float size;
    const struct test_case *test_case;
    int watching; /**< the library is at work: every tile is looked at */
    int wrong;    /**< one was outside the problem, or had a hidden key that was not at -inf */
};

/** The same for weights: hidden keys have to be at 0. */
struct case_weight_callback {
    enum case_weight_kind kind;
    uint64_t seed;
    const struct test_case *test_case;
    int watching, wrong;
};

struct test_case {
    struct guard guard[SLOTS];
    unsigned char *snapshot[SLOTS]; /**< the inputs as they were */
    size_t snapshot_capacity[SLOTS];
    int backward; /**< set before a case is made: it is one of the backward pass, with nothing that this refuses */

    attn_tensor q, k, v, out, mask, lse, weights, key_sums, scores;
    attn_params params;
    enum case_values values;
    enum case_entry entry;
    /** What the library is called with: k, v and params, or the same in pages (params.block_table), or quantised. */
    struct {
        attn_tensor k, v, k_scale, v_scale;
        attn_params params;
        attn_ragged ragged;
    } called;
    int packed;                              /**< q, k and v share one buffer */
    int short_mask;                          /**< the mask ends before the keys do */
    int stored;                              /**< of k and v, so many are quantised */
    attn_tensor d_out, d_lse;                /**< of the backward pass */
    attn_tensor d_of[GRADIENTS];             /**< what it writes; arrays as one row */
    const attn_tensor *d_written[GRADIENTS]; /**< those of them that are wanted, else NULL */
    attn_gradients gradients;                /**< the same, as the call gets them */
    unsigned forms;                          /**< bit f: enum case_form f is set */

    attn_window window;
    attn_block_mask block_mask;
    attn_segments segments;
    attn_tree tree;
    attn_ragged ragged;
    attn_relative_bias relative_bias;
    attn_disentangled disentangled;
    attn_rope_tables rope;
    attn_dropout dropout;
    attn_tensor rel_k, rel_q, rope_q, rope_k;
    struct case_callback callback;
    struct case_weight_callback weight_callback;
};

/** Maps the guards. One struct serves any number of cases. */
void case_initialize(struct test_case *c);
void case_release(struct test_case *c);

/** Makes case index of the run that seed started, for one instruction set. */
void case_generate(struct test_case *c, uint64_t seed, uint64_t index, const char *isa);

/** The tensors of a backward pass, once the case is made; attn_forward() is to be called next. */
void case_draw_gradients(struct test_case *c, uint64_t seed, uint64_t index);

/** Overwrites what the backward pass may not look at, once out and lse stand, and remembers its inputs. */
void case_begin_backward(struct test_case *c, uint64_t seed, uint64_t index);

/** Keeps the inputs' bytes for case_check_memory(). */
void case_remember_inputs(struct test_case *c);

/** Values of dO and dL. */
void case_fill_gradients(struct test_case *c, struct rng *rng);

/** Puts NaN, Inf or a huge number into a row, unless it is one of several by a stride of 0. */
void case_poison_row(const attn_tensor *t, int64_t b, int64_t h, int64_t i, struct rng *rng);

/** The name of a form in attn_params. */
const char *case_form_name(enum case_form form);

/** Values of the tensors, once shapes, layouts and lengths stand. */
void case_fill(struct test_case *c, struct rng *rng);

/** Whether the inputs are unchanged and nothing outside the outputs was written; else names what was. */
int case_check_memory(const struct test_case *c, char *message, size_t size);

/** One line with shapes, strides and options. */
void case_describe(const struct test_case *c, char *buffer, size_t size);

#endif
