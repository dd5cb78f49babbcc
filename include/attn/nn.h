/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file nn.h
 * @brief libattn_nn: the layers around attention.
 *
 * A library of its own on top of libattn: link with attn_nn. Plain C objects that hold packed copies of their weights,
 * are immutable once made, and may be used by any number of threads at once. Layers and models run forwards; products,
 * norms, activations, gates, lookups, multi-head attention, LSTM and pooling have backward passes beside their forward
 * ones, and attn/nn/training.h has the loss and the optimiser. Activations are f32, and in most layers bf16 or f16 as
 * well; norms, statistics and sums are f32 in any case. Weights are f32, bf16 or f16, and can be kept in int8 or int4
 * (attn_linear_format).
 *
 * | header | what |
 * |---|---|
 * | attn/nn/tensors.h | views: activations, matrices, vectors |
 * | attn/nn/weights.h | safetensors files |
 * | attn/nn/linear.h | products with weights packed once, activations |
 * | attn/nn/elementwise.h | LayerNorm, RMSNorm, activations, gates, dropout, embeddings, sinusoidal positions |
 * | attn/nn/mha.h | multi-head attention, fused QKV, GQA, cached keys and values |
 * | attn/nn/alignment.h | dot, general and additive scores; attention pooling |
 * | attn/nn/linformer.h | attention to projections of keys and values along their tokens |
 * | attn/nn/progress.h | how far a long call is |
 * | attn/nn/recurrent.h | LSTM; the step of Bahdanau's decoder |
 * | attn/nn/block.h | encoder and decoder layers |
 * | attn/nn/models.h | BERT, Llama, encoder-decoder with greedy and beam decoding |
 * | attn/nn/model.h | models from a folder of Transformers |
 * | attn/nn/model_training.h | BERT and encoder-decoder in training |
 * | attn/nn/training.h | cross-entropy, clipping of gradients, AdamW, learning rates |
 *
 * **Structs.** A struct that begins with struct_size grows at its end, and zero is the default of what is added: begin
 * with its _default() function. Any size from the first version's on is accepted, and fields that the caller's version
 * lacks count as zero; one from a newer version is accepted as long as nothing is set that this library does not know.
 * A struct that grows holds no other such struct by value, but points to it. Structs without struct_size (attn_tensor,
 * attn_lstm_weights, attn_hypothesis, attn_parameter) are frozen: what is needed besides becomes a new pointer in a
 * struct that grows.
 *
 * As in the core, functions return an attn_status, attn_last_error() has the sentence, nothing is written before all
 * arguments have been checked, and a row's bits do not depend on the number of threads or on what else is in the call.
 * Calls that need memory take a workspace of the caller's, of any alignment and not shared with a concurrent call, or
 * allocate when it is NULL. A size that a ..._workspace_size() function has told is enough for a call of these shapes
 * and options whatever number of threads was in use then, and is now: where it has less room than all threads want,
 * fewer take part, and the bits are the same. ATTN_WORKSPACE_TOO_SMALL: not enough for one thread; the sentence says
 * what is.
 *
 * **Threads.** All parts of a call, projections, norms and activations as well as attention, run on the same threads:
 * those of the executor that the call names, else of the process's (attn_set_executor()), else OpenMP's. A call names
 * one in its options: attn_params.executor (attn/nn/mha.h, alignment.h), attn_linear_options.executor,
 * attn_block_inputs.executor, attn_block_pass.executor, attn_model_pass.executor, attn_decoding.executor,
 * attn_model_batch.executor, attn_model_tokens.executor. Calls without
 * such a struct, whose argument is num_threads alone, have the process's: embeddings, norms, projections of keys,
 * pooling, LSTM, the step of Bahdanau's decoder, BERT, Llama, the encoder-decoder but for decoding and training, and
 * training.h.
 */
#ifndef ATTN_NN_H
#define ATTN_NN_H

#include "attn/nn/alignment.h"
#include "attn/nn/block.h"
#include "attn/nn/elementwise.h"
#include "attn/nn/linear.h"
#include "attn/nn/linformer.h"
#include "attn/nn/mha.h"
#include "attn/nn/model.h"
#include "attn/nn/model_training.h"
#include "attn/nn/models.h"
#include "attn/nn/progress.h"
#include "attn/nn/recurrent.h"
#include "attn/nn/tensors.h"
#include "attn/nn/training.h"
#include "attn/nn/weights.h"

#endif /* ATTN_NN_H */
