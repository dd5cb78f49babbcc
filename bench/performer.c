/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Performer: attention by positive random features, of which linear attention makes averages of values.
 *
 * Counted are the multiply-adds of the definition: those of the projection of queries and keys, and for each token an
 * update and a read of a state with a row for each feature, and a column for the sum of keys beside the values'. The
 * exponentials are not counted.
 *
 * Before and after measuring, some rows of the first and the last head are compared with the definition in double.
 */
#include "performer.h"
#include "attn/linear_attention.h"
#include "numbers.h"
#include "turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 61 /* and the next ones: q, k, v */

/* Of the rows of a head one in so many is checked: all of them would take longer than what is measured. */
#define CHECKED_STRIDE 1024
#define CHECKED_HEADS  2

/* Of the size of a row of the output: sums of thousands of products, of exponentials of sums in f32. */
#define TOLERANCE 1e-4

enum { Q, K, V, OUT, TENSORS };

struct performer {
    const struct bench_case *bcase;
    attn_tensor t[TENSORS], projection;
    attn_linear_attention_params params;
    attn_linear_attention_plan *plan;
    void *workspace;
    size_t workspace_size;
    double *state, *features; /**< what keys have written, [features][d + 1]; of a row */
};

static void destroy(struct performer *p)
{
    attn_linear_attention_plan_destroy(p->plan);
    for (int i = 0; i < TENSORS; i++)
        free(p->t[i].data);
    free(p->projection.data);
    free(p->workspace);
    free(p->state);
    free(p->features);
}

static int create(struct performer *p, const struct bench_case *c, const struct bench_options *options)
{
    const int64_t rows = c->batch * c->heads * c->tq, count = rows * c->d;
    bool made = true;
    *p = (struct performer){.bcase = c, .params = attn_linear_attention_params_default()};
    for (int i = 0; i < TENSORS; i++) {
        float *const x = bench_alloc_large((size_t)count * sizeof *x);
        p->t[i] = attn_bhtd(x, c->batch, c->heads, c->tq, c->d);
        made = made && x != NULL;
        if (x != NULL && i != OUT)
            bench_fill_normal(x, count, (uint64_t)(SEED + i));
    }
    p->projection = attn_bhtd(bench_alloc_floats(c->features * c->d), 1, 1, c->features, c->d);
    p->state = malloc((size_t)(c->features * (c->d + 1)) * sizeof *p->state);
    p->features = malloc((size_t)c->features * sizeof *p->features);
    if (!made || p->projection.data == NULL || p->state == NULL || p->features == NULL) {
        fprintf(stderr, "attn-bench: there is not enough memory for the tensors of case %s\n", c->id);
        return -1;
    }
    if (attn_draw_features(&p->projection, SEED, 0) != ATTN_OK) {
        fprintf(stderr, "attn-bench: case %s failed: %s\n", c->id, attn_last_error());
        return -1;
    }
    p->params.map = ATTN_FEATURES_POSITIVE;
    p->params.projection = &p->projection;
    p->params.normalise = 1;
    p->params.bidirectional = c->causal == ATTN_CAUSAL_NONE;
    p->params.isa = options->isa;
    p->params.num_threads = options->threads;
    return 0;
}

static int make_plan(struct performer *p, struct bench_variant *v)
{
    if (attn_linear_attention_plan_create(&p->plan, &p->t[Q], &p->t[K], &p->t[V], &p->t[OUT], &p->params) != ATTN_OK)
        return bench_variant_error(v);
    attn_linear_attention_plan_describe(p->plan, v->row.plan, sizeof v->row.plan);
    p->workspace_size = v->row.workspace_bytes = attn_linear_attention_plan_workspace_size(p->plan);
    p->workspace = bench_alloc_workspace(p->workspace_size);
    if (p->workspace == NULL)
        return -1;
    return bench_result_check_kernels(&v->row);
}

static int run(void *context)
{
    struct performer *p = context;
    return attn_linear_attention_plan_run(p->plan, &p->t[Q], &p->t[K], &p->t[V], &p->t[OUT], &p->params, p->workspace,
                                          p->workspace_size) == ATTN_OK;
}

static const float *row_of(const struct performer *p, int tensor, int64_t row)
{
    return (const float *)p->t[tensor].data + row * p->bcase->d;
}

/* The features of a row of q or k (attn_feature_map). */
static void map_row(const struct performer *p, const float *x)
{
    const int64_t d = p->bcase->d;
    const double factor = pow((double)d, -0.25);
    double half = 0.0;
    for (int64_t c = 0; c < d; c++)
        half += factor * factor * (double)x[c] * (double)x[c] / 2.0;
    for (int64_t r = 0; r < p->bcase->features; r++) {
        const float *w = (const float *)p->projection.data + r * d;
        double sum = 0.0;
        for (int64_t c = 0; c < d; c++)
            sum += (double)w[c] * factor * (double)x[c];
        p->features[r] = exp(sum - half);
    }
}

static void write_key(const struct performer *p, int64_t row)
{
    const int64_t d = p->bcase->d;
    const float *v = row_of(p, V, row);
    map_row(p, row_of(p, K, row));
    for (int64_t r = 0; r < p->bcase->features; r++) {
        double *const state = p->state + r * (d + 1);
        for (int64_t c = 0; c < d; c++)
            state[c] += p->features[r] * (double)v[c];
        state[d] += p->features[r];
    }
}

/* The largest difference of a row of the output, of its size. */
static double compare(const struct performer *p, int64_t row)
{
    const int64_t d = p->bcase->d;
    double largest = 0.0, size = 0.0, total = 0.0;
    map_row(p, row_of(p, Q, row));
    for (int64_t r = 0; r < p->bcase->features; r++)
        total += p->features[r] * p->state[r * (d + 1) + d];
    for (int64_t c = 0; c < d; c++) {
        double sum = 0.0;
        for (int64_t r = 0; r < p->bcase->features; r++)
            sum += p->features[r] * p->state[r * (d + 1) + c];
        const double difference = fabs((double)row_of(p, OUT, row)[c] - sum / total);
        largest = isnan(difference) ? INFINITY : fmax(largest, difference);
        size = fmax(size, fabs(sum / total));
    }
    return size > 0.0 ? largest / size : largest;
}

/* Runs, and compares rows of a head: each with what the keys up to it have written, or all. */
static int check_head(struct bench_variant *v, const struct performer *p, int64_t head)
{
    const struct bench_case *c = p->bcase;
    const bool causal = c->causal != ATTN_CAUSAL_NONE;
    memset(p->state, 0, (size_t)(c->features * (c->d + 1)) * sizeof *p->state);
    for (int64_t t = 0; t < c->tq && !causal; t++)
        write_key(p, head * c->tq + t);
    for (int64_t t = 0; t < c->tq; t++) {
        const int64_t row = head * c->tq + t;
        if (causal)
            write_key(p, row);
        if (t % CHECKED_STRIDE != CHECKED_STRIDE - 1)
            continue;
        const double difference = compare(p, row);
        v->row.max_abs_diff = fmax(v->row.max_abs_diff, difference);
        if (difference <= TOLERANCE)
            continue;
        fprintf(stderr, "attn-bench: %s: token %lld differs from the definition by %g of its size; expected %g\n",
                v->row.name, (long long)t, difference, TOLERANCE);
        return -1;
    }
    return 0;
}

static int check(struct bench_variant *v, struct performer *p)
{
    const struct bench_case *c = p->bcase;
    const int64_t heads = c->batch * c->heads;
    memset(p->t[OUT].data, 0xff, (size_t)(heads * c->tq * c->d) * sizeof(float)); /* NaN */
    if (!run(p))
        return bench_variant_error(v);
    for (int n = 0; n < CHECKED_HEADS; n++)
        if (check_head(v, p, n == 0 ? 0 : heads - 1) != 0)
            return -1;
    return 0;
}

int bench_performer_run(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                        struct bench_results *results)
{
    struct performer p;
    struct bench_variant v = {.body = run, .context = &p};
    int status = -1;
    v.row.kind = BENCH_FORWARD;
    v.row.bcase = c;
    v.row.isa = bench_f32_isa(options->isa);
    v.row.flops =
        4.0 * (double)(c->batch * c->heads * c->tq) * (double)c->features * ((double)c->d + (double)(c->d + 1));
    bench_forward_name(c, v.row.name);
    if (create(&p, c, options) == 0 && make_plan(&p, &v) == 0 && check(&v, &p) == 0 &&
        bench_turns_take(&v, 1, machine->f32, NULL, options) == 0 && check(&v, &p) == 0)
        status = bench_turns_report(&v, 1, results);
    destroy(&p);
    return status;
}
