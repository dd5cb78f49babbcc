/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the options of additive attention: what it has no kernel for is
 * refused by name, all else is checked by the core, as it is the core that finds
 * out which keys a query sees (additive.h).
 */
#include "nn/additive.h"
#include "nn/alignment.h"
#include "nn/check.h"

#include <inttypes.h>

/** Options of attn_params that belong to products of queries and keys, or that the kernel lacks. */
static attn_status check_refused(const attn_params *p)
{
    const struct {
        const char *name;
        int set;
    } refused[] = {
        {"softcap", p->softcap != 0.0f},
        {"sinks", p->sinks != NULL},
        {"alibi_slopes", p->alibi_slopes != NULL},
        {"relative_bias", p->relative_bias != NULL},
        {"disentangled", p->disentangled != NULL},
        {"rope", p->rope != NULL},
        {"callback", p->callback != NULL},
        {"callback_user", p->callback_user != NULL},
        {"dropout", p->dropout != NULL},
        {"weight_callback", p->weight_callback != NULL},
        {"weight_callback_user", p->weight_callback_user != NULL},
        {"weight_rows", p->weight_rows != NULL},
        {"num_weight_rows", p->num_weight_rows != 0},
        {"key_sums", p->key_sums != NULL},
        {"scores", p->scores != NULL},
        {"score_stage", p->score_stage != ATTN_SCORES_RAW},
        {"qk", p->qk != ATTN_QK_DEFAULT},
        {"isa", p->isa != NULL},
        {"block_table", p->block_table != NULL},
        {"block_table_stride", p->block_table_stride != 0},
        {"page_size", p->page_size != 0},
        {"q_scale", p->q_scale != NULL},
        {"k_scale", p->k_scale != NULL},
        {"v_scale", p->v_scale != NULL},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].set)
            return attn_fail(ATTN_UNSUPPORTED, "params.%s is set; ATTN_SCORE_ADDITIVE does not implement it",
                             refused[i].name);
    return ATTN_OK;
}

attn_tensor nn_by_elements(const attn_tensor *t)
{
    attn_tensor view = *t;
    view.shape[1] = t->shape[3], view.stride[1] = t->stride[3];
    view.shape[3] = 1;
    return view;
}

/** Channels of a row at most: kernels count them with an int. */
static attn_status check_channels(const char *name, const attn_tensor *t)
{
    if (t->shape[3] > INT32_MAX)
        return attn_fail(ATTN_UNSUPPORTED, "%s.shape[3] is %" PRId64 "; ATTN_SCORE_ADDITIVE goes up to %" PRId32, name,
                         t->shape[3], INT32_MAX);
    return ATTN_OK;
}

/** That an output on request lies on no operand. */
static attn_status check_apart(const char *name, const attn_tensor *t, const attn_tensor *const operands[4])
{
    static const char *const names[] = {"q", "projected", "v", "out"};
    for (int i = 0; i < 4; i++)
        if (operands[i])
            CHECK(attn_check_apart(name, t, names[i], operands[i], 0));
    return ATTN_OK;
}

/** An operand without channels: what the core checks of options looks at its tokens alone. */
static attn_tensor tokens_of(const attn_tensor *t)
{
    return (attn_tensor){.dtype = ATTN_F32, .shape = {t->shape[0], t->shape[1], t->shape[2], 0}};
}

attn_status nn_check_additive(const attn_params *params, const attn_tensor *q, const attn_tensor *k,
                              const attn_tensor *v, const attn_tensor *out, enum check_depth depth)
{
    const attn_tensor *const operands[4] = {q, k, v, out};
    const attn_tensor queries = tokens_of(q), keys = tokens_of(k);
    struct attn_problem problem;
    CHECK(check_refused(params));
    CHECK(check_channels("projected", k));
    CHECK(check_channels("v", v));
    CHECK(attn_check(&problem, &queries, &keys, &keys, &queries, params, depth));
    if (!(depth & CHECK_TENSORS))
        return ATTN_OK;
    if (params->mask && out) {
        const attn_tensor mask = nn_by_elements(params->mask);
        CHECK(attn_check_apart("out", out, "params.mask", &mask, 0));
    }
    if (params->lse)
        CHECK(check_apart("params.lse", params->lse, operands));
    if (params->weights) {
        const attn_tensor weights = nn_by_elements(params->weights);
        CHECK(check_apart("params.weights", &weights, operands));
    }
    return ATTN_OK;
}
