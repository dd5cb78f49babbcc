/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sequences of a cache: how they begin, branch, lose tokens and end.
 */
#include "cache/cache.h"

#include "api/check_internal.h"
#include "api/error.h"

#include <inttypes.h>
#include <string.h>

/** The step is over: what it said of its sequences is no longer so. */
static void end_step(struct attn_cache *cache)
{
    cache->step.num = cache->step.tokens = cache->step.stride = 0;
    cache->step.number++;
}

attn_status attn_cache_add(attn_cache *cache, int64_t *id)
{
    CHECK(attn_cache_check(cache));
    if (!id)
        return attn_fail(ATTN_INVALID_ARGUMENT, "id is NULL; expected where to put one");
    return attn_book_add(&cache->book, id); /* which no step knows of */
}

attn_status attn_cache_fork(attn_cache *cache, int64_t id, int64_t *fork)
{
    CHECK(attn_cache_check(cache));
    if (!fork)
        return attn_fail(ATTN_INVALID_ARGUMENT, "fork is NULL; expected where to put an id");
    CHECK(attn_book_fork(&cache->book, id, fork));
    end_step(cache);
    return ATTN_OK;
}

attn_status attn_cache_truncate(attn_cache *cache, int64_t id, int64_t length)
{
    int64_t place;
    CHECK(attn_cache_check(cache));
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
    CHECK(attn_cache_check(cache));
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
    for (int64_t i = 0; i < num; i++) {
        if (tokens[i] < length || tokens[i] >= all)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "tokens[%" PRId64 "] is %" PRId64 "; expected %" PRId64 " to %" PRId64
                             ", a token from length on",
                             i, tokens[i], length, all - 1);
        if (i > 0 && tokens[i] <= tokens[i - 1])
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "tokens[%" PRId64 "] is %" PRId64 "; expected more than %" PRId64 ", the one before it", i,
                             tokens[i], tokens[i - 1]);
    }
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
    CHECK(attn_cache_check(cache));
    CHECK(attn_book_remove(&cache->book, id));
    end_step(cache);
    return ATTN_OK;
}

int64_t attn_cache_length(const attn_cache *cache, int64_t id)
{
    int64_t place;
    if (attn_cache_check(cache) || attn_book_find(&cache->book, "id", id, &place))
        return -1;
    return cache->book.sequences[place].length;
}
