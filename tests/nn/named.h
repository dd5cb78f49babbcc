/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random weights under names, as a set for the library, as a safetensors file,
 * and as the oracle's layers, which are put together here from the names that
 * the headers give.
 */
#ifndef TEST_NN_NAMED_H
#define TEST_NN_NAMED_H

#include "memory.h"

enum { NAMED_MAX = 200, NAMED_LENGTH = 120 };

struct named {
    int64_t num;
    char names[NAMED_MAX][NAMED_LENGTH];
    attn_tensor tensors[NAMED_MAX];
    double *values[NAMED_MAX];
};

/** Empty; freed with the memory. */
struct named *named_create(struct memory *m);

/** Adds a contiguous matrix, or a vector when rows is 0: normal numbers times scale, about mean. */
void named_add(struct named *n, struct memory *m, attn_dtype dtype, int64_t rows, int64_t columns, double scale,
               double mean, const char *prefix, const char *name);
/** Values by name, or NULL. */
const double *named_values(const struct named *n, const char *prefix, const char *name);
/** The tensor of that name, to be spoilt. */
attn_tensor *named_tensor(struct named *n, const char *prefix, const char *name);
/** Takes one out. */
void named_remove(struct named *n, const char *prefix, const char *name);
/** attn_weights_create() of all. */
attn_weights *named_weights(const struct named *n);
/** All of them as a safetensors file, in a buffer of the memory's; f32, bf16 and f16. */
char *named_file(const struct named *n, struct memory *m, size_t *size);

/** A linear layer name.weight and name.bias, which adds to both. */
void named_add_dense(struct named *n, struct memory *m, int64_t out, int64_t in, int bias, const char *prefix,
                     const char *name);
/** A norm: name.weight, and name.bias for layer norms. */
void named_add_norm(struct named *n, struct memory *m, attn_norm kind, int64_t channels, const char *prefix,
                    const char *name);
struct oracle_dense named_dense(const struct named *n, int64_t out, int64_t in, const char *prefix, const char *name);
struct oracle_norm named_norm(const struct named *n, attn_norm kind, int64_t channels, float eps, const char *prefix,
                              const char *name);

/** Adds the weights of a whole layer. biases: of the products. */
void named_add_block(struct named *n, struct memory *m, const attn_block_config *config, const char *prefix,
                     attn_naming naming, int biases);
struct oracle_block named_block(const struct named *n, const attn_block_config *config, const char *prefix,
                                attn_naming naming);

/** "prefix" "name" ".layer.". */
void layer_prefix(char text[NAMED_LENGTH], const char *prefix, const char *name, int64_t layer);
/** n ids below vocabulary, freed with the memory. */
int32_t *random_ids(struct memory *m, int64_t n, int64_t vocabulary);
/** The oracles' results for some rows, of all of them. */
struct trio trio_at(const struct trio *all, int64_t offset);
/** load() with every tensor missing or of another shape: the sentence has its name. nn_end_refusals() is the caller's.
 */
void refuses_weights(struct memory *m, const struct named *named,
                     attn_status (*load)(const attn_weights *weights, void *user), void *user);

#endif
