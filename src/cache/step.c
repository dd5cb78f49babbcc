/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of a cache: which sequences get new tokens, where these go, and the
 * copies of pages that others have, too.
 */
#include "cache/cache.h"

#include "api/check_internal.h"
#include "api/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    CHECK(attn_cache_check(cache));
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
