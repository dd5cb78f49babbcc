/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step's keys and values on their way into the pages of a layer, and the
 * rotations that they and their queries get.
 */
#include "cache/cache.h"

#include "api/call.h"
#include "api/check_internal.h"
#include "api/environment.h"
#include "api/error.h"
#include "dispatch.h"

#include <inttypes.h>

static attn_status check_rows(const struct attn_cache *cache, const char *name, const attn_tensor *t, int64_t channels)
{
    CHECK(attn_check_tensor(name, t, CHECK_ALL));
    CHECK(attn_check_float(name, t->dtype));
    CHECK(attn_check_contiguous(name, t));
    CHECK(attn_check_axis(name, t, 0, 1, "as sequences follow each other"));
    CHECK(attn_check_axis(name, t, 1, cache->config.kv_heads, "config.kv_heads"));
    CHECK(attn_check_axis(name, t, 2, cache->step.tokens, "the tokens of the step"));
    return attn_check_axis(name, t, 3, channels, "the head size of the cache");
}

/** What a layer gets of a side, keys or values, from x. */
static struct attn_store_work store_of(const struct attn_cache *cache, int64_t layer, int values, const attn_tensor *x)
{
    struct attn_store_work work = {
        .x = *x,
        .rotations = {.dtype = ATTN_F32},
        .pool = attn_cache_pool(cache, layer, values ? CACHE_VALUES : CACHE_KEYS),
        .scales = {.dtype = ATTN_F32},
        .slots = cache->step.slots,
        .layout = cache->config.rope_layout,
    };
    if (attn_is_quantised(cache->config.dtype))
        work.scales = attn_cache_pool(cache, layer, values ? CACHE_VALUE_SCALES : CACHE_KEY_SCALES);
    return work;
}

/** That what is written lies on neither of the inputs; v may be none. */
static attn_status check_cache_apart(const struct attn_store_work *work, const attn_tensor *k, const attn_tensor *v)
{
    const attn_tensor *const written[] = {&work->pool, &work->scales};
    for (int i = 0; i < (attn_is_quantised(work->pool.dtype) ? 2 : 1); i++) {
        CHECK(attn_check_apart("the cache", written[i], "k", k, 0));
        if (v)
            CHECK(attn_check_apart("the cache", written[i], "v", v, 0));
    }
    return ATTN_OK;
}

attn_status attn_cache_append(attn_cache *cache, int64_t layer, const attn_tensor *k, const attn_tensor *v,
                              int num_threads)
{
    CHECK(attn_cache_check_layer(cache, layer));
    CHECK(check_rows(cache, "k", k, cache->config.dk));
    if (!cache->config.v_in_k)
        CHECK(check_rows(cache, "v", v, cache->config.dv));
    else if (v)
        return attn_fail(ATTN_INVALID_ARGUMENT, "v is set; expected NULL, as config.v_in_k has values in keys");
    if (num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num_threads is %d; expected 0 or more", num_threads);
    if (cache->appended[layer] == cache->step.number && cache->step.num > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "layer is %" PRId64 ", which has the keys of this step already", layer);
    struct attn_store_work keys = store_of(cache, layer, 0, k), values = {.x = {.dtype = ATTN_F32}};
    CHECK(attn_cache_rotations(cache, &keys.rotations));
    CHECK(check_cache_apart(&keys, k, v));
    if (v) {
        values = store_of(cache, layer, 1, v);
        CHECK(check_cache_apart(&values, k, v));
    }
    const struct attn_kernels kernels = attn_kernels_plain(attn_environment()->max_isa);
    const int threads = num_threads ? num_threads : attn_default_num_threads();
    attn_run_store(&kernels, &keys, threads);
    if (v)
        attn_run_store(&kernels, &values, threads);
    cache->appended[layer] = cache->step.number;
    return ATTN_OK;
}

const int64_t *attn_cache_positions(const attn_cache *cache, int64_t *num)
{
    const int64_t tokens = cache && cache->step.num ? cache->step.tokens : 0;
    if (num)
        *num = tokens;
    return tokens ? cache->step.positions : NULL;
}

const int64_t *attn_cache_offsets(const attn_cache *cache, int64_t *num)
{
    const int64_t sequences = cache ? cache->step.num : 0;
    if (num)
        *num = sequences;
    return sequences ? cache->step.cu_seqlens : NULL;
}

attn_status attn_cache_rotations(const attn_cache *cache, attn_tensor *rotations)
{
    if (!cache || !rotations)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %s", cache ? "rotations" : "cache",
                         cache ? "where to put a tensor" : "one of attn_cache_create()");
    const int64_t pairs = cache->config.rope ? cache->config.rope->pairs : 0;
    *rotations = attn_bhtd(cache->step.rotations, 1, 1, cache->step.tokens, 2 * pairs);
    return ATTN_OK;
}

attn_status attn_cache_rotate(const attn_cache *cache, const attn_tensor *q, const attn_tensor *out, int num_threads)
{
    attn_tensor rotations;
    CHECK(attn_cache_rotations(cache, &rotations));
    CHECK(attn_check_tensor("q", q, CHECK_ALL));
    CHECK(attn_check_axis("q", q, 0, 1, "as sequences follow each other"));
    CHECK(attn_check_axis("q", q, 2, cache->step.tokens, "the tokens of the step"));
    CHECK(attn_check_axis("q", q, 3, cache->config.dk, "the head size of the cache"));
    return attn_rope(q, &rotations, cache->config.rope_layout, out, num_threads);
}
