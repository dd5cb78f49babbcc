/* SPDX-License-Identifier: Apache-2.0 */
/* What a linear layer is made of. */
#ifndef ATTN_NN_LINEAR_LAYER_H
#define ATTN_NN_LINEAR_LAYER_H

#include "nn/kernels/nn_kernels.h"
#include "nn/linear.h"

struct linear_part {
    int64_t outputs;
    int64_t first_panel, panels;
    enum nn_panel kind;
    char *weights; /* of the first panel */
    char *scale;   /* of the first panel; NULL: weights are no integers */
    float *bias;   /* [panels * panel outputs], zeros where there is none */
};

struct attn_linear {
    struct nn_products products;
    attn_multiply multiply;
    int64_t group; /* inputs with a scale of their own; 0: none */
    int64_t inputs, num_parts, panels;
    int64_t panel_outputs; /* of a full panel */
    int64_t weight_bytes;  /* of all parts, scales among them */
    void *memory;
    struct linear_part parts[];
};

static inline int64_t nn_rounded_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/** Bytes that an output has in a panel. */
static inline int64_t nn_panel_column(const struct attn_linear *linear, const struct linear_part *part)
{
    const int unit = nn_panel_inputs(part->kind);
    return (linear->inputs / unit + (linear->inputs % unit != 0)) * nn_panel_word(part->kind);
}

/** Bytes that it has of scales. */
static inline int64_t nn_scale_column(const struct attn_linear *linear)
{
    if (!linear->group)
        return sizeof(float);
    const int64_t groups = linear->inputs / linear->group + (linear->inputs % linear->group != 0);
    return (groups ? groups : 1) * (int64_t)sizeof(uint16_t);
}

/**
 * Packs a part, whose memory is there. weight and bias, which may be NULL, are checked; threads share a large one.
 * format is what the weights become.
 */
void nn_linear_pack(const struct attn_linear *linear, const struct linear_part *part, const attn_tensor *weight,
                    const attn_tensor *bias, attn_weight_format format);

#endif
