/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys a query sees, one option after the other, and the indices that
 * options count in: those of a batch element or of a ragged sequence, and the
 * query's position among its keys.
 */
#include "oracle.h"

#include "dtype.h"

#include <math.h>

/** a + b, or the end of the range that the sum lies beyond: a position that far off sees the same as at the end. */
static int64_t sum_within_range(int64_t a, int64_t b)
{
    int64_t sum;
    if (!__builtin_add_overflow(a, b, &sum))
        return sum;
    return b < 0 ? INT64_MIN : INT64_MAX;
}

/** Where the query's sequence of a ragged batch begins; its number of queries goes to *num_queries. */
static void find_sequence(struct oracle_query *query, const attn_ragged *ragged, int64_t *num_queries)
{
    query->outside = 1;
    for (int64_t s = 0; s < ragged->num_sequences; s++) {
        const int64_t first = ragged->cu_seqlens_q[s], end = ragged->cu_seqlens_q[s + 1];
        if (query->token < first || query->token >= end)
            continue;
        query->outside = 0;
        query->sequence = s;
        query->index = query->token - first;
        *num_queries = end - first;
        query->first_key = ragged->cu_seqlens_k[s];
        query->num_keys = ragged->cu_seqlens_k[s + 1] - query->first_key;
        return;
    }
}

struct oracle_query oracle_query_at(const attn_params *params, int64_t tq, int64_t tk, int64_t b, int64_t h,
                                    int64_t token)
{
    struct oracle_query query = {.b = b, .h = h, .token = token, .tq = tq, .tk = tk};
    int64_t num_queries = tq, offset = 0;
    if (params->ragged) {
        find_sequence(&query, params->ragged, &num_queries);
        if (query.outside)
            return query;
    } else {
        query.sequence = b;
        query.index = token;
        query.num_keys = tk;
    }
    const int64_t s = query.sequence;
    query.start = params->kv_start ? params->kv_start[s] : 0;
    query.end = params->kv_len ? params->kv_len[s] : query.num_keys;
    query.prefix = params->prefix_len ? sum_within_range(query.start, params->prefix_len[s]) : 0;
    if (params->causal == ATTN_CAUSAL_BOTTOM_RIGHT)
        offset = query.end - num_queries;
    else if (params->query_offset) /* with ATTN_CAUSAL_NONE or ATTN_CAUSAL_OFFSET */
        offset = params->query_offset[s];
    query.position = (__int128)query.index + offset;
    return query;
}

int64_t oracle_distance(const struct oracle_query *query, int64_t j)
{
    const __int128 distance = j - query->position;
    return distance < -INT64_MAX ? -INT64_MAX : distance > INT64_MAX ? INT64_MAX : (int64_t)distance;
}

static int is_global(const attn_window *window, __int128 position)
{
    for (int64_t n = 0; n < window->num_global; n++)
        if (window->global[n] == position)
            return 1;
    return 0;
}

static int window_shows(const attn_window *window, const struct oracle_query *query, int64_t j)
{
    if (j - query->start < window->first_tokens || is_global(window, j) || is_global(window, query->position))
        return 1;
    const __int128 distance = j - query->position;
    return (window->right == ATTN_UNLIMITED || distance <= window->right) &&
           (window->left == ATTN_UNLIMITED || -distance <= window->left);
}

static int block_mask_shows(const attn_block_mask *pattern, const struct oracle_query *query, int64_t j)
{
    const int64_t head = pattern->heads > 1 ? query->h : 0;
    const int64_t n = head * pattern->rows + query->index / pattern->size;
    for (int64_t at = pattern->offsets[n]; at < pattern->offsets[n + 1]; at++)
        if (pattern->columns[at] == j / pattern->size)
            return 1;
    return 0;
}

static int tree_shows(const attn_tree *tree, const struct oracle_query *query, int64_t j)
{
    const int64_t t = j - (query->end - tree->tokens), words = (tree->tokens + 63) / 64;
    if (t < 0)
        return 1;
    return (tree->ancestors[(query->b * query->tq + query->token) * words + t / 64] >> (t % 64)) & 1;
}

float oracle_bias(const attn_params *params, int64_t b, int64_t h, int64_t i, int64_t j)
{
    if (!params->mask || params->mask->dtype == ATTN_BOOL)
        return 0;
    return tensor_get(params->mask, b, h, i, j);
}

int oracle_sees(const attn_params *params, const struct oracle_query *query, int64_t j)
{
    if (query->outside || j < query->start || j >= query->end)
        return 0;
    if (params->causal != ATTN_CAUSAL_NONE && j > query->position && j >= query->prefix)
        return 0;
    if (params->window && !window_shows(params->window, query, j))
        return 0;
    if (params->block_mask && !block_mask_shows(params->block_mask, query, j))
        return 0;
    const int64_t token = query->first_key + j;
    if (params->segments &&
        params->segments->q[query->b * query->tq + query->token] != params->segments->k[query->b * query->tk + token])
        return 0;
    if (params->tree && !tree_shows(params->tree, query, j))
        return 0;
    if (!params->mask)
        return 1;
    if (params->mask->shape[3] != 1 && token >= params->mask->shape[3])
        return 0;
    if (params->mask->dtype == ATTN_BOOL)
        return ((const uint8_t *)
                    params->mask->data)[tensor_offset(params->mask, query->b, query->h, query->token, token)] != 0;
    return !(oracle_bias(params, query->b, query->h, query->token, token) == -INFINITY);
}

int oracle_key_is_live(const attn_params *params, int64_t tq, int64_t tk, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct oracle_query query = oracle_query_at(params, tq, tk, b, h, i);
    const int64_t key = j - query.first_key;
    return key >= 0 && key < query.num_keys && oracle_sees(params, &query, key);
}
