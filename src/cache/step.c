/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of a cache: where new tokens go, their keys and values in each layer,
 * and the attention of their queries.
 *
 * A step is a ragged batch of queries over pages. Where each sequence has one
 * token it is a batch, (num, Hq, 1, d), with the same numbers at other strides,
 * whose shapes say that queries are few and how many keys they have: kernels are
 * chosen for that, and threads may share the splits of the keys.
 */
#include "cache/cache.h"

#include "api/call.h"
#include "api/check_internal.h"
#include "api/environment.h"
#include "api/error.h"
#include "dispatch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- beginning -- */

/** Finds the sequences of a step, and what they get. Writes places and nothing else. */
static attn_status find_sequences(struct attn_cache *cache, int64_t num, const int64_t *ids, const int64_t *tokens,
                                  int64_t *total)
{
    const struct attn_book *book = &cache->book;
    *total = 0;
    if (num < 0 || num > book->max_sequences)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num is %" PRId64 "; expected 0 to %" PRId64 ", config.max_sequences",
                         num, book->max_sequences);
    if (num > 0 && (!ids || !tokens))
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected %" PRId64 " numbers", ids ? "tokens" : "ids",
                         num);
    for (int64_t i = 0; i < num; i++) {
        char name[40];
        snprintf(name, sizeof name, "ids[%" PRId64 "]", i);
        int64_t place;
        CHECK(attn_book_find(book, name, ids[i], &place));
        const int64_t room = book->max_tokens - book->sequences[place].length;
        if (tokens[i] < 0 || tokens[i] > room)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "tokens[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64 ": sequence %" PRId64
                             " has %" PRId64 " of config.max_tokens, %" PRId64,
                             i, tokens[i], room, ids[i], book->sequences[place].length, book->max_tokens);
        *total += tokens[i]; /* at most 2^31 sequences of 2^40 tokens: below 2^63, and pages end it before */
    }
    return ATTN_OK;
}

/** That no sequence comes twice: marks them as they come. */
static attn_status check_all_different(struct attn_cache *cache, int64_t num, const int64_t *ids)
{
    struct attn_cached_sequence *sequences = cache->book.sequences;
    int64_t twice = -1;
    for (int64_t i = 0; i < num; i++)
        sequences[ids[i] % cache->book.max_sequences].copies = 0;
    for (int64_t i = 0; i < num; i++)
        if (sequences[ids[i] % cache->book.max_sequences].copies++ && twice < 0)
            twice = i;
    if (twice < 0)
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT,
                     "ids[%" PRId64 "] is %" PRId64 " again; expected sequences that are all different", twice,
                     ids[twice]);
}

/** Memory for what is kept of each token of a step. */
static attn_status make_room(struct attn_cache *cache, int64_t tokens)
{
    struct attn_cache_step *step = &cache->step;
    if (tokens <= step->room)
        return ATTN_OK;
    const int64_t width = cache->config.rope ? 2 * cache->config.rope->pairs : 0;
    CHECK(attn_check_count("tokens", sizeof(float), tokens, width > 2 ? width : 2, 1));
    int64_t *slots = malloc((size_t)tokens * sizeof *slots), *positions = malloc((size_t)tokens * sizeof *positions);
    float *rotations = width ? malloc((size_t)(tokens * width) * sizeof *rotations) : NULL;
    if (!slots || !positions || (width && !rotations)) {
        free(slots);
        free(positions);
        free(rotations);
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a step of %" PRId64 " tokens", tokens);
    }
    if (step->tokens > 0) { /* of the step that goes on if this one fails */
        memcpy(slots, step->slots, (size_t)step->tokens * sizeof *slots);
        memcpy(positions, step->positions, (size_t)step->tokens * sizeof *positions);
        if (width)
            memcpy(rotations, step->rotations, (size_t)(step->tokens * width) * sizeof *rotations);
    }
    free(step->slots);
    free(step->positions);
    free(step->rotations);
    step->slots = slots, step->positions = positions, step->rotations = rotations;
    step->room = tokens;
    return ATTN_OK;
}

/** Copies pages that others have, too, in all layers: as much of them as there is. */
static void copy_pages(const struct attn_cache *cache, int64_t num_copies)
{
    for (int64_t layer = 0; layer < cache->config.layers; layer++)
        for (int part = 0; part < CACHE_PARTS; part++) {
            if (!attn_cache_has(cache, part))
                continue;
            const attn_tensor pool = attn_cache_pool(cache, layer, part);
            const int64_t page = attn_bytes_of(pool.dtype, pool.stride[0]);
            const int64_t head = attn_bytes_of(pool.dtype, pool.stride[1]);
            const int64_t row = attn_bytes_of(pool.dtype, pool.stride[2]);
            for (int64_t i = 0; i < num_copies; i++) {
                const struct attn_page_copy *copy = &cache->step.copies[i];
                for (int64_t h = 0; h < pool.shape[1]; h++)
                    memcpy((char *)pool.data + copy->to * page + h * head,
                           (char *)pool.data + copy->from * page + h * head, (size_t)(copy->rows * row));
            }
        }
}

/** Writes down where the step's tokens are, now that they have their places. */
static void describe_step(struct attn_cache *cache, int64_t num, const int64_t *tokens, const int64_t *positions)
{
    struct attn_cache_step *step = &cache->step;
    const struct attn_book *book = &cache->book;
    step->num = num;
    step->tokens = step->stride = 0;
    step->single = num > 0;
    for (int64_t i = 0; i < num; i++) {
        const int64_t length = book->sequences[step->places[i]].length;
        const int32_t *pages = attn_book_columns(book, step->places[i]);
        for (int64_t position = length - tokens[i]; position < length; position++) {
            step->slots[step->tokens] =
                pages[position / book->page_size] * book->page_size + position % book->page_size;
            step->positions[step->tokens] = positions ? positions[step->tokens] : position;
            step->tokens++;
        }
        step->single = step->single && tokens[i] == 1;
        step->lengths[i] = length;
        step->cu_seqlens[i + 1] = step->tokens;
        const int64_t columns = (length + book->page_size - 1) / book->page_size;
        step->stride = columns > step->stride ? columns : step->stride;
    }
    for (int64_t i = 0; i < num; i++) {
        const int64_t columns = (step->lengths[i] + book->page_size - 1) / book->page_size;
        memcpy(step->table + i * step->stride, attn_book_columns(book, step->places[i]),
               (size_t)columns * sizeof *step->table);
    }
}

/** That a rotation can be made for each position. */
static attn_status check_positions(const int64_t *positions, int64_t total)
{
    const int64_t most = (int64_t)1 << 53;
    for (int64_t i = 0; positions && i < total; i++)
        if (positions[i] < -most || positions[i] > most)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "positions[%" PRId64 "] is %" PRId64 "; expected at most 2^53 in size", i, positions[i]);
    return ATTN_OK;
}

attn_status attn_cache_step(attn_cache *cache, int64_t num, const int64_t *ids, const int64_t *tokens,
                            const int64_t *positions)
{
    int64_t total, num_copies;
    if (!cache)
        return attn_fail(ATTN_INVALID_ARGUMENT, "cache is NULL; expected one of attn_cache_create()");
    CHECK(find_sequences(cache, num, ids, tokens, &total));
    CHECK(check_all_different(cache, num, ids));
    struct attn_cache_step *step = &cache->step;
    const int64_t most = cache->book.num_pages * cache->book.page_size;
    if (total > most)
        return attn_fail(ATTN_CACHE_FULL, "the step has %" PRId64 " tokens, and all pages together hold %" PRId64,
                         total, most);
    CHECK(check_positions(positions, total));
    CHECK(make_room(cache, total));
    for (int64_t i = 0; i < num; i++)
        step->places[i] = ids[i] % cache->book.max_sequences;
    CHECK(attn_book_grow(&cache->book, num, step->places, tokens, step->copies, &num_copies));
    copy_pages(cache, num_copies);
    describe_step(cache, num, tokens, positions);
    step->number++;
    return cache->config.rope ? attn_rope_table(cache->config.rope, step->positions, step->tokens, step->rotations)
                              : ATTN_OK;
}

/* ------------------------------------------------------------------- appending -- */

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

/* ------------------------------------------------------------------ attention -- */

int64_t attn_cache_keys(const attn_cache *cache)
{
    return cache ? cache->step.stride * cache->book.page_size : 0;
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
               {"rope", p->rope != NULL},
               {"window", p->window && cache->config.window > 0}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].set)
            return attn_fail(ATTN_INVALID_ARGUMENT, "params.%s is set; a cache says itself %s", own[i].name,
                             "where keys are and which of them a query sees by its place");
    return ATTN_OK;
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
    if (cache->config.window > 0)
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
                         params ? "a tensor" : "the block table");
    if (params->struct_size < offsetof(attn_params, v_scale) + sizeof params->v_scale)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.struct_size is %zu; expected what attn_params_default() sets",
                         params->struct_size);
    *k = attn_cache_pool(cache, layer, CACHE_KEYS);
    *v = attn_cache_pool(cache, layer, CACHE_VALUES);
    set_pages(cache, layer, params);
    return ATTN_OK;
}
