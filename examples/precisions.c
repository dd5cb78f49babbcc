/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the element types and int8 scores cost in accuracy, on real data.
 *
 * Runs the captured layers of all-MiniLM-L6-v2 (tests/data/minilm.safetensors)
 * in f32, bf16 and f16, with exact scores and with int8 scores, and compares
 * each with the sample's output, which was computed in double from the f32
 * tensors: so the rounding of q, k and v to the type counts as an error too.
 * Exits with 1 when a cosine similarity is below 0.9999.
 */
#include <attn/attn.h>

#include "io/array.h"
#include "io/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double least_cosine = 0.9999;

enum { Q, K, V, OUT, TENSORS };

static bool load(struct array *array, const char *path, int layer, const char *name)
{
    char spec[4096];
    snprintf(spec, sizeof spec, "%s:layer%d.%s", path, layer, name);
    if (array_load(array, spec) == ATTN_OK && array->is.dtype == ARRAY_F32 && array->is.ndim == 4)
        return true;
    fprintf(stderr, "precisions: %s cannot be used as an f32 tensor of four axes\n", spec);
    return false;
}

static attn_tensor view(void *data, attn_dtype dtype, const int64_t shape[4])
{
    attn_tensor t = attn_bhtd(data, shape[0], shape[1], shape[2], shape[3]);
    t.dtype = dtype;
    return t;
}

/*
 * Converts between element types by the library itself: with a single key the weight is 1, and the output is v, rounded
 * once to the type of out.
 */
static attn_status convert(const attn_tensor *to, const attn_tensor *from)
{
    static float zero;
    const int64_t rows = from->shape[0] * from->shape[1] * from->shape[2], d = from->shape[3];
    const attn_tensor one = {&zero, ATTN_F32, {1, rows, 1, 1}, {0, 0, 0, 1}};
    const attn_tensor src = {from->data, from->dtype, {1, rows, 1, d}, {0, d, d, 1}};
    const attn_tensor dst = {to->data, to->dtype, {1, rows, 1, d}, {rows * d, d, d, 1}};
    return attn_forward(&one, &one, &src, &dst, NULL);
}

/* q, k, v in the given type, attention, and its output in f32 again. */
static attn_status run(const struct array in[TENSORS], const int64_t *kv_len, attn_dtype dtype, attn_qk qk, float *out)
{
    attn_tensor t[TENSORS];
    attn_status status = ATTN_OK;
    for (int i = 0; i < TENSORS; i++) {
        const int64_t *shape = in[i].is.shape;
        void *data = malloc((size_t)(shape[0] * shape[1] * shape[2] * shape[3]) * sizeof(float));
        t[i] = view(data, dtype, shape);
        if (data == NULL)
            status = ATTN_OUT_OF_MEMORY;
    }
    for (int i = 0; i < OUT && status == ATTN_OK; i++) {
        const attn_tensor f32 = view(in[i].data, ATTN_F32, in[i].is.shape);
        status = convert(&t[i], &f32);
    }
    if (status == ATTN_OK) {
        attn_params params = attn_params_default();
        params.kv_len = kv_len;
        params.qk = qk;
        status = attn_forward(&t[Q], &t[K], &t[V], &t[OUT], &params);
    }
    if (status == ATTN_OK) {
        const attn_tensor f32 = view(out, ATTN_F32, in[OUT].is.shape);
        status = convert(&f32, &t[OUT]);
    }
    for (int i = 0; i < TENSORS; i++)
        free(t[i].data);
    return status;
}

struct likeness {
    double cosine;   /* of the two tensors as one vector each */
    double relative; /* root mean square of the difference, divided by that of what was expected */
    double largest;  /* difference */
};

static struct likeness compare(const float *x, const float *expected, int64_t n)
{
    double xy = 0, xx = 0, yy = 0, difference = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double a = (double)x[i], b = (double)expected[i];
        xy += a * b;
        xx += a * a;
        yy += b * b;
        difference += (a - b) * (a - b);
        largest = fmax(largest, fabs(a - b));
    }
    return (struct likeness){xy / sqrt(xx * yy), sqrt(difference / yy), largest};
}

/* One layer in all types. Returns whether all are alike enough. */
static bool run_layer(const char *path, int layer, const int64_t *kv_len)
{
    static const char *const names[TENSORS] = {"q", "k", "v", "out"};
    struct array in[TENSORS];
    memset(in, 0, sizeof in);
    bool good = true;
    for (int i = 0; i < TENSORS && good; i++)
        good = load(&in[i], path, layer, names[i]);
    const int64_t *shape = in[OUT].is.shape;
    const int64_t n = good ? shape[0] * shape[1] * shape[2] * shape[3] : 0;
    float *out = malloc((size_t)(n + 1) * sizeof *out);
    good = good && out != NULL;
    for (int i = 0; i < 6 && good; i++) {
        const attn_dtype dtype = (attn_dtype)(i % 3);
        const attn_qk qk = i < 3 ? ATTN_QK_DEFAULT : ATTN_QK_INT8;
        const attn_status status = run(in, kv_len, dtype, qk, out);
        const char *scores = qk == ATTN_QK_INT8 ? "int8" : "exact";
        if (status == ATTN_UNSUPPORTED && qk == ATTN_QK_INT8) {
            printf("layer %d  %-4s  %-5s scores: %s\n", layer, attn_dtype_name(dtype), scores, attn_last_error());
            continue;
        }
        if (status != ATTN_OK) {
            fprintf(stderr, "precisions: %s\n", attn_last_error());
            good = false;
            break;
        }
        const struct likeness is = compare(out, in[OUT].data, n);
        printf("layer %d  %-4s  %-5s scores: cosine %.7f  relative error %.1e  largest %.1e\n", layer,
               attn_dtype_name(dtype), scores, is.cosine, is.relative, is.largest);
        if (!(is.cosine >= least_cosine)) {
            fprintf(stderr, "precisions: the cosine similarity is %.7f; expected at least %.4f\n", is.cosine,
                    least_cosine);
            good = false;
        }
    }
    free(out);
    for (int i = 0; i < TENSORS; i++)
        array_free(&in[i]);
    return good;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s minilm.safetensors\n", argv[0]);
        return 2;
    }
    char spec[4096];
    struct array kv_len = {0};
    snprintf(spec, sizeof spec, "%s:kv_len", argv[1]);
    if (array_load(&kv_len, spec) != ATTN_OK || kv_len.is.dtype != ARRAY_I64) {
        fprintf(stderr, "precisions: %s cannot be read as lengths\n", spec);
        array_free(&kv_len);
        return 1;
    }
    const bool first = run_layer(argv[1], 0, kv_len.data), last = run_layer(argv[1], 5, kv_len.data);
    array_free(&kv_len);
    return first && last ? 0 : 1;
}
