/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tokens of a sequence each rank holds: pieces of neighbours, dealt out by the rule of attn_mpi_placement.
 * Neighbouring pieces of one rank are one range, so that a single rank has a single range.
 */
#include "mpi/placement.h"

#include "api/check.h"
#include "api/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const int64_t DEFAULT_STRIPE = 512;

attn_status mpi_take_config(attn_mpi_config *ours, const attn_mpi_config *theirs)
{
    CHECK(attn_take_struct("config", ours, sizeof *ours, ATTN_FIRST_SIZE(attn_mpi_config, timeout), theirs));
    if ((int)ours->placement < ATTN_MPI_CONTIGUOUS || ours->placement > ATTN_MPI_STRIPED)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.placement is %d; expected 0 to 2", (int)ours->placement);
    if (ours->stripe < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.stripe is %" PRId64 "; expected 1 or more, or 0 for %" PRId64,
                         ours->stripe, DEFAULT_STRIPE);
    if (ours->stripe && ours->placement != ATTN_MPI_STRIPED)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.stripe is %" PRId64 "; expected 0, as config.placement is not ATTN_MPI_STRIPED",
                         ours->stripe);
    if (!ours->stripe)
        ours->stripe = DEFAULT_STRIPE;
    if (ours->queries < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.queries is %" PRId64 "; expected 0 or more", ours->queries);
    if (ours->keys < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.keys is %" PRId64 "; expected 0 or more", ours->keys);
    if ((int)ours->wire < ATTN_MPI_AS_GIVEN || ours->wire > ATTN_MPI_BF16)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.wire is %d; expected 0 or 1", (int)ours->wire);
    if (ours->head_ranks < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.head_ranks is %d; expected 1 or more, or 0 to have it chosen",
                         ours->head_ranks);
    if (!(ours->timeout >= 0) || isinf(ours->timeout))
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.timeout is %g; expected 0 or more seconds", ours->timeout);
    return ATTN_OK;
}

/** Pieces of a sequence, in the order of their tokens. */
static int64_t pieces_of(const attn_mpi_config *config, int64_t tokens, int ranks)
{
    switch (config->placement) {
    case ATTN_MPI_ZIGZAG:
        return 2 * (int64_t)ranks;
    case ATTN_MPI_STRIPED:
        return tokens / config->stripe + (tokens % config->stripe != 0);
    default:
        return ranks;
    }
}

/** The first token of a piece, 0 to pieces, and so the end of the one before. */
static int64_t piece_begin(const attn_mpi_config *config, int64_t tokens, int64_t pieces, int64_t piece)
{
    if (config->placement == ATTN_MPI_STRIPED)
        return piece < pieces ? piece * config->stripe : tokens;
    const int64_t longer = tokens % pieces; /* the first ones have a token more */
    return tokens / pieces * piece + (piece < longer ? piece : longer);
}

/** The nth piece of a rank, or -1 if it has fewer. */
static int64_t piece_of_rank(const attn_mpi_config *config, int64_t pieces, int ranks, int rank, int64_t n)
{
    switch (config->placement) {
    case ATTN_MPI_ZIGZAG:
        return n == 0 ? rank : n == 1 ? pieces - 1 - rank : -1;
    case ATTN_MPI_STRIPED:
        return n <= (pieces - 1 - rank) / ranks && rank < pieces ? rank + n * ranks : -1;
    default:
        return n == 0 ? rank : -1;
    }
}

/** Writes at most max ranges of a rank; sets *num to how many there are, and returns their tokens. */
static int64_t ranges_of(const attn_mpi_config *config, int64_t tokens, int ranks, int rank, attn_mpi_range *ranges,
                         int64_t max, int64_t *num)
{
    const int64_t pieces = pieces_of(config, tokens, ranks);
    int64_t held = 0, end = -1;
    *num = 0;
    for (int64_t n = 0, piece; (piece = piece_of_rank(config, pieces, ranks, rank, n)) >= 0; n++) {
        const int64_t first = piece_begin(config, tokens, pieces, piece);
        const int64_t count = piece_begin(config, tokens, pieces, piece + 1) - first;
        if (!count)
            continue;
        if (first != end)
            (*num)++;
        if (*num <= max) {
            attn_mpi_range *range = &ranges[*num - 1];
            *range =
                first == end ? (attn_mpi_range){range->first, range->count + count} : (attn_mpi_range){first, count};
        }
        held += count;
        end = first + count;
    }
    return held;
}

struct mpi_share *mpi_shares_of(const attn_mpi_config *config, int64_t tokens, int ranks)
{
    int64_t all = 0;
    for (int rank = 0; rank < ranks; rank++) {
        int64_t num;
        ranges_of(config, tokens, ranks, rank, NULL, 0, &num);
        all += num;
    }
    struct mpi_share *shares = malloc((size_t)ranks * sizeof *shares + (size_t)all * sizeof *shares->ranges);
    if (!shares)
        return NULL;
    attn_mpi_range *ranges = (attn_mpi_range *)(shares + ranks);
    for (int rank = 0; rank < ranks; rank++) {
        struct mpi_share *share = &shares[rank];
        share->ranges = ranges;
        share->tokens = ranges_of(config, tokens, ranks, rank, ranges, all, &share->num);
        ranges += share->num;
        all -= share->num;
    }
    return shares;
}

static attn_status check_place(attn_mpi_config *ours, const attn_mpi_config *config, int64_t tokens, int ranks,
                               int rank)
{
    if (!config)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL");
    CHECK(mpi_take_config(ours, config));
    if (tokens < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "tokens is %" PRId64 "; expected 0 or more", tokens);
    if (ranks < 1)
        return attn_fail(ATTN_INVALID_ARGUMENT, "ranks is %d; expected 1 or more", ranks);
    if (rank < 0 || rank >= ranks)
        return attn_fail(ATTN_INVALID_ARGUMENT, "rank is %d; expected 0 to %d, as ranks is %d", rank, ranks - 1, ranks);
    return ATTN_OK;
}

attn_status attn_mpi_ranges(const attn_mpi_config *config, int64_t tokens, int ranks, int rank, attn_mpi_range *ranges,
                            int64_t max_ranges, int64_t *num_ranges)
{
    attn_mpi_config ours;
    CHECK(check_place(&ours, config, tokens, ranks, rank));
    if (max_ranges < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "max_ranges is %" PRId64 "; expected 0 or more", max_ranges);
    if (!ranges && max_ranges)
        return attn_fail(ATTN_INVALID_ARGUMENT, "ranges is NULL; expected room for %" PRId64, max_ranges);
    int64_t num;
    ranges_of(&ours, tokens, ranks, rank, ranges, max_ranges, &num);
    if (num_ranges)
        *num_ranges = num;
    return ATTN_OK;
}

int64_t attn_mpi_local_tokens(const attn_mpi_config *config, int64_t tokens, int ranks, int rank)
{
    attn_mpi_config ours;
    int64_t num;
    if (check_place(&ours, config, tokens, ranks, rank))
        return -1;
    return ranges_of(&ours, tokens, ranks, rank, NULL, 0, &num);
}
