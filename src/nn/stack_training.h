/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers of an encoder or a decoder in training, one behind the other. The
 * input of each is kept for the backward pass, and with ATTN_KEEP_ALL what the
 * layer itself keeps; a pass that keeps nothing has room for two inputs.
 */
#ifndef ATTN_NN_STACK_TRAINING_H
#define ATTN_NN_STACK_TRAINING_H

#include "nn/memory.h"
#include "nn/model_training.h"

struct nn_stack {
    const struct nn_model_run *run;
    const char *name;         /**< of the weights in sentences */
    attn_block_config config; /**< of each layer */
    int64_t layers, before;   /**< before: layers of the model that come first */
    int64_t tokens, memory_tokens;
    attn_ragged self, cross; /**< sequences */
    attn_causal causal;
    const attn_block_weights *const *weights, *const *gradients; /**< [layers]; gradients may be NULL, or its entries */

    int64_t num_inputs; /**< set by nn_stack_take(), as are the next three */
    char *inputs;       /**< [num_inputs][tokens][d_model] of the run's type */
    char *kept;         /**< [layers][kept_size]; NULL: nothing of it is kept */
    size_t kept_size;   /**< of one layer */
    const attn_tensor
        *out; /**< of the last layer in a forward pass; set before nn_stack_check(), as are the next two */
    const attn_tensor *memory, *d_memory;
};

/** That the config of the layers is one that can be trained. */
attn_status nn_stack_check_config(const struct nn_stack *stack);

/** Takes inputs, and what layers keep: of what a backward pass reads (is_kept), or of working memory. */
void nn_stack_take(struct nn_arena *arena, struct nn_stack *stack, int is_kept);
/** Whether the pass keeps what layers keep. */
int nn_stack_keeps_all(const struct nn_stack *stack);
/** Workspace of a layer in this pass. */
attn_status nn_stack_need(const struct nn_stack *stack, struct nn_need *need);

/** Entries in arrays of nn_stack_check(). */
int64_t nn_stack_arrays(const struct nn_stack *stack);
/** Checks all layers before the first one runs. d: as of nn_stack_backward(). */
attn_status nn_stack_check(const struct nn_stack *stack, const attn_tensor *d, struct nn_arrays *arrays);

/** The input of a layer. */
attn_tensor nn_stack_input(const struct nn_stack *stack, int64_t layer);
/** From the input of the first layer, which the caller has filled, to out. */
attn_status nn_stack_forward(const struct nn_stack *stack);

/** The first layer with a gradient to write; layers if there is none. */
int64_t nn_stack_lowest(const struct nn_stack *stack);
/**
 * The gradients of the layers from the last one down to lowest. d is that of out, f32, and becomes that of the lowest
 * layer's input; with memory d_memory becomes its.
 */
attn_status nn_stack_backward(const struct nn_stack *stack, int64_t lowest, const attn_tensor *d);

#endif
