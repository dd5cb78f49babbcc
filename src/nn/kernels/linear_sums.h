/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the products of a panel share: how they walk over it, and what becomes of
 * sums.
 */
#ifndef ATTN_NN_LINEAR_SUMS_H
#define ATTN_NN_LINEAR_SUMS_H

#include "kernels/rows.h"
#include "nn/kernels/nn_kernels.h"

/** Inputs of a block: of floats with a full panel 24 KiB on AVX-512, 12 KiB on AVX2. Groups do not cross blocks. */
#define LINEAR_INPUTS 128

/** How far ahead of what is multiplied narrow weights are asked for: several times what a core has under way. */
#define LINEAR_AHEAD 8192

/** The weights of some inputs, c0..c1-1, and those which are wanted next. */
struct linear_weights {
    int64_t c0, c1;
    const char *at, *next;
};

/** The block of so many inputs from input c0 on; behind it lies the next. */
ATTN_INLINE struct linear_weights linear_block_of(const enum nn_panel kind, const int nv,
                                                  const struct nn_linear_work *work, int64_t c0, const int64_t inputs)
{
    const ptrdiff_t row = (ptrdiff_t)nv * VF_LEN * nn_panel_word(kind);
    const char *const at = (const char *)work->panel + c0 / nn_panel_inputs(kind) * row;
    const int64_t c1 = work->inputs - c0 < inputs ? work->inputs : c0 + inputs;
    const int64_t words = (c1 - c0 + nn_panel_inputs(kind) - 1) / nn_panel_inputs(kind);
    return (struct linear_weights){c0, c1, at, at + words * row};
}

ATTN_INLINE struct linear_weights linear_block_at(const enum nn_panel kind, const int nv,
                                                  const struct nn_linear_work *work, int64_t c0)
{
    return linear_block_of(kind, nv, work, c0, LINEAR_INPUTS);
}

/** The work of panel p of a run. */
ATTN_INLINE struct nn_linear_work linear_panel_of(const struct nn_linear_work *work, int p)
{
    struct nn_linear_work one = *work;
    const ptrdiff_t outputs = (ptrdiff_t)p * VF_STRIP * VF_LEN;
    one.panels = 1;
    one.panel = (const char *)work->panel + p * work->panel_bytes;
    one.scale = work->scale ? (const char *)work->scale + p * work->scale_bytes : NULL;
    one.bias = work->bias + outputs;
    one.out.data = (char *)work->out.data + outputs * attn_element_size(work->out.dtype);
    if (work->residual.data)
        one.residual.data = (char *)work->residual.data + outputs * attn_element_size(work->residual.dtype);
    return one;
}

/** Asks for bytes that will be read soon. */
ATTN_INLINE void linear_ask(const char *next, const ptrdiff_t bytes)
{
    ATTN_UNROLL
    for (ptrdiff_t b = 0; b < bytes; b += ATTN_ALIGN)
        __builtin_prefetch(next + b, 0, 2);
}

/** Whether the weights of a call come without being asked for. */
ATTN_INLINE int linear_is_fetched(const struct nn_linear_work *work)
{
    return work->rows == 1 && work->fetches_ahead;
}

/** Rows of a tile: as many as are left, of 1, 2, 4 and VF_KEYS. */
ATTN_INLINE int linear_tile_rows(int64_t left)
{
    return left >= VF_KEYS ? VF_KEYS : VF_KEYS > 4 && left >= 4 ? 4 : VF_KEYS > 2 && left >= 2 ? 2 : 1;
}

/** Calls a body with a constant number of rows. */
#define LINEAR_BY_ROWS(nr, body, ...)                                                                                  \
    do {                                                                                                               \
        if ((nr) == VF_KEYS)                                                                                           \
            body(VF_KEYS, __VA_ARGS__);                                                                                \
        else if (VF_KEYS > 4 && (nr) == 4)                                                                             \
            body(4, __VA_ARGS__);                                                                                      \
        else if (VF_KEYS > 2 && (nr) == 2)                                                                             \
            body(2, __VA_ARGS__);                                                                                      \
        else                                                                                                           \
            body(1, __VA_ARGS__);                                                                                      \
    } while (0)

/** Asks for the scales of a panel that belong to weights LINEAR_AHEAD behind those of input c. */
ATTN_INLINE void linear_ask_scales(const enum nn_panel kind, const int nv, const struct nn_linear_work *work, int64_t c)
{
    const int64_t inputs = LINEAR_AHEAD / (nv * VF_LEN * nn_panel_word(kind)) * nn_panel_inputs(kind);
    const char *const scales = work->scale;
    const ptrdiff_t row = (ptrdiff_t)nv * VF_LEN * 2;
    linear_ask(scales + (c + inputs) / work->group * row, row);
}

/** A vector of scales of the group that holds input c. */
ATTN_INLINE vf linear_scale(const int nv, const struct nn_linear_work *work, int64_t c, int v)
{
    return vf_load_bf16((const uint16_t *)work->scale + (c / work->group * nv + v) * VF_LEN);
}

#endif
