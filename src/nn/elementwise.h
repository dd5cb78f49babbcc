/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups as models run them: a token's row and that of its position in one
 * step, so that their sum is rounded once.
 */
#ifndef ATTN_NN_ELEMENTWISE_INTERNAL_H
#define ATTN_NN_ELEMENTWISE_INTERNAL_H

#include "attn/nn/elementwise.h"

/** Rows of tables with contiguous channels; all has been checked. */
struct nn_lookup {
    const attn_tensor *table;  /**< of tokens */
    const int32_t *ids;        /**< [batch * tokens] */
    float scale;               /**< of a token's row */
    const attn_tensor *places; /**< NULL, or of positions, added */
    const int32_t *place_ids;  /**< [batch * tokens], or NULL: first_place, first_place + 1, ... in each sequence */
    int64_t first_place;
    const attn_tensor *kind; /**< NULL, or a table of which a row is added to each position's row first */
    const int32_t *kind_ids; /**< [batch * tokens] its rows, or NULL: the first */
};

/** out = scale * table[ids] + (places[...] + kind[...]), for every token of out. */
void nn_look_up(const struct nn_lookup *lookup, const attn_tensor *out, int num_threads);

/** positions[offsets[num_sequences]]: first, first + 1, ... in each sequence of offsets[num_sequences + 1]. */
void nn_count_positions(int64_t num_sequences, const int64_t *offsets, int64_t first, int32_t *positions);

#endif
