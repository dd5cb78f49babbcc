/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Alignments: the two dot products and the general score are attention of the
 * core, whose keys are projected keys and whose scale follows from the score
 * function; the additive one has a kernel of its own (additive.c).
 */
#include "nn/alignment.h"

#include "api/call.h"
#include "api/executor.h"
#include "driver/ranges.h"
#include "driver/threads.h"
#include "nn/additive.h"
#include "nn/check.h"
#include "nn/linear.h"
#include "nn/memory.h"
#include "nn/tensor_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ making -- */

/** "config.w_k" and the like. */
static struct nn_name member(const char *name, const char *field)
{
    struct nn_name full;
    snprintf(full.text, sizeof full.text, "%s.%s", name, field);
    return full;
}

/** That a weight which the score function does not have was not given. */
static attn_status check_absent(const char *name, const char *field, const attn_tensor *t)
{
    if (t->data)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.%s is set; expected data NULL, as this score has no such weight",
                         name, field);
    return ATTN_OK;
}

static attn_status check_dot(const attn_alignment_config *c, const char *name)
{
    if (c->d_key != c->d_query)
        return attn_fail(ATTN_SHAPE_MISMATCH, "%s.d_key is %" PRId64 "; expected %" PRId64 ", as d_query is", name,
                         c->d_key, c->d_query);
    CHECK(check_absent(name, "w_q", &c->w_q));
    CHECK(check_absent(name, "w_k", &c->w_k));
    CHECK(check_absent(name, "bias", &c->bias));
    return check_absent(name, "v", &c->v);
}

static attn_status check_general(const attn_alignment_config *c, const char *name)
{
    CHECK(nn_check_matrix(member(name, "w_k").text, &c->w_k, c->d_query, c->d_key));
    CHECK(check_absent(name, "w_q", &c->w_q));
    CHECK(check_absent(name, "bias", &c->bias));
    return check_absent(name, "v", &c->v);
}

static attn_status check_additive(const attn_alignment_config *c, const char *name)
{
    CHECK(nn_check_matrix(member(name, "w_q").text, &c->w_q, c->d_attention, c->d_query));
    CHECK(nn_check_matrix(member(name, "w_k").text, &c->w_k, c->d_attention, c->d_key));
    if (c->bias.data)
        CHECK(nn_check_vector(member(name, "bias").text, &c->bias, c->d_attention));
    return nn_check_vector(member(name, "v").text, &c->v, c->d_attention);
}

attn_status nn_take_alignment_config(attn_alignment_config *c, const char *name, const attn_alignment_config *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected a score function", name);
    CHECK(attn_take_struct(name, c, sizeof *c, NN_ALIGNMENT_CONFIG_FIRST, theirs));
    if ((unsigned)c->score > ATTN_SCORE_ADDITIVE)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.score is %d; expected an attn_score", name, (int)c->score);
    CHECK(nn_check_length(member(name, "d_query").text, c->d_query, 1));
    CHECK(nn_check_length(member(name, "d_key").text, c->d_key, 1));
    if (c->score == ATTN_SCORE_ADDITIVE)
        CHECK(nn_check_length(member(name, "d_attention").text, c->d_attention, 1));
    else if (c->d_attention != 0)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "%s.d_attention is %" PRId64 "; expected 0 unless score is ATTN_SCORE_ADDITIVE", name,
                         c->d_attention);
    /* Twice, so that a scale of up to 1 has room for the factor log2(e) of the core. */
    if (!isfinite(c->temperature) || c->temperature < 0 ||
        (c->temperature != 0.0f && !isfinite((float)(2.0 / (double)c->temperature))))
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "%s.temperature is %g; expected a positive number whose inverse a float can hold, or 0 "
                         "for 1",
                         name, (double)c->temperature);
    return c->score == ATTN_SCORE_ADDITIVE  ? check_additive(c, name)
           : c->score == ATTN_SCORE_GENERAL ? check_general(c, name)
                                            : check_dot(c, name);
}

static attn_status pack(struct attn_alignment *alignment, const attn_alignment_config *c)
{
    if (c->score == ATTN_SCORE_GENERAL)
        return attn_linear_create(&alignment->w_k, 1, &c->w_k, NULL);
    if (c->score != ATTN_SCORE_ADDITIVE)
        return ATTN_OK;
    CHECK(nn_additive_vector(&alignment->v, "config.v", &c->v, c->temperature));
    CHECK(attn_linear_create(&alignment->w_q, 1, &c->w_q, NULL));
    return attn_linear_create(&alignment->w_k, 1, &c->w_k, &c->bias);
}

attn_status attn_alignment_create(attn_alignment **alignment_out, const attn_alignment_config *config)
{
    if (!alignment_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "alignment is NULL; expected where to put the score function");
    *alignment_out = NULL;
    attn_alignment_config ours;
    CHECK(nn_take_alignment_config(&ours, "config", config));
    struct attn_alignment *alignment = calloc(1, sizeof *alignment);
    if (!alignment)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a score function of %zu bytes could not be allocated", sizeof *alignment);
    alignment->kernels = attn_nn_kernels_active();
    alignment->score = ours.score;
    alignment->d_query = ours.d_query;
    alignment->d_key = ours.d_key;
    alignment->d_projected = ours.score == ATTN_SCORE_ADDITIVE ? ours.d_attention : ours.d_query;
    alignment->temperature = ours.temperature;
    const attn_status status = pack(alignment, &ours);
    if (status) {
        attn_alignment_destroy(alignment);
        return status;
    }
    *alignment_out = alignment;
    return ATTN_OK;
}

void attn_alignment_destroy(attn_alignment *alignment)
{
    if (!alignment)
        return;
    attn_linear_destroy(alignment->w_q);
    attn_linear_destroy(alignment->w_k);
    free(alignment->v);
    free(alignment);
}

int64_t attn_alignment_projected(const attn_alignment *alignment)
{
    return alignment->d_projected;
}

/* -------------------------------------------------------------------- keys -- */

struct copy {
    const struct attn_nn_kernels *kernels;
    const attn_tensor *from, *to;
};

static void copy_rows(const void *context, int64_t first, int64_t end)
{
    const struct copy *copy = context;
    const int64_t tokens = copy->to->shape[2];
    for (int64_t row = first; row < end; row++)
        nn_copy_row(copy->kernels, nn_row_address(copy->to, row / tokens, row % tokens), copy->to->dtype,
                    nn_row_address(copy->from, row / tokens, row % tokens), copy->from->dtype, copy->to->shape[3]);
}

attn_status attn_alignment_project(const attn_alignment *alignment, const attn_tensor *keys,
                                   const attn_tensor *projected, int num_threads)
{
    if (!alignment)
        return attn_fail(ATTN_INVALID_ARGUMENT, "alignment is NULL; expected a score function");
    CHECK(nn_check_typed_activations("keys", keys, NN_ANY, NN_ANY, alignment->d_key));
    CHECK(nn_check_typed_output("projected", projected, keys->shape[0], keys->shape[2], alignment->d_projected));
    CHECK(attn_check_apart("projected", projected, "keys", keys, 0));
    CHECK(nn_check_threads(num_threads));
    const attn_linear_options options = nn_linear_threads(num_threads);
    if (alignment->w_k)
        return attn_linear_forward(alignment->w_k, keys, projected, &options);
    const struct copy copy = {alignment->kernels, keys, projected};
    const int64_t rows = keys->shape[0] * keys->shape[2];
    attn_run_ranges(rows, nn_threads(num_threads, (double)rows * (double)alignment->d_key / 4), copy_rows, &copy);
    return ATTN_OK;
}

/* --------------------------------------------------------------- attention -- */

attn_status nn_take_alignment_params(attn_params *p, attn_score score, float temperature, const attn_params *params)
{
    CHECK(attn_take_params(p, params));
    if (p->scale != 0.0f)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.scale is %g; expected 0, as the score function has its own",
                         (double)p->scale);
    if (p->temperature != 0.0f)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.temperature is %g; expected 0, as the score function has its own",
                         (double)p->temperature);
    if (p->head_scale)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.head_scale is set; expected NULL, as there is one head");
    p->scale = score == ATTN_SCORE_SCALED_DOT ? 0.0f : 1.0f;
    p->temperature = temperature;
    return ATTN_OK;
}

/** Working memory of the additive score. */
struct pieces {
    struct nn_progress *progress;
    float *query; /* [B][Tq][d_attention] W_q q */
    void *attention;
    size_t attention_size;
};

static struct pieces take_pieces(struct nn_arena *arena, int64_t batch, int64_t q_tokens, int64_t width,
                                 struct nn_need attention)
{
    struct pieces pieces;
    pieces.progress = nn_take_progress(arena);
    pieces.query = nn_take(arena, batch, q_tokens, width, sizeof(float));
    pieces.attention = nn_take_workspace(arena, attention, &pieces.attention_size);
    return pieces;
}

/** (B, 1, T, C), without data: sizes may be too large for strides, which stay 0. */
static attn_tensor shape_of(int64_t batch, int64_t tokens, int64_t channels)
{
    return (attn_tensor){.shape = {batch, 1, tokens, channels}};
}

struct nn_need nn_additive_alignment_need(const attn_alignment *alignment, int64_t batch, int64_t q_tokens,
                                          int64_t k_tokens, int64_t d_value, const attn_params *params)
{
    const attn_tensor q = shape_of(batch, q_tokens, alignment->d_projected);
    const attn_tensor k = shape_of(batch, k_tokens, alignment->d_projected);
    const attn_tensor v = shape_of(batch, k_tokens, d_value), out = shape_of(batch, q_tokens, d_value);
    struct nn_arena arena = {0}, queries = {0};
    nn_take(&queries, batch, q_tokens, alignment->d_projected, sizeof(float));
    if (queries.status || nn_check_additive(params, &q, &k, &v, &out, CHECK_SHAPES))
        return (struct nn_need){SIZE_MAX, SIZE_MAX};
    const struct attn_problem problem = nn_additive_problem(&q, &k, &v, &out, params);
    take_pieces(&arena, batch, q_tokens, alignment->d_projected, nn_additive_need(&problem));
    return nn_arena_need(&arena);
}

size_t attn_alignment_workspace_size(const attn_alignment *alignment, int64_t batch, int64_t q_tokens, int64_t k_tokens,
                                     int64_t d_value, const attn_params *params)
{
    if (!alignment || batch < 0 || q_tokens < 0 || k_tokens < 0 || d_value < 0)
        return SIZE_MAX;
    attn_params p;
    if (nn_take_alignment_params(&p, alignment->score, alignment->temperature, params))
        return SIZE_MAX;
    if (alignment->score == ATTN_SCORE_ADDITIVE) {
        if (nn_check_threads(p.num_threads) || attn_check_executor("params.executor", p.executor))
            return SIZE_MAX;
        const attn_executor *before = attn_executor_enter(p.executor);
        const size_t size = nn_additive_alignment_need(alignment, batch, q_tokens, k_tokens, d_value, &p).size;
        attn_executor_leave(before);
        return size;
    }
    const attn_tensor q = shape_of(batch, q_tokens, alignment->d_query);
    const attn_tensor projected = shape_of(batch, k_tokens, alignment->d_query);
    const attn_tensor v = shape_of(batch, k_tokens, d_value), out = shape_of(batch, q_tokens, d_value);
    struct nn_arena arena = {0};
    struct attn_call core;
    if (attn_call_make(&core, &q, &projected, &v, &out, &p, CHECK_SHAPES))
        return SIZE_MAX;
    nn_take_progress(&arena);
    nn_take_bytes(&arena, attn_call_size(&core));
    return nn_arena_size(&arena);
}

static attn_status check_operands(const attn_alignment *alignment, const attn_tensor *q, const attn_tensor *projected,
                                  const attn_tensor *v, const attn_tensor *out)
{
    if (!alignment)
        return attn_fail(ATTN_INVALID_ARGUMENT, "alignment is NULL; expected a score function");
    CHECK(nn_check_typed_activations("q", q, NN_ANY, NN_ANY, alignment->d_query));
    CHECK(nn_check_typed_activations("projected", projected, q->shape[0], NN_ANY, alignment->d_projected));
    CHECK(nn_check_typed_activations("v", v, q->shape[0], projected->shape[2], NN_ANY));
    CHECK(nn_check_typed_output("out", out, q->shape[0], q->shape[2], v->shape[3]));
    CHECK(attn_check_apart("out", out, "q", q, 0));
    CHECK(attn_check_apart("out", out, "projected", projected, 0));
    return attn_check_apart("out", out, "v", v, 0);
}

static attn_status forward_core(const attn_tensor *q, const attn_tensor *projected, const attn_tensor *v,
                                const attn_tensor *out, const attn_params *params, void *workspace,
                                size_t workspace_size)
{
    struct nn_workspace memory;
    struct nn_arena measured = {0};
    struct attn_call core;
    CHECK(attn_call_make(&core, q, projected, v, out, params, CHECK_ALL));
    const struct nn_need need = {attn_call_size(&core), attn_call_least_size(&core)};
    size_t size;
    nn_take_progress(&measured);
    nn_take_workspace(&measured, need, &size);
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    struct nn_progress *progress = nn_take_progress(&memory.arena);
    void *piece = nn_take_workspace(&memory.arena, need, &size);
    nn_progress_begin(progress, attn_geometry_tasks(&core.geometry));
    core.geometry.begun = &progress->begun;
    const attn_status status = attn_call_run(&core, piece, size);
    nn_workspace_close(&memory);
    return status;
}

static attn_status forward_additive(const attn_alignment *alignment, const attn_tensor *q, const attn_tensor *projected,
                                    const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                    void *workspace, size_t workspace_size)
{
    const int64_t batch = q->shape[0], tokens = q->shape[2], width = alignment->d_projected;
    struct nn_workspace memory;
    struct nn_arena measured = {0};
    CHECK(nn_check_additive(params, q, projected, v, out, CHECK_ALL));
    attn_tensor query = shape_of(batch, tokens, width);
    struct attn_problem problem = nn_additive_problem(&query, projected, v, out, params);
    take_pieces(&measured, batch, tokens, width, nn_additive_need(&problem));
    CHECK(nn_workspace_open(&memory, workspace, workspace_size, &measured));
    const struct pieces pieces = take_pieces(&memory.arena, batch, tokens, width, (struct nn_need){0});
    problem.q = query = attn_btc(pieces.query, batch, tokens, width);
    const attn_linear_options options = nn_linear_threads(params->num_threads);
    const attn_status status = attn_linear_forward(alignment->w_q, q, &query, &options);
    if (!status)
        nn_additive_run(
            &(struct nn_additive){
                .kernels = alignment->kernels, .score = alignment->v, .problem = &problem, .progress = pieces.progress},
            pieces.attention, pieces.attention_size);
    nn_workspace_close(&memory);
    return status;
}

attn_status attn_alignment_forward(const attn_alignment *alignment, const attn_tensor *q, const attn_tensor *projected,
                                   const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                   void *workspace, size_t workspace_size)
{
    CHECK(check_operands(alignment, q, projected, v, out));
    attn_params p;
    CHECK(nn_take_alignment_params(&p, alignment->score, alignment->temperature, params));
    if (alignment->score != ATTN_SCORE_ADDITIVE)
        return forward_core(q, projected, v, out, &p, workspace, workspace_size);
    CHECK(attn_check_executor("params.executor", p.executor));
    const attn_executor *before = attn_executor_enter(p.executor);
    const attn_status status = forward_additive(alignment, q, projected, v, out, &p, workspace, workspace_size);
    attn_executor_leave(before);
    return status;
}
