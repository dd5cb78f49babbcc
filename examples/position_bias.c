/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Positions in the scores, in the four ways that need no change of q and k:
 *
 *   ALiBi     a penalty that grows with the distance (Press et al. 2022)
 *   T5        a learned bias for each bucket of distances (Raffel et al. 2020)
 *   clipped   a learned bias for each distance up to a limit (Shaw et al. 2018)
 *   DeBERTa   products of q and k with embeddings of the distance (He et al. 2021)
 *
 * Each is compared with a plain loop that computes it from its paper. No tensor
 * of biases, of the size queries × keys, exists in the calls.
 */
#include "reference.h"

#include <stdlib.h>

enum { HEADS = 8, KV_HEADS = 4, TOKENS = 210, HEAD_DIM = 16 };

static float q_data[HEADS * TOKENS * HEAD_DIM], out_data[HEADS * TOKENS * HEAD_DIM];
static float k_data[KV_HEADS * TOKENS * HEAD_DIM], v_data[KV_HEADS * TOKENS * HEAD_DIM];

/* Runs queries q, the last ones of all tokens, and compares with a plain loop. */
static int run(const char *what, int queries, const attn_params *params, reference_score *score, const void *user)
{
    attn_tensor q = attn_bhtd(q_data, 1, HEADS, queries, HEAD_DIM),
                o = attn_bhtd(out_data, 1, HEADS, queries, HEAD_DIM);
    attn_tensor k = attn_bhtd(k_data, 1, KV_HEADS, TOKENS, HEAD_DIM), v = k;
    v.data = v_data;
    const struct reference reference = {.heads = HEADS,
                                        .kv_heads = KV_HEADS,
                                        .queries = queries,
                                        .keys = TOKENS,
                                        .head_dim = HEAD_DIM,
                                        .q = q_data,
                                        .k = k_data,
                                        .v = v_data,
                                        .scale = (double)params->scale,
                                        .score = score,
                                        .user = user};
    return succeeded(what, attn_forward(&q, &k, &v, &o, params)) && agrees(what, &reference, out_data, NULL);
}

/* The slopes for eight heads; attn_alibi_slopes() makes those for any number. */
static const float slopes[HEADS] = {0x1p-1f, 0x1p-2f, 0x1p-3f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f};

static double alibi_score(const void *user, int head, int query, int key, double scaled)
{
    (void)user;
    return key > query ? -INFINITY : scaled - (double)slopes[head] * (query - key);
}

static int alibi(void)
{
    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.alibi_slopes = slopes;
    return run("ALiBi", TOKENS, &params, alibi_score, NULL);
}

/* T5's encoder: 32 buckets, 16 to each side, distances up to 128. Where the buckets of a side begin: */
enum { T5_BUCKETS = 32, T5_SIDE = 16, T5_DISTANCE = 128 };
static const int t5_first[T5_SIDE] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
static float t5_table[HEADS * T5_BUCKETS];

static double t5_score(const void *user, int head, int query, int key, double scaled)
{
    int bucket = T5_SIDE - 1;
    (void)user;
    while (abs(key - query) < t5_first[bucket])
        bucket--;
    return scaled + (double)t5_table[head * T5_BUCKETS + (key > query ? T5_SIDE : 0) + bucket];
}

static int t5(void)
{
    const attn_relative_bias bias = {ATTN_BUCKETS_T5_BIDIRECTIONAL, T5_BUCKETS, T5_DISTANCE, t5_table};
    attn_params params = attn_params_default();
    params.scale = 1; /* T5 has none: it is in the weights of its projections */
    params.relative_bias = &bias;
    fill(t5_table, sizeof t5_table / sizeof *t5_table, 4);
    return run("T5", TOKENS, &params, t5_score, NULL);
}

/* Distances beyond 5 share a bias with 5. Here the queries are the last ten tokens, as in a chunk of a prefill. */
enum { CLIP = 5, CLIP_BUCKETS = 2 * CLIP + 1, LAST = 10 };
static float clipped_table[HEADS * CLIP_BUCKETS];

static double clipped_score(const void *user, int head, int query, int key, double scaled)
{
    const int distance = key - (TOKENS - LAST + query);
    (void)user;
    return scaled + (double)clipped_table[head * CLIP_BUCKETS + CLIP +
                                          (distance < -CLIP  ? -CLIP
                                           : distance > CLIP ? CLIP
                                                             : distance)];
}

static int clipped(void)
{
    const attn_relative_bias bias = {ATTN_BUCKETS_CLIPPED, CLIP_BUCKETS, CLIP, clipped_table};
    const int64_t position[1] = {TOKENS - LAST}; /* of query 0, without causality */
    attn_params params = attn_params_default();
    params.query_offset = position;
    params.relative_bias = &bias;
    fill(clipped_table, sizeof clipped_table / sizeof *clipped_table, 5);
    return run("clipped distance", LAST, &params, clipped_score, NULL);
}

enum { SPAN = 24 };
static float rel_k_data[HEADS * 2 * SPAN * HEAD_DIM], rel_q_data[HEADS * 2 * SPAN * HEAD_DIM];

static int delta(int i, int j)
{
    return i - j <= -SPAN ? 0 : i - j >= SPAN ? 2 * SPAN - 1 : i - j + SPAN;
}

static double product(const float *x, const float *y)
{
    double sum = 0;
    for (int c = 0; c < HEAD_DIM; c++)
        sum += (double)x[c] * (double)y[c];
    return sum;
}

/* Content to content, content to position, position to content; the rows as in the code that came with the paper. */
static double deberta_score(const void *user, int head, int query, int key, double scaled)
{
    const float *q = q_data + (head * TOKENS + query) * HEAD_DIM;
    const float *k = k_data + (head / (HEADS / KV_HEADS) * TOKENS + key) * HEAD_DIM;
    const float *rel_k = rel_k_data + (head * 2 * SPAN + delta(query, key)) * HEAD_DIM;
    const float *rel_q = rel_q_data + (head * 2 * SPAN + delta(query, key)) * HEAD_DIM;
    return scaled + *(const double *)user * (product(q, rel_k) + product(k, rel_q));
}

static int deberta(void)
{
    attn_tensor rel_k = attn_bhtd(rel_k_data, 1, HEADS, 2 * SPAN, HEAD_DIM), rel_q = rel_k;
    rel_q.data = rel_q_data;
    const attn_disentangled terms = {.span = SPAN, .rel_k = &rel_k, .rel_q = &rel_q};
    attn_params params = attn_params_default();
    params.scale = (float)(1 / sqrt(3 * HEAD_DIM)); /* three products instead of one */
    params.disentangled = &terms;
    const double scale = (double)params.scale;
    fill(rel_k_data, sizeof rel_k_data / sizeof *rel_k_data, 6);
    fill(rel_q_data, sizeof rel_q_data / sizeof *rel_q_data, 7);
    return run("DeBERTa", TOKENS, &params, deberta_score, &scale);
}

int main(void)
{
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);
    return alibi() && t5() && clipped() && deberta() ? EXIT_SUCCESS : EXIT_FAILURE;
}
