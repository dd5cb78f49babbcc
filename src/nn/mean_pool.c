/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mean pooling of hidden states, and its gradient. With the mean m of n tokens,
 * its length L and y = m / L,
 *
 *     d_hidden_t = d_out / n,    with normalise (d_out - y (y·d_out)) / (L n)
 *
 * The backward pass computes the mean again, some channels at a time, so that it
 * needs no memory: once for the length, once for the gradient.
 */
#include "nn/check.h"
#include "nn/kernels/nn_kernels.h"
#include "nn/tensor_rows.h"

#include <math.h>

/* A shorter mean counts as this long. */
#define LEAST_LENGTH 1e-12

/* Channels of a sequence that the backward pass takes at a time. */
enum { CHANNELS = 256 };

static void mean_of_rows(const attn_tensor *hidden, int64_t first, int64_t end, int normalise, float *out)
{
    const struct attn_nn_kernels *kernels = attn_nn_kernels_active();
    const int64_t channels = hidden->shape[3];
    double squares = 0;
    for (int64_t c = 0; c < channels; c++)
        out[c] = 0;
    for (int64_t t = first; t < end; t++)
        kernels->embed(&(struct nn_embed_work){
            .row = {nn_row_address(hidden, 0, t), hidden->dtype},
            .scale = 1,
            .accumulate = 1,
            .n = channels,
            .out = out,
            .out_dtype = ATTN_F32,
        });
    for (int64_t c = 0; c < channels; c++) {
        out[c] = end > first ? out[c] / (float)(end - first) : 0.0f;
        squares += (double)out[c] * (double)out[c];
    }
    const double length = sqrt(squares);
    for (int64_t c = 0; c < channels && normalise; c++)
        out[c] = (float)(out[c] / (length < LEAST_LENGTH ? LEAST_LENGTH : length)); /* a NaN stays one */
}

attn_status attn_mean_pool(const attn_tensor *hidden, int64_t num_sequences, const int64_t *offsets, int normalise,
                           const attn_tensor *out)
{
    CHECK(nn_check_length("num_sequences", num_sequences, 0));
    CHECK(nn_check_offsets("offsets", num_sequences, offsets));
    CHECK(nn_check_typed_activations("hidden", hidden, 1, offsets[num_sequences], NN_ANY));
    CHECK(nn_check_output("out", out, 1, num_sequences, hidden->shape[3]));
    CHECK(attn_check_apart("out", out, "hidden", hidden, 0));
    for (int64_t s = 0; s < num_sequences; s++)
        mean_of_rows(hidden, offsets[s], offsets[s + 1], normalise,
                     (float *)out->data + s * (num_sequences > 1 ? out->stride[2] : 0));
    return ATTN_OK;
}

/* --------------------------------------------------------------- backward -- */

/** Some channels of a sequence. */
struct part {
    int64_t first, end; /* tokens */
    int64_t channel, n;
};

/** The mean of a part. */
static void mean_of_part(const attn_tensor *hidden, const struct part *part, float *mean)
{
    const struct attn_nn_kernels *kernels = attn_nn_kernels_active();
    for (int64_t c = 0; c < part->n; c++)
        mean[c] = 0;
    for (int64_t t = part->first; t < part->end; t++)
        kernels->embed(&(struct nn_embed_work){
            .row = {(const char *)nn_row_address(hidden, 0, t) + part->channel * attn_element_size(hidden->dtype),
                    hidden->dtype},
            .scale = 1,
            .accumulate = 1,
            .n = part->n,
            .out = mean,
            .out_dtype = ATTN_F32,
        });
    for (int64_t c = 0; c < part->n; c++)
        mean[c] = mean[c] / (float)(part->end - part->first);
}

/** What d_out is multiplied by, and what of the mean is taken off. */
struct factors {
    double of_d_out, of_mean;
};

static struct factors factors_of(const attn_tensor *hidden, int64_t first, int64_t end, int64_t channels,
                                 const float *d_out)
{
    double squares = 0, product = 0;
    for (int64_t at = 0; at < channels; at += CHANNELS) {
        const struct part part = {first, end, at, channels - at < CHANNELS ? channels - at : CHANNELS};
        float mean[CHANNELS];
        mean_of_part(hidden, &part, mean);
        for (int64_t c = 0; c < part.n; c++) {
            squares += (double)mean[c] * (double)mean[c];
            product += (double)mean[c] * (double)d_out[at + c];
        }
    }
    const double length = sqrt(squares), tokens = (double)(end - first);
    if (length < LEAST_LENGTH)
        return (struct factors){1 / (LEAST_LENGTH * tokens), 0};
    return (struct factors){1 / (length * tokens), product / (squares * length * tokens)};
}

static void mean_backward(const attn_tensor *hidden, int64_t first, int64_t end, const float *d_out,
                          const attn_tensor *d_hidden)
{
    const struct attn_nn_kernels *kernels = attn_nn_kernels_active();
    const int64_t channels = d_hidden->shape[3];
    struct factors factors = {1 / (double)(end - first), 0};
    if (hidden)
        factors = factors_of(hidden, first, end, channels, d_out);
    for (int64_t at = 0; at < channels; at += CHANNELS) {
        const struct part part = {first, end, at, channels - at < CHANNELS ? channels - at : CHANNELS};
        float mean[CHANNELS] = {0};
        if (hidden)
            mean_of_part(hidden, &part, mean);
        for (int64_t c = 0; c < part.n; c++)
            mean[c] = (float)(factors.of_d_out * (double)d_out[at + c] - factors.of_mean * (double)mean[c]);
        for (int64_t t = first; t < end; t++)
            nn_copy_row(kernels, (char *)nn_row_address(d_hidden, 0, t) + at * attn_element_size(d_hidden->dtype),
                        d_hidden->dtype, mean, ATTN_F32, part.n);
    }
}

attn_status attn_mean_pool_backward(const attn_tensor *hidden, int64_t num_sequences, const int64_t *offsets,
                                    int normalise, const attn_tensor *d_out, const attn_tensor *d_hidden)
{
    CHECK(nn_check_length("num_sequences", num_sequences, 0));
    CHECK(nn_check_offsets("offsets", num_sequences, offsets));
    CHECK(nn_check_typed_output("d_hidden", d_hidden, 1, offsets[num_sequences], NN_ANY));
    CHECK(nn_check_activations("d_out", d_out, 1, num_sequences, d_hidden->shape[3]));
    CHECK(attn_check_apart("d_hidden", d_hidden, "d_out", d_out, 0));
    if (normalise) {
        CHECK(nn_check_typed_activations("hidden", hidden, 1, offsets[num_sequences], d_hidden->shape[3]));
        CHECK(attn_check_apart("d_hidden", d_hidden, "hidden", hidden, 0));
    }
    for (int64_t s = 0; s < num_sequences; s++)
        mean_backward(normalise ? hidden : NULL, offsets[s], offsets[s + 1], nn_row_address(d_out, 0, s), d_hidden);
    return ATTN_OK;
}
