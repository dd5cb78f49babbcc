/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where rows of K and V lie.
 *
 * Rows in pages come in pieces: rows that follow each other in memory. What
 * reads K or V a row after the other takes a piece at a time; tiles, which read
 * a block of keys many times, want it in one piece, and have its rows brought
 * together where it is not (attn_key_block_at()).
 */
#ifndef ATTN_PAGES_H
#define ATTN_PAGES_H

#include "pass/work.h"

/** Rows of K or V from a key on, n of them side by side. */
struct attn_piece {
    struct attn_rows rows;
    int n;
};

/** The piece that begins at key j, of at most n keys. */
static inline struct attn_piece attn_piece_at(const struct attn_pages *pages, const struct attn_rows *rows,
                                              const struct attn_page_step *step, int64_t j, int n)
{
    struct attn_piece piece = {*rows, n};
    if (pages->size == 0) {
        piece.rows = attn_rows_from(rows, j);
        return piece;
    }
    const int64_t row = pages->first + j, column = row / pages->size, within = row - column * pages->size;
    /* Of a page that no query sees, rows may be read beside others, and hidden: those of any page will do. */
    const int64_t listed = pages->table[column], page = listed >= 0 && listed < pages->count ? listed : 0;
    piece.rows = attn_rows_from(rows, within);
    piece.rows.data = (char *)piece.rows.data + page * step->bytes;
    if (rows->scale)
        piece.rows.scale += page * step->scales;
    piece.n = pages->size - within < n ? (int)(pages->size - within) : n;
    return piece;
}

static inline struct attn_piece attn_keys_at(const struct attn_work *work, int64_t j, int n)
{
    return attn_piece_at(&work->pages, &work->k, &work->pages.k_step, j, n);
}

static inline struct attn_piece attn_values_at(const struct attn_work *work, int64_t j, int n)
{
    return attn_piece_at(&work->pages, &work->v, &work->pages.v_step, j, n);
}

#endif
