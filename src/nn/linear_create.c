/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers: formats of weights, and how they are packed.
 *
 * The outputs of a part are cut into panels of as many as the register tile has
 * lanes; a panel is stored input by input, [inputs][lanes], so that a kernel
 * reads its weights from front to back. The last panel of a part has only the
 * vectors that it needs, the lanes behind the last output are 0. The panels of a
 * part lie behind each other, in the type that the weights came in: bf16 and f16
 * take half the memory, and half the time where weights come from far.
 *
 * Why not CBLAS: it repacks the weights in every call, which costs half of the
 * time when the rows are few, as they are for a sentence or a step of decoding,
 * and gives no promise that a row's bits stay the same among other rows.
 * docs/layers.md has the figures.
 */
#include "nn/check.h"
#include "nn/linear_layer.h"
#include "simd/half.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/** Bytes of a part's weights, or -1 on overflow. */
static int64_t weight_bytes(const struct attn_linear *linear, const struct linear_part *part)
{
    int64_t bytes;
    if (part->outputs > INT64_MAX / 16 - linear->panel_outputs ||
        __builtin_mul_overflow(nn_rounded_up(part->outputs, linear->kernels->lanes) * attn_element_size(part->dtype),
                               linear->inputs, &bytes) ||
        bytes > INT64_MAX - ATTN_ALIGN)
        return -1;
    return nn_rounded_up(bytes, ATTN_ALIGN);
}

/** An element of weights in the type that they are kept in. */
static void pack_element(attn_dtype dtype, char *to, const attn_tensor *weight, int64_t row, int64_t column)
{
    if (dtype == weight->dtype) {
        memcpy(to, nn_weight_address(weight, row, column), (size_t)attn_element_size(dtype));
        return;
    }
    const float value = nn_weight_at(weight, row, column);
    const uint16_t half = bf16_from_f32(value);
    if (dtype == ATTN_BF16)
        memcpy(to, &half, sizeof half);
    else
        memcpy(to, &value, sizeof value);
}

static void pack_part(const struct attn_linear *linear, const struct linear_part *part, const attn_tensor *weight,
                      const attn_tensor *bias)
{
    const int lanes = linear->kernels->lanes;
    const ptrdiff_t size = attn_element_size(part->dtype);
    char *to = part->weights;
    for (int64_t first = 0; first < part->outputs; first += linear->panel_outputs) {
        const int64_t left = part->outputs - first, live = left < linear->panel_outputs ? left : linear->panel_outputs;
        const int64_t width = nn_rounded_up(live, lanes);
        for (int64_t c = 0; c < linear->inputs; c++)
            for (int64_t o = 0; o < width; o++, to += size) {
                if (o < live)
                    pack_element(part->dtype, to, weight, first + o, c);
                else
                    memset(to, 0, (size_t)size);
            }
    }
    for (int64_t o = 0; o < part->panels * linear->panel_outputs; o++)
        part->bias[o] = bias && o < part->outputs ? nn_weight_at(bias, 0, o) : 0.0f;
}

static int has_bias(const attn_tensor *biases, int64_t part)
{
    return biases && biases[part].data;
}

static attn_status check_weights(int64_t num_parts, const attn_tensor *weights, const attn_tensor *biases)
{
    CHECK(nn_check_length("num_parts", num_parts, 1));
    if (!weights)
        return attn_fail(ATTN_INVALID_ARGUMENT, "weights is NULL; expected %" PRId64 " matrices", num_parts);
    for (int64_t p = 0; p < num_parts; p++) {
        const struct nn_name weight = nn_name_of("weights", p, NULL), bias = nn_name_of("biases", p, NULL);
        CHECK(nn_check_matrix(weight.text, &weights[p], NN_ANY, p ? weights[0].shape[3] : NN_ANY));
        if (has_bias(biases, p))
            CHECK(nn_check_vector(bias.text, &biases[p], weights[p].shape[2]));
    }
    return ATTN_OK;
}

/** Sizes of the parts; returns the bytes of memory, or -1 on overflow. */
static int64_t lay_out(struct attn_linear *linear, const attn_tensor *weights, attn_weight_format format)
{
    int64_t total = 0;
    for (int64_t p = 0; p < linear->num_parts; p++) {
        struct linear_part *part = &linear->parts[p];
        part->outputs = weights[p].shape[2];
        part->dtype = format == ATTN_WEIGHTS_F32    ? ATTN_F32
                      : format == ATTN_WEIGHTS_BF16 ? ATTN_BF16
                                                    : weights[p].dtype;
        const int64_t bytes = weight_bytes(linear, part);
        if (bytes < 0)
            return -1;
        part->panels = (part->outputs + linear->panel_outputs - 1) / linear->panel_outputs;
        part->first_panel = linear->panels;
        linear->panels += part->panels;
        const int64_t floats = part->panels * linear->panel_outputs;
        if (__builtin_add_overflow(total, floats * (int64_t)sizeof(float), &total) ||
            __builtin_add_overflow(total, bytes, &total) || total > INT64_MAX / 2)
            return -1;
        linear->weight_bytes += bytes;
    }
    return total;
}

static attn_status check_format(attn_linear_format *ours, const attn_linear_format *format)
{
    CHECK(attn_take_struct("format", ours, sizeof *ours, NN_LINEAR_FORMAT_FIRST, format));
    if ((unsigned)ours->weights > ATTN_WEIGHT_FORMAT_LAST)
        return attn_fail(ATTN_INVALID_ARGUMENT, "format.weights is %d; expected an attn_weight_format",
                         (int)ours->weights);
    if ((unsigned)ours->multiply > ATTN_MULTIPLY_LAST)
        return attn_fail(ATTN_INVALID_ARGUMENT, "format.multiply is %d; expected an attn_multiply",
                         (int)ours->multiply);
    if (ours->weights > ATTN_WEIGHTS_BF16)
        return attn_fail(ATTN_UNSUPPORTED, "format.weights is %d; expected weights as given, in f32 or in bf16",
                         (int)ours->weights);
    if (ours->multiply != ATTN_MULTIPLY_F32)
        return attn_fail(ATTN_UNSUPPORTED, "format.multiply is %d; expected products in f32", (int)ours->multiply);
    if (ours->group != 0)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "format.group is %" PRId64 "; expected 0 with weights that have no scales", ours->group);
    if (ours->isa)
        return attn_fail(ATTN_UNSUPPORTED, "format.isa is \"%s\"; expected NULL", ours->isa);
    return ATTN_OK;
}

attn_status attn_linear_create(attn_linear **linear, int64_t num_parts, const attn_tensor *weights,
                               const attn_tensor *biases)
{
    return attn_linear_quantize(linear, NULL, num_parts, weights, biases);
}

attn_status attn_linear_quantize(attn_linear **linear_out, const attn_linear_format *format, int64_t num_parts,
                                 const attn_tensor *weights, const attn_tensor *biases)
{
    attn_linear_format ours;
    if (!linear_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "linear is NULL; expected where to put the layer");
    *linear_out = NULL;
    CHECK(check_format(&ours, format));
    CHECK(check_weights(num_parts, weights, biases));
    struct attn_linear *linear = calloc(1, sizeof *linear + (size_t)num_parts * sizeof *linear->parts);
    if (!linear)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a linear layer of %" PRId64 " parts could not be allocated", num_parts);
    linear->kernels = attn_nn_kernels_active();
    linear->panel_outputs = (int64_t)linear->kernels->panel_vectors * linear->kernels->lanes;
    linear->inputs = weights[0].shape[3];
    linear->num_parts = num_parts;
    const int64_t bytes = lay_out(linear, weights, ours.weights);
    if (bytes < 0) {
        free(linear);
        return attn_fail(ATTN_SIZE_OVERFLOW, "the packed weights would exceed 2^63 bytes");
    }
    linear->memory = aligned_alloc(ATTN_ALIGN, (size_t)nn_rounded_up(bytes + 1, ATTN_ALIGN));
    if (!linear->memory) {
        free(linear);
        return attn_fail(ATTN_OUT_OF_MEMORY, "%" PRId64 " bytes of packed weights could not be allocated", bytes);
    }
    char *at = linear->memory;
    for (int64_t p = 0; p < num_parts; p++) {
        struct linear_part *part = &linear->parts[p];
        part->weights = at;
        at += weight_bytes(linear, part);
    }
    float *bias = (float *)(void *)at;
    for (int64_t p = 0; p < num_parts; p++) {
        struct linear_part *part = &linear->parts[p];
        part->bias = bias;
        bias += part->panels * linear->panel_outputs;
        pack_part(linear, part, &weights[p], has_bias(biases, p) ? &biases[p] : NULL);
    }
    *linear_out = linear;
    return ATTN_OK;
}

void attn_linear_destroy(attn_linear *linear)
{
    if (linear)
        free(linear->memory);
    free(linear);
}

int64_t attn_linear_inputs(const attn_linear *linear)
{
    return linear->inputs;
}

int64_t attn_linear_outputs(const attn_linear *linear, int64_t part)
{
    return part >= 0 && part < linear->num_parts ? linear->parts[part].outputs : 0;
}

int64_t attn_linear_weight_bytes(const attn_linear *linear)
{
    return linear->weight_bytes;
}

const char *attn_linear_isa(const attn_linear *linear)
{
    (void)linear;
    return attn_isa_active();
}
