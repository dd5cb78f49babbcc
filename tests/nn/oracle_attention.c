/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on rows of projected heads. The options that the layers' tests use
 * are here: scale, temperature, head_scale, softcap, sinks, rope, ALiBi,
 * terms and biases by distance, additive masks, whatever hides keys, dropout, ragged batches. The units of
 * tests/support's oracle need q, k and v in f32, which projections in double
 * are not; its answers about visibility are used as they are.
 */
#include "real.h"

#include "dtype.h"
#include "oracle_score.h"

static void mix_row(const struct oracle_heads *s, int64_t b, int64_t h, int64_t i, const double *scores,
                    const double *v, const attn_params *params, double *out, double *weights, double *lse)
{
    const struct oracle_query query = oracle_query_at(params, s->tq, s->tk, b, h, i);
    const int64_t g = h / (s->heads / s->kv_heads);
    real top = params->sinks ? (real)params->sinks[h] : -(real)INFINITY, sum = 0;
    for (int64_t j = 0; j < s->tk; j++) {
        weights[j] = -INFINITY;
        if (!oracle_key_is_live(params, s->tq, s->tk, b, h, i, j))
            continue;
        real score = (real)scores[j];
        if (params->alibi_slopes)
            score -= (real)params->alibi_slopes[h] * (real)llabs(oracle_distance(&query, j - query.first_key));
        score += (real)oracle_relative_bias(params, &query, j - query.first_key);
        weights[j] = score + (real)oracle_bias(params, b, h, i, j);
        top = (real)weights[j] > top || isnan(weights[j]) ? (real)weights[j] : top;
    }
    const real base = top == -(real)INFINITY ? 0 : top;
    for (int64_t m = 0; m < s->tk; m++) {
        const int64_t j = oracle_backwards ? s->tk - 1 - m : m;
        weights[j] = weights[j] == -INFINITY ? 0 : exp((real)weights[j] - base);
        sum += (real)weights[j];
    }
    if (params->sinks)
        sum += exp((real)params->sinks[h] - base);
    if (lse)
        *lse = base + log(sum);
    for (int64_t c = 0; c < s->dv; c++)
        out[c] = 0;
    for (int64_t m = 0; m < s->tk; m++) {
        const int64_t j = oracle_backwards ? s->tk - 1 - m : m;
        if (!oracle_key_is_live(params, s->tq, s->tk, b, h, i, j))
            continue; /* its weight is 0 already, also in a row that is NaN */
        weights[j] = sum == 0 ? 0 : (real)weights[j] / sum;
        if (params->dropout)
            weights[j] = oracle_keeps(params, &query, j - query.first_key)
                             ? (real)weights[j] / (1 - (real)params->dropout->p)
                             : 0;
        const double *value = v + ((b * s->tk + j) * s->kv_heads + g) * s->dv;
        for (int64_t c = 0; c < s->dv; c++)
            out[c] = (real)out[c] + (real)KEPT(weights[j]) * (real)value[c];
    }
    for (int64_t c = 0; c < s->dv; c++)
        out[c] = KEPT(out[c]);
}

void ORACLE(oracle_mix)(const struct oracle_heads *s, const double *scores, const double *v, const attn_params *params,
                        double *out, double *weights, double *lse)
{
    double *row_weights = new_array(s->tk);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->tq; i++) {
                const int64_t r = (b * s->heads + h) * s->tq + i;
                mix_row(s, b, h, i, scores + r * s->tk, v, params, out + ((b * s->tq + i) * s->heads + h) * s->dv,
                        row_weights, lse ? lse + r : NULL);
                if (weights)
                    memcpy(weights + r * s->tk, row_weights, (size_t)s->tk * sizeof *weights);
            }
    free(row_weights);
}

/** Head h of token t, turned by the row of the table that belongs to it. */
static void turn(const attn_tensor *table, attn_rope_layout layout, int64_t b, int64_t h, int64_t t, int64_t d,
                 const double *x, double *y)
{
    const int64_t pairs = table ? table->shape[3] / 2 : 0;
    memcpy(y, x, (size_t)d * sizeof *y);
    for (int64_t c = 0; c < pairs; c++) {
        const int64_t first = layout == ATTN_ROPE_INTERLEAVED ? 2 * c : c;
        const int64_t second = layout == ATTN_ROPE_INTERLEAVED ? 2 * c + 1 : c + pairs;
        const real cosine = (real)tensor_get(table, b, h, t, c), sine = (real)tensor_get(table, b, h, t, pairs + c);
        y[first] = KEPT((real)x[first] * cosine - (real)x[second] * sine);
        y[second] = KEPT((real)x[second] * cosine + (real)x[first] * sine);
    }
}

/** The product of a row with that of a table by distance. */
static real relative_product(const attn_tensor *table, int64_t h, int64_t row, int64_t d, const double *x)
{
    real sum = 0;
    for (int64_t c = 0; c < d; c++)
        sum += (real)x[c] * (real)tensor_get(table, 0, h, row, c);
    return sum;
}

/** The terms by distance of query i and key j. */
static real relative_terms(const struct oracle_heads *s, const attn_params *p, int64_t b, int64_t h, int64_t i,
                           int64_t j, const double *query, const double *key)
{
    const attn_disentangled *terms = p->disentangled;
    const struct oracle_query at = oracle_query_at(p, s->tq, s->tk, b, h, i);
    const int64_t distance = oracle_distance(&at, j - at.first_key);
    real sum = 0;
    if (terms && terms->rel_k)
        sum += relative_product(terms->rel_k, h, oracle_content_row(terms->span, distance), s->dk, query);
    if (terms && terms->rel_q)
        sum += relative_product(terms->rel_q, h, oracle_position_row(terms, distance), s->dk, key);
    return sum;
}

void ORACLE(oracle_attention)(const struct oracle_heads *s, const double *q, const double *k, const double *v,
                              const attn_params *params, double *out, double *weights)
{
    const attn_params none = attn_params_default();
    const attn_params *p = params ? params : &none;
    const attn_rope_tables *rope = p->rope;
    double *scores = new_array(s->batch * s->heads * s->tq * s->tk);
    double *query = new_array(s->dk), *key = new_array(s->dk);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->tq; i++) {
                const int64_t g = h / (s->heads / s->kv_heads);
                const real scale = (real)oracle_head_scale(p, s->dk, h);
                turn(rope ? rope->q : NULL, rope ? rope->layout : 0, b, h, i, s->dk,
                     q + ((b * s->tq + i) * s->heads + h) * s->dk, query);
                for (int64_t j = 0; j < s->tk; j++) {
                    turn(rope ? rope->k : NULL, rope ? rope->layout : 0, b, g, j, s->dk,
                         k + ((b * s->tk + j) * s->kv_heads + g) * s->dk, key);
                    real score = scale * ((real)ORACLE(oracle_dot)(s->dk, query, key) +
                                          relative_terms(s, p, b, h, i, j, query, key));
                    if (p->softcap != 0)
                        score = (real)p->softcap * tanh(score / (real)p->softcap);
                    scores[((b * s->heads + h) * s->tq + i) * s->tk + j] = score;
                }
            }
    ORACLE(oracle_mix)(s, scores, v, p, out, weights, NULL);
    free(scores);
    free(query);
    free(key);
}
