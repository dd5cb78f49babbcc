/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes weights for a range of queries by handing the library only these
 * queries. Causality is then a matter of offset: row first of the whole is row 0
 * of the part, so the part's offset is the whole's plus first. The library
 * promises that a query's bits do not depend on what else is in the call, so the
 * rows are those of one big call. The values have no channels: only the softmax
 * is of interest. They have the type of the keys, as the library chooses its
 * kernels by all three types. Weights are f32, whatever the types; a file may
 * hold them in 16 bits, and its rows are widened.
 */
#include "weights.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

bool weights_from_file(struct weights *weights, const char *spec, struct io_error *error)
{
    char text[ARRAY_SHAPE_TEXT];
    *weights = (struct weights){.inputs = NULL};
    if (!array_open(&weights->file, spec, error))
        return false;
    const struct array_shape *is = &weights->file.is;
    bool is_float = is->dtype == ARRAY_F32 || is->dtype == ARRAY_F16 || is->dtype == ARRAY_BF16;
    if (!is_float || is->ndim < 2 || is->ndim > 4) {
        io_fail(error,
                "%s has dtype %s and shape %s; expected float32, float16 or bfloat16 and 2 to 4 dimensions: batch, "
                "head, query, key",
                spec, array_dtype_name(is->dtype), array_shape_text(is, text));
        array_close(&weights->file);
        return false;
    }
    weights->columns = is->shape[is->ndim - 1];
    weights->rows = is->shape[is->ndim - 2];
    weights->heads = is->ndim > 2 ? is->shape[is->ndim - 3] : 1;
    weights->batch = is->ndim > 3 ? is->shape[0] : 1;
    return true;
}

/* Positions are checked here, as the library would name them by their place in a call of one batch element. */
static bool check_positions(const char *option, const int64_t *values, int64_t batch, int64_t keys,
                            struct io_error *error)
{
    for (int64_t i = 0; values != NULL && i < batch; i++) {
        if (values[i] < 0 || values[i] > keys)
            return io_fail(error, "%s[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64 ", the number of keys",
                           option, i, values[i], keys);
    }
    return true;
}

bool weights_from_inputs(struct weights *weights, const struct inputs *inputs, struct io_error *error)
{
    const int64_t *q = inputs->q_view.shape, *k = inputs->k_view.shape;
    *weights = (struct weights){
        .file = {.fd = -1}, .inputs = inputs, .batch = q[0], .heads = q[1], .rows = q[2], .columns = k[2]};
    /* The library sees one head at a time and cannot tell. */
    if (k[0] != q[0] || k[3] != q[3])
        return io_fail(error,
                       "k has %" PRId64 " batch elements of head size %" PRId64 "; expected %" PRId64 " of %" PRId64
                       " as q has",
                       k[0], k[3], q[0], q[3]);
    if (q[1] > 0 && (k[1] == 0 || q[1] % k[1] != 0))
        return io_fail(error, "q has %" PRId64 " heads and k has %" PRId64 "; expected q's to be a multiple of k's",
                       q[1], k[1]);
    return check_positions("kv_len", inputs->kv_len, q[0], k[2], error) &&
           check_positions("kv_start", inputs->kv_start, q[0], k[2], error);
}

void weights_close(struct weights *weights)
{
    if (weights->inputs == NULL)
        array_close(&weights->file);
}

static int64_t causal_offset(const struct inputs *in, int64_t batch, int64_t rows, int64_t columns)
{
    if (in->params.causal != ATTN_CAUSAL_BOTTOM_RIGHT)
        return 0;
    return (in->kv_len != NULL ? in->kv_len[batch] : columns) - rows;
}

/* The part of a tensor that starts at one batch element, head and token. */
static attn_tensor part(const attn_tensor *whole, int64_t batch, int64_t head, int64_t token, int64_t tokens)
{
    attn_tensor t = *whole;
    size_t size = attn_dtype_size(t.dtype);
    /* Without channels there is nothing to point at. */
    if (t.shape[3] > 0)
        t.data = (char *)t.data + (size_t)(batch * t.stride[0] + head * t.stride[1] + token * t.stride[2]) * size;
    t.shape[0] = t.shape[1] = 1;
    t.shape[2] = tokens;
    return t;
}

static bool compute_rows(const struct weights *weights, int64_t batch, int64_t head, int64_t first, int64_t count,
                         float *dst, struct io_error *error)
{
    const struct inputs *in = weights->inputs;
    int64_t group = weights->heads / in->k_view.shape[1];
    float nothing = 0;
    attn_tensor q = part(&in->q_view, batch, head, first, count);
    attn_tensor k = part(&in->k_view, batch, head / group, 0, weights->columns);
    attn_tensor v = attn_bhtd(&nothing, 1, 1, weights->columns, 0);
    v.dtype = k.dtype;
    attn_tensor out = attn_bhtd(&nothing, 1, 1, count, 0);
    attn_tensor rows = attn_bhtd(dst, 1, 1, count, weights->columns);
    attn_params params = in->params;
    params.weights = &rows;
    int64_t offset = causal_offset(in, batch, weights->rows, weights->columns) + first;
    if (params.causal != ATTN_CAUSAL_NONE) {
        params.causal = ATTN_CAUSAL_OFFSET;
        params.query_offset = &offset;
    }
    params.kv_len = in->kv_len != NULL ? in->kv_len + batch : NULL;
    params.kv_start = in->kv_start != NULL ? in->kv_start + batch : NULL;
    attn_tensor mask;
    if (params.mask != NULL) {
        /* Broadcast axes have stride 0 and stay at their only element. */
        bool broadcast = in->mask_view.shape[2] == 1;
        mask = part(&in->mask_view, batch, head, first, broadcast ? 1 : count);
        params.mask = &mask;
    }
    if (attn_forward(&q, &k, &v, &out, &params) != ATTN_OK)
        return io_fail(error, "%s", attn_last_error());
    return true;
}

static float widen(uint16_t half, enum array_dtype dtype)
{
    float value;
    if (dtype == ARRAY_BF16) {
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    int exponent = half >> 10 & 31, digits = half & 1023;
    if (exponent == 31)
        value = digits != 0 ? NAN : INFINITY;
    else
        value = exponent == 0 ? ldexpf((float)digits, -24) : ldexpf((float)(digits + 1024), exponent - 25);
    return (half & 0x8000) != 0 ? -value : value;
}

bool weights_rows(const struct weights *weights, int64_t batch, int64_t head, int64_t first, int64_t count, float *dst,
                  struct io_error *error)
{
    if (weights->inputs != NULL)
        return compute_rows(weights, batch, head, first, count, dst, error);
    uint64_t row = (uint64_t)((batch * weights->heads + head) * weights->rows + first);
    enum array_dtype dtype = weights->file.is.dtype;
    size_t number = (size_t)count * (size_t)weights->columns, size = array_dtype_size(dtype);
    /* 16-bit values go to the upper half of the space, and each is read before it can be written over. */
    unsigned char *raw = (unsigned char *)dst + number * (sizeof *dst - size);
    if (!array_read(&weights->file, row * (uint64_t)weights->columns * size, raw, number * size, error))
        return false;
    for (size_t i = 0; dtype != ARRAY_F32 && i < number; i++) {
        uint16_t half;
        memcpy(&half, raw + i * size, sizeof half);
        dst[i] = widen(half, dtype);
    }
    return true;
}
