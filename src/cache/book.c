/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences and their pages, see book.h. */
#include "cache/book.h"

#include "api/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

attn_status attn_book_create(struct attn_book *book)
{
    book->uses = calloc((size_t)book->num_pages + 1, sizeof *book->uses);
    book->free = calloc((size_t)book->num_pages + 1, sizeof *book->free);
    book->columns = calloc((size_t)(book->max_sequences * book->max_columns), sizeof *book->columns);
    book->sequences = calloc((size_t)book->max_sequences, sizeof *book->sequences);
    book->free_places = calloc((size_t)book->max_sequences, sizeof *book->free_places);
    if (!book->uses || !book->free || !book->columns || !book->sequences || !book->free_places) {
        attn_book_destroy(book);
        return attn_fail(ATTN_OUT_OF_MEMORY,
                         "no memory for a table of %" PRId64 " sequences of up to %" PRId64 " pages, of %" PRId64
                         " in all",
                         book->max_sequences, book->max_columns, book->num_pages);
    }
    for (int64_t page = 0; page < book->num_pages; page++) /* the first page is handed out first */
        book->free[book->num_pages - 1 - page] = (int32_t)page;
    book->num_free = book->num_pages;
    for (int64_t place = 0; place < book->max_sequences; place++) {
        book->free_places[book->max_sequences - 1 - place] = place;
        book->sequences[place].id = place - book->max_sequences; /* the next one that is here has the id place */
    }
    return ATTN_OK;
}

void attn_book_destroy(struct attn_book *book)
{
    free(book->uses);
    free(book->free);
    free(book->columns);
    free(book->sequences);
    free(book->free_places);
}

attn_status attn_book_find(const struct attn_book *book, const char *name, int64_t id, int64_t *place)
{
    *place = id >= 0 ? id % book->max_sequences : 0;
    if (id >= 0 && book->sequences[*place].there && book->sequences[*place].id == id)
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT, "%s is %" PRId64 "; the cache has no such sequence", name, id);
}

static int64_t columns_of(const struct attn_book *book, int64_t length)
{
    return (length + book->page_size - 1) / book->page_size;
}

static void release(struct attn_book *book, int32_t *column)
{
    if (*column != ATTN_NO_PAGE && --book->uses[*column] == 0)
        book->free[book->num_free++] = *column;
    *column = ATTN_NO_PAGE;
}

static int32_t take(struct attn_book *book)
{
    const int32_t page = book->free[--book->num_free];
    book->uses[page] = 1;
    return page;
}

/** Takes a free place. */
static attn_status take_place(struct attn_book *book, int64_t *place)
{
    if (book->num_sequences == book->max_sequences)
        return attn_fail(ATTN_CACHE_FULL, "the cache has %" PRId64 " sequences, config.max_sequences",
                         book->max_sequences);
    *place = book->free_places[book->max_sequences - ++book->num_sequences];
    struct attn_cached_sequence *sequence = &book->sequences[*place];
    *sequence = (struct attn_cached_sequence){.id = sequence->id + book->max_sequences, .there = 1};
    return ATTN_OK;
}

attn_status attn_book_add(struct attn_book *book, int64_t *id)
{
    int64_t place = 0;
    CHECK(take_place(book, &place));
    *id = book->sequences[place].id;
    return ATTN_OK;
}

attn_status attn_book_fork(struct attn_book *book, int64_t id, int64_t *fork)
{
    int64_t from, to = 0;
    CHECK(attn_book_find(book, "id", id, &from));
    CHECK(take_place(book, &to));
    book->sequences[to].length = book->sequences[from].length;
    book->sequences[to].released = book->sequences[from].released;
    const int64_t columns = columns_of(book, book->sequences[from].length);
    const int32_t *pages = attn_book_columns(book, from);
    memcpy(attn_book_columns(book, to), pages, (size_t)columns * sizeof *pages);
    for (int64_t i = 0; i < columns; i++)
        if (pages[i] != ATTN_NO_PAGE)
            book->uses[pages[i]]++;
    *fork = book->sequences[to].id;
    return ATTN_OK;
}

/** Columns of first tokens, which stay behind a window. */
static int64_t kept_columns(const struct attn_book *book)
{
    return columns_of(book, book->first_tokens < book->max_tokens ? book->first_tokens : book->max_tokens);
}

/** The end of the columns that no query at position or behind it sees, but for the kept ones. */
static int64_t hidden_columns(const struct attn_book *book, int64_t position)
{
    return book->window > 0 && position > book->window ? (position - book->window) / book->page_size : 0;
}

attn_status attn_book_check_length(const struct attn_book *book, int64_t place, int64_t length)
{
    const struct attn_cached_sequence *sequence = &book->sequences[place];
    if (length < 0 || length > sequence->length)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "length is %" PRId64 "; expected 0 to %" PRId64 ", the tokens of sequence %" PRId64, length,
                         sequence->length, sequence->id);
    if (length > kept_columns(book) * book->page_size && hidden_columns(book, length) < sequence->released)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "length is %" PRId64 "; of the keys that a query there sees, some before token %" PRId64
                         " have been handed back",
                         length, sequence->released * book->page_size);
    return ATTN_OK;
}

void attn_book_truncate(struct attn_book *book, int64_t place, int64_t length)
{
    struct attn_cached_sequence *sequence = &book->sequences[place];
    int32_t *pages = attn_book_columns(book, place);
    for (int64_t i = columns_of(book, length); i < columns_of(book, sequence->length); i++)
        release(book, &pages[i]);
    sequence->length = length;
    if (length <= kept_columns(book) * book->page_size) /* what follows is new */
        sequence->released = 0;
}

int attn_book_is_alone(const struct attn_book *book, int64_t place, int64_t first, int64_t end)
{
    const int32_t *pages = attn_book_columns(book, place);
    for (int64_t i = first / book->page_size; i * book->page_size < end; i++)
        if (pages[i] == ATTN_NO_PAGE || book->uses[pages[i]] > 1)
            return 0;
    return 1;
}

attn_status attn_book_remove(struct attn_book *book, int64_t id)
{
    int64_t place;
    CHECK(attn_book_find(book, "id", id, &place));
    struct attn_cached_sequence *sequence = &book->sequences[place];
    int32_t *pages = attn_book_columns(book, place);
    for (int64_t i = 0; i < columns_of(book, sequence->length); i++)
        release(book, &pages[i]);
    sequence->there = 0;
    book->free_places[book->max_sequences - book->num_sequences--] = place;
    return ATTN_OK;
}

/** The column that the first new token of a sequence goes to, if it has others before it there; else NULL. */
static int32_t *open_column(const struct attn_book *book, int64_t place, int64_t tokens)
{
    const int64_t length = book->sequences[place].length;
    return tokens > 0 && length % book->page_size != 0 ? attn_book_columns(book, place) + length / book->page_size
                                                       : NULL;
}

static int64_t new_columns(const struct attn_book *book, int64_t place, int64_t tokens)
{
    const int64_t length = book->sequences[place].length;
    return columns_of(book, length + tokens) - columns_of(book, length);
}

/** Adds by to the uses of the pages that a window leaves behind in a step; returns how many then have none. */
static int64_t count_hidden(struct attn_book *book, int64_t place, int by)
{
    const struct attn_cached_sequence *sequence = &book->sequences[place];
    const int32_t *pages = attn_book_columns(book, place);
    const int64_t kept = kept_columns(book), end = hidden_columns(book, sequence->length);
    int64_t without = 0;
    for (int64_t i = sequence->released > kept ? sequence->released : kept; i < end; i++) {
        book->uses[pages[i]] += by;
        without += book->uses[pages[i]] == 0;
    }
    return without;
}

/**
 * Pages that a step takes beyond those that it hands back. The uses of pages are counted as if the step were done, in
 * the order in which it is, and put back.
 */
static int64_t pages_wanted(struct attn_book *book, int64_t num, const int64_t *places, const int64_t *tokens)
{
    int64_t wanted = 0;
    for (int64_t i = 0; i < num; i++)
        wanted -= count_hidden(book, places[i], -1);
    for (int64_t i = 0; i < num; i++) {
        struct attn_cached_sequence *sequence = &book->sequences[places[i]];
        const int32_t *page = open_column(book, places[i], tokens[i]);
        sequence->copies = page && book->uses[*page] > 1;
        if (sequence->copies)
            book->uses[*page]--;
        wanted += new_columns(book, places[i], tokens[i]) + sequence->copies;
    }
    for (int64_t i = 0; i < num; i++) {
        if (book->sequences[places[i]].copies)
            book->uses[*open_column(book, places[i], tokens[i])]++;
        count_hidden(book, places[i], 1);
    }
    return wanted;
}

static void release_hidden(struct attn_book *book, int64_t place)
{
    struct attn_cached_sequence *sequence = &book->sequences[place];
    int32_t *pages = attn_book_columns(book, place);
    const int64_t kept = kept_columns(book), end = hidden_columns(book, sequence->length);
    for (int64_t i = sequence->released > kept ? sequence->released : kept; i < end; i++)
        release(book, &pages[i]);
    sequence->released = end > sequence->released ? end : sequence->released;
}

attn_status attn_book_grow(struct attn_book *book, int64_t num, const int64_t *places, const int64_t *tokens,
                           struct attn_page_copy *copies, int64_t *num_copies)
{
    const int64_t wanted = pages_wanted(book, num, places, tokens);
    if (wanted > book->num_free)
        return attn_fail(ATTN_CACHE_FULL,
                         "the step takes %" PRId64 " pages more than it hands back, and of the cache's %" PRId64
                         " pages %" PRId64 " are free",
                         wanted, book->num_pages, book->num_free);
    *num_copies = 0;
    for (int64_t i = 0; i < num; i++)
        release_hidden(book, places[i]);
    for (int64_t i = 0; i < num; i++) {
        struct attn_cached_sequence *sequence = &book->sequences[places[i]];
        int32_t *open = open_column(book, places[i], tokens[i]);
        if (sequence->copies) {
            const int32_t page = take(book), from = *open;
            copies[(*num_copies)++] = (struct attn_page_copy){from, page, sequence->length % book->page_size};
            book->uses[from]--; /* others have it still */
            *open = page;
        }
        int32_t *pages = attn_book_columns(book, places[i]) + columns_of(book, sequence->length);
        for (int64_t n = new_columns(book, places[i], tokens[i]); n > 0; n--)
            *pages++ = take(book);
        sequence->length += tokens[i];
    }
    return ATTN_OK;
}
