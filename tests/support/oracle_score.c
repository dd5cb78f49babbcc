/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The score of a key in double, and its size.
 *
 * A size a_j is such that u a_j is what one relative rounding at each place of
 * the computation moves the score by (oracle.c). It is carried through the
 * terms of a score like this:
 *
 *  - A product of two channels: |scale q_c k_c|. So are those with the rows of
 *    disentangled.
 *  - A rotated channel is x cos - y sin. Its size is |x cos| + |y sin|, since
 *    the products are rounded before they may cancel, and a product of two of
 *    them has the product of their sizes, three times: each rotation rounds at a
 *    place of its own, where plain channels are exact.
 *  - softcap * tanh(s / softcap) passes on what moved s, but less of it, by the
 *    derivative; the quotient's rounding is one of s, and the tanh's and the
 *    product's are of the result. The derivative is taken at the end of the
 *    interval of SCORE_ROUNDINGS roundings that is nearest to 0, where it is
 *    largest: a score of 1000 with terms of 10^9 is not flat in truth.
 *  - What is added counts as it is: alibi's product, a bias, a mask.
 *  - A callback gets a rounded score, and gives a rounded one: both sizes. Here
 *    too it works on f32, so the exact result is off by up to half of that. It
 *    must not magnify differences of scores, whose size is passed on as it is.
 *
 * Scores on request are compared as they are, so that what exp() does not
 * notice counts: products at the bottom of f32's range, and numbers beyond its
 * end on the way, which keys that are hidden may have.
 */
#include "oracle_score.h"

#include "dtype.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

double oracle_scale(const attn_params *params, int64_t dk)
{
    if (dk == 0)
        return 0;
    const double scale = params->scale != 0 ? (double)params->scale : 1 / sqrt((double)dk);
    return params->temperature != 0 ? scale / (double)params->temperature : scale;
}

double oracle_head_scale(const attn_params *params, int64_t dk, int64_t h)
{
    return oracle_scale(params, dk) * (params->head_scale ? (double)params->head_scale[h] : 1);
}

static int64_t clip(int64_t x, int64_t lowest, int64_t highest)
{
    return x < lowest ? lowest : x > highest ? highest : x;
}

int64_t oracle_content_row(int64_t span, int64_t distance)
{
    return clip(span - clip(distance, -2 * span, 2 * span), 0, 2 * span - 1);
}

int64_t oracle_position_row(const attn_disentangled *d, int64_t distance)
{
    const int64_t within = clip(distance, -2 * d->span, 2 * d->span);
    return clip(d->span + (d->delta == ATTN_DELTA_KEY_QUERY ? within : -within), 0, 2 * d->span - 1);
}

/** T5's function of a distance into the past, n buckets: the first half exact, the others in a logarithmic scale. */
static int64_t t5_bucket(int64_t distance, int64_t n, int64_t max_distance)
{
    const int64_t exact = n / 2;
    if (distance < exact)
        return distance;
    const double part = log((double)distance / (double)exact) / log((double)max_distance / (double)exact);
    const double bucket = (double)exact + floor(part * (double)(n - exact));
    return bucket < (double)(n - 1) ? (int64_t)bucket : n - 1;
}

int64_t oracle_relative_bucket(const attn_relative_bias *bias, const struct oracle_query *query, int64_t j)
{
    const int64_t distance = oracle_distance(query, j), half = bias->buckets / 2;
    if (bias->kind == ATTN_BUCKETS_CLIPPED)
        return clip(distance, -bias->max_distance, bias->max_distance) + bias->max_distance;
    if (bias->kind == ATTN_BUCKETS_T5)
        return t5_bucket(distance < 0 ? -distance : 0, bias->buckets, bias->max_distance);
    return distance > 0 ? half + t5_bucket(distance, half, bias->max_distance)
                        : t5_bucket(-distance, half, bias->max_distance);
}

float oracle_relative_bias(const attn_params *params, const struct oracle_query *query, int64_t j)
{
    const attn_relative_bias *bias = params->relative_bias;
    return bias ? bias->table[query->h * bias->buckets + oracle_relative_bucket(bias, query, j)] : 0;
}

float oracle_callback(const attn_params *params, const struct oracle_query *query, int64_t j, float score)
{
    const attn_score_tile tile = {.batch = query->sequence,
                                  .head = query->h,
                                  .first_query = query->index,
                                  .num_queries = 1,
                                  .first_key = j,
                                  .num_keys = 1,
                                  .key_stride = 1,
                                  .scores = &score};
    if (params->callback)
        params->callback(&tile, params->callback_user);
    return score;
}

float oracle_callback_slope(attn_score_gradient_callback *partner, void *user, const struct oracle_query *query,
                            int64_t j, float score)
{
    float slope = 1;
    const attn_score_gradient_tile tile = {.batch = query->sequence,
                                           .head = query->h,
                                           .first_query = query->index,
                                           .num_queries = 1,
                                           .first_key = j,
                                           .num_keys = 1,
                                           .key_stride = 1,
                                           .scores = &score,
                                           .gradients = &slope};
    partner(&tile, user);
    return slope;
}

float oracle_weight_callback(const attn_params *params, const struct oracle_query *query, int64_t j, float weight)
{
    const attn_weight_tile tile = {.batch = query->sequence,
                                   .head = query->h,
                                   .first_query = query->index,
                                   .num_queries = 1,
                                   .first_key = j,
                                   .num_keys = 1,
                                   .key_stride = 1,
                                   .weights = &weight};
    if (params->weight_callback)
        params->weight_callback(&tile, params->weight_callback_user);
    return weight;
}

void oracle_pair_channels(attn_rope_layout layout, int64_t pairs, int64_t c, int64_t channels[2])
{
    channels[0] = layout == ATTN_ROPE_INTERLEAVED ? 2 * c : c;
    channels[1] = layout == ATTN_ROPE_INTERLEAVED ? 2 * c + 1 : c + pairs;
}

static void turn_row(const float *x, const float *table, int64_t pairs, attn_rope_layout layout, int64_t d,
                     double *value, double *size)
{
    for (int64_t c = 2 * pairs; c < d; c++) {
        value[c] = (double)x[c];
        size[c] = fabs(value[c]);
    }
    for (int64_t c = 0; c < pairs; c++) {
        const double cosine = (double)table[c], sine = (double)table[pairs + c];
        int64_t at[2];
        oracle_pair_channels(layout, pairs, c, at);
        const double a = (double)x[at[0]], b = (double)x[at[1]];
        value[at[0]] = a * cosine - b * sine;
        value[at[1]] = b * cosine + a * sine;
        size[at[0]] = fabs(a * cosine) + fabs(b * sine);
        size[at[1]] = fabs(b * cosine) + fabs(a * sine);
    }
}

static struct oracle_turned turn(const attn_tensor *t, const attn_tensor *table, attn_rope_layout layout)
{
    const int64_t d = t->shape[3], n = t->shape[0] * t->shape[1] * t->shape[2];
    const struct oracle_turned r = {oracle_allocate(n * d, sizeof(double)), oracle_allocate(n * d, sizeof(double))};
    int64_t at = 0;
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++, at += d)
                turn_row((const float *)t->data + tensor_offset(t, b, h, i, 0),
                         (const float *)table->data + tensor_offset(table, b, h, i, 0), table->shape[3] / 2, layout, d,
                         r.value + at, r.size + at);
    return r;
}

void oracle_turn(struct oracle_inputs *inputs, attn_dtype steps)
{
    const attn_rope_tables *rope = inputs->params->rope;
    inputs->q_naive = inputs->q;
    inputs->k_naive = inputs->k;
    inputs->q_exact = inputs->k_exact = (struct oracle_turned){NULL, NULL};
    if (!rope)
        return;
    inputs->q_exact = turn(&inputs->q, rope->q, rope->layout);
    inputs->k_exact = turn(&inputs->k, rope->k, rope->layout);
    const int64_t *q = inputs->q.shape, *k = inputs->k.shape;
    inputs->q_naive = naive_turned(&inputs->q, rope->q, rope->layout, steps,
                                   oracle_allocate(q[0] * q[1] * q[2] * q[3], sizeof(float)));
    inputs->k_naive = naive_turned(&inputs->k, rope->k, rope->layout, steps,
                                   oracle_allocate(k[0] * k[1] * k[2] * k[3], sizeof(float)));
}

void oracle_turned_free(struct oracle_inputs *inputs)
{
    if (!inputs->params->rope)
        return;
    free(inputs->q_exact.value);
    free(inputs->q_exact.size);
    free(inputs->k_exact.value);
    free(inputs->k_exact.size);
    free(inputs->q_naive.data);
    free(inputs->k_naive.data);
}

/** A number, and the size of what it is made of. */
struct sized {
    double value, size;
};

static void add_products(struct sized *sum, const float *a, const float *b, int64_t n)
{
    double dot = 0, size = 0;
    for (int64_t c = 0; c < n; c++) {
        const double product = (double)a[c] * (double)b[c];
        dot += product;
        size += fabs(product);
    }
    sum->value += dot;
    sum->size += size;
}

static const float *row_of(const attn_tensor *t, int64_t b, int64_t h, int64_t token)
{
    return (const float *)t->data + tensor_offset(t, b, h, token, 0);
}

/** q·k with what rope, and with terms disentangled make of it, before the scale. */
static struct sized content(const struct oracle_inputs *inputs, const struct oracle_query *query, int64_t g, int64_t j,
                            int terms)
{
    struct sized sum = {0, 0};
    const int64_t dk = inputs->q.shape[3], token = query->first_key + j;
    const attn_disentangled *d = terms ? inputs->params->disentangled : NULL;
    if (dk == 0)
        return sum;
    const float *q = row_of(&inputs->q, query->b, query->h, query->token);
    const float *k = row_of(&inputs->k, query->b, g, token);
    if (inputs->q_exact.value) {
        const int64_t turned = inputs->params->rope->q->shape[3];
        const int64_t at_q = ((query->b * inputs->q.shape[1] + query->h) * query->tq + query->token) * dk;
        const int64_t at_k = ((query->b * inputs->k.shape[1] + g) * query->tk + token) * dk;
        for (int64_t c = 0; c < dk; c++) {
            sum.value += inputs->q_exact.value[at_q + c] * inputs->k_exact.value[at_k + c];
            sum.size += inputs->q_exact.size[at_q + c] * inputs->k_exact.size[at_k + c] * (c < turned ? 3 : 1);
        }
    } else {
        add_products(&sum, q, k, dk);
    }
    if (d && d->rel_k)
        add_products(&sum, q, row_of(d->rel_k, 0, query->h, oracle_content_row(d->span, oracle_distance(query, j))),
                     dk);
    if (d && d->rel_q)
        add_products(&sum, k, row_of(d->rel_q, 0, query->h, oracle_position_row(d, oracle_distance(query, j))), dk);
    return sum;
}

static struct sized capped(struct sized s, double softcap)
{
    const double value = softcap * tanh(s.value / softcap);
    if (isinf(s.value) || isnan(s.value))
        return (struct sized){value, fabs(value)};
    const double cosine = cosh(fmax(fabs(s.value) - SCORE_ROUNDINGS * U * s.size, 0) / softcap);
    const double size = (s.size + fabs(s.value)) / cosine / cosine + fabs(value);
    return (struct sized){value, fmin(size, 2 * softcap / U)}; /* from one end of the range to the other, at most */
}

static void add(struct sized *s, double x)
{
    s->value += x;
    s->size += fabs(x);
}

/**
 * Whether f32 may give channel c of a turned row another sign than the exact one has, or make it 0, Inf or NaN where
 * that is not: where the products cancel, or are beyond its range. sizes is the row's place in turned->size, or NULL.
 */
static int is_undecided(const struct oracle_turned *turned, const double *sizes, int64_t c)
{
    if (!sizes || !isfinite(sizes[c]) || sizes[c] == 0)
        return 0;
    const double value = turned->value[sizes - turned->size + c];
    return sizes[c] > (double)FLT_MAX / 4 || fabs(value) <= 4 * U * sizes[c];
}

/**
 * What underflow can do to a score beside relative roundings: scaled queries, products and partial sums below f32's
 * normal numbers, which pairs of bf16 flush to 0. Infinite where f32 runs out of its range at the other end, or where
 * underflow decides what an infinite k is multiplied with.
 */
static double underflow(const struct oracle_inputs *inputs, const struct oracle_query *query, int64_t g, int64_t j,
                        double scale, int flushes)
{
    const int64_t dk = inputs->q.shape[3], token = query->first_key + j;
    const double factor = fmax(fabs(scale), 1);
    double lost = 0x1p-149, largest = 0;
    if (dk == 0)
        return lost;
    const float *q = row_of(&inputs->q, query->b, query->h, query->token), *k = row_of(&inputs->k, query->b, g, token);
    const double *q_turned = NULL, *k_turned = NULL; /* sizes */
    if (inputs->q_exact.size) {
        q_turned = inputs->q_exact.size + ((query->b * inputs->q.shape[1] + query->h) * query->tq + query->token) * dk;
        k_turned = inputs->k_exact.size + ((query->b * inputs->k.shape[1] + g) * query->tk + token) * dk;
    }
    for (int64_t c = 0; c < dk; c++) {
        const double x = q_turned ? q_turned[c] : fabs((double)q[c]), y = k_turned ? k_turned[c] : fabs((double)k[c]);
        lost += (flushes ? (double)FLT_MIN : 0x1p-149) * factor;
        if (isfinite(x) && isfinite(y)) {
            lost += 0x1p-149 * factor * (x + y);
            largest += fmax(x * y, fmax(x, y)) * factor;
        } else if ((x != 0 && x * fmin(fabs(scale), 1) < 0x1p-100) || (y != 0 && y < 0x1p-100) ||
                   is_undecided(&inputs->q_exact, q_turned, c) || is_undecided(&inputs->k_exact, k_turned, c)) {
            return INFINITY;
        }
    }
    return largest < (double)FLT_MAX / 4 ? lost : INFINITY;
}

/** The scores of a row at the stage that is asked for, once those of live keys are known. */
static void stage_row(const struct oracle_inputs *inputs, struct oracle_row *row)
{
    const attn_params *p = inputs->params;
    const struct oracle_query *query = &row->query;
    const int64_t dk = inputs->q.shape[3], g = query->h / (inputs->q.shape[1] / inputs->k.shape[1]);
    const double scale = p->score_stage == ATTN_SCORES_RAW ? 1 : dk ? oracle_head_scale(p, dk, query->h) : 0;
    for (int64_t token = 0; token < query->tk; token++) {
        const int64_t j = token - query->first_key;
        row->stage[token] = -INFINITY;
        row->stage_unit[token] = 0;
        if (query->outside || j < query->start || j >= query->end)
            continue;
        struct sized s;
        if (p->score_stage == ATTN_SCORES_MASKED) {
            if (!row->live[token])
                continue;
            s = (struct sized){row->score[token], row->size[token]};
        } else {
            s = content(inputs, query, g, j, p->score_stage >= ATTN_SCORES_SCALED);
            if (p->score_stage >= ATTN_SCORES_SCALED && dk)
                s = (struct sized){scale * s.value, fabs(scale) * s.size};
            if (p->score_stage >= ATTN_SCORES_CAPPED && p->softcap != 0)
                s = capped(s, (double)p->softcap);
        }
        const double lost = underflow(inputs, query, g, j, scale, inputs->flushes);
        row->stage[token] = s.value;
        row->stage_unit[token] = isinf(lost) ? lost : isfinite(s.value) ? U * (s.size + fabs(s.value)) + lost : 0;
    }
}

void oracle_score_row(const struct oracle_inputs *inputs, struct oracle_row *row)
{
    const attn_params *p = inputs->params;
    const struct oracle_query *query = &row->query;
    const int64_t dk = inputs->q.shape[3], g = query->h / (inputs->q.shape[1] / inputs->k.shape[1]);
    const double scale = oracle_head_scale(p, dk, query->h);
    const double kept = p->dropout ? 1 / (1 - (double)p->dropout->p) : 1;
    for (int64_t token = 0; token <= query->tk; token++)
        row->live[token] = 0;
    for (int64_t j = 0; j < query->num_keys; j++) {
        const int64_t token = query->first_key + j;
        if (!oracle_sees(p, query, j))
            continue;
        struct sized s = content(inputs, query, g, j, 1);
        s = dk ? (struct sized){scale * s.value, fabs(scale) * s.size} : s;
        row->product[token] = s.value;
        row->product_size[token] = s.size;
        if (p->softcap != 0)
            s = capped(s, (double)p->softcap);
        if (p->alibi_slopes)
            add(&s, -(double)p->alibi_slopes[query->h] * fabs((double)oracle_distance(query, j)));
        row->relative[token] = oracle_relative_bias(p, query, j);
        add(&s, (double)row->relative[token]);
        add(&s, (double)oracle_bias(p, query->b, query->h, query->token, token));
        row->called[token] = s.value;
        row->called_size[token] = s.size;
        if (p->callback) {
            const double changed = (double)oracle_callback(p, query, j, (float)s.value);
            s = (struct sized){changed, (isfinite(s.value) ? s.size + fabs(s.value) : 0) + fabs(changed)};
        }
        row->score[token] = s.value;
        row->size[token] = s.size;
        row->live[token] = !(p->callback && s.value == -INFINITY);
        row->kept[token] = oracle_keeps(p, query, j) ? kept : 0;
    }
    if (p->scores)
        stage_row(inputs, row);
    if (p->sinks && p->sinks[query->h] > -INFINITY && !query->outside) {
        row->live[query->tk] = 1;
        row->score[query->tk] = (double)p->sinks[query->h];
        row->size[query->tk] = fabs((double)p->sinks[query->h]);
        row->kept[query->tk] = 0;
    }
}
