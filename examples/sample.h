/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer of the real sample, tests/data/minilm.safetensors: five sentences,
 * padded to the longest, as all-MiniLM-L6-v2 sees them, and what a computation
 * in double makes of them.
 */
#ifndef EXAMPLES_SAMPLE_H
#define EXAMPLES_SAMPLE_H

#include <attn/attn.h>

#include "io/array.h"
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum sample_tensor {
    SAMPLE_Q,
    SAMPLE_K,
    SAMPLE_V,
    SAMPLE_OUT,
    SAMPLE_WEIGHTS,
    SAMPLE_LSE,
    SAMPLE_KV_LEN,
    SAMPLE_TENSORS
};

struct sample {
    struct array tensors[SAMPLE_TENSORS];
    int64_t batch, heads, tokens, head_dim;
    const float *q, *k, *v, *out; /* [batch][head][token][channel] */
    const float *weights;         /* [batch][head][query][key] */
    const float *lse;             /* [batch][head][query] */
    const int64_t *kv_len;        /* tokens of each sentence */
};

static inline void sample_free(struct sample *sample)
{
    for (int i = 0; i < SAMPLE_TENSORS; i++)
        array_free(&sample->tensors[i]);
}

/* Loads a layer; false after a sentence. sample_free() is due in either case. */
static inline bool sample_load(struct sample *sample, const char *path, int layer)
{
    static const char *const names[SAMPLE_TENSORS] = {"q", "k", "v", "out", "weights", "lse", "kv_len"};
    memset(sample, 0, sizeof *sample);
    for (int i = 0; i < SAMPLE_TENSORS; i++) {
        struct array *array = &sample->tensors[i];
        char spec[4096];
        if (i == SAMPLE_KV_LEN)
            snprintf(spec, sizeof spec, "%s:%s", path, names[i]);
        else
            snprintf(spec, sizeof spec, "%s:layer%d.%s", path, layer, names[i]);
        if (array_load(array, spec) != ATTN_OK) {
            fprintf(stderr, "%s\n", attn_last_error());
            return false;
        }
        const int64_t *q = sample->tensors[SAMPLE_Q].is.shape, square[4] = {q[0], q[1], q[2], q[2]};
        const int64_t *shape = i == SAMPLE_WEIGHTS ? square : q;
        const int ndim = i == SAMPLE_KV_LEN ? 1 : i == SAMPLE_LSE ? 3 : 4;
        if (array->is.dtype != (i == SAMPLE_KV_LEN ? ARRAY_I64 : ARRAY_F32) || array->is.ndim != ndim ||
            memcmp(array->is.shape, shape, (size_t)ndim * sizeof *shape) != 0) {
            char text[ARRAY_SHAPE_TEXT];
            fprintf(stderr, "%s is %s of shape %s, which does not fit the other tensors\n", spec,
                    array_dtype_name(array->is.dtype), array_shape_text(&array->is, text));
            return false;
        }
    }
    const int64_t *shape = sample->tensors[SAMPLE_Q].is.shape;
    sample->batch = shape[0], sample->heads = shape[1], sample->tokens = shape[2], sample->head_dim = shape[3];
    sample->q = sample->tensors[SAMPLE_Q].data;
    sample->k = sample->tensors[SAMPLE_K].data;
    sample->v = sample->tensors[SAMPLE_V].data;
    sample->out = sample->tensors[SAMPLE_OUT].data;
    sample->weights = sample->tensors[SAMPLE_WEIGHTS].data;
    sample->lse = sample->tensors[SAMPLE_LSE].data;
    sample->kv_len = sample->tensors[SAMPLE_KV_LEN].data;
    return true;
}

static inline double sample_largest(const float *x, int64_t n)
{
    float largest = 1; /* not fmax() of doubles: gcc 12 for AArch64 fails to compile that loop */
    for (int64_t i = 0; i < n; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    return (double)largest;
}

/* By how much f32 may differ from double: allowed() for scores of the size of the log-sum-exp, times the size of v. */
static inline double sample_limit(const struct sample *sample)
{
    const int64_t rows = sample->batch * sample->heads * sample->tokens;
    return allowed(sample_largest(sample->lse, rows)) * sample_largest(sample->v, rows * sample->head_dim);
}

#endif
