/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The book of a cache: which sequences there are, and which page holds which of
 * their tokens. Numbers only; keys and values are none of its business.
 *
 * A page is counted for each sequence that has it, and goes back to the free
 * ones with the last. Only the page with a sequence's last token is ever written
 * to; where others have it, too, the sequence gets a copy first. So pages that
 * are full are shared for ever, and nobody sees what others append.
 */
#ifndef ATTN_CACHE_BOOK_H
#define ATTN_CACHE_BOOK_H

#include "attn/types.h"

/** No page: handed back, or not taken yet. */
#define ATTN_NO_PAGE (-1)

struct attn_cached_sequence {
    int64_t id; /**< of the sequence, or of the last one that was here */
    int there;
    int64_t length;
    int64_t released; /**< columns before this one have been handed back, but for those of the first tokens */
    int copies;       /**< of a step that is being counted: its last page is shared */
};

/** The first rows of a page that are to be copied to another one. */
struct attn_page_copy {
    int32_t from, to;
    int64_t rows;
};

struct attn_book {
    /* Fixed when it is made. */
    int64_t page_size, num_pages, max_tokens, max_sequences;
    int64_t max_columns;          /**< pages of a sequence at most */
    int64_t window, first_tokens; /**< as in attn_cache_config */

    int32_t *uses; /**< [num_pages] sequences that have a page */
    int32_t *free; /**< [num_free] pages without a sequence, the next one last */
    int64_t num_free;
    int32_t *columns;                       /**< [max_sequences][max_columns] pages of a sequence */
    struct attn_cached_sequence *sequences; /**< [max_sequences] */
    int64_t *free_places;                   /**< [max_sequences - num_sequences] of sequences, the next one last */
    int64_t num_sequences;
};

/** Makes an empty book of the sizes that are set in it. On an error it holds no memory. */
attn_status attn_book_create(struct attn_book *book);
void attn_book_destroy(struct attn_book *book);

/** The place of a sequence in book->sequences; an error with the name of the argument. */
attn_status attn_book_find(const struct attn_book *book, const char *name, int64_t id, int64_t *place);

/** Pages of the sequence at a place, by column. */
static inline int32_t *attn_book_columns(const struct attn_book *book, int64_t place)
{
    return book->columns + place * book->max_columns;
}

attn_status attn_book_add(struct attn_book *book, int64_t *id);
attn_status attn_book_fork(struct attn_book *book, int64_t id, int64_t *fork);
attn_status attn_book_remove(struct attn_book *book, int64_t id);

/** That the sequence at a place can go back to a length; then that it does. */
attn_status attn_book_check_length(const struct attn_book *book, int64_t place, int64_t length);
void attn_book_truncate(struct attn_book *book, int64_t place, int64_t length);

/** Whether rows first to end - 1 of the sequence at a place are in pages that it has alone. */
int attn_book_is_alone(const struct attn_book *book, int64_t place, int64_t first, int64_t end);

/**
 * Makes room for tokens[i] more tokens of the sequences at num different places, and hands back what a window leaves
 * behind. copies, of num at most, become the pages that have to be copied before anything is written; num_copies says
 * how many. ATTN_CACHE_FULL: nothing has changed.
 */
attn_status attn_book_grow(struct attn_book *book, int64_t num, const int64_t *places, const int64_t *tokens,
                           struct attn_page_copy *copies, int64_t *num_copies);

#endif
