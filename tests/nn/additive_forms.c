/* SPDX-License-Identifier: Apache-2.0 */
/* Draws what hides keys from the queries of additive attention. Each comes by itself, so most pairs come together. */
#include "additive_forms.h"

/** Offsets of sequences that have all tokens but a few. */
static int64_t *draw_offsets(struct memory *m, int64_t sequences, int64_t tokens)
{
    int64_t *offsets = bytes(m, (size_t)(sequences + 1) * sizeof *offsets), end = 0;
    offsets[0] = 0;
    for (int64_t s = 1; s <= sequences; s++)
        offsets[s] = end = s == sequences && rng_percent(&m->rng, 70) ? tokens : rng_range(&m->rng, end, tokens);
    return offsets;
}

static void draw_ragged(struct additive_form *f, struct memory *m, int64_t tq, int64_t tk)
{
    f->sequences = rng_range(&m->rng, 0, 5);
    f->ragged = (attn_ragged){.num_sequences = f->sequences,
                              .cu_seqlens_q = draw_offsets(m, f->sequences, tq),
                              .cu_seqlens_k = draw_offsets(m, f->sequences, tk)};
    f->params.ragged = &f->ragged;
}

/** Keys that sequence s has. */
static int64_t keys_of(const struct additive_form *f, int64_t s, int64_t tk)
{
    return f->params.ragged ? f->ragged.cu_seqlens_k[s + 1] - f->ragged.cu_seqlens_k[s] : tk;
}

static void draw_lengths(struct additive_form *f, struct memory *m, int64_t tk)
{
    struct rng *rng = &m->rng;
    int64_t *len = NULL, *start = NULL;
    if (rng_percent(rng, 40)) {
        len = bytes(m, (size_t)f->sequences * sizeof *len);
        for (int64_t s = 0; s < f->sequences; s++)
            len[s] = rng_range(rng, 0, keys_of(f, s, tk));
    }
    if (rng_percent(rng, 25)) {
        start = bytes(m, (size_t)f->sequences * sizeof *start);
        for (int64_t s = 0; s < f->sequences; s++)
            start[s] = rng_range(rng, 0, len ? len[s] : keys_of(f, s, tk));
    }
    f->params.kv_len = len;
    f->params.kv_start = start;
}

static void draw_causality(struct additive_form *f, struct memory *m, int64_t tk)
{
    struct rng *rng = &m->rng;
    attn_params *p = &f->params;
    if (rng_percent(rng, 50))
        p->causal = (attn_causal)rng_range(rng, ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_OFFSET);
    if (p->causal == ATTN_CAUSAL_OFFSET || (p->causal == ATTN_CAUSAL_NONE && rng_percent(rng, 20))) {
        int64_t *offset = bytes(m, (size_t)f->sequences * sizeof *offset);
        for (int64_t s = 0; s < f->sequences; s++)
            offset[s] = rng_percent(rng, 5) ? (rng_percent(rng, 50) ? INT64_MAX : INT64_MIN) : rng_range(rng, -3, tk);
        p->query_offset = offset;
    }
    if (p->causal != ATTN_CAUSAL_NONE && rng_percent(rng, 30)) {
        int64_t *prefix = bytes(m, (size_t)f->sequences * sizeof *prefix);
        for (int64_t s = 0; s < f->sequences; s++)
            prefix[s] = rng_range(rng, 0, tk + 2);
        p->prefix_len = prefix;
    }
}

static void draw_window(struct additive_form *f, struct memory *m, int64_t tk)
{
    struct rng *rng = &m->rng;
    f->window.left = rng_percent(rng, 15) ? ATTN_UNLIMITED : rng_range(rng, 0, rng_percent(rng, 50) ? 5 : tk);
    f->window.right = rng_percent(rng, 15) ? ATTN_UNLIMITED : rng_range(rng, 0, rng_percent(rng, 50) ? 5 : tk);
    f->window.first_tokens = rng_percent(rng, 40) ? rng_range(rng, 0, 4) : 0;
    if (rng_percent(rng, 40)) {
        int64_t *global = bytes(m, (size_t)(tk + 1) * sizeof *global), count = 0;
        for (int64_t j = 0; j < tk; j++)
            if (rng_percent(rng, 6))
                global[count++] = j;
        f->window.global = count ? global : NULL;
        f->window.num_global = count;
    }
    f->params.window = &f->window;
}

static void draw_blocks(struct additive_form *f, struct memory *m, int64_t tq, int64_t tk)
{
    struct rng *rng = &m->rng;
    const int64_t size = RNG_PICK(rng, 16, 32, 48), columns = (tk + size - 1) / size;
    int64_t longest = f->params.ragged ? 0 : tq;
    for (int64_t s = 0; f->params.ragged && s < f->sequences; s++) {
        const int64_t queries = f->ragged.cu_seqlens_q[s + 1] - f->ragged.cu_seqlens_q[s];
        longest = queries > longest ? queries : longest;
    }
    const int64_t rows = (longest + size - 1) / size;
    int64_t *offsets = bytes(m, (size_t)(rows + 1) * sizeof *offsets);
    int32_t *listed = bytes(m, (size_t)(rows * columns + 1) * sizeof *listed);
    offsets[0] = 0;
    for (int64_t r = 0; r < rows; r++) {
        offsets[r + 1] = offsets[r];
        for (int64_t c = 0; c < columns; c++)
            if (rng_percent(rng, 60))
                listed[offsets[r + 1]++] = (int32_t)c;
    }
    f->blocks = (attn_block_mask){.size = size, .heads = 1, .rows = rows, .offsets = offsets, .columns = listed};
    f->params.block_mask = &f->blocks;
}

static void draw_segments(struct additive_form *f, struct memory *m, int64_t batch, int64_t tq, int64_t tk)
{
    struct rng *rng = &m->rng;
    int32_t *q = bytes(m, (size_t)(batch * tq) * sizeof *q), *k = bytes(m, (size_t)(batch * tk) * sizeof *k);
    const int sorted = rng_percent(rng, 50), labels = (int)rng_range(rng, 1, 4);
    for (int64_t i = 0; i < batch * tq; i++)
        q[i] = (int32_t)(sorted ? i % tq * labels / tq : rng_range(rng, -1, labels));
    for (int64_t j = 0; j < batch * tk; j++)
        k[j] = (int32_t)(sorted ? j % tk * labels / tk : rng_range(rng, -1, labels));
    f->segments = (attn_segments){q, k};
    f->params.segments = &f->segments;
}

static void draw_tree(struct additive_form *f, struct memory *m, int64_t batch, int64_t tq, int64_t tk)
{
    f->tree.tokens = rng_range(&m->rng, 1, tk);
    const int64_t words = batch * tq * ((f->tree.tokens + 63) / 64);
    uint64_t *bits = bytes(m, (size_t)words * sizeof *bits);
    for (int64_t i = 0; i < words; i++)
        bits[i] = rng_bits(&m->rng);
    f->tree.ancestors = bits;
    f->params.tree = &f->tree;
}

static void draw_mask(struct additive_form *f, struct memory *m, int64_t batch, int64_t tq, int64_t tk)
{
    struct rng *rng = &m->rng;
    const int64_t length = rng_percent(rng, 10) ? 1 : rng_percent(rng, 15) ? rng_range(rng, 0, tk) : tk;
    const int64_t shape[4] = {rng_percent(rng, 50) ? batch : 1, 1, rng_percent(rng, 70) ? tq : 1, length};
    const int64_t n = shape[0] * shape[2] * shape[3];
    f->mask = attn_bhtd(bytes(m, (size_t)(n + 1) * sizeof(float)), shape[0], 1, shape[2], shape[3]);
    f->mask.dtype = (attn_dtype)RNG_PICK(rng, ATTN_BOOL, ATTN_F32, ATTN_BF16, ATTN_F16);
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t i = 0; i < shape[2]; i++)
            for (int64_t j = 0; j < shape[3]; j++) {
                const float x = rng_percent(rng, 20) ? -INFINITY : rng_normal(rng);
                if (f->mask.dtype == ATTN_BOOL)
                    ((uint8_t *)f->mask.data)[(b * shape[2] + i) * shape[3] + j] = (uint8_t)(x > -0.7f);
                else
                    tensor_set(&f->mask, b, 0, i, j, x);
            }
    for (int axis = 0; axis < 4; axis++)
        if (shape[axis] == 1)
            f->mask.stride[axis] = 0;
    f->params.mask = &f->mask;
}

struct additive_form *random_additive_form(struct memory *m, int64_t batch, int64_t tq, int64_t tk)
{
    struct additive_form *f = memset(bytes(m, sizeof *f), 0, sizeof *f);
    struct rng *rng = &m->rng;
    f->params = attn_params_default();
    f->params.num_threads = (int)rng_range(rng, 0, 3);
    f->sequences = batch;
    if (batch == 1 && rng_percent(rng, 25))
        draw_ragged(f, m, tq, tk);
    draw_lengths(f, m, tk);
    draw_causality(f, m, tk);
    if (rng_percent(rng, 25))
        draw_window(f, m, tk);
    if (rng_percent(rng, 15))
        draw_blocks(f, m, tq, tk);
    if (rng_percent(rng, 25) && tq > 0 && tk > 0)
        draw_segments(f, m, batch, tq, tk);
    if (rng_percent(rng, 15) && tk > 0 && !f->params.ragged && !f->params.kv_len && !f->params.kv_start)
        draw_tree(f, m, batch, tq, tk);
    if (rng_percent(rng, 30))
        draw_mask(f, m, batch, tq, tk);
    return f;
}
