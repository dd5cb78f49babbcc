/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of a trained encoder, compared with what it should be.
 *
 * tests/data/minilm.safetensors holds query, key and value of some layers of
 * all-MiniLM-L6-v2 on a padded batch of English sentences, and the output, the
 * weights and the log-sum-exp that a computation in double gives for them. The
 * program runs every captured layer and compares all three.
 *
 * The tolerance follows from f32 itself: a score of magnitude s carries an
 * error of some units of 2^-24·s, however the sum is ordered, and a weight's
 * relative error is its score's absolute error. The largest |log-sum-exp| of
 * the layer stands for s, 8 units are allowed, and an output, being a mean of
 * values under these weights, may be off by that times the largest value.
 */
#include <attn/attn.h>

#include "io/array.h"
#include "io/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 6 };
static const char *const tensor_names[TENSORS] = {"q", "k", "v", "out", "weights", "lse"};
enum { Q, K, V, OUT, WEIGHTS, LSE };

/* Loads FILE:NAME and holds it against the dtype and, where shape is not NULL, the lengths it must have. */
static bool load(struct array *array, const char *path, const char *name, enum array_dtype dtype, const int64_t *shape,
                 int ndim)
{
    char spec[4096], text[ARRAY_SHAPE_TEXT];
    snprintf(spec, sizeof spec, "%s:%s", path, name);
    if (array_load(array, spec) != ATTN_OK) {
        fprintf(stderr, "minilm_sample: %s\n", attn_last_error());
        return false;
    }
    bool fits = array->is.dtype == dtype;
    if (shape != NULL) {
        fits = fits && array->is.ndim == ndim && memcmp(array->is.shape, shape, (size_t)ndim * sizeof *shape) == 0;
    }
    if (!fits) {
        fprintf(stderr, "minilm_sample: %s is %s of shape %s; expected %s that fits the other tensors\n", spec,
                array_dtype_name(array->is.dtype), array_shape_text(&array->is, text), array_dtype_name(dtype));
    }
    return fits;
}

static attn_tensor view(void *data, const int64_t shape[4])
{
    return attn_bhtd(data, shape[0], shape[1], shape[2], shape[3]);
}

static size_t elements(const int64_t shape[4])
{
    return (size_t)(shape[0] * shape[1] * shape[2] * shape[3]);
}

static double largest(const float *x, size_t n)
{
    double max = 0;
    for (size_t i = 0; i < n; i++) {
        max = fmax(max, fabs((double)x[i]));
    }
    return max;
}

/* Written so that a NaN in either array is an infinite difference. */
static double largest_difference(const float *x, const float *expected, size_t n)
{
    double max = 0;
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)x[i] - (double)expected[i]);
        if (!(difference <= max)) {
            max = isnan(difference) ? INFINITY : difference;
        }
    }
    return max;
}

/* Runs one layer and compares; false after a sentence on a mismatch. */
static bool run_layer(int layer, const struct array expected[TENSORS], const int64_t *kv_len)
{
    const int64_t *shape[TENSORS];
    float *results[TENSORS] = {0};
    for (int i = 0; i < TENSORS; i++) {
        shape[i] = expected[i].is.shape;
    }
    const int64_t column[4] = {shape[Q][0], shape[Q][1], shape[Q][2], 1};
    shape[LSE] = column;
    bool ok = false;
    for (int i = OUT; i <= LSE; i++) {
        results[i] = calloc(elements(shape[i]), sizeof(float));
        if (results[i] == NULL) {
            fprintf(stderr, "minilm_sample: no memory for %zu elements\n", elements(shape[i]));
            goto done;
        }
    }
    attn_tensor q = view(expected[Q].data, shape[Q]), k = view(expected[K].data, shape[K]);
    attn_tensor v = view(expected[V].data, shape[V]), out = view(results[OUT], shape[OUT]);
    attn_tensor weights = view(results[WEIGHTS], shape[WEIGHTS]), lse = view(results[LSE], shape[LSE]);
    attn_params params = attn_params_default();
    params.kv_len = kv_len;
    params.weights = &weights;
    params.lse = &lse;
    if (attn_forward(&q, &k, &v, &out, &params) != ATTN_OK) {
        fprintf(stderr, "minilm_sample: layer %d: %s\n", layer, attn_last_error());
        goto done;
    }

    double unit = 8 * ldexp(1, -24) * fmax(1, largest(expected[LSE].data, elements(shape[LSE])));
    double limits[TENSORS] = {
        [WEIGHTS] = unit, [LSE] = unit, [OUT] = unit * fmax(1, largest(expected[V].data, elements(shape[V])))};
    ok = true;
    printf("layer %d:", layer);
    for (int i = OUT; i <= LSE; i++) {
        double difference = largest_difference(results[i], expected[i].data, elements(shape[i]));
        bool within = difference <= limits[i];
        printf(" %s %.2e (limit %.2e)%s%s", tensor_names[i], difference, limits[i], within ? "" : " MISMATCH",
               i < LSE ? "," : "\n");
        ok = ok && within;
    }
done:
    for (int i = 0; i < TENSORS; i++) {
        free(results[i]);
    }
    return ok;
}

/* Loads the tensors of one layer, whose shapes must fit together, and runs it. */
static bool check_layer(const char *path, int layer, const struct array *kv_len)
{
    struct array tensors[TENSORS];
    memset(tensors, 0, sizeof tensors);
    bool ok = true;
    for (int i = 0; i < TENSORS && ok; i++) {
        char name[64];
        const int64_t *q = tensors[Q].is.shape;
        const int64_t square[4] = {q[0], q[1], q[2], q[2]};
        snprintf(name, sizeof name, "layer%d.%s", layer, tensor_names[i]);
        /* The log-sum-exp lacks the last axis. */
        ok = load(&tensors[i], path, name, ARRAY_F32, i == Q ? NULL : i == WEIGHTS ? square : q, i == LSE ? 3 : 4);
    }
    if (ok && (tensors[Q].is.ndim != 4 || kv_len->is.ndim != 1 || kv_len->is.shape[0] != tensors[Q].is.shape[0])) {
        fprintf(stderr,
                "minilm_sample: %s: layer%d.q has %d axes and kv_len %d; expected 4 and one of the batch size\n", path,
                layer, tensors[Q].is.ndim, kv_len->is.ndim);
        ok = false;
    }
    ok = ok && run_layer(layer, tensors, kv_len->data);
    for (int i = 0; i < TENSORS; i++) {
        array_free(&tensors[i]);
    }
    return ok;
}

/* The whole of a file; NULL after a sentence. */
static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *content = NULL;
    long end = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) >= 0) {
        rewind(file);
        content = malloc((size_t)end + 1);
        if (content != NULL && fread(content, 1, (size_t)end, file) != (size_t)end) {
            free(content);
            content = NULL;
        }
    }
    if (content == NULL) {
        fprintf(stderr, "minilm_sample: %s cannot be read\n", path);
    }
    if (file != NULL) {
        fclose(file);
    }
    *size = content != NULL ? (size_t)end : 0;
    return content;
}

/* Finds which layers the file holds by their q, and checks each. Returns how many, or -1. */
static int check_layers(const char *path, const struct safetensors *index, const struct array *kv_len)
{
    int layers = 0;
    bool ok = true;
    for (size_t i = 0; i < index->count; i++) {
        int layer, end = 0;
        if (sscanf(index->entries[i].name, "layer%d.q%n", &layer, &end) == 1 && end > 0 &&
            index->entries[i].name[end] == '\0') {
            layers++;
            ok = check_layer(path, layer, kv_len) && ok;
        }
    }
    return ok ? layers : -1;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: minilm_sample FILE.safetensors\n");
        return 2;
    }
    struct safetensors index;
    size_t size, length;
    char *content = read_file(argv[1], &size);
    if (content == NULL) {
        return EXIT_FAILURE;
    }
    if (safetensors_header_length(&length, (const unsigned char *)content, size, argv[1]) != ATTN_OK ||
        safetensors_parse(&index, content + SAFETENSORS_PREFIX, length, size - SAFETENSORS_PREFIX - length, argv[1]) !=
            ATTN_OK) {
        fprintf(stderr, "minilm_sample: %s\n", attn_last_error());
        free(content);
        return EXIT_FAILURE;
    }
    free(content);

    struct array kv_len = {0};
    int layers = load(&kv_len, argv[1], "kv_len", ARRAY_I64, NULL, 0) ? check_layers(argv[1], &index, &kv_len) : -1;
    array_free(&kv_len);
    safetensors_free(&index);
    if (layers == 0) {
        fprintf(stderr, "minilm_sample: %s holds no tensor layerN.q\n", argv[1]);
    }
    if (layers <= 0) {
        return EXIT_FAILURE;
    }
    printf("%d layers agree with the computation in double (%s kernels)\n", layers, attn_isa_active());
    return EXIT_SUCCESS;
}
