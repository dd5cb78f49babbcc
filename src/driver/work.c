/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block of queries as a kernel wants it: which rows of which tensors, and
 * everything else counted from the block's first row and the sequence's first
 * live key.
 *
 * A sequence padded on the left is handed over as a shorter sequence whose
 * key 0 is its first live key, and one padded on the right as one that ends
 * there, so kernels know nothing of padding and its amount cannot reach a bit
 * of the result.
 */
#include "driver/driver.h"

#include "driver/tensors.h"

#include "kernels/philox.h"

#include <math.h>

/**
 * Elements from index 0 to index i of an axis. An index behind the end is one of a broadcast axis, or of a sequence
 * without live keys, of which nothing is read: the stride of an axis of length 1 is not looked at.
 */
static int64_t offset(const attn_tensor *t, int axis, int64_t i)
{
    return i < t->shape[axis] ? i * t->stride[axis] : 0;
}

/** The first element of a row of a tensor that has elements. */
static void *element(const attn_tensor *t, int64_t b, int64_t h, int64_t row)
{
    return (char *)t->data + attn_bytes_of(t->dtype, offset(t, 0, b) + offset(t, 1, h) + offset(t, 2, row));
}

struct attn_rows attn_head_rows(const attn_tensor *t, int64_t b, int64_t h, int64_t row)
{
    static float nothing; /* for rows without channels, and no rows: data may be NULL, no address is computed from it */
    if (!attn_has_elements(t))
        return (struct attn_rows){&nothing, 0, t->dtype, NULL, 0};
    const int64_t step = attn_bytes_of(t->dtype, attn_step_of(t, 2));
    return (struct attn_rows){element(t, b, h, row), (ptrdiff_t)step, t->dtype, NULL, 0};
}

/** The (query, key) grid of a tensor from element (query, key) on; axes of length 1 are broadcast. */
static struct attn_grid grid_of(const attn_tensor *t, int64_t b, int64_t h, int64_t query, int64_t key)
{
    if (!attn_has_elements(t))
        return (struct attn_grid){NULL, 0, 0, t->dtype};
    return (struct attn_grid){(char *)element(t, b, h, query) + key * attn_step_of(t, 3) * attn_element_size(t->dtype),
                              (ptrdiff_t)attn_step_of(t, 2), (ptrdiff_t)attn_step_of(t, 3), t->dtype};
}

/** Rows of a table, or none where it is absent; axes of length 1 are broadcast. */
static struct attn_rows table_rows(const attn_tensor *t, int64_t b, int64_t h, int64_t row)
{
    return t->data ? attn_head_rows(t, b, h, row) : (struct attn_rows){NULL, 0, ATTN_F32, NULL, 0};
}

/** Rows of k or v, with their scales if they have some. */
static struct attn_rows stored_rows(const attn_tensor *t, const attn_tensor *scale, int64_t b, int64_t h, int64_t row)
{
    struct attn_rows rows = attn_head_rows(t, b, h, row);
    if (attn_has_elements(scale)) {
        rows.scale = element(scale, b, h, row);
        rows.scale_stride = (ptrdiff_t)attn_step_of(scale, 2);
    }
    return rows;
}

struct attn_sequence attn_sequence_of(const struct attn_problem *problem, int64_t s)
{
    const attn_params *p = &problem->params;
    const attn_ragged *ragged = p->ragged;
    struct attn_sequence sequence = {.batch = s, .queries = problem->q.shape[2], .keys = problem->k.shape[2]};
    if (ragged) {
        sequence.batch = 0;
        sequence.q_first = ragged->cu_seqlens_q[s];
        sequence.k_first = ragged->cu_seqlens_k ? ragged->cu_seqlens_k[s] : 0; /* keys in pages */
        if (s == ragged->num_sequences) {                                      /* what belongs to none */
            sequence.queries = problem->q.shape[2] - sequence.q_first;
            sequence.keys = 0;
            return sequence;
        }
        sequence.queries = ragged->cu_seqlens_q[s + 1] - sequence.q_first;
        if (ragged->cu_seqlens_k)
            sequence.keys = ragged->cu_seqlens_k[s + 1] - sequence.k_first;
    }
    sequence.begin = p->kv_start ? p->kv_start[s] : 0;
    sequence.end = p->kv_len ? p->kv_len[s] : sequence.keys;
    return sequence;
}

/* Indices of rows and keys are below this, and sums with positions within the range of int64_t. */
#define INDEX_LIMIT ((int64_t)1 << 40)

static int64_t within(int64_t limit, __int128 x)
{
    return x < -limit ? -limit : x > limit ? limit : (int64_t)x;
}

/** Position of query 0 of a sequence among its keys. */
static int64_t position_of(const struct attn_problem *problem, const struct attn_sequence *sequence, int64_t s)
{
    const attn_params *params = &problem->params;
    if (params->causal == ATTN_CAUSAL_BOTTOM_RIGHT)
        return sequence->end - sequence->queries;
    return params->query_offset ? params->query_offset[s] : 0;
}

int64_t attn_keys_of_first_query(const struct attn_problem *problem, int64_t s)
{
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const int64_t live = sequence.end - sequence.begin;
    if (problem->params.causal == ATTN_CAUSAL_NONE)
        return live;
    const int64_t seen = within(INDEX_LIMIT, (__int128)position_of(problem, &sequence, s) - sequence.begin) + 1;
    return seen < 0 ? 0 : seen < live ? seen : live;
}

/** Where a sequence lies in the larger problem, if this is a rectangle of one. */
static struct attn_origin origin_of(const struct attn_problem *problem, int64_t s)
{
    return problem->rectangle && s < problem->num_sequences ? problem->rectangle->origins[s]
                                                            : (struct attn_origin){.sequence = s};
}

/** The number of a head in the larger problem. */
static int64_t head_of(const struct attn_problem *problem, int64_t h)
{
    return problem->rectangle ? problem->rectangle->first_head + h : h;
}

static struct attn_view view_of(const struct attn_run *run, const struct attn_sequence *sequence, int64_t s, int64_t h,
                                int64_t heads, int64_t first)
{
    const struct attn_problem *problem = run->problem;
    const attn_params *params = &problem->params;
    const struct attn_origin origin = origin_of(problem, s);
    const int64_t key = sequence->begin;
    const int64_t query_token = sequence->q_first + first, key_token = sequence->k_first + key;
    struct attn_view view = {.heads = heads, .diagonal = ATTN_FAR, .window_first = -ATTN_FAR, .window_last = ATTN_FAR};
    if (s == problem->num_sequences) /* there are no keys that anything could hide */
        return view;
    const __int128 position = (__int128)position_of(problem, sequence, s) + first - key;
    view.position = within(INT64_MAX - 2 * INDEX_LIMIT, position);
    if (params->causal != ATTN_CAUSAL_NONE)
        view.diagonal = within(ATTN_FAR, position);
    if (params->prefix_len)
        view.prefix = within(ATTN_FAR, params->prefix_len[s]);
    if (params->window) {
        if (params->window->left != ATTN_UNLIMITED)
            view.window_first = within(ATTN_FAR, position - params->window->left);
        if (params->window->right != ATTN_UNLIMITED)
            view.window_last = within(ATTN_FAR, position + params->window->right);
        view.first_tokens = within(ATTN_FAR, (__int128)params->window->first_tokens - origin.live);
        view.global = params->window->global;
        view.num_global = params->window->num_global;
        view.global_shift = key + origin.key;
    }
    if (params->block_mask) {
        const attn_block_mask *pattern = params->block_mask;
        view.pattern_size = pattern->size;
        view.pattern_row = first + origin.query;
        view.pattern_shift = key + origin.key;
        view.pattern_offsets = pattern->offsets + (pattern->heads > 1 ? head_of(problem, h) * pattern->rows : 0);
        view.pattern_columns = pattern->columns;
    }
    if (params->segments) {
        view.q_labels = params->segments->q + sequence->batch * problem->q.shape[2] + query_token;
        view.k_labels = params->segments->k + sequence->batch * problem->k.shape[2] + key_token;
        attn_view_labels(run, s, &view);
    }
    if (params->tree) {
        view.tree_words = (params->tree->tokens + 63) / 64;
        view.tree_first = sequence->end - params->tree->tokens - key;
        view.tree = params->tree->ancestors + (sequence->batch * problem->q.shape[2] + query_token) * view.tree_words;
    }
    return view;
}

/** Whether anything but causality and lengths hides keys. */
static int hides_more(const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    return problem->mask.data || p->prefix_len || p->window || p->block_mask || p->segments || p->tree || p->callback;
}

/**
 * Keys, from the first live one on, that the last query of the call sees, whichever block this is: results may follow
 * from it. None, where what a score is made into needs the whole of it.
 */
static int64_t known_keys(const struct attn_problem *problem, const struct attn_work *work, int64_t last)
{
    const attn_params *params = &problem->params;
    if (hides_more(problem) || params->block_table || params->softcap != 0.0f || params->sinks || params->rope)
        return 0;
    const int64_t visible = work->view.diagonal + last + 1;
    return visible < work->num_keys ? visible : work->num_keys;
}

/** Keys from the first live one of a sequence to its last one, or to the end of a mask that hides those behind it. */
static int64_t keys_of(const struct attn_problem *problem, const struct attn_sequence *sequence)
{
    const int64_t live = sequence->end - sequence->begin, length = problem->mask.shape[3];
    if (!problem->params.mask || length == 1)
        return live;
    const int64_t masked = length - (sequence->k_first + sequence->begin);
    return masked < 0 ? 0 : masked < live ? masked : live;
}

/** Queries of a sequence with all heads that share a key head, beyond which no set calls them few. */
#define MOST_FREE 8

/* Nothing here may follow from the number of threads, nor from what a task holds: results would. */
int attn_sums_are_free(const struct attn_problem *problem, int64_t queries)
{
    const attn_params *p = &problem->params;
    const int64_t kv_heads = problem->k.shape[1];
    if (p->sums != ATTN_SUMS_FREE || p->qk == ATTN_QK_INT8 || p->rope || p->disentangled || p->block_mask ||
        (p->window && p->window->num_global > 0) || kv_heads == 0)
        return 0;
    return queries <= MOST_FREE && queries * (problem->q.shape[1] / kv_heads) <= MOST_FREE;
}

int attn_frees_sums(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t queries)
{
    return attn_sums_are_free(problem, queries) && kernels->scores->scores_free &&
           queries * (problem->q.shape[1] / problem->k.shape[1]) <= kernels->vectors->few;
}

/** Whether one of some numbers is not 0. */
static int any_number(const float *numbers, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (numbers[i] != 0.0f)
            return 1;
    return 0;
}

/** What changes scores and weights. */
static void set_numbers(const struct attn_problem *problem, const struct attn_sequence *sequence, int64_t s, int64_t h,
                        int64_t first, struct attn_work *work)
{
    const attn_params *params = &problem->params;
    const int64_t b = sequence->batch, group = h / (problem->q.shape[1] / problem->k.shape[1]);
    const double factor = params->head_scale ? (double)params->head_scale[h] : 1.0;
    work->scale = (float)((double)problem->scale * factor * ATTN_LOG2E_DOUBLE);
    work->softcap = params->softcap;
    if (params->sinks && s < problem->num_sequences)
        work->sinks = params->sinks + h;
    if (params->alibi_slopes && any_number(params->alibi_slopes + h, work->view.heads))
        work->distance_bias.slopes = params->alibi_slopes + h;
    if (params->relative_bias) {
        const attn_relative_bias *bias = params->relative_bias;
        work->distance_bias.kind = bias->kind;
        work->distance_bias.buckets = bias->buckets;
        work->distance_bias.max_distance = bias->max_distance;
        work->distance_bias.table = bias->table + h * bias->buckets;
    }
    if (params->disentangled) {
        work->relative.span = params->disentangled->span;
        work->relative.delta = params->disentangled->delta;
        work->relative.k = table_rows(&problem->rel_k, 0, h, 0);
        work->relative.q = table_rows(&problem->rel_q, 0, h, 0);
    }
    if (params->rope) {
        work->rope.layout = params->rope->layout;
        work->rope.pairs = problem->rope_q.shape[3] / 2;
        work->rope.q = table_rows(&problem->rope_q, b, h, sequence->q_first + first);
        work->rope.k = table_rows(&problem->rope_k, b, group, sequence->k_first + sequence->begin);
    }
    if (params->dropout && params->dropout->p > 0.0f) {
        work->drop.wanted = 1;
        attn_dropout_key(params->dropout->seed, params->dropout->offset, work->drop.key);
        work->drop.threshold = attn_dropout_threshold(params->dropout->p);
        work->drop.keep_scale = (float)(1.0 / (1.0 - (double)params->dropout->p));
    }
    work->callback = params->callback;
    work->callback_user = params->callback_user;
    work->weight_callback = params->weight_callback;
    work->weight_callback_user = params->weight_callback_user;
}

/** From page to page of a pool and of its scales, if it has some. */
static struct attn_page_step page_step(const attn_tensor *pool, const attn_tensor *scales)
{
    return (struct attn_page_step){(ptrdiff_t)attn_bytes_of(pool->dtype, attn_step_of(pool, 0)),
                                   (ptrdiff_t)attn_step_of(scales, 0)};
}

/** Keys and values in pages. */
static void set_pages(const struct attn_problem *problem, const struct attn_sequence *sequence, int64_t s,
                      int64_t group, struct attn_work *work)
{
    const attn_params *params = &problem->params;
    work->k = stored_rows(&problem->k_pool, &problem->k_scale, 0, group, 0);
    work->v = stored_rows(&problem->v_pool, &problem->v_scale, 0, group, 0);
    /* s may be that of queries without a sequence, which has no keys and no row */
    work->pages = (struct attn_pages){.table = params->block_table + s * params->block_table_stride,
                                      .size = params->page_size,
                                      .count = problem->k_pool.shape[0],
                                      .first = sequence->begin,
                                      .k_step = page_step(&problem->k_pool, &problem->k_scale),
                                      .v_step = page_step(&problem->v_pool, &problem->v_scale)};
}

/** From head to head of a token. */
static struct attn_head_steps head_steps(const struct attn_problem *problem)
{
    return (struct attn_head_steps){.q = (ptrdiff_t)attn_step_of(&problem->q, 1) * attn_element_size(problem->q.dtype),
                                    .out = (ptrdiff_t)attn_step_of(&problem->out, 1) *
                                           attn_element_size(problem->out.dtype),
                                    .rope_q = (ptrdiff_t)attn_step_of(&problem->rope_q, 1) * (ptrdiff_t)sizeof(float),
                                    .lse = (ptrdiff_t)attn_step_of(&problem->lse, 1),
                                    .mask = (ptrdiff_t)attn_step_of(&problem->mask, 1)};
}

/** Where results go. row counts on the axis of all tokens. */
static void set_outputs(const struct attn_problem *problem, const struct attn_sequence *sequence, int64_t s, int64_t h,
                        int64_t row, struct attn_work *work)
{
    const int64_t b = sequence->batch, key = sequence->k_first + sequence->begin;
    work->out = attn_head_rows(&problem->out, b, h, row);
    work->weights = grid_of(&problem->weights, b, h, 0, key);
    work->scores = grid_of(&problem->scores, b, h, 0, key);
    work->score_stage = problem->params.score_stage;
    work->unmasked_keys = sequence->end - sequence->begin;
    work->weight_rows = problem->params.weight_rows;
    work->num_weight_rows = problem->params.num_weight_rows;
    work->first_query = row;
    work->keys_before = key;
    work->keys_after = problem->k.shape[2] - (key + work->num_keys);
    if (attn_has_elements(&problem->lse)) {
        work->lse = element(&problem->lse, b, h, row);
        work->lse_stride = (ptrdiff_t)attn_step_of(&problem->lse, 2);
    }
    if (attn_has_elements(&problem->key_sums)) {
        work->key_sums_stride = (ptrdiff_t)attn_step_of(&problem->key_sums, 3);
        work->key_sums = (float *)element(&problem->key_sums, attn_sums_by_sequence(problem) ? s : b, h, 0) +
                         key * work->key_sums_stride; /* of no sequence, nothing is added */
    }
}

/** Rows of a sequence's queries: those from token first on, of heads from h on. */
struct block_rows {
    int64_t h, heads;
    int64_t first, tokens; /**< tokens 0 or less: none */
};

/** The rows of a block of a head, as tasks count them. */
static struct block_rows rows_of_block(const struct attn_run *run, const struct attn_sequence *sequence, int64_t h,
                                       int64_t block)
{
    const struct attn_geometry *geometry = run->geometry;
    const int64_t heads = attn_heads_of(geometry, sequence->queries);
    if (heads > 1 && !run->problem->params.ragged)
        return (struct block_rows){h * heads, heads, 0, sequence->queries};
    if (heads > 1)
        return (struct block_rows){h, heads, 0, h % heads == 0 && block == 0 ? sequence->queries : 0};
    const int64_t piece = block % geometry->pieces * geometry->rows_per_block;
    const int64_t first = block / geometry->pieces * geometry->unit + piece;
    int64_t rows =
        geometry->unit - piece < geometry->rows_per_block ? geometry->unit - piece : geometry->rows_per_block;
    rows = sequence->queries - first < rows ? sequence->queries - first : rows;
    return (struct block_rows){h, 1, first, rows};
}

int attn_work_of(const struct attn_run *run, int64_t s, int64_t counted, int64_t block, void *scratch,
                 struct attn_work *work)
{
    const struct attn_problem *problem = run->problem;
    const struct attn_geometry *geometry = run->geometry;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const struct block_rows rows = rows_of_block(run, &sequence, counted, block);
    if (rows.tokens <= 0)
        return 0;
    const int64_t b = sequence.batch, h = rows.h, first = rows.first;
    const int64_t row = sequence.q_first + first, key = sequence.k_first + sequence.begin;
    const int64_t group = h / (problem->q.shape[1] / problem->k.shape[1]);
    const struct attn_origin origin = origin_of(problem, s);
    const struct attn_grid mask = grid_of(&problem->mask, b, h, row, key), none = {NULL, 0, 0, ATTN_F32};
    const int boolean = problem->mask.dtype == ATTN_BOOL;
    *work = (struct attn_work){
        .q = attn_head_rows(&problem->q, b, h, row),
        .num_queries = rows.tokens * rows.heads,
        .num_keys = keys_of(problem, &sequence),
        .dk = (int)problem->q.shape[3],
        .dv = (int)problem->v.shape[3],
        .view = view_of(run, &sequence, s, h, rows.heads, first),
        .head_step = head_steps(problem),
        .mask = boolean ? mask : none,
        .bias = boolean ? none : mask,
        .kernels = &geometry->kernels,
        .free_sums = attn_frees_sums(problem, &geometry->kernels, sequence.queries),
        .drop = {.batch = origin.sequence,
                 .head = head_of(problem, h),
                 .query_index = first + origin.query,
                 .first = sequence.begin + origin.key},
        .group = geometry->group,
        .looks = run->looks,
        .gathers = geometry->gathers && rows.heads == 1,
        .far = geometry->far,
        .shape = &geometry->scratch,
        .scratch = scratch,
    };
    if (problem->params.block_table) {
        set_pages(problem, &sequence, s, group, work);
    } else {
        work->k = stored_rows(&problem->k, &problem->k_scale, b, group, key);
        work->v = stored_rows(&problem->v, &problem->v_scale, b, group, key);
    }
    set_numbers(problem, &sequence, s, h, first, work);
    set_outputs(problem, &sequence, s, h, row, work);
    work->known_keys = known_keys(problem, work, sequence.queries - 1 - first);
    return 1;
}

void attn_run_block(const struct attn_run *run, int64_t s, int64_t counted, int64_t block, int64_t part, void *scratch)
{
    const struct attn_geometry *geometry = run->geometry;
    struct attn_work work;
    if (!attn_work_of(run, s, counted, block, scratch, &work))
        return;
    if (part != ATTN_ALL_KEYS) {
        const int64_t number = (s * geometry->heads + counted) * geometry->blocks + block;
        work.part = part;
        work.parts = geometry->parts;
        work.partials = run->partials + (size_t)(number * geometry->splits) * geometry->partial_size;
        work.partial_size = geometry->partial_size;
    }
    if (part == ATTN_JOIN_PARTS)
        attn_join_pass(&work);
    else
        attn_forward_pass(&work);
}
