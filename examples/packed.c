/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sentences of different lengths without padding.
 *
 * The sample's five sentences have 26 to 9 tokens; padded to the longest a
 * third of the batch is padding. Here they lie behind each other, in the layout
 * [token][head][channel] that a projection writes, and offsets say where each
 * begins (the cu_seqlens of FlashAttention). The result of each sentence must be
 * that of a call of its own, to the last bit, and what the sample expects.
 *
 * The same can be had without ragged by segments, numbers that say which
 * document a token belongs to. That is for documents packed into rows of equal
 * length, as in training; lengths then are no part of a shape.
 */
#include "sample.h"

#include <stdlib.h>

enum { LAYER = 0, MAX_SENTENCES = 16 };

/* Tokens from first on of an array [token][head][channel]. */
static attn_tensor tokens(const struct sample *sample, float *data, int64_t first, int64_t num)
{
    const int64_t row = sample->heads * sample->head_dim;
    return attn_bthd(data + first * row, 1, num, sample->heads, sample->head_dim);
}

/* The live tokens of all sentences behind each other; padded is [batch][head][token][channel]. */
static void pack(const struct sample *sample, const int64_t *offsets, const float *padded, float *packed)
{
    const int64_t d = sample->head_dim;
    for (int64_t b = 0; b < sample->batch; b++)
        for (int64_t t = 0; t < sample->kv_len[b]; t++)
            for (int64_t h = 0; h < sample->heads; h++)
                memcpy(packed + ((offsets[b] + t) * sample->heads + h) * d,
                       padded + ((b * sample->heads + h) * sample->tokens + t) * d, (size_t)d * sizeof *packed);
}

/* What is computed with: packed tensors, and space for results. */
struct packed {
    float *q, *k, *v, *expected, *out, *alone;
};

static bool run(const struct sample *sample, const int64_t *offsets, const struct packed *x)
{
    const int64_t total = offsets[sample->batch], row = sample->heads * sample->head_dim;
    const size_t elements = (size_t)(total * row);
    attn_tensor q = tokens(sample, x->q, 0, total), k = tokens(sample, x->k, 0, total);
    attn_tensor v = tokens(sample, x->v, 0, total), out = tokens(sample, x->out, 0, total);

    const attn_ragged ragged = {sample->batch, offsets, offsets}; /* queries and keys are the same tokens */
    attn_params params = attn_params_default();
    params.ragged = &ragged;
    if (!succeeded("ragged", attn_forward(&q, &k, &v, &out, &params)))
        return false;

    for (int64_t b = 0; b < sample->batch; b++) {
        const int64_t first = offsets[b], num = offsets[b + 1] - first;
        attn_tensor q1 = tokens(sample, x->q, first, num), k1 = tokens(sample, x->k, first, num);
        attn_tensor v1 = tokens(sample, x->v, first, num), out1 = tokens(sample, x->alone, first, num);
        if (!succeeded("one sentence", attn_forward(&q1, &k1, &v1, &out1, NULL)))
            return false;
    }
    if (memcmp(x->out, x->alone, elements * sizeof *x->out) != 0) {
        fprintf(stderr, "ragged: the bits differ from those of one call for each sentence\n");
        return false;
    }
    const double limit = sample_limit(sample);
    if (!alike("ragged, against the sample", x->out, x->expected, elements, limit))
        return false;

    int32_t sentence[512];
    for (int64_t b = 0; b < sample->batch; b++)
        for (int64_t t = offsets[b]; t < offsets[b + 1]; t++)
            sentence[t] = (int32_t)b;
    const attn_segments segments = {sentence, sentence};
    attn_params by_segments = attn_params_default();
    by_segments.segments = &segments;
    return succeeded("segments", attn_forward(&q, &k, &v, &out, &by_segments)) &&
           alike("segments, against the sample", x->out, x->expected, elements, limit);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: packed minilm.safetensors\n");
        return 2;
    }
    struct sample sample;
    int64_t offsets[MAX_SENTENCES + 1] = {0};
    bool ok = sample_load(&sample, argv[1], LAYER);
    if (ok && (sample.batch > MAX_SENTENCES || sample.batch * sample.tokens > 512)) {
        fprintf(stderr, "packed: %s is larger than the sample that this program is made for\n", argv[1]);
        ok = false;
    }
    for (int64_t b = 0; ok && b < sample.batch; b++)
        offsets[b + 1] = offsets[b] + sample.kv_len[b];
    const size_t n = ok ? (size_t)(offsets[sample.batch] * sample.heads * sample.head_dim) : 0;
    float *memory = malloc((6 * n + 1) * sizeof *memory);
    ok = ok && memory != NULL;
    if (ok) {
        const struct packed x = {memory, memory + n, memory + 2 * n, memory + 3 * n, memory + 4 * n, memory + 5 * n};
        pack(&sample, offsets, sample.q, x.q);
        pack(&sample, offsets, sample.k, x.k);
        pack(&sample, offsets, sample.v, x.v);
        pack(&sample, offsets, sample.out, x.expected);
        printf("%d sentences, %d tokens instead of %d\n", (int)sample.batch, (int)offsets[sample.batch],
               (int)(sample.batch * sample.tokens));
        ok = run(&sample, offsets, &x);
    }
    free(memory);
    sample_free(&sample);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
