/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that the layers share, and how many threads a piece of work is worth.
 */
#include "nn/check.h"

#include "driver/threads.h"
#include "simd/half.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static attn_status check_axis(const char *name, const attn_tensor *t, int axis, int64_t expected, const char *what)
{
    if (expected != NN_ANY && t->shape[axis] != expected)
        return attn_fail(ATTN_SHAPE_MISMATCH, "%s.shape[%d] is %" PRId64 "; expected %" PRId64 " %s", name, axis,
                         t->shape[axis], expected, what);
    return ATTN_OK;
}

/** The shape of activations whose type has been checked. */
static attn_status check_shape(const char *name, const attn_tensor *t, int64_t batch, int64_t tokens, int64_t channels)
{
    CHECK(check_axis(name, t, 0, batch, "sequences"));
    CHECK(check_axis(name, t, 1, 1, "head"));
    CHECK(check_axis(name, t, 2, tokens, "tokens"));
    CHECK(check_axis(name, t, 3, channels, "channels"));
    return attn_check_contiguous(name, t);
}

attn_status nn_check_activations(const char *name, const attn_tensor *t, int64_t batch, int64_t tokens,
                                 int64_t channels)
{
    CHECK(attn_check_tensor(name, t, CHECK_ALL));
    if (t->dtype != ATTN_F32)
        return attn_fail(ATTN_UNSUPPORTED, "%s.dtype is %s; expected f32", name, attn_dtype_name(t->dtype));
    return check_shape(name, t, batch, tokens, channels);
}

attn_status nn_check_typed_activations(const char *name, const attn_tensor *t, int64_t batch, int64_t tokens,
                                       int64_t channels)
{
    CHECK(attn_check_tensor(name, t, CHECK_ALL));
    CHECK(attn_check_float(name, t->dtype));
    return check_shape(name, t, batch, tokens, channels);
}

attn_status nn_check_output(const char *name, const attn_tensor *t, int64_t batch, int64_t tokens, int64_t channels)
{
    CHECK(nn_check_activations(name, t, batch, tokens, channels));
    return attn_check_distinct(name, t);
}

attn_status nn_check_typed_output(const char *name, const attn_tensor *t, int64_t batch, int64_t tokens,
                                  int64_t channels)
{
    CHECK(nn_check_typed_activations(name, t, batch, tokens, channels));
    return attn_check_distinct(name, t);
}

attn_status nn_check_layer_type(const char *name, attn_dtype dtype)
{
    if (dtype == ATTN_F32 || dtype == ATTN_BF16 || dtype == ATTN_F16)
        return ATTN_OK;
    if ((unsigned)dtype > ATTN_I4)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is %d; expected ATTN_F32, ATTN_BF16 or ATTN_F16", name, (int)dtype);
    return attn_fail(ATTN_UNSUPPORTED, "%s is %s; expected f32, bf16 or f16", name, attn_dtype_name(dtype));
}

attn_status nn_check_matrix(const char *name, const attn_tensor *t, int64_t rows, int64_t columns)
{
    CHECK(attn_check_tensor(name, t, CHECK_ALL));
    if (t->dtype != ATTN_F32 && t->dtype != ATTN_BF16 && t->dtype != ATTN_F16)
        return attn_fail(ATTN_UNSUPPORTED, "%s.dtype is %s; expected f32, bf16 or f16", name,
                         attn_dtype_name(t->dtype));
    CHECK(check_axis(name, t, 0, 1, "as it is a matrix or vector"));
    CHECK(check_axis(name, t, 1, 1, "as it is a matrix or vector"));
    CHECK(check_axis(name, t, 2, rows, "rows"));
    return check_axis(name, t, 3, columns, "columns");
}

attn_status nn_check_vector(const char *name, const attn_tensor *t, int64_t n)
{
    return nn_check_matrix(name, t, 1, n);
}

attn_status nn_check_sums(const char *name, const attn_tensor *t, int64_t rows, int64_t columns)
{
    CHECK(nn_check_matrix(name, t, rows, columns));
    if (t->dtype != ATTN_F32)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.dtype is %s; expected f32", name, attn_dtype_name(t->dtype));
    CHECK(attn_check_contiguous(name, t));
    return attn_check_distinct(name, t);
}

static attn_status check_pair(const struct nn_argument *output, const struct nn_argument *other)
{
    if (!output->tensor || !other->tensor)
        return ATTN_OK;
    return attn_check_apart(output->name, output->tensor, other->name, other->tensor, 0);
}

attn_status nn_check_apart(const struct nn_argument *outputs, int num_outputs, const struct nn_argument *inputs,
                           int num_inputs)
{
    for (int i = 0; i < num_outputs; i++) {
        for (int j = 0; j < num_inputs; j++)
            CHECK(check_pair(&outputs[i], &inputs[j]));
        for (int j = 0; j < i; j++)
            CHECK(check_pair(&outputs[i], &outputs[j]));
    }
    return ATTN_OK;
}

attn_status nn_check_threads(int num_threads)
{
    if (num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num_threads is %d; expected 0 or more", num_threads);
    return ATTN_OK;
}

attn_status nn_check_length(const char *name, int64_t value, int64_t least)
{
    if (value < least)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is %" PRId64 "; expected %" PRId64 " or more", name, value, least);
    return ATTN_OK;
}

attn_status nn_check_lengths(const char *name, const int64_t *lengths, int64_t count, int64_t most, const char *meaning)
{
    for (int64_t i = 0; lengths && i < count; i++)
        if (lengths[i] < 0 || lengths[i] > most)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64 ", %s",
                             name, i, lengths[i], most, meaning);
    return ATTN_OK;
}

attn_status nn_check_eps(const char *name, float eps)
{
    if (!(eps >= 0) || isinf(eps))
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is %g; expected a finite number, 0 or more", name, (double)eps);
    return ATTN_OK;
}

attn_status nn_check_activation(const char *name, attn_activation activation)
{
    if ((unsigned)activation > ATTN_ACTIVATION_LAST)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is %d; expected an attn_activation", name, (int)activation);
    return ATTN_OK;
}

attn_status nn_check_offsets(const char *name, int64_t num_sequences, const int64_t *offsets)
{
    if (!offsets)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %" PRId64 " + 1 offsets", name, num_sequences);
    if (offsets[0] != 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s[0] is %" PRId64 "; expected 0", name, offsets[0]);
    for (int64_t s = 1; s <= num_sequences; s++)
        if (offsets[s] < offsets[s - 1])
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s[%" PRId64 "] is %" PRId64 "; expected %" PRId64 " or more",
                             name, s, offsets[s], offsets[s - 1]);
    return ATTN_OK;
}

attn_status nn_check_sequences(const char *name, int64_t num_sequences, const int64_t *offsets, int64_t most)
{
    for (int64_t s = 0; s < num_sequences; s++)
        if (offsets[s + 1] - offsets[s] > most)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "%s[%" PRId64 "] is %" PRId64 "; expected at most %" PRId64
                             ", as a sequence has no more than %" PRId64 " tokens",
                             name, s + 1, offsets[s + 1], offsets[s] + most, most);
    return ATTN_OK;
}

attn_status nn_check_ids(const char *name, const int32_t *ids, int64_t first, int64_t end, int64_t vocabulary)
{
    if (!ids && end > first)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %" PRId64 " tokens", name, end);
    for (int64_t t = first; t < end; t++)
        if (ids[t] < 0 || ids[t] >= vocabulary)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "%s[%" PRId64 "] is %" PRId32 "; expected 0 to %" PRId64 ", the tokens known", name, t,
                             ids[t], vocabulary - 1);
    return ATTN_OK;
}

attn_status nn_check_row_numbers(const char *table, int64_t rows, const int32_t *ids, int64_t count)
{
    if (!ids && count)
        return attn_fail(ATTN_INVALID_ARGUMENT, "ids is NULL; expected %" PRId64 " row numbers", count);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= rows)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "ids[%" PRId64 "] is %" PRId32 "; expected 0 to %" PRId64 ", the rows of %s", i, ids[i],
                             rows - 1, table);
    return ATTN_OK;
}

attn_status nn_check_scale(const char *name, float scale)
{
    if (!isfinite(scale))
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is %g; expected a finite number", name, (double)scale);
    return ATTN_OK;
}

int nn_all_threads(int num_threads)
{
    return num_threads ? num_threads : attn_default_num_threads();
}

int nn_threads(int num_threads, double operations)
{
    return attn_threads_worth(operations + ATTN_WORTH_LAYER, ATTN_WORTH_LAYER, nn_all_threads(num_threads));
}

const void *nn_weight_address(const attn_tensor *t, int64_t row, int64_t column)
{
    const int64_t at = (t->shape[2] > 1 ? row * t->stride[2] : 0) + (t->shape[3] > 1 ? column * t->stride[3] : 0);
    return (const char *)t->data + at * attn_element_size(t->dtype);
}

float nn_weight_at(const attn_tensor *t, int64_t row, int64_t column)
{
    const void *const at = nn_weight_address(t, row, column);
    if (t->dtype == ATTN_F32)
        return *(const float *)at;
    const uint16_t half = *(const uint16_t *)at;
    return t->dtype == ATTN_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

void nn_read_weights(const attn_tensor *t, int64_t row, int64_t first, int64_t n, float *to)
{
    const void *from = nn_weight_address(t, row, first);
    const int contiguous = t->stride[3] == 1;
    if (contiguous && t->dtype == ATTN_F32)
        memcpy(to, from, (size_t)n * sizeof *to);
    else if (contiguous && t->dtype == ATTN_BF16)
        for (int64_t i = 0; i < n; i++)
            to[i] = bf16_to_f32(((const uint16_t *)from)[i]);
    else if (contiguous && t->dtype == ATTN_F16)
        for (int64_t i = 0; i < n; i++)
            to[i] = f16_to_f32(((const uint16_t *)from)[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = nn_weight_at(t, row, first + i);
}

struct nn_name nn_name_of(const char *array, int64_t i, const char *member)
{
    struct nn_name name;
    snprintf(name.text, sizeof name.text, "%s[%" PRId64 "]%s%s", array, i, member ? "." : "", member ? member : "");
    return name;
}
