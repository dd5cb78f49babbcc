/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_backward(): checks of what it takes beside a forward call, whose own
 * checks come first, and the call.
 */
#include "attn/backward.h"

#include "api/check_internal.h"
#include "api/environment.h"
#include "api/error.h"
#include "api/executor.h"
#include "dispatch.h"
#include "driver/backward.h"
#include "driver/tensors.h"
#include "driver/threads.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/** Options that have no gradient, or none yet. */
static attn_status check_supported(const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    const struct {
        const char *name;
        int set;
    } options[] = {
        {"block_table", p->block_table != NULL}, {"k_scale", p->k_scale != NULL},
        {"v_scale", p->v_scale != NULL},         {"disentangled", p->disentangled != NULL},
        {"callback", p->callback != NULL},       {"weight_callback", p->weight_callback != NULL},
        {"qk", p->qk != ATTN_QK_DEFAULT},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].set)
            return attn_fail(ATTN_UNSUPPORTED, "params.%s is set; attn_backward() of version %s does not implement it",
                             options[i].name, attn_version_string());
    return ATTN_OK;
}

/** Outputs of a forward call that nothing is read from. */
static attn_status check_requests(const attn_params *p)
{
    const struct {
        const char *name;
        int set;
    } outputs[] = {{"weights", p->weights != NULL}, {"key_sums", p->key_sums != NULL}, {"scores", p->scores != NULL}};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        if (outputs[i].set)
            return attn_fail(ATTN_INVALID_ARGUMENT, "params.%s is set; expected NULL in attn_backward()",
                             outputs[i].name);
    if (!p->lse)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.lse is NULL; expected the log-sum-exp that the forward call has written");
    return ATTN_OK;
}

/** That a gradient has the shape of what it is the gradient of. */
static attn_status check_shape(const char *name, const attn_tensor *t, const char *of, const attn_tensor *shape)
{
    for (int axis = 0; axis < 4; axis++)
        if (t->shape[axis] != shape->shape[axis])
            return attn_fail(ATTN_SHAPE_MISMATCH, "%s.shape[%d] is %" PRId64 "; expected %" PRId64 ", that of %s", name,
                             axis, t->shape[axis], shape->shape[axis], of);
    return ATTN_OK;
}

/** A gradient of rows: read, or written. */
static attn_status check_rows(const char *name, const attn_tensor *t, const char *of, const attn_tensor *shape,
                              int written)
{
    CHECK(attn_check_tensor(name, t, CHECK_ALL));
    CHECK(attn_check_float(name, t->dtype));
    CHECK(check_shape(name, t, of, shape));
    CHECK(attn_check_contiguous(name, t));
    return written ? attn_check_distinct(name, t) : ATTN_OK;
}

static attn_status check_gradients(struct attn_backward *b, const attn_gradients *theirs)
{
    const struct attn_problem *forward = &b->forward;
    attn_gradients g;
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected a struct with the gradient of out");
    CHECK(attn_take_struct("gradients", &g, sizeof g, ATTN_FIRST_SIZE(attn_gradients, v), theirs));
    if (!g.out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.out is NULL; expected a tensor");
    b->dout = *g.out;
    CHECK(check_rows("gradients.out", g.out, "out", &forward->out, 0));
    if (g.lse) {
        b->dlse = *g.lse;
        CHECK(attn_check_tensor("gradients.lse", g.lse, CHECK_ALL));
        CHECK(attn_check_f32("gradients.lse", g.lse->dtype));
        CHECK(check_shape("gradients.lse", g.lse, "params.lse", &forward->lse));
    }
    const struct {
        const char *name, *of;
        const attn_tensor *given, *shape;
        attn_tensor *kept;
    } written[] = {{"gradients.q", "q", g.q, &forward->q, &b->dq},
                   {"gradients.k", "k", g.k, &forward->k, &b->dk},
                   {"gradients.v", "v", g.v, &forward->v, &b->dv}};
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        if (!written[i].given)
            continue;
        *written[i].kept = *written[i].given;
        CHECK(check_rows(written[i].name, written[i].given, written[i].of, written[i].shape, 1));
    }
    return attn_check_gradients_apart(b);
}

/** Pairs of bf16 are multiplied where all that is multiplied is bf16 as it comes. */
static struct attn_kernels choose_kernels(const struct attn_backward *b)
{
    const struct attn_problem *p = &b->forward;
    const attn_tensor *const operands[] = {&p->q, &p->k, &p->v, &b->dout};
    int pairs = !p->params.rope && !p->params.head_scale;
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        pairs &= operands[i]->dtype == ATTN_BF16;
    const struct attn_demand demand = {
        .isa = p->isa ? p->isa : attn_environment()->max_isa, .insists = p->isa != 0, .gradients = 1, .pairs = pairs};
    struct attn_kernels kernels;
    attn_kernels_choose(&kernels, &demand);
    return kernels;
}

/** Runs a call that has been checked and cut. */
static attn_status run(const struct attn_backward *b)
{
    const size_t size = attn_run_size(&b->geometry, b->geometry.threads);
    void *workspace = malloc(size);
    if (!workspace)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a workspace of %zu bytes", size);
    attn_backward_run(b, workspace);
    free(workspace);
    return ATTN_OK;
}

attn_status attn_backward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                          const attn_params *params, const attn_gradients *gradients)
{
    struct attn_backward b;
    memset(&b, 0, sizeof b);
    CHECK(attn_check(&b.forward, q, k, v, out, params, CHECK_ALL));
    CHECK(check_supported(&b.forward));
    CHECK(check_requests(&b.forward.params));
    CHECK(check_gradients(&b, gradients));
    const attn_params *p = &b.forward.params;
    const int asked = attn_threads_asked(p->executor, p->num_threads);
    const int most = attn_most_threads(attn_executor_of(p->executor));
    const struct attn_kernels kernels = choose_kernels(&b);
    attn_backward_cut(&b, &kernels, asked < most ? asked : most);
    return run(&b);
}
