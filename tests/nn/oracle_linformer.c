/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linformer: sums over tokens, and attention to them. What oracle_mix() knows of
 * options comes with it; keys of a sequence are all its projected ones, or none.
 */
#include "real.h"

#include "dtype.h"
#include "oracle_score.h"

/** A projected number, as the library keeps it. */
static double rounded(attn_dtype type, real x)
{
#ifdef ORACLE_SINGLE
    return (double)dtype_round(type, x);
#else
    (void)type;
    return x;
#endif
}

/** to[b][i][h][c] = sum_t by[h][i][t] * x[b][h][t][c]. */
static void project(const struct oracle_linformer *l, const struct oracle_projection *by, int64_t channels,
                    const double *x, const int64_t *kv_len, double *to)
{
    const struct oracle_heads *s = &l->sizes;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->tk; i++)
            for (int64_t h = 0; h < s->kv_heads; h++)
                for (int64_t c = 0; c < channels; c++) {
                    const double *weights = by->matrix + ((by->heads > 1 ? h : 0) * s->tk + i) * by->columns;
                    const int64_t n = kv_len ? kv_len[b] : l->tokens;
                    real sum = 0;
                    for (int64_t m = 0; m < n; m++) {
                        const int64_t t = oracle_backwards ? n - 1 - m : m;
                        sum += (real)weights[t] * (real)x[((b * s->kv_heads + h) * l->tokens + t) * channels + c];
                    }
                    *to++ = rounded(by->kept_in, sum);
                }
}

void ORACLE(oracle_linformer)(const struct oracle_linformer *l, const double *q, const double *k, const double *v,
                              const attn_params *params, double *keys, double *out, double *weights, double *lse)
{
    const struct oracle_heads *s = &l->sizes;
    const int64_t r = s->tk, group = s->heads / s->kv_heads;
    double *values = new_array(s->batch * r * s->kv_heads * s->dv);
    double *scores = new_array(s->batch * s->heads * s->tq * r), *score = scores;
    double *rows = new_array(s->batch * s->tq * s->heads * s->dv);
    int64_t *live = calloc((size_t)s->batch + 1, sizeof *live);
    attn_params p = *params;
    if (!live)
        abort();
    for (int64_t b = 0; b < s->batch; b++)
        live[b] = params->kv_len && !params->kv_len[b] ? 0 : r;
    p.kv_len = live;
    project(l, &l->e, s->dk, k, params->kv_len, keys);
    project(l, &l->f, s->dv, v, params->kv_len, values);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->tq; i++)
                for (int64_t j = 0; j < r; j++) {
                    const real x = (real)oracle_head_scale(&p, s->dk, h) *
                                   (real)ORACLE(oracle_dot)(s->dk, q + ((b * s->heads + h) * s->tq + i) * s->dk,
                                                            keys + ((b * r + j) * s->kv_heads + h / group) * s->dk);
                    *score++ = p.softcap != 0 ? (real)p.softcap * tanh(x / (real)p.softcap) : x;
                }
    ORACLE(oracle_mix)(s, scores, values, &p, rows, weights, lse);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->tq; i++)
                memcpy(out + ((b * s->heads + h) * s->tq + i) * s->dv, rows + ((b * s->tq + i) * s->heads + h) * s->dv,
                       (size_t)s->dv * sizeof *out);
    free(values);
    free(scores);
    free(rows);
    free(live);
}
