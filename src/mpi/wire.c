/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of keys and values, and the messages by which they travel, in whole units of a page.
 */
#include "mpi/wire.h"

#include "api/error.h"

#include <limits.h>
#include <stdlib.h>

enum { GAP = 64 };

/** Bytes of (batch, head, token, channel), to a multiple of GAP; -1: too many. */
static int64_t bytes_of(const struct mpi_block *block, int64_t tokens, int64_t channels, attn_dtype type)
{
    int64_t size = (int64_t)attn_dtype_size(type);
    if (__builtin_mul_overflow(size, block->batch, &size) || __builtin_mul_overflow(size, block->heads, &size) ||
        __builtin_mul_overflow(size, tokens, &size) || __builtin_mul_overflow(size, channels, &size) ||
        __builtin_add_overflow(size, GAP - 1, &size))
        return -1;
    return size / GAP * GAP;
}

size_t mpi_block_size(const struct mpi_block *block, int64_t tokens)
{
    const int64_t k = bytes_of(block, tokens, block->dk, block->k_type);
    const int64_t v = bytes_of(block, tokens, block->dv, block->v_type);
    const int64_t unit = (int64_t)MPI_UNIT;
    int64_t size;
    if (k < 0 || v < 0 || __builtin_add_overflow(k, v, &size) || __builtin_add_overflow(size, 2 * unit - 1, &size))
        return 0;
    size /= unit; /* at least one, as 0 says something else */
    return size > INT_MAX ? 0 : (size_t)size * MPI_UNIT;
}

void mpi_block_view(const struct mpi_block *block, void *data, int64_t tokens, attn_tensor *k, attn_tensor *v)
{
    *k = attn_bhtd(data, block->batch, block->heads, tokens, block->dk);
    k->dtype = block->k_type;
    *v = attn_bhtd((char *)data + bytes_of(block, tokens, block->dk, block->k_type), block->batch, block->heads, tokens,
                   block->dv);
    v->dtype = block->v_type;
}

attn_status mpi_lane_make(struct mpi_lane *lane, struct mpi_team *team, int direction, void *const leaving[2],
                          const size_t *sent_size, void *const arriving[2], const size_t *arrived_size, int tag)
{
    const int n = team->ranks;
    *lane = (struct mpi_lane){.team = team, .steps = n};
    lane->all = calloc(4 * (size_t)n, sizeof *lane->all);
    if (!lane->all)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for messages between %d ranks", n);
    for (int i = 0; i < 2; i++) {
        lane->sends[i] = lane->all + i * n;
        lane->receives[i] = lane->all + (2 + i) * n;
    }
    for (int step = 1; step < n; step++) {
        const int far = direction > 0 ? step : n - step;
        const int to = (team->rank + far) % n, from = (team->rank + n - far) % n;
        for (int i = 0; i < 2; i++) {
            CHECK(mpi_prepare(team, 1, leaving[i], sent_size[step], to, tag, &lane->sends[i][step]));
            CHECK(mpi_prepare(team, 0, arriving[i], arrived_size[step], from, tag, &lane->receives[i][step]));
        }
    }
    return ATTN_OK;
}

void mpi_lane_free(struct mpi_lane *lane)
{
    if (!lane->team || *lane->team->lost)
        return;
    for (int i = 0; lane->all && i < 4 * lane->steps; i++)
        mpi_discard(lane->team, &lane->all[i]);
    free(lane->all);
}

attn_status mpi_lane_progress(const struct mpi_lane *lane)
{
    const int needs_tests = lane->steps > 1 && lane->team->transport->functions->needs_tests;
    for (int i = 0, done; needs_tests && i < 4 * lane->steps && !*lane->team->lost; i++)
        CHECK(mpi_test(lane->team, &lane->all[i], &done, "a message of keys or gradients"));
    return ATTN_OK;
}
