/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the models have in common in training: the options of a pass and its
 * memory, the places of dropout, and tensors that belong to no layer.
 */
#ifndef ATTN_NN_MODEL_TRAINING_INTERNAL_H
#define ATTN_NN_MODEL_TRAINING_INTERNAL_H

#include "attn/nn/model_training.h"
#include "nn/arrays_apart.h"
#include "nn/memory.h"

/** Places of dropout, as attn_model_pass has them; those of a layer behind its first. */
enum {
    NN_PLACE_EMBEDDED = 0,
    NN_PLACE_DECODER = 1,
    NN_PLACE_HIDDEN = 3,
    NN_PLACE_SELF = 4,
    NN_PLACE_CROSS = 5,
    NN_PLACES_OF_LAYER = 8
};

struct nn_model_run;

/** What a kind of model does in a pass. Its own run begins with a struct nn_model_run, which all of them are given. */
struct nn_model_kind {
    /** Takes what a backward pass reads (is_kept), or what a forward pass needs in its place. */
    void (*take_kept)(struct nn_arena *arena, struct nn_model_run *run, int is_kept);
    /** Takes the rest of working memory. */
    void (*take_pieces)(struct nn_arena *arena, struct nn_model_run *run);
    /** What layers, norms and products need, one at a time. */
    attn_status (*measure_scratch)(const struct nn_model_run *run, struct nn_need *need);
    /** Checks all tensors but the result, and adds them to arrays. */
    attn_status (*check_tensors)(struct nn_model_run *run);
    attn_status (*run_forward)(struct nn_model_run *run);
    attn_status (*run_backward)(struct nn_model_run *run);
};

/** A pass through a model. */
struct nn_model_run {
    const struct nn_model_kind *kind;
    attn_model_pass pass; /**< completed */
    int64_t layers;       /**< of the model in all */
    attn_dtype dtype;     /**< of what lies between products */
    int is_backward, accumulate;
    const char *result_name;   /**< of the next one in sentences */
    const attn_tensor *result; /**< what a forward pass writes; its gradient, which a backward pass reads */
    int64_t most_arrays;       /**< that check_tensors() adds */
    struct nn_arrays arrays;
    void *scratch; /**< what measure_scratch() asks for */
    size_t scratch_size;
};

/** The pass of a run. */
attn_status nn_model_take_pass(struct nn_model_run *run, const attn_model_pass *pass);

/** That a backward pass has what the forward pass, which is called forward, has kept. */
attn_status nn_model_check_kept(const struct nn_model_run *run, const char *forward);
/** That training reads weights as they are given. */
attn_status nn_model_check_format(const attn_linear_format *format);

/** Bytes of what a pass of this kind keeps, or SIZE_MAX. */
size_t nn_model_kept_size(struct nn_model_run *run);
/** Bytes of workspace for passes of this kind, those that keep nothing, too; or SIZE_MAX. */
size_t nn_model_workspace_size(struct nn_model_run *run);
/** A pass whose arguments have been taken: memory, checks of what lies in it, and the kind's own part. */
attn_status nn_model_run_pass(struct nn_model_run *run, void *workspace, size_t workspace_size);

/** Dropout of probability p at a place: *of, or NULL where nothing is dropped. */
const attn_dropout *nn_model_dropout(const struct nn_model_run *run, float p, int64_t place, attn_dropout *of);

/** The dropout of embeddings, or of their gradient, in place. */
attn_status nn_model_drop(const struct nn_model_run *run, int64_t place, const attn_tensor *rows);

/** Contiguous rows of one sequence. */
attn_tensor nn_model_rows(void *data, attn_dtype dtype, int64_t tokens, int64_t channels);

/** A tensor of weights that belongs to no layer, and where its gradient goes. */
struct nn_model_tensor {
    const char *name;
    const attn_tensor *weights, *gradients;
    int64_t rows; /**< 0: a vector, which may be missing */
    int64_t columns;
    int is_table; /**< rows are looked up: their channels are contiguous */
};

/** Checks tensors, their gradients in a backward pass, and adds them to arrays. */
attn_status nn_model_check_tensors(struct nn_model_run *run, const struct nn_model_tensor *tensors, int num);

/** LayerNorm over rows, gamma and beta as they lie. */
attn_status nn_model_normalise(const struct nn_model_run *run, const attn_tensor *rows, const attn_tensor *gamma,
                               const attn_tensor *beta, float eps, const attn_tensor *out);
/** Its gradients: d of rows, in place, and those of gamma and beta that have data. */
attn_status nn_model_normalise_back(const struct nn_model_run *run, const attn_tensor *rows, const attn_tensor *gamma,
                                    float eps, const attn_tensor *d, const attn_tensor *d_gamma,
                                    const attn_tensor *d_beta);
/** Workspace of that. */
size_t nn_model_norm_need(int64_t tokens, int64_t channels);

#endif
