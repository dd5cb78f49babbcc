/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the calls of split_case.h. Their values are random with a fixed seed. */
#include "split_case.h"

#include "dtype.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>

attn_tensor split_tensor(attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c)
{
    attn_tensor x = attn_bhtd(malloc((size_t)(b * h * t * c) * attn_dtype_size(dtype)), b, h, t, c);
    assert_non_null(x.data);
    x.dtype = dtype;
    return x;
}

static attn_tensor normal_tensor(struct rng *rng, attn_dtype dtype, int64_t b, int64_t h, int64_t t, int64_t c)
{
    const attn_tensor x = split_tensor(dtype, b, h, t, c);
    for (int64_t i = 0; i < b * h * t * c; i++)
        dtype_store(dtype, x.data, i, rng_normal(rng));
    return x;
}

static void hide_second_split(const attn_score_tile *tile, void *user)
{
    (void)user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++)
            if ((tile->first_key + j) / SPLIT == 1 && (tile->first_query + i + tile->head) % 2)
                tile->scores[j * tile->key_stride + i] = -INFINITY;
}

/** Keys that a bool mask shows: none of the first split to any query, or none of the second one to the first. */
static int shows(struct rng *rng, int64_t dead, int64_t i, int64_t j)
{
    return j / SPLIT == dead ? dead == 1 && i > 0 && rng_percent(rng, 60) : j % 1000 > 300 && rng_percent(rng, 80);
}

static void fill_mask(struct split_case *c, struct rng *rng, enum split_kind kind)
{
    const int64_t heads = c->q.shape[1], tq = c->q.shape[2], tk = c->k.shape[2], dead = rng_percent(rng, 50);
    c->mask = split_tensor(kind == FLOAT_MASK ? ATTN_F32 : ATTN_BOOL, 1, heads, tq, tk);
    for (int64_t i = 0; i < heads * tq * tk; i++) {
        const int seen = shows(rng, dead, i / tk % tq, i % tk);
        if (kind == FLOAT_MASK)
            ((float *)c->mask.data)[i] = seen ? rng_normal(rng) : -INFINITY;
        else
            ((uint8_t *)c->mask.data)[i] = (uint8_t)seen;
    }
    c->params.mask = &c->mask;
    if (kind != NAN_KEY)
        return;
    for (int64_t h = 0; h < c->k.shape[1]; h++) {
        tensor_set(&c->k, 0, h, SPLIT + 77, 0, NAN);
        tensor_set(&c->v, 0, h, 2 * SPLIT + 5, 0, NAN);
    }
}

static void fill_labels(struct split_case *c, struct rng *rng)
{
    for (int64_t i = 0; i < MOST_ROWS; i++)
        c->q_labels[i] = (int32_t)rng_range(rng, 0, 2);
    for (int64_t j = 0; j < MOST_KEYS; j++) /* the second split holds nothing but label 7 */
        c->k_labels[j] = j / SPLIT == 1 ? 7 : (int32_t)(j / 700 % 3);
    c->segments = (attn_segments){c->q_labels, c->k_labels};
    c->params.segments = &c->segments;
}

static void fill_pattern(struct split_case *c, struct rng *rng)
{
    const int64_t rows = (c->q.shape[2] + 15) / 16, columns = (c->k.shape[2] + 15) / 16;
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r++) {
        c->offsets[r] = n;
        for (int64_t j = 0; j < columns; j++)
            if (j * 16 / SPLIT != (r + 1) % 2 && rng_percent(rng, 40))
                c->columns[n++] = (int32_t)j;
    }
    c->offsets[rows] = n;
    c->pattern = (attn_block_mask){16, 1, rows, c->offsets, c->columns};
    c->params.block_mask = &c->pattern;
}

static void fill_terms(struct split_case *c, struct rng *rng, enum split_kind kind)
{
    attn_params *p = &c->params;
    const int64_t tq = c->q.shape[2], tk = c->k.shape[2], pairs = c->q.shape[3] / 2;
    for (int h = 0; h < MOST_HEADS; h++)
        c->numbers[h] = kind == ALIBI ? 0.001f * (float)(h + 1) : h == 1 ? -INFINITY : 2 * rng_normal(rng);
    if (kind == SINKS || kind == WINDOW || kind == WINDOW_TOKENS)
        p->sinks = c->numbers;
    if (kind == ALIBI)
        p->alibi_slopes = c->numbers;
    if (kind == ROPE) {
        c->rope_q = normal_tensor(rng, ATTN_F32, 1, 1, tq, 2 * pairs);
        c->rope_k = normal_tensor(rng, ATTN_F32, 1, 1, tk, 2 * pairs);
        c->rope = (attn_rope_tables){ATTN_ROPE_HALF_SPLIT, &c->rope_q, &c->rope_k};
        p->rope = &c->rope;
    }
    c->dropout = (attn_dropout){0.25f, 3, 4};
    p->dropout = kind == DROPOUT ? &c->dropout : NULL;
    p->callback = kind == CALLBACK ? hide_second_split : NULL;
    p->softcap = kind == FLOAT_MASK ? 5.0f : 0.0f;
    p->qk = kind == INT8 ? ATTN_QK_INT8 : ATTN_QK_DEFAULT;
}

static void fill_places(struct split_case *c, struct rng *rng, enum split_kind kind)
{
    attn_params *p = &c->params;
    const int64_t tq = c->q.shape[2], tk = c->k.shape[2];
    const int windowed = kind == WINDOW || kind == WINDOW_TOKENS;
    c->kv_start[0] = rng_range(rng, 1, 300);
    c->kv_len[0] = tk - rng_range(rng, 0, 99);
    c->kv_start[1] = c->kv_len[1] = 5;
    if (kind == LENGTHS || kind == SINKS) {
        p->kv_start = c->kv_start;
        p->kv_len = c->kv_len;
    }
    p->causal = kind == LAST || kind == TREE || windowed ? ATTN_CAUSAL_BOTTOM_RIGHT
                : kind == OFFSET || kind == PREFIX       ? ATTN_CAUSAL_OFFSET
                                                         : ATTN_CAUSAL_NONE;
    c->offset[0] = kind == PREFIX ? 100 : 2 * SPLIT - tq / 2;
    p->query_offset = p->causal == ATTN_CAUSAL_OFFSET ? c->offset : NULL;
    c->prefix[0] = SPLIT + 300;
    p->prefix_len = kind == PREFIX ? c->prefix : NULL;
    c->globals[0] = SPLIT / 2;
    c->globals[1] = tk - 1;
    c->window = (attn_window){.left = kind == WINDOW ? tk - 2 * SPLIT - tq / 2 : 200,
                              .right = ATTN_UNLIMITED,
                              .first_tokens = kind == WINDOW ? 0 : 4,
                              .global = c->globals,
                              .num_global = kind == WINDOW ? 0 : 2};
    p->window = windowed ? &c->window : NULL;
    for (int i = 0; i < 2 * MOST_ROWS; i++)
        c->ancestors[i] = rng_bits(rng) | 1;
    c->tree = (attn_tree){4, c->ancestors};
    p->tree = kind == TREE ? &c->tree : NULL;
}

/** Memory of a case; its outputs hold a pattern. */
struct split_case *split_case_make(const char *isa, attn_dtype dtype, enum split_kind kind, const int64_t shape[5],
                                   uint64_t number)
{
    struct rng rng = rng_for_case(0x5711, number);
    struct split_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    const int64_t batch = kind == LENGTHS || kind == SINKS ? 2 : 1, heads = shape[0], tq = shape[2];
    const int64_t tk = 2 * SPLIT + rng_range(&rng, 100, SPLIT);
    c->params = attn_params_default();
    c->params.isa = isa;
    c->q = normal_tensor(&rng, dtype, batch, heads, tq, shape[3]);
    c->k = normal_tensor(&rng, dtype, batch, shape[1], tk, shape[3]);
    c->v = normal_tensor(&rng, dtype, batch, shape[1], tk, shape[4]);
    for (int i = 0; i < 2; i++) {
        c->out[i] = split_tensor(dtype, batch, heads, tq, shape[4]);
        c->lse[i] = split_tensor(ATTN_F32, batch, heads, tq, 1);
    }
    fill_places(c, &rng, kind);
    fill_terms(c, &rng, kind);
    if (kind == BOOL_MASK || kind == FLOAT_MASK || kind == NAN_KEY)
        fill_mask(c, &rng, kind);
    if (kind == SEGMENTS)
        fill_labels(c, &rng);
    if (kind == PATTERN)
        fill_pattern(c, &rng);
    return c;
}

void split_case_free(struct split_case *c)
{
    void *const data[] = {c->q.data,      c->k.data,      c->v.data,      c->mask.data,   c->out[0].data,
                          c->out[1].data, c->lse[0].data, c->lse[1].data, c->rope_q.data, c->rope_k.data};
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        free(data[i]);
    free(c);
}
