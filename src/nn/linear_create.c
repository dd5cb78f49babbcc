/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers: which formats of weights there are, and the memory that a layer takes.
 *
 * Narrow weights take less memory, and less time where they come from far.
 *
 * Why not CBLAS: it repacks the weights in every call, which costs half of the
 * time when the rows are few, as they are for a sentence or a step of decoding,
 * and gives no promise that a row's bits stay the same among other rows.
 * docs/layers.md has the figures.
 */
#include "cpu/large.h"
#include "nn/check.h"
#include "nn/linear_layer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------- sizes -- */

static enum nn_panel panel_of(const attn_linear_format *format, attn_dtype given)
{
    switch (format->weights) {
    case ATTN_WEIGHTS_INT8:
        return format->multiply == ATTN_MULTIPLY_INT8 ? NN_PANEL_QUADS : NN_PANEL_INT8;
    case ATTN_WEIGHTS_INT4:
        return NN_PANEL_NIBBLES;
    case ATTN_WEIGHTS_BF16:
        return NN_PANEL_PAIRS;
    case ATTN_WEIGHTS_F32:
        return NN_PANEL_F32;
    default:
        return given == ATTN_F32 ? NN_PANEL_F32 : given == ATTN_F16 ? NN_PANEL_F16 : NN_PANEL_PAIRS;
    }
}

static int is_integer(attn_weight_format weights)
{
    return weights == ATTN_WEIGHTS_INT8 || weights == ATTN_WEIGHTS_INT4;
}

/** Bytes of columns of bytes each, for a part's outputs up to the end of its last vector; or -1 on overflow. */
static int64_t columns_bytes(const struct attn_linear *linear, const struct linear_part *part, int64_t bytes)
{
    const int lanes = linear->products.base->lanes;
    if (part->outputs > INT64_MAX - lanes ||
        __builtin_mul_overflow(nn_rounded_up(part->outputs, lanes), bytes, &bytes) || bytes > INT64_MAX - ATTN_ALIGN)
        return -1;
    return nn_rounded_up(bytes, ATTN_ALIGN);
}

/** The parts; returns the bytes of memory, or -1 on overflow. */
static int64_t lay_out(struct attn_linear *linear, const attn_tensor *weights, const attn_linear_format *format)
{
    int64_t floats = 0;
    for (int64_t p = 0; p < linear->num_parts; p++) {
        struct linear_part *part = &linear->parts[p];
        part->outputs = weights[p].shape[2];
        part->kind = panel_of(format, weights[p].dtype);
        int64_t column = nn_panel_column(linear, part);
        if (column > INT64_MAX / 16)
            return -1;
        const int64_t bytes = columns_bytes(linear, part, column);
        const int64_t scales = is_integer(format->weights) ? columns_bytes(linear, part, nn_scale_column(linear)) : 0;
        if (bytes < 0 || scales < 0 || __builtin_add_overflow(linear->weight_bytes, bytes, &linear->weight_bytes) ||
            __builtin_add_overflow(linear->weight_bytes, scales, &linear->weight_bytes))
            return -1;
        part->panels = part->outputs / linear->panel_outputs + (part->outputs % linear->panel_outputs != 0);
        part->first_panel = linear->panels;
        linear->panels += part->panels;
        if (part->panels > INT64_MAX / 16 / linear->panel_outputs ||
            __builtin_add_overflow(floats, part->panels * linear->panel_outputs * (int64_t)sizeof(float), &floats) ||
            floats > INT64_MAX / 4 || linear->weight_bytes > INT64_MAX / 4)
            return -1;
    }
    return linear->weight_bytes + floats;
}

/** Gives each part its place. */
static void place_parts(struct attn_linear *linear, int integers)
{
    char *at = linear->memory;
    for (int64_t p = 0; p < linear->num_parts; p++) {
        struct linear_part *part = &linear->parts[p];
        part->weights = at;
        at += columns_bytes(linear, part, nn_panel_column(linear, part));
        if (integers) {
            part->scale = at;
            at += columns_bytes(linear, part, nn_scale_column(linear));
        }
    }
    float *bias = (float *)(void *)at;
    for (int64_t p = 0; p < linear->num_parts; p++) {
        linear->parts[p].bias = bias;
        bias += linear->parts[p].panels * linear->panel_outputs;
    }
}

/* ------------------------------------------------------------------- checks -- */

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

/** Weights that are looked at together. */
#define PIECE 256

/** That weights which become integers are finite. */
static attn_status check_finite(int64_t num_parts, const attn_tensor *weights)
{
    for (int64_t p = 0; p < num_parts; p++)
        for (int64_t o = 0; o < weights[p].shape[2]; o++)
            for (int64_t first = 0; first < weights[p].shape[3]; first += PIECE) {
                const int64_t left = weights[p].shape[3] - first, n = left < PIECE ? left : PIECE;
                float piece[PIECE];
                nn_read_weights(&weights[p], o, first, n, piece);
                for (int64_t i = 0; i < n; i++)
                    if (!isfinite(piece[i]))
                        return attn_fail(ATTN_INVALID_ARGUMENT,
                                         "weights[%" PRId64 "] is %g in row %" PRId64 ", column %" PRId64
                                         "; expected finite numbers, to be made integers",
                                         p, (double)piece[i], o, first + i);
            }
    return ATTN_OK;
}

static const char *const weight_names[] = {"as given", "in f32", "in bf16", "in int8", "in int4"};
static const char *const multiply_names[] = {"f32", "bf16", "int8"};

/** A format with its defaults filled in, or what is wrong with it. */
static attn_status take_format(attn_linear_format *ours, const attn_linear_format *format)
{
    CHECK(attn_take_struct("format", ours, sizeof *ours, NN_LINEAR_FORMAT_FIRST, format));
    if ((unsigned)ours->weights > ATTN_WEIGHT_FORMAT_LAST)
        return attn_fail(ATTN_INVALID_ARGUMENT, "format.weights is %d; expected an attn_weight_format",
                         (int)ours->weights);
    if ((unsigned)ours->multiply > ATTN_MULTIPLY_LAST)
        return attn_fail(ATTN_INVALID_ARGUMENT, "format.multiply is %d; expected an attn_multiply",
                         (int)ours->multiply);
    const int64_t group = ours->group;
    if (ours->weights == ATTN_WEIGHTS_INT8 && group != 0 && group != 32 && group != 64 && group != 128)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "format.group is %" PRId64 "; expected 0, 32, 64 or 128 with weights in int8", group);
    if (ours->weights == ATTN_WEIGHTS_INT4 && group != 0 && group != 32)
        return attn_fail(ATTN_INVALID_ARGUMENT, "format.group is %" PRId64 "; expected 0 or 32 with weights in int4",
                         group);
    if (!is_integer(ours->weights) && group != 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "format.group is %" PRId64 "; expected 0 with weights %s", group,
                         weight_names[ours->weights]);
    if (ours->weights == ATTN_WEIGHTS_INT4)
        ours->group = 32;
    return ATTN_OK;
}

/** That weights of this format can be multiplied as it says. */
static attn_status check_combination(const attn_linear_format *format, int64_t num_parts, const attn_tensor *weights)
{
    const int integers = is_integer(format->weights);
    const char *const expected = integers ? "f32 or int8" : format->weights == ATTN_WEIGHTS_F32 ? "f32" : "f32 or bf16";
    const int fits =
        format->multiply == ATTN_MULTIPLY_F32 ||
        (format->multiply == ATTN_MULTIPLY_INT8 ? integers : !integers && format->weights != ATTN_WEIGHTS_F32);
    if (!fits)
        return attn_fail(ATTN_UNSUPPORTED, "format.multiply is %s; expected %s with weights %s",
                         multiply_names[format->multiply], expected, weight_names[format->weights]);
    for (int64_t p = 0; p < num_parts; p++)
        if (format->multiply == ATTN_MULTIPLY_BF16 && format->weights == ATTN_WEIGHTS_AS_GIVEN &&
            weights[p].dtype != ATTN_BF16)
            return attn_fail(ATTN_UNSUPPORTED,
                             "format.multiply is bf16, and weights[%" PRId64
                             "] is %s; expected bf16, or format.weights "
                             "to make it so",
                             p, attn_dtype_name(weights[p].dtype));
    if (format->multiply == ATTN_MULTIPLY_INT8 && weights[0].shape[3] > ATTN_MULTIPLY_INT8_INPUTS)
        return attn_fail(ATTN_UNSUPPORTED,
                         "weights[0].shape[3] is %" PRId64 "; expected at most %d inputs with products of int8",
                         weights[0].shape[3], ATTN_MULTIPLY_INT8_INPUTS);
    return integers ? check_finite(num_parts, weights) : ATTN_OK;
}

static attn_status choose_products(struct nn_products *products, const attn_linear_format *format)
{
    const int found = attn_nn_products_choose(products, format->isa, format->multiply, format->group != 0);
    if (found > 0)
        return ATTN_OK;
    if (found < 0)
        return attn_fail(ATTN_UNSUPPORTED, "format.isa is %s, which this processor does not have", format->isa);
    char names[256];
    attn_nn_isa_list(names, sizeof names);
    return attn_fail(ATTN_INVALID_ARGUMENT, "format.isa is '%.32s'; expected NULL or one of %s", format->isa, names);
}

/* ------------------------------------------------------------------- layers -- */

attn_status attn_linear_quantize(attn_linear **linear_out, const attn_linear_format *format, int64_t num_parts,
                                 const attn_tensor *weights, const attn_tensor *biases)
{
    attn_linear_format ours;
    struct nn_products products;
    if (!linear_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "linear is NULL; expected where to put the layer");
    *linear_out = NULL;
    CHECK(take_format(&ours, format));
    CHECK(choose_products(&products, &ours));
    CHECK(check_weights(num_parts, weights, biases));
    CHECK(check_combination(&ours, num_parts, weights));
    struct attn_linear *linear = calloc(1, sizeof *linear + (size_t)num_parts * sizeof *linear->parts);
    if (!linear)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a linear layer of %" PRId64 " parts could not be allocated", num_parts);
    linear->products = products;
    linear->multiply = ours.multiply;
    linear->group = ours.group;
    linear->panel_outputs = (int64_t)products.base->panel_vectors * products.base->lanes;
    linear->inputs = weights[0].shape[3];
    linear->num_parts = num_parts;
    const int64_t bytes = lay_out(linear, weights, &ours);
    if (bytes < 0) {
        free(linear);
        return attn_fail(ATTN_SIZE_OVERFLOW, "the packed weights would exceed 2^63 bytes");
    }
    linear->memory = attn_alloc_large((size_t)bytes);
    if (!linear->memory) {
        free(linear);
        return attn_fail(ATTN_OUT_OF_MEMORY, "%" PRId64 " bytes of packed weights could not be allocated", bytes);
    }
    place_parts(linear, is_integer(ours.weights));
    for (int64_t p = 0; p < num_parts; p++)
        nn_linear_pack(linear, &linear->parts[p], &weights[p], has_bias(biases, p) ? &biases[p] : NULL, ours.weights);
    *linear_out = linear;
    return ATTN_OK;
}

attn_status attn_linear_create(attn_linear **linear, int64_t num_parts, const attn_tensor *weights,
                               const attn_tensor *biases)
{
    return attn_linear_quantize(linear, NULL, num_parts, weights, biases);
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
    return linear->products.isa;
}
