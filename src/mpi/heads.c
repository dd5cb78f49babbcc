/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens for heads and back. Each rank sends each other one block: some heads of its own tokens, or its own heads of
 * some tokens, without gaps.
 */
#include "mpi/heads.h"

#include "api/error.h"
#include "cpu/large.h"

#include <stdlib.h>
#include <string.h>

enum { TAG = 3 };

/** A range of a rank, to be put in order. */
struct piece {
    attn_mpi_range range;
    int64_t at; /**< its index among the ranges of all ranks */
};

static int by_tokens(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return (x->range.first > y->range.first) - (x->range.first < y->range.first);
}

attn_status mpi_pool_make(struct mpi_pool *pool, const struct mpi_share *shares, int ranks)
{
    int64_t num = 0;
    for (int rank = 0; rank < ranks; rank++)
        num += shares[rank].num;
    *pool = (struct mpi_pool){.shares = shares};
    struct piece *pieces = malloc(((size_t)num + 1) * sizeof *pieces);
    pool->together.ranges = malloc(((size_t)num + 1) * sizeof *pool->together.ranges);
    pool->rows = malloc(((size_t)num + 1) * sizeof *pool->rows);
    if (!pieces || !pool->together.ranges || !pool->rows) {
        free(pieces);
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for the ranges of %d ranks", ranks);
    }
    int64_t n = 0;
    for (int rank = 0; rank < ranks; rank++)
        for (int64_t i = 0; i < shares[rank].num; i++, n++)
            pieces[n] = (struct piece){shares[rank].ranges[i], n};
    qsort(pieces, (size_t)num, sizeof *pieces, by_tokens);
    struct mpi_share *together = &pool->together;
    for (n = 0; n < num; n++) {
        const attn_mpi_range range = pieces[n].range;
        attn_mpi_range *last = together->num ? &together->ranges[together->num - 1] : NULL;
        pool->rows[pieces[n].at] = together->tokens;
        together->tokens += range.count;
        if (last && last->first + last->count == range.first)
            last->count += range.count;
        else
            together->ranges[together->num++] = range;
    }
    free(pieces);
    return ATTN_OK;
}

void mpi_pool_free(struct mpi_pool *pool)
{
    free(pool->together.ranges);
    free(pool->rows);
}

attn_status mpi_exchange_make(struct mpi_exchange *exchange, struct mpi_team *group, size_t size)
{
    *exchange = (struct mpi_exchange){.group = group};
    exchange->size = size + (size_t)group->ranks * MPI_UNIT; /* each block begins and ends with a unit */
    exchange->outgoing = attn_alloc_large(exchange->size);
    exchange->incoming = attn_alloc_large(exchange->size);
    exchange->messages = calloc(2 * (size_t)group->ranks, sizeof *exchange->messages);
    exchange->sent = malloc(2 * (size_t)group->ranks * sizeof *exchange->sent);
    exchange->got = exchange->sent ? exchange->sent + group->ranks : NULL;
    if (!exchange->outgoing || !exchange->incoming || !exchange->messages || !exchange->sent)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for an exchange of %zu bytes", exchange->size);
    return ATTN_OK;
}

void mpi_exchange_free(struct mpi_exchange *exchange)
{
    if (!exchange->group || *exchange->group->lost)
        return;
    free(exchange->outgoing);
    free(exchange->incoming);
    free(exchange->messages);
    free(exchange->sent);
}

/** Some heads and tokens of a tensor. */
static attn_tensor view(const attn_tensor *t, int64_t head, int64_t heads, int64_t token, int64_t tokens)
{
    attn_tensor part = *t;
    part.shape[1] = heads;
    part.shape[2] = tokens;
    if (heads && tokens)
        part.data = (char *)t->data + ((head ? head * t->stride[1] : 0) + (token ? token * t->stride[2] : 0)) *
                                          (int64_t)attn_dtype_size(t->dtype);
    return part;
}

static void copy(const attn_tensor *to, const attn_tensor *from)
{
    const int64_t size = (int64_t)attn_dtype_size(to->dtype);
    const size_t row = (size_t)(to->shape[3] * size);
    for (int64_t b = 0; b < to->shape[0]; b++)
        for (int64_t h = 0; h < to->shape[1]; h++)
            for (int64_t t = 0; t < to->shape[2]; t++)
                memcpy((char *)to->data + (b * to->stride[0] + h * to->stride[1] + t * to->stride[2]) * size,
                       (const char *)from->data +
                           (b * from->stride[0] + h * from->stride[1] + t * from->stride[2]) * size,
                       row);
}

/** A block at data, of some heads of a rank's tokens. */
static attn_tensor block_at(char *data, const attn_tensor *like, int64_t heads, int64_t tokens)
{
    attn_tensor block = attn_bhtd(data, like->shape[0], heads, tokens, like->shape[3]);
    block.dtype = like->dtype;
    return block;
}

static size_t units_of(const attn_tensor *block)
{
    const size_t bytes = (size_t)(block->shape[0] * block->stride[0]) * attn_dtype_size(block->dtype);
    return (bytes + MPI_UNIT - 1) / MPI_UNIT;
}

/** Copies between a rank's block and its rows of the group's tokens. */
static void move_rows(const struct mpi_pool *pool, int rank, const attn_tensor *block, const attn_tensor *all,
                      int to_all)
{
    int64_t n = 0, token = 0;
    for (int r = 0; r < rank; r++)
        n += pool->shares[r].num;
    for (int64_t i = 0; i < pool->shares[rank].num; i++) {
        const int64_t count = pool->shares[rank].ranges[i].count;
        const attn_tensor near = view(block, 0, block->shape[1], token, count);
        const attn_tensor far = view(all, 0, all->shape[1], pool->rows[n + i], count);
        copy(to_all ? &far : &near, to_all ? &near : &far);
        token += count;
    }
}

/** Sends the blocks that lie one after the other in outgoing, and gets those of incoming. */
static attn_status swap(struct mpi_exchange *e)
{
    struct mpi_team *group = e->group;
    const char *from = e->outgoing;
    char *to = e->incoming;
    for (int rank = 0; rank < group->ranks; rank++) {
        struct mpi_message *receive = &e->messages[rank], *send = &e->messages[group->ranks + rank];
        const size_t sent = e->sent[rank] * MPI_UNIT, got = e->got[rank] * MPI_UNIT;
        if (rank == group->rank) {
            memcpy(to, from, sent);
        } else {
            CHECK(mpi_prepare(group, 0, to, got, rank, TAG, receive));
            CHECK(mpi_start(group, receive));
            CHECK(mpi_prepare(group, 1, (char *)from, sent, rank, TAG, send));
            CHECK(mpi_start(group, send));
        }
        to += got;
        from += sent;
    }
    CHECK(mpi_wait(group, 2 * group->ranks, e->messages, "an exchange of heads"));
    for (int n = 0; n < 2 * group->ranks; n++)
        mpi_discard(group, &e->messages[n]);
    return ATTN_OK;
}

/** Blocks of one direction, with their sizes in units: some heads of this rank's tokens for each rank, */
static attn_tensor own_block(const struct mpi_exchange *e, const attn_tensor *own, char *at)
{
    return block_at(at, own, own->shape[1] / e->group->ranks, own->shape[2]);
}
/** and this rank's heads of each rank's tokens. */
static attn_tensor other_block(const struct mpi_pool *pool, const attn_tensor *all, int rank, char *at)
{
    return block_at(at, all, all->shape[1], pool->shares[rank].tokens);
}

attn_status mpi_to_heads(struct mpi_exchange *exchange, const struct mpi_pool *pool, const attn_tensor *own,
                         const attn_tensor *all)
{
    const int ranks = exchange->group->ranks;
    size_t *const sent = exchange->sent, *const got = exchange->got;
    char *at = exchange->outgoing;
    for (int rank = 0; rank < ranks; rank++) {
        const attn_tensor block = own_block(exchange, own, at), theirs = other_block(pool, all, rank, NULL);
        const attn_tensor heads = view(own, rank * block.shape[1], block.shape[1], 0, own->shape[2]);
        copy(&block, &heads);
        sent[rank] = units_of(&block);
        got[rank] = units_of(&theirs);
        at += sent[rank] * MPI_UNIT;
    }
    CHECK(swap(exchange));
    at = exchange->incoming;
    for (int rank = 0; rank < ranks; rank++) {
        const attn_tensor block = other_block(pool, all, rank, at);
        move_rows(pool, rank, &block, all, 1);
        at += got[rank] * MPI_UNIT;
    }
    return ATTN_OK;
}

attn_status mpi_to_tokens(struct mpi_exchange *exchange, const struct mpi_pool *pool, const attn_tensor *all,
                          const attn_tensor *own)
{
    const int ranks = exchange->group->ranks;
    size_t *const sent = exchange->sent, *const got = exchange->got;
    char *at = exchange->outgoing;
    for (int rank = 0; rank < ranks; rank++) {
        const attn_tensor block = other_block(pool, all, rank, at), mine = own_block(exchange, own, NULL);
        move_rows(pool, rank, &block, all, 0);
        sent[rank] = units_of(&block);
        got[rank] = units_of(&mine);
        at += sent[rank] * MPI_UNIT;
    }
    CHECK(swap(exchange));
    at = exchange->incoming;
    for (int rank = 0; rank < ranks; rank++) {
        const attn_tensor block = own_block(exchange, own, at);
        const attn_tensor heads = view(own, rank * block.shape[1], block.shape[1], 0, own->shape[2]);
        copy(&heads, &block);
        at += got[rank] * MPI_UNIT;
    }
    return ATTN_OK;
}
