/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that an instruction set's stub compiles for the layers, after it
 * has included its simd header: the templates, and the one table it exports.
 */
#ifndef ATTN_NN_ISA_KERNELS_H
#define ATTN_NN_ISA_KERNELS_H

#include "nn/kernels/activation.h"
#include "nn/kernels/additive.h"
#include "nn/kernels/cell.h"
#include "nn/kernels/linear.h"
#include "nn/kernels/norm.h"

extern const struct attn_nn_kernels VF_NAME(attn_nn_kernels);

const struct attn_nn_kernels VF_NAME(attn_nn_kernels) = {
    .lanes = VF_LEN,
    .panel_vectors = VF_STRIP,
    .linear = linear_panel,
    .normalise = normalise_rows,
    .activate = activate_rows,
    .gate = gate_rows,
    .embed = embed_row,
    .additive = additive_rows,
    .lstm_cell = lstm_cell,
    .gru_cell = gru_cell,
};

#endif
