/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts live pairs of query and key. They are counted row by row where causality, lengths and a window
 * hide keys, block by block for a block pattern, document by document, and one by
 * one for masks and trees.
 */
#include "pairs.h"

#include <stdlib.h>

int64_t bench_num_sequences(const struct bench_problem *p)
{
    return p->params.ragged != NULL ? p->params.ragged->num_sequences : p->batch;
}

int64_t bench_num_queries(const struct bench_problem *p, int64_t s)
{
    const attn_ragged *ragged = p->params.ragged;
    return ragged != NULL ? ragged->cu_seqlens_q[s + 1] - ragged->cu_seqlens_q[s] : p->tq;
}

int64_t bench_num_keys(const struct bench_problem *p, int64_t s)
{
    const attn_ragged *ragged = p->params.ragged;
    const int64_t keys = ragged != NULL ? ragged->cu_seqlens_k[s + 1] - ragged->cu_seqlens_k[s] : p->tk;
    return p->params.kv_len != NULL ? p->params.kv_len[s] : keys;
}

int64_t bench_position(const struct bench_problem *p, int64_t s, int64_t i)
{
    return p->params.causal == ATTN_CAUSAL_BOTTOM_RIGHT ? i + bench_num_keys(p, s) - bench_num_queries(p, s) : i;
}

int64_t bench_key_end(const struct bench_problem *p, int64_t s, int64_t i)
{
    const int64_t keys = bench_num_keys(p, s);
    if (p->params.causal == ATTN_CAUSAL_NONE)
        return keys;
    const int64_t prefix = p->params.prefix_len != NULL ? p->params.prefix_len[s] : 0;
    const int64_t behind = bench_position(p, s, i) + 1;
    const int64_t end = behind > prefix ? behind : prefix;
    return end < keys ? end : keys;
}

static bool is_global(const attn_window *window, int64_t position)
{
    for (int64_t n = 0; n < window->num_global; n++)
        if (window->global[n] == position)
            return true;
    return false;
}

static bool in_window(const attn_window *window, int64_t position, int64_t j)
{
    if (position - j <= window->left && j - position <= window->right)
        return true;
    return j < window->first_tokens || is_global(window, position) || is_global(window, j);
}

static bool in_pattern(const attn_block_mask *blocks, int64_t h, int64_t i, int64_t j)
{
    const int64_t n = (blocks->heads > 1 ? h * blocks->rows : 0) + i / blocks->size;
    for (int64_t at = blocks->offsets[n]; at < blocks->offsets[n + 1]; at++)
        if (blocks->columns[at] == j / blocks->size)
            return true;
    return false;
}

static bool in_tree(const struct bench_problem *p, int64_t s, int64_t i, int64_t j)
{
    const attn_tree *tree = p->params.tree;
    const int64_t words = (tree->tokens + 63) / 64, token = j - (bench_num_keys(p, s) - tree->tokens);
    return token < 0 || (tree->ancestors[(s * p->tq + i) * words + token / 64] >> token % 64 & 1) != 0;
}

bool bench_pair_live(const struct bench_problem *p, int64_t s, int64_t h, int64_t i, int64_t j)
{
    const attn_params *o = &p->params;
    if (j >= bench_key_end(p, s, i))
        return false;
    if (o->mask != NULL && ((const uint8_t *)o->mask->data)[s * o->mask->stride[0] + i * o->mask->stride[2] + j] == 0)
        return false;
    if (o->window != NULL && !in_window(o->window, bench_position(p, s, i), j))
        return false;
    if (o->block_mask != NULL && !in_pattern(o->block_mask, h, i, j))
        return false;
    if (o->segments != NULL && o->segments->q[s * p->tq + i] != o->segments->k[s * p->tk + j])
        return false;
    return o->tree == NULL || in_tree(p, s, i, j);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The pattern of one sequence, where nothing else hides keys. */
static int64_t count_listed(const struct bench_problem *p, const attn_block_mask *blocks)
{
    int64_t pairs = 0;
    for (int64_t n = 0; n < blocks->heads * blocks->rows; n++) {
        const int64_t queries = least(blocks->size, p->tq - n % blocks->rows * blocks->size);
        for (int64_t at = blocks->offsets[n]; at < blocks->offsets[n + 1]; at++)
            pairs += queries * least(blocks->size, p->tk - blocks->columns[at] * blocks->size);
    }
    return blocks->heads > 1 ? pairs : pairs * p->bcase->heads;
}

/* Keys before end that a window leaves to a query. */
static int64_t count_window(const attn_window *window, int64_t position, int64_t end)
{
    if (is_global(window, position))
        return end;
    const int64_t from = position > window->left ? position - window->left : 0;
    const int64_t to = window->right < end - position ? position + window->right + 1 : end;
    const int64_t first = least(window->first_tokens, end);
    int64_t keys = to > from ? to - from : 0;
    keys += from < first ? from : first;              /* first tokens before it, ... */
    keys += first > to && to > from ? first - to : 0; /* ... and behind it */
    for (int64_t n = 0; n < window->num_global; n++) {
        const int64_t j = window->global[n];
        keys += j < end && j >= first && (j < from || j >= to);
    }
    return keys;
}

/* Documents of one sequence, where nothing else hides keys; labels are 0 or more. -1 when memory is short. */
static int64_t count_segments(const int32_t *q, int64_t num_queries, const int32_t *k, int64_t num_keys)
{
    int32_t last = 0;
    for (int64_t j = 0; j < num_keys; j++)
        last = k[j] > last ? k[j] : last;
    int64_t *keys = calloc((size_t)last + 1, sizeof *keys), pairs = 0;
    if (keys == NULL)
        return -1;
    for (int64_t j = 0; j < num_keys; j++)
        keys[k[j]]++;
    for (int64_t i = 0; i < num_queries; i++)
        pairs += q[i] <= last ? keys[q[i]] : 0;
    free(keys);
    return pairs;
}

static int64_t count_row(const struct bench_problem *p, int64_t s, int64_t i)
{
    const attn_params *o = &p->params;
    const int64_t end = bench_key_end(p, s, i);
    int64_t pairs = 0;
    if (o->mask == NULL && o->tree == NULL && o->segments == NULL)
        return o->window != NULL ? count_window(o->window, bench_position(p, s, i), end) : end;
    for (int64_t j = 0; j < end; j++)
        pairs += bench_pair_live(p, s, 0, i, j);
    return pairs;
}

int bench_count_pairs(const struct bench_problem *p, double *live_pairs)
{
    const attn_params *o = &p->params;
    int64_t pairs = 0;
    if (o->block_mask != NULL) {
        *live_pairs = (double)(p->batch * count_listed(p, o->block_mask));
        return 0;
    }
    const bool documents =
        o->segments != NULL && o->causal == ATTN_CAUSAL_NONE && o->mask == NULL && o->window == NULL && o->tree == NULL;
    for (int64_t s = 0; s < bench_num_sequences(p); s++) {
        if (!documents) {
            for (int64_t i = 0; i < bench_num_queries(p, s); i++)
                pairs += count_row(p, s, i);
            continue;
        }
        const int64_t more =
            count_segments(o->segments->q + s * p->tq, p->tq, o->segments->k + s * p->tk, bench_num_keys(p, s));
        if (more < 0)
            return -1;
        pairs += more;
    }
    *live_pairs = (double)(pairs * p->bcase->heads);
    return 0;
}
