/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attention of a step's queries to what is in a cache.
 *
 * A step is a ragged batch of queries over pages. Where each sequence has one
 * token it is a batch, (num, Hq, 1, d), with the same numbers at other strides,
 * whose shapes say that queries are few and how many keys they have: kernels are
 * chosen for that, and threads may share the splits of the keys.
 */
#include "cache/cache.h"

#include "api/call.h"
#include "api/check_internal.h"
#include "api/error.h"

#include <inttypes.h>
#include <stdlib.h>

int64_t attn_cache_keys(const attn_cache *cache)
{
    return cache ? cache->step.stride * cache->book.page_size : 0;
}

/** That a window is within the cache's: keys outside of that may have been handed back. */
static attn_status check_window(const struct attn_cache *cache, const attn_window *window)
{
    const attn_cache_config *c = &cache->config;
    if (!window || c->window == 0)
        return ATTN_OK;
    if (window->left > c->window)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.window->left is %" PRId64 "; expected at most %" PRId64 ", the cache's window",
                         window->left, c->window);
    if (window->first_tokens > c->first_tokens)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.window->first_tokens is %" PRId64 "; expected at most %" PRId64 ", the cache's",
                         window->first_tokens, c->first_tokens);
    if (window->num_global > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.window->num_global is %" PRId64 "; expected 0, as the cache has a window",
                         window->num_global);
    return ATTN_OK;
}

/** That options leave to the cache what is its own. */
static attn_status check_left_to_cache(const struct attn_cache *cache, const attn_params *p)
{
    const struct {
        const char *name;
        int set;
    } own[] = {{"causal", p->causal != ATTN_CAUSAL_NONE},
               {"query_offset", p->query_offset != NULL},
               {"kv_len", p->kv_len != NULL},
               {"kv_start", p->kv_start != NULL},
               {"ragged", p->ragged != NULL},
               {"block_table", p->block_table != NULL},
               {"block_table_stride", p->block_table_stride != 0},
               {"page_size", p->page_size != 0},
               {"k_scale", p->k_scale != NULL},
               {"v_scale", p->v_scale != NULL},
               {"block_mask", p->block_mask != NULL},
               {"segments", p->segments != NULL},
               {"rope", p->rope != NULL}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].set)
            return attn_fail(ATTN_INVALID_ARGUMENT, "params.%s is set; a cache says itself %s", own[i].name,
                             "where keys are and which of them a query sees by its place");
    return check_window(cache, p->window);
}

/** Whether nothing has an axis of all tokens but q, out and lse: then a ragged batch of single tokens may be a batch.
 */
static int may_be_batch(const attn_params *p)
{
    return !p->mask && !p->weights && !p->scores;
}

/** Axis 2, the tokens of a step, becomes the batch. */
static attn_tensor by_sequence(const attn_tensor *t)
{
    attn_tensor b = *t;
    b.shape[0] = t->shape[2];
    b.stride[0] = t->stride[2];
    b.shape[2] = 1;
    return b;
}

static void set_pages(const struct attn_cache *cache, int64_t layer, attn_params *params)
{
    static const int32_t nothing = 0; /* a table without entries is one, too */
    params->block_table = cache->step.stride > 0 ? cache->step.table : &nothing;
    params->block_table_stride = cache->step.stride;
    params->page_size = cache->book.page_size;
    params->kv_len = cache->step.lengths;
    params->k_scale = cache->scale_pools ? &cache->scale_pools[2 * layer] : NULL;
    params->v_scale = cache->scale_pools ? &cache->scale_pools[2 * layer + 1] : NULL;
}

/** Runs a call in the cache's memory. */
static attn_status run_call(struct attn_cache *cache, const struct attn_call *call)
{
    const size_t size = attn_call_size(call);
    if (size > cache->workspace_size) {
        void *workspace = malloc(size);
        if (!workspace)
            return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a workspace of %zu bytes", size);
        free(cache->workspace);
        cache->workspace = workspace;
        cache->workspace_size = size;
    }
    return attn_call_run(call, cache->workspace, cache->workspace_size);
}

/** The cache's own scales are not looked at. One that is NaN stands for a row of NaN, which its sequence alone sees. */
#define CHECK_STEP (CHECK_ARRAYS | CHECK_TENSORS)

attn_status attn_cache_attend(attn_cache *cache, int64_t layer, const attn_tensor *q, const attn_tensor *out,
                              const attn_params *params)
{
    attn_params p;
    struct attn_call call;
    CHECK(attn_cache_check_layer(cache, layer));
    const struct attn_cache_step *step = &cache->step;
    CHECK(attn_check_tensor("q", q, CHECK_SHAPES));
    CHECK(attn_check_axis("q", q, 2, step->tokens, "the tokens of the step"));
    CHECK(attn_take_params(&p, params));
    CHECK(check_left_to_cache(cache, &p));
    if (cache->appended[layer] != step->number && step->tokens > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "layer is %" PRId64 ", to which the step's keys have not been appended",
                         layer);
    const attn_tensor k = attn_cache_pool(cache, layer, CACHE_KEYS), v = attn_cache_pool(cache, layer, CACHE_VALUES);
    const attn_window window = {
        .left = cache->config.window, .right = ATTN_UNLIMITED, .first_tokens = cache->config.first_tokens};
    const attn_ragged ragged = {.num_sequences = step->num, .cu_seqlens_q = step->cu_seqlens};
    set_pages(cache, layer, &p);
    p.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    if (cache->config.window > 0 && !p.window)
        p.window = &window;
    p.ragged = &ragged;
    if (!step->single || !may_be_batch(&p)) {
        CHECK(attn_call_make(&call, q, &k, &v, out, &p, CHECK_STEP));
        return run_call(cache, &call);
    }
    /* The tensors are checked as what the caller sees; arrays with the batch of the same numbers. */
    CHECK(attn_call_make(&call, q, &k, &v, out, &p, CHECK_TENSORS));
    const attn_tensor q_batch = by_sequence(q), out_batch = by_sequence(out);
    attn_tensor lse;
    if (p.lse) {
        lse = by_sequence(p.lse);
        p.lse = &lse;
    }
    p.ragged = NULL;
    CHECK(attn_call_make(&call, &q_batch, &k, &v, &out_batch, &p, CHECK_STEP));
    return run_call(cache, &call);
}

attn_status attn_cache_pools(const attn_cache *cache, int64_t layer, attn_tensor *k, attn_tensor *v,
                             attn_params *params)
{
    CHECK(attn_cache_check_layer(cache, layer));
    if (!k || !v || !params)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected where to put %s",
                         !k   ? "k"
                         : !v ? "v"
                              : "params",
                         k && v ? "the block table" : "a tensor");
    if (params->struct_size < offsetof(attn_params, v_scale) + sizeof params->v_scale)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.struct_size is %zu; expected what attn_params_default() sets",
                         params->struct_size);
    *k = attn_cache_pool(cache, layer, CACHE_KEYS);
    *v = attn_cache_pool(cache, layer, CACHE_VALUES);
    set_pages(cache, layer, params);
    return ATTN_OK;
}
