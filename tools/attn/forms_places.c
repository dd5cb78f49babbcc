/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the tokens of a call stand: which sequence each belongs to, the trees that drafted tokens form, and the tables
 * of rotations. Rotations use the positions that causality and windows use, but a drafted token stands as many places
 * behind the last key that is none as it has ancestors: that is where it would be, had its branch been drafted alone.
 */
#include "forms.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "wording.h"

/* -------------------------------------------------------------- sequences -- */

int64_t forms_sequences(const struct forms *f, int64_t batch)
{
    return f->cu_q.values != NULL ? f->cu_q.count - 1 : batch;
}

const char *forms_sequence_name(const struct forms *f)
{
    return f->cu_q.values != NULL ? "sequence" : "batch element";
}

struct sequence forms_sequence(const attn_params *params, const attn_tensor *q, const attn_tensor *k, int64_t s)
{
    struct sequence out = {.queries = q->shape[2], .keys = k->shape[2]};
    if (params->ragged != NULL) {
        const int64_t *cu_q = params->ragged->cu_seqlens_q, *cu_k = params->ragged->cu_seqlens_k;
        out = (struct sequence){cu_q[s], cu_q[s + 1] - cu_q[s], cu_k[s], cu_k[s + 1] - cu_k[s], 0};
    }
    int64_t end = params->kv_len != NULL ? params->kv_len[s] : out.keys;
    /* Other lengths are refused by the library, and must not overflow before that. */
    if (params->causal == ATTN_CAUSAL_BOTTOM_RIGHT && end >= 0 && end <= out.keys)
        out.offset = end - out.queries;
    else if (params->query_offset != NULL)
        out.offset = params->query_offset[s];
    return out;
}

static attn_status check_end(const struct integers *cu, const char *name, const char *operand, const attn_tensor *t)
{
    int64_t end = cu->values[cu->count - 1];
    if (end <= t->shape[2])
        return ATTN_OK;
    return io_fail(ATTN_INVALID_ARGUMENT, "--%s ends with %" PRId64 "; expected at most %" PRId64 ", the tokens of %s",
                   name, end, t->shape[2], operand);
}

static attn_status load_ragged(struct forms *f, const attn_tensor *q, const attn_tensor *k)
{
    bool own = f->cu_k.values != NULL;
    const struct integers *cu_k = own ? &f->cu_k : &f->cu_q;
    if (q->shape[0] != 1)
        return io_fail(ATTN_INVALID_FILE,
                       "q has %" PRId64 " batch elements; expected 1, as --cu-seqlens cuts its tokens", q->shape[0]);
    f->ragged = (attn_ragged){f->cu_q.count - 1, f->cu_q.values, cu_k->values};
    CHECK(check_end(&f->cu_q, "cu-seqlens", "q", q));
    return check_end(cu_k, own ? "cu-seqlens-k" : "cu-seqlens", "k", k);
}

attn_status forms_load_sequences(struct forms *f, const attn_tensor *q, const attn_tensor *k, attn_params *params)
{
    const struct option *o = f->options;
    if (f->cu_q.values != NULL) {
        CHECK(load_ragged(f, q, k));
        params->ragged = &f->ragged;
    }
    int64_t sequences = forms_sequences(f, q->shape[0]);
    const char *name = forms_sequence_name(f);
    CHECK(integers_spread(&f->offsets, &o[FORM_QUERY_OFFSET], sequences, name, &f->query_offset));
    CHECK(integers_spread(&f->prefixes, &o[FORM_PREFIX], sequences, name, &f->prefix_len));
    params->query_offset = f->query_offset;
    params->prefix_len = f->prefix_len;
    return ATTN_OK;
}

/* ------------------------------------------------------------------ trees -- */

static int64_t tree_of(const struct forms *f, int64_t sequence)
{
    return f->parents.is.ndim == 2 ? sequence : 0;
}

static int64_t parent_of(const struct forms *f, int64_t tree, int64_t draft)
{
    int64_t n = tree * f->tree.tokens + draft;
    return f->parents.is.dtype == ARRAY_I64 ? ((const int64_t *)f->parents.data)[n]
                                            : ((const int32_t *)f->parents.data)[n];
}

static attn_status check_tree_shape(const struct forms *f, int64_t sequences)
{
    char text[ARRAY_SHAPE_TEXT];
    const struct array_shape *is = &f->parents.is;
    const struct option *option = &f->options[FORM_TREE];
    if (is->dtype != ARRAY_I32 && is->dtype != ARRAY_I64)
        return io_fail(ATTN_INVALID_FILE, "--%s %s has dtype %s; expected int32 or int64", option->name, option->value,
                       array_dtype_name(is->dtype));
    bool fits = is->ndim == 1 || (is->ndim == 2 && is->shape[0] == sequences);
    if (!fits || is->shape[is->ndim - 1] < 1)
        return io_fail(ATTN_INVALID_FILE,
                       "--%s %s has shape %s; expected (N,) or (%" PRId64 ", N), N at least 1: drafts, or %s, drafts",
                       option->name, option->value, array_shape_text(is, text), sequences, forms_sequence_name(f));
    return ATTN_OK;
}

/* The drafts are the last live keys, so there must be as many. Lengths that make no sense are the library's to refuse.
 */
static attn_status check_live_keys(const struct forms *f, const attn_tensor *q, const attn_tensor *k,
                                   const attn_params *params)
{
    for (int64_t n = 0; n < forms_sequences(f, q->shape[0]); n++) {
        struct sequence s = forms_sequence(params, q, k, n);
        int64_t begin = params->kv_start != NULL ? params->kv_start[n] : 0;
        int64_t end = params->kv_len != NULL ? params->kv_len[n] : s.keys;
        bool sensible = begin >= 0 && begin <= end && end <= s.keys;
        if (sensible && s.queries > 0 && f->tree.tokens > end - begin)
            return io_fail(ATTN_INVALID_FILE,
                           "--tree %s has %" PRId64 " drafts; expected at most %" PRId64
                           ", the live keys of %s %" PRId64,
                           f->options[FORM_TREE].value, f->tree.tokens, end - begin, forms_sequence_name(f), n);
    }
    return ATTN_OK;
}

/* Checks the parents, each of which comes before its children, and counts the ancestors of each draft. */
static attn_status count_ancestors(struct forms *f)
{
    char text[ARRAY_SHAPE_TEXT];
    struct array_shape is = f->parents.is;
    int64_t drafts = f->tree.tokens, trees = is.ndim == 2 ? is.shape[0] : 1;
    is.dtype = ARRAY_I64;
    CHECK(array_allocate(&f->depths, "the depths of --tree", &is));
    for (int64_t n = 0; n < trees * drafts; n++) {
        int64_t *depths = (int64_t *)f->depths.data + n / drafts * drafts;
        int64_t draft = n % drafts, parent = parent_of(f, n / drafts, draft);
        struct array_shape at = {.ndim = is.ndim, .shape = {is.ndim == 2 ? n / drafts : draft, draft}};
        if (parent < -1 || parent >= draft)
            return io_fail(ATTN_INVALID_FILE,
                           "--tree %s has %" PRId64 " at %s; expected -1, or the number of a draft before it",
                           f->options[FORM_TREE].value, parent, array_shape_text(&at, text));
        depths[draft] = parent < 0 ? 0 : depths[parent] + 1;
    }
    return ATTN_OK;
}

static attn_status load_tree(struct forms *f, const attn_tensor *q, const attn_tensor *k, attn_params *params)
{
    if (f->options[FORM_TREE].value == NULL)
        return ATTN_OK;
    CHECK(array_load(&f->parents, f->options[FORM_TREE].value));
    CHECK(check_tree_shape(f, forms_sequences(f, q->shape[0])));
    f->tree = (attn_tree){.tokens = f->parents.is.shape[f->parents.is.ndim - 1]};
    params->tree = &f->tree;
    CHECK(count_ancestors(f));
    return check_live_keys(f, q, k, params);
}

void forms_tree_row(const struct forms *f, int64_t sequence, int64_t query, int64_t queries, uint64_t *row)
{
    memset(row, 0, (size_t)forms_tree_words(f) * sizeof *row);
    for (int64_t draft = query - (queries - f->tree.tokens); draft >= 0;
         draft = parent_of(f, tree_of(f, sequence), draft))
        row[draft / 64] |= UINT64_C(1) << draft % 64;
}

int64_t forms_tree_words(const struct forms *f)
{
    return (f->tree.tokens - 1) / 64 + 1;
}

attn_status forms_whole_tree(struct forms *f, const attn_tensor *q, const attn_tensor *k, const attn_params *params)
{
    if (params->tree == NULL)
        return ATTN_OK;
    int64_t words = forms_tree_words(f);
    struct array_shape is = {.dtype = ARRAY_I64, .ndim = 3, .shape = {q->shape[0], q->shape[2], words}};
    CHECK(array_allocate(&f->ancestors, "the ancestors of --tree", &is));
    uint64_t *rows = f->ancestors.data;
    for (int64_t n = 0; n < forms_sequences(f, q->shape[0]); n++) {
        struct sequence s = forms_sequence(params, q, k, n);
        int64_t first = s.first_query + (params->ragged != NULL ? 0 : n * q->shape[2]);
        for (int64_t i = 0; i < s.queries; i++)
            forms_tree_row(f, n, i, s.queries, rows + (first + i) * words);
    }
    f->tree.ancestors = rows;
    return ATTN_OK;
}

/* -------------------------------------------------------------- rotations -- */

/* Tokens that follow each other in a sequence, queries or keys of it, and where they stand. */
struct places {
    int64_t first, count;        /* the position of the first token, and the tokens */
    int64_t first_draft, drafts; /* the token that is draft 0, which may be before the first one; 0 without a tree */
    const int64_t *depths;
};

static struct places places_of(const struct forms *f, const attn_params *params, const struct sequence *s,
                               int64_t sequence, bool keys)
{
    struct places out = {.first = keys ? 0 : s->offset, .count = keys ? s->keys : s->queries};
    int64_t end = keys && params->kv_len != NULL ? params->kv_len[sequence] : out.count;
    /* Other lengths are refused by the library, and must not overflow before that. */
    if (params->tree == NULL || end < 0 || end > out.count)
        return out;
    out.drafts = f->tree.tokens;
    out.first_draft = end - out.drafts;
    out.depths = (const int64_t *)f->depths.data + tree_of(f, sequence) * out.drafts;
    return out;
}

static int64_t position_of(const struct places *p, int64_t token)
{
    int64_t draft = token - p->first_draft;
    return p->first + (draft >= 0 && draft < p->drafts ? p->first_draft + p->depths[draft] : token);
}

/* The rows of a table that belong to these tokens. */
static attn_status fill_rows(const attn_rope_config *config, const struct places *p, float *rows)
{
    int64_t positions[256];
    if (p->first > (INT64_C(1) << 53) - p->count)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--query-offset puts %" PRId64 " queries at %" PRId64
                       " and after it; expected positions below 2^53 with --rope",
                       p->count, p->first);
    for (int64_t done = 0; done < p->count;) {
        int64_t n = p->count - done < 256 ? p->count - done : 256;
        for (int64_t i = 0; i < n; i++)
            positions[i] = position_of(p, done + i);
        CHECK(reworded(WORDING_RUN, attn_rope_table(config, positions, n, rows + done * 2 * config->pairs)));
        done += n;
    }
    return ATTN_OK;
}

/* One batch element unless the positions of its tokens differ from those of another one. */
static int64_t tables_needed(const attn_params *params, const attn_tensor *q, const attn_tensor *k, bool keys)
{
    if (params->tree != NULL)
        return q->shape[0];
    int64_t first = q->shape[0] > 0 && !keys ? forms_sequence(params, q, k, 0).offset : 0;
    for (int64_t b = 1; b < q->shape[0] && !keys; b++) {
        if (forms_sequence(params, q, k, b).offset != first)
            return q->shape[0];
    }
    return 1;
}

static attn_status make_table(const struct forms *f, const attn_tensor *q, const attn_tensor *k,
                              const attn_params *params, bool keys, struct array *array, attn_tensor *view)
{
    bool ragged = params->ragged != NULL;
    int64_t width = 2 * f->rope_config.pairs, tokens = keys ? k->shape[2] : q->shape[2];
    int64_t batch = ragged ? 1 : tables_needed(params, q, k, keys);
    struct array_shape is = {.dtype = ARRAY_F32, .ndim = 3, .shape = {batch, tokens, width}};
    CHECK(array_allocate(array, "the table of --rope", &is));
    *view = attn_bhtd(array->data, batch, 1, tokens, width);
    int64_t count = ragged ? params->ragged->num_sequences : q->shape[0] > 0 ? batch : 0;
    for (int64_t n = 0; n < count; n++) {
        struct sequence s = forms_sequence(params, q, k, n);
        int64_t row = (keys ? s.first_key : s.first_query) + (ragged ? 0 : n * tokens);
        struct places places = places_of(f, params, &s, n, keys);
        CHECK(fill_rows(&f->rope_config, &places, (float *)array->data + row * width));
    }
    return ATTN_OK;
}

static attn_status check_factors(const struct doubles *list, const struct option *option, int64_t pairs)
{
    if (list->values == NULL || list->count == pairs)
        return ATTN_OK;
    return io_fail(ATTN_INVALID_ARGUMENT,
                   "--%s has %" PRId64 " values; expected %" PRId64 ", one for each pair of channels", option->name,
                   list->count, pairs);
}

static attn_status load_rope(struct forms *f, const attn_tensor *q, const attn_tensor *k, attn_params *params)
{
    const struct option *o = f->options;
    int64_t most = q->shape[3] / 2;
    if (o[FORM_ROPE].value == NULL)
        return ATTN_OK;
    if (most < 1)
        return io_fail(ATTN_INVALID_FILE, "q has the head size %" PRId64 "; expected 2 or more for --rope",
                       q->shape[3]);
    if (f->rope_config.pairs > most)
        return io_fail(ATTN_INVALID_ARGUMENT,
                       "--rope-pairs is %s; expected 1 to %" PRId64 ", half of the head size of q",
                       o[FORM_ROPE_PAIRS].value, most);
    if (f->rope_config.pairs == 0)
        f->rope_config.pairs = most;
    CHECK(check_factors(&f->short_factor, &o[FORM_ROPE_SHORT], f->rope_config.pairs));
    CHECK(check_factors(&f->long_factor, &o[FORM_ROPE_LONG], f->rope_config.pairs));
    f->rope.q = &f->rope_q;
    f->rope.k = &f->rope_k;
    params->rope = &f->rope;
    CHECK(make_table(f, q, k, params, false, &f->rope_q_table, &f->rope_q));
    return make_table(f, q, k, params, true, &f->rope_k_table, &f->rope_k);
}

attn_status forms_load_places(struct forms *f, const attn_tensor *q, const attn_tensor *k, attn_params *params)
{
    CHECK(load_tree(f, q, k, params));
    return load_rope(f, q, k, params);
}
