/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass as one would write it down in f32, query by query in plain
 * loops: P = expf(s - lse), dP = dO·v, D = dO·O, dS = P (dP - D + dL), and three
 * outer products. Its weights come from the log-sum-exp that it is given, as
 * those of the library do.
 *
 * It is done in the orders of naive.c: channels and keys both ways, queries as
 * keys, and once with q scaled first; the largest error counts. Nothing is
 * rounded to narrower types, as what that does is not counted (the slack of
 * oracle_backward.c), so one yardstick serves all of them.
 */
#include "naive_backward.h"

#include "dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** What an order needs, and its gradients. */
struct naive_pass {
    const struct backward_inputs *in;
    const struct oracle_inputs *inputs;
    const attn_tensor *d_out;
    int order;
    float *of[GRADIENTS];
    float *scores, *products, *out_row;
};

static const float *row_of(const attn_tensor *t, int64_t b, int64_t h, int64_t i)
{
    return (const float *)t->data + (t->shape[3] ? tensor_offset(t, b, h, i, 0) : 0);
}

static float dot(const float *a, const float *b, int64_t n, int backwards)
{
    float sum = 0;
    for (int64_t m = 0; m < n; m++) {
        const int64_t c = backwards ? n - 1 - m : m;
        sum += a[c] * b[c];
    }
    return sum;
}

static void add(float *sum, float factor, const float *row, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        sum[c] += factor * row[c];
}

/** D - dL of a row. */
static float row_term(const struct naive_pass *pass, const struct oracle_query *query, const float *d_out, int any)
{
    const int64_t dv = pass->d_out->shape[3];
    const struct backward_inputs *in = pass->in;
    for (int64_t c = 0; c < dv && any; c++)
        pass->out_row[c] = tensor_get(in->out, query->b, query->h, query->token, c);
    const float d = any ? dot(d_out, pass->out_row, dv, pass->order & NAIVE_CHANNELS_BACKWARDS) : 0;
    return in->d_lse ? d - tensor_get(in->d_lse, query->b, query->h, query->token, 0) : d;
}

static void options_of_pair(struct naive_pass *pass, const struct oracle_query *query, int64_t token, float ds)
{
    const attn_params *p = pass->in->params;
    const int64_t j = token - query->first_key;
    if (p->mask && p->mask->dtype != ATTN_BOOL) {
        const int64_t *n = p->mask->shape;
        const int64_t b = n[0] > 1 ? query->b : 0, h = n[1] > 1 ? query->h : 0, i = n[2] > 1 ? query->token : 0;
        pass->of[GRADIENT_MASK][((b * n[1] + h) * n[2] + i) * n[3] + (n[3] > 1 ? token : 0)] += ds;
    }
    if (p->alibi_slopes)
        pass->of[GRADIENT_ALIBI_SLOPES][query->h] += -fabsf((float)oracle_distance(query, j)) * ds;
    if (p->relative_bias)
        pass->of[GRADIENT_RELATIVE_BIAS]
                [query->h * p->relative_bias->buckets + oracle_relative_bucket(p->relative_bias, query, j)] += ds;
}

/** A term by distance: a row of the table t, which row is multiplied by. Returns their product. */
static float relative_of_pair(struct naive_pass *pass, const attn_tensor *t, enum gradient_of of_table, int64_t h,
                              int64_t i, const float *row, float *d_row, float row_factor, float table_factor)
{
    const int64_t n = t->shape[3];
    const float *table_row = row_of(t, 0, h, i);
    add(d_row, row_factor, table_row, n);
    add(pass->of[of_table] + ((t->shape[1] > 1 ? h : 0) * t->shape[2] + i) * n, table_factor, row, n);
    return dot(row, table_row, n, pass->order & NAIVE_CHANNELS_BACKWARDS);
}

/** One query's part of everything; row has its live keys. */
static void add_query(struct naive_pass *pass, const struct oracle_row *row)
{
    const attn_params *p = pass->in->params;
    const struct oracle_query *query = &row->query;
    const attn_tensor *q = &pass->inputs->q_naive, *k = &pass->inputs->k_naive, *v = &pass->inputs->v;
    const int64_t dk = q->shape[3], dv = v->shape[3], g = query->h / (q->shape[1] / k->shape[1]), tk = query->tk;
    const int64_t at = (query->b * q->shape[1] + query->h) * query->tq + query->token;
    const float scale = (float)oracle_head_scale(p, dk, query->h);
    const float lse = tensor_get(pass->in->lse, query->b, query->h, query->token, 0);
    const float *d_out = row_of(pass->d_out, query->b, query->h, query->token);
    const float *query_row = row_of(q, query->b, query->h, query->token);
    const float after = pass->order & NAIVE_LIKE_LIBRARY ? 1 : scale, before = after == scale ? 1 : scale;
    int any = 0;
    for (int64_t j = 0; j < tk; j++)
        any |= row->live[j];
    const float d = row_term(pass, query, d_out, any);
    if (row->live[tk])
        pass->of[GRADIENT_SINKS][query->h] += expf((float)row->score[tk] - lse) * -d;
    if (!any)
        return;
    naive_live_scores(pass->inputs, row, ATTN_F32, pass->order, pass->scores);
    naive_products(pass->inputs, row, pass->order, pass->products);
    for (int64_t m = 0; m < tk; m++) {
        const int64_t j = pass->order & NAIVE_KEYS_BACKWARDS ? tk - 1 - m : m;
        if (!row->live[j])
            continue;
        const int64_t key = (query->b * k->shape[1] + g) * tk + j;
        const float keep = !p->dropout ? 1 : row->kept[j] > 0 ? 1 / (1 - p->dropout->p) : 0;
        const float weight = expf(pass->scores[j] - lse);
        const float dp = keep * dot(d_out, row_of(v, query->b, g, j), dv, pass->order & NAIVE_CHANNELS_BACKWARDS);
        float ds = weight * (dp - d);
        add(pass->of[GRADIENT_V] + key * dv, weight * keep, d_out, dv);
        if (p->callback)
            ds *= oracle_callback_slope(pass->in->callback, pass->in->callback_user, query, j - query->first_key,
                                        (float)row->called[j]);
        options_of_pair(pass, query, j, ds);
        if (dk == 0)
            continue;
        if (p->softcap != 0) {
            const float t = tanhf(pass->products[j] / p->softcap);
            ds *= 1 - t * t;
        }
        const float *key_row = row_of(k, query->b, g, j);
        add(pass->of[GRADIENT_Q] + at * dk, before * ds, key_row, dk);
        add(pass->of[GRADIENT_K] + key * dk, scale * ds, query_row, dk);
        float product = dot(query_row, key_row, dk, pass->order & NAIVE_CHANNELS_BACKWARDS);
        const attn_disentangled *terms = p->disentangled;
        const int64_t distance = oracle_distance(query, j - query->first_key);
        if (terms && terms->rel_k)
            product += relative_of_pair(pass, terms->rel_k, GRADIENT_REL_K, query->h,
                                        oracle_content_row(terms->span, distance), query_row,
                                        pass->of[GRADIENT_Q] + at * dk, before * ds, scale * ds);
        if (terms && terms->rel_q)
            product +=
                relative_of_pair(pass, terms->rel_q, GRADIENT_REL_Q, query->h, oracle_position_row(terms, distance),
                                 key_row, pass->of[GRADIENT_K] + key * dk, scale * ds, scale * ds);
        if (p->head_scale)
            pass->of[GRADIENT_HEAD_SCALE][query->h] += (float)oracle_scale(p, dk) * ds * product;
    }
    for (int64_t c = 0; c < dk; c++)
        pass->of[GRADIENT_Q][at * dk + c] *= after;
}

/** Whether nothing was added to a row: then its rotation may be anything. */
static int is_zero(const float *row, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        if (row[c] != 0)
            return 0;
    return 1;
}

/** The transpose of a rotation. */
static void turn_back(float *row, const attn_tensor *t, const attn_tensor *table, attn_rope_layout layout)
{
    const int64_t d = t->shape[3], pairs = table->shape[3] / 2;
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++, row += d)
                for (int64_t c = 0; c < pairs && !is_zero(row, d); c++) {
                    int64_t pair[2];
                    oracle_pair_channels(layout, pairs, c, pair);
                    const float x = row[pair[0]], y = row[pair[1]];
                    const float cosine = tensor_get(table, b, h, i, c), sine = tensor_get(table, b, h, i, pairs + c);
                    row[pair[0]] = x * cosine + y * sine;
                    row[pair[1]] = y * cosine - x * sine;
                }
}

/** out and lse as they are given, or the exact ones rounded to f32, in memory that is to be freed. */
static void find_outputs(struct backward_inputs *in, attn_tensor tensors[2])
{
    struct reference exact = {0};
    if (!in->out || !in->lse)
        exact = reference_compute_alone(in->q, in->k, in->v, in->params);
    const int64_t *n = in->q->shape, dv = in->v->shape[3], rows = n[0] * n[1] * n[2];
    tensors[0].data = tensors[1].data = NULL;
    if (!in->out) {
        float *data = oracle_allocate(rows * dv, sizeof(float));
        for (int64_t at = 0; at < rows * dv; at++)
            data[at] = (float)exact.out[at];
        tensors[0] = attn_bhtd(data, n[0], n[1], n[2], dv);
        in->out = &tensors[0];
    }
    if (!in->lse) {
        float *data = oracle_allocate(rows, sizeof(float));
        for (int64_t at = 0; at < rows; at++)
            data[at] = (float)exact.lse[at];
        tensors[1] = attn_bhtd(data, n[0], n[1], n[2], 1);
        in->lse = &tensors[1];
    }
    if (tensors[0].data || tensors[1].data)
        reference_free(&exact);
}

/** All queries in one order. */
static void run(struct naive_pass *pass, struct oracle_row *row)
{
    const attn_params *p = pass->in->params;
    const int64_t heads = pass->in->q->shape[1], tq = pass->in->q->shape[2], tk = pass->in->k->shape[2];
    const int64_t rows = pass->in->q->shape[0] * heads * tq;
    for (int64_t n = 0; n < rows; n++) {
        const int64_t at = pass->order & NAIVE_KEYS_BACKWARDS ? rows - 1 - n : n;
        row->query = oracle_query_at(p, tq, tk, at / tq / heads, at / tq % heads, at % tq);
        oracle_score_row(pass->inputs, row);
        add_query(pass, row);
    }
    if (p->rope) {
        turn_back(pass->of[GRADIENT_Q], pass->in->q, p->rope->q, p->rope->layout);
        turn_back(pass->of[GRADIENT_K], pass->in->k, p->rope->k, p->rope->layout);
    }
}

void naive_backward(const struct backward_inputs *in, const struct oracle_inputs *inputs, const attn_tensor *d_out,
                    struct oracle_row *row, struct backward_reference *result)
{
    struct backward_inputs with_outputs = *in;
    attn_tensor outputs[2];
    find_outputs(&with_outputs, outputs);
    struct naive_pass pass = {.in = &with_outputs, .inputs = inputs, .d_out = d_out};
    const int64_t tk = in->k->shape[2];
    pass.scores = oracle_allocate(tk, sizeof(float));
    pass.products = oracle_allocate(tk, sizeof(float));
    pass.out_row = oracle_allocate(in->v->shape[3], sizeof(float));
    for (int of = 0; of < GRADIENTS; of++)
        pass.of[of] = oracle_allocate(result->of[of].count, sizeof(float));
    for (pass.order = 0; pass.order < NAIVE_ORDERS; pass.order++) {
        for (int of = 0; of < GRADIENTS; of++)
            memset(pass.of[of], 0, (size_t)result->of[of].count * sizeof(float));
        run(&pass, row);
        for (int of = 0; of < GRADIENTS; of++) {
            const struct gradient *g = &result->of[of];
            for (int64_t at = 0; at < g->count; at++) {
                const double error = fabs((double)pass.of[of][at] - g->value[at]);
                if (isfinite(error) && error > g->naive_error[at])
                    g->naive_error[at] = error;
            }
        }
    }
    for (int of = 0; of < GRADIENTS; of++)
        free(pass.of[of]);
    free(pass.scores);
    free(pass.products);
    free(pass.out_row);
    free(outputs[0].data);
    free(outputs[1].data);
}
