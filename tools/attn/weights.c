/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes weights for a range of queries by handing the library only these
 * queries, in as many parts as it takes. The library promises that a query's
 * bits do not depend on what else is in the call, so the rows are those of one
 * big call. The values have no channels: only the softmax is of interest. They
 * have the type of the keys, as the library chooses its kernels by all three
 * types. Weights are f32, whatever the types; a file may hold them in 16 bits,
 * and its rows are widened.
 *
 * Query first of a sequence is query 0 of the part, so the part's offset is the
 * sequence's plus first, and what goes along the queries starts at first. Blocks
 * of a pattern are counted from query 0: where first is inside of one, the part
 * ends with that block.
 */
#include "weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "wording.h"

attn_status weights_from_file(struct weights *weights, const char *spec)
{
    char text[ARRAY_SHAPE_TEXT];
    *weights = (struct weights){.inputs = NULL};
    CHECK(array_open(&weights->file, spec));
    const struct array_shape *is = &weights->file.is;
    bool is_float = is->dtype == ARRAY_F32 || is->dtype == ARRAY_F16 || is->dtype == ARRAY_BF16;
    if (!is_float || is->ndim < 2 || is->ndim > 4) {
        attn_status status =
            io_fail(ATTN_INVALID_FILE,
                    "%s has dtype %s and shape %s; expected float32, float16 or bfloat16 and 2 to 4 dimensions: batch, "
                    "head, query, key",
                    spec, array_dtype_name(is->dtype), array_shape_text(is, text));
        array_close(&weights->file);
        return status;
    }
    weights->columns = is->shape[is->ndim - 1];
    weights->rows = is->shape[is->ndim - 2];
    weights->heads = is->ndim > 2 ? is->shape[is->ndim - 3] : 1;
    weights->batch = is->ndim > 3 ? is->shape[0] : 1;
    return ATTN_OK;
}

/* Lengths are checked here, as the library would name them by their place in a call of one batch element. */
static attn_status check_lengths(const char *option, const int64_t *values, const struct inputs *in)
{
    int64_t sequences = forms_sequences(&in->forms, in->q_view.shape[0]);
    for (int64_t i = 0; values != NULL && i < sequences; i++) {
        int64_t keys = forms_sequence(&in->params, &in->q_view, &in->k_view, i).keys;
        if (values[i] < 0 || values[i] > keys)
            return io_fail(ATTN_INVALID_ARGUMENT,
                           "%s[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64 ", the number of keys", option, i,
                           values[i], keys);
    }
    return ATTN_OK;
}

attn_status weights_from_inputs(struct weights *weights, const struct inputs *inputs)
{
    const int64_t *q = inputs->q_view.shape, *k = inputs->k_view.shape;
    *weights = (struct weights){.inputs = inputs, .batch = q[0], .heads = q[1], .rows = q[2], .columns = k[2]};
    /* The library sees one head at a time and cannot tell. */
    if (k[0] != q[0] || k[3] != q[3])
        return io_fail(ATTN_INVALID_FILE,
                       "k has %" PRId64 " batch elements of head size %" PRId64 "; expected %" PRId64 " of %" PRId64
                       " as q has",
                       k[0], k[3], q[0], q[3]);
    if (q[1] > 0 && (k[1] == 0 || q[1] % k[1] != 0))
        return io_fail(ATTN_INVALID_FILE,
                       "q has %" PRId64 " heads and k has %" PRId64 "; expected q's to be a multiple of k's", q[1],
                       k[1]);
    CHECK(check_lengths("--kv-len", inputs->kv_len, inputs));
    return check_lengths("--kv-start", inputs->kv_start, inputs);
}

void weights_close(struct weights *weights)
{
    if (weights->inputs == NULL)
        array_close(&weights->file);
}

/*
 * A part of a call: some queries of one head and one sequence. Its parameters
 * mean for these queries what those of the whole call mean.
 */
struct part {
    attn_tensor q, k;
    attn_params params; /* points into the rest; weights and the like are the caller's to set */
    /* In a ragged batch the part has two sequences: one without queries, whose keys are those to be skipped. */
    int64_t query_offset[2], kv_len[2], kv_start[2], prefix_len[2], cu_q[3], cu_k[3];
    attn_ragged ragged;
    attn_tensor mask, rope_q, rope_k;
    attn_rope_tables rope;
    attn_relative_bias bias;
    attn_disentangled disentangled;
    attn_tensor rel_k, rel_q;
    attn_segments segments;
    attn_tree tree;
    uint64_t *ancestors; /* owned */
    attn_block_mask blocks;
    int64_t *block_offsets; /* owned */
};

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

/*
 * The most queries from the given one on, up to count, that one part can hold.
 * 0 if there is no sequence that the query belongs to; then none of those up to count does.
 */
static int64_t part_limit(const struct inputs *in, int64_t first, int64_t count)
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

static attn_status slice_blocks(struct part *p, const attn_block_mask *whole, int64_t head, int64_t first,
                                int64_t count)
{
    const int64_t rows = (count - 1) / whole->size + 1;
    const int64_t *offsets = whole->offsets + (whole->heads > 1 ? head * whole->rows : 0) + first / whole->size;
    p->block_offsets = calloc((size_t)rows + 1, sizeof *p->block_offsets);
    if (p->block_offsets == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    for (int64_t n = 0; n <= rows; n++)
        p->block_offsets[n] = offsets[n] - offsets[0];
    p->blocks = (attn_block_mask){.size = whole->size,
                                  .heads = 1,
                                  .rows = rows,
                                  .offsets = p->block_offsets,
                                  .columns = whole->columns + offsets[0]};
    p->params.block_mask = &p->blocks;
    return ATTN_OK;
}

/* The rows of the tree that belong to queries first to first + count - 1 of a sequence. */
static attn_status slice_tree(struct part *p, const struct inputs *in, int64_t sequence, int64_t queries, int64_t first,
                              int64_t count)
{
    int64_t words = forms_tree_words(&in->forms);
    p->ancestors = calloc((size_t)count * (size_t)words, sizeof *p->ancestors);
    if (p->ancestors == NULL)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory");
    for (int64_t i = 0; i < count; i++)
        forms_tree_row(&in->forms, sequence, first + i, queries, p->ancestors + i * words);
    p->tree = (attn_tree){in->params.tree->tokens, p->ancestors};
    p->params.tree = &p->tree;
    return ATTN_OK;
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
        p->disentangled = *terms;
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

/* Queries first to first + count - 1 of a head; count is at most part_limit()'s. */
static attn_status part_create(struct part *p, const struct inputs *in, int64_t batch, int64_t head, int64_t first,
                               int64_t count)
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
    if (whole->tree != NULL)
        CHECK(slice_tree(p, in, index, s.queries, first - s.first_query, count));
    return whole->block_mask == NULL ? ATTN_OK : slice_blocks(p, whole->block_mask, head, first - s.first_query, count);
}

static void part_free(struct part *p)
{
    free(p->ancestors);
    free(p->block_offsets);
    p->ancestors = NULL;
    p->block_offsets = NULL;
}

/*
 * Rows of one part of a call, at dst; the other keys of a ragged batch get 0. scores is NULL, or has as much space as
 * dst; hidden keys are then known by the score that the softmax got.
 */
static attn_status compute_part(const struct part *part, int64_t rows, int64_t columns, float *dst, float *scores)
{
    float nothing = 0;
    attn_tensor v = attn_bhtd(&nothing, 1, 1, columns, 0);
    v.dtype = part->k.dtype;
    attn_tensor out = attn_bhtd(&nothing, 1, 1, rows, 0);
    attn_tensor weights = attn_bhtd(dst, 1, 1, rows, columns);
    attn_tensor masked = attn_bhtd(scores, 1, 1, rows, columns);
    attn_params params = part->params;
    params.weights = &weights;
    if (scores != NULL) {
        params.scores = &masked;
        params.score_stage = ATTN_SCORES_MASKED;
    }
    CHECK(reworded(WORDING_RUN, attn_forward(&part->q, &part->k, &v, &out, &params)));
    for (int64_t i = 0; scores != NULL && i < rows * columns; i++)
        dst[i] = scores[i] == -INFINITY ? -INFINITY : dst[i];
    return ATTN_OK;
}

static attn_status compute_rows(const struct weights *weights, int64_t batch, int64_t head, int64_t first,
                                int64_t count, float *dst)
{
    attn_status status = ATTN_OK;
    float *scores = NULL;
    if (weights->hidden == HIDDEN_KNOWN) {
        scores = malloc((size_t)count * (size_t)weights->columns * sizeof *scores);
        if (scores == NULL)
            return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for %" PRId64 " rows of %" PRId64 " scores", count,
                           weights->columns);
    }
    for (int64_t n; status == ATTN_OK && count > 0; first += n, count -= n, dst += n * weights->columns) {
        struct part part;
        n = part_limit(weights->inputs, first, count);
        if (n == 0) {
            /* Behind the last sequence. */
            for (int64_t i = 0; i < count * weights->columns; i++)
                dst[i] = weights->hidden == HIDDEN_NONE ? 0 : -INFINITY;
            break;
        }
        status = part_create(&part, weights->inputs, batch, head, first, n);
        if (status == ATTN_OK)
            status = compute_part(&part, n, weights->columns, dst, scores);
        part_free(&part);
    }
    free(scores);
    return status;
}

static float widen(uint16_t half, enum array_dtype dtype)
{
    float value;
    if (dtype == ARRAY_BF16) {
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    int exponent = half >> 10 & 31, digits = half & 1023;
    if (exponent == 31)
        value = digits != 0 ? NAN : INFINITY;
    else
        value = exponent == 0 ? ldexpf((float)digits, -24) : ldexpf((float)(digits + 1024), exponent - 25);
    return (half & 0x8000) != 0 ? -value : value;
}

static attn_status read_rows(const struct weights *weights, int64_t batch, int64_t head, int64_t first, int64_t count,
                             float *dst)
{
    uint64_t row = (uint64_t)((batch * weights->heads + head) * weights->rows + first);
    enum array_dtype dtype = weights->file.is.dtype;
    size_t number = (size_t)count * (size_t)weights->columns, size = array_dtype_size(dtype);
    /* 16-bit values go to the upper half of the space, and each is read before it can be written over. */
    unsigned char *raw = (unsigned char *)dst + number * (sizeof *dst - size);
    CHECK(array_read(&weights->file, row * (uint64_t)weights->columns * size, raw, number * size));
    for (size_t i = 0; dtype != ARRAY_F32 && i < number; i++) {
        uint16_t half;
        memcpy(&half, raw + i * size, sizeof half);
        dst[i] = widen(half, dtype);
    }
    return ATTN_OK;
}

attn_status weights_rows(const struct weights *weights, int64_t batch, int64_t head, int64_t first, int64_t count,
                         float *dst)
{
    const bool file = weights->inputs == NULL;
    CHECK(file ? read_rows(weights, batch, head, first, count, dst)
               : compute_rows(weights, batch, head, first, count, dst));
    const bool zeros = weights->hidden == HIDDEN_ZERO || (weights->hidden == HIDDEN_KNOWN && file);
    for (int64_t i = 0; zeros && i < count * weights->columns; i++)
        dst[i] = dst[i] == 0 ? -INFINITY : dst[i];
    return ATTN_OK;
}
