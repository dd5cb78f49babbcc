/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Query first of a sequence is query 0 of the part, so the part's offset is the
 * sequence's plus first, and what goes along the queries starts at first. Blocks
 * of a pattern are counted from query 0: where first is inside of one, the part
 * ends with that block.
 */
#include "part.h"

#include <stdlib.h>

/* The part of a tensor that starts at one batch element, head and token. Broadcast axes stay at their only element. */
static attn_tensor slice(const attn_tensor *whole, int64_t batch, int64_t head, int64_t token, int64_t tokens)
{
    attn_tensor t = *whole;
    const int64_t at[3] = {batch, head, token};
    int64_t skip = 0;
    for (int axis = 0; axis < 3; axis++)
        skip += t.shape[axis] > 1 ? at[axis] * t.stride[axis] : 0;
    /* Without channels there is nothing to point at. */
    if (t.shape[3] > 0)
        t.data = (char *)t.data + (size_t)skip * attn_dtype_size(t.dtype);
    t.shape[2] = t.shape[2] > 1 ? tokens : t.shape[2];
    t.shape[0] = t.shape[1] = 1;
    return t;
}

/* The sequence of a query among the tokens of a ragged batch, or the number of sequences. */
static int64_t find_sequence(const attn_ragged *ragged, int64_t query)
{
    int64_t s = 0;
    while (s < ragged->num_sequences && ragged->cu_seqlens_q[s + 1] <= query)
        s++;
    return s;
}

int64_t part_limit(const struct inputs *in, int64_t first, int64_t count)
{
    const attn_ragged *ragged = in->params.ragged;
    int64_t begin = 0;
    if (ragged != NULL) {
        int64_t s = find_sequence(ragged, first);
        if (s == ragged->num_sequences)
            return 0;
        begin = ragged->cu_seqlens_q[s];
        int64_t left = ragged->cu_seqlens_q[s + 1] - first;
        count = left < count ? left : count;
    }
    if (in->params.block_mask == NULL)
        return count;
    int64_t inside = (first - begin) % in->params.block_mask->size;
    int64_t left = in->params.block_mask->size - inside;
    return inside > 0 && left < count ? left : count;
}

static bool slice_blocks(struct part *p, const attn_block_mask *whole, int64_t first, int64_t count,
                         struct io_error *error)
{
    int64_t row = first / whole->size, rows = (count - 1) / whole->size + 1;
    p->block_offsets = calloc((size_t)rows + 1, sizeof *p->block_offsets);
    if (p->block_offsets == NULL)
        return io_fail(error, "out of memory");
    for (int64_t n = 0; n <= rows; n++)
        p->block_offsets[n] = whole->offsets[row + n] - whole->offsets[row];
    /* The patterns of the command are the same for all heads. */
    p->blocks = (attn_block_mask){.size = whole->size,
                                  .heads = 1,
                                  .rows = rows,
                                  .offsets = p->block_offsets,
                                  .columns = whole->columns + whole->offsets[row]};
    p->params.block_mask = &p->blocks;
    return true;
}

/* What has one value per sequence; last is the index in the part of the sequence that has the queries. */
static void slice_sequence(struct part *p, const attn_params *whole, const struct sequence *s, int64_t index,
                           int64_t first, int64_t count)
{
    int last = whole->ragged != NULL ? 1 : 0;
    if (whole->ragged != NULL) {
        p->cu_q[2] = count;
        p->cu_k[1] = s->first_key;
        p->cu_k[2] = s->first_key + s->keys;
        p->ragged = (attn_ragged){2, p->cu_q, p->cu_k};
        p->params.ragged = &p->ragged;
    }
    p->params.causal = whole->causal == ATTN_CAUSAL_NONE ? ATTN_CAUSAL_NONE : ATTN_CAUSAL_OFFSET;
    p->query_offset[last] = s->offset + first - s->first_query;
    p->params.query_offset = p->query_offset;
    if (whole->kv_len != NULL) {
        p->kv_len[last] = whole->kv_len[index];
        p->params.kv_len = p->kv_len;
    }
    if (whole->kv_start != NULL) {
        p->kv_start[last] = whole->kv_start[index];
        p->params.kv_start = p->kv_start;
    }
    if (whole->prefix_len != NULL) {
        p->prefix_len[last] = whole->prefix_len[index];
        p->params.prefix_len = p->prefix_len;
    }
}

/* What has one value or row per head. */
static void slice_head(struct part *p, const attn_params *whole, int64_t head)
{
    if (whole->head_scale != NULL)
        p->params.head_scale = whole->head_scale + head;
    if (whole->sinks != NULL)
        p->params.sinks = whole->sinks + head;
    if (whole->alibi_slopes != NULL)
        p->params.alibi_slopes = whole->alibi_slopes + head;
    if (whole->relative_bias != NULL) {
        p->bias = *whole->relative_bias;
        p->bias.table += head * p->bias.buckets;
        p->params.relative_bias = &p->bias;
    }
    const attn_disentangled *terms = whole->disentangled;
    if (terms != NULL) {
        p->disentangled.span = terms->span;
        if (terms->rel_k != NULL) {
            p->rel_k = slice(terms->rel_k, 0, head, 0, terms->rel_k->shape[2]);
            p->disentangled.rel_k = &p->rel_k;
        }
        if (terms->rel_q != NULL) {
            p->rel_q = slice(terms->rel_q, 0, head, 0, terms->rel_q->shape[2]);
            p->disentangled.rel_q = &p->rel_q;
        }
        p->params.disentangled = &p->disentangled;
    }
}

bool part_create(struct part *p, const struct inputs *in, int64_t batch, int64_t head, int64_t first, int64_t count,
                 struct io_error *error)
{
    const attn_params *whole = &in->params;
    const attn_tensor *q = &in->q_view, *k = &in->k_view;
    int64_t index = whole->ragged != NULL ? find_sequence(whole->ragged, first) : batch;
    int64_t kv_head = head / (q->shape[1] / k->shape[1]), keys = k->shape[2];
    struct sequence s = forms_sequence(whole, q, k, index);
    *p = (struct part){
        .q = slice(q, batch, head, first, count), .k = slice(k, batch, kv_head, 0, keys), .params = *whole};
    slice_sequence(p, whole, &s, index, first, count);
    slice_head(p, whole, head);
    if (whole->mask != NULL) {
        p->mask = slice(whole->mask, batch, head, first, count);
        p->params.mask = &p->mask;
    }
    if (whole->rope != NULL) {
        p->rope_q = slice(whole->rope->q, batch, head, first, count);
        p->rope_k = slice(whole->rope->k, batch, kv_head, 0, keys);
        p->rope = (attn_rope_tables){whole->rope->layout, &p->rope_q, &p->rope_k};
        p->params.rope = &p->rope;
    }
    if (whole->segments != NULL) {
        p->segments.q = whole->segments->q + batch * q->shape[2] + first;
        p->segments.k = whole->segments->k + batch * keys;
        p->params.segments = &p->segments;
    }
    return whole->block_mask == NULL || slice_blocks(p, whole->block_mask, first - s.first_query, count, error);
}

void part_free(struct part *p)
{
    free(p->block_offsets);
    p->block_offsets = NULL;
}
