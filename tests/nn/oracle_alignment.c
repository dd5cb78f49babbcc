/* SPDX-License-Identifier: Apache-2.0 */
/* The four score functions and pooling (alignment.h). */
#include "real.h"

void ORACLE(oracle_align_project)(const struct oracle_alignment *a, int64_t rows, const double *keys, double *y)
{
    const struct oracle_dense dense = {a->score == ATTN_SCORE_ADDITIVE ? a->d_attention : a->d_query, a->d_key, a->w_k,
                                       a->score == ATTN_SCORE_ADDITIVE ? a->b : NULL};
    if (a->score == ATTN_SCORE_GENERAL || a->score == ATTN_SCORE_ADDITIVE)
        ORACLE(oracle_linear)(&dense, rows, keys, ATTN_ACTIVATION_NONE, NULL, y);
    else
        memcpy(y, keys, (size_t)(rows * a->d_key) * sizeof *y);
}

/** The score of one pair before the temperature. query: W_q q, or q itself. */
static real score(const struct oracle_alignment *a, const double *query, const double *key, double *sums)
{
    if (a->score != ATTN_SCORE_ADDITIVE) {
        const real product = (real)ORACLE(oracle_dot)(a->d_query, query, key);
        return a->score == ATTN_SCORE_SCALED_DOT && a->d_query ? product / sqrt((real)a->d_query) : product;
    }
    for (int64_t n = 0; n < a->d_attention; n++)
        sums[n] = tanh((real)query[n] + (real)key[n]);
    return (real)ORACLE(oracle_dot)(a->d_attention, a->v, sums);
}

void ORACLE(oracle_align)(const struct oracle_alignment *a, int64_t batch, int64_t tq, int64_t tk, int64_t dv,
                          const double *q, const double *projected, const double *v, const attn_params *params,
                          double *out, double *weights, double *lse)
{
    const attn_params none = attn_params_default();
    const struct oracle_heads sizes = {batch, 1, 1, tq, tk, 0, dv};
    const int64_t width = a->score == ATTN_SCORE_ADDITIVE ? a->d_attention : a->d_query;
    const real temperature = a->temperature != 0 ? (real)a->temperature : 1;
    double *queries = new_array(batch * tq * width), *scores = new_array(batch * tq * tk), *sums = new_array(width);
    if (a->score == ATTN_SCORE_ADDITIVE && a->w_q) {
        const struct oracle_dense dense = {a->d_attention, a->d_query, a->w_q, NULL};
        ORACLE(oracle_linear)(&dense, batch * tq, q, ATTN_ACTIVATION_NONE, NULL, queries);
    } else if (a->score != ATTN_SCORE_ADDITIVE) {
        memcpy(queries, q, (size_t)(batch * tq * width) * sizeof *q);
    }
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < tq; i++)
            for (int64_t j = 0; j < tk; j++) {
                real s = score(a, queries + (b * tq + i) * width, projected + (b * tk + j) * width, sums) / temperature;
                if (params && params->softcap != 0) /* the dot products have all of the core's options */
                    s = (real)params->softcap * tanh(s / (real)params->softcap);
                scores[(b * tq + i) * tk + j] = s;
            }
    ORACLE(oracle_mix)(&sizes, scores, v, params ? params : &none, out, weights, lse);
    free(queries);
    free(scores);
    free(sums);
}

void ORACLE(oracle_pool)(const struct oracle_alignment *a, int64_t batch, int64_t tokens, const double *x,
                         const int64_t *lengths, double *out, double *weights)
{
    attn_params params = attn_params_default();
    params.kv_len = lengths;
    double *projected = new_array(batch * tokens * a->d_attention);
    ORACLE(oracle_align_project)(a, batch * tokens, x, projected);
    ORACLE(oracle_align)(a, batch, 1, tokens, a->d_key, NULL, projected, x, &params, out, weights, NULL);
    free(projected);
}
