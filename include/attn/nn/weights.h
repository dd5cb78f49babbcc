/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file weights.h
 * @brief Named weights: a safetensors file or several, or tensors of the caller's under names.
 */
#ifndef ATTN_NN_WEIGHTS_H
#define ATTN_NN_WEIGHTS_H

#include "attn/nn/tensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A set of named tensors; immutable but for attn_weights_ignore().
 *
 * Loaders (attn_mha_load() and the like) take their tensors from a set by a prefix and names. A tensor whose name
 * begins with the prefix and that the loader does not read is ATTN_UNSUPPORTED with a sentence that names it: a model
 * that has more than the loader knows would compute something else without it. Each loader says which buffers of
 * published files it leaves out by itself.
 */
typedef struct attn_weights attn_weights;

/**
 * Maps a safetensors file, or all files of an index: the JSON file beside a large model's shards whose weight_map names
 * the file of each tensor ("model.safetensors.index.json"). A path that ends in .json is taken for one. The header is
 * checked in full (lengths, overlaps, holes, duplicate names) before anything is believed. Tensors of types that
 * attn_dtype lacks are listed, but asking for them is an error. The format does not align data: tensors that do not lie
 * on multiples of their element's size are copied to memory. The file must not be changed while the set exists;
 * replacing it by another one under its name is fine.
 *
 * Files of an index lie in its folder. A tensor that the index has in a file which lacks it, or that two of the files
 * have, is an error.
 * @return ATTN_INVALID_FILE with a sentence for a file that cannot be opened or is not what it should be
 * @since 0.1
 */
ATTN_API attn_status attn_weights_open(attn_weights **weights, const char *path);

/** Names for tensors in memory, which stay the caller's and must outlive the set; names are copied and must differ.
 * @since 0.1 */
ATTN_API attn_status attn_weights_create(attn_weights **weights, int64_t num, const char *const *names,
                                         const attn_tensor *tensors);

/** Frees a set, and unmaps its file: tensors from it are gone. Layers keep copies of what they need. NULL is allowed.
 * @since 0.1
 */
ATTN_API void attn_weights_destroy(attn_weights *weights);

/**
 * Lists tensors that loaders may leave unread. It takes nothing away: what a loader reads it reads all the same. Calls
 * add up. Not while another thread uses the set.
 *
 * @param weights  the set
 * @param num      0 or more
 * @param patterns [num] names in full, in which each * stands for any characters, also none: "model.vision.*",
 *                 "model.layers.*.self_attn.q_norm.weight". Copied. One that no tensor has is allowed.
 * @since 0.1
 */
ATTN_API attn_status attn_weights_ignore(attn_weights *weights, int64_t num, const char *const *patterns);

/** How many tensors there are. @since 0.1 */
ATTN_API int64_t attn_weights_count(const attn_weights *weights);
/** The name of tensor i, in the order of the data, or NULL. Valid as long as the set. @since 0.1 */
ATTN_API const char *attn_weights_name(const attn_weights *weights, int64_t i);
/** Whether there is a tensor of that name. @since 0.1 */
ATTN_API int attn_weights_has(const attn_weights *weights, const char *name);

/** A length that may be anything, for attn_weights_get(). */
#define ATTN_ANY ((int64_t)-1)

/**
 * Finds a matrix of f32, bf16 or f16.
 *
 * @param weights the set
 * @param name    as in the file, e.g. "encoder.layer.0.output.dense.weight"
 * @param rows    expected rows, or ATTN_ANY; 0 for a vector. A tensor of attn_weights_create() with one row is both.
 * @param columns expected columns, or length of the vector, or ATTN_ANY
 * @param tensor  set to a view (1, 1, rows, columns), or (1, 1, 1, columns); read only
 * @return ATTN_INVALID_ARGUMENT for a missing name, ATTN_SHAPE_MISMATCH, or ATTN_UNSUPPORTED for another type; the
 *         sentence names the file, the tensor, what it is and what was expected
 * @since 0.1
 */
ATTN_API attn_status attn_weights_get(const attn_weights *weights, const char *name, int64_t rows, int64_t columns,
                                      attn_tensor *tensor);

#ifdef __cplusplus
}
#endif

#endif /* ATTN_NN_WEIGHTS_H */
