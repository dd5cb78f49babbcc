/* SPDX-License-Identifier: Apache-2.0 */
/* What a linear layer is made of. */
#ifndef ATTN_NN_LINEAR_LAYER_H
#define ATTN_NN_LINEAR_LAYER_H

#include "nn/kernels/nn_kernels.h"
#include "nn/linear.h"

struct linear_part {
    int64_t outputs;
    int64_t first_panel, panels;
    attn_dtype dtype; /* of weights */
    char *weights;    /* of the first panel */
    float *bias;      /* [panels * panel outputs], zeros where there is none */
};

struct attn_linear {
    const struct attn_nn_kernels *kernels;
    int64_t inputs, num_parts, panels;
    int64_t panel_outputs; /* of a full panel */
    int64_t weight_bytes;  /* of all parts */
    void *memory;
    struct linear_part parts[];
};

static inline int64_t nn_rounded_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

#endif
