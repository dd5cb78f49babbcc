/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a run asks for what its plan was made with. */
#include "api/check_internal.h"

#include "api/error.h"
#include "dispatch.h"

#include <inttypes.h>
#include <string.h>

static attn_status same_shape(const char *name, const attn_tensor *now, const attn_tensor *planned)
{
    if (now->dtype == planned->dtype && memcmp(now->shape, planned->shape, sizeof now->shape) == 0)
        return ATTN_OK;
    if (now->dtype != planned->dtype)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s.dtype is %s; the plan was made for %s", name,
                         attn_dtype_name(now->dtype), attn_dtype_name(planned->dtype));
    int axis = 0;
    while (now->shape[axis] == planned->shape[axis])
        axis++;
    return attn_fail(ATTN_SHAPE_MISMATCH, "%s.shape[%d] is %" PRId64 "; the plan was made for %" PRId64, name, axis,
                     now->shape[axis], planned->shape[axis]);
}

static attn_status same_operands(const struct attn_problem *now, const struct attn_problem *was)
{
    const struct {
        const char *name;
        const attn_tensor *now, *was;
    } tensors[] = {
        {"q", &now->q, &was->q}, {"k", &now->k, &was->k}, {"v", &now->v, &was->v}, {"out", &now->out, &was->out}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        CHECK(same_shape(tensors[i].name, tensors[i].now, tensors[i].was));
    /* The types of k and v are the same now, so both have scales or neither. */
    if (now->params.k_scale)
        CHECK(same_shape("params.k_scale", &now->k_scale, &was->k_scale));
    if (now->params.v_scale)
        CHECK(same_shape("params.v_scale", &now->v_scale, &was->v_scale));
    return ATTN_OK;
}

/** Whether a tensor that an option points to was given: its data may have been NULL for a plan, its shape may not. */
static int given(const attn_tensor *t)
{
    return t->shape[2] != 0;
}

struct attn_planned attn_planned_of(const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    struct attn_planned planned = {
        .block_size = p->block_mask ? p->block_mask->size : 0,
        .span = p->disentangled ? p->disentangled->span : 0,
        .delta = p->disentangled ? p->disentangled->delta : ATTN_DELTA_QUERY_KEY,
        .rope_layout = p->rope ? p->rope->layout : ATTN_ROPE_HALF_SPLIT,
    };
    const attn_tensor *const tensors[] = {&problem->q, &problem->k, &problem->v, &problem->out};
    /* An executor may have changed by the run, and lse has an address of its own. */
    planned.repeats = problem->plain && !p->executor && !p->lse;
    for (int i = 0; i < 4 && planned.repeats; i++) {
        planned.repeats = attn_is_sound(tensors[i], i == 3);
        if (planned.repeats)
            planned.spans[i] = attn_span_of(tensors[i]);
    }
    return planned;
}

/** Whether params ask for the same as those of was, where isa has become a number. */
static int same_params(const attn_params *params, const struct attn_problem *was)
{
    const size_t isa = offsetof(attn_params, isa), behind = isa + sizeof params->isa;
    return memcmp(params, &was->params, isa) == 0 &&
           memcmp((const char *)params + behind, (const char *)&was->params + behind, sizeof *params - behind) == 0 &&
           (params->isa ? was->isa && attn_isa_row(params->isa) == was->isa : !was->isa);
}

/** Whether tensors differ in their addresses alone. */
static int same_view(const attn_tensor *a, const attn_tensor *b)
{
    return a->dtype == b->dtype && memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           memcmp(a->stride, b->stride, sizeof a->stride) == 0;
}

/** Whether no byte of a view lies on one of another. */
static int are_apart(const attn_tensor *a, struct attn_span a_span, const attn_tensor *b, struct attn_span b_span)
{
    const uint64_t a_start = (uint64_t)(uintptr_t)a->data + (uint64_t)a_span.below;
    const uint64_t b_start = (uint64_t)(uintptr_t)b->data + (uint64_t)b_span.below;
    return a_start - b_start >= (uint64_t)b_span.bytes && b_start - a_start >= (uint64_t)a_span.bytes;
}

int attn_is_repeat(struct attn_problem *problem, const struct attn_problem *was, const struct attn_planned *planned,
                   const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                   const attn_params *params)
{
    const attn_tensor *const now[] = {q, k, v, out}, *const then[] = {&was->q, &was->k, &was->v, &was->out};
    if (!planned->repeats || !params || params->struct_size != sizeof *params || !same_params(params, was))
        return 0;
    for (int i = 0; i < 4; i++) {
        if (!now[i] || !same_view(now[i], then[i]) || !now[i]->data ||
            ((uintptr_t)now[i]->data & (uintptr_t)(attn_element_size(then[i]->dtype) - 1)))
            return 0;
    }
    for (int i = 0; i < 3; i++)
        if (!are_apart(out, planned->spans[3], now[i], planned->spans[i]))
            return 0;
    *problem = *was;
    problem->q.data = q->data;
    problem->k.data = k->data;
    problem->v.data = v->data;
    problem->out.data = out->data;
    return 1;
}

attn_status attn_check_planned(const struct attn_problem *now, const struct attn_problem *was,
                               const struct attn_planned *planned)
{
    CHECK(same_operands(now, was));
    const attn_params *p = &now->params, *w = &was->params;
    if (now->plain && was->plain && p->scale == w->scale && p->temperature == w->temperature &&
        p->causal == w->causal && !p->lse == !w->lse && now->isa == was->isa)
        return ATTN_OK; /* as of a call of a microsecond, which the list below would make longer */
    const struct attn_planned asked = attn_planned_of(now);
    const struct {
        const char *name;
        int differs;
    } options[] = {
        {"scale", p->scale != w->scale},
        {"temperature", p->temperature != w->temperature},
        {"head_scale", !p->head_scale != !w->head_scale},
        {"softcap", (p->softcap != 0.0f) != (w->softcap != 0.0f)},
        {"sinks", !p->sinks != !w->sinks},
        {"alibi_slopes", !p->alibi_slopes != !w->alibi_slopes},
        {"relative_bias", !p->relative_bias != !w->relative_bias},
        {"disentangled", !p->disentangled != !w->disentangled},
        {"disentangled->span", asked.span != planned->span},
        {"disentangled->rel_k", given(&now->rel_k) != given(&was->rel_k)},
        {"disentangled->rel_q", given(&now->rel_q) != given(&was->rel_q)},
        {"disentangled->delta", asked.delta != planned->delta},
        {"rope", !p->rope != !w->rope},
        {"rope->layout", asked.rope_layout != planned->rope_layout},
        {"rope->q.shape[3]", now->rope_q.shape[3] != was->rope_q.shape[3]},
        {"callback", !p->callback != !w->callback},
        {"causal", p->causal != w->causal},
        {"query_offset", !p->query_offset != !w->query_offset},
        {"kv_len", !p->kv_len != !w->kv_len},
        {"kv_start", !p->kv_start != !w->kv_start},
        {"prefix_len", !p->prefix_len != !w->prefix_len},
        {"window", !p->window != !w->window},
        {"block_mask", !p->block_mask != !w->block_mask},
        {"block_mask->size", asked.block_size != planned->block_size},
        {"segments", !p->segments != !w->segments},
        {"tree", !p->tree != !w->tree},
        {"mask", !p->mask != !w->mask || (p->mask && now->mask.dtype != was->mask.dtype)},
        {"ragged", !p->ragged != !w->ragged},
        {"block_table", !p->block_table != !w->block_table},
        {"page_size", p->page_size != w->page_size},
        {"ragged->num_sequences", p->ragged && now->num_sequences != was->num_sequences},
        {"dropout", !p->dropout != !w->dropout},
        {"weight_callback", !p->weight_callback != !w->weight_callback},
        {"lse", !p->lse != !w->lse},
        {"weights", !p->weights != !w->weights},
        {"num_weight_rows", p->num_weight_rows != w->num_weight_rows},
        {"key_sums", !p->key_sums != !w->key_sums},
        {"scores", !p->scores != !w->scores},
        {"score_stage", p->score_stage != w->score_stage},
        {"qk", p->qk != w->qk},
        {"inputs", p->inputs != w->inputs},
        {"sums", p->sums != w->sums},
        {"isa", now->isa != was->isa},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].differs)
            return attn_fail(ATTN_INVALID_ARGUMENT, "params.%s differs from what the plan was made with",
                             options[i].name);
    return ATTN_OK; /* whether both are plain says no more: what padding holds may differ */
}
