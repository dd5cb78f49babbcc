/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the options of additive attention: what its kernel knows has to be
 * right, everything else is refused by name. The rules and sentences are those of
 * the core for the same fields.
 */
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
        {"prefix_len", p->prefix_len != NULL},
        {"window", p->window != NULL},
        {"block_mask", p->block_mask != NULL},
        {"segments", p->segments != NULL},
        {"tree", p->tree != NULL},
        {"ragged", p->ragged != NULL},
        {"dropout", p->dropout != NULL},
        {"weight_rows", p->weight_rows != NULL},
        {"num_weight_rows", p->num_weight_rows != 0},
        {"key_sums", p->key_sums != NULL},
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

static attn_status check_causality(const attn_params *p, int64_t batch)
{
    if ((unsigned)p->causal > ATTN_CAUSAL_OFFSET)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.causal is %d; expected an attn_causal", (int)p->causal);
    if (p->query_offset && p->causal != ATTN_CAUSAL_OFFSET && p->causal != ATTN_CAUSAL_NONE)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.query_offset is set; expected NULL unless causal is "
                                                "ATTN_CAUSAL_OFFSET or ATTN_CAUSAL_NONE");
    if (!p->query_offset && p->causal == ATTN_CAUSAL_OFFSET && batch > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.query_offset is NULL; expected %" PRId64 " offsets for ATTN_CAUSAL_OFFSET", batch);
    return ATTN_OK;
}

static attn_status check_live(const attn_params *p, int64_t batch, int64_t keys)
{
    CHECK(nn_check_lengths("params.kv_len", p->kv_len, batch, keys, "the tokens of projected"));
    for (int64_t b = 0; p->kv_start && b < batch; b++) {
        const int64_t end = p->kv_len ? p->kv_len[b] : keys;
        if (p->kv_start[b] < 0 || p->kv_start[b] > end)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.kv_start[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64
                             ", the end of the live keys",
                             b, p->kv_start[b], end);
    }
    return ATTN_OK;
}

static attn_status check_mask(const attn_tensor *mask, const int64_t full[4])
{
    CHECK(attn_check_tensor("params.mask", mask, CHECK_ALL));
    if (mask->dtype != ATTN_BOOL)
        CHECK(attn_check_float("params.mask", mask->dtype));
    for (int axis = 0; axis < 4; axis++)
        CHECK(attn_check_one_or("params.mask", mask, axis, full[axis]));
    return ATTN_OK;
}

/** An output on request, f32 of the given shape. */
static attn_status check_output(const char *name, const attn_tensor *t, const int64_t shape[4])
{
    static const char *const meanings[] = {"the batch of q", "as there is one head", "the tokens of q",
                                           "one per key, or 1"};
    CHECK(attn_check_tensor(name, t, CHECK_ALL));
    CHECK(attn_check_f32(name, t->dtype));
    for (int axis = 0; axis < 4; axis++)
        CHECK(attn_check_axis(name, t, axis, shape[axis], meanings[axis]));
    return attn_check_distinct(name, t);
}

attn_tensor nn_by_elements(const attn_tensor *t)
{
    attn_tensor view = *t;
    view.shape[1] = t->shape[3], view.stride[1] = t->stride[3];
    view.shape[3] = 1;
    return view;
}

/** That an output on request lies on no operand. */
static attn_status check_apart(const char *name, const attn_tensor *t, const attn_tensor *const operands[4])
{
    static const char *const names[] = {"q", "projected", "v", "out"};
    for (int i = 0; i < 4; i++)
        CHECK(attn_check_apart(name, t, names[i], operands[i], 0));
    return ATTN_OK;
}

attn_status nn_check_additive(const attn_params *p, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                              const attn_tensor *out)
{
    const int64_t full[4] = {q->shape[0], 1, q->shape[2], k->shape[2]};
    const int64_t column[4] = {q->shape[0], 1, q->shape[2], 1};
    const attn_tensor *const operands[4] = {q, k, v, out};
    CHECK(check_refused(p));
    if (p->num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.num_threads is %d; expected 0 or more", p->num_threads);
    CHECK(check_causality(p, q->shape[0]));
    CHECK(check_live(p, q->shape[0], k->shape[2]));
    attn_tensor mask = {0}; /* an empty tensor touches nothing */
    if (p->mask) {
        CHECK(check_mask(p->mask, full));
        mask = nn_by_elements(p->mask);
        CHECK(attn_check_apart("out", out, "params.mask", &mask, 0));
    }
    if (p->lse) {
        CHECK(check_output("params.lse", p->lse, column));
        CHECK(check_apart("params.lse", p->lse, operands));
        CHECK(attn_check_apart("params.lse", p->lse, "params.mask", &mask, 0));
    }
    if (p->weights) {
        CHECK(check_output("params.weights", p->weights, full));
        const attn_tensor weights = nn_by_elements(p->weights);
        CHECK(check_apart("params.weights", &weights, operands));
        CHECK(attn_check_apart("params.weights", &weights, "params.mask", &mask, 0));
        if (p->lse)
            CHECK(attn_check_apart("params.weights", &weights, "params.lse", p->lse, 0));
    }
    return ATTN_OK;
}
