/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four ways to compare a query with a key, on the same tensors:
 *
 *     scaled dot   q·k / sqrt(d)                 dot        q·k
 *     general      q·(W k)                       additive   v·tanh(W_q q + W_k k + b)
 *
 * What depends on the keys alone is projected once and could serve many calls.
 * Each result is compared with a plain loop in double, with the temperature 1
 * and with a higher one, which makes the weights more even: the program prints
 * the largest weight of the first query under both.
 */
#include "reference.h"

#include <attn/nn.h>

#include <stdlib.h>

enum { QUERIES = 5, KEYS = 40, CHANNELS = 24, ATTENTION = 20, VALUE = 16 };

static float q_data[QUERIES * CHANNELS], k_data[KEYS * CHANNELS], v_data[KEYS * VALUE];
static float w_q[ATTENTION * CHANNELS], w_k[ATTENTION * CHANNELS], bias[ATTENTION], score_vector[ATTENTION];
static float general[CHANNELS * CHANNELS];

/* Row r of a matrix times x. */
static double product(const float *matrix, int r, const float *x)
{
    double sum = 0;
    for (int c = 0; c < CHANNELS; c++)
        sum += (double)matrix[r * CHANNELS + c] * (double)x[c];
    return sum;
}

static double score_of(attn_score score, const float *q, const float *k)
{
    double sum = 0;
    if (score == ATTN_SCORE_GENERAL) {
        for (int r = 0; r < CHANNELS; r++)
            sum += (double)q[r] * product(general, r, k);
    } else if (score == ATTN_SCORE_ADDITIVE) {
        for (int r = 0; r < ATTENTION; r++)
            sum += (double)score_vector[r] * tanh(product(w_q, r, q) + product(w_k, r, k) + (double)bias[r]);
    } else {
        sum = product(q, 0, k);
    }
    return score == ATTN_SCORE_SCALED_DOT ? sum / sqrt(CHANNELS) : sum;
}

/* The plain loop. Returns the largest size of a score. */
static double expect(attn_score score, double temperature, float *weights, float *out)
{
    double size = 0;
    for (int i = 0; i < QUERIES; i++) {
        double scores[KEYS], row[VALUE] = {0}, top = -INFINITY, total = 0;
        for (int j = 0; j < KEYS; j++) {
            scores[j] = score_of(score, q_data + i * CHANNELS, k_data + j * CHANNELS) / temperature;
            top = fmax(top, scores[j]);
            size = fmax(size, fabs(scores[j]));
        }
        for (int j = 0; j < KEYS; j++)
            total += exp(scores[j] - top);
        for (int j = 0; j < KEYS; j++) {
            const double weight = exp(scores[j] - top) / total;
            weights[i * KEYS + j] = (float)weight;
            for (int c = 0; c < VALUE; c++)
                row[c] += weight * (double)v_data[j * VALUE + c];
        }
        for (int c = 0; c < VALUE; c++)
            out[i * VALUE + c] = (float)row[c];
    }
    return size;
}

/* The config of a score function: each has other weights. */
static attn_alignment_config config_of(attn_score score, float temperature)
{
    attn_alignment_config config = attn_alignment_config_default();
    config.score = score;
    config.d_query = config.d_key = CHANNELS;
    config.temperature = temperature;
    if (score == ATTN_SCORE_GENERAL)
        config.w_k = attn_matrix(general, CHANNELS, CHANNELS);
    if (score == ATTN_SCORE_ADDITIVE) {
        config.d_attention = ATTENTION;
        config.w_q = attn_matrix(w_q, ATTENTION, CHANNELS);
        config.w_k = attn_matrix(w_k, ATTENTION, CHANNELS);
        config.bias = attn_vector(bias, ATTENTION);
        config.v = attn_vector(score_vector, ATTENTION);
    }
    return config;
}

static int attend(const char *what, const attn_alignment *alignment, float *weights, float *out)
{
    static float projected_data[KEYS * CHANNELS]; /* as wide as the widest of the four */
    const attn_tensor q = attn_btc(q_data, 1, QUERIES, CHANNELS), keys = attn_btc(k_data, 1, KEYS, CHANNELS);
    const attn_tensor v = attn_btc(v_data, 1, KEYS, VALUE), o = attn_btc(out, 1, QUERIES, VALUE);
    const attn_tensor projected = attn_btc(projected_data, 1, KEYS, attn_alignment_projected(alignment));
    const attn_tensor w = attn_btc(weights, 1, QUERIES, KEYS);
    attn_params params = attn_params_default();
    params.weights = &w;
    return succeeded(what, attn_alignment_project(alignment, &keys, &projected, 0)) &&
           succeeded(what, attn_alignment_forward(alignment, &q, &projected, &v, &o, &params, NULL, 0));
}

static float largest(const float *x, int n)
{
    float most = x[0];
    for (int i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

/* One score function under one temperature; *sharpest is the largest weight of the first query. */
static int run(const char *what, attn_score score, float temperature, float *sharpest)
{
    static float weights[QUERIES * KEYS], expected_weights[QUERIES * KEYS];
    static float out[QUERIES * VALUE], expected[QUERIES * VALUE];
    const attn_alignment_config config = config_of(score, temperature);
    const double limit = allowed(expect(score, (double)temperature, expected_weights, expected));
    attn_alignment *alignment;
    if (!succeeded(what, attn_alignment_create(&alignment, &config)))
        return 0;
    const int good = attend(what, alignment, weights, out) &&
                     alike(what, weights, expected_weights, sizeof weights / sizeof *weights, limit) &&
                     alike(what, out, expected, sizeof out / sizeof *out, limit);
    attn_alignment_destroy(alignment);
    *sharpest = largest(weights, KEYS);
    return good;
}

int main(void)
{
    static const char *const names[] = {"scaled dot", "dot", "general", "additive"};
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);
    fill(w_q, sizeof w_q / sizeof *w_q, 4);
    fill(w_k, sizeof w_k / sizeof *w_k, 5);
    fill(bias, sizeof bias / sizeof *bias, 6);
    fill(score_vector, sizeof score_vector / sizeof *score_vector, 7);
    fill(general, sizeof general / sizeof *general, 8);
    for (int s = ATTN_SCORE_SCALED_DOT; s <= ATTN_SCORE_ADDITIVE; s++) {
        float at_1, at_4;
        if (!run(names[s], (attn_score)s, 1.0f, &at_1) || !run(names[s], (attn_score)s, 4.0f, &at_4))
            return EXIT_FAILURE;
        printf("    largest weight of the first query: %.4f, at temperature 4: %.4f\n", (double)at_1, (double)at_4);
        if (!(at_4 < at_1)) {
            fprintf(stderr, "%s: expected a higher temperature to make weights more even\n", names[s]);
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
}
