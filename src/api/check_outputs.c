/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the outputs on request; and that all outputs, out among them, have
 * memory of their own.
 */
#include "api/check_internal.h"

#include "api/error.h"
#include "driver/backward.h"

#include <inttypes.h>

/** The length of an axis, and what it counts. */
struct axis {
    int64_t length;
    const char *meaning;
};

/** An output on request: f32, with an element for each batch element and head of q, and so many along the other axes.
 */
static attn_status check_output(const char *name, const attn_tensor *t, struct axis batch, struct axis tokens,
                                struct axis channels, const struct attn_problem *problem, enum check_depth depth)
{
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_f32(name, t->dtype));
    CHECK(attn_check_axis(name, t, 0, batch.length, batch.meaning));
    CHECK(attn_check_axis(name, t, 1, problem->q.shape[1], "the heads of q"));
    CHECK(attn_check_axis(name, t, 2, tokens.length, tokens.meaning));
    CHECK(attn_check_axis(name, t, 3, channels.length, channels.meaning));
    return depth & CHECK_TENSORS ? attn_check_distinct(name, t) : ATTN_OK;
}

static attn_status check_weight_rows(const struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    const int64_t tq = problem->q.shape[2];
    if (p->num_weight_rows < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.num_weight_rows is %" PRId64 "; expected 0 or more",
                         p->num_weight_rows);
    if (p->weight_rows && !p->weights && !p->scores)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.weight_rows is set but params.weights and params.scores are NULL");
    if (!p->weight_rows && p->num_weight_rows)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.num_weight_rows is %" PRId64 " but params.weight_rows is NULL",
                         p->num_weight_rows);
    for (int64_t i = 0; (depth & CHECK_ARRAYS) && i < p->num_weight_rows; i++)
        if (p->weight_rows[i] < 0 || p->weight_rows[i] >= tq)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.weight_rows[%" PRId64 "] is %" PRId64 "; expected a query from 0 to %" PRId64, i,
                             p->weight_rows[i], tq - 1);
    return ATTN_OK;
}

static attn_status check_score_stage(const attn_params *p)
{
    if ((unsigned)p->score_stage > ATTN_SCORES_MASKED)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.score_stage is %d; expected an attn_score_stage",
                         (int)p->score_stage);
    if (p->score_stage && !p->scores)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.score_stage is %d; expected 0 without params.scores",
                         (int)p->score_stage);
    return ATTN_OK;
}

enum { MOST_OUTPUTS = 10 };

/** Memory that a call writes: those of its outputs that have some. */
struct written {
    int count;
    const char *names[MOST_OUTPUTS];
    const attn_tensor *views[MOST_OUTPUTS];
    struct attn_extent extent; /**< of all together */
};

/** Those of n tensors that have data and elements. */
static struct written written_by(const char *const *names, const attn_tensor *const *views, int n)
{
    struct written all = {.extent = {INT64_MAX, INT64_MIN}};
    for (int i = 0; i < n; i++) {
        if (!views[i]->data)
            continue;
        const struct attn_extent extent = attn_extent_of(views[i]);
        if (extent.end < extent.start)
            continue;
        all.names[all.count] = names[i];
        all.views[all.count++] = views[i];
        all.extent.start = extent.start < all.extent.start ? extent.start : all.extent.start;
        all.extent.end = extent.end > all.extent.end ? extent.end : all.extent.end;
    }
    return all;
}

/** That no output lies on a tensor that is read; data NULL: absent. */
static attn_status check_input(const struct written *all, const char *name, const attn_tensor *t)
{
    if (!t->data)
        return ATTN_OK;
    const struct attn_extent extent = attn_extent_of(t);
    if (extent.start >= all->extent.end || all->extent.start >= extent.end) /* mostly */
        return ATTN_OK;
    for (int i = 0; i < all->count; i++)
        CHECK(attn_check_apart(all->names[i], all->views[i], name, t, 0));
    return ATTN_OK;
}

/** The same of an array of count entries of size bytes; NULL: absent. */
static attn_status check_array(const struct written *all, const char *name, const void *array, int64_t count,
                               size_t size)
{
    if (!array)
        return ATTN_OK;
    const attn_tensor bytes = {(void *)(uintptr_t)array, ATTN_U8, {1, 1, 1, count * (int64_t)size}, {0, 0, 0, 1}};
    return check_input(all, name, &bytes);
}

static attn_status check_arrays_of_heads(const struct written *all, const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    const int64_t heads = problem->q.shape[1];
    CHECK(check_array(all, "params.head_scale", p->head_scale, heads, sizeof *p->head_scale));
    CHECK(check_array(all, "params.sinks", p->sinks, heads, sizeof *p->sinks));
    CHECK(check_array(all, "params.alibi_slopes", p->alibi_slopes, heads, sizeof *p->alibi_slopes));
    if (p->relative_bias)
        CHECK(check_array(all, "params.relative_bias->table", p->relative_bias->table,
                          heads * p->relative_bias->buckets, sizeof *p->relative_bias->table));
    return ATTN_OK;
}

static attn_status check_arrays_of_sequences(const struct written *all, const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    const int64_t n = problem->num_sequences;
    CHECK(check_array(all, "params.query_offset", p->query_offset, n, sizeof *p->query_offset));
    CHECK(check_array(all, "params.kv_len", p->kv_len, n, sizeof *p->kv_len));
    CHECK(check_array(all, "params.kv_start", p->kv_start, n, sizeof *p->kv_start));
    CHECK(check_array(all, "params.prefix_len", p->prefix_len, n, sizeof *p->prefix_len));
    CHECK(check_array(all, "params.block_table", p->block_table, n * p->block_table_stride, sizeof *p->block_table));
    if (p->ragged) {
        const attn_ragged *ragged = p->ragged;
        CHECK(check_array(all, "params.ragged->cu_seqlens_q", ragged->cu_seqlens_q, n + 1, sizeof(int64_t)));
        CHECK(check_array(all, "params.ragged->cu_seqlens_k", ragged->cu_seqlens_k, n + 1, sizeof(int64_t)));
    }
    return ATTN_OK;
}

static attn_status check_arrays_of_masks(const struct written *all, const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    const int64_t batch = problem->q.shape[0], tq = problem->q.shape[2], tk = problem->k.shape[2];
    if (p->window)
        CHECK(check_array(all, "params.window->global", p->window->global, p->window->num_global,
                          sizeof *p->window->global));
    if (p->block_mask) {
        const attn_block_mask *blocks = p->block_mask;
        const int64_t rows = (blocks->heads ? blocks->heads : 1) * blocks->rows;
        CHECK(check_array(all, "params.block_mask->offsets", blocks->offsets, rows + 1, sizeof *blocks->offsets));
        CHECK(check_array(all, "params.block_mask->columns", blocks->columns, blocks->offsets[rows],
                          sizeof *blocks->columns));
    }
    if (p->segments) {
        CHECK(check_array(all, "params.segments->q", p->segments->q, batch * tq, sizeof *p->segments->q));
        CHECK(check_array(all, "params.segments->k", p->segments->k, batch * tk, sizeof *p->segments->k));
    }
    if (p->tree)
        CHECK(check_array(all, "params.tree->ancestors", p->tree->ancestors,
                          batch * tq * (p->tree->tokens / 64 + (p->tree->tokens % 64 != 0)),
                          sizeof *p->tree->ancestors));
    return ATTN_OK;
}

/** That no output lies on anything that options point to and a call reads, all of which has been checked. */
static attn_status check_options(const struct written *all, const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    CHECK(check_input(all, "params.k_scale", &problem->k_scale));
    CHECK(check_input(all, "params.v_scale", &problem->v_scale));
    if (p->mask)
        CHECK(check_input(all, "params.mask", &problem->mask));
    if (p->disentangled) {
        CHECK(check_input(all, "params.disentangled->rel_k", &problem->rel_k));
        CHECK(check_input(all, "params.disentangled->rel_q", &problem->rel_q));
    }
    if (p->rope) {
        CHECK(check_input(all, "params.rope->q", &problem->rope_q));
        CHECK(check_input(all, "params.rope->k", &problem->rope_k));
    }
    CHECK(check_array(all, "params.weight_rows", p->weight_rows, p->num_weight_rows, sizeof *p->weight_rows));
    CHECK(check_arrays_of_heads(all, problem));
    CHECK(check_arrays_of_sequences(all, problem));
    return check_arrays_of_masks(all, problem);
}

/** That no output lies on another one. */
static attn_status check_each_other(const struct written *all)
{
    for (int i = 1; i < all->count; i++)
        for (int other = 0; other < i; other++)
            CHECK(attn_check_apart(all->names[i], all->views[i], all->names[other], all->views[other], 0));
    return ATTN_OK;
}

/** That no output of a forward call lies on anything that is read, or on another output. */
static attn_status check_apart(const struct attn_problem *problem)
{
    static const char *const names[] = {"out", "params.lse", "params.weights", "params.key_sums", "params.scores"};
    const attn_tensor *const views[] = {&problem->out, &problem->lse, &problem->weights, &problem->key_sums,
                                        &problem->scores};
    const struct written all = written_by(names, views, sizeof views / sizeof *views);
    const int pages = problem->params.block_table != NULL;
    CHECK(check_input(&all, "q", &problem->q));
    CHECK(check_input(&all, "k", pages ? &problem->k_pool : &problem->k));
    CHECK(check_input(&all, "v", pages ? &problem->v_pool : &problem->v));
    if (problem->plain && all.count == 1)
        return ATTN_OK;
    CHECK(check_options(&all, problem));
    return check_each_other(&all);
}

/** Numbers of heads as a tensor. */
static attn_tensor numbers_of(float *data, int64_t count)
{
    return (attn_tensor){data, ATTN_F32, {1, 1, 1, count}, {0, 0, 0, 1}};
}

attn_status attn_check_gradients_apart(const struct attn_backward *b)
{
    static const char *const names[MOST_OUTPUTS] = {"gradients.q",
                                                    "gradients.k",
                                                    "gradients.v",
                                                    "gradients.mask",
                                                    "gradients.head_scale",
                                                    "gradients.sinks",
                                                    "gradients.alibi_slopes",
                                                    "gradients.relative_bias",
                                                    "gradients.rel_k",
                                                    "gradients.rel_q"};
    const struct attn_problem *problem = &b->forward;
    const int64_t heads = problem->q.shape[1];
    const attn_tensor head_scale = numbers_of(b->dhead_scale, heads), sinks = numbers_of(b->dsinks, heads);
    const attn_tensor slopes = numbers_of(b->dslopes, heads);
    const attn_tensor table = numbers_of(b->dtable, b->dtable ? heads * problem->params.relative_bias->buckets : 0);
    const attn_tensor *const views[MOST_OUTPUTS] = {&b->dq, &b->dk,  &b->dv, &b->dmask,  &head_scale,
                                                    &sinks, &slopes, &table, &b->drel_k, &b->drel_q};
    const struct written all = written_by(names, views, MOST_OUTPUTS);
    CHECK(check_input(&all, "q", &problem->q));
    CHECK(check_input(&all, "k", &problem->k));
    CHECK(check_input(&all, "v", &problem->v));
    CHECK(check_input(&all, "out", &problem->out));
    CHECK(check_input(&all, "params.lse", &problem->lse));
    CHECK(check_input(&all, "gradients.out", &b->dout));
    CHECK(check_input(&all, "gradients.lse", &b->dlse));
    CHECK(check_options(&all, problem));
    return check_each_other(&all);
}

attn_status attn_check_outputs(struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    const struct axis batch = {problem->q.shape[0], "the batch of q"};
    const struct axis queries = {problem->q.shape[2], "the tokens of q"},
                      keys = {problem->k.shape[2], "the tokens of k"};
    const struct axis chosen = {p->num_weight_rows, "params.num_weight_rows"};
    CHECK(check_weight_rows(problem, depth));
    CHECK(check_score_stage(p));
    if (p->lse) {
        problem->lse = *p->lse;
        CHECK(check_output("params.lse", p->lse, batch, queries, (struct axis){1, "a number for each query"}, problem,
                           depth));
    }
    if (p->weights) {
        problem->weights = *p->weights;
        CHECK(
            check_output("params.weights", p->weights, batch, p->weight_rows ? chosen : queries, keys, problem, depth));
    }
    if (p->key_sums) {
        problem->key_sums = *p->key_sums;
        const struct axis sum = {1, "as queries are summed over"};
        const struct axis sequences = {problem->num_sequences, "the sequences of the batch"};
        CHECK(check_output("params.key_sums", p->key_sums, attn_sums_by_sequence(problem) ? sequences : batch, sum,
                           keys, problem, depth));
    }
    if (p->scores) {
        problem->scores = *p->scores;
        CHECK(check_output("params.scores", p->scores, batch, p->weight_rows ? chosen : queries, keys, problem, depth));
    }
    return depth & CHECK_TENSORS ? check_apart(problem) : ATTN_OK;
}
