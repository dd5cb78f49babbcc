/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches: their memory, and how much of it is in use.
 *
 * All pages of a layer are one tensor, (pages, heads, tokens of a page,
 * channels), keys and values apart, so that a head's rows of a page lie side by
 * side. Memory is asked for at once and never moves. What is in no page yet has
 * not been touched.
 */
#include "cache/cache.h"

#include "api/check_internal.h"
#include "api/error.h"
#include "cpu/large.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/** Bytes of a page of one layer: keys, or values with memory of their own. */
static int64_t page_bytes(const attn_cache_config *c, int values)
{
    return values && c->v_in_k ? 0 : c->kv_heads * c->page_size * attn_row_bytes(c->dtype, values ? c->dv : c->dk);
}

/** The same of their scales. */
static int64_t scale_bytes(const attn_cache_config *c, int values)
{
    if (!attn_is_quantised(c->dtype) || (values && c->v_in_k))
        return 0;
    const int64_t scales = attn_row_scales(c->dtype, values ? c->dv : c->dk);
    return c->kv_heads * c->page_size * scales * (int64_t)sizeof(float);
}

/** Keys or values of a layer, of the pages of all layers; values lie behind keys. */
static attn_tensor pool_at(const attn_cache_config *c, char *pools, int64_t layer, int values, int64_t key_bytes,
                           int64_t value_bytes, int64_t channels)
{
    char *const at = pools + c->num_pages * (layer * (key_bytes + value_bytes) + (values ? key_bytes : 0));
    return attn_bhtd(at, c->num_pages, c->kv_heads, c->page_size, channels);
}

int attn_cache_has(const struct attn_cache *cache, int part)
{
    const int scales = part >= CACHE_KEY_SCALES, values = part == CACHE_VALUES || part == CACHE_VALUE_SCALES;
    return (!scales || attn_is_quantised(cache->config.dtype)) && (!values || !cache->config.v_in_k);
}

attn_tensor attn_cache_pool(const struct attn_cache *cache, int64_t layer, int part)
{
    const attn_cache_config *c = &cache->config;
    const int values = part == CACHE_VALUES || part == CACHE_VALUE_SCALES, apart = values && !c->v_in_k;
    const int64_t channels = values ? c->dv : c->dk, kept = apart ? c->dv : c->dk; /* of a row as it lies */
    if (part >= CACHE_KEY_SCALES) {
        attn_tensor scales = pool_at(c, cache->scales, layer, apart, scale_bytes(c, 0), scale_bytes(c, 1),
                                     attn_row_scales(c->dtype, kept));
        scales.shape[3] = attn_row_scales(c->dtype, channels);
        return scales;
    }
    /* rows of whole groups */
    const int64_t width = c->dtype == ATTN_I4 ? attn_groups_of(kept) * ATTN_I4_GROUP : kept;
    attn_tensor pool = pool_at(c, cache->pools, layer, apart, page_bytes(c, 0), page_bytes(c, 1), width);
    pool.dtype = c->dtype;
    pool.shape[3] = channels;
    return pool;
}

/** Scales as tensors that calls can point to. */
static attn_status allocate_scales(struct attn_cache *cache)
{
    const attn_cache_config *c = &cache->config;
    if (!attn_is_quantised(c->dtype))
        return ATTN_OK;
    cache->scales_bytes =
        (size_t)(c->layers * c->num_pages * (scale_bytes(c, 0) + scale_bytes(c, 1))); /* at most 4 pools */
    cache->scales = attn_alloc_large(cache->scales_bytes);
    cache->scale_pools = malloc((size_t)(2 * c->layers) * sizeof *cache->scale_pools);
    if (!cache->scales || !cache->scale_pools)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for %zu bytes of scales", cache->scales_bytes);
    for (int64_t i = 0; i < 2 * c->layers; i++)
        cache->scale_pools[i] = attn_cache_pool(cache, i / 2, CACHE_KEY_SCALES + (int)(i % 2));
    return ATTN_OK;
}

static attn_status allocate_pools(struct attn_cache *cache)
{
    const attn_cache_config *c = &cache->config;
    int64_t bytes;
    if (__builtin_mul_overflow(c->kv_heads, c->page_size, &bytes) ||
        __builtin_mul_overflow(
            bytes, attn_row_bytes(c->dtype, c->dk) + (c->v_in_k ? 0 : attn_row_bytes(c->dtype, c->dv)), &bytes) ||
        __builtin_mul_overflow(bytes, c->num_pages, &bytes) || __builtin_mul_overflow(bytes, c->layers, &bytes) ||
        bytes > INT64_MAX / 16)
        return attn_fail(ATTN_SIZE_OVERFLOW,
                         "config asks for %" PRId64 " pages of %" PRId64
                         " tokens; expected a cache of fewer than 2^59 bytes",
                         c->num_pages, c->page_size);
    cache->pools_bytes = attn_aligned((size_t)bytes);
    cache->pools = attn_alloc_large(cache->pools_bytes);
    if (!cache->pools)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a cache of %" PRId64 " bytes", bytes);
    return ATTN_OK;
}

static attn_status allocate_step(struct attn_cache *cache)
{
    const size_t most = (size_t)cache->config.max_sequences;
    struct attn_cache_step *step = &cache->step;
    step->places = malloc(most * sizeof *step->places);
    step->cu_seqlens = calloc(most + 1, sizeof *step->cu_seqlens);
    step->lengths = malloc(most * sizeof *step->lengths);
    step->copies = malloc(most * sizeof *step->copies);
    step->table = malloc(most * (size_t)cache->book.max_columns * sizeof *step->table);
    cache->appended = calloc((size_t)cache->config.layers, sizeof *cache->appended);
    if (step->places && step->cu_seqlens && step->lengths && step->copies && step->table && cache->appended)
        return ATTN_OK;
    return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for steps of %" PRId64 " sequences", cache->config.max_sequences);
}

/** Takes a copy of the rotation, arrays and all. */
static attn_status copy_rope(struct attn_cache *cache)
{
    if (!cache->config.rope)
        return ATTN_OK;
    CHECK(attn_take_struct("config.rope", &cache->rope, sizeof cache->rope, ATTN_FIRST_SIZE(attn_rope_config, length),
                           cache->config.rope));
    cache->config.rope = &cache->rope;
    const size_t pairs = (size_t)cache->rope.pairs;
    if (!cache->rope.short_factor && !cache->rope.long_factor)
        return ATTN_OK;
    cache->factors = calloc(2 * pairs, sizeof *cache->factors);
    if (!cache->factors)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for the factors of %" PRId64 " pairs", cache->rope.pairs);
    const double **const arrays[] = {&cache->rope.short_factor, &cache->rope.long_factor};
    for (size_t i = 0; i < 2; i++) {
        if (!*arrays[i])
            continue;
        memcpy(cache->factors + i * pairs, *arrays[i], pairs * sizeof **arrays[i]);
        *arrays[i] = cache->factors + i * pairs;
    }
    return ATTN_OK;
}

static attn_status build(struct attn_cache *cache)
{
    const attn_cache_config *c = &cache->config;
    struct attn_book book = {.page_size = c->page_size,
                             .num_pages = c->num_pages,
                             .max_tokens = c->max_tokens,
                             .max_sequences = c->max_sequences,
                             .max_columns = (c->max_tokens + c->page_size - 1) / c->page_size,
                             .window = c->window,
                             .first_tokens = c->first_tokens};
    CHECK(copy_rope(cache));
    CHECK(allocate_pools(cache));
    CHECK(allocate_scales(cache));
    CHECK(attn_book_create(&book));
    cache->book = book;
    return allocate_step(cache);
}

attn_status attn_cache_create(attn_cache **cache, const attn_cache_config *config)
{
    attn_cache_config completed;
    if (!cache)
        return attn_fail(ATTN_INVALID_ARGUMENT, "cache is NULL; expected the address of a pointer");
    *cache = NULL;
    CHECK(attn_cache_complete(&completed, config));
    struct attn_cache *made = calloc(1, sizeof *made);
    if (!made)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a cache");
    made->config = completed;
    const attn_status status = build(made);
    if (status)
        attn_cache_destroy(made);
    else
        *cache = made;
    return status;
}

void attn_cache_destroy(attn_cache *cache)
{
    if (!cache)
        return;
    attn_book_destroy(&cache->book);
    void *const memory[] = {cache->factors,         cache->scales,        cache->scale_pools, cache->pools,
                            cache->appended,        cache->workspace,     cache->step.places, cache->step.lengths,
                            cache->step.cu_seqlens, cache->step.copies,   cache->step.table,  cache->step.slots,
                            cache->step.positions,  cache->step.rotations};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        free(memory[i]);
    free(cache);
}

attn_status attn_cache_check(const struct attn_cache *cache)
{
    return cache ? ATTN_OK : attn_fail(ATTN_INVALID_ARGUMENT, "cache is NULL; expected one of attn_cache_create()");
}

attn_status attn_cache_check_layer(const struct attn_cache *cache, int64_t layer)
{
    CHECK(attn_cache_check(cache));
    if (layer < 0 || layer >= cache->config.layers)
        return attn_fail(ATTN_INVALID_ARGUMENT, "layer is %" PRId64 "; expected 0 to %" PRId64, layer,
                         cache->config.layers - 1);
    return ATTN_OK;
}

attn_status attn_cache_get_usage(const attn_cache *cache, attn_cache_usage *usage)
{
    attn_cache_usage ours;
    CHECK(attn_cache_check(cache));
    if (!usage)
        return attn_fail(ATTN_INVALID_ARGUMENT, "usage is NULL; expected where to put it");
    const size_t size = usage->struct_size;
    CHECK(attn_take_struct("usage", &ours, sizeof ours, ATTN_FIRST_SIZE(attn_cache_usage, bytes), usage));
    const attn_cache_config *c = &cache->config;
    const struct attn_book *book = &cache->book;
    ours.num_pages = c->num_pages;
    ours.pages_in_use = c->num_pages - book->num_free;
    ours.page_size = c->page_size;
    ours.page_bytes = c->layers * (page_bytes(c, 0) + page_bytes(c, 1) + scale_bytes(c, 0) + scale_bytes(c, 1));
    ours.num_sequences = book->num_sequences;
    ours.tokens = 0;
    for (int64_t i = 0; i < c->max_sequences; i++)
        ours.tokens += book->sequences[i].there ? book->sequences[i].length : 0;
    const size_t step =
        (size_t)cache->step.room * (sizeof *cache->step.slots + sizeof *cache->step.positions +
                                    (c->rope ? 2 * (size_t)c->rope->pairs * sizeof *cache->step.rotations : 0));
    const size_t sequence = sizeof *book->sequences + sizeof *book->free_places + sizeof *cache->step.places +
                            sizeof *cache->step.cu_seqlens + sizeof *cache->step.lengths + sizeof *cache->step.copies +
                            (size_t)book->max_columns * (sizeof *book->columns + sizeof *cache->step.table);
    ours.bytes = (int64_t)(cache->pools_bytes + cache->scales_bytes + cache->workspace_size + step +
                           (size_t)c->max_sequences * sequence +
                           (size_t)c->num_pages * (sizeof *book->uses + sizeof *book->free) + sizeof *cache);
    ours.struct_size = size;
    memcpy(usage, &ours, size < sizeof ours ? size : sizeof ours);
    return ATTN_OK;
}
