/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache that serves several requests at once.
 *
 * Two requests begin with the same prompt: it is read once, in two chunks, and
 * the second request is a fork of the first. While they go on token by token, a
 * third one arrives, whose prompt is a chunk of the same steps (continuous
 * batching; Yu et al. 2022, "Orca"). What each token attends to is compared with
 * the plain loop over all keys of its request.
 */
#include "reference.h"

#include <attn/cache.h>

#include <stdlib.h>
#include <string.h>

enum { HEADS = 4, KV_HEADS = 2, DIM = 32, MOST = 96, REQUESTS = 3 };

/* What a model would project from a token's state, made from the token and the request that it belongs to. */
static float q_data[MOST * HEADS * DIM], k_data[MOST * KV_HEADS * DIM], v_data[MOST * KV_HEADS * DIM];
static float out_data[MOST * HEADS * DIM];

/* Keys and values of each request, [head][token][channel], as the plain loop wants them. */
struct request {
    int64_t id;
    int tokens;
    float k[KV_HEADS * MOST * DIM], v[KV_HEADS * MOST * DIM];
};

static struct request requests[REQUESTS];

static void remember(struct request *r, int first, int num)
{
    for (int i = 0; i < num; i++, r->tokens++)
        for (int h = 0; h < KV_HEADS; h++) {
            const size_t from = (size_t)((first + i) * KV_HEADS + h) * DIM, to = (size_t)(h * MOST + r->tokens) * DIM;
            memcpy(r->k + to, k_data + from, DIM * sizeof(float));
            memcpy(r->v + to, v_data + from, DIM * sizeof(float));
        }
}

/* Whether the last num tokens of a request, rows first.. of the step, attend to what they should. */
static int compare(const struct request *r, int first, int num)
{
    static float q[HEADS * DIM], out[HEADS * DIM], k[KV_HEADS * MOST * DIM], v[KV_HEADS * MOST * DIM];
    for (int i = 0; i < num; i++) {
        const int keys = r->tokens - num + i + 1;
        for (int h = 0; h < KV_HEADS; h++) {
            memcpy(k + (size_t)(h * keys * DIM), r->k + (size_t)(h * MOST * DIM), (size_t)(keys * DIM) * sizeof(float));
            memcpy(v + (size_t)(h * keys * DIM), r->v + (size_t)(h * MOST * DIM), (size_t)(keys * DIM) * sizeof(float));
        }
        memcpy(q, q_data + (size_t)((first + i) * HEADS * DIM), sizeof q);
        memcpy(out, out_data + (size_t)((first + i) * HEADS * DIM), sizeof out);
        const struct reference reference = {
            .heads = HEADS, .kv_heads = KV_HEADS, .queries = 1, .keys = keys, .head_dim = DIM, .q = q, .k = k, .v = v};
        char what[64];
        snprintf(what, sizeof what, "request %d, token %d", (int)(r - requests), keys - 1);
        if (!agrees(what, &reference, out, NULL))
            return 0;
    }
    return 1;
}

/* A step of num requests, which get so many tokens each: all that a model would do in one layer. */
static int step(attn_cache *cache, int num, struct request *const *some, const int64_t *tokens)
{
    int64_t ids[REQUESTS], total = 0;
    for (int i = 0; i < num; i++) {
        ids[i] = some[i]->id;
        total += tokens[i];
    }
    static unsigned seed = 1;
    fill(q_data, (size_t)total * HEADS * DIM, seed++);
    fill(k_data, (size_t)total * KV_HEADS * DIM, seed++);
    fill(v_data, (size_t)total * KV_HEADS * DIM, seed++);
    const attn_tensor q = attn_bthd(q_data, 1, total, HEADS, DIM), out = attn_bthd(out_data, 1, total, HEADS, DIM);
    const attn_tensor k = attn_bthd(k_data, 1, total, KV_HEADS, DIM), v = attn_bthd(v_data, 1, total, KV_HEADS, DIM);
    if (!succeeded("step", attn_cache_step(cache, num, ids, tokens, NULL)) ||
        !succeeded("append", attn_cache_append(cache, 0, &k, &v, 0)) ||
        !succeeded("attend", attn_cache_attend(cache, 0, &q, &out, NULL)))
        return 0;
    for (int i = 0, first = 0; i < num; first += (int)tokens[i++]) {
        remember(some[i], first, (int)tokens[i]);
        if (!compare(some[i], first, (int)tokens[i]))
            return 0;
    }
    return 1;
}

static int serve(attn_cache *cache)
{
    struct request *const a = &requests[0], *const b = &requests[1], *const c = &requests[2];
    struct request *const first[] = {a}, *const both[] = {a, b}, *const all[] = {a, b, c};
    if (!succeeded("add", attn_cache_add(cache, &a->id)))
        return 0;
    /* The prompt in two chunks; then it is that of another request, too. */
    const int64_t chunk = 20;
    if (!step(cache, 1, first, &chunk) || !step(cache, 1, first, &chunk))
        return 0;
    *b = *a;
    if (!succeeded("fork", attn_cache_fork(cache, a->id, &b->id)))
        return 0;
    const int64_t ones[] = {1, 1};
    for (int i = 0; i < 3; i++)
        if (!step(cache, 2, both, ones))
            return 0;
    if (!succeeded("add", attn_cache_add(cache, &c->id)))
        return 0;
    const int64_t mixed[] = {1, 1, 25}, single[] = {1, 1, 1};
    if (!step(cache, 3, all, mixed) || !step(cache, 3, all, single))
        return 0;
    attn_cache_usage usage = attn_cache_usage_default();
    attn_cache_get_usage(cache, &usage);
    printf("%d tokens of %d requests are in %d pages of %d\n", (int)usage.tokens, (int)usage.num_sequences,
           (int)usage.pages_in_use, (int)usage.page_size);
    /* 45, 45 and 26 tokens take 3 + 3 + 2 pages, of which the first two of the prompt are shared. */
    return usage.tokens == 116 && usage.pages_in_use == 6;
}

int main(void)
{
    attn_cache_config config = attn_cache_config_default();
    config.layers = 1, config.kv_heads = KV_HEADS, config.dk = DIM;
    config.max_tokens = MOST, config.max_sequences = REQUESTS;
    config.page_size = 16, config.num_pages = 12;
    attn_cache *cache;
    if (!succeeded("create", attn_cache_create(&cache, &config)))
        return EXIT_FAILURE;
    const int served = serve(cache);
    attn_cache_destroy(cache);
    return served ? EXIT_SUCCESS : EXIT_FAILURE;
}
