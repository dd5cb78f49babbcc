/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-head attention with its projections, from weights as PyTorch's
 * nn.MultiheadAttention keeps them: self-attention under causality, the weights
 * on request, and the same a token at a time with a cache of keys and values.
 */
#include <attn/nn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 6, D = 24, HEADS = 4, KV_HEADS = 2, HEAD_DIM = D / HEADS, KV_WIDTH = KV_HEADS * 2 * HEAD_DIM };

/** A number that looks random, in (-0.5, 0.5); the same in every run. */
static float number(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 16777216.0f - 0.5f;
}

static void check(attn_status status, const char *call)
{
    if (status != ATTN_OK) {
        fprintf(stderr, "%s: %s\n", call, attn_last_error());
        exit(1);
    }
}

/** out[n] = row x times the matrix w[n][d]. */
static void project(double *out, const float *x, const float *w, int n)
{
    for (int i = 0; i < n; i++) {
        out[i] = 0;
        for (int c = 0; c < D; c++)
            out[i] += (double)x[c] * (double)w[i * D + c];
    }
}

/** The last token's output, written out: what all other keys are to it. */
static void last_token(double out[D], const float *x, const float *w_q, const float *w_k, const float *w_v,
                       const float *w_o)
{
    double q[D], k[T][KV_HEADS * HEAD_DIM], v[T][KV_HEADS * HEAD_DIM], heads[D];
    project(q, x + (T - 1) * D, w_q, D);
    for (int t = 0; t < T; t++) {
        project(k[t], x + t * D, w_k, KV_HEADS * HEAD_DIM);
        project(v[t], x + t * D, w_v, KV_HEADS * HEAD_DIM);
    }
    for (int h = 0; h < HEADS; h++) {
        const int g = h / (HEADS / KV_HEADS) * HEAD_DIM;
        double p[T], sum = 0;
        for (int t = 0; t < T; t++) {
            double score = 0;
            for (int c = 0; c < HEAD_DIM; c++)
                score += q[h * HEAD_DIM + c] * k[t][g + c];
            sum += p[t] = exp(score / sqrt(HEAD_DIM));
        }
        for (int c = 0; c < HEAD_DIM; c++) {
            heads[h * HEAD_DIM + c] = 0;
            for (int t = 0; t < T; t++)
                heads[h * HEAD_DIM + c] += p[t] / sum * v[t][g + c];
        }
    }
    for (int i = 0; i < D; i++) {
        out[i] = 0;
        for (int c = 0; c < D; c++)
            out[i] += heads[c] * (double)w_o[i * D + c];
    }
}

int main(void)
{
    float x[T * D], w_q[D * D], w_k[KV_HEADS * HEAD_DIM * D], w_v[KV_HEADS * HEAD_DIM * D], w_o[D * D];
    unsigned state = 1;
    for (int i = 0; i < T * D; i++)
        x[i] = number(&state);
    for (int i = 0; i < D * D; i++) {
        w_q[i] = number(&state);
        w_o[i] = number(&state);
    }
    for (int i = 0; i < KV_HEADS * HEAD_DIM * D; i++) {
        w_k[i] = number(&state);
        w_v[i] = number(&state);
    }

    attn_mha_config config = attn_mha_config_default();
    config.d_model = D;
    config.heads = HEADS;
    config.kv_heads = KV_HEADS; /* grouped-query attention */
    attn_mha_weights weights = attn_mha_weights_default();
    weights.w_q = attn_matrix(w_q, D, D); /* no biases: their data stays NULL */
    weights.w_k = attn_matrix(w_k, KV_HEADS * HEAD_DIM, D);
    weights.w_v = attn_matrix(w_v, KV_HEADS * HEAD_DIM, D);
    weights.w_o = attn_matrix(w_o, D, D);
    attn_mha *mha;
    check(attn_mha_create(&mha, &config, &weights), "attn_mha_create");

    /* All tokens at once. */
    float out_data[T * D], seen_data[HEADS * T * T];
    attn_tensor tokens = attn_btc(x, 1, T, D), out = attn_btc(out_data, 1, T, D);
    attn_tensor seen = attn_bhtd(seen_data, 1, HEADS, T, T);
    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    params.weights = &seen;
    check(attn_mha_forward(mha, &tokens, NULL, &out, &params, NULL, 0), "attn_mha_forward");
    params.weights = NULL;

    /* A token at a time: its keys and values join those that are there. */
    float cache[T * KV_WIDTH], step_data[T * D];
    for (int t = 0; t < T; t++) {
        attn_tensor token = attn_btc(x + t * D, 1, 1, D), added = attn_btc(cache + t * KV_WIDTH, 1, 1, KV_WIDTH);
        attn_tensor so_far = attn_btc(cache, 1, t + 1, KV_WIDTH), step = attn_btc(step_data + t * D, 1, 1, D);
        check(attn_mha_project_kv(mha, &token, &added, 0), "attn_mha_project_kv");
        check(attn_mha_attend(mha, &token, &so_far, &step, &params, NULL, 0), "attn_mha_attend");
    }
    attn_mha_destroy(mha);

    printf("what the last token of head 0 attends to:");
    for (int t = 0; t < T; t++)
        printf(" %.3f", (double)seen_data[(T - 1) * T + t]);
    printf("\n");

    int wrong = 0;
    double expected[D];
    last_token(expected, x, w_q, w_k, w_v, w_o);
    for (int i = 0; i < D; i++)
        wrong += !(fabs(expected[i] - (double)out_data[(T - 1) * D + i]) < 1e-5);
    for (int i = 0; i < T * D; i++)
        wrong += out_data[i] != step_data[i]; /* the same bits */
    if (wrong)
        fprintf(stderr, "%d numbers differ from what they should be\n", wrong);
    return wrong != 0;
}
