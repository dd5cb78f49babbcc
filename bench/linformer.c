/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linformer: keys and values are projected along their tokens, and queries attend to what comes of them. One projection
 * is shared by all heads and by keys and values.
 *
 * Counted are the products of the definition: those of the projections, and two for each query and projected key.
 *
 * Before and after measuring, some rows are compared with the definition in double.
 */
#include "linformer.h"
#include "attn/nn/linformer.h"
#include "numbers.h"
#include "turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED          71 /* and the next ones: q, k, v, the projection */
#define CHECKED_HEADS 2
#define CHECKED       8 /* queries of a head */

/* Averages of sums of order 1 of thousands of products, rounded once on the way. */
#define TOLERANCE 2e-5

enum { Q, K, V, OUT, TENSORS };

struct linformer {
    const struct bench_case *bcase;
    attn_tensor t[TENSORS], projection;
    attn_params params;
    void *workspace;
    size_t workspace_size;
    double *keys, *values; /**< projected ones of a head, [projected][d] */
};

static void destroy(struct linformer *l)
{
    for (int i = 0; i < TENSORS; i++)
        free(l->t[i].data);
    free(l->projection.data);
    free(l->workspace);
    free(l->keys);
    free(l->values);
}

/* Projected numbers are of the size of those that they are sums of. */
static int create(struct linformer *l, const struct bench_case *c, const struct bench_options *options)
{
    bool made = true;
    *l = (struct linformer){.bcase = c, .params = attn_params_default()};
    for (int i = 0; i < TENSORS; i++) {
        const int64_t tokens = i == K || i == V ? c->tk : c->tq;
        float *const x = bench_normal(c->batch * c->heads * tokens * c->d, (uint64_t)(SEED + i), 1.0);
        l->t[i] = attn_bhtd(x, c->batch, c->heads, tokens, c->d);
        made = made && x != NULL;
    }
    l->projection =
        attn_matrix(bench_normal(c->projected * c->tk, SEED + TENSORS, 1.0 / sqrt((double)c->tk)), c->projected, c->tk);
    l->keys = malloc((size_t)(c->projected * c->d) * sizeof *l->keys);
    l->values = malloc((size_t)(c->projected * c->d) * sizeof *l->values);
    if (!made || l->projection.data == NULL || l->keys == NULL || l->values == NULL) {
        fprintf(stderr, "attn-bench: there is not enough memory for the tensors of case %s\n", c->id);
        return -1;
    }
    l->params.isa = options->isa;
    l->params.num_threads = options->threads;
    l->workspace_size =
        attn_linformer_workspace_size(&l->t[Q], &l->t[K], &l->t[V], &l->projection, NULL, &l->t[OUT], &l->params);
    if (l->workspace_size == SIZE_MAX) {
        fprintf(stderr, "attn-bench: case %s failed: %s\n", c->id, attn_last_error());
        return -1;
    }
    l->workspace = bench_alloc_workspace(l->workspace_size);
    if (l->workspace == NULL)
        return -1;
    return 0;
}

static int run(void *context)
{
    struct linformer *l = context;
    return attn_linformer_forward(&l->t[Q], &l->t[K], &l->t[V], &l->projection, NULL, &l->t[OUT], &l->params,
                                  l->workspace, l->workspace_size) == ATTN_OK;
}

static const float *row_of(const struct linformer *l, int tensor, int64_t head, int64_t token)
{
    const attn_tensor *t = &l->t[tensor];
    return (const float *)t->data + (head * t->shape[2] + token) * t->shape[3];
}

static void project(const struct linformer *l, int tensor, int64_t head, double *to)
{
    const struct bench_case *c = l->bcase;
    memset(to, 0, (size_t)(c->projected * c->d) * sizeof *to);
    for (int64_t i = 0; i < c->projected; i++)
        for (int64_t j = 0; j < c->tk; j++) {
            const double weight = (double)((const float *)l->projection.data)[i * c->tk + j];
            const float *x = row_of(l, tensor, head, j);
            for (int64_t n = 0; n < c->d; n++)
                to[i * c->d + n] += weight * (double)x[n];
        }
}

/* The largest difference of a row of the output. */
static double compare(const struct linformer *l, int64_t head, int64_t query)
{
    const struct bench_case *c = l->bcase;
    const float *q = row_of(l, Q, head, query), *out = row_of(l, OUT, head, query);
    double largest = 0.0;
    for (int64_t n = 0; n < c->d; n++) {
        double total = 0.0, sum = 0.0;
        for (int64_t i = 0; i < c->projected; i++) {
            double score = 0.0;
            for (int64_t m = 0; m < c->d; m++)
                score += (double)q[m] * l->keys[i * c->d + m];
            const double weight = exp(score / sqrt((double)c->d));
            total += weight;
            sum += weight * l->values[i * c->d + n];
        }
        const double difference = fabs((double)out[n] - sum / total);
        largest = isnan(difference) ? INFINITY : fmax(largest, difference);
    }
    return largest;
}

static int check(struct bench_variant *v, struct linformer *l)
{
    const struct bench_case *c = l->bcase;
    const int64_t heads = c->batch * c->heads;
    uint64_t state = SEED;
    memset(l->t[OUT].data, 0xff, (size_t)(heads * c->tq * c->d) * sizeof(float)); /* NaN */
    if (!run(l))
        return bench_variant_error(v);
    for (int h = 0; h < CHECKED_HEADS; h++) {
        const int64_t head = h == 0 ? 0 : heads - 1;
        project(l, K, head, l->keys);
        project(l, V, head, l->values);
        for (int n = 0; n < CHECKED; n++) {
            const int64_t query = (int64_t)(bench_random(&state) % (uint64_t)c->tq);
            const double difference = compare(l, head, query);
            v->row.max_abs_diff = fmax(v->row.max_abs_diff, difference);
            if (difference <= TOLERANCE)
                continue;
            fprintf(stderr, "attn-bench: %s: query %lld differs from the definition by %g; expected at most %g\n",
                    v->row.name, (long long)query, difference, TOLERANCE);
            return -1;
        }
    }
    return 0;
}

int bench_linformer_run(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                        struct bench_results *results)
{
    struct linformer l;
    struct bench_variant v = {.body = run, .context = &l};
    int status = -1;
    v.row.kind = BENCH_FORWARD;
    v.row.bcase = c;
    v.row.isa = bench_f32_isa(options->isa);
    v.row.flops = 4.0 * (double)(c->batch * c->heads) * (double)c->projected * (double)(c->tk + c->tq) * (double)c->d;
    bench_forward_name(c, v.row.name);
    if (create(&l, c, options) == 0 && check(&v, &l) == 0) {
        v.row.workspace_bytes = l.workspace_size;
        if (bench_turns_take(&v, 1, machine->f32, NULL, options) == 0 && check(&v, &l) == 0)
            status = bench_turns_report(&v, 1, results);
    }
    destroy(&l);
    return status;
}
