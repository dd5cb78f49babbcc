/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers of libattn_nn from their definitions, written for reading.
 *
 * Activations are contiguous [batch][token][channel], matrices [out][in], all
 * in double arrays. There are two sets of the same functions: oracle_f64 is
 * exact for all purposes, oracle_f32 is the naive computation in float, whose
 * sums run forwards or, with oracle_backwards, backwards: of two orders one is
 * seldom exact by luck. With oracle_type it keeps the results of operations in
 * bf16 or f16, as a model does that runs in this type.
 *
 * Which keys a query sees, masks and dropout are those of tests/support's
 * oracle of the core.
 */
#ifndef TEST_NN_ORACLE_H
#define TEST_NN_ORACLE_H

#include "attn/nn.h"

extern int oracle_backwards;

/** What the naive computation rounds the result of each operation to, as a framework does that runs in this type. */
extern attn_dtype oracle_type;
/** x rounded to it. */
double oracle_keep(double x);

/** A product: y = W x + b. */
struct oracle_dense {
    int64_t out, in;
    const double *w; /**< [out][in] */
    const double *b; /**< [out] or NULL */
};

struct oracle_norm {
    attn_norm kind;
    int64_t channels;
    const double *gamma, *beta; /**< [channels] or NULL */
    double eps;
};

/** Sizes of attention itself; rows of q, k and v hold their heads behind each other. */
struct oracle_heads {
    int64_t batch, heads, kv_heads, tq, tk, dk, dv;
};

struct oracle_mha {
    int64_t heads, kv_heads, dk, dv;
    struct oracle_dense q, k, v, o;
};

/** A score function; w_q, w_k, b and v as in attn_alignment_config. A pool has no w_q. */
struct oracle_alignment {
    attn_score score;
    int64_t d_query, d_key, d_attention;
    double temperature;
    const double *w_q, *w_k, *b, *v;
};

/** One direction of one layer. */
struct oracle_lstm_weights {
    const double *w_ih, *w_hh, *b_ih, *b_hh; /**< the last two may be NULL */
};

struct oracle_lstm {
    int64_t input, hidden, layers, directions;
    const struct oracle_lstm_weights *weights; /**< [layers][directions] */
};

/** A gradient that is a sum, over tokens or channels. */
struct oracle_sum {
    double *sum;
    double *size; /**< what its terms are sums of is added to it; NULL: not wanted */
};

/** What a backward pass adds to; h and c as of the last step, replaced. */
struct oracle_lstm_gradients {
    double *h, *c;
    struct oracle_sum x, w_ih[2], w_hh[2], bias[2];
};

/** What a backward pass adds to, but x, which is written. */
struct oracle_pool_gradients {
    struct oracle_sum x, w, bias, v;
};

/** What the backward pass of an alignment adds to. */
struct oracle_align_gradients {
    struct oracle_sum q, projected, v, w_q, score_v; /**< the last two of additive scores */
};

/** Rows of sums over tokens: [heads][rank][columns]. */
struct oracle_projection {
    const double *matrix;
    int64_t heads, columns; /**< heads: 1 or those of the keys */
    attn_dtype kept_in;     /**< what the sums are rounded to */
};

struct oracle_linformer {
    struct oracle_heads sizes; /**< tk: the rank */
    int64_t tokens;            /**< of keys and values */
    struct oracle_projection e, f;
};

struct oracle_gru {
    int64_t input, hidden;
    const double *w_ih, *w_hh, *b_ih, *b_hh;
};

/** What the backward pass of a decoder's step adds to; state is the gradient behind the step, replaced. */
struct oracle_bahdanau_gradients {
    struct oracle_sum state, word;
    struct oracle_align_gradients attention; /**< q is not looked at */
    struct oracle_sum w_ih, w_hh, b_ih, b_hh;
};

struct oracle_block {
    int64_t d_model, d_ff;
    attn_activation activation;
    int gated, norm_first, has_cross;
    struct oracle_mha self, cross;
    struct oracle_dense up, gate, down; /**< gate only if gated */
    struct oracle_norm norms[3];        /**< in the order in which they come, without gaps */
    int post_norms, norm_plus_one;      /**< as in attn_block_config */
    struct oracle_norm after[2];        /**< with post_norms: of what attention and the network give */
};

/** What a block is given besides x. */
struct oracle_block_inputs {
    const attn_params *self, *cross;
    const double *memory; /**< [batch][tm][d_memory] */
    int64_t tm;
    const attn_tensor *rotation; /**< NULL, or as in attn_block_inputs, for all tokens of x */
    attn_rope_layout rope;
    const attn_dropout *dropout, *hidden_dropout; /**< NULL, or as in attn_block_pass */
};

struct oracle_bert {
    int64_t layers, d_model;
    const double *word, *position, *type; /**< tables of embeddings */
    struct oracle_norm norm;
    const struct oracle_block *blocks;
};

struct oracle_llama {
    int64_t layers, d_model, vocabulary;
    const double *embedding, *head; /**< [vocabulary][d_model] */
    struct oracle_norm norm;
    const struct oracle_block *blocks;
};

struct oracle_transformer {
    int64_t encoder_layers, decoder_layers, d_model, target_vocabulary;
    const double *source, *target; /**< tables of embeddings */
    const struct oracle_block *encoder, *decoder;
    int final_norms;
    struct oracle_norm encoder_norm, decoder_norm;
    struct oracle_dense generator;
};

typedef double oracle_dot_fn(int64_t n, const double *a, const double *b);
typedef void oracle_linear_fn(const struct oracle_dense *dense, int64_t rows, const double *x,
                              attn_activation activation, const double *residual, double *y);
typedef double oracle_activate_fn(attn_activation activation, double x);
typedef void oracle_normalise_fn(const struct oracle_norm *norm, int64_t rows, const double *x, double *y);
typedef void oracle_gate_fn(attn_activation activation, int64_t n, const double *gate, const double *up, double *y);
/** y[row] (+)= scale * table[ids[row]]; scale is what it says, also 0. */
typedef void oracle_embed_fn(const double *table, int64_t channels, int64_t rows, const int32_t *ids, double scale,
                             int accumulate, double *y);
typedef void oracle_sinusoidal_fn(int64_t position, int64_t channels, double *row);
/** From scores [batch][heads][tq][tk] before additive terms to out [batch][tq][heads*dv]; weights, lse may be NULL. */
typedef void oracle_mix_fn(const struct oracle_heads *sizes, const double *scores, const double *v,
                           const attn_params *params, double *out, double *weights, double *lse);
typedef void oracle_attention_fn(const struct oracle_heads *sizes, const double *q, const double *k, const double *v,
                                 const attn_params *params, double *out, double *weights);
/** memory NULL: x. weights [batch][heads][tq][tk] or NULL. */
typedef void oracle_mha_forward_fn(const struct oracle_mha *mha, int64_t batch, int64_t tq, const double *x, int64_t tk,
                                   const double *memory, const attn_params *params, double *out, double *weights);
typedef void oracle_align_project_fn(const struct oracle_alignment *a, int64_t rows, const double *keys, double *y);
typedef void oracle_align_fn(const struct oracle_alignment *a, int64_t batch, int64_t tq, int64_t tk, int64_t dv,
                             const double *q, const double *projected, const double *v, const attn_params *params,
                             double *out, double *weights, double *lse);
typedef void oracle_pool_fn(const struct oracle_alignment *a, int64_t batch, int64_t tokens, const double *x,
                            const int64_t *lengths, double *out, double *weights);
/**
 * q, k, v and out are [batch][head][token][channel], params' kv_len counts tokens. keys: the projected ones,
 * [batch][rank][head][channel]. weights and lse as for oracle_mix_fn, neither NULL.
 */
typedef void oracle_linformer_fn(const struct oracle_linformer *l, const double *q, const double *k, const double *v,
                                 const attn_params *params, double *keys, double *out, double *weights, double *lse);
/** h and c: [layers][directions][batch][hidden], replaced. */
typedef void oracle_lstm_fn(const struct oracle_lstm *lstm, int64_t batch, int64_t tokens, const double *x,
                            const int64_t *lengths, double *h, double *c, double *out);
/** Of one layer; h and c as before the forward pass. */
typedef void oracle_lstm_backward_fn(const struct oracle_lstm *lstm, int64_t batch, int64_t tokens, const double *x,
                                     const int64_t *lengths, const double *h, const double *c, const double *d_out,
                                     struct oracle_lstm_gradients *to);
typedef void oracle_pool_backward_fn(const struct oracle_alignment *a, int64_t batch, int64_t tokens, const double *x,
                                     const int64_t *lengths, const double *d_out, struct oracle_pool_gradients *to);
/** params: those that hide keys, or an additive mask. d_size: of what elements of d_out are sums, NULL: d_out. */
typedef void oracle_align_backward_fn(const struct oracle_alignment *a, int64_t batch, int64_t tq, int64_t tk,
                                      int64_t dv, const double *q, const double *projected, const double *v,
                                      const attn_params *params, const double *d_out, const double *d_size,
                                      struct oracle_align_gradients *to);
typedef void oracle_gru_fn(const struct oracle_gru *gru, const double *x, double *state);
typedef void oracle_bahdanau_fn(const struct oracle_alignment *a, const struct oracle_gru *gru, int64_t batch,
                                int64_t tokens, int64_t annotation, const double *word, const double *annotations,
                                const int64_t *lengths, double *state, double *context, double *weights);
/** From projected annotations; state as before the step. */
typedef void oracle_bahdanau_backward_fn(const struct oracle_alignment *a, const struct oracle_gru *gru, int64_t batch,
                                         int64_t tokens, int64_t annotation, const double *word,
                                         const double *projected, const double *annotations, const int64_t *lengths,
                                         const double *state, const double *d_context,
                                         struct oracle_bahdanau_gradients *to);
/** self_weights and cross_weights may be NULL. */
typedef void oracle_block_forward_fn(const struct oracle_block *block, int64_t batch, int64_t tokens, const double *x,
                                     const struct oracle_block_inputs *inputs, double *out, double *self_weights,
                                     double *cross_weights);
/** One sequence; weights [layers][heads][tokens][tokens] or NULL. */
typedef void oracle_bert_forward_fn(const struct oracle_bert *bert, int64_t tokens, const int32_t *ids, double *hidden,
                                    double *weights);
typedef void oracle_mean_pool_fn(int64_t tokens, int64_t channels, const double *hidden, int normalise, double *out);
/** All logits of one sequence; rope has a row a token. */
typedef void oracle_llama_forward_fn(const struct oracle_llama *llama, int64_t tokens, const int32_t *ids,
                                     const attn_tensor *rope, double *logits);
/** One sequence without padding. */
typedef void oracle_encode_fn(const struct oracle_transformer *t, int64_t tokens, const int32_t *ids, double *memory);
/** One sequence; weights [heads][tokens][tm] of the last layer's cross-attention, or NULL. */
typedef void oracle_score_fn(const struct oracle_transformer *t, int64_t tm, const double *memory, int64_t tokens,
                             const int32_t *ids, double *logits, double *weights);

struct oracle {
    oracle_dot_fn *dot;
    oracle_linear_fn *linear;
    oracle_activate_fn *activate;
    oracle_normalise_fn *normalise;
    oracle_gate_fn *gate;
    oracle_embed_fn *embed;
    oracle_sinusoidal_fn *sinusoidal;
    oracle_attention_fn *attention;
    oracle_mha_forward_fn *mha;
    oracle_align_project_fn *align_project;
    oracle_align_fn *align;
    oracle_pool_fn *pool;
    oracle_linformer_fn *linformer;
    oracle_lstm_fn *lstm;
    oracle_lstm_backward_fn *lstm_backward;
    oracle_pool_backward_fn *pool_backward;
    oracle_align_backward_fn *align_backward;
    oracle_gru_fn *gru;
    oracle_bahdanau_fn *bahdanau;
    oracle_bahdanau_backward_fn *bahdanau_backward;
    oracle_block_forward_fn *block;
    oracle_bert_forward_fn *bert;
    oracle_mean_pool_fn *mean_pool;
    oracle_llama_forward_fn *llama;
    oracle_encode_fn *encode;
    oracle_score_fn *score;
};

extern const struct oracle oracle_f64, oracle_f32;

/** What oracle_take() hands out: the exact computation, and naive ones in both orders. */
enum { ORACLES = 3 };

/** Computation n, with the order set. */
const struct oracle *oracle_take(int n);

#endif
