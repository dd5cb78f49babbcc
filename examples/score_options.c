/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What models do to scores on their way to the softmax:
 *
 *   softcap      bounds them smoothly (Gemma 2: 50)
 *   sinks        a logit a head that takes weight and gives nothing (gpt-oss)
 *   head_scale   a temperature for each head
 *   callback     anything else; here scores fade with the time between events
 *
 * Each is compared with a plain loop. For the sinks the program also shows what
 * they do: the log-sum-exp counts them, and the other weights shrink by as much
 * as the sink takes.
 */
#include "reference.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, KV_HEADS = 2, TOKENS = 160, HEAD_DIM = 32, ELEMENTS = HEADS * TOKENS * HEAD_DIM };

static float q_data[ELEMENTS], out_data[ELEMENTS], lse_data[HEADS * TOKENS];
static float k_data[KV_HEADS * TOKENS * HEAD_DIM], v_data[KV_HEADS * TOKENS * HEAD_DIM];

/* Runs a call and compares out and log-sum-exp with a plain loop. */
static int run(const char *what, attn_params *params, reference_score *score, const void *user)
{
    attn_tensor q = attn_bhtd(q_data, 1, HEADS, TOKENS, HEAD_DIM), k = attn_bhtd(k_data, 1, KV_HEADS, TOKENS, HEAD_DIM);
    attn_tensor v = attn_bhtd(v_data, 1, KV_HEADS, TOKENS, HEAD_DIM);
    attn_tensor out = attn_bhtd(out_data, 1, HEADS, TOKENS, HEAD_DIM), lse = attn_bhtd(lse_data, 1, HEADS, TOKENS, 1);
    params->lse = &lse;
    const struct reference reference = {.heads = HEADS,
                                        .kv_heads = KV_HEADS,
                                        .queries = TOKENS,
                                        .keys = TOKENS,
                                        .head_dim = HEAD_DIM,
                                        .q = q_data,
                                        .k = k_data,
                                        .v = v_data,
                                        .scale = (double)params->scale,
                                        .score = score,
                                        .user = user,
                                        .sinks = params->sinks};
    return succeeded(what, attn_forward(&q, &k, &v, &out, params)) && agrees(what, &reference, out_data, lse_data);
}

static double capped(const void *user, int head, int query, int key, double scaled)
{
    const double cap = *(const double *)user;
    (void)head, (void)query, (void)key;
    return cap * tanh(scaled / cap);
}

static int softcap(void)
{
    const double cap = 5;
    attn_params params = attn_params_default();
    params.scale = 2; /* many scores are beyond the cap */
    params.softcap = (float)cap;
    return run("softcap", &params, capped, &cap);
}

static int sinks(void)
{
    static const float logits[HEADS] = {2, 0, -1, -INFINITY}; /* the last head has none */
    static float without[ELEMENTS], lse_without[HEADS * TOKENS];
    attn_params params = attn_params_default();
    if (!run("no sinks", &params, NULL, NULL))
        return 0;
    memcpy(without, out_data, sizeof without);
    memcpy(lse_without, lse_data, sizeof lse_without);
    params.sinks = logits;
    if (!run("sinks", &params, NULL, NULL))
        return 0;
    for (int h = 0; h < HEADS; h++) {
        const int row = h * TOKENS;
        const double taken = exp((double)logits[h] - (double)lse_data[row]);
        printf("    head %d: log-sum-exp %.4f becomes %.4f, the sink %4.1f takes %.4f of the weight\n", h,
               (double)lse_without[row], (double)lse_data[row], (double)logits[h], taken);
        for (int c = 0; c < HEAD_DIM; c++) {
            const double expected = (double)without[row * HEAD_DIM + c] * (1 - taken);
            if (!(fabs((double)out_data[row * HEAD_DIM + c] - expected) <= allowed(8))) {
                fprintf(stderr, "sinks: head %d, channel %d is %g; expected %g\n", h, c,
                        (double)out_data[row * HEAD_DIM + c], expected);
                return 0;
            }
        }
    }
    return 1;
}

static double scaled_by_head(const void *user, int head, int query, int key, double scaled)
{
    (void)query, (void)key;
    return scaled * (double)((const float *)user)[head];
}

static int head_scale(void)
{
    static const float factors[HEADS] = {0.5f, 1, 2, -1};
    attn_params params = attn_params_default();
    params.head_scale = factors;
    return run("head_scale", &params, scaled_by_head, factors);
}

/* Events at irregular times: a score loses rate for each second between two of them, and an hour hides a key. */
struct events {
    double seconds[TOKENS];
    double rate;
};

static double faded(const struct events *events, int64_t query, int64_t key, double score)
{
    const double passed = fabs(events->seconds[query] - events->seconds[key]);
    return passed > 3600 ? -INFINITY : score - events->rate * passed;
}

static double faded_score(const void *user, int head, int query, int key, double scaled)
{
    (void)head;
    return faded(user, query, key, scaled);
}

/* The callback gets a piece of the scores at a time, from any thread: it only looks at indices and values. */
static void fade(const attn_score_tile *tile, void *user)
{
    for (int64_t j = 0; j < tile->num_keys; j++) {
        float *scores = tile->scores + j * tile->key_stride;
        for (int64_t i = 0; i < tile->num_queries; i++)
            scores[i] = (float)faded(user, tile->first_query + i, tile->first_key + j, (double)scores[i]);
    }
}

static int callback(void)
{
    static struct events events = {.rate = 0.001};
    for (int i = 1; i < TOKENS; i++)
        events.seconds[i] = events.seconds[i - 1] + i * 37 % 101;
    attn_params params = attn_params_default();
    params.callback = fade;
    params.callback_user = &events;
    return run("callback", &params, faded_score, &events);
}

int main(void)
{
    fill(q_data, sizeof q_data / sizeof *q_data, 1);
    fill(k_data, sizeof k_data / sizeof *k_data, 2);
    fill(v_data, sizeof v_data / sizeof *v_data, 3);
    return softcap() && sinks() && head_scale() && callback() ? EXIT_SUCCESS : EXIT_FAILURE;
}
