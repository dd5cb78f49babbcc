/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights by prefix and name, as the layers' loaders ask for them. A reader
 * remembers what was read, so that a loader can refuse what it left over: a
 * tensor that it does not know is part of a model that it does not know.
 *
 *     struct nn_reader reader;
 *     CHECK(nn_reader_open(&reader, "attn_mha_load", weights, prefix));
 *     status = ... nn_get(&reader, prefix, "out_proj.weight", ...) ...
 *     if (!status)
 *         status = nn_check_all_read(&reader, prefix, NULL);
 *     nn_reader_close(&reader);
 */
#ifndef ATTN_NN_NAMES_H
#define ATTN_NN_NAMES_H

#include "attn/nn.h"

/** A set that a loader reads. */
struct nn_reader {
    const attn_weights *weights;
    const char *loader; /**< the call, for sentences */
    char *was_read;     /**< [attn_weights_count(weights)] */
    /** Told of each tensor before it is read, or NULL: bytes of those that were read before, and of all that layers
     * take. */
    void (*progress)(void *user, int64_t done, int64_t total);
    void *progress_user;
    int64_t bytes_read, bytes;
};

/** Begins, if there are weights and a prefix. */
attn_status nn_reader_open(struct nn_reader *reader, const char *loader, const attn_weights *weights,
                           const char *prefix);
void nn_reader_close(struct nn_reader *reader);

/** Tells progress, if it is not NULL, of what is read from now on. */
void nn_reader_watch(struct nn_reader *reader, void (*progress)(void *user, int64_t done, int64_t total), void *user);
/** Tells it that all is done. */
void nn_reader_done(struct nn_reader *reader);

/**
 * That everything behind prefix was read, is ignored by the caller, or is one of known, patterns behind prefix up to a
 * NULL; known may be NULL.
 */
attn_status nn_check_all_read(const struct nn_reader *reader, const char *prefix, const char *const *known);

/** Whether prefix followed by name is there. */
int nn_has(const struct nn_reader *reader, const char *prefix, const char *name);

/** attn_weights_get() of prefix followed by name, which is read by this. */
attn_status nn_get(struct nn_reader *reader, const char *prefix, const char *name, int64_t rows, int64_t columns,
                   attn_tensor *tensor);

/** The same, or a tensor with data NULL if there is none of that name. */
attn_status nn_get_optional(struct nn_reader *reader, const char *prefix, const char *name, int64_t rows,
                            int64_t columns, attn_tensor *tensor);

/**
 * The weights of a normalisation of n channels: name.weight and name.bias, or name.gamma and name.beta, as the first
 * files of BERT have it. beta has data NULL if there is none.
 */
attn_status nn_get_norm(struct nn_reader *reader, const char *prefix, const char *name, int64_t n, attn_tensor *gamma,
                        attn_tensor *beta);

/** A copy of a vector or matrix as contiguous floats, in memory of its own; *copy is NULL for data NULL. */
attn_status nn_copy_floats(const attn_tensor *tensor, float **copy);

/** The same in its own type, as a contiguous view, whose data is to be freed. */
attn_status nn_copy_weights(const attn_tensor *tensor, attn_tensor *copy);

/** A prefix, or a name in full. */
struct nn_prefix {
    char text[512];
};
/** prefix followed by name; longer ones than there is room for are an error. */
attn_status nn_joined(struct nn_prefix *out, const char *prefix, const char *name);
/** The same followed by a number: "encoder.layers.3." */
attn_status nn_numbered(struct nn_prefix *out, const char *prefix, const char *middle, int64_t number);

#endif
