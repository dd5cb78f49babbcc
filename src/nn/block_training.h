/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Transformer layer in training. With the residual stream r, which is x at
 * first, each sublayer is
 *
 *     post-norm:  sum = r + dropout(sublayer(r)),       r = norm(sum)
 *     pre-norm:   sum = r + dropout(sublayer(norm(r))), r = sum
 *
 * A forward pass keeps every sum that a norm reads later, what each attention
 * keeps (mha_training.h), and what goes into the activation of the network.
 */
#ifndef ATTN_NN_BLOCK_TRAINING_H
#define ATTN_NN_BLOCK_TRAINING_H

#include "nn/block.h"
#include "nn/mha_training.h"
#include "nn/product_rows.h"

/** Sublayers, in the order of a forward pass: what is called sublayer below. */
enum { NN_SELF, NN_CROSS, NN_NETWORK, NN_SUBLAYERS };

/** What a backward pass reads besides x. Rows are of the type of x. */
struct nn_block_kept {
    void *attention[NN_NETWORK]; /**< [nn_mha_kept_size()] of each attention */
    void *sums[NN_SUBLAYERS];    /**< [B][T][d_model]; that of the network in post-norm layers alone */
    void *hidden, *gate;         /**< [B][T][d_ff]: up(x), and gate(x) with gated */
};

/** Working memory. */
struct nn_block_pieces {
    struct nn_block_kept kept;
    void *normed;           /**< [B][T][d_model] of the type of x: what a sublayer reads */
    void *activated;        /**< [B][T][d_ff] of the type of x: what the second product reads */
    float *wide[2];         /**< [B][T][d_ff] sums of products; gradients of hidden and gate */
    float *branch;          /**< [B][T][d_model] sums of a product; the gradient of what dropout has left */
    float *d, *d_normed;    /**< [B][T][d_model] gradients of r and of norm(r) */
    float *turned, *biases; /**< a matrix turned; of up, gate and down */
    void *scratch, *inner;  /**< of products; of attentions and norms */
    size_t scratch_size, inner_size;
};

/** A pass. */
struct nn_block_run {
    attn_block_config config;                 /**< completed */
    attn_block_weights weights, sums;         /**< sums: where gradients of weights go */
    attn_block_pass pass;                     /**< completed */
    struct nn_mha_pass attention[NN_NETWORK]; /**< their weights, options, gradients */
    attn_block_gradients gradients;           /**< completed; of a backward pass */
    const attn_tensor *x, *d_out;
    int is_backward;
    attn_dtype dtype; /**< of x */
    int64_t batch, tokens, memory_tokens;
    int narrow_memory; /**< the gradient of memory is not f32 */
    struct nn_workspace workspace;
    struct nn_block_pieces pieces;
};

/** Config and pass of a run, and the configs and options of its attentions; nothing of tensors. */
attn_status nn_block_take_pass(struct nn_block_run *run, const attn_block_config *config, const attn_block_pass *pass);
/** Gradients of a backward pass; NULL is refused. */
attn_status nn_block_take_gradients(struct nn_block_run *run, const attn_block_gradients *gradients);
/** Weights and x, and the memory of the pass; sets sizes and types. */
attn_status nn_block_check_inputs(struct nn_block_run *run, const attn_block_weights *weights, const attn_tensor *x);
/** That out is one, and apart from all inputs. */
attn_status nn_block_check_out(const struct nn_block_run *run, const attn_tensor *out);
/** Tensors of weights, or of their gradients, of a layer. */
enum { NN_BLOCK_TENSORS = 2 * NN_MHA_TENSORS + 12 };
/** All of them, once they have been checked, at the same place in both lists; data NULL: there is none. */
void nn_block_list_tensors(const struct nn_block_run *run, const attn_tensor *weights[NN_BLOCK_TENSORS],
                           const attn_tensor *sums[NN_BLOCK_TENSORS]);
/** d_out and gradients. */
attn_status nn_block_check_gradients(const struct nn_block_run *run, const attn_tensor *d_out);

/** Bytes of what is kept, of any alignment, or SIZE_MAX. */
size_t nn_block_kept_size(const struct nn_block_run *run);
/** Workspace of a pass, whose sizes and types are set; SIZE_MAX after an error, whose status is returned. */
attn_status nn_block_run_need(struct nn_block_run *run, struct nn_need *need);
/** The largest one of all types of x, or SIZE_MAX. */
size_t nn_block_most(struct nn_block_run *run);
/** Takes memory, and checks the options of attentions, without writing anything but to the workspace. */
attn_status nn_block_open(struct nn_block_run *run, void *workspace, size_t workspace_size);
void nn_block_close(struct nn_block_run *run);

/** Fills what is kept. */
attn_status nn_block_run_kept(struct nn_block_run *run);

/** Rows of a run. */
attn_tensor nn_block_rows(const struct nn_block_run *run, void *data, attn_dtype dtype, int64_t channels);
/** The sum that a sublayer has left. */
attn_tensor nn_block_sum(const struct nn_block_run *run, int sublayer);
/** The last of the attentions. */
int nn_block_last_attention(const struct nn_block_run *run);
/** Vectors of the norm of a sublayer in weights, or in sums. */
struct nn_norm_tensors {
    const attn_tensor *gamma, *beta; /**< NULL: none */
};
struct nn_norm_tensors nn_block_norm(const attn_block_weights *weights, int sublayer);
/** What the norm of a sublayer makes of rows, in the run's memory. */
attn_status nn_block_normalise(const struct nn_block_run *run, int sublayer, const attn_tensor *rows,
                               attn_tensor *normed);
/** What the network's second product reads, from what is kept. */
attn_status nn_block_activate(const struct nn_block_run *run, attn_tensor *activated);
/** Where products are made. */
struct nn_product_place nn_block_place(const struct nn_block_run *run);
/** The dropout of what a sublayer adds: *of, or NULL. */
const attn_dropout *nn_block_dropout(const struct nn_block_run *run, int sublayer, attn_dropout *of);

#endif
