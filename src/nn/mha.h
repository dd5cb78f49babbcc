/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a Transformer layer asks of its attention beyond the public calls: a
 * residual in the last product, rotation of what is new, a cache. The pieces of
 * working memory are the caller's to take, so that one workspace serves a layer.
 */
#ifndef ATTN_NN_MHA_INTERNAL_H
#define ATTN_NN_MHA_INTERNAL_H

#include "api/call.h"
#include "attn/cache.h"
#include "attn/nn/mha.h"
#include "attn/rope.h"
#include "nn/check.h"
#include "nn/memory.h"
#include "nn/names.h"

enum { NN_MHA_TENSORS = 8 };

/** Weights, or gradients of weights, under the names that sentences have for them. */
struct nn_mha_named {
    const attn_tensor *tensors[NN_MHA_TENSORS];
    struct nn_name names[NN_MHA_TENSORS];
};
/** Names behind a prefix such as "weights.". */
struct nn_mha_named nn_mha_name_weights(const char *prefix, const attn_mha_weights *weights);
/** The same for nn_check_apart(), tensors without data NULL; named has to stay. */
void nn_mha_list_weights(struct nn_argument list[NN_MHA_TENSORS], const struct nn_mha_named *named);
/** Weights of the shapes that a completed config says. */
attn_status nn_check_mha_weights(const attn_mha_config *config, const char *prefix, const attn_mha_weights *weights);
/** The same of gradients, which may have no data. */
attn_status nn_mha_check_sums(const attn_mha_config *config, const struct nn_mha_named *named);

/** Channels first.. of a (B, 1, T, C) tensor as heads of width channels. */
static inline attn_tensor nn_heads_of(const attn_tensor *t, int64_t first, int64_t heads, int64_t width)
{
    attn_tensor view = *t;
    view.data = t->data ? (char *)t->data + first * attn_element_size(t->dtype) : NULL;
    view.shape[1] = heads;
    view.shape[3] = width;
    view.stride[1] = width;
    view.stride[3] = 1;
    return view;
}

/** The sizes of a layer with defaults filled in. */
const attn_mha_config *nn_mha_config(const attn_mha *mha);

/** attn_mha_load() with a completed config, for a loader that reads more. */
attn_status nn_mha_load(attn_mha **mha, const attn_mha_config *config, struct nn_reader *reader, const char *prefix);

/**
 * Has the heads of queries and keys normalised by RMS, each over its channels, when they have been projected; query and
 * key (1, 1, 1, head_dim) are copied.
 */
attn_status nn_mha_set_norms(attn_mha *mha, const attn_tensor *query, const attn_tensor *key, float eps);

/** One pass through a layer. Exactly one of these is where keys and values are from: x, memory, kv. */
struct nn_mha_call {
    const attn_tensor *x;
    const attn_tensor *memory; /**< cross-attention: what to project; NULL: x, or kv */
    const attn_tensor *kv;     /**< keys and values that are attended to, projected before; NULL: none */
    const attn_tensor *new_kv; /**< with kv: the part of it that x's own keys and values go to; NULL: none */
    attn_cache *kv_cache;      /**< NULL, or where x's keys and values go, as those of its step, and are attended to */
    int64_t layer;             /**< of kv_cache */
    const attn_tensor *rotation; /**< NULL or a rope table for q, and for the new keys */
    attn_rope_layout layout;
    const attn_tensor *residual; /**< NULL or added to out; may be out */
    const attn_tensor *out;
    const attn_params *params; /**< completed by attn_take_params(), with the num_threads of the call */
    struct attn_call core;     /**< set by nn_mha_check(): its attention, which has been checked and only has to run */
};

/** Working memory of a call. */
struct nn_mha_pieces {
    attn_dtype dtype;     /**< of heads: that of x */
    attn_dtype qkv;       /**< of q and kv: the same, or bf16 where the attention would round them to it */
    void *q, *kv, *heads; /**< kv is not used where a call brings its own */
    void *core;
    size_t core_size;
};

/** What the working memory of a call follows from. */
struct nn_mha_shape {
    attn_dtype dtype; /**< of x */
    int64_t batch, q_tokens, k_tokens;
    /** Keys and values that the call brings, for their type, and for their shape if they are pages; NULL: there is room
     * for its own. */
    const attn_tensor *kv;
    int elsewhere; /**< the attention has memory of its own: that of an attn_cache */
    int rotates;   /**< q and k are rotated between their projection and the attention */
};

/** Takes the pieces for a shape. The arena's status tells if the options do not fit it. */
struct nn_mha_pieces nn_mha_take(struct nn_arena *arena, const attn_mha *mha, const struct nn_mha_shape *shape,
                                 const attn_params *params);

/** Checks the options of a call against its shapes, and the arrays that they point to, without writing anything. */
attn_status nn_mha_check(const attn_mha *mha, struct nn_mha_call *call, const struct nn_mha_pieces *pieces);

/** Runs a call that nn_mha_check() has let pass, with the same pieces. */
attn_status nn_mha_run(const attn_mha *mha, const struct nn_mha_call *call, const struct nn_mha_pieces *pieces);

#endif
