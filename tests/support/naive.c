/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as one would write it down in f32: a row of scores, its maximum,
 * expf, the sum, the division, and the product with V, all in plain loops.
 *
 * It is the yardstick of accuracy: whoever uses the library instead of this
 * must not lose more than a factor of two (flash-attention's criterion). It
 * shares no arithmetic with the library: natural exponent, the scale applied
 * to the finished dot product, q and k rotated beforehand, no blocks, no fused
 * multiply-add.
 *
 * One order is an exception: it multiplies q by scale * log2(e) first, adds up
 * the weights in lanes, and divides by their sum last, as the library does. Where
 * channels are alike, each step of their sum rounds to the same side, by as much
 * as their product happens to be off. Without the scale it may be off by nothing,
 * and the sum be exact, however long. So it is with equal values of equal weights,
 * which are 1 before the division. And where values are equal and most weights
 * small, a chain of additions loses as much of the weights' sum as the same chain
 * loses of out, so that their quotient is right, however far off both are. Lanes
 * lose less, as each is a shorter sum.
 *
 * In bf16 or f16 a framework stores the rotated q and k, the scores, the masked
 * scores and the weights in that type between its steps, each of which works
 * in f32.
 */
#include "oracle_score.h"

#include "dtype.h"

#include <math.h>

#define LOG2E 1.4426950408889634

/** Partial sums of weights where they are added up as in a vector. */
#define LANES 16

attn_tensor naive_turned(const attn_tensor *t, const attn_tensor *table, attn_rope_layout layout, attn_dtype steps,
                         float *data)
{
    const attn_tensor r = attn_bhtd(data, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    const int64_t pairs = table->shape[3] / 2;
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t c = 0; c < t->shape[3]; c++) {
                    float x = tensor_get(t, b, h, i, c);
                    if (c < 2 * pairs) {
                        const int64_t pair = layout == ATTN_ROPE_INTERLEAVED ? c / 2 : c % pairs;
                        const int second = layout == ATTN_ROPE_INTERLEAVED ? c % 2 == 1 : c >= pairs;
                        const int64_t step = layout == ATTN_ROPE_INTERLEAVED ? 1 : pairs;
                        const float other = tensor_get(t, b, h, i, second ? c - step : c + step);
                        const float cosine = tensor_get(table, b, h, i, pair);
                        const float sine = tensor_get(table, b, h, i, pairs + pair);
                        x = second ? x * cosine + other * sine : x * cosine - other * sine;
                    }
                    tensor_set(&r, b, h, i, c, dtype_round(steps, x));
                }
    return r;
}

/** The sum of factor a_c b_c, where a factor of 1 changes nothing. */
static float dot(const float *a, const float *b, int64_t n, int backwards, float factor)
{
    float sum = 0;
    for (int64_t c = 0; c < n; c++) {
        const int64_t at = backwards ? n - 1 - c : c;
        sum += factor * a[at] * b[at];
    }
    return sum;
}

/** q·k, or with terms the three products of disentangled attention; the first operand of each times factor. */
static float products(const struct oracle_inputs *inputs, const struct oracle_query *query, int64_t token,
                      int backwards, int terms, float factor)
{
    const int64_t dk = inputs->q.shape[3], g = query->h / (inputs->q.shape[1] / inputs->k.shape[1]);
    const attn_tensor *q = &inputs->q_naive, *k = &inputs->k_naive;
    const float *queries = (const float *)q->data + tensor_offset(q, query->b, query->h, query->token, 0);
    const float *keys = (const float *)k->data + tensor_offset(k, query->b, g, token, 0);
    float sum = dot(queries, keys, dk, backwards, factor);
    const attn_disentangled *d = terms ? inputs->params->disentangled : NULL;
    if (!d)
        return sum;
    const int64_t distance = oracle_distance(query, token - query->first_key);
    if (d->rel_k)
        sum += dot(queries,
                   (const float *)d->rel_k->data +
                       tensor_offset(d->rel_k, 0, query->h, oracle_content_row(d->span, distance), 0),
                   dk, backwards, factor);
    if (d->rel_q)
        sum += dot(keys,
                   (const float *)d->rel_q->data +
                       tensor_offset(d->rel_q, 0, query->h, oracle_position_row(d, distance), 0),
                   dk, backwards, factor);
    return sum;
}

/** The score of a key, of a live one beyond ATTN_SCORES_CAPPED. */
static float score(const struct oracle_inputs *inputs, const struct oracle_row *row, attn_dtype steps, int64_t token,
                   double scale, int order, attn_score_stage stage)
{
    const attn_params *p = inputs->params;
    const struct oracle_query *query = &row->query;
    const int64_t dk = inputs->q.shape[3], j = token - query->first_key;
    const int backwards = order & NAIVE_CHANNELS_BACKWARDS, scaled_first = order & NAIVE_LIKE_LIBRARY;
    if (stage == ATTN_SCORES_RAW)
        return dtype_round(steps, dk ? products(inputs, query, token, backwards, 0, 1) : 0);
    const float before = scaled_first ? (float)(scale * LOG2E) : 1,
                after = scaled_first ? (float)(1 / LOG2E) : (float)scale;
    float s = dtype_round(steps, dk ? after * products(inputs, query, token, backwards, 1, before) : 0);
    if (stage == ATTN_SCORES_SCALED)
        return s;
    if (p->softcap != 0)
        s = dtype_round(steps, p->softcap * tanhf(s / p->softcap));
    if (stage == ATTN_SCORES_CAPPED)
        return s;
    if (p->alibi_slopes)
        s += -p->alibi_slopes[query->h] * fabsf((float)oracle_distance(query, j));
    s += row->relative[token];
    s = dtype_round(steps, s + oracle_bias(p, query->b, query->h, query->token, token));
    return p->callback ? dtype_round(steps, oracle_callback(p, query, j, s)) : s;
}

void naive_scores(const struct oracle_inputs *inputs, const struct oracle_row *row, attn_dtype steps, int order,
                  float *scores)
{
    const attn_params *p = inputs->params;
    const double scale = oracle_head_scale(p, inputs->q.shape[3], row->query.h);
    for (int64_t j = 0; j < row->query.tk; j++)
        scores[j] = row->stage[j] == -INFINITY ? -INFINITY : score(inputs, row, steps, j, scale, order, p->score_stage);
}

void naive_products(const struct oracle_inputs *inputs, const struct oracle_row *row, int order, float *products)
{
    const double scale = oracle_head_scale(inputs->params, inputs->q.shape[3], row->query.h);
    for (int64_t j = 0; j < row->query.tk; j++)
        products[j] = row->live[j] ? score(inputs, row, ATTN_F32, j, scale, order, ATTN_SCORES_SCALED) : 0;
}

void naive_live_scores(const struct oracle_inputs *inputs, const struct oracle_row *row, attn_dtype steps, int order,
                       float *scores)
{
    const double scale = oracle_head_scale(inputs->params, inputs->q.shape[3], row->query.h);
    for (int64_t j = 0; j < row->query.tk; j++)
        scores[j] = row->live[j] ? score(inputs, row, steps, j, scale, order, ATTN_SCORES_MASKED) : -INFINITY;
}

/** The key that is number m in an order that begins at key first. */
static int64_t key_at(int64_t m, int order, int64_t first, int64_t tk)
{
    const int64_t at = (first + m) % tk;
    return order & NAIVE_KEYS_BACKWARDS ? tk - 1 - at : at;
}

void naive_row(const struct oracle_inputs *inputs, const struct oracle_row *row, const float *scores, attn_dtype steps,
               int order, int64_t first, float *out, float *lse, float *weights)
{
    const attn_params *p = inputs->params;
    const struct oracle_query *query = &row->query;
    const attn_tensor *v = &inputs->v;
    const int64_t tk = query->tk, dv = v->shape[3], g = query->h / (inputs->q.shape[1] / inputs->k.shape[1]);
    const float sink = p->sinks ? p->sinks[query->h] : -INFINITY;
    float max = sink, sum = 0, lanes[LANES] = {0};
    for (int64_t j = 0; j < tk; j++)
        max = scores[j] > max ? scores[j] : max;
    const float base = max == -INFINITY ? 0 : max;
    for (int64_t m = 0; m < tk; m++) {
        const int64_t j = key_at(m, order, first, tk);
        weights[j] = expf(scores[j] - base);
        lanes[order & NAIVE_LIKE_LIBRARY ? m % LANES : 0] += weights[j];
    }
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    sum += p->sinks ? expf(sink - base) : 0;
    *lse = base + logf(sum);
    /* What is rounded or handed over is a finished weight. */
    const int divided_last = order & NAIVE_LIKE_LIBRARY && steps == ATTN_F32 && !p->weight_callback && sum > 0;
    for (int64_t c = 0; c < dv; c++)
        out[c] = 0;
    for (int64_t m = 0; m < tk; m++) {
        const int64_t j = key_at(m, order, first, tk);
        const float before = weights[j];
        weights[j] = dtype_round(steps, sum == 0 ? 0 : weights[j] / sum);
        if (!row->live[j])
            continue;
        const float keep = !p->dropout ? 1 : row->kept[j] > 0 ? 1 / (1 - p->dropout->p) : 0;
        if (p->dropout)
            weights[j] = dtype_round(steps, weights[j] * keep);
        if (p->weight_callback)
            weights[j] = dtype_round(steps, oracle_weight_callback(p, query, j - query->first_key, weights[j]));
        const float *value = (const float *)v->data + (dv ? tensor_offset(v, query->b, g, j, 0) : 0);
        const float weight = divided_last ? before * keep : weights[j];
        for (int64_t c = 0; c < dv; c++)
            out[c] += weight * value[c];
    }
    for (int64_t c = 0; divided_last && c < dv; c++)
        out[c] /= sum;
}
