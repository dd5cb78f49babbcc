/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout of attention weights on real data.
 *
 * Which weights are dropped follows from a seed and from the place of a weight,
 * not from a generator that is advanced: any number of threads gives the same
 * bits, and attn_dropout_keeps() answers for a single weight. The program
 * multiplies the sample's weights, which were computed elsewhere in double, by
 * what it answers, and compares output and weights with those of a call.
 */
#include "sample.h"

#include <stdlib.h>

enum { LAYER = 5 };

static const attn_dropout dropout = {.p = 0.1f, .seed = 20240607, .offset = LAYER};

static bool forward(const struct sample *s, int threads, float *out_data, float *weights_data)
{
    attn_tensor q = attn_bhtd(s->q, s->batch, s->heads, s->tokens, s->head_dim), k = q, v = q, out = q;
    attn_tensor weights = attn_bhtd(weights_data, s->batch, s->heads, s->tokens, s->tokens);
    k.data = (void *)(uintptr_t)s->k, v.data = (void *)(uintptr_t)s->v, out.data = out_data;
    attn_params params = attn_params_default();
    params.kv_len = s->kv_len;
    params.dropout = &dropout;
    params.weights = &weights; /* as they meet v: dropped ones are 0, the others larger */
    params.num_threads = threads;
    return succeeded("dropout", attn_forward(&q, &k, &v, &out, &params));
}

/* Replaces the sample's weights by dropped ones, and sums values with them; says how many were kept. */
static void reproduce(const struct sample *s, float *out, float *weights)
{
    const double scale = 1 / (1 - (double)dropout.p);
    int64_t live = 0, kept = 0;
    for (int64_t row = 0; row < s->batch * s->heads * s->tokens; row++) {
        const int64_t b = row / s->tokens / s->heads, h = row / s->tokens % s->heads, i = row % s->tokens;
        const float *v = s->v + (b * s->heads + h) * s->tokens * s->head_dim;
        double sums[512] = {0};
        for (int64_t j = 0; j < s->tokens; j++) {
            const int keeps = attn_dropout_keeps(&dropout, b, h, i, j);
            const double weight = keeps ? (double)s->weights[row * s->tokens + j] * scale : 0;
            if (j < s->kv_len[b]) {
                live++;
                kept += keeps;
            }
            weights[row * s->tokens + j] = (float)weight;
            for (int64_t c = 0; c < s->head_dim; c++)
                sums[c] += weight * (double)v[j * s->head_dim + c];
        }
        for (int64_t c = 0; c < s->head_dim; c++)
            out[row * s->head_dim + c] = (float)sums[c];
    }
    printf("%lld of %lld weights are kept, a rate of %.4f; expected %.4f\n", (long long)kept, (long long)live,
           (double)kept / (double)live, 1 - (double)dropout.p);
}

static bool run(const struct sample *s, float *memory, size_t n, size_t num_weights)
{
    float *out = memory, *again = out + n, *expected = again + n;
    float *weights = expected + n, *weights_again = weights + num_weights,
          *weights_expected = weights_again + num_weights;
    if (!forward(s, 1, out, weights))
        return false;
    for (int threads = 2; threads <= 3; threads++) {
        if (!forward(s, threads, again, weights_again))
            return false;
        if (memcmp(out, again, n * sizeof *out) != 0 ||
            memcmp(weights, weights_again, num_weights * sizeof *weights) != 0) {
            fprintf(stderr, "dropout: %d threads give other bits than one\n", threads);
            return false;
        }
    }
    reproduce(s, expected, weights_expected);
    for (size_t i = 0; i < num_weights; i++) {
        if ((weights[i] == 0) != (weights_expected[i] == 0)) {
            fprintf(stderr, "dropout: weight %zu is %g; expected %g\n", i, (double)weights[i],
                    (double)weights_expected[i]);
            return false;
        }
    }
    return alike("weights", weights, weights_expected, num_weights, sample_limit(s)) &&
           alike("output", out, expected, n, sample_limit(s));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: dropout minilm.safetensors\n");
        return 2;
    }
    struct sample s;
    bool ok = sample_load(&s, argv[1], LAYER);
    if (ok && s.head_dim > 512) {
        fprintf(stderr, "dropout: the head size is %d; expected 512 at most\n", (int)s.head_dim);
        ok = false;
    }
    const size_t rows = ok ? (size_t)(s.batch * s.heads * s.tokens) : 0;
    const size_t n = ok ? rows * (size_t)s.head_dim : 0, num_weights = ok ? rows * (size_t)s.tokens : 0;
    float *memory = malloc((3 * (n + num_weights) + 1) * sizeof *memory);
    ok = ok && memory != NULL && run(&s, memory, n, num_weights);
    free(memory);
    sample_free(&s);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
