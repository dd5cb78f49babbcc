/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range of queries against a range of keys. Query i of a sequence has the position i + offset among its keys, so that
 * with queries from q0 on and keys from k0 on the offset is offset + q0 - k0, and lengths, counted from the first key,
 * are less by k0.
 */
#include "mpi/rectangle.h"

#include "api/error.h"

#include <stdlib.h>

/** The part of a range that a sequence's tokens [first, first + count) have, counted from the sequence's first. */
struct part {
    int64_t begin, end;
};

static int64_t clip(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

static struct part part_of(attn_mpi_range range, int64_t first, int64_t count)
{
    return (struct part){clip(range.first - first, 0, count), clip(range.first + range.count - first, 0, count)};
}

/** Sums of positions, which offsets of any size may bring near the ends of int64_t. */
static int64_t within(__int128 x)
{
    return x < INT64_MIN / 4 ? INT64_MIN / 4 : x > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)x;
}

/** The position of query 0 of a sequence among its keys. */
static int64_t offset_of(const struct attn_problem *problem, const struct attn_sequence *sequence, int64_t s)
{
    if (problem->params.causal == ATTN_CAUSAL_BOTTOM_RIGHT)
        return sequence->end - sequence->queries;
    return problem->params.query_offset ? problem->params.query_offset[s] : 0;
}

/** Of one side: allocates the labels of all ranks. */
static struct mpi_labels **labels_of(const struct mpi_share *shares, int ranks, const int32_t *labels, int64_t batch,
                                     int64_t tokens)
{
    struct mpi_labels **all = calloc((size_t)ranks, sizeof *all);
    for (int rank = 0; all && rank < ranks; rank++) {
        const struct mpi_share *share = &shares[rank];
        all[rank] = malloc((size_t)(share->num * batch + 1) * sizeof **all);
        if (!all[rank]) {
            for (int n = 0; n < rank; n++)
                free(all[n]);
            free(all);
            return NULL;
        }
        for (int64_t n = 0; n < share->num; n++)
            for (int64_t b = 0; b < batch; b++) {
                const int32_t *at = labels + b * tokens + share->ranges[n].first;
                struct mpi_labels found = {at[0], at[0]};
                for (int64_t i = 1; i < share->ranges[n].count; i++) {
                    found.least = at[i] < found.least ? at[i] : found.least;
                    found.most = at[i] > found.most ? at[i] : found.most;
                }
                all[rank][n * batch + b] = found;
            }
    }
    return all;
}

attn_status mpi_rectangles_make(struct mpi_rectangles *r, const struct attn_problem *problem, int64_t first_head,
                                int ranks, const struct mpi_share *queries, const struct mpi_share *keys)
{
    const size_t sequences = (size_t)problem->num_sequences + 1;
    const attn_segments *segments = problem->params.segments;
    *r = (struct mpi_rectangles){
        .problem = problem, .ranks = ranks, .first_head = first_head, .queries = queries, .keys = keys};
    r->query_offset = malloc(6 * sequences * sizeof *r->query_offset);
    r->origins = malloc(sequences * sizeof *r->origins);
    if (!r->query_offset || !r->origins)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for the offsets of %zu sequences", sequences - 1);
    r->kv_len = r->query_offset + sequences;
    r->kv_start = r->kv_len + sequences;
    r->prefix_len = r->kv_start + sequences;
    r->cu_q = r->prefix_len + sequences;
    r->cu_k = r->cu_q + sequences;
    if (segments) {
        const int64_t batch = problem->q.shape[0];
        r->q_labels = labels_of(queries, ranks, segments->q, batch, problem->q.shape[2]);
        r->k_labels = labels_of(keys, ranks, segments->k, batch, problem->k.shape[2]);
        if (!r->q_labels || !r->k_labels)
            return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for the labels of the ranges of %d ranks", ranks);
        int64_t longest = 0;
        for (int rank = 0; rank < ranks; rank++)
            for (int64_t n = 0; n < queries[rank].num; n++)
                longest = queries[rank].ranges[n].count > longest ? queries[rank].ranges[n].count : longest;
        if (batch > 1) { /* those of one range do not lie together */
            r->labels_room = (size_t)batch * (size_t)(longest + problem->k.shape[2]); /* of any range of keys */
            r->labels = malloc((r->labels_room + 1) * sizeof *r->labels);
            if (!r->labels)
                return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for %zu labels", r->labels_room);
        }
    }
    return ATTN_OK;
}

void mpi_rectangles_free(struct mpi_rectangles *r)
{
    for (int rank = 0; rank < r->ranks; rank++) {
        if (r->q_labels)
            free(r->q_labels[rank]);
        if (r->k_labels)
            free(r->k_labels[rank]);
    }
    free(r->q_labels);
    free(r->k_labels);
    free(r->query_offset);
    free(r->origins);
    free(r->labels);
}

/** Whether a window shows keys first to end - 1 of a sequence, or some, to queries at some of these positions. */
static int window_shows(const attn_window *window, int64_t begin, int64_t first, int64_t end, __int128 first_position,
                        __int128 last_position)
{
    if (first - begin < window->first_tokens)
        return 1;
    for (int64_t n = 0; n < window->num_global; n++) {
        const int64_t token = window->global[n];
        if ((token >= first && token < end) || (token >= first_position && token <= last_position))
            return 1;
    }
    return (window->left == ATTN_UNLIMITED || end - 1 >= first_position - window->left) &&
           (window->right == ATTN_UNLIMITED || first <= last_position + window->right);
}

/** Whether a block pattern lists one of keys first to end - 1 for a query of part q, of any head. */
static int pattern_lists(const attn_block_mask *pattern, struct part q, int64_t first, int64_t end)
{
    const int64_t size = pattern->size, last_column = (end - 1) / size;
    for (int64_t h = 0; h < (pattern->heads > 1 ? pattern->heads : 1); h++)
        for (int64_t row = q.begin / size; row <= (q.end - 1) / size; row++) {
            int64_t at = pattern->offsets[h * pattern->rows + row],
                    stop = pattern->offsets[h * pattern->rows + row + 1];
            const int64_t behind = stop;
            while (at < stop) { /* the first column from that of key first on */
                const int64_t middle = at + (stop - at) / 2;
                if (pattern->columns[middle] < first / size)
                    at = middle + 1;
                else
                    stop = middle;
            }
            if (at < behind && pattern->columns[at] <= last_column)
                return 1;
        }
    return 0;
}

/** Whether a query of part q of a sequence may see a key of part k, as far as positions and lengths say. */
static int sees(const struct attn_problem *problem, int64_t s, struct part q, struct part k)
{
    const attn_params *p = &problem->params;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const int64_t first = k.begin > sequence.begin ? k.begin : sequence.begin;
    const int64_t end = k.end < sequence.end ? k.end : sequence.end;
    if (q.begin >= q.end || first >= end)
        return 0;
    const __int128 offset = offset_of(problem, &sequence, s);
    const __int128 first_position = q.begin + offset, last_position = q.end - 1 + offset;
    if (p->causal != ATTN_CAUSAL_NONE && first > last_position &&
        !(p->prefix_len && first - sequence.begin < p->prefix_len[s]))
        return 0;
    if (p->window && !window_shows(p->window, sequence.begin, first, end, first_position, last_position))
        return 0;
    return !p->block_mask || pattern_lists(p->block_mask, q, first, end);
}

int mpi_sees(const struct mpi_rectangles *r, int rank, int64_t query_range, int source, int64_t key_range)
{
    const struct attn_problem *problem = r->problem;
    const attn_mpi_range queries = r->queries[rank].ranges[query_range], keys = r->keys[source].ranges[key_range];
    const int64_t batch = problem->q.shape[0];
    for (int64_t s = 0; s < problem->num_sequences; s++) {
        const struct attn_sequence sequence = attn_sequence_of(problem, s);
        if (r->q_labels) {
            const struct mpi_labels q = r->q_labels[rank][query_range * batch + sequence.batch];
            const struct mpi_labels k = r->k_labels[source][key_range * batch + sequence.batch];
            if (q.most < k.least || q.least > k.most)
                continue;
        }
        if (sees(problem, s, part_of(queries, sequence.q_first, sequence.queries),
                 part_of(keys, sequence.k_first, sequence.keys)))
            return 1;
    }
    return 0;
}

int mpi_sees_any(const struct mpi_rectangles *r, int rank, int source)
{
    for (int64_t i = 0; i < r->queries[rank].num; i++)
        for (int64_t j = 0; j < r->keys[source].num; j++)
            if (mpi_sees(r, rank, i, source, j))
                return 1;
    return 0;
}

int64_t mpi_queries_at_once(const struct mpi_rectangles *r, int64_t first)
{
    const attn_block_mask *pattern = r->problem->params.block_mask;
    for (int64_t s = 0; pattern && s < r->problem->num_sequences; s++) {
        const struct attn_sequence sequence = attn_sequence_of(r->problem, s);
        const int64_t query = first - sequence.q_first, over = query % pattern->size;
        if (query < 0 || query >= sequence.queries || over == 0)
            continue;
        const int64_t row = pattern->size - over, rest = sequence.queries - query;
        return row < rest ? row : rest;
    }
    return INT64_MAX;
}

/** Labels of a range, of all batch elements one after the other; at is where they go, if they have to. */
static const int32_t *labels_in(const int32_t *labels, int64_t batch, int64_t tokens, attn_mpi_range range, int32_t *at)
{
    if (batch <= 1)
        return labels + range.first;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < range.count; i++)
            at[b * range.count + i] = labels[b * tokens + range.first + i];
    return at;
}

/** Sequence s of the whole, as entry n of the rectangle's arrays. */
static void move_sequence(struct mpi_rectangles *r, int64_t s, int64_t n, attn_mpi_range queries, attn_mpi_range keys)
{
    const struct attn_problem *problem = r->problem;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const struct part q = part_of(queries, sequence.q_first, sequence.queries);
    const struct part k = part_of(keys, sequence.k_first, sequence.keys);
    const int64_t offset = offset_of(problem, &sequence, s);
    r->query_offset[n] = within((__int128)offset + q.begin - k.begin);
    r->kv_len[n] = clip(sequence.end - k.begin, 0, k.end - k.begin);
    r->kv_start[n] = clip(sequence.begin - k.begin, 0, r->kv_len[n]);
    const int64_t live = k.begin > sequence.begin ? k.begin - sequence.begin : 0;
    r->origins[n] = (struct attn_origin){.sequence = s, .query = q.begin, .key = k.begin, .live = live};
    if (problem->params.prefix_len)
        r->prefix_len[n] = problem->params.prefix_len[s] > live ? problem->params.prefix_len[s] - live : 0;
    r->cu_q[n + 1] = r->cu_q[n] + q.end - q.begin;
    r->cu_k[n + 1] = r->cu_k[n] + k.end - k.begin;
}

void mpi_make_rectangle(struct mpi_rectangles *r, struct mpi_rectangle *rectangle, const attn_params *params,
                        attn_mpi_range queries, int64_t first_row, attn_mpi_range keys)
{
    const struct attn_problem *problem = r->problem;
    attn_params *p = &rectangle->params;
    *p = *params;
    p->lse = NULL;
    p->rope = NULL;
    p->sinks = NULL;
    p->causal = params->causal == ATTN_CAUSAL_NONE ? ATTN_CAUSAL_NONE : ATTN_CAUSAL_OFFSET;
    int64_t num = 0;
    r->cu_q[0] = r->cu_k[0] = 0;
    for (int64_t s = 0; s < problem->num_sequences; s++) {
        move_sequence(r, s, num, queries, keys);
        /* Of a ragged batch those alone that have a token here. */
        num += !params->ragged || r->cu_q[num + 1] > r->cu_q[num] || r->cu_k[num + 1] > r->cu_k[num];
    }
    if (params->ragged) {
        rectangle->ragged = (attn_ragged){num, r->cu_q, r->cu_k};
        p->ragged = &rectangle->ragged;
    }
    const int by_position = params->causal != ATTN_CAUSAL_NONE || params->window || params->alibi_slopes ||
                            params->relative_bias || params->disentangled;
    p->query_offset = by_position ? r->query_offset : NULL;
    p->kv_len = params->kv_len ? r->kv_len : NULL;
    p->kv_start = params->kv_start ? r->kv_start : NULL;
    p->prefix_len = params->prefix_len ? r->prefix_len : NULL;
    rectangle->place = (struct attn_rectangle){.first_head = r->first_head, .origins = r->origins};
    if (params->segments) {
        const int64_t batch = problem->q.shape[0];
        rectangle->segments.q = labels_in(params->segments->q, batch, problem->q.shape[2], queries, r->labels);
        rectangle->segments.k = labels_in(params->segments->k, batch, problem->k.shape[2], keys,
                                          r->labels + (r->labels ? batch * queries.count : 0));
        p->segments = &rectangle->segments;
    }
    if (params->mask) {
        attn_tensor *mask = &rectangle->mask;
        *mask = *params->mask;
        const int64_t key = mask->shape[3] > 1 ? keys.first : 0;
        mask->data =
            (char *)mask->data + (first_row * (mask->shape[2] > 1 ? mask->stride[2] : 0) + key * mask->stride[3]) *
                                     (int64_t)attn_dtype_size(mask->dtype);
        if (mask->shape[2] > 1)
            mask->shape[2] = queries.count;
        if (mask->shape[3] > 1)
            mask->shape[3] = keys.count;
        p->mask = mask;
    }
}
