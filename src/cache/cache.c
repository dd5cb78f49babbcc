/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Caches: their sizes, their memory, and the sequences in them.
 *
 * All pages of a layer are one tensor, (pages, heads, tokens of a page,
 * channels), keys and values apart, so that a head's rows of a page lie side by
 * side. Memory is asked for at once and never moves. What is in no page yet has
 * not been touched.
 */
#include "cache/cache.h"

#include "api/check_internal.h"
#include "api/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEAD_SIZE 1024

/* ------------------------------------------------------------------ config -- */

static attn_status check_range(const char *name, int64_t value, int64_t most)
{
    if (value >= 1 && value <= most)
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT, "config.%s is %" PRId64 "; expected 1 to %" PRId64, name, value, most);
}

static attn_status check_window(const attn_cache_config *c)
{
    if (c->window < 0 || c->first_tokens < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.%s is %" PRId64 "; expected 0 or more",
                         c->window < 0 ? "window" : "first_tokens", c->window < 0 ? c->window : c->first_tokens);
    if (c->first_tokens > 0 && c->window == 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.first_tokens is %" PRId64 "; expected 0 without a window",
                         c->first_tokens);
    return ATTN_OK;
}

static attn_status check_rope(const attn_cache_config *c)
{
    attn_rope_config rope;
    if (!c->rope) {
        if (c->rope_layout != ATTN_ROPE_HALF_SPLIT)
            return attn_fail(ATTN_INVALID_ARGUMENT, "config.rope_layout is %d; expected 0 without rope",
                             (int)c->rope_layout);
        return ATTN_OK;
    }
    CHECK(attn_take_struct("config.rope", &rope, sizeof rope, ATTN_FIRST_SIZE(attn_rope_config, length), c->rope));
    if (rope.pairs < 1 || rope.pairs > c->dk / 2)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.rope->pairs is %" PRId64 "; expected 1 to %" PRId64 ", half of the head size",
                         rope.pairs, c->dk / 2);
    if ((unsigned)c->rope_layout > ATTN_ROPE_INTERLEAVED)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.rope_layout is %d; expected an attn_rope_layout",
                         (int)c->rope_layout);
    return attn_rope_table(c->rope, NULL, 0, NULL); /* its other fields: a table without rows checks them */
}

/** Values that are channels of keys are not longer than these, and stay as they are. */
static attn_status check_v_in_k(const attn_cache_config *c)
{
    if (!c->v_in_k)
        return ATTN_OK;
    if (c->dv > c->dk)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.dv is %" PRId64 "; expected at most %" PRId64 ", config.dk, with v_in_k", c->dv,
                         c->dk);
    if (c->rope)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.rope is set; expected NULL with v_in_k, as it would turn %s",
                         "values, which are the first channels of keys");
    return ATTN_OK;
}

/** Fills in what is 0, and checks the rest. */
static attn_status complete(attn_cache_config *c, const attn_cache_config *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_cache_config");
    CHECK(attn_take_struct("config", c, sizeof *c, ATTN_FIRST_SIZE(attn_cache_config, v_in_k), theirs));
    c->dv = c->dv ? c->dv : c->dk;
    CHECK(check_range("layers", c->layers, INT32_MAX));
    CHECK(check_range("kv_heads", c->kv_heads, INT32_MAX));
    CHECK(check_range("dk", c->dk, MAX_HEAD_SIZE));
    CHECK(check_range("dv", c->dv, MAX_HEAD_SIZE));
    CHECK(attn_check_stored("config", c->dtype));
    CHECK(check_range("max_tokens", c->max_tokens, (int64_t)1 << 40));
    CHECK(check_range("max_sequences", c->max_sequences, INT32_MAX));
    c->page_size = c->page_size ? c->page_size : c->max_tokens;
    CHECK(check_range("page_size", c->page_size, c->max_tokens));
    const int64_t columns = (c->max_tokens + c->page_size - 1) / c->page_size;
    CHECK(attn_check_count("config.max_sequences with their pages", sizeof(int32_t), c->max_sequences, columns, 1));
    c->num_pages = c->num_pages ? c->num_pages : c->max_sequences * columns;
    CHECK(check_range("num_pages", c->num_pages, INT32_MAX));
    CHECK(check_window(c));
    CHECK(check_rope(c));
    return check_v_in_k(c);
}

/* -------------------------------------------------------------------- memory -- */

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
    cache->scales = malloc(cache->scales_bytes);
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
    cache->pools_bytes = ((size_t)bytes + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
    cache->pools = aligned_alloc(ATTN_ALIGN, cache->pools_bytes);
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
    CHECK(complete(&completed, config));
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

/* ------------------------------------------------------------------ sequences -- */

static attn_status check_cache(const struct attn_cache *cache)
{
    return cache ? ATTN_OK : attn_fail(ATTN_INVALID_ARGUMENT, "cache is NULL; expected one of attn_cache_create()");
}

attn_status attn_cache_check_layer(const struct attn_cache *cache, int64_t layer)
{
    CHECK(check_cache(cache));
    if (layer < 0 || layer >= cache->config.layers)
        return attn_fail(ATTN_INVALID_ARGUMENT, "layer is %" PRId64 "; expected 0 to %" PRId64, layer,
                         cache->config.layers - 1);
    return ATTN_OK;
}

/** The step is over: what it said of its sequences is no longer so. */
static void end_step(struct attn_cache *cache)
{
    cache->step.num = cache->step.tokens = cache->step.stride = 0;
    cache->step.number++;
}

attn_status attn_cache_add(attn_cache *cache, int64_t *id)
{
    CHECK(check_cache(cache));
    if (!id)
        return attn_fail(ATTN_INVALID_ARGUMENT, "id is NULL; expected where to put one");
    return attn_book_add(&cache->book, id); /* which no step knows of */
}

attn_status attn_cache_fork(attn_cache *cache, int64_t id, int64_t *fork)
{
    CHECK(check_cache(cache));
    if (!fork)
        return attn_fail(ATTN_INVALID_ARGUMENT, "fork is NULL; expected where to put an id");
    CHECK(attn_book_fork(&cache->book, id, fork));
    end_step(cache);
    return ATTN_OK;
}

attn_status attn_cache_truncate(attn_cache *cache, int64_t id, int64_t length)
{
    int64_t place;
    CHECK(check_cache(cache));
    CHECK(attn_book_find(&cache->book, "id", id, &place));
    CHECK(attn_book_check_length(&cache->book, place, length));
    attn_book_truncate(&cache->book, place, length);
    end_step(cache);
    return ATTN_OK;
}

/** The first token of those that are kept that does not stay where it is; num if all of them do. */
static int64_t first_moved(int64_t length, int64_t num, const int64_t *tokens)
{
    int64_t i = 0;
    while (i < num && tokens[i] == length + i)
        i++;
    return i;
}

/** Moves rows of a sequence towards its beginning. */
static void move_rows(const struct attn_cache *cache, const int32_t *pages, int64_t length, int64_t num,
                      const int64_t *tokens)
{
    const int64_t size = cache->config.page_size;
    for (int64_t layer = 0; layer < cache->config.layers; layer++)
        for (int part = 0; part < CACHE_PARTS; part++) {
            if (!attn_cache_has(cache, part))
                continue;
            const attn_tensor pool = attn_cache_pool(cache, layer, part);
            const int64_t page = attn_bytes_of(pool.dtype, pool.stride[0]);
            const int64_t head = attn_bytes_of(pool.dtype, pool.stride[1]);
            const int64_t row = attn_bytes_of(pool.dtype, pool.stride[2]);
            for (int64_t i = first_moved(length, num, tokens); i < num; i++) {
                const int64_t to = length + i, from = tokens[i];
                char *dst = (char *)pool.data + pages[to / size] * page + to % size * row;
                const char *src = (char *)pool.data + pages[from / size] * page + from % size * row;
                for (int64_t h = 0; h < pool.shape[1]; h++)
                    memcpy(dst + h * head, src + h * head, (size_t)row);
            }
        }
}

attn_status attn_cache_keep(attn_cache *cache, int64_t id, int64_t length, int64_t num, const int64_t *tokens)
{
    int64_t place;
    CHECK(check_cache(cache));
    CHECK(attn_book_find(&cache->book, "id", id, &place));
    struct attn_book *book = &cache->book;
    const int64_t all = book->sequences[place].length, released = book->sequences[place].released * book->page_size;
    if (length < 0 || length > all)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "length is %" PRId64 "; expected 0 to %" PRId64 ", the tokens there are", length, all);
    if (num < 0 || num > all - length)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "num is %" PRId64 "; expected 0 to %" PRId64 ", the tokens behind the first %" PRId64, num,
                         all - length, length);
    if (num > 0 && !tokens)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tokens is NULL; expected %" PRId64 " of them", num);
    for (int64_t i = 0; i < num; i++)
        if (tokens[i] < (i > 0 ? tokens[i - 1] + 1 : length) || tokens[i] >= all)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "tokens[%" PRId64 "] is %" PRId64 "; expected %" PRId64 " to %" PRId64 ", ascending", i,
                             tokens[i], i > 0 ? tokens[i - 1] + 1 : length, all - 1);
    const int64_t moved = first_moved(length, num, tokens);
    if (moved < num && (tokens[moved] < released || !attn_book_is_alone(book, place, length + moved, length + num)))
        return attn_fail(ATTN_UNSUPPORTED,
                         "tokens[%" PRId64 "] is %" PRId64
                         ", which would move from or to a page that the sequence does "
                         "not have alone",
                         moved, tokens[moved]);
    CHECK(attn_book_check_length(book, place, length + num));
    move_rows(cache, attn_book_columns(book, place), length, num, tokens);
    attn_book_truncate(book, place, length + num);
    end_step(cache);
    return ATTN_OK;
}

attn_status attn_cache_remove(attn_cache *cache, int64_t id)
{
    CHECK(check_cache(cache));
    CHECK(attn_book_remove(&cache->book, id));
    end_step(cache);
    return ATTN_OK;
}

int64_t attn_cache_length(const attn_cache *cache, int64_t id)
{
    int64_t place;
    if (check_cache(cache) || attn_book_find(&cache->book, "id", id, &place))
        return -1;
    return cache->book.sequences[place].length;
}

attn_status attn_cache_get_usage(const attn_cache *cache, attn_cache_usage *usage)
{
    attn_cache_usage ours;
    CHECK(check_cache(cache));
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
