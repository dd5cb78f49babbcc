/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of linear attention, in the order of its arguments and options; then that no output lies on anything else, and
 * last what decays hold. */
#include "api/check_linear_attention.h"

#include "api/check_internal.h"
#include "api/error.h"
#include "api/executor.h"
#include "driver/tensors.h"

#include <inttypes.h>
#include <math.h>

/** Channels of a head at most. */
#define MOST_CHANNELS 4096

/** Heads of queries that read a state at most. */
#define MOST_READERS 4096

/* ----------------------------------------------------------------- tensors -- */

static attn_status check_rows(const char *name, const attn_tensor *t, enum check_depth depth)
{
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_float(name, t->dtype));
    if (t->shape[3] > MOST_CHANNELS)
        return attn_fail(ATTN_UNSUPPORTED, "%s.shape[3] is %" PRId64 "; expected at most %d channels", name,
                         t->shape[3], MOST_CHANNELS);
    return depth & CHECK_TENSORS ? attn_check_contiguous(name, t) : ATTN_OK;
}

/** What a sentence calls the argument that has the shape of what is written. */
static const char *out_name(const struct attn_linear_attention *c)
{
    return c->reads_out ? "gradients.out" : "out";
}

static attn_status check_operands(const struct attn_linear_attention *c, enum check_depth depth)
{
    const int64_t heads = c->v.shape[1], q_heads = c->q.shape[1], k_heads = c->k.shape[1];
    CHECK(check_rows("q", &c->q, depth));
    CHECK(check_rows("k", &c->k, depth));
    CHECK(check_rows("v", &c->v, depth));
    CHECK(check_rows(out_name(c), &c->out, depth));
    CHECK(attn_check_axis("k", &c->k, 0, c->q.shape[0], "the batch of q"));
    CHECK(attn_check_axis("v", &c->v, 0, c->q.shape[0], "the batch of q"));
    CHECK(attn_check_axis("k", &c->k, 2, c->q.shape[2], "the tokens of q"));
    CHECK(attn_check_axis("v", &c->v, 2, c->q.shape[2], "the tokens of q"));
    CHECK(attn_check_axis("k", &c->k, 3, c->q.shape[3], "the channels of q"));
    if (heads == 0 ? q_heads != 0 : q_heads == 0 || (q_heads % heads != 0 && heads % q_heads != 0))
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "q.shape[1] is %" PRId64 "; expected a multiple or a divisor of %" PRId64 ", the heads of v",
                         q_heads, heads);
    if (heads > 0 && q_heads / heads > MOST_READERS)
        return attn_fail(ATTN_UNSUPPORTED,
                         "q.shape[1] is %" PRId64 "; expected at most %d times %" PRId64 ", the heads of v", q_heads,
                         MOST_READERS, heads);
    if (heads == 0 ? k_heads != 0 : k_heads == 0 || heads % k_heads != 0)
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "k.shape[1] is %" PRId64 "; expected a divisor of %" PRId64 ", the heads of v", k_heads,
                         heads);
    CHECK(attn_check_axis(out_name(c), &c->out, 0, c->q.shape[0], "the batch of q"));
    CHECK(attn_check_axis(out_name(c), &c->out, 1, q_heads > heads ? q_heads : heads, "the heads of q and v"));
    CHECK(attn_check_axis(out_name(c), &c->out, 2, c->q.shape[2], "the tokens of q"));
    CHECK(attn_check_axis(out_name(c), &c->out, 3, c->v.shape[3], "the channels of v"));
    return depth & CHECK_TENSORS && !c->reads_out ? attn_check_distinct("out", &c->out) : ATTN_OK;
}

/** An option with a number for each token, whose other axes may be 1. Copies it as the tensor that it stands for. */
static attn_status check_gate(const char *name, const attn_tensor *t, const struct attn_linear_attention *c,
                              attn_tensor *kept, enum check_depth depth)
{
    *kept = (attn_tensor){0};
    if (!t)
        return ATTN_OK;
    CHECK(attn_check_tensor(name, t, depth));
    const int64_t expected[3] = {c->v.shape[0], c->v.shape[1], c->v.shape[2]};
    for (int axis = 0; axis < 3; axis++)
        CHECK(attn_check_one_or(name, t, axis, expected[axis]));
    *kept = *t;
    for (int axis = 0; axis < 3; axis++) {
        kept->stride[axis] = t->shape[axis] == expected[axis] ? t->stride[axis] : 0;
        kept->shape[axis] = expected[axis];
    }
    return ATTN_OK;
}

static attn_status check_gates(struct attn_linear_attention *c, enum check_depth depth)
{
    const attn_linear_attention_params *p = &c->params;
    const int64_t dk = c->q.shape[3];
    CHECK(check_gate("params.decay", p->decay, c, &c->decay, depth));
    if (p->decay) {
        CHECK(attn_check_float("params.decay", c->decay.dtype));
        if (c->decay.shape[3] != 1 && c->decay.shape[3] != dk)
            return attn_fail(ATTN_SHAPE_MISMATCH,
                             "params.decay.shape[3] is %" PRId64 "; expected 1 or %" PRId64 ", the channels of q",
                             c->decay.shape[3], dk);
    }
    CHECK(check_gate("params.beta", p->beta, c, &c->beta, depth));
    if (p->beta) {
        CHECK(attn_check_float("params.beta", c->beta.dtype));
        CHECK(attn_check_axis("params.beta", &c->beta, 3, 1, "a number for each head"));
    }
    CHECK(check_gate("params.resets", p->resets, c, &c->resets, depth));
    if (p->resets) {
        if (c->resets.dtype != ATTN_BOOL)
            return attn_fail(ATTN_UNSUPPORTED, "params.resets.dtype is %s; expected bool",
                             attn_dtype_name(c->resets.dtype));
        CHECK(attn_check_axis("params.resets", p->resets, 2, c->v.shape[2], "the tokens of q"));
        CHECK(attn_check_axis("params.resets", &c->resets, 3, 1, "a mark for each token"));
    }
    return ATTN_OK;
}

/** What is made of q and k, and what that wants of the other options. */
static attn_status check_features(struct attn_linear_attention *c, enum check_depth depth)
{
    const attn_linear_attention_params *p = &c->params;
    const int positive = p->map == ATTN_FEATURES_POSITIVE;
    if ((unsigned)p->map > ATTN_FEATURES_POSITIVE)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.map is %d; expected an attn_feature_map", (int)p->map);
    if (positive && !p->projection)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.projection is NULL; expected that of params.map POSITIVE");
    if (!positive && p->projection)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.projection is set; expected NULL without params.map POSITIVE");
    const struct {
        const char *what;
        int wrong;
    } pairs[] = {{"params.map is POSITIVE; expected params.normalise with it", positive && !p->normalise},
                 {"params.beta is set; expected NULL with params.map POSITIVE", positive && p->beta},
                 {"params.beta is set; expected NULL with params.normalise", p->normalise && p->beta},
                 {"params.decay has a number for each channel; expected one for each head with params.map POSITIVE",
                  positive && p->decay && c->decay.shape[3] != 1},
                 {"params.decay is set; expected NULL with params.bidirectional", p->bidirectional && p->decay},
                 {"params.beta is set; expected NULL with params.bidirectional", p->bidirectional && p->beta}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].wrong)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s", pairs[i].what);
    if (!positive)
        return ATTN_OK;
    CHECK(attn_check_tensor("params.projection", p->projection, depth));
    CHECK(attn_check_f32("params.projection", p->projection->dtype));
    c->projection = *p->projection;
    CHECK(attn_check_axis("params.projection", &c->projection, 0, 1, "one projection for the batch"));
    CHECK(attn_check_one_or("params.projection", &c->projection, 1, c->v.shape[1]));
    CHECK(attn_check_axis("params.projection", &c->projection, 3, c->q.shape[3], "the channels of q"));
    if (c->projection.shape[2] < 1 || c->projection.shape[2] > MOST_CHANNELS)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.projection.shape[2] is %" PRId64 "; expected 1 to %d features",
                         c->projection.shape[2], MOST_CHANNELS);
    if (depth & CHECK_TENSORS)
        CHECK(attn_check_contiguous("params.projection", &c->projection));
    c->projection.stride[1] = c->projection.shape[1] == c->v.shape[1] ? c->projection.stride[1] : 0;
    c->projection.shape[1] = c->v.shape[1];
    return ATTN_OK;
}

attn_status attn_check_linear_state(const char *name, const attn_tensor *t, const struct attn_linear_attention *c,
                                    attn_tensor *kept, int written, enum check_depth depth)
{
    *kept = (attn_tensor){0};
    if (!t)
        return ATTN_OK;
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_f32(name, t->dtype));
    CHECK(attn_check_axis(name, t, 0, c->num_sequences, c->params.cu_seqlens ? "the sequences" : "the batch of q"));
    CHECK(attn_check_axis(name, t, 1, c->v.shape[1], "the heads of v"));
    if (c->params.map == ATTN_FEATURES_POSITIVE)
        CHECK(attn_check_axis(name, t, 2, c->projection.shape[2], "the features of params.projection"));
    else
        CHECK(attn_check_axis(name, t, 2, c->q.shape[3], "the channels of q"));
    if (c->params.normalise)
        CHECK(attn_check_axis(name, t, 3, c->v.shape[3] + 1, "the channels of v and the sum of keys"));
    else
        CHECK(attn_check_axis(name, t, 3, c->v.shape[3], "the channels of v"));
    *kept = *t;
    if (!(depth & CHECK_TENSORS))
        return ATTN_OK;
    CHECK(attn_check_contiguous(name, t));
    return written ? attn_check_distinct(name, t) : ATTN_OK;
}

/* ----------------------------------------------------------------- options -- */

static attn_status check_sequences(struct attn_linear_attention *c, enum check_depth depth)
{
    const attn_linear_attention_params *p = &c->params;
    c->num_sequences = c->q.shape[0];
    if (p->lengths && p->cu_seqlens)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.lengths is set; expected NULL with params.cu_seqlens");
    for (int64_t b = 0; (depth & CHECK_ARRAYS) && p->lengths && b < c->q.shape[0]; b++)
        if (p->lengths[b] < 0 || p->lengths[b] > c->q.shape[2])
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.lengths[%" PRId64 "] is %" PRId64 "; expected 0 to %" PRId64 ", the tokens of q",
                             b, p->lengths[b], c->q.shape[2]);
    if (!p->cu_seqlens) {
        if (p->num_sequences != 0)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.num_sequences is %" PRId64 "; expected 0 without params.cu_seqlens",
                             p->num_sequences);
        return ATTN_OK;
    }
    if (p->num_sequences < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.num_sequences is %" PRId64 "; expected 0 or more",
                         p->num_sequences);
    CHECK(attn_check_count("params.cu_seqlens", sizeof(int64_t), p->num_sequences, 1, 1));
    int64_t columns; /* which tasks are counted by */
    if (__builtin_mul_overflow(p->num_sequences, c->v.shape[1], &columns) ||
        __builtin_mul_overflow(columns, c->v.shape[3], &columns))
        return attn_fail(ATTN_SIZE_OVERFLOW,
                         "params.num_sequences is %" PRId64 "; expected states with fewer than 2^63 columns in all",
                         p->num_sequences);
    CHECK(attn_check_axis("q", &c->q, 0, 1, "the batch of a ragged call"));
    c->num_sequences = p->num_sequences;
    if (!(depth & CHECK_ARRAYS))
        return ATTN_OK;
    for (int64_t s = 0; s <= p->num_sequences; s++) {
        const int64_t least = s == 0 ? 0 : p->cu_seqlens[s - 1], most = s == 0 ? 0 : c->q.shape[2];
        if (p->cu_seqlens[s] < least || p->cu_seqlens[s] > most)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "params.cu_seqlens[%" PRId64 "] is %" PRId64 "; expected %" PRId64 " to %" PRId64
                             ", the tokens of q",
                             s, p->cu_seqlens[s], least, most);
    }
    return ATTN_OK;
}

static attn_status check_choices(struct attn_linear_attention *c)
{
    attn_linear_attention_params *p = &c->params;
    const int64_t dk = c->q.shape[3];
    if (!isfinite(p->scale))
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.scale is %g; expected a finite number", (double)p->scale);
    const int positive = p->map == ATTN_FEATURES_POSITIVE;
    if (p->normalise && !positive && p->scale != 0.0f)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.scale is %g; expected 0 with params.normalise",
                         (double)p->scale);
    if (positive && p->scale < 0.0f)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.scale is %g; expected more than 0 with params.map POSITIVE",
                         (double)p->scale);
    c->scale = p->scale != 0.0f ? p->scale : dk > 0 ? (float)(1.0 / sqrt((double)dk)) : 1.0f;
    if (p->num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.num_threads is %d; expected 0 or more", p->num_threads);
    CHECK(attn_check_isa(p->isa, &c->isa));
    p->isa = NULL; /* read now, and kept as the number of a row */
    return attn_check_executor("params.executor", p->executor);
}

/* ------------------------------------------------------------------ memory -- */

attn_status attn_check_linear_inputs(const struct attn_linear_attention *c, const char *name, const attn_tensor *t)
{
    const int64_t bytes = (c->num_sequences + 1) * (int64_t)sizeof(int64_t);
    const attn_tensor offsets = {
        (void *)(uintptr_t)c->params.cu_seqlens, ATTN_U8, {1, 1, 1, c->params.cu_seqlens ? bytes : 0}, {0, 0, 0, 1}};
    const attn_tensor lengths = {(void *)(uintptr_t)c->params.lengths,
                                 ATTN_U8,
                                 {1, 1, 1, c->params.lengths ? c->q.shape[0] * (int64_t)sizeof(int64_t) : 0},
                                 {0, 0, 0, 1}};
    const struct {
        const char *name;
        const attn_tensor *t;
    } inputs[] = {{"q", &c->q},
                  {"k", &c->k},
                  {"v", &c->v},
                  {"params.decay", &c->decay},
                  {"params.beta", &c->beta},
                  {"params.resets", &c->resets},
                  {"params.projection", &c->projection},
                  {"params.cu_seqlens", &offsets},
                  {"params.lengths", &lengths},
                  {"params.state_in", &c->state_in}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        CHECK(
            attn_check_apart(name, t, inputs[i].name, inputs[i].t, t == &c->state_out && inputs[i].t == &c->state_in));
    return ATTN_OK;
}

static attn_status check_apart(const struct attn_linear_attention *c)
{
    if (c->reads_out)
        return ATTN_OK;
    CHECK(attn_check_linear_inputs(c, "out", &c->out));
    CHECK(attn_check_linear_inputs(c, "params.state_out", &c->state_out));
    return attn_check_apart("params.state_out", &c->state_out, "out", &c->out, 0);
}

/* -------------------------------------------------------------------- call -- */

attn_status attn_check_linear_attention(struct attn_linear_attention *c, const attn_tensor *q, const attn_tensor *k,
                                        const attn_tensor *v, const attn_tensor *out,
                                        const attn_linear_attention_params *params, int reads_out,
                                        enum check_depth depth)
{
    memset(c, 0, sizeof *c);
    c->reads_out = reads_out;
    const struct {
        const char *name;
        const attn_tensor *given;
        attn_tensor *kept;
    } operands[] = {{"q", q, &c->q}, {"k", k, &c->k}, {"v", v, &c->v}, {out_name(c), out, &c->out}};
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++) {
        if (!operands[i].given)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s is NULL; expected a tensor", operands[i].name);
        *operands[i].kept = *operands[i].given;
    }
    CHECK(attn_take_struct("params", &c->params, sizeof c->params,
                           ATTN_FIRST_SIZE(attn_linear_attention_params, executor), params));
    CHECK(check_operands(c, depth));
    CHECK(check_sequences(c, depth));
    CHECK(check_gates(c, depth));
    CHECK(check_features(c, depth));
    CHECK(attn_check_linear_state("params.state_in", c->params.state_in, c, &c->state_in, 0, depth));
    CHECK(attn_check_linear_state("params.state_out", c->params.state_out, c, &c->state_out, 1, depth));
    CHECK(check_choices(c));
    if (!(depth & CHECK_TENSORS))
        return ATTN_OK;
    CHECK(check_apart(c));
    return attn_check_decays(c, depth);
}

/** That a tensor has the type and shape of the planned one. */
static attn_status check_same(const char *name, const attn_tensor *now, const attn_tensor *was)
{
    if (now->dtype != was->dtype || memcmp(now->shape, was->shape, sizeof now->shape) != 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "%s differs from what the plan was made with", name);
    return ATTN_OK;
}

/** That an option is given, or not, as it was. */
static attn_status check_given(const char *name, const void *now, const void *was)
{
    if (!now != !was)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.%s differs from what the plan was made with", name);
    return ATTN_OK;
}

attn_status attn_check_planned_linear_attention(const struct attn_linear_attention *now,
                                                const struct attn_linear_attention *was)
{
    const attn_linear_attention_params *p = &now->params, *planned = &was->params;
    CHECK(check_same("q", &now->q, &was->q));
    CHECK(check_same("k", &now->k, &was->k));
    CHECK(check_same("v", &now->v, &was->v));
    CHECK(check_same(out_name(now), &now->out, &was->out));
    CHECK(check_given("decay", p->decay, planned->decay));
    CHECK(check_given("beta", p->beta, planned->beta));
    CHECK(check_given("resets", p->resets, planned->resets));
    CHECK(check_given("state_in", p->state_in, planned->state_in));
    CHECK(check_given("state_out", p->state_out, planned->state_out));
    CHECK(check_given("cu_seqlens", p->cu_seqlens, planned->cu_seqlens));
    CHECK(check_given("lengths", p->lengths, planned->lengths));
    CHECK(check_same("params.decay", &now->decay, &was->decay));
    CHECK(check_same("params.beta", &now->beta, &was->beta));
    CHECK(check_same("params.projection", &now->projection, &was->projection));
    if (p->map != planned->map || !p->normalise != !planned->normalise || !p->bidirectional != !planned->bidirectional)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.map, normalise or bidirectional differs from what the plan was made with");
    if (now->num_sequences != was->num_sequences)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.num_sequences is %" PRId64 "; the plan was made for %" PRId64,
                         now->num_sequences, was->num_sequences);
    if (now->scale != was->scale)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.scale gives %g; the plan was made for %g", (double)now->scale,
                         (double)was->scale);
    if (now->isa != was->isa)
        return attn_fail(ATTN_INVALID_ARGUMENT, "params.isa differs from what the plan was made with");
    return ATTN_OK;
}
