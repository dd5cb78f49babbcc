/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of gradients of linear attention: the forward call's, then what is read and written besides. */
#include "api/check_internal.h"
#include "api/check_linear_attention.h"
#include "api/error.h"
#include "driver/linear_backward.h"
#include "driver/tensors.h"

#include <stdio.h>
#include <string.h>

/** That a tensor has the type and the shape of another one, up to types of floats. */
static attn_status check_rows(const char *name, const attn_tensor *t, const char *of, const attn_tensor *shape,
                              enum check_depth depth)
{
    char meaning[64];
    snprintf(meaning, sizeof meaning, "as %s has", of);
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_float(name, t->dtype));
    for (int axis = 0; axis < 4; axis++)
        CHECK(attn_check_axis(name, t, axis, shape->shape[axis], meaning));
    return ATTN_OK;
}

/** What is written, if it is wanted; with side_by_side channels lie so. */
static attn_status check_written(const char *name, const attn_tensor *t, const char *of, const attn_tensor *shape,
                                 int side_by_side, attn_tensor *kept, int *wanted, enum check_depth depth)
{
    if (!t)
        return ATTN_OK;
    CHECK(check_rows(name, t, of, shape, depth));
    *kept = *t;
    *wanted = 1;
    if (side_by_side && depth & CHECK_TENSORS)
        CHECK(attn_check_contiguous(name, t));
    return depth & CHECK_TENSORS ? attn_check_distinct(name, t) : ATTN_OK;
}

static attn_status check_decay(struct attn_linear_backward *b, const attn_tensor *t, enum check_depth depth)
{
    const attn_tensor *decay = b->forward.params.decay;
    if (t && !decay)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.decay is set; expected NULL, as params.decay is");
    return check_written("gradients.decay", t, "params.decay", decay, 0, &b->d_decay, &b->wants_decay, depth);
}

static attn_status check_states(struct attn_linear_backward *b, const attn_linear_attention_gradients *g,
                                enum check_depth depth)
{
    struct attn_linear_attention *f = &b->forward;
    if (g->state_in && !f->params.state_in)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.state_in is set; expected NULL, as params.state_in is");
    CHECK(attn_check_linear_state("gradients.state_out", g->state_out, f, &b->d_state_out, 0, depth));
    CHECK(attn_check_linear_state("gradients.state_in", g->state_in, f, &b->d_state_in, 1, depth));
    b->wants_state = g->state_in != NULL;
    return ATTN_OK;
}

/** That no gradient that is written lies on anything that is read, or on another one. */
static attn_status check_apart(const struct attn_linear_backward *b)
{
    const struct {
        const char *name;
        const attn_tensor *t;
    } written[] = {{"gradients.q", &b->d[ATTN_SIDE_Q]},
                   {"gradients.k", &b->d[ATTN_SIDE_K]},
                   {"gradients.v", &b->d[ATTN_SIDE_V]},
                   {"gradients.decay", &b->d_decay},
                   {"gradients.state_in", &b->d_state_in}};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        CHECK(attn_check_linear_inputs(&b->forward, written[i].name, written[i].t));
        CHECK(attn_check_apart(written[i].name, written[i].t, "gradients.out", &b->forward.out, 0));
        CHECK(attn_check_apart(written[i].name, written[i].t, "gradients.state_out", &b->d_state_out, 0));
        CHECK(attn_check_apart(written[i].name, written[i].t, "out", &b->out, 0));
        for (size_t j = 0; j < i; j++)
            CHECK(attn_check_apart(written[i].name, written[i].t, written[j].name, written[j].t, 0));
    }
    return ATTN_OK;
}

/** What a forward call may be asked for, and gradients not. */
static attn_status check_options(const attn_linear_attention_params *p)
{
    if (p->beta)
        return attn_fail(ATTN_UNSUPPORTED, "params.beta is set; expected NULL: rules with it have no backward pass");
    if (p->state_out)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.state_out is set; expected NULL for gradients, which read state_in as it was");
    return ATTN_OK;
}

attn_status attn_check_linear_backward(struct attn_linear_backward *b, const attn_tensor *q, const attn_tensor *k,
                                       const attn_tensor *v, const attn_tensor *out,
                                       const attn_linear_attention_params *params,
                                       const attn_linear_attention_gradients *gradients, enum check_depth depth)
{
    attn_linear_attention_gradients g;
    struct attn_linear_attention *f = &b->forward;
    memset(b, 0, sizeof *b);
    if (!gradients)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected a struct with the gradient of out");
    CHECK(attn_take_struct("gradients", &g, sizeof g, ATTN_FIRST_SIZE(attn_linear_attention_gradients, state_in),
                           gradients));
    CHECK(attn_check_linear_attention(f, q, k, v, g.out, params, 1, depth));
    CHECK(check_options(&f->params));
    if (f->params.normalise) {
        if (!out)
            return attn_fail(ATTN_INVALID_ARGUMENT, "out is NULL; expected a tensor, with params.normalise");
        CHECK(check_rows("out", out, "gradients.out", &f->out, depth));
        CHECK(depth & CHECK_TENSORS ? attn_check_contiguous("out", out) : ATTN_OK);
        b->out = *out;
    }
    const char *const names[ATTN_SIDES] = {"gradients.q", "gradients.k", "gradients.v"};
    const char *const of[ATTN_SIDES] = {"q", "k", "v"};
    const attn_tensor *const given[ATTN_SIDES] = {g.q, g.k, g.v}, *const shapes[ATTN_SIDES] = {&f->q, &f->k, &f->v};
    for (int side = 0; side < ATTN_SIDES; side++)
        CHECK(check_written(names[side], given[side], of[side], shapes[side], 1, &b->d[side], &b->wants[side], depth));
    CHECK(check_decay(b, g.decay, depth));
    CHECK(check_states(b, &g, depth));
    return depth & CHECK_TENSORS ? check_apart(b) : ATTN_OK;
}

attn_status attn_check_planned_linear_backward(const struct attn_linear_backward *now,
                                               const struct attn_linear_backward *was)
{
    CHECK(attn_check_planned_linear_attention(&now->forward, &was->forward));
    const struct {
        const char *name;
        const attn_tensor *now, *was;
        int given, planned;
    } tensors[] = {
        {"gradients.q", &now->d[ATTN_SIDE_Q], &was->d[ATTN_SIDE_Q], now->wants[ATTN_SIDE_Q], was->wants[ATTN_SIDE_Q]},
        {"gradients.k", &now->d[ATTN_SIDE_K], &was->d[ATTN_SIDE_K], now->wants[ATTN_SIDE_K], was->wants[ATTN_SIDE_K]},
        {"gradients.v", &now->d[ATTN_SIDE_V], &was->d[ATTN_SIDE_V], now->wants[ATTN_SIDE_V], was->wants[ATTN_SIDE_V]},
        {"gradients.decay", &now->d_decay, &was->d_decay, now->wants_decay, was->wants_decay},
        {"gradients.state_in", &now->d_state_in, &was->d_state_in, now->wants_state, was->wants_state},
        {"gradients.state_out", &now->d_state_out, &was->d_state_out, 0, 0},
        {"out", &now->out, &was->out, 0, 0}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].given != tensors[i].planned || tensors[i].now->dtype != tensors[i].was->dtype ||
            memcmp(tensors[i].now->shape, tensors[i].was->shape, sizeof tensors[i].now->shape) != 0)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s differs from what the plan was made with", tensors[i].name);
    return ATTN_OK;
}
