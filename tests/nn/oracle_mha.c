/* SPDX-License-Identifier: Apache-2.0 */
/* Projections, attention, projection (mha.h). */
#include "real.h"

void ORACLE(oracle_mha_forward)(const struct oracle_mha *m, int64_t batch, int64_t tq, const double *x, int64_t tk,
                                const double *memory, const attn_params *params, double *out, double *weights)
{
    const struct oracle_heads sizes = {batch, m->heads, m->kv_heads, tq, memory ? tk : tq, m->dk, m->dv};
    double *q = new_array(batch * tq * m->q.out), *k = new_array(batch * sizes.tk * m->k.out);
    double *v = new_array(batch * sizes.tk * m->v.out), *heads = new_array(batch * tq * m->heads * m->dv);
    ORACLE(oracle_linear)(&m->q, batch * tq, x, ATTN_ACTIVATION_NONE, NULL, q);
    ORACLE(oracle_linear)(&m->k, batch * sizes.tk, memory ? memory : x, ATTN_ACTIVATION_NONE, NULL, k);
    ORACLE(oracle_linear)(&m->v, batch * sizes.tk, memory ? memory : x, ATTN_ACTIVATION_NONE, NULL, v);
    ORACLE(oracle_attention)(&sizes, q, k, v, params, heads, weights);
    ORACLE(oracle_linear)(&m->o, batch * tq, heads, ATTN_ACTIVATION_NONE, NULL, out);
    free(q);
    free(k);
    free(v);
    free(heads);
}
