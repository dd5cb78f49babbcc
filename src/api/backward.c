/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_backward(): checks of what it takes beside a forward call, whose own
 * checks come first, and the call.
 */
#include "attn/backward.h"

#include "api/call.h"
#include "api/check_internal.h"
#include "api/describe.h"
#include "api/environment.h"
#include "api/error.h"
#include "api/execute.h"
#include "api/executor.h"
#include "dispatch.h"
#include "driver/backward.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/** Options that have no gradient, or none yet. */
static attn_status check_supported(const struct attn_problem *problem)
{
    const attn_params *p = &problem->params;
    const struct {
        const char *name;
        int set;
    } options[] = {
        {"block_table", p->block_table != NULL},
        {"k_scale", p->k_scale != NULL},
        {"v_scale", p->v_scale != NULL},
        {"qk", p->qk != ATTN_QK_DEFAULT},
        {"weight_callback", p->weight_callback != NULL},
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
                              int written, enum check_depth depth)
{
    CHECK(attn_check_tensor(name, t, depth));
    CHECK(attn_check_float(name, t->dtype));
    CHECK(check_shape(name, t, of, shape));
    if (!(depth & CHECK_TENSORS))
        return ATTN_OK;
    CHECK(attn_check_contiguous(name, t));
    return written ? attn_check_distinct(name, t) : ATTN_OK;
}

/** Gradients of options, which have to be set. */
static attn_status check_options(struct attn_backward *b, const attn_gradients *g, enum check_depth depth)
{
    const struct attn_problem *forward = &b->forward;
    const attn_params *p = &forward->params;
    const struct {
        const char *name, *of;
        int wanted, set;
    } options[] = {
        {"gradients.head_scale", "params.head_scale", g->head_scale != NULL, p->head_scale != NULL},
        {"gradients.sinks", "params.sinks", g->sinks != NULL, p->sinks != NULL},
        {"gradients.alibi_slopes", "params.alibi_slopes", g->alibi_slopes != NULL, p->alibi_slopes != NULL},
        {"gradients.relative_bias", "params.relative_bias", g->relative_bias != NULL, p->relative_bias != NULL},
        {"gradients.mask", "params.mask", g->mask != NULL, p->mask != NULL}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].wanted && !options[i].set)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s is set; expected NULL, as %s is", options[i].name,
                             options[i].of);
    b->dhead_scale = g->head_scale;
    b->dsinks = g->sinks;
    b->dslopes = g->alibi_slopes;
    b->dtable = g->relative_bias;
    if (!g->mask)
        return ATTN_OK;
    b->dmask = *g->mask;
    if (forward->mask.dtype == ATTN_BOOL)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.mask is set; expected NULL for a mask of type bool");
    CHECK(attn_check_tensor("gradients.mask", g->mask, depth));
    CHECK(attn_check_f32("gradients.mask", g->mask->dtype));
    CHECK(check_shape("gradients.mask", g->mask, "params.mask", &forward->mask));
    return depth & CHECK_TENSORS ? attn_check_distinct("gradients.mask", g->mask) : ATTN_OK;
}

/** Gradients of tables of rows, which have to be set. */
static attn_status check_tables(struct attn_backward *b, const attn_gradients *g, enum check_depth depth)
{
    const attn_disentangled *terms = b->forward.params.disentangled;
    const struct {
        const char *name, *of;
        const attn_tensor *given, *table, *shape;
        attn_tensor *kept;
    } tables[] = {{"gradients.rel_k", "params.disentangled->rel_k", g->rel_k, terms ? terms->rel_k : NULL,
                   &b->forward.rel_k, &b->drel_k},
                  {"gradients.rel_q", "params.disentangled->rel_q", g->rel_q, terms ? terms->rel_q : NULL,
                   &b->forward.rel_q, &b->drel_q}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (!tables[i].given)
            continue;
        if (!tables[i].table)
            return attn_fail(ATTN_INVALID_ARGUMENT, "%s is set; expected NULL, as %s is", tables[i].name,
                             terms ? tables[i].of : "params.disentangled");
        *tables[i].kept = *tables[i].given;
        CHECK(check_rows(tables[i].name, tables[i].given, tables[i].of, tables[i].shape, 1, depth));
        CHECK(attn_check_f32(tables[i].name, tables[i].given->dtype));
    }
    return ATTN_OK;
}

/** The partner of a callback. */
static attn_status check_callback(struct attn_backward *b, const attn_gradients *g)
{
    const int calls_back = b->forward.params.callback != NULL;
    if (calls_back && !g->callback)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.callback is NULL; expected the partner of params.callback");
    if (!calls_back && g->callback)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.callback is set; expected NULL, as params.callback is");
    if (g->callback_user && !g->callback)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "gradients.callback_user is set; expected NULL without gradients.callback");
    b->callback = g->callback;
    b->callback_user = g->callback_user;
    return ATTN_OK;
}

static attn_status check_gradients(struct attn_backward *b, const attn_gradients *theirs, enum check_depth depth)
{
    const struct attn_problem *forward = &b->forward;
    attn_gradients g;
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients is NULL; expected a struct with the gradient of out");
    CHECK(attn_take_struct("gradients", &g, sizeof g, ATTN_FIRST_SIZE(attn_gradients, mask), theirs));
    if (!g.out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.out is NULL; expected a tensor");
    b->dout = *g.out;
    CHECK(check_rows("gradients.out", g.out, "out", &forward->out, 0, depth));
    if (g.lse) {
        b->dlse = *g.lse;
        CHECK(attn_check_tensor("gradients.lse", g.lse, depth));
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
        CHECK(check_rows(written[i].name, written[i].given, written[i].of, written[i].shape, 1, depth));
    }
    CHECK(check_options(b, &g, depth));
    CHECK(check_tables(b, &g, depth));
    CHECK(check_callback(b, &g));
    return depth & CHECK_TENSORS ? attn_check_gradients_apart(b) : ATTN_OK;
}

/** That what is kept for each query and key can be counted: nothing of shapes alone says that it has memory. */
static attn_status check_sizes(const struct attn_backward *b)
{
    const struct attn_problem *p = &b->forward;
    const double heads = (double)p->q.shape[0] * (double)p->q.shape[1], most_rows = ATTN_MAX_STRIPS * ATTN_MAX_STRIP;
    const double ends = p->params.ragged ? (double)p->num_sequences + 1 : 1; /* of sequences along the tokens */
    const double rows = (double)p->q.shape[2] + ends * most_rows;
    const double keys = (double)p->k.shape[0] * (double)p->k.shape[1] * ((double)p->k.shape[2] + ends);
    const double channels = (double)p->q.shape[3] + ATTN_ALIGN; /* with what fills the last register */
    double bytes = heads * rows * (channels + 2) * sizeof(float) + keys * sizeof(int64_t);
    if (p->params.disentangled) /* what driver/backward.c has for that */
        bytes +=
            heads * rows * (channels + 2) * sizeof(float) +
            (double)p->q.shape[1] * 3 * ((double)p->k.shape[0] * (double)p->k.shape[2]) * sizeof(float) +
            (double)p->q.shape[1] * 4 * (double)p->params.disentangled->span * (double)p->q.shape[3] * sizeof(float);
    if (bytes < 0x1p62)
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT,
                     "q and k have shapes for which %g bytes of memory are kept; expected less than 2^62", bytes);
}

/** Checks a request, of a rectangle or of a whole, and fills b, or returns the status of the first thing that is wrong.
 */
static attn_status check_rectangle(struct attn_backward *b, const struct attn_rectangle *rectangle,
                                   const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                   const attn_tensor *out, const attn_params *params, const attn_gradients *gradients,
                                   enum check_depth depth)
{
    memset(b, 0, sizeof *b);
    CHECK(attn_check_rectangle(&b->forward, rectangle, q, k, v, out, params, depth));
    CHECK(check_supported(&b->forward));
    CHECK(check_requests(&b->forward.params));
    CHECK(check_gradients(b, gradients, depth));
    return check_sizes(b);
}

static attn_status check(struct attn_backward *b, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                         const attn_tensor *out, const attn_params *params, const attn_gradients *gradients,
                         enum check_depth depth)
{
    return check_rectangle(b, NULL, q, k, v, out, params, gradients, depth);
}

attn_status attn_backward_check(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                const attn_tensor *out, const attn_params *params, const attn_gradients *gradients)
{
    struct attn_backward b;
    return check(&b, q, k, v, out, params, gradients, CHECK_ALL);
}

/** Pairs of bf16 are multiplied where all that is multiplied is bf16 as it comes. */
static struct attn_kernels choose_kernels(const struct attn_backward *b)
{
    const struct attn_problem *p = &b->forward;
    const attn_tensor *const operands[] = {&p->q, &p->k, &p->v, &b->dout};
    int pairs = !p->params.rope && !p->params.head_scale && !p->params.disentangled;
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        pairs &= operands[i]->dtype == ATTN_BF16;
    const struct attn_demand demand = {.isa = p->isa ? p->isa : attn_environment()->max_isa,
                                       .insists = p->isa != 0,
                                       .gradients = 1,
                                       .channels = p->q.shape[3] + p->v.shape[3],
                                       .pairs = pairs};
    struct attn_kernels kernels;
    attn_kernels_choose(&kernels, &demand);
    return kernels;
}

/** Cuts a checked call for as many threads as can start now. */
static void cut(struct attn_backward *b)
{
    const attn_params *p = &b->forward.params;
    const struct attn_kernels kernels = choose_kernels(b);
    attn_backward_cut(b, &kernels, attn_threads_now(p->executor, p->num_threads));
}

/** The same in tasks that need least memory besides the threads' own. */
static void cut_coarsely(struct attn_backward *b)
{
    b->coarse = 1;
    cut(b);
}

/* ---------------------------------------------------------- the simple call -- */

/** Cuts a call, and tells the bytes with which it runs whatever number of threads there will be then. */
static size_t size_for_all(struct attn_backward *b)
{
    cut_coarsely(b);
    const size_t least = attn_run_size(&b->steps.geometry, 1);
    b->coarse = 0;
    cut(b);
    const size_t size = attn_run_size(&b->steps.geometry, b->steps.geometry.threads);
    return size > least ? size : least;
}

attn_status attn_backward_workspace_size(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                         const attn_tensor *out, const attn_params *params,
                                         const attn_gradients *gradients, size_t *size)
{
    struct attn_backward b;
    if (!size)
        return attn_fail(ATTN_INVALID_ARGUMENT, "size is NULL; expected where to put the number of bytes");
    CHECK(check(&b, q, k, v, out, params, gradients, CHECK_SHAPES));
    *size = size_for_all(&b);
    return ATTN_OK;
}

attn_status attn_backward_in(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                             const attn_params *params, const attn_gradients *gradients, void *workspace,
                             size_t workspace_size)
{
    struct attn_backward b;
    CHECK(check(&b, q, k, v, out, params, gradients, CHECK_ALL));
    if (!workspace)
        return attn_fail(ATTN_INVALID_ARGUMENT, "workspace is NULL; expected %zu bytes", size_for_all(&b));
    cut(&b);
    struct attn_geometry *geometry = &b.steps.geometry;
    if (workspace_size < attn_run_size(geometry, 1))
        cut_coarsely(&b);
    const size_t least = attn_run_size(geometry, 1);
    if (workspace_size < least)
        return attn_fail(ATTN_WORKSPACE_TOO_SMALL, "workspace_size is %zu; expected at least %zu", workspace_size,
                         least);
    const size_t room = (workspace_size - attn_run_size(geometry, 0)) / geometry->scratch_size;
    if (room < (size_t)geometry->threads)
        geometry->threads = geometry->parallel = (int)room;
    attn_execute(attn_backward_begin(workspace, &b));
    return ATTN_OK;
}

attn_status attn_backward_rectangle(const struct attn_rectangle *rectangle, const attn_tensor *q, const attn_tensor *k,
                                    const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                    const attn_gradients *gradients)
{
    struct attn_backward b;
    CHECK(check_rectangle(&b, rectangle, q, k, v, out, params, gradients, CHECK_ALL));
    cut(&b);
    const size_t size = attn_run_size(&b.steps.geometry, b.steps.geometry.threads);
    void *workspace = malloc(size);
    if (!workspace)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a workspace of %zu bytes", size);
    attn_execute(attn_backward_begin(workspace, &b));
    free(workspace);
    return ATTN_OK;
}

attn_status attn_backward(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                          const attn_params *params, const attn_gradients *gradients)
{
    return attn_backward_rectangle(NULL, q, k, v, out, params, gradients);
}

/* ------------------------------------------------------------------- plans -- */

struct attn_backward_plan {
    struct attn_backward backward; /**< shapes, options and geometry; its pointers are only compared with NULL */
    struct attn_planned planned;   /**< what else is needed to know a run again */
};

attn_status attn_backward_plan_create(attn_backward_plan **plan, const attn_tensor *q, const attn_tensor *k,
                                      const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                      const attn_gradients *gradients)
{
    if (!plan)
        return attn_fail(ATTN_INVALID_ARGUMENT, "plan is NULL; expected the address of a pointer");
    *plan = NULL;
    struct attn_backward b;
    CHECK(check(&b, q, k, v, out, params, gradients, CHECK_SHAPES));
    struct attn_backward_plan *made = malloc(sizeof *made);
    if (!made)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a plan of %zu bytes", sizeof *made);
    made->backward = b;
    made->planned = attn_planned_of(&b.forward);
    const attn_params *p = &b.forward.params;
    const struct attn_kernels kernels = choose_kernels(&b);
    attn_backward_cut(&made->backward, &kernels, attn_threads_asked(p->executor, p->num_threads));
    *plan = made;
    return ATTN_OK;
}

void attn_backward_plan_destroy(attn_backward_plan *plan)
{
    free(plan);
}

int attn_backward_plan_num_threads(const attn_backward_plan *plan)
{
    return plan ? plan->backward.steps.geometry.threads : 0;
}

int attn_backward_plan_num_phases(const attn_backward_plan *plan)
{
    return plan ? plan->backward.steps.geometry.num_phases : 0;
}

size_t attn_backward_plan_workspace_size(const attn_backward_plan *plan)
{
    return plan ? attn_run_size(&plan->backward.steps.geometry, plan->backward.steps.geometry.threads) : SIZE_MAX;
}

size_t attn_backward_plan_describe(const attn_backward_plan *plan, char *buffer, size_t size)
{
    if (!buffer)
        size = 0;
    if (plan)
        return attn_describe_backward(&plan->backward, buffer, size);
    if (size > 0)
        buffer[0] = '\0';
    return 0;
}

/** That a run reads and writes the gradients that were planned. */
static attn_status check_same_gradients(const struct attn_backward *now, const struct attn_backward *was)
{
    const struct {
        const char *name;
        const attn_tensor *now, *was;
    } tensors[] = {{"out", &now->dout, &was->dout},
                   {"lse", &now->dlse, &was->dlse},
                   {"q", &now->dq, &was->dq},
                   {"k", &now->dk, &was->dk},
                   {"v", &now->dv, &was->dv},
                   {"mask", &now->dmask, &was->dmask},
                   {"rel_k", &now->drel_k, &was->drel_k},
                   {"rel_q", &now->drel_q, &was->drel_q}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].now->dtype != tensors[i].was->dtype ||
            memcmp(tensors[i].now->shape, tensors[i].was->shape, sizeof tensors[i].now->shape) != 0)
            return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.%s differs from what the plan was made with",
                             tensors[i].name);
    const attn_relative_bias *bias = now->forward.params.relative_bias;
    if (bias && bias->buckets != was->buckets)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "params.relative_bias->buckets is %" PRId64 "; the plan was made for %" PRId64, bias->buckets,
                         was->buckets);
    const struct {
        const char *name;
        const float *now, *was;
    } arrays[] = {{"head_scale", now->dhead_scale, was->dhead_scale},
                  {"sinks", now->dsinks, was->dsinks},
                  {"alibi_slopes", now->dslopes, was->dslopes},
                  {"relative_bias", now->dtable, was->dtable}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (!arrays[i].now != !arrays[i].was)
            return attn_fail(ATTN_INVALID_ARGUMENT, "gradients.%s differs from what the plan was made with",
                             arrays[i].name);
    return ATTN_OK;
}

/** Checks a run against its plan and fills b, cut as the plan is. */
static attn_status begin(const attn_backward_plan *plan, const attn_tensor *q, const attn_tensor *k,
                         const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                         const attn_gradients *gradients, const void *workspace, size_t size, struct attn_backward *b)
{
    CHECK(attn_check_plan(plan, "attn_backward_plan"));
    const size_t needed = attn_backward_plan_workspace_size(plan);
    CHECK(check(b, q, k, v, out, params, gradients, CHECK_ALL));
    /* What cutting has said of the plan's problem is said of this one, too. */
    b->forward.plain = plan->backward.forward.plain;
    b->forward.may_be_together = plan->backward.forward.may_be_together;
    b->forward.reserved = plan->backward.forward.reserved;
    CHECK(attn_check_planned(&b->forward, &plan->backward.forward, &plan->planned));
    CHECK(check_same_gradients(b, &plan->backward));
    CHECK(attn_check_plan_workspace(workspace, size, needed));
    attn_backward_adopt(b, &plan->backward);
    return ATTN_OK;
}

attn_status attn_backward_plan_run(const attn_backward_plan *plan, const attn_tensor *q, const attn_tensor *k,
                                   const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                   const attn_gradients *gradients, void *workspace, size_t workspace_size)
{
    struct attn_backward b;
    CHECK(begin(plan, q, k, v, out, params, gradients, workspace, workspace_size, &b));
    attn_execute(attn_backward_begin(workspace, &b));
    return ATTN_OK;
}

attn_status attn_backward_plan_begin(const attn_backward_plan *plan, const attn_tensor *q, const attn_tensor *k,
                                     const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                     const attn_gradients *gradients, void *workspace, size_t workspace_size)
{
    struct attn_backward b;
    CHECK(begin(plan, q, k, v, out, params, gradients, workspace, workspace_size, &b));
    struct attn_run *run = attn_backward_begin(workspace, &b);
    attn_backward_keep(run);
    run->owner = plan;
    return ATTN_OK;
}

attn_status attn_backward_plan_run_share(const attn_backward_plan *plan, void *workspace, int phase, int ith, int nth)
{
    return attn_run_checked_share(plan, "attn_backward_plan", workspace, phase, ith, nth);
}
