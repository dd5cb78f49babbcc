/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call is attn_alignment_forward() with additive scores: the product of the
 * queries, scores, softmax and values. Keys have been projected before, as a
 * decoder does it once for all of its steps. What is counted is the tanh of each
 * query, key and channel, and the limit is a loop that computes nothing else, so a
 * fraction contains everything that a call does besides.
 *
 * Queries, keys under the tanh and values have as many channels. Some rows of each
 * result are held against the definition in double, before and after measuring.
 */
#include "additive.h"
#include "numbers.h"
#include "rounding.h"
#include "turns.h"

#include "attn/nn/alignment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Sums of some hundred terms below 1, and averages of standard normal values: see runner.c. */
#define TOLERANCE        2e-5
#define TOLERANCE_NARROW 2e-2

#define SEED_DATA        41 /* and the next ones */
#define CHECKED          4  /* queries */

enum { QUERIES, KEYS, VALUES, OPERANDS };

struct additive {
    const struct bench_case *bcase;
    int threads;
    float *w_q, *w_k, *score;
    float *floats[OPERANDS]; /**< what the operands stand for; keys are projected ones */
    void *narrow[OPERANDS];  /**< in the case's type, unless that is f32 */
    attn_tensor typed[OPERANDS], out;
    attn_alignment *alignment;
    void *workspace;
    size_t workspace_size;
};

static void destroy(struct additive *a)
{
    for (int i = 0; i < OPERANDS; i++) {
        free(a->floats[i]);
        free(a->narrow[i]);
    }
    attn_alignment_destroy(a->alignment);
    free(a->w_q);
    free(a->w_k);
    free(a->score);
    free(a->out.data);
    free(a->workspace);
}

/* An operand of standard normal numbers, rounded to the case's type. */
static bool make_operand(struct additive *a, int operand, int64_t tokens)
{
    const struct bench_case *c = a->bcase;
    const int64_t count = c->batch * tokens * c->d;
    a->floats[operand] = bench_normal(count, (uint64_t)(SEED_DATA + operand), 1.0);
    a->typed[operand] = attn_btc(a->floats[operand], c->batch, tokens, c->d);
    if (c->dtype != ATTN_F32 && a->floats[operand] != NULL) {
        a->narrow[operand] = bench_alloc_floats(count);
        if (a->narrow[operand] != NULL)
            bench_round_rows(a->floats[operand], a->narrow[operand], c->dtype, NULL, c->batch * tokens, c->d);
        a->typed[operand].data = a->narrow[operand];
        a->typed[operand].dtype = c->dtype;
    }
    return a->typed[operand].data != NULL;
}

static attn_params params_of(const struct additive *a)
{
    attn_params params = attn_params_default();
    params.num_threads = a->threads;
    return params;
}

/* Sums of the weights' products are of order 1, and so are the scores. */
static int create(struct additive *a, const struct bench_case *c, int threads)
{
    *a = (struct additive){.bcase = c, .threads = threads};
    const double scale = 1.0 / sqrt((double)c->d);
    a->w_q = bench_normal(c->d * c->d, SEED_DATA + 10, scale);
    a->w_k = bench_normal(c->d * c->d, SEED_DATA + 11, scale);
    a->score = bench_normal(c->d, SEED_DATA + 12, scale);
    const bool made = make_operand(a, QUERIES, c->tq) && make_operand(a, KEYS, c->tk) && make_operand(a, VALUES, c->tk);
    a->out = attn_btc(bench_alloc_floats(c->batch * c->tq * c->d), c->batch, c->tq, c->d);
    a->out.dtype = c->dtype;
    if (!made || a->w_q == NULL || a->w_k == NULL || a->score == NULL || a->out.data == NULL) {
        fprintf(stderr, "attn-bench: there is not enough memory for case %s\n", c->id);
        return -1;
    }
    attn_alignment_config config = attn_alignment_config_default();
    config.score = ATTN_SCORE_ADDITIVE;
    config.d_query = config.d_key = config.d_attention = c->d;
    config.w_q = attn_matrix(a->w_q, c->d, c->d);
    config.w_k = attn_matrix(a->w_k, c->d, c->d);
    config.v = attn_vector(a->score, c->d);
    const attn_params params = params_of(a);
    if (attn_alignment_create(&a->alignment, &config) != ATTN_OK) {
        fprintf(stderr, "attn-bench: case %s failed: %s\n", c->id, attn_last_error());
        return -1;
    }
    a->workspace_size = attn_alignment_workspace_size(a->alignment, c->batch, c->tq, c->tk, c->d, &params);
    a->workspace = bench_alloc_workspace(a->workspace_size);
    if (a->workspace == NULL)
        return -1;
    return 0;
}

static int run(void *context)
{
    struct additive *a = context;
    const attn_params params = params_of(a);
    return attn_alignment_forward(a->alignment, &a->typed[QUERIES], &a->typed[KEYS], &a->typed[VALUES], &a->out,
                                  &params, a->workspace, a->workspace_size) == ATTN_OK;
}

/* The row of a query by the definition; part and sums have d numbers each. */
static void define(const struct additive *a, int64_t batch, int64_t query, double *part, double *sums)
{
    const struct bench_case *c = a->bcase;
    const int64_t d = c->d;
    const float *q = a->floats[QUERIES] + (batch * c->tq + query) * d;
    double top = -INFINITY, total = 0.0;
    for (int64_t i = 0; i < d; i++) {
        part[i] = sums[i] = 0.0;
        for (int64_t n = 0; n < d; n++)
            part[i] += (double)a->w_q[i * d + n] * (double)q[n];
    }
    for (int64_t j = 0; j < c->tk; j++) {
        const float *k = a->floats[KEYS] + (batch * c->tk + j) * d, *v = a->floats[VALUES] + (batch * c->tk + j) * d;
        double score = 0.0;
        for (int64_t i = 0; i < d; i++)
            score += (double)a->score[i] * tanh(part[i] + (double)k[i]);
        const double higher = fmax(top, score), shrink = exp(top - higher), weight = exp(score - higher);
        top = higher;
        total = total * shrink + weight;
        for (int64_t i = 0; i < d; i++)
            sums[i] = sums[i] * shrink + weight * (double)v[i];
    }
    for (int64_t i = 0; i < d; i++)
        sums[i] /= total;
}

static int check(struct bench_variant *v, struct additive *a)
{
    const struct bench_case *c = a->bcase;
    const double tolerance = c->dtype == ATTN_F32 ? TOLERANCE : TOLERANCE_NARROW;
    double *part = malloc((size_t)(2 * c->d) * sizeof *part);
    uint64_t state = SEED_DATA;
    int status = -1;
    if (part == NULL) {
        fprintf(stderr, "attn-bench: there is not enough memory for the rows that case %s is checked by\n", c->id);
        return -1;
    }
    /* An output that is never written must not look right. */
    memset(a->out.data, 0xff, (size_t)(c->batch * c->tq * c->d) * attn_dtype_size(c->dtype));
    if (!run(a)) {
        bench_variant_error(v);
        goto done;
    }
    for (int n = 0; n < CHECKED; n++) {
        const int64_t row = n == 0 ? 0 : (int64_t)(bench_random(&state) % (uint64_t)(c->batch * c->tq));
        double *const expected = part + c->d;
        define(a, row / c->tq, row % c->tq, part, expected);
        for (int64_t i = 0; i < c->d; i++) {
            const double diff = fabs((double)bench_element(a->out.data, c->dtype, row * c->d + i) - expected[i]);
            if (!(diff <= tolerance)) {
                fprintf(stderr, "attn-bench: %s differs from the definition by %g; expected at most %g\n", v->row.name,
                        diff, tolerance);
                goto done;
            }
            v->row.max_abs_diff = fmax(v->row.max_abs_diff, diff);
        }
    }
    status = 0;
done:
    free(part);
    return status;
}

int bench_additive_run(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                       struct bench_results *results)
{
    struct additive a;
    struct bench_variant v = {.body = run, .context = &a};
    int status = -1;
    v.row.kind = BENCH_FORWARD;
    v.row.bcase = c;
    v.row.isa = bench_f32_isa(options->isa);
    v.row.flops = (double)c->batch * (double)c->tq * (double)c->tk * (double)c->d;
    bench_forward_name(c, v.row.name);
    if (create(&a, c, options->threads) != 0 || check(&v, &a) != 0)
        goto done;
    v.row.workspace_bytes = a.workspace_size;
    if (bench_turns_take(&v, 1, &machine->tanh, NULL, options) != 0 || check(&v, &a) != 0)
        goto done;
    status = bench_turns_report(&v, 1, results);
done:
    destroy(&a);
    return status;
}
