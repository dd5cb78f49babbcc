/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file recurrent.h
 * @brief LSTM, and the step of Bahdanau's decoder.
 */
#ifndef ATTN_NN_RECURRENT_H
#define ATTN_NN_RECURRENT_H

#include "attn/nn/alignment.h"
#include "attn/nn/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------- LSTM -- */

/** Sizes of an LSTM; zero is the default of all but struct_size, input and hidden. */
typedef struct attn_lstm_config {
    size_t struct_size; /**< sizeof of this struct as the caller compiled it */
    int64_t input;      /**< channels of x */
    int64_t hidden;     /**< channels of h and c */
    int64_t layers;     /**< 0 means 1 */
    int bidirectional;  /**< not 0: a second direction from the last live token back; out has 2 * hidden channels */
    /**
     * How the matrices are kept and multiplied; NULL: as they are given, in f32. Only looked at while the LSTM is made.
     * @since 0.1, experimental
     */
    const attn_linear_format *format;
} attn_lstm_config;

/** A config with every field at its default; set input and hidden. @since 0.1 */
static inline attn_lstm_config attn_lstm_config_default(void)
{
    attn_lstm_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/**
 * The weights of one direction of one layer, as PyTorch has them: gates in the order input, forget, cell, output.
 * Layer l > 0 reads the channels that layer l - 1 writes. Callers have arrays of them: the struct is frozen, and what
 * a later version needs besides becomes a pointer in attn_lstm_config.
 */
typedef struct attn_lstm_weights {
    attn_tensor w_ih; /**< (1, 1, 4*hidden, channels read) */
    attn_tensor w_hh; /**< (1, 1, 4*hidden, hidden) */
    attn_tensor b_ih; /**< (1, 1, 1, 4*hidden) or data NULL */
    attn_tensor b_hh; /**< the same; what is computed with is the sum of both */
} attn_lstm_weights;

/** An LSTM with its packed weights; immutable. */
typedef struct attn_lstm attn_lstm;

/** Makes an LSTM from weights[layers * directions], the two directions of a layer next to each other. @since 0.1 */
ATTN_API attn_status attn_lstm_create(attn_lstm **lstm, const attn_lstm_config *config,
                                      const attn_lstm_weights *weights);
/**
 * Makes an LSTM from the names of PyTorch's nn.LSTM behind prefix: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0,
 * weight_ih_l0_reverse, ...; biases may be missing, all together. Any other name behind prefix is an error, as
 * attn/nn/weights.h has it: a layer or a direction that config does not have. proj_size (weight_hr_l0) cannot be
 * ignored.
 * @since 0.1
 */
ATTN_API attn_status attn_lstm_load(attn_lstm **lstm, const attn_lstm_config *config, const attn_weights *weights,
                                    const char *prefix);
/** Frees an LSTM; NULL is allowed. @since 0.1 */
ATTN_API void attn_lstm_destroy(attn_lstm *lstm);
/** Bytes that attn_lstm_forward() needs; SIZE_MAX if that overflows. @since 0.1 */
ATTN_API size_t attn_lstm_workspace_size(const attn_lstm *lstm, int64_t batch, int64_t tokens);

/**
 * Runs an LSTM (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000):
 *
 *     i, f, o = sigmoid(W x_t + U h + b),  g = tanh(W x_t + U h + b),  c = f c + i g,  h = o tanh(c)
 *
 * The type of x is that of h between the steps and of what goes from layer to layer; gates and c are f32.
 *
 * @param lstm the LSTM
 * @param x       f32, bf16 or f16 (B, 1, T, input)
 * @param lengths [B] live tokens, 0 to T, or NULL: T. The reverse direction begins at the last live one.
 * @param state   NULL (zeros), or f32, bf16 or f16 (2, 1, layers*directions*B, hidden): h and c for each layer,
 *                direction and sequence to start from, row (layer*directions + direction)*B + sequence, replaced by
 * those after the last live token that the direction reads; must not overlap x or out. In f32 it is exact: going on
 * from it gives the bits of one call for all tokens.
 * @param out     f32, bf16 or f16 (B, 1, T, directions*hidden); rows behind a length become 0; must not overlap x
 * @param num_threads as in attn_params
 * @param workspace attn_lstm_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1
 */
ATTN_API attn_status attn_lstm_forward(const attn_lstm *lstm, const attn_tensor *x, const int64_t *lengths,
                                       const attn_tensor *state, const attn_tensor *out, int num_threads,
                                       void *workspace, size_t workspace_size);

/** What attn_lstm_backward() writes, each NULL where it is not wanted. Zero is every field's default. */
typedef struct attn_lstm_gradients {
    size_t struct_size;   /**< sizeof of this struct as the caller compiled it */
    const attn_tensor *x; /**< f32, bf16 or f16 (B, 1, T, input), channels contiguous; rows behind a length become 0 */
    /**
     * [directions], those of weights: f32, contiguous, of the same shapes; data NULL where one is not wanted. The two
     * biases of a direction have one gradient, which goes to each that is there.
     */
    const attn_lstm_weights *weights;
    /**
     * f32, bf16 or f16 (2, 1, directions*B, hidden), rows as those of state in the forward pass: holds the gradient of
     * h and c after the last live token (zeros, where only what came before matters), replaced by that of h and c
     * before the first one.
     */
    const attn_tensor *state;
    int accumulate;  /**< not 0: those of weights are added to what they hold */
    int num_threads; /**< as in attn_params */
} attn_lstm_gradients;

/** Gradients with every field at its default; set at least one. @since 0.1, experimental */
static inline attn_lstm_gradients attn_lstm_gradients_default(void)
{
    attn_lstm_gradients g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/**
 * The gradients of an LSTM of one layer, through time (Werbos 1990): from the last step to the first, with the gates
 * after their functions,
 *
 *     d_h  = d_out_t + Uᵀ d_gates_t+1                  d_c = d_c_t+1 f_t+1 + d_h o (1 - tanh(c)²)
 *     d_i  = d_c g i (1 - i)                           d_f = d_c c_t-1 f (1 - f)
 *     d_g  = d_c i (1 - g²)                            d_o = d_h tanh(c) o (1 - o)
 *     d_W  = sum_t d_gates_t x_tᵀ,  d_U = sum_t d_gates_t h_t-1ᵀ,  d_b = sum_t d_gates_t,  d_x_t = Wᵀ d_gates_t
 *
 * Nothing has to be kept in the forward pass but out: the gates follow from x and out in two products for all tokens at
 * once, and c from them. An LSTM of several layers is trained as that many of one layer each, the gradient of x of one
 * being that of out of the one below. Weights are read as they lie, not from an LSTM that has packed them, for training
 * changes them between any two calls.
 *
 * Arithmetic is in f32, and a result is rounded once; rounding of h between the steps, where x is bf16 or f16, counts
 * as no operation. Tokens behind the lengths are not read. No gradient depends on the number of threads, and one of x
 * or of a state depends on its own sequence alone.
 *
 * @param config  as of attn_lstm_create(), with one layer and without format
 * @param weights [directions], with any strides
 * @param x       as in the forward pass
 * @param lengths as in the forward pass
 * @param state   NULL, or h and c before the first token: the forward pass replaces its own, so keep a copy of it
 * @param out     what the forward pass wrote
 * @param d_out   f32, bf16 or f16 (B, 1, T, directions*hidden); NULL: zeros, if only gradients.state matters
 * @param gradients what to write; none may overlap an input or another
 * @param workspace attn_lstm_backward_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_lstm_backward(const attn_lstm_config *config, const attn_lstm_weights *weights,
                                        const attn_tensor *x, const int64_t *lengths, const attn_tensor *state,
                                        const attn_tensor *out, const attn_tensor *d_out,
                                        const attn_lstm_gradients *gradients, void *workspace, size_t workspace_size);
/**
 * Bytes that attn_lstm_backward() can make use of: for each token of B*T some 4 * (input + 6 * directions * hidden),
 * and some 550 KiB for each thread. SIZE_MAX if that overflows, or after an error.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_lstm_backward_workspace_size(const attn_lstm_config *config, int64_t batch, int64_t tokens,
                                                  const attn_lstm_gradients *gradients);

/* ------------------------------------------------------- Bahdanau's decoder -- */

/**
 * One step of the decoder of Bahdanau et al. 2015 (appendix A.2.2): the state s attends over the annotations, and a
 * gated recurrent unit takes the embedding of the last word and the context:
 *
 *     context = sum_j softmax_j(v·tanh(W s + U h_j + b)) h_j
 *     s'      = gru([embedding, context], s)
 *
 * The unit has PyTorch's GRUCell weights, gates in the order reset, update, new.
 */
typedef struct attn_bahdanau attn_bahdanau;

/** Weights of a step; all are copied. */
typedef struct attn_bahdanau_config {
    size_t struct_size;              /**< sizeof of this struct as the caller compiled it */
    const attn_alignment *alignment; /**< ADDITIVE, d_query = hidden, d_key = annotation; used, not copied */
    int64_t embedding;               /**< channels of the last word's embedding */
    int64_t annotation;              /**< channels of an annotation */
    int64_t hidden;                  /**< channels of the state */
    attn_tensor w_ih;                /**< (1, 1, 3*hidden, embedding + annotation) */
    attn_tensor w_hh;                /**< (1, 1, 3*hidden, hidden) */
    attn_tensor b_ih;                /**< (1, 1, 1, 3*hidden) or data NULL */
    attn_tensor b_hh;                /**< the same */
} attn_bahdanau_config;

/** A config with every field at its default; set alignment, the sizes and the two matrices. @since 0.1 */
static inline attn_bahdanau_config attn_bahdanau_config_default(void)
{
    attn_bahdanau_config c;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    return c;
}

/** Makes a step; the alignment must outlive it. @since 0.1 */
ATTN_API attn_status attn_bahdanau_create(attn_bahdanau **step, const attn_bahdanau_config *config);
/** Frees a step; NULL is allowed. @since 0.1 */
ATTN_API void attn_bahdanau_destroy(attn_bahdanau *step);
/** Bytes that attn_bahdanau_forward() needs; SIZE_MAX if that overflows. @since 0.1 */
ATTN_API size_t attn_bahdanau_workspace_size(const attn_bahdanau *step, int64_t batch, int64_t tokens);
/**
 * Runs one step for B sequences.
 *
 * @param step the decoder step
 * @param word        f32 (B, 1, 1, embedding)
 * @param projected   f32 (B, 1, T, d_attention): attn_alignment_project() of the annotations, once a sequence
 * @param annotations f32 (B, 1, T, annotation): the encoder's states
 * @param lengths     [B] live annotations, 0 to T, or NULL: T
 * @param state       f32 (B, 1, 1, hidden), replaced; like the other two outputs it must not overlap anything else
 * @param context     NULL or f32 (B, 1, 1, annotation), written; zeros for a sequence without annotations
 * @param weights     NULL or f32 (B, 1, 1, T), written; 0 behind the length
 * @param num_threads as in attn_params
 * @param workspace   attn_bahdanau_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @since 0.1
 */
ATTN_API attn_status attn_bahdanau_forward(const attn_bahdanau *step, const attn_tensor *word,
                                           const attn_tensor *projected, const attn_tensor *annotations,
                                           const int64_t *lengths, const attn_tensor *state, const attn_tensor *context,
                                           const attn_tensor *weights, int num_threads, void *workspace,
                                           size_t workspace_size);

/**
 * What attn_bahdanau_backward() reads and writes. All are f32; channels are contiguous, weights without gaps. NULL
 * where it is not wanted. Zero is every field's default.
 */
typedef struct attn_bahdanau_gradients {
    size_t struct_size; /**< sizeof of this struct as the caller compiled it */
    /** (B, 1, 1, hidden), required: the gradient of the state behind the step, replaced by that of the one before. */
    const attn_tensor *state;
    const attn_tensor *word;        /**< (B, 1, 1, embedding) */
    const attn_tensor *projected;   /**< (B, 1, T, d_attention) */
    const attn_tensor *annotations; /**< (B, 1, T, annotation): as the values of attention, not by way of projected */
    const attn_tensor *w_ih;        /**< (1, 1, 3*hidden, embedding + annotation) */
    const attn_tensor *w_hh;        /**< (1, 1, 3*hidden, hidden) */
    const attn_tensor *b_ih;        /**< (1, 1, 1, 3*hidden) */
    const attn_tensor *b_hh;        /**< the same */
    const attn_tensor *w_q;         /**< (1, 1, d_attention, hidden), of the alignment */
    const attn_tensor *score_v;     /**< (1, 1, 1, d_attention), of alignment->v */
    int accumulate;                 /**< not 0: those of weights, w_ih to score_v, are added to what they hold */
    int accumulate_keys;            /**< not 0: those of projected and annotations are */
    int num_threads;                /**< as in attn_params */
} attn_bahdanau_gradients;

/** Gradients with every field at its default; set state. @since 0.1, experimental */
static inline attn_bahdanau_gradients attn_bahdanau_gradients_default(void)
{
    attn_bahdanau_gradients g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    return g;
}

/**
 * The gradients of a step of attn_bahdanau_forward(), of weights as they lie, for training changes them between any two
 * calls. Everything but the state before the step is computed again: a decoder keeps its states, calls this for its
 * steps from the last to the first, with accumulate and accumulate_keys in all but the first call, and hands the
 * gradients of projected and annotations to attn_linear_backward() once, as attn_alignment_backward() has it.
 *
 * Annotations behind a length are not read, and have gradients of 0. No gradient depends on the number of threads, and
 * those that have a row for a sequence depend on this sequence alone.
 *
 * @param config      as for attn_bahdanau_create(); its alignment is not looked at
 * @param alignment   ADDITIVE, as for attn_alignment_create(), d_query = hidden, d_key = annotation
 * @param word, projected, annotations, lengths as in the forward pass
 * @param state       f32 (B, 1, 1, hidden): as it was before the step
 * @param d_context   NULL or f32 (B, 1, 1, annotation): the gradient of the context by what else reads it, such as the
 *                    layer that predicts the word
 * @param gradients   what to read and write; none may overlap an input or another
 * @param workspace   attn_bahdanau_backward_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 * @return ATTN_OK or an error; on an error nothing has been written.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_bahdanau_backward(const attn_bahdanau_config *config, const attn_alignment_config *alignment,
                                            const attn_tensor *word, const attn_tensor *projected,
                                            const attn_tensor *annotations, const int64_t *lengths,
                                            const attn_tensor *state, const attn_tensor *d_context,
                                            const attn_bahdanau_gradients *gradients, void *workspace,
                                            size_t workspace_size);
/**
 * Bytes that attn_bahdanau_backward() can make use of: those of w_ih, w_hh and w_q in f32, for each sequence some 4 *
 * (2 * (embedding + annotation) + 7 * hidden + 3 * d_attention), and for each thread 4 * (d_attention + 4) for each
 * annotation of a sequence and 550 KiB. SIZE_MAX if that overflows, or after an error.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_bahdanau_backward_workspace_size(const attn_bahdanau_config *config,
                                                      const attn_alignment_config *alignment, int64_t batch,
                                                      int64_t tokens, const attn_bahdanau_gradients *gradients);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_RECURRENT_H */
