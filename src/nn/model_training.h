/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the models have in common in training: the options of a pass, the places
 * of their dropout, and tensors that belong to no layer.
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

/** A pass through a model. */
struct nn_model_run {
    attn_model_pass pass; /**< completed */
    int64_t layers;       /**< of the model in all */
    attn_dtype dtype;     /**< of what lies between products */
    int is_backward, accumulate;
    void *scratch; /**< of a layer, a norm or a product, one at a time */
    size_t scratch_size;
};

/** The pass of a run. */
attn_status nn_model_take_pass(struct nn_model_run *run, const attn_model_pass *pass);

/** That a backward pass has what the forward pass, which is called forward, has kept. */
attn_status nn_model_check_kept(const struct nn_model_run *run, const char *forward);
/** The memory of what is kept, which has been measured. */
attn_status nn_model_open_kept(const struct nn_model_run *run, const struct nn_arena *measured,
                               struct nn_workspace *kept);

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
attn_status nn_model_check_tensors(const struct nn_model_run *run, const struct nn_model_tensor *tensors, int num,
                                   struct nn_arrays *arrays);

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
