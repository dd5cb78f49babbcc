/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads together: the query heads of a key head, in sequences of few queries, are rows of
 * one block of queries, so that each byte of K and V is read once for all of them.
 *
 * Row r of such a block is head r % heads of token r / heads (struct attn_view).
 * In this order the tokens of a strip follow each other, so that what hides keys
 * by their place hides them from lanes that follow each other, too. Lanes do not
 * depend on each other: no bit changes.
 *
 * Which heads are together follows from shapes, but for ragged batches, where
 * each sequence has its own number of queries: there the task of the first of
 * some heads has the rows of all, and the others find nothing to do.
 */
#include "driver/driver.h"

/* A block of queries, about: its strips find the keys in a near cache that the first one has read. There may be more
 * heads than can be counted. */
#define MOST_ROWS 256

/* With more queries, about a strip of them, a head fills its lanes by itself and is bound by its products, not by
 * reading. Nothing would be gained, and a diagonal costs less where lanes are tokens. Up to here a group gains, most
 * where its heads would leave lanes of their vectors empty. */
#define MOST_TOKENS 32

int64_t attn_most_rows_together(int64_t rows)
{
    return rows < MOST_ROWS ? rows : MOST_ROWS;
}

/** The most heads, of those given, that are together in equal numbers and have no more rows than that; 1 at least. */
static int64_t heads_within(int64_t heads, int64_t tokens, int64_t most_rows)
{
    int64_t together = heads < most_rows ? heads : most_rows;
    while (together > 1 && (heads % together || together * tokens > most_rows))
        together--;
    return together > 1 ? together : 1;
}

int64_t attn_heads_together(const struct attn_problem *problem, int64_t most_rows, int threads, int splits)
{
    const int64_t heads = problem->q.shape[1], kv_heads = problem->k.shape[1], sequences = problem->num_sequences;
    const int64_t tokens = problem->params.ragged ? 1 : problem->q.shape[2];
    if (tokens == 0 || tokens > MOST_TOKENS || kv_heads == 0 || heads <= kv_heads || !problem->may_be_together)
        return 1;
    /* Work for all threads comes first: a second one finds K and V in the last level of cache. Many splits of the keys
     * are such work as well. */
    int64_t wanted = sequences > 0 ? (threads + sequences - 1) / sequences : 0; /* of each sequence */
    if (splits && !problem->params.window && kv_heads * (problem->k.shape[2] / ATTN_SPLIT_KEYS) >= 2 * wanted)
        wanted = 1;
    int64_t together = heads_within(heads / kv_heads, tokens, most_rows);
    while (together > 1 && (heads / kv_heads % together || heads / together < wanted))
        together--;
    return together;
}

int64_t attn_heads_of(const struct attn_geometry *geometry, int64_t tokens)
{
    return tokens > MOST_TOKENS ? 1 : heads_within(geometry->together, tokens, geometry->rows_together);
}
