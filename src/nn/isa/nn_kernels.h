/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that an instruction set's stub compiles for the layers, after it
 * has named its simd headers: the templates, and the one table it exports. A set
 * that extends another one says which products it brings: ATTN_NN_PRODUCTS is the
 * header of their template, and ATTN_NN_TABLE the entries of its table.
 */
#ifndef ATTN_NN_ISA_KERNELS_H
#define ATTN_NN_ISA_KERNELS_H

#ifdef ATTN_NN_PRODUCTS
#include ATTN_NN_PRODUCTS
#else
#include "nn/kernels/activation.h"
#include "nn/kernels/activation_backward.h"
#include "nn/kernels/additive.h"
#include "nn/kernels/additive_backward.h"
#include "nn/kernels/additive_finish.h"
#include "nn/kernels/cell.h"
#include "nn/kernels/cell_backward.h"
#include "nn/kernels/drop.h"
#include "nn/kernels/linear.h"
#include "nn/kernels/linear_int8.h"
#include "nn/kernels/loss.h"
#include "nn/kernels/norm.h"
#include "nn/kernels/norm_backward.h"
#define ATTN_NN_TABLE                                                                                                  \
    .linear = linear_panels, .finish = linear_finish, ATTN_NN_INT8_TABLE, .normalise = normalise_rows,                 \
    .activate = activate_rows, .gate = gate_rows, .embed = embed_row, .drop = drop_row,                                \
    .normalise_backward = normalise_backward_rows, .activate_backward = activate_backward_rows,                        \
    .gate_backward = gate_backward_rows, .additive = additive_block, .additive_join = additive_join,                   \
    .additive_finish = additive_finish, .cross_entropy = cross_entropy_row, .lstm_cell = lstm_cell,                    \
    .gru_cell = gru_cell, .lstm_gates = lstm_gates, .lstm_cell_backward = lstm_cell_backward,                          \
    .gru_cell_backward = gru_cell_backward, .additive_scores_backward = additive_scores_backward,                      \
    .additive_projections_backward = additive_projections_backward, .additive_keys_backward = additive_keys_backward
#endif
#define ATTN_NN_INT8_TABLE .linear_int8 = linear_int8_panels, .quantize = quantize_rows, .int8_offset = VS_OFFSET

extern const struct attn_nn_kernels VF_NAME(attn_nn_kernels);

const struct attn_nn_kernels VF_NAME(attn_nn_kernels) = {
    .lanes = VF_LEN,
    .panel_vectors = VF_STRIP,
    ATTN_NN_TABLE,
};

#endif
