/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file linformer.h
 * @brief Linformer: attention to learned projections of the keys and values along their tokens.
 *
 * Wang et al. 2020, "Linformer: Self-attention with linear complexity", equation 7, for each head:
 *
 *     K' = E K         E (r, Tk) times K (Tk, dk)
 *     V' = F V         F (r, Tk) times V (Tk, dv)
 *     out = softmax(scale Q K'ᵀ) V'
 *
 * so that a query attends to r projected keys, whatever Tk is: time and memory grow with Tq + Tk, not with their
 * product. r is the paper's k. It is another function than attention, close to it for a model that has been trained
 * with it. Every projected key is a sum over all keys, so nothing that hides some keys from some queries, causality
 * above all, has a meaning; keys that are padding are another matter, and kv_len says which are.
 *
 * The paper shares projections in three ways: among heads (a projection with one head), among keys and values (no f),
 * and among layers (the same tensors in each call).
 *
 * @code
 *     attn_tensor e = attn_matrix(weights, 256, 512);   // r = 256, for up to 512 tokens
 *     attn_linformer_forward(&q, &k, &v, &e, NULL, &out, NULL, NULL, 0);
 * @endcode
 */
#ifndef ATTN_NN_LINFORMER_H
#define ATTN_NN_LINFORMER_H

#include "attn/attn.h"
#include "attn/nn/tensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Attention with projected keys and values.
 *
 * Sums of the projections are f32, in spans of 1024 tokens in the order of the tokens, each from 0 and added to those
 * before. K' and V' are rounded once, to the types of k and v, as a layer's results are. Attention to them is that of
 * attn_forward().
 *
 * Rows of a sequence without keys (kv_len 0) are 0, and their lse -inf. What stands in a key or value from kv_len on,
 * or in the columns of e and f that would meet it, NaN or not, reaches nothing. On one instruction set a row has the
 * same bits for any number of threads, with any padding of its sequence, however long e and f are, and whatever else is
 * in the call.
 *
 * @param q   (B, Hq, Tq, dk) queries
 * @param k   (B, Hkv, Tk, dk) keys; Hq is a multiple of Hkv
 * @param v   (B, Hkv, Tk, dv) values
 * @param e   (1, Hkv|1, r, n) projections of the keys: row i has the weights of the tokens in key i of K'. One head:
 * all share it. n is Tk or more: a model has a column for each position that it knows, and Tk tokens use the first Tk
 * of them. Any strides
 * @param f   (1, Hkv|1, r, n) the same of the values; NULL: e
 * @param out (B, Hq, Tq, dv) written
 * @param params NULL or options. Keys are the r projected ones: scale, temperature, head_scale, softcap, sinks,
 *            callback, dropout, weight_callback, lse, weights (B, Hq, R, r) and weight_rows, key_sums (B, Hq, 1, r),
 *            scores (B, Hq, R, r), qk, inputs, sums, num_threads, isa and executor mean what they mean in
 *            attn_forward(). kv_len[b], 0 to Tk, is the number of keys of sequence b that K' and V' are sums over.
 *            All that speaks of positions or hides keys is refused with ATTN_UNSUPPORTED, and so are ragged batches,
 *            pages and quantised keys
 * @param workspace attn_linformer_workspace_size() bytes, or NULL: allocated for the call
 * @param workspace_size bytes of workspace
 *
 * q, k, v, e, f and out are f32, bf16 or f16, in any mix; channels of q, k, v and out are contiguous. No output may
 * share a byte with itself, with another one, or with anything that is read.
 *
 * @return ATTN_OK or an error; on an error nothing has been written.
 * @since 0.1, experimental
 */
ATTN_API attn_status attn_linformer_forward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                            const attn_tensor *e, const attn_tensor *f, const attn_tensor *out,
                                            const attn_params *params, void *workspace, size_t workspace_size);

/**
 * Bytes that attn_linformer_forward() can make use of for tensors of these shapes and types, and these options: K' and
 * V', B * Hkv * r * (dk + dv) elements; and for each thread what attn_forward() takes for keys of r tokens, or some
 * 550 KiB if that is more. Neither data nor strides of the tensors are looked at. SIZE_MAX if that overflows, or after
 * an error.
 * @since 0.1, experimental
 */
ATTN_API size_t attn_linformer_workspace_size(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                              const attn_tensor *e, const attn_tensor *f, const attn_tensor *out,
                                              const attn_params *params);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_LINFORMER_H */
