/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by its definition, term by term in the order that attn/params.h gives, in
 * double, a row at a time. Numbers that the library is handed as f32 (tables
 * of cosines, slopes) are taken as they are. Which weights dropout keeps is
 * asked of the library: they follow from a generator that its own tests hold
 * against published numbers.
 */
#include "numbers.h"
#include "rows.h"
#include "forms.h"
#include "pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SEED_ROWS 13

/* A row while it is computed. */
struct row {
    const struct bench_problem *p;
    int64_t sequence, head, query; /**< indices as in attn_params */
    double *q, *k, *sum;           /**< d channels, and of values in sum; q and k are rotated */
};

static int64_t batch_of(const struct row *r)
{
    return r->p->params.ragged != NULL ? 0 : r->sequence;
}

static int64_t query_token(const struct row *r)
{
    const attn_ragged *ragged = r->p->params.ragged;
    return r->query + (ragged != NULL ? ragged->cu_seqlens_q[r->sequence] : 0);
}

static int64_t key_token(const struct row *r, int64_t j)
{
    const attn_ragged *ragged = r->p->params.ragged;
    return j + (ragged != NULL ? ragged->cu_seqlens_k[r->sequence] : 0);
}

/* x becomes a token of a tensor, turned by its row of a table where there is one. */
static void load(double *x, const attn_tensor *tensor, const attn_tensor *table, attn_rope_layout layout, int64_t b,
                 int64_t h, int64_t t)
{
    const float *from = bench_row_floats(tensor, b, h, t);
    for (int64_t c = 0; c < tensor->shape[3]; c++)
        x[c] = (double)from[c];
    if (table == NULL)
        return;
    const int64_t pairs = table->shape[3] / 2;
    const float *cosines = bench_row_floats(table, b, h, t), *sines = cosines + pairs;
    for (int64_t n = 0; n < pairs; n++) {
        double *first = layout == ATTN_ROPE_INTERLEAVED ? x + 2 * n : x + n;
        double *second = layout == ATTN_ROPE_INTERLEAVED ? x + 2 * n + 1 : x + n + pairs;
        const double a = *first, b_ = *second;
        *first = a * (double)cosines[n] - b_ * (double)sines[n];
        *second = a * (double)sines[n] + b_ * (double)cosines[n];
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

/* x times a row of a table by distance. */
static double dot_relative(const struct row *r, const double *x, const attn_tensor *table, int64_t distance)
{
    const int64_t span = r->p->params.disentangled->span, at = distance + span;
    const float *y = bench_row_floats(table, 0, r->head, at < 0 ? 0 : at < 2 * span ? at : 2 * span - 1);
    double sum = 0.0;
    for (int64_t c = 0; c < table->shape[3]; c++)
        sum += x[c] * (double)y[c];
    return sum;
}

/* T5's bucket of n tokens to one side: one for each of the first half, then by the logarithm. */
static int64_t t5_side(int64_t n, int64_t buckets, int64_t max_distance)
{
    const int64_t single = buckets / 2;
    if (n < single)
        return n;
    const double share = log2((double)n / (double)single) / log2((double)max_distance / (double)single);
    const int64_t bucket = single + (int64_t)floor(share * (double)(buckets - single));
    return bucket < buckets ? bucket : buckets - 1;
}

/* The bias of a query that stands distance behind its key. */
static double relative_bias(const attn_relative_bias *bias, int64_t head, int64_t distance)
{
    const int64_t half = bias->buckets / 2, max = bias->max_distance;
    int64_t bucket = 0;
    switch (bias->kind) {
    case ATTN_BUCKETS_CLIPPED:
        bucket = (distance > max ? -max : distance < -max ? max : -distance) + max;
        break;
    case ATTN_BUCKETS_T5:
        bucket = t5_side(distance > 0 ? distance : 0, bias->buckets, max);
        break;
    case ATTN_BUCKETS_T5_BIDIRECTIONAL:
        bucket = distance < 0 ? half + t5_side(-distance, half, max) : t5_side(distance, half, max);
        break;
    }
    return (double)bias->table[head * bias->buckets + bucket];
}

/* The score of key j, which the row's query sees. */
static double score(const struct row *r, int64_t j)
{
    const struct bench_problem *p = r->p;
    const attn_params *o = &p->params;
    const int64_t d = p->bcase->d, kv_head = r->head / (p->bcase->heads / p->bcase->kv_heads);
    const int64_t distance = bench_position(p, r->sequence, r->query) - j;
    load(r->k, &p->k, o->rope != NULL ? o->rope->k : NULL, o->rope != NULL ? o->rope->layout : ATTN_ROPE_HALF_SPLIT,
         batch_of(r), kv_head, key_token(r, j));
    double s = dot(r->q, r->k, d);
    if (o->disentangled != NULL)
        s += dot_relative(r, r->q, o->disentangled->rel_k, distance) +
             dot_relative(r, r->k, o->disentangled->rel_q, distance);
    s *= o->scale != 0.0f ? (double)o->scale : 1.0 / sqrt((double)d);
    if (o->softcap != 0.0f)
        s = (double)o->softcap * tanh(s / (double)o->softcap);
    if (o->alibi_slopes != NULL)
        s -= (double)o->alibi_slopes[r->head] * fabs((double)distance);
    if (o->relative_bias != NULL)
        s += relative_bias(o->relative_bias, r->head, distance);
    return o->callback != NULL ? s + bench_callback_term(r->query - j) : s;
}

/* What the weight of key j is multiplied by. */
static double dropout_factor(const struct row *r, int64_t j)
{
    const attn_dropout *dropout = r->p->params.dropout;
    if (dropout == NULL)
        return 1.0;
    return attn_dropout_keeps(dropout, r->sequence, r->head, r->query, j) ? 1.0 / (1.0 - (double)dropout->p) : 0.0;
}

/* out becomes the row; weights are those of an online softmax, as there may be any number of keys. */
static void compute(const struct row *r, float *out)
{
    const struct bench_problem *p = r->p;
    const attn_params *o = &p->params;
    const int64_t dv = bench_case_dv(p->bcase), kv_head = r->head / (p->bcase->heads / p->bcase->kv_heads);
    double top = o->sinks != NULL ? (double)o->sinks[r->head] : -INFINITY, total = o->sinks != NULL ? 1.0 : 0.0;
    for (int64_t c = 0; c < dv; c++)
        r->sum[c] = 0.0;
    load(r->q, &p->q, o->rope != NULL ? o->rope->q : NULL, o->rope != NULL ? o->rope->layout : ATTN_ROPE_HALF_SPLIT,
         batch_of(r), r->head, query_token(r));
    for (int64_t j = 0; j < bench_num_keys(p, r->sequence); j++) {
        if (!bench_pair_live(p, r->sequence, r->head, r->query, j))
            continue;
        const double s = score(r, j);
        if (s > top) {
            const double shrink = exp(top - s);
            total *= shrink;
            for (int64_t c = 0; c < dv; c++)
                r->sum[c] *= shrink;
            top = s;
        }
        const double weight = exp(s - top), kept = weight * dropout_factor(r, j);
        const float *v = bench_row_floats(&p->v, batch_of(r), kv_head, key_token(r, j));
        total += weight;
        for (int64_t c = 0; c < dv; c++)
            r->sum[c] += kept * (double)v[c];
    }
    for (int64_t c = 0; c < dv; c++)
        out[c] = total > 0.0 ? (float)(r->sum[c] / total) : 0.0f;
}

struct bench_row bench_row_choose(const struct bench_problem *p, bool keys, int64_t n, uint64_t *state)
{
    const int64_t sequences = bench_num_sequences(p), heads = keys ? p->bcase->kv_heads : p->bcase->heads;
    const bool first = n == 0, last = n == BENCH_SAMPLED_ROWS - 1;
    const uint64_t any = bench_random(state);
    const int64_t sequence = first ? 0 : last ? sequences - 1 : (int64_t)(any % (uint64_t)sequences);
    const int64_t tokens = keys ? bench_num_keys(p, sequence) : bench_num_queries(p, sequence);
    const double share = (double)(bench_random(state) >> 11) * 0x1p-53;
    const int64_t inside = (int64_t)(((double)n + share) / BENCH_SAMPLED_ROWS * (double)tokens);
    return (struct bench_row){.sequence = sequence,
                              .head = last ? heads - 1 : n % heads,
                              .token = first                      ? 0
                                       : last || inside >= tokens ? tokens - 1
                                                                  : inside};
}

int bench_rows_create(struct bench_problem *p)
{
    const int64_t d = p->bcase->d, dv = bench_case_dv(p->bcase);
    double *scratch = malloc((size_t)(2 * d + dv) * sizeof *scratch);
    p->rows = malloc(BENCH_SAMPLED_ROWS * sizeof *p->rows);
    p->expected = attn_bhtd(bench_alloc_floats(BENCH_SAMPLED_ROWS * dv), 1, 1, BENCH_SAMPLED_ROWS, dv);
    if (scratch == NULL || p->rows == NULL || p->expected.data == NULL) {
        fprintf(stderr, "attn-bench: there is not enough memory for the rows that case %s is checked by\n",
                p->bcase->id);
        free(scratch);
        return -1;
    }
    struct row r = {.p = p, .q = scratch, .k = scratch + d, .sum = scratch + 2 * d};
    uint64_t state = SEED_ROWS;
    for (int64_t n = 0; n < BENCH_SAMPLED_ROWS; n++) {
        const struct bench_row chosen = bench_row_choose(p, false, n, &state);
        r.sequence = chosen.sequence, r.head = chosen.head, r.query = chosen.token;
        compute(&r, (float *)p->expected.data + n * dv);
        const int64_t *stride = p->out.stride;
        p->rows[n] = (batch_of(&r) * stride[0] + r.head * stride[1] + query_token(&r) * stride[2]) / dv;
    }
    free(scratch);
    return 0;
}
