/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file block.h
 * @brief A Transformer layer: self-attention, cross-attention if wanted, feed-forward network, residuals, norms.
 *
 *     post-norm (Vaswani et al. 2017):  x = norm(x + sublayer(x))
 *     pre-norm (Xiong et al. 2020):     x = x + sublayer(norm(x))
 *
 * One object serves encoders, decoders, BERT and Llama; what differs is in its config.
 */
#ifndef ATTN_NN_BLOCK_H
#define ATTN_NN_BLOCK_H

#include "attn/nn/elementwise.h"
#include "attn/cache.h"
#include "attn/nn/mha.h"
#include "attn/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Under which names a layer's weights stand behind its prefix. Only PyTorch's and T5's have cross-attention, only
 * Llama's and T5's a gate; a config that asks for more is ATTN_UNSUPPORTED.
 */
typedef enum attn_naming {
    /**
     * PyTorch's nn.TransformerEncoderLayer and nn.TransformerDecoderLayer: self_attn.*, multihead_attn.*, linear1.*,
     * linear2.*, norm1.* to norm3.*.
     */
    ATTN_NAMING_TORCH = 0,
    /** BERT in Transformers: attention.self.query.*, attention.output.dense.*, attention.output.LayerNorm.*,
     * intermediate.dense.*, output.dense.*, output.LayerNorm.*; old files have gamma and beta for the norms' weight and
     * bias. */
    ATTN_NAMING_BERT = 1,
    /** Llama in Transformers: self_attn.q_proj.* to o_proj.*, mlp.gate_proj.*, up_proj.*, down_proj.*,
     * input_layernorm.weight, post_attention_layernorm.weight; with qk_norm self_attn.q_norm.weight and
     * k_norm.weight; with post_norms post_attention_layernorm is that behind attention, and there are
     * pre_feedforward_layernorm.weight and post_feedforward_layernorm.weight. self_attn.rotary_emb.inv_freq, which
     * older files have, is not read: the table of a call says how it turns. */
    ATTN_NAMING_LLAMA = 2,
    /** DistilBERT in Transformers: attention.q_lin.* to out_lin.*, sa_layer_norm.*, ffn.lin1.*, ffn.lin2.*,
     * output_layer_norm.*. */
    ATTN_NAMING_DISTILBERT = 3,
    /** GPT-2 in Transformers, whose matrices are (in, out): attn.c_attn.* with queries, keys and values behind each
     * other, attn.c_proj.*, mlp.c_fc.*, mlp.c_proj.*, ln_1.*, ln_2.*. attn.bias and attn.masked_bias, the masks of
     * older files, are not read. */
    ATTN_NAMING_GPT2 = 4,
    /** T5 in Transformers: layer.0.SelfAttention.q.* to o.*, layer.0.layer_norm.weight,
     * layer.1.DenseReluDense.wi.* and wo.*, layer.1.layer_norm.weight; with a gate wi_0.* for it and wi_1.* for wi.*;
     * with cross-attention layer.1.EncDecAttention.q.* to o.* and layer.1.layer_norm.weight for it, and layer.2. for
     * layer.1. of the others. layer.1.EncDecAttention.relative_attention_bias.weight, which older files have, is not
     * read, as nothing uses it. */
    ATTN_NAMING_T5 = 5
} attn_naming;

/** What a layer is. Zero is the default of all but struct_size, attention and d_ff. */
typedef struct attn_block_config {
    size_t struct_size;               /**< sizeof of this struct as the caller compiled it */
    const attn_mha_config *attention; /**< of the self-attention; cross-attention has the same heads */
    int64_t d_ff;                     /**< channels inside the feed-forward network */
    attn_activation activation;       /**< between its two products; with gated that of the gate */
    int gated;                        /**< not 0: down(activation(gate(x)) * up(x)), SwiGLU with ATTN_ACTIVATION_SILU */
    attn_norm norm;                   /**< which normalisation */
    float eps;                        /**< its epsilon, as given */
    int norm_first;                   /**< not 0: pre-norm */
    int cross;                        /**< not 0: cross-attention between the two other sublayers */
    int64_t d_memory;                 /**< channels of the memory; 0 means d_model; only with cross */
    /**
     * How all matrices are kept and multiplied; NULL: as they are given, in f32. Those of attention have
     * attention->format, if that is set. Only looked at while the layer is made. @since 0.1, experimental
     */
    const attn_linear_format *format;
    /**
     * Not 0: the heads of queries and keys are normalised by RMS, each over its channels, before they are rotated
     * (Henry et al. 2020; Qwen 3): self_attn.q_norm.weight and k_norm.weight. Only with ATTN_NAMING_LLAMA, and not in
     * training. @since 0.1, experimental
     */
    int qk_norm;
    /**
     * Not 0, with norm_first: what self-attention and network give is normalised, too, before it is added (Gemma 2):
     * x = x + norm(sublayer(norm(x))). Only with ATTN_NAMING_LLAMA, and not in training. @since 0.1, experimental
     */
    int post_norms;
    /** Not 0: norms multiply by 1 + weight (Gemma). Not with qk_norm or in training. @since 0.1, experimental */
    int norm_plus_one;
} attn_block_config;

/** A config with every field at its default; set attention and d_ff. @since 0.1 */
static inline attn_block_config attn_block_config_default(void)
{
    attn_block_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/** A layer with its packed weights; immutable. */
typedef struct attn_block attn_block;

/** What a call of a layer is given besides its input; zero is every field's default except struct_size. */
typedef struct attn_block_inputs {
    size_t struct_size;        /**< sizeof of this struct as the caller compiled it */
    const attn_params *self;   /**< options of the self-attention: causality, masks, ragged, weights on request, ... */
    const attn_params *cross;  /**< those of the cross-attention */
    const attn_tensor *memory; /**< with cross: (B, 1, Tm, d_memory) of any of x's types, or cross_kv instead */
    /** With cross: its keys and values, projected once by attn_block_project_memory(). With cross->block_table they are
     * a pool of pages, (pages, 1, page_size, kv_heads*(head_dim + value_dim)). */
    const attn_tensor *cross_kv;
    /**
     * NULL, or a cache of keys and values (B, 1, capacity, kv_heads*(head_dim + value_dim)) as in attn/nn/mha.h whose
     * first cached tokens are those before x, f32, bf16 or f16. The tokens of x are added behind them, and x sees
     * cached + T keys, under self's options as the core counts them (causality: ATTN_CAUSAL_BOTTOM_RIGHT).
     */
    const attn_tensor *cache;
    int64_t cached; /**< tokens that the cache holds; only with it */
    const attn_tensor
        *rotation; /**< NULL or f32 (B|1, 1, T, 2*pairs): a rope table for the tokens of x; not with self->rope */
    attn_rope_layout rope; /**< how rotation turns channels; only with it */
    int num_threads;       /**< of everything, as in attn_params; that of self and cross is not looked at */
    /**
     * Of everything; NULL: the process's (attn_set_executor()), else OpenMP. One that self or cross names has this
     * attention and its projections, and nothing else of the layer.
     */
    const attn_executor *executor;
    /**
     * NULL, or a cache of attn/cache.h whose step has the T tokens of x, B = 1: their keys and values go to layer
     * kv_layer of it, and x sees those of its sequences, each its own. It rotates, too: not with cache or rotation.
     * self has options as attn_cache_attend() takes them. What that refuses is found when the keys have been appended;
     * out is not written then. @since 0.1, experimental
     */
    attn_cache *kv_cache;
    int64_t kv_layer; /**< only with kv_cache */
} attn_block_inputs;

/** Inputs with every field at its default. @since 0.1 */
static inline attn_block_inputs attn_block_inputs_default(void)
{
    attn_block_inputs i;
    memset(&i, 0, sizeof i);
    i.struct_size = sizeof i;
    return i;
}

/**
 * Makes a layer from named weights; *block is NULL on an error. Packs, so weights may go away. A name behind prefix
 * that naming does not list is an error, as attn/nn/weights.h has it: q_norm and k_norm of Qwen 3 without
 * config.qk_norm, say, or the two further norms of Gemma 2 without config.post_norms.
 * @since 0.1
 */
ATTN_API attn_status attn_block_load(attn_block **block, const attn_block_config *config, const attn_weights *weights,
                                     const char *prefix, attn_naming naming);
/** Frees a layer; NULL is allowed. @since 0.1 */
ATTN_API void attn_block_destroy(attn_block *block);
/** The self-attention of a layer, which lives as long as it. @since 0.1 */
ATTN_API const attn_mha *attn_block_attention(const attn_block *block);

/**
 * Bytes that attn_block_forward() needs for x of batch x tokens, whatever its type, and inputs (NULL: defaults);
 * SIZE_MAX on overflow.
 * @since 0.1
 */
ATTN_API size_t attn_block_workspace_size(const attn_block *block, int64_t batch, int64_t tokens,
                                          const attn_block_inputs *inputs);

/** Keys and values of the cross-attention, for every later step: kv as in attn_mha_project_kv(). @since 0.1 */
ATTN_API attn_status attn_block_project_memory(const attn_block *block, const attn_tensor *memory,
                                               const attn_tensor *kv, int num_threads);

/**
 * Runs a layer. The type of x is that of all that lies between its products: normalised rows, queries, heads, hidden
 * states of the feed-forward network, and keys and values that are not in a cache. Products, norms and the statistics
 * of softmax are f32. In pre-norm layers x + sublayer(x) has the type of out.
 *
 * @param block the layer
 * @param x      f32, bf16 or f16 (B, 1, T, d_model)
 * @param out    f32, bf16 or f16 (B, 1, T, d_model); may be x, must not otherwise overlap an input
 * @param inputs NULL or the rest
 * @param workspace attn_block_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1
 */
ATTN_API attn_status attn_block_forward(const attn_block *block, const attn_tensor *x, const attn_tensor *out,
                                        const attn_block_inputs *inputs, void *workspace, size_t workspace_size);

/* ---------------------------------------------------------------- training -- */

/**
 * Weights of a layer in PyTorch's orientation, f32, bf16 or f16, any strides. Biases and norms' vectors may have data
 * NULL: zeros, and ones for a gamma. What the config says that there is not has data NULL, or is not looked at.
 */
typedef struct attn_block_weights {
    size_t struct_size;            /**< sizeof of this struct as the caller compiled it */
    const attn_mha_weights *self;  /**< of the self-attention */
    const attn_mha_weights *cross; /**< of the cross-attention; NULL without one */
    attn_tensor w_gate;            /**< (1, 1, d_ff, d_model), with gated */
    attn_tensor b_gate;            /**< (1, 1, 1, d_ff) */
    attn_tensor w_up;              /**< (1, 1, d_ff, d_model) */
    attn_tensor b_up;              /**< (1, 1, 1, d_ff) */
    attn_tensor w_down;            /**< (1, 1, d_model, d_ff) */
    attn_tensor b_down;            /**< (1, 1, 1, d_model) */
    attn_tensor self_gamma;        /**< (1, 1, 1, d_model): of the norm of the self-attention, contiguous */
    attn_tensor self_beta;         /**< the same; data NULL with ATTN_NORM_RMS, as the other betas */
    attn_tensor cross_gamma;       /**< of the norm of the cross-attention */
    attn_tensor cross_beta;        /**< the same */
    attn_tensor network_gamma;     /**< of the norm of the feed-forward network */
    attn_tensor network_beta;      /**< the same */
} attn_block_weights;

/** Weights without data; set self, the matrices, and what else the layer has. @since 0.1, experimental */
static inline attn_block_weights attn_block_weights_default(void)
{
    attn_block_weights w;
    memset(&w, 0, sizeof w);
    w.struct_size = sizeof w;
    return w;
}

/**
 * A pass through a layer in training: what attn_block_train() and the attn_block_backward() that belongs to it are both
 * given. Zero is every field's default except struct_size.
 */
typedef struct attn_block_pass {
    size_t struct_size;        /**< sizeof of this struct as the caller compiled it */
    const attn_params *self;   /**< options of the self-attention as in attn_block_inputs, its dropout among them;
                                    without outputs on request */
    const attn_params *cross;  /**< those of the cross-attention */
    const attn_tensor *memory; /**< with cross: (B, 1, Tm, d_memory), f32, bf16 or f16 */
    /**
     * NULL, or dropout of what each sublayer adds to the residual (Vaswani et al. 2017, section 5.4), as
     * attn_drop_activations() has it: that of the self-attention at offset, of the cross-attention at offset + 1, of
     * the network at offset + 2.
     */
    const attn_dropout *dropout;
    const attn_dropout *hidden_dropout; /**< NULL, or dropout between the network's two products */
    /**
     * Memory of the caller's, of attn_block_kept_size() bytes, that attn_block_train() fills and attn_block_backward()
     * reads, unchanged in between: the sums before each norm, queries, keys, values, heads, and what goes into the
     * activation. NULL: nothing is kept, and the backward pass runs the forward pass again (gradient checkpointing,
     * Chen et al. 2016), with the same result bit for bit.
     */
    void *kept;
    size_t kept_size;              /**< bytes of it */
    int num_threads;               /**< of everything, as in attn_params; that of self and cross is not looked at */
    const attn_executor *executor; /**< of everything; those of self and cross are not looked at */
} attn_block_pass;

/** A pass with every field at its default. @since 0.1, experimental */
static inline attn_block_pass attn_block_pass_default(void)
{
    attn_block_pass p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    return p;
}

/** What attn_block_backward() writes, each NULL where it is not wanted. Zero is every field's default. */
typedef struct attn_block_gradients {
    size_t struct_size;        /**< sizeof of this struct as the caller compiled it */
    const attn_tensor *x;      /**< f32, bf16 or f16 (B, 1, T, d_model); may be d_out, of one type then */
    const attn_tensor *memory; /**< f32, bf16 or f16 (B, 1, Tm, d_memory) */
    /** Those of weights: f32, contiguous, of the same shapes; data (or self, cross) NULL where one is not wanted. */
    const attn_block_weights *weights;
    const attn_gradients *self_options;  /**< those of options in pass.self, as in attn_mha_gradients */
    const attn_gradients *cross_options; /**< those of options in pass.cross */
    int accumulate;                      /**< not 0: those of weights are added to what they hold */
    int accumulate_memory; /**< not 0: that of memory, f32 then, is added to what it holds: several layers read one */
} attn_block_gradients;

/** Gradients with every field at its default; set at least one. @since 0.1, experimental */
static inline attn_block_gradients attn_block_gradients_default(void)
{
    attn_block_gradients g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/**
 * Bytes of attn_block_pass.kept for x of batch x tokens of a type and a memory of memory_tokens (0 without one);
 * SIZE_MAX if that overflows, or after an error. @since 0.1, experimental
 */
ATTN_API size_t attn_block_kept_size(const attn_block_config *config, attn_dtype dtype, int64_t batch, int64_t tokens,
                                     int64_t memory_tokens);

/**
 * The forward pass in training: attn_block_forward() on weights as they lie, for training changes them between any two
 * calls, with dropout, and without caches. As there, the type of x is that of all that lies between products; the sums
 * x + sublayer(x) of pre-norm layers are of it, too. No bit depends on the number of threads.
 *
 * All rows of x and memory are multiplied, those that lengths hide, too: they have to be finite.
 *
 * @param config  as of attn_block_load(), without formats
 * @param weights as they are now
 * @param x       f32, bf16 or f16 (B, 1, T, d_model)
 * @param pass    NULL or the rest
 * @param out     f32, bf16 or f16 (B, 1, T, d_model); must not overlap an input
 * @param workspace attn_block_train_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_block_train(const attn_block_config *config, const attn_block_weights *weights,
                                      const attn_tensor *x, const attn_block_pass *pass, const attn_tensor *out,
                                      void *workspace, size_t workspace_size);
/**
 * Bytes that attn_block_train() can make use of, whatever the type of x; memory_tokens 0 without a memory. SIZE_MAX if
 * that overflows, or after an error. @since 0.1, experimental
 */
ATTN_API size_t attn_block_train_workspace_size(const attn_block_config *config, int64_t batch, int64_t tokens,
                                                int64_t memory_tokens, const attn_block_pass *pass);

/**
 * The gradients of a layer from that of out: attn_normalise_backward(), attn_activate_backward() or
 * attn_gate_backward(), attn_linear_backward() and attn_mha_backward(), one behind the other, with residuals and
 * dropout. Gradients between the steps are f32, and a result is rounded once. No gradient depends on the number of
 * threads. Normalised rows and hidden states are computed again even if a pass has kept what goes before: they cost
 * little and would double what is kept.
 *
 * All rows are multiplied: those of d_out that belong to no token have to be 0.
 *
 * @param config, weights, x, pass as in the forward pass
 * @param d_out   f32, bf16 or f16 (B, 1, T, d_model)
 * @param gradients what to write; none may overlap an input or another, but for x and d_out
 * @param workspace attn_block_backward_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_block_backward(const attn_block_config *config, const attn_block_weights *weights,
                                         const attn_tensor *x, const attn_block_pass *pass, const attn_tensor *d_out,
                                         const attn_block_gradients *gradients, void *workspace, size_t workspace_size);
/**
 * Bytes that attn_block_backward() can make use of, whatever the types; memory_tokens 0 without a memory. SIZE_MAX if
 * that overflows, or after an error. @since 0.1, experimental
 */
ATTN_API size_t attn_block_backward_workspace_size(const attn_block_config *config, int64_t batch, int64_t tokens,
                                                   int64_t memory_tokens, const attn_block_pass *pass,
                                                   const attn_block_gradients *gradients);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_BLOCK_H */
