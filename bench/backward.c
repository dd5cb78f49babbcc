/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of attention. A row of the backward pass runs a plan of it on what one forward call has left; a row of
 * both runs that call, too, as a step of training does, each from a plan and a workspace made before. Gradients of
 * q, k and v are all asked for.
 *
 * Each live pair counts five products of a row of d channels, whatever is computed again: S = QK^T, dO V^T, and those
 * of dV, dQ and dK. A product of the forward pass is one of two.
 *
 * Rows of the output, of the log-sum-exp and of each gradient are compared with their definitions in double before and
 * after measuring.
 */
#include "backward.h"
#include "attn/backward.h"
#include "gradients.h"
#include "numbers.h"
#include "rows.h"
#include "turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Operations of the backward pass for each one of the forward pass. */
#define BACKWARD_WORK 2.5

/* Memory of a plan. */
struct room {
    void *memory;
    size_t size;
};

struct trained {
    struct bench_problem problem;
    struct bench_gradients gradients;
    attn_params params;
    attn_gradients asked;
    attn_plan *forward;
    attn_backward_plan *backward;
    struct room rooms[2]; /**< of the two */
};

static int run_forward(struct trained *t)
{
    struct bench_problem *p = &t->problem;
    return attn_plan_run(t->forward, &p->typed[0], &p->typed[1], &p->typed[2], &p->out, &t->params, t->rooms[0].memory,
                         t->rooms[0].size) == ATTN_OK;
}

static int run_backward(void *context)
{
    struct trained *t = context;
    struct bench_problem *p = &t->problem;
    return attn_backward_plan_run(t->backward, &p->typed[0], &p->typed[1], &p->typed[2], &p->out, &t->params, &t->asked,
                                  t->rooms[1].memory, t->rooms[1].size) == ATTN_OK;
}

static int run_both(void *context)
{
    return run_forward(context) && run_backward(context);
}

/* A sentence where something is further off than it may be. */
static int judge(const struct bench_variant *v, const char *what, double difference, double tolerance)
{
    if (difference <= tolerance)
        return 0;
    fprintf(stderr, "attn-bench: %s: %s differs from the definition by %g; expected at most %g\n", v->row.name, what,
            difference, tolerance);
    return -1;
}

/* Computes everything afresh, that which is not timed, too, and holds it against what is expected. */
static int check(struct bench_variant *v, struct trained *t)
{
    const attn_dtype dtype = t->problem.bcase->dtype;
    bench_problem_spoil(&t->problem);
    bench_gradients_spoil(&t->gradients);
    if (!run_both(t))
        return bench_variant_error(v);
    if (judge(v, "a row of the output", bench_problem_difference(&t->problem).of_row,
              bench_gradients_tolerance(dtype)) != 0 ||
        judge(v, "the log-sum-exp of a row", bench_gradients_expect(&t->gradients, &t->problem),
              bench_gradients_tolerance(dtype)) != 0)
        return -1;
    const struct bench_difference difference = bench_gradients_difference(&t->gradients);
    v->row.max_abs_diff = fmax(v->row.max_abs_diff, difference.largest);
    return judge(v, "a row of a gradient", difference.of_row, bench_gradients_tolerance(dtype));
}

static int create(struct trained *t, const struct bench_options *options, const struct bench_case *c)
{
    struct bench_problem *p = &t->problem;
    if (bench_problem_create(p, c) != 0 || bench_rows_create(p) != 0 || bench_gradients_create(&t->gradients, p) != 0)
        return -1;
    t->params = p->params;
    t->params.isa = options->isa;
    t->params.num_threads = options->threads;
    t->params.lse = &t->gradients.lse;
    t->asked = attn_gradients_default();
    t->asked.out = &t->gradients.out;
    t->asked.q = &t->gradients.of[0];
    t->asked.k = &t->gradients.of[1];
    t->asked.v = &t->gradients.of[2];
    return 0;
}

static int make_room(struct room *room, size_t size)
{
    room->size = size;
    room->memory = bench_alloc_workspace(size);
    return room->memory != NULL ? 0 : -1;
}

static int make_plans(struct trained *t, struct bench_variant *v)
{
    const struct bench_problem *p = &t->problem;
    if (attn_plan_create(&t->forward, &p->typed[0], &p->typed[1], &p->typed[2], &p->out, &t->params) != ATTN_OK ||
        attn_backward_plan_create(&t->backward, &p->typed[0], &p->typed[1], &p->typed[2], &p->out, &t->params,
                                  &t->asked) != ATTN_OK)
        return bench_variant_error(v);
    attn_backward_plan_describe(t->backward, v->row.plan, sizeof v->row.plan);
    v->row.workspace_bytes = attn_backward_plan_workspace_size(t->backward);
    if (bench_result_check_kernels(&v->row) != 0 || make_room(&t->rooms[0], attn_plan_workspace_size(t->forward)) != 0)
        return -1;
    return make_room(&t->rooms[1], v->row.workspace_bytes);
}

static void destroy(struct trained *t)
{
    attn_plan_destroy(t->forward);
    attn_backward_plan_destroy(t->backward);
    free(t->rooms[0].memory);
    free(t->rooms[1].memory);
    bench_gradients_destroy(&t->gradients);
    if (t->problem.bcase != NULL)
        bench_problem_destroy(&t->problem);
}

int bench_backward_run(struct bench_peak *peak, const struct bench_options *options, const struct bench_case *c,
                       struct bench_results *results)
{
    struct trained t = {.forward = NULL};
    struct bench_variant v = {.body = c->pass == BENCH_PASS_BOTH ? run_both : run_backward, .context = &t};
    int status = -1;
    v.row.kind = BENCH_FORWARD;
    v.row.bcase = c;
    v.row.isa = bench_case_isa(c, options->isa);
    bench_forward_name(c, v.row.name);
    if (create(&t, options, c) != 0 || make_plans(&t, &v) != 0 || check(&v, &t) != 0)
        goto done;
    v.row.flops = (BACKWARD_WORK + (c->pass == BENCH_PASS_BOTH)) * t.problem.flops;
    if (bench_turns_take(&v, 1, peak, NULL, options) != 0 || check(&v, &t) != 0)
        goto done;
    status = bench_turns_report(&v, 1, results);
done:
    destroy(&t);
    return status;
}
