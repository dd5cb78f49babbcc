/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-head attention in training: the forward pass on weights as they lie,
 * which keeps queries, keys, values, heads and their log-sum-exp, and the
 * backward pass, which reads them.
 *
 *     make the pass         config, weights, options and tensors, as far as one call tells
 *     check                 everything else that shapes tell
 *     open                  memory, and what can only be told with it; nothing is written yet
 *     run, close
 */
#ifndef ATTN_NN_MHA_TRAINING_H
#define ATTN_NN_MHA_TRAINING_H

#include "nn/mha.h"

/** What a backward pass reads besides x: in memory of the caller's, or of the pass. Of the type of x, but for lse. */
struct nn_mha_kept {
    void *q, *kv, *heads; /**< [B][Tq][heads*head_dim], [B][Tk][keys, values], [B][Tq][heads*value_dim] */
    float *lse;           /**< [B][heads][Tq] */
};

/** Working memory, all f32. */
struct nn_mha_training_pieces {
    struct nn_mha_kept kept;
    float *d_q, *d_kv;     /**< gradients of q and kv; in a forward pass their sums without biases */
    float *d_heads;        /**< of heads */
    float *d_x, *d_memory; /**< of what is not f32, before rounding */
    float *sums;           /**< in a forward pass: out without its bias */
    float *turned;         /**< a matrix with rows and columns exchanged */
    float *biases;         /**< of q, then of kv, then of out */
    void *scratch, *core;  /**< of products; of attention */
    size_t scratch_size, core_size;
};

/** A pass. */
struct nn_mha_pass {
    attn_mha_config config; /**< completed */
    attn_mha_weights weights;
    const attn_tensor *x, *memory; /**< memory: x without one */
    attn_params params;
    int is_backward;
    int is_kept; /**< what is kept lies in the caller's memory; else in the pass's own, and a backward pass fills it */
    void *kept;  /**< [nn_mha_kept_size()] of the caller's */

    const attn_tensor *out;      /**< forward: where out goes, f32, bf16 or f16 */
    const attn_tensor *residual; /**< forward: NULL or added to out, of its type; may be out */
    const attn_dropout *dropout; /**< forward: NULL, or of out before residual is added */

    const attn_tensor *d_out;     /**< backward */
    attn_mha_gradients gradients; /**< backward: completed */
    attn_mha_weights sums;        /**< backward: where those of weights go */
    attn_gradients options;       /**< backward: those of options */
    int accumulate_x;             /**< backward: that of x, f32, is added to what is there */
    int accumulate_memory;        /**< backward: the same of the memory's */

    /* Set by nn_mha_pass_size() from here on. */
    attn_dtype dtype; /**< of x: that of queries, keys, values and heads */
    int64_t batch, q_tokens, k_tokens;
    int crosses;                 /**< there is a memory */
    int narrow_x, narrow_memory; /**< their gradients are not f32 */
    /* Set by nn_mha_pass_open(). */
    struct nn_workspace workspace;
    struct nn_mha_training_pieces pieces;
    attn_tensor lse;         /**< of pieces.kept */
    attn_params core_params; /**< params with lse */
    struct attn_call core;   /**< the attention of a forward pass, or of one that is run again */
};

static inline int64_t nn_mha_q_channels(const attn_mha_config *c)
{
    return c->heads * c->head_dim;
}

static inline int64_t nn_mha_k_channels(const attn_mha_config *c)
{
    return c->kv_heads * c->head_dim;
}

static inline int64_t nn_mha_kv_channels(const attn_mha_config *c)
{
    return c->kv_heads * (c->head_dim + c->value_dim);
}

static inline int64_t nn_mha_heads_channels(const attn_mha_config *c)
{
    return c->heads * c->value_dim;
}

/** Tensors of the attention, or of their gradients: as rows, and as heads. */
struct nn_mha_core {
    attn_tensor q_rows, kv_rows, k_rows, v_rows, heads_rows;
    attn_tensor q, k, v, out;
};

/** Those of a pass in memory of a type. */
struct nn_mha_core nn_mha_core_of(const struct nn_mha_pass *pass, attn_dtype dtype, void *q, void *kv, void *heads);
/** What attention reads and writes in a backward pass, whose gradients are d. */
attn_gradients nn_mha_core_gradients(const struct nn_mha_pass *pass, const struct nn_mha_core *d);

/** A config that a pass can run. */
attn_status nn_mha_take_training_config(attn_mha_config *ours, const attn_mha_config *config);
/** Options that a pass can run with. */
attn_status nn_mha_take_training_params(struct nn_mha_pass *pass, const attn_params *params);
/** Gradients of a backward pass; NULL is refused. */
attn_status nn_mha_take_gradients(struct nn_mha_pass *pass, const attn_mha_gradients *gradients);
/** Sets what follows from the tensors of a pass, which have been checked; memory NULL without one. */
attn_status nn_mha_pass_size(struct nn_mha_pass *pass, const attn_tensor *memory);
/** Weights, x and memory (NULL without one) of a pass, and memory of the caller's; calls nn_mha_pass_size(). */
attn_status nn_mha_check_inputs(struct nn_mha_pass *pass, const attn_mha_weights *weights, const attn_tensor *memory,
                                void *kept, size_t kept_size, const char *kept_name);
/** That out is one, and apart from all inputs. */
attn_status nn_mha_check_out(const struct nn_mha_pass *pass, const attn_tensor *memory);
/** d_out and gradients, against the config and each other. */
attn_status nn_mha_check_gradients(const struct nn_mha_pass *pass, const attn_tensor *memory);

/** Bytes of what is kept, of any alignment, or SIZE_MAX. */
size_t nn_mha_kept_size(const attn_mha_config *config, attn_dtype dtype, int64_t batch, int64_t q_tokens,
                        int64_t k_tokens);
/** Workspace of a pass, whose sizes and types are set; or what is wrong with its options. */
attn_status nn_mha_pass_need(const struct nn_mha_pass *pass, struct nn_need *need);
/** Its size for the type of x that needs most, or SIZE_MAX. */
size_t nn_mha_pass_most(struct nn_mha_pass *pass);
/** Takes memory, and checks the options of attention, without writing anything but to the workspace. */
attn_status nn_mha_pass_open(struct nn_mha_pass *pass, void *workspace, size_t workspace_size);
void nn_mha_pass_close(struct nn_mha_pass *pass);

/** Queries, keys, values, heads and their log-sum-exp. */
attn_status nn_mha_run_heads(const struct nn_mha_pass *pass);
/** A forward pass. */
attn_status nn_mha_run_forward(const struct nn_mha_pass *pass);
/** A backward pass. */
attn_status nn_mha_run_backward(const struct nn_mha_pass *pass);

#endif
