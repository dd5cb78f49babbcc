/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats of weights by the names of the command line. int8 has a scale for each 64 inputs: a few channels of these
 * models are large, and would leave the others few steps. What is multiplied is as narrow as what is kept; between
 * products bf16 stays bf16, and all else is f32.
 */
#include "models/precision.h"

enum { AS_IN_FILE, F32, BF16, INT8, INT4, NUM_FORMATS };

static const struct {
    attn_weight_format weights;
    attn_multiply multiply;
    int64_t group;
    attn_dtype activations;
} formats[NUM_FORMATS] = {
    [AS_IN_FILE] = {ATTN_WEIGHTS_AS_GIVEN, ATTN_MULTIPLY_F32, 0, ATTN_F32},
    [F32] = {ATTN_WEIGHTS_F32, ATTN_MULTIPLY_F32, 0, ATTN_F32},
    [BF16] = {ATTN_WEIGHTS_BF16, ATTN_MULTIPLY_BF16, 0, ATTN_BF16},
    [INT8] = {ATTN_WEIGHTS_INT8, ATTN_MULTIPLY_INT8, 64, ATTN_F32},
    [INT4] = {ATTN_WEIGHTS_INT4, ATTN_MULTIPLY_INT8, 0, ATTN_F32},
};

/* Whether weights of a kind can be multiplied so. */
static attn_status check_multiply(const struct option *option, int kind, attn_multiply multiply)
{
    if (multiply == ATTN_MULTIPLY_BF16 && kind != BF16)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--multiply is '%s', which takes weights in bf16; expected --precision bf16", option->value);
    if (multiply == ATTN_MULTIPLY_INT8 && kind != INT8 && kind != INT4)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--multiply is '%s', which takes weights in int8 or int4; expected --precision int8 or int4",
                       option->value);
    return ATTN_OK;
}

static attn_status read_group(const struct option *option, int kind, int64_t *group)
{
    long long wanted = *group;
    CHECK(option_integer(option, 0, 128, &wanted));
    if (option->value != NULL && kind != INT8)
        return io_fail(ATTN_INVALID_ARGUMENT, "--group is given without --precision int8, whose scales it is about");
    if (wanted != 0 && wanted != 32 && wanted != 64 && wanted != 128)
        return io_fail(ATTN_INVALID_ARGUMENT, "--group is '%s'; expected 0, 32, 64 or 128", option->value);
    *group = wanted;
    return ATTN_OK;
}

attn_status precision_read(struct precision *out, const struct option *precision, const struct option *multiply,
                           const struct option *group, const struct option *activations)
{
    static const char *const names[] = {"f32", "bf16", "int8", "int4"};
    static const char *const products[] = {"f32", "bf16", "int8"};
    static const char *const types[] = {"f32", "bf16", "f16"};
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    int kind = -1, product = -1, type = -1;
    CHECK(option_choice(precision, names, 4, &kind));
    kind++;
    out->format = attn_linear_format_default();
    out->format.weights = formats[kind].weights;
    out->format.multiply = formats[kind].multiply;
    out->format.group = formats[kind].group;
    out->activations = formats[kind].activations;
    if (multiply != NULL)
        CHECK(option_choice(multiply, products, 3, &product));
    if (product >= 0) {
        out->format.multiply = (attn_multiply)product;
        CHECK(check_multiply(multiply, kind, out->format.multiply));
    }
    if (group != NULL)
        CHECK(read_group(group, kind, &out->format.group));
    if (activations != NULL)
        CHECK(option_choice(activations, types, 3, &type));
    if (type >= 0)
        out->activations = dtypes[type];
    return ATTN_OK;
}
