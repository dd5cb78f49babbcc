/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of linear attention: of q, k and v, and of decays where a rule has them.
 *
 * Counted are ten operations for each element of S and token: S and its gradient R are updated, two each, and
 * read once for dq and twice for dk and dv, two each; whatever is computed besides, as for decays.
 *
 * Before and after measuring, dq of the first tokens of a head is compared with the recurrence of S
 * in double, and dk and dv of the last ones with that of R.
 */
#include "attn/linear_attention_backward.h"
#include "linear_attention.h"
#include "numbers.h"
#include "turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED           61 /* and the next ones: q, k, v, the gradient of out, decays */

#define WORK           10.0
#define CHECKED_TOKENS 512
#define TOLERANCE      1e-4 /* of the size of a row */

enum { Q, K, V, D_OUT, DECAY, INPUTS, D_Q = INPUTS, D_K, D_V, D_DECAY, TENSORS };

struct gradients {
    const struct bench_case *bcase;
    attn_tensor t[TENSORS];
    attn_linear_attention_params params;
    attn_linear_attention_gradients wanted;
    void *workspace;
    size_t workspace_size;
    double *s, *row; /**< a state, or its gradient; a row of a result */
};

static bool decays_rows(const struct bench_case *c)
{
    return c->rule == BENCH_GATED_ROWS;
}

static void destroy(struct gradients *g)
{
    for (int i = 0; i < TENSORS; i++)
        free(g->t[i].data);
    free(g->workspace);
    free(g->s);
    free(g->row);
}

static int64_t count(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

static int no_memory(const struct bench_case *c)
{
    fprintf(stderr, "attn-bench: there is not enough memory for the gradients of case %s\n", c->id);
    return -1;
}

static int create(struct gradients *g, const struct bench_case *c, const struct bench_options *options)
{
    const int64_t b = c->batch, h = c->heads, t = c->tq, d = c->d;
    const bool gated = c->rule != BENCH_LINEAR;
    *g = (struct gradients){.bcase = c, .params = attn_linear_attention_params_default()};
    for (int i = 0; i < TENSORS; i++) {
        const bool of_decay = i == DECAY || i == D_DECAY;
        if (of_decay && !gated)
            continue;
        const int64_t columns = of_decay && !decays_rows(c) ? 1 : d;
        g->t[i] = attn_bhtd(bench_alloc_large((size_t)(b * h * t * columns) * sizeof(float)), b, h, t, columns);
        if (g->t[i].data == NULL)
            return no_memory(c);
        if (i < INPUTS)
            bench_fill_normal(g->t[i].data, count(&g->t[i]), (uint64_t)(SEED + i));
    }
    for (int64_t i = 0; i < count(&g->t[DECAY]); i++) /* as in the forward pass: from a hundred tokens on */
        ((float *)g->t[DECAY].data)[i] = -0.02f * fabsf(((float *)g->t[DECAY].data)[i]);
    g->s = malloc((size_t)(d * d) * sizeof *g->s);
    g->row = malloc((size_t)d * sizeof *g->row);
    g->params.decay = gated ? &g->t[DECAY] : NULL;
    g->params.isa = options->isa;
    g->params.num_threads = options->threads;
    g->wanted = attn_linear_attention_gradients_default();
    g->wanted.out = &g->t[D_OUT];
    g->wanted.q = &g->t[D_Q], g->wanted.k = &g->t[D_K], g->wanted.v = &g->t[D_V];
    g->wanted.decay = gated ? &g->t[D_DECAY] : NULL;
    return g->s == NULL || g->row == NULL ? no_memory(c) : 0;
}

static int run(void *context)
{
    struct gradients *g = context;
    return attn_linear_attention_backward_in(&g->t[Q], &g->t[K], &g->t[V], NULL, &g->params, &g->wanted, g->workspace,
                                             g->workspace_size) == ATTN_OK;
}

static double at(const struct gradients *g, int tensor, int64_t t, int64_t c)
{
    const attn_tensor *x = &g->t[tensor];
    return (double)((const float *)x->data)[t * x->shape[3] + (x->shape[3] > 1 ? c : 0)];
}

static void fade(struct gradients *g, int64_t t)
{
    const int64_t d = g->bcase->d;
    for (int64_t i = 0; i < d * d && g->params.decay; i++)
        g->s[i] *= exp(at(g, DECAY, t, i / d));
}

static void add_product(struct gradients *g, int rows, int columns, double factor, int64_t t)
{
    const int64_t d = g->bcase->d;
    for (int64_t i = 0; i < d * d; i++)
        g->s[i] += factor * at(g, rows, t, i / d) * at(g, columns, t, i % d);
}

/* The difference of row t of a result from S, or with turned S', times a row of another tensor. */
static double difference(const struct gradients *g, int result, int64_t t, int with, bool turned, double factor)
{
    const int64_t d = g->bcase->d;
    double largest = 0.0, size = 0.0;
    for (int64_t i = 0; i < d; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < d; j++)
            sum += g->s[turned ? j * d + i : i * d + j] * at(g, with, t, j);
        const double distance = fabs(at(g, result, t, i) - factor * sum);
        size = fmax(size, fabs(factor * sum));
        largest = isnan(distance) ? INFINITY : fmax(largest, distance);
    }
    return size > 0.0 ? largest / size : largest;
}

/* Runs, and compares the first head. */
static int check(struct bench_variant *v, struct gradients *g)
{
    const struct bench_case *c = g->bcase;
    const int64_t d = c->d, tokens = c->tq < CHECKED_TOKENS ? c->tq : CHECKED_TOKENS;
    const double scale = 1.0 / sqrt((double)d);
    for (int i = INPUTS; i < TENSORS; i++)
        if (g->t[i].data != NULL)
            memset(g->t[i].data, 0xff, (size_t)count(&g->t[i]) * sizeof(float)); /* NaN */
    if (!run(g))
        return bench_variant_error(v);
    double worst = 0.0;
    memset(g->s, 0, (size_t)(d * d) * sizeof *g->s);
    for (int64_t t = 0; t < tokens; t++) {
        fade(g, t);
        add_product(g, K, V, 1.0, t);
        worst = fmax(worst, difference(g, D_Q, t, D_OUT, false, scale));
    }
    memset(g->s, 0, (size_t)(d * d) * sizeof *g->s);
    for (int64_t t = c->tq - 1; t >= c->tq - tokens; t--) {
        if (t + 1 < c->tq)
            fade(g, t + 1);
        add_product(g, Q, D_OUT, scale, t);
        worst = fmax(worst, difference(g, D_K, t, V, false, 1.0));
        worst = fmax(worst, difference(g, D_V, t, K, true, 1.0));
    }
    v->row.max_abs_diff = fmax(v->row.max_abs_diff, worst);
    if (worst <= TOLERANCE)
        return 0;
    fprintf(stderr, "attn-bench: %s: a gradient differs from the recurrence by %g of its size; expected %g\n",
            v->row.name, worst, TOLERANCE);
    return -1;
}

static int make_workspace(struct gradients *g, struct bench_variant *v)
{
    if (attn_linear_attention_backward_workspace_size(&g->t[Q], &g->t[K], &g->t[V], NULL, &g->params, &g->wanted,
                                                      &g->workspace_size) != ATTN_OK)
        return bench_variant_error(v);
    v->row.workspace_bytes = g->workspace_size;
    g->workspace = bench_alloc_workspace(g->workspace_size);
    return g->workspace != NULL ? 0 : -1;
}

int bench_linear_attention_backward_run(struct bench_machine *machine, const struct bench_options *options,
                                        const struct bench_case *c, struct bench_results *results)
{
    struct gradients g;
    struct bench_variant v = {.body = run, .context = &g};
    int status = -1;
    v.row.kind = BENCH_FORWARD;
    v.row.bcase = c;
    v.row.isa = bench_f32_isa(options->isa);
    v.row.flops = WORK * (double)c->batch * (double)c->heads * (double)c->tq * (double)(c->d * c->d);
    bench_forward_name(c, v.row.name);
    if (create(&g, c, options) == 0 && make_workspace(&g, &v) == 0 && check(&v, &g) == 0 &&
        bench_turns_take(&v, 1, machine->f32, NULL, options) == 0 && check(&v, &g) == 0)
        status = bench_turns_report(&v, 1, results);
    destroy(&g);
    return status;
}
