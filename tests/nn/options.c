/* SPDX-License-Identifier: Apache-2.0 */
/* Draws options of attention. Each comes by itself, so most pairs of them come together. */
#include "options.h"

static void draw_mask(struct options *o, struct memory *m, const struct options_for *of)
{
    const int64_t shape[4] = {rng_percent(&m->rng, 50) ? of->batch : 1, rng_percent(&m->rng, 50) ? of->heads : 1,
                              rng_percent(&m->rng, 70) ? of->tq : 1, of->tk};
    const int64_t n = shape[0] * shape[1] * shape[2] * shape[3];
    const int boolean = rng_percent(&m->rng, 50);
    o->mask = attn_bhtd(bytes(m, (size_t)n * sizeof(float)), shape[0], shape[1], shape[2], shape[3]);
    o->mask.dtype = boolean ? ATTN_BOOL : ATTN_F32;
    for (int64_t i = 0; i < n; i++)
        if (boolean)
            ((uint8_t *)o->mask.data)[i] = (uint8_t)rng_percent(&m->rng, 75);
        else
            ((float *)o->mask.data)[i] = rng_percent(&m->rng, 20) ? -INFINITY : rng_normal(&m->rng);
    for (int axis = 0; axis < 4; axis++)
        if (shape[axis] == 1)
            o->mask.stride[axis] = 0;
    o->params.mask = &o->mask;
}

static attn_tensor rope_table(struct memory *m, int64_t tokens, int64_t pairs)
{
    attn_rope_config config = attn_rope_config_default();
    config.pairs = pairs;
    const attn_tensor table = place_dense(m, 1, 1, tokens, 2 * pairs);
    OK(attn_rope_table(&config, NULL, tokens, table.data));
    mark_input(m, &table);
    return table;
}

struct options *random_options(struct memory *m, const struct options_for *of)
{
    struct options *o = memset(bytes(m, sizeof *o), 0, sizeof *o);
    struct rng *rng = &m->rng;
    o->params = attn_params_default();
    o->params.num_threads = (int)rng_range(rng, 0, 3);
    if (rng_percent(rng, 40)) {
        o->kv_len = bytes(m, (size_t)of->batch * sizeof *o->kv_len);
        for (int64_t b = 0; b < of->batch; b++)
            o->kv_len[b] = rng_range(rng, 0, of->tk);
        o->params.kv_len = o->kv_len;
    }
    if (rng_percent(rng, 20)) {
        int64_t *start = bytes(m, (size_t)of->batch * sizeof *start);
        for (int64_t b = 0; b < of->batch; b++)
            start[b] = rng_range(rng, 0, o->kv_len ? o->kv_len[b] : of->tk);
        o->params.kv_start = start;
    }
    if (rng_percent(rng, 40))
        o->params.causal = (attn_causal)rng_range(rng, ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_OFFSET);
    if (o->params.causal == ATTN_CAUSAL_OFFSET) {
        int64_t *offset = bytes(m, (size_t)of->batch * sizeof *offset);
        for (int64_t b = 0; b < of->batch; b++)
            offset[b] = rng_range(rng, -2, of->tk);
        o->params.query_offset = offset;
    }
    if (rng_percent(rng, 30) && of->tk)
        draw_mask(o, m, of);
    if (rng_percent(rng, 40)) {
        o->weights = place_dense(m, of->batch, of->heads, of->tq, of->tk);
        o->params.weights = &o->weights;
    }
    if (of->additive_scores)
        return o;
    if (rng_percent(rng, 15)) {
        o->window = (attn_window){.left = rng_range(rng, 0, 9), .right = rng_range(rng, 0, 9)};
        o->params.window = &o->window;
    }
    if (rng_percent(rng, 15)) {
        o->dropout = (attn_dropout){.p = 0.3f, .seed = rng_bits(rng), .offset = 5};
        o->params.dropout = &o->dropout;
    }
    if (rng_percent(rng, 15))
        o->params.softcap = 2;
    if (rng_percent(rng, 15)) {
        float *slopes = bytes(m, (size_t)of->heads * sizeof *slopes);
        for (int64_t h = 0; h < of->heads; h++)
            slopes[h] = 0.3f / (float)(h + 1);
        o->params.alibi_slopes = slopes;
    }
    if (rng_percent(rng, 15)) {
        enum { BUCKETS = 8 };
        float *table = bytes(m, (size_t)of->heads * BUCKETS * sizeof *table);
        for (int64_t i = 0; i < of->heads * BUCKETS; i++)
            table[i] = rng_normal(rng);
        o->bias = (attn_relative_bias){ATTN_BUCKETS_T5_BIDIRECTIONAL, BUCKETS, 20, table};
        o->params.relative_bias = &o->bias;
    }
    if (of->dk == 0) /* unknown to the test, or the score function's own */
        return o;
    if (rng_percent(rng, 15))
        o->params.temperature = 1.5f;
    if (rng_percent(rng, 20) && of->dk > 1) {
        const int64_t pairs = rng_range(rng, 1, of->dk / 2);
        o->rope_q = rope_table(m, of->tq, pairs);
        o->rope_k = rope_table(m, of->tk, pairs);
        o->rope = (attn_rope_tables){(attn_rope_layout)rng_range(rng, 0, 1), &o->rope_q, &o->rope_k};
        o->params.rope = &o->rope;
    }
    return o;
}

void *place_workspace(struct memory *m, size_t size)
{
    struct buffer *b = &m->buffers[m->num_buffers++];
    assert_true(m->num_buffers <= MEMORY_BUFFERS);
    b->size = size;
    b->guard = guard_create(size);
    b->tensor = attn_vector(guard_place(&b->guard, size, 1), (int64_t)size);
    b->tensor.dtype = ATTN_U8;
    return b->tensor.data;
}
