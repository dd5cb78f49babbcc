/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which options a random case has, and those of them that hide keys: windows,
 * block patterns, segments, trees, prefixes, ragged batches.
 *
 * Half of the cases have none, as these take the paths that most callers take;
 * of the others, half have one and half have several, in any combination that
 * the interface allows.
 */
#include "case_draw.h"

#include <string.h>

const char *case_form_name(enum case_form form)
{
    static const char *const names[FORMS] = {
        "query_offset without causality",
        "prefix_len",
        "window",
        "block_mask",
        "segments",
        "tree",
        "ragged",
        "head_scale",
        "softcap",
        "sinks",
        "alibi_slopes",
        "relative_bias",
        "disentangled",
        "rope",
        "callback",
        "dropout",
        "weight_callback",
    };
    return names[form];
}

unsigned case_draw_forms(struct rng *rng)
{
    const int kind = (int)rng_range(rng, 0, 99);
    const int64_t num = kind < 46 ? 0 : kind < 74 ? 1 : rng_range(rng, 2, 6);
    unsigned forms = 0;
    for (int64_t n = 0; n < num; n++)
        forms |= 1u << rng_range(rng, 0, FORMS - 1);
    if (forms & 1u << FORM_ROPE) /* does not go with it */
        forms &= ~(1u << FORM_DISENTANGLED);
    return forms;
}

int64_t case_sequences(const struct test_case *c)
{
    return c->params.ragged ? c->ragged.num_sequences : c->q.shape[0];
}

int64_t case_queries(const struct test_case *c, int64_t sequence)
{
    const int64_t *cu = c->ragged.cu_seqlens_q;
    return c->params.ragged ? cu[sequence + 1] - cu[sequence] : c->q.shape[2];
}

int64_t case_keys(const struct test_case *c, int64_t sequence)
{
    const int64_t *cu = c->ragged.cu_seqlens_k;
    return c->params.ragged ? cu[sequence + 1] - cu[sequence] : c->k.shape[2];
}

void case_draw_ragged(struct test_case *c, int64_t num, const int64_t *queries, const int64_t *keys, struct rng *rng)
{
    int64_t *cu_q = CASE_PLACE(c, SLOT_CU_SEQLENS_Q, int64_t, num + 1, rng);
    int64_t *cu_k = CASE_PLACE(c, SLOT_CU_SEQLENS_K, int64_t, num + 1, rng);
    cu_q[0] = cu_k[0] = 0;
    for (int64_t s = 0; s < num; s++) {
        cu_q[s + 1] = cu_q[s] + queries[s];
        cu_k[s + 1] = cu_k[s] + keys[s];
    }
    c->q.shape[2] = cu_q[num] + (rng_percent(rng, 30) ? rng_range(rng, 1, 9) : 0);
    c->k.shape[2] = c->v.shape[2] = cu_k[num] + (rng_percent(rng, 30) ? rng_range(rng, 1, 9) : 0);
    c->ragged = (attn_ragged){num, cu_q, cu_k};
    c->params.ragged = &c->ragged;
}

/** A number of tokens, from none to more than there are. */
static int64_t draw_reach(int64_t tokens, struct rng *rng)
{
    const int kind = (int)rng_range(rng, 0, 9);
    if (kind <= 1)
        return RNG_PICK(rng, 0, 0, 1, tokens, ATTN_UNLIMITED, ATTN_UNLIMITED - 1);
    return kind <= 5 ? rng_range(rng, 0, tokens / 4 + 2) : rng_range(rng, 0, tokens + 3);
}

static void draw_window(struct test_case *c, struct rng *rng)
{
    const int64_t tk = c->k.shape[2];
    c->window = (attn_window){.left = draw_reach(tk, rng), .right = draw_reach(tk, rng)};
    if (rng_percent(rng, 40))
        c->window.first_tokens = rng_percent(rng, 70) ? rng_range(rng, 1, 5) : draw_reach(tk, rng);
    if (tk > 0 && rng_percent(rng, 40)) {
        int64_t num = 0, position = rng_range(rng, 0, tk - 1);
        int64_t list[16];
        for (; num < 16 && position < tk; num++, position += rng_range(rng, 1, rng_percent(rng, 50) ? 3 : tk))
            list[num] = position;
        int64_t *global = CASE_PLACE(c, SLOT_WINDOW_GLOBAL, int64_t, num, rng);
        memcpy(global, list, (size_t)num * sizeof *list);
        c->window.global = global;
        c->window.num_global = num;
    }
    c->params.window = &c->window;
}

static void draw_block_mask(struct test_case *c, struct rng *rng)
{
    int64_t tq = c->q.shape[2], tk = c->k.shape[2];
    if (c->params.ragged) {
        tq = tk = 0;
        for (int64_t s = 0; s < case_sequences(c); s++) {
            tq = case_queries(c, s) > tq ? case_queries(c, s) : tq;
            tk = case_keys(c, s) > tk ? case_keys(c, s) : tk;
        }
    }
    const int64_t size = RNG_PICK(rng, 16, 16, 16, 32, 48, 64, 128), heads = rng_percent(rng, 50) ? c->q.shape[1] : 1;
    const int64_t rows = (tq + size - 1) / size, columns = (tk + size - 1) / size;
    const int percent = (int)RNG_PICK(rng, 20, 50, 50, 80, 80, 100);
    int64_t *offsets = CASE_PLACE(c, SLOT_BLOCK_OFFSETS, int64_t, heads * rows + 1, rng);
    struct rng twice = *rng; /* once to count them, once to write them */
    for (int pass = 0; pass < 2; pass++) {
        struct rng again = twice;
        int32_t *list = pass ? CASE_PLACE(c, SLOT_BLOCK_COLUMNS, int32_t, offsets[heads * rows], rng) : NULL;
        int64_t n = 0;
        for (int64_t row = 0; row < heads * rows; row++) {
            const int row_percent = rng_percent(&again, 90) ? percent : (int)RNG_PICK(&again, 0, 100);
            offsets[row] = n;
            for (int64_t column = 0; column < columns; column++)
                if (rng_percent(&again, row_percent)) {
                    if (list)
                        list[n] = (int32_t)column;
                    n++;
                }
        }
        offsets[heads * rows] = n;
        c->block_mask.columns = list;
    }
    c->block_mask.size = size;
    c->block_mask.heads = heads == 1 && rng_percent(rng, 50) ? 0 : heads;
    c->block_mask.rows = rows;
    c->block_mask.offsets = offsets;
    c->params.block_mask = &c->block_mask;
}

/** Documents one after the other, or tokens of some documents in any order. */
static void draw_segment_ids(int32_t *ids, int64_t tokens, int runs, int64_t documents, struct rng *rng)
{
    int64_t left = 0, id = 0;
    for (int64_t t = 0; t < tokens; t++) {
        if (runs && left-- <= 0) {
            left = rng_range(rng, 0, 2 * tokens / documents);
            id += t > 0;
        }
        ids[t] = (int32_t)(runs ? id : rng_range(rng, 0, documents - 1) - documents / 2);
    }
}

static void draw_segments(struct test_case *c, struct rng *rng)
{
    const int64_t batch = c->q.shape[0], tq = c->q.shape[2], tk = c->k.shape[2];
    int32_t *q = CASE_PLACE(c, SLOT_SEGMENTS_Q, int32_t, batch * tq, rng);
    int32_t *k = CASE_PLACE(c, SLOT_SEGMENTS_K, int32_t, batch * tk, rng);
    const int runs = rng_percent(rng, 60);
    const int64_t documents = RNG_PICK(rng, 1, 2, 2, 3, 5);
    for (int64_t b = 0; b < batch; b++) {
        draw_segment_ids(q + b * tq, tq, runs, documents, rng);
        draw_segment_ids(k + b * tk, tk, runs, documents, rng);
        if (tq == tk && rng_percent(rng, 80) && tq > 0) /* self-attention */
            memcpy(k + b * tk, q + b * tq, (size_t)tq * sizeof *q);
    }
    c->segments = (attn_segments){q, k};
    c->params.segments = &c->segments;
}

/** One query's bits: its branch of a random tree, or any. */
static void draw_ancestors(uint64_t *bits, int64_t words, int64_t tokens, const int64_t *parent, int64_t own,
                           struct rng *rng)
{
    const int kind = (int)rng_range(rng, 0, 9);
    for (int64_t w = 0; w < words; w++)
        bits[w] = kind == 0 ? rng_bits(rng) : kind == 1 ? ~(uint64_t)0 : 0;
    for (int64_t t = own; kind > 2 && t >= 0; t = parent[t])
        bits[t / 64] |= (uint64_t)1 << (t % 64);
    if (tokens % 64 && rng_percent(rng, 50)) /* bits that stand for no token */
        bits[words - 1] |= rng_bits(rng) << (tokens % 64);
}

static void draw_tree(struct test_case *c, struct rng *rng)
{
    int64_t least = 70, parent[70];
    for (int64_t s = 0; s < case_sequences(c); s++) {
        const int64_t end = c->params.kv_len ? c->params.kv_len[s] : case_keys(c, s);
        const int64_t live = end - (c->params.kv_start ? c->params.kv_start[s] : 0);
        least = live < least ? live : least;
    }
    const int64_t tokens = rng_percent(rng, 30) ? least : rng_range(rng, 1, least), words = (tokens + 63) / 64;
    const int chain = rng_percent(rng, 30);
    for (int64_t t = 0; t < tokens; t++)
        parent[t] = chain ? t - 1 : rng_range(rng, -1, t - 1);
    const int64_t rows = c->q.shape[0] * c->q.shape[2];
    uint64_t *ancestors = CASE_PLACE(c, SLOT_ANCESTORS, uint64_t, rows * words, rng);
    for (int64_t row = 0; row < rows; row++)
        draw_ancestors(ancestors + row * words, words, tokens, parent, row % c->q.shape[2] % tokens, rng);
    c->tree = (attn_tree){tokens, ancestors};
    c->params.tree = &c->tree;
}

void case_draw_hiding(struct test_case *c, struct rng *rng)
{
    const int64_t sequences = case_sequences(c);
    if (case_has(c, FORM_PREFIX_LEN) && c->params.causal != ATTN_CAUSAL_NONE) { /* without effect it is an error */
        int64_t *prefix = CASE_PLACE(c, SLOT_PREFIX_LEN, int64_t, sequences, rng);
        for (int64_t s = 0; s < sequences; s++)
            prefix[s] = draw_reach(case_keys(c, s), rng);
        c->params.prefix_len = prefix;
    }
    if (case_has(c, FORM_WINDOW))
        draw_window(c, rng);
    if (case_has(c, FORM_BLOCK_MASK))
        draw_block_mask(c, rng);
    if (case_has(c, FORM_SEGMENTS))
        draw_segments(c, rng);
    if (case_has(c, FORM_TREE))
        draw_tree(c, rng);
}
