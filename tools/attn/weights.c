/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes weights for a range of queries by handing the library only these
 * queries, in as many parts as it takes. The library promises that a query's
 * bits do not depend on what else is in the call, so the rows are those of one
 * big call. The values have no channels: only the softmax is of interest. They
 * have the type of the keys, as the library chooses its kernels by all three
 * types. Weights are f32, whatever the types; a file may hold them in 16 bits,
 * and its rows are widened.
 */
#include "weights.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "part.h"

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

/* Lengths are checked here, as the library would name them by their place in a call of one batch element. */
static bool check_lengths(const char *option, const int64_t *values, const struct inputs *in, struct io_error *error)
{
    int64_t sequences = forms_sequences(&in->forms, in->q_view.shape[0]);
    for (int64_t i = 0; values != NULL && i < sequences; i++) {
        int64_t keys = forms_sequence(&in->params, &in->q_view, &in->k_view, i).keys;
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
    return check_lengths("kv_len", inputs->kv_len, inputs, error) &&
           check_lengths("kv_start", inputs->kv_start, inputs, error);
}

void weights_close(struct weights *weights)
{
    if (weights->inputs == NULL)
        array_close(&weights->file);
}

/* Rows of one part of a call, at dst; the other keys of a ragged batch get 0. */
static bool compute_part(const struct part *part, int64_t rows, int64_t columns, float *dst, struct io_error *error)
{
    float nothing = 0;
    attn_tensor v = attn_bhtd(&nothing, 1, 1, columns, 0);
    v.dtype = part->k.dtype;
    attn_tensor out = attn_bhtd(&nothing, 1, 1, rows, 0);
    attn_tensor weights = attn_bhtd(dst, 1, 1, rows, columns);
    attn_params params = part->params;
    params.weights = &weights;
    if (attn_forward(&part->q, &part->k, &v, &out, &params) != ATTN_OK)
        return io_fail(error, "%s", attn_last_error());
    return true;
}

static bool compute_rows(const struct weights *weights, int64_t batch, int64_t head, int64_t first, int64_t count,
                         float *dst, struct io_error *error)
{
    bool ok = true;
    for (int64_t n; ok && count > 0; first += n, count -= n, dst += n * weights->columns) {
        struct part part;
        n = part_limit(weights->inputs, first, count);
        if (n == 0) {
            /* Behind the last sequence. */
            memset(dst, 0, (size_t)count * (size_t)weights->columns * sizeof *dst);
            break;
        }
        ok = part_create(&part, weights->inputs, batch, head, first, n, error) &&
             compute_part(&part, n, weights->columns, dst, error);
        part_free(&part);
    }
    return ok;
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
