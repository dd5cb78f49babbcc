/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention as one would write it down in f32: expf(), a product, a sum, an
 * outer product, token by token. Once with rows of S in rising order, and the scale
 * at the end; once with rows in falling order, and q scaled first. The largest error
 * counts, since a single order is sometimes exact by luck.
 */
#include "oracle_linear.h"

#include "dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORDERS = 2 };

/** One head of one sequence. */
struct naive_head {
    const struct linear_inputs *in;
    struct linear_reference *result;
    int64_t b, h, dk, dv;
    int backwards;
    float scale, *s, *q, *k, *u, *sum;
};

static void load_row(const attn_tensor *t, int64_t b, int64_t h, int64_t i, float *row)
{
    for (int64_t c = 0; c < t->shape[3]; c++)
        row[c] = tensor_get(t, b, h, i, c);
}

static void compare(struct linear_numbers *numbers, int64_t at, const float *got, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double error = fabs((double)got[i] - numbers->value[at + i]);
        if (error > numbers->naive_error[at + i]) /* not where either is not finite */
            numbers->naive_error[at + i] = error;
    }
}

/** sum_d row_d S_de. */
static void product(const struct naive_head *work, const float *row)
{
    memset(work->sum, 0, (size_t)work->dv * sizeof(float));
    for (int64_t m = 0; m < work->dk; m++) {
        const int64_t d = work->backwards ? work->dk - 1 - m : m;
        const float *s = work->s + d * work->dv;
        for (int64_t e = 0; e < work->dv; e++)
            work->sum[e] += row[d] * s[e];
    }
}

static void write_token(struct naive_head *work, int64_t t)
{
    const attn_linear_attention_params *p = work->in->params;
    for (int64_t d = 0; p->decay && d < work->dk; d++) {
        const float a = expf(tensor_get(p->decay, work->b, work->h, t, d));
        for (int64_t e = 0; e < work->dv; e++)
            work->s[d * work->dv + e] *= a;
    }
    load_row(work->in->k, work->b, linear_key_head(work->in, work->h), t, work->k);
    load_row(work->in->v, work->b, work->h, t, work->u);
    if (p->beta) {
        const float beta = tensor_get(p->beta, work->b, work->h, t, 0);
        product(work, work->k);
        for (int64_t e = 0; e < work->dv; e++)
            work->u[e] = beta * (work->u[e] - work->sum[e]);
    }
    for (int64_t d = 0; d < work->dk; d++)
        for (int64_t e = 0; e < work->dv; e++)
            work->s[d * work->dv + e] += work->k[d] * work->u[e];
}

static void read_token(struct naive_head *work, int64_t out_head, int64_t t)
{
    const attn_tensor *shape = work->in->out;
    const float before = work->backwards ? work->scale : 1, after = work->backwards ? 1 : work->scale;
    load_row(work->in->q, work->b, linear_query_head(work->in, out_head), t, work->q);
    for (int64_t d = 0; d < work->dk; d++)
        work->q[d] *= before;
    product(work, work->q);
    for (int64_t e = 0; e < work->dv; e++)
        work->sum[e] *= after;
    compare(&work->result->of[LINEAR_OUT], ((work->b * shape->shape[1] + out_head) * shape->shape[2] + t) * work->dv,
            work->sum, work->dv);
}

static void walk_head(struct naive_head *work, int64_t sequence)
{
    const struct linear_inputs *in = work->in;
    const attn_tensor *state_in = in->params->state_in;
    const struct linear_readers readers = linear_readers_of(in, work->h);
    const int64_t n = work->dk * work->dv;
    memset(work->s, 0, (size_t)n * sizeof(float));
    for (int64_t d = 0; state_in && d < work->dk; d++)
        load_row(state_in, sequence, work->h, d, work->s + d * work->dv);
    for (int64_t t = linear_first(in, sequence); t < linear_end(in, sequence); t++) {
        if (linear_resets(in, work->b, work->h, t))
            memset(work->s, 0, (size_t)n * sizeof(float));
        write_token(work, t);
        for (int64_t i = 0; i < readers.count; i++)
            read_token(work, readers.first + i, t);
    }
    compare(&work->result->of[LINEAR_STATE], (sequence * in->v->shape[1] + work->h) * n, work->s, n);
}

void linear_naive_compute(const struct linear_inputs *in, struct linear_reference *reference)
{
    const int64_t heads = in->v->shape[1], dk = in->q->shape[3], dv = in->v->shape[3];
    float *memory = malloc((size_t)(dk * dv + 2 * dk + 2 * dv + 1) * sizeof(float));
    if (!memory) {
        fprintf(stderr, "no memory for a naive computation with heads of %d and %d\n", (int)dk, (int)dv);
        exit(1);
    }
    struct naive_head work = {.in = in, .result = reference, .dk = dk, .dv = dv, .s = memory};
    work.q = work.s + dk * dv;
    work.k = work.q + dk;
    work.u = work.k + dk;
    work.sum = work.u + dv;
    work.scale = in->params->scale != 0 ? in->params->scale : dk > 0 ? 1 / sqrtf((float)dk) : 1;
    for (work.backwards = 0; work.backwards < ORDERS; work.backwards++)
        for (int64_t s = 0; s < linear_sequences(in); s++)
            for (work.h = 0; work.h < heads; work.h++) {
                work.b = linear_batch(in, s);
                walk_head(&work, s);
            }
    free(memory);
}
