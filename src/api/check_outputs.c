/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the outputs on request; and that all outputs, out among them, have
 * memory of their own.
 */
#include "api/check_internal.h"

#include "api/error.h"

#include <inttypes.h>

/** The length of an axis, and what it counts. */
struct axis {
    int64_t length;
    const char *meaning;
};

/** An output on request: f32, with an element for each batch element and head of q, and so many along the other axes.
 */
static attn_status check_output(const char *name, const attn_tensor *t, struct axis tokens, struct axis channels,
                                const struct attn_problem *problem, enum check_depth depth)
{
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_f32(name, t->dtype));
    CHECK(attn_check_axis(name, t, 0, problem->q.shape[0], "the batch of q"));
    CHECK(attn_check_axis(name, t, 1, problem->q.shape[1], "the heads of q"));
    CHECK(attn_check_axis(name, t, 2, tokens.length, tokens.meaning));
    CHECK(attn_check_axis(name, t, 3, channels.length, channels.meaning));
    return depth == CHECK_ALL ? attn_check_distinct(name, t) : ATTN_OK;
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
    for (int64_t i = 0; depth == CHECK_ALL && i < p->num_weight_rows; i++)
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

/** Memory that a call reads. */
struct input {
    const char *name;
    attn_tensor view; /**< data NULL: absent */
};

static struct input tensor_input(const char *name, const attn_tensor *t)
{
    return (struct input){name, *t};
}

/** An array of count entries of size bytes, as bytes; NULL is absent. */
static struct input array_input(const char *name, const void *array, int64_t count, size_t size)
{
    const int64_t bytes = array ? count * (int64_t)size : 0;
    return (struct input){name, {(void *)(uintptr_t)array, ATTN_U8, {1, 1, 1, bytes}, {0, 0, 0, 1}}};
}

enum { MOST_INPUTS = 26 };

/** Lists everything that a call reads, once all of it has been checked. Returns how much that is. */
static int list_inputs(const struct attn_problem *problem, struct input inputs[MOST_INPUTS])
{
    const attn_params *p = &problem->params;
    const int64_t sequences = problem->num_sequences, heads = problem->q.shape[1];
    const int64_t batch = problem->q.shape[0], tq = problem->q.shape[2], tk = problem->k.shape[2];
    int n = 0;
    inputs[n++] = tensor_input("q", &problem->q);
    inputs[n++] = tensor_input("k", &problem->k);
    inputs[n++] = tensor_input("v", &problem->v);
    inputs[n++] = array_input("params.head_scale", p->head_scale, heads, sizeof *p->head_scale);
    inputs[n++] = array_input("params.sinks", p->sinks, heads, sizeof *p->sinks);
    inputs[n++] = array_input("params.alibi_slopes", p->alibi_slopes, heads, sizeof *p->alibi_slopes);
    inputs[n++] = array_input("params.query_offset", p->query_offset, sequences, sizeof *p->query_offset);
    inputs[n++] = array_input("params.kv_len", p->kv_len, sequences, sizeof *p->kv_len);
    inputs[n++] = array_input("params.kv_start", p->kv_start, sequences, sizeof *p->kv_start);
    inputs[n++] = array_input("params.prefix_len", p->prefix_len, sequences, sizeof *p->prefix_len);
    inputs[n++] = array_input("params.weight_rows", p->weight_rows, p->num_weight_rows, sizeof *p->weight_rows);
    if (p->mask)
        inputs[n++] = tensor_input("params.mask", &problem->mask);
    if (p->relative_bias)
        inputs[n++] = array_input("params.relative_bias->table", p->relative_bias->table,
                                  heads * p->relative_bias->buckets, sizeof *p->relative_bias->table);
    if (p->disentangled && p->disentangled->rel_k)
        inputs[n++] = tensor_input("params.disentangled->rel_k", &problem->rel_k);
    if (p->disentangled && p->disentangled->rel_q)
        inputs[n++] = tensor_input("params.disentangled->rel_q", &problem->rel_q);
    if (p->rope) {
        inputs[n++] = tensor_input("params.rope->q", &problem->rope_q);
        inputs[n++] = tensor_input("params.rope->k", &problem->rope_k);
    }
    if (p->window)
        inputs[n++] =
            array_input("params.window->global", p->window->global, p->window->num_global, sizeof *p->window->global);
    if (p->block_mask) {
        const attn_block_mask *blocks = p->block_mask;
        const int64_t rows = (blocks->heads ? blocks->heads : 1) * blocks->rows;
        inputs[n++] = array_input("params.block_mask->offsets", blocks->offsets, rows + 1, sizeof *blocks->offsets);
        inputs[n++] =
            array_input("params.block_mask->columns", blocks->columns, blocks->offsets[rows], sizeof *blocks->columns);
    }
    if (p->segments) {
        inputs[n++] = array_input("params.segments->q", p->segments->q, batch * tq, sizeof *p->segments->q);
        inputs[n++] = array_input("params.segments->k", p->segments->k, batch * tk, sizeof *p->segments->k);
    }
    if (p->tree)
        inputs[n++] =
            array_input("params.tree->ancestors", p->tree->ancestors,
                        batch * tq * (p->tree->tokens / 64 + (p->tree->tokens % 64 != 0)), sizeof *p->tree->ancestors);
    if (p->ragged) {
        inputs[n++] = array_input("params.ragged->cu_seqlens_q", p->ragged->cu_seqlens_q, sequences + 1,
                                  sizeof *p->ragged->cu_seqlens_q);
        inputs[n++] = array_input("params.ragged->cu_seqlens_k", p->ragged->cu_seqlens_k, sequences + 1,
                                  sizeof *p->ragged->cu_seqlens_k);
    }
    return n;
}

/** That no output lies on anything that is read, or on another output. */
static attn_status check_apart(const struct attn_problem *problem)
{
    static const char *const names[] = {"out", "params.lse", "params.weights", "params.key_sums", "params.scores"};
    const attn_tensor *const outputs[] = {&problem->out, &problem->lse, &problem->weights, &problem->key_sums,
                                          &problem->scores};
    struct input inputs[MOST_INPUTS];
    const int num_inputs = list_inputs(problem, inputs);
    for (int i = 0; i < 5; i++) {
        if (!outputs[i]->data)
            continue;
        for (int n = 0; n < num_inputs; n++)
            if (inputs[n].view.data)
                CHECK(attn_check_apart(names[i], outputs[i], inputs[n].name, &inputs[n].view, 0));
        for (int other = 0; other < i; other++)
            if (outputs[other]->data)
                CHECK(attn_check_apart(names[i], outputs[i], names[other], outputs[other], 0));
    }
    return ATTN_OK;
}

attn_status attn_check_outputs(struct attn_problem *problem, enum check_depth depth)
{
    const attn_params *p = &problem->params;
    const struct axis queries = {problem->q.shape[2], "the tokens of q"},
                      keys = {problem->k.shape[2], "the tokens of k"};
    const struct axis chosen = {p->num_weight_rows, "params.num_weight_rows"};
    CHECK(check_weight_rows(problem, depth));
    CHECK(check_score_stage(p));
    if (p->lse) {
        problem->lse = *p->lse;
        CHECK(check_output("params.lse", p->lse, queries, (struct axis){1, "a number for each query"}, problem, depth));
    }
    if (p->weights) {
        problem->weights = *p->weights;
        CHECK(check_output("params.weights", p->weights, p->weight_rows ? chosen : queries, keys, problem, depth));
    }
    if (p->key_sums) {
        problem->key_sums = *p->key_sums;
        const struct axis sum = {1, "as queries are summed over"};
        CHECK(check_output("params.key_sums", p->key_sums, sum, keys, problem, depth));
    }
    if (p->scores) {
        problem->scores = *p->scores;
        CHECK(check_output("params.scores", p->scores, p->weight_rows ? chosen : queries, keys, problem, depth));
    }
    return depth == CHECK_ALL ? check_apart(problem) : ATTN_OK;
}
