/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of a whole request, in the order of the arguments: tensors, then
 * options, then the arrays and tensors that options point to. Here are the
 * order, the operands and the scalar options; the other groups of options have
 * files of their own.
 */
#include "api/check_internal.h"

#include "api/environment.h"
#include "api/error.h"
#include "api/executor.h"
#include "dispatch.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_HEAD_SIZE 4096

static attn_status check_head_size(const char *name, const attn_tensor *t)
{
    if (t->shape[3] > MAX_HEAD_SIZE)
        return attn_fail(ATTN_UNSUPPORTED, "%s.shape[3] is %" PRId64 "; head sizes go up to %d", name, t->shape[3],
                         MAX_HEAD_SIZE);
    return ATTN_OK;
}

static attn_status check_operands(const struct attn_problem *p, enum check_depth depth)
{
    const attn_tensor *tensors[] = {&p->q, &p->k, &p->v, &p->out};
    static const char *const names[] = {"q", "k", "v", "out"};
    for (int i = 0; i < 4; i++) {
        CHECK(attn_check_tensor(names[i], tensors[i], depth));
        const int stored = i == 1 || i == 2; /* k and v may be quantised */
        CHECK(stored ? attn_check_stored(names[i], tensors[i]->dtype) : attn_check_float(names[i], tensors[i]->dtype));
        CHECK(check_head_size(names[i], tensors[i]));
        if (depth & CHECK_TENSORS) {
            CHECK(attn_check_contiguous(names[i], tensors[i]));
            CHECK(attn_check_groups(names[i], tensors[i]));
        }
    }
    return ATTN_OK;
}

/** That the operands fit together. */
static attn_status check_shapes(const struct attn_problem *p, enum check_depth depth)
{
    if (!p->params.block_table) { /* which is in the place of a batch and tokens */
        CHECK(attn_check_axis("k", &p->k, 0, p->q.shape[0], "the batch of q"));
        CHECK(attn_check_axis("v", &p->v, 0, p->q.shape[0], "the batch of q"));
        CHECK(attn_check_axis("v", &p->v, 2, p->k.shape[2], "the tokens of k"));
    }
    CHECK(attn_check_axis("v", &p->v, 1, p->k.shape[1], "the heads of k"));
    CHECK(attn_check_axis("k", &p->k, 3, p->q.shape[3], "the head size of q"));
    CHECK(attn_check_axis("out", &p->out, 0, p->q.shape[0], "the batch of q"));
    CHECK(attn_check_axis("out", &p->out, 1, p->q.shape[1], "the heads of q"));
    CHECK(attn_check_axis("out", &p->out, 2, p->q.shape[2], "the tokens of q"));
    CHECK(attn_check_axis("out", &p->out, 3, p->v.shape[3], "the head size of v"));
    const int64_t heads = p->q.shape[1], kv_heads = p->k.shape[1];
    if (heads > 0 && (kv_heads == 0 || heads % kv_heads != 0))
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "q.shape[1] is %" PRId64 "; expected a multiple of the %" PRId64 " heads of k", heads,
                         kv_heads);
    return depth & CHECK_TENSORS ? attn_check_distinct("out", &p->out) : ATTN_OK;
}

/** Options that have a place in attn_params but no kernel yet. */
static attn_status check_reserved(const attn_params *p)
{
    const struct {
        const char *name;
        int set;
    } reserved[] = {
        {"q_scale", p->q_scale != NULL},
    };
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (reserved[i].set)
            return attn_fail(ATTN_UNSUPPORTED, "params.%s is set; version %s does not implement it", reserved[i].name,
                             attn_version_string());
    return ATTN_OK;
}

static attn_status check_scale(struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    if (!isfinite(p->scale))
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.scale is %g; expected a finite number", (double)p->scale);
    if (!isfinite(p->temperature) || p->temperature < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.temperature is %g; expected a positive number, or 0 for 1",
                         (double)p->temperature);
    const int64_t d = problem->q.shape[3];
    const double scale = p->scale != 0.0f ? (double)p->scale : d > 0 ? 1.0 / sqrt((double)d) : 1.0;
    const int divided = p->temperature != 0.0f && p->temperature != 1.0f;
    problem->scale = (float)(scale / (divided ? (double)p->temperature : 1.0));
    if (isfinite(problem->scale * 2.0f)) /* with room for the factor log2(e) */
        return ATTN_OK;
    if (!divided)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.scale is %g; expected at most %g in size", (double)p->scale,
                         (double)(FLT_MAX / 2));
    return attn_fail(ATTN_INVALID_ARGUMENT,
                     "params.temperature is %g; expected one by which the scale, %g, becomes at most %g in size",
                     (double)p->temperature, scale, (double)(FLT_MAX / 2));
}

attn_status attn_check_isa(const char *name, int *row)
{
    *row = 0;
    if (!name)
        return ATTN_OK;
    *row = attn_isa_row(name);
    if (*row && attn_isa_supported(name))
        return ATTN_OK;
    if (*row)
        return attn_fail(ATTN_UNSUPPORTED, "params.isa is %s, which this processor does not have", name);
    char names[128];
    attn_isa_list(names, sizeof names);
    return attn_fail(ATTN_INVALID_ARGUMENT, "params.isa is '%.32s'; expected NULL or one of %s", name, names);
}

/** Every instruction set has products in f32, but not in int8. */
static attn_status check_int8(const struct attn_problem *problem)
{
    struct attn_kernels kernels;
    const struct attn_demand demand = {.isa = problem->isa ? problem->isa : attn_environment()->max_isa,
                                       .qk = ATTN_QK_INT8};
    const struct attn_demand anywhere = {.qk = ATTN_QK_INT8};
    if (attn_kernels_choose(&kernels, &demand))
        return ATTN_OK;
    return attn_fail(ATTN_UNSUPPORTED, "params.qk is ATTN_QK_INT8, and %s",
                     attn_kernels_choose(&kernels, &anywhere) ? "the instruction set in use has no int8 dot products"
                                                              : "this processor has no int8 dot products");
}

static attn_status check_choices(struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    if ((unsigned)p->causal > ATTN_CAUSAL_OFFSET)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.causal is %d; expected an attn_causal", (int)p->causal);
    if ((unsigned)p->qk > ATTN_QK_INT8)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.qk is %d; expected an attn_qk", (int)p->qk);
    if ((unsigned)p->inputs > ATTN_INPUTS_MAY_BE_BF16)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.inputs is %d; expected an attn_inputs", (int)p->inputs);
    if ((unsigned)p->sums > ATTN_SUMS_FREE)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.sums is %d; expected an attn_sums", (int)p->sums);
    CHECK(attn_check_isa(p->isa, &problem->isa));
    problem->params.isa = NULL; /* read now, and kept as the number of a row */
    if (p->qk == ATTN_QK_INT8)
        CHECK(check_int8(problem));
    if (p->num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.num_threads is %d; expected 0 or more", p->num_threads);
    return attn_check_executor("params.executor", p->executor);
}

/**
 * Whether no field asks for anything. Fields are not listed, so that a further option is not forgotten; what padding
 * holds may make it say no, which costs time and nothing else.
 */
static int asks_for_nothing(const attn_params *rest)
{
    uint64_t any = 0, word;
    _Static_assert(sizeof *rest % sizeof word == 0, "words are all there is of it");
    for (size_t at = 0; at < sizeof *rest; at += sizeof word) {
        memcpy(&word, (const char *)rest + at, sizeof word);
        any |= word;
    }
    return any == 0;
}

/** Whether causality, a scale and the log-sum-exp are all that is asked for. */
static int is_plain(const attn_params *params)
{
    attn_params rest = *params;
    rest.struct_size = 0;
    rest.causal = ATTN_CAUSAL_NONE;
    rest.scale = rest.temperature = 0.0f;
    rest.num_threads = 0;
    rest.executor = NULL;
    rest.lse = NULL;
    return asks_for_nothing(&rest);
}

/**
 * Whether rows of a block of queries may be of several heads: nothing is asked for that is shown to the caller tile by
 * tile or summed over queries, that follows from a lane's number, or that one number for a strip says.
 */
static int heads_may_be_together(const attn_params *params)
{
    attn_params rest = *params;
    rest.causal = ATTN_CAUSAL_NONE;
    rest.struct_size = 0;
    rest.scale = rest.temperature = rest.softcap = 0.0f;
    rest.num_threads = 0;
    rest.executor = NULL;
    rest.lse = rest.mask = NULL;
    rest.query_offset = rest.kv_len = rest.kv_start = rest.prefix_len = NULL;
    rest.sinks = rest.alibi_slopes = NULL;
    rest.relative_bias = NULL;
    rest.rope = NULL;
    rest.window = NULL;
    rest.segments = NULL;
    rest.tree = NULL;
    rest.ragged = NULL;
    rest.block_table = NULL;
    rest.block_table_stride = rest.page_size = 0;
    rest.qk = ATTN_QK_DEFAULT;
    rest.inputs = (attn_inputs)0;
    rest.sums = ATTN_SUMS_ORDERED;
    rest.k_scale = rest.v_scale = NULL; /* they belong to heads of k and v */
    return asks_for_nothing(&rest);
}

attn_status attn_check_rectangle(struct attn_problem *problem, const struct attn_rectangle *rectangle,
                                 const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                 const attn_tensor *out, const attn_params *params, enum check_depth depth)
{
    static const char *const names[] = {"q", "k", "v", "out"};
    const attn_tensor *const tensors[] = {q, k, v, out};
    for (int i = 0; i < 4; i++)
        if (!tensors[i])
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected a tensor", names[i]);
    memset(problem, 0, sizeof *problem);
    problem->rectangle = rectangle;
    problem->q = *q, problem->k = *k, problem->v = *v, problem->out = *out;
    CHECK(check_operands(problem, depth));
    CHECK(attn_take_params(&problem->params, params));
    CHECK(attn_check_pages(problem));
    CHECK(check_shapes(problem, depth));
    CHECK(check_reserved(&problem->params));
    CHECK(check_choices(problem));
    CHECK(check_scale(problem));
    CHECK(attn_check_sequences(problem, depth));
    problem->plain = is_plain(&problem->params);
    problem->may_be_together = heads_may_be_together(&problem->params);
    if (!problem->plain) {
        CHECK(attn_check_scores(problem, depth));
        CHECK(attn_check_masks(problem, depth));
        CHECK(attn_check_block_table(problem, depth));
    }
    CHECK(attn_check_quantised(problem, depth));
    return attn_check_outputs(problem, depth);
}

attn_status attn_check(struct attn_problem *problem, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                       const attn_tensor *out, const attn_params *params, enum check_depth depth)
{
    return attn_check_rectangle(problem, NULL, q, k, v, out, params, depth);
}
