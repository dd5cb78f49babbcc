/* SPDX-License-Identifier: Apache-2.0 */
/* Random weights of Transformer layers in training. */
#include "random_block.h"

struct oracle_norm random_training_norm(struct memory *m, attn_norm kind, float eps, int64_t d, attn_tensor *gamma,
                                        attn_tensor *beta, attn_tensor *d_gamma, attn_tensor *d_beta)
{
    struct oracle_norm norm = {kind, d, NULL, NULL, eps};
    *d_gamma = place_sums(m, 1, d);
    if (rng_percent(&m->rng, 80)) {
        *gamma = random_vector(m, random_dtype(m), d, 0.3, 1);
        norm.gamma = read_all(m, gamma);
    }
    if (kind == ATTN_NORM_RMS)
        return norm;
    *d_beta = place_sums(m, 1, d);
    if (rng_percent(&m->rng, 80)) {
        *beta = random_vector(m, random_dtype(m), d, 0.3, 0);
        norm.beta = read_all(m, beta);
    }
    return norm;
}

static void random_attention(struct memory *m, struct oracle_mha *o, const attn_mha_config *c, int64_t d_memory,
                             attn_mha_weights *w, attn_mha_weights *d)
{
    *w = *d = attn_mha_weights_default();
    o->heads = c->heads, o->kv_heads = c->kv_heads, o->dk = c->head_dim, o->dv = c->value_dim;
    o->q = random_dense(m, o->heads * o->dk, c->d_model, &w->w_q, &w->b_q, &d->w_q, &d->b_q);
    o->k = random_dense(m, o->kv_heads * o->dk, d_memory, &w->w_k, &w->b_k, &d->w_k, &d->b_k);
    o->v = random_dense(m, o->kv_heads * o->dv, d_memory, &w->w_v, &w->b_v, &d->w_v, &d->b_v);
    o->o = random_dense(m, c->d_model, o->heads * o->dv, &w->w_o, &w->b_o, &d->w_o, &d->b_o);
}

void random_block(struct random_block *b, struct memory *m, const attn_block_config *c, int64_t d_memory)
{
    attn_block_weights *w = &b->weights, *d = &b->gradients;
    struct oracle_block *o = &b->oracle;
    const attn_mha_config *a = c->attention;
    *w = *d = attn_block_weights_default();
    *o = (struct oracle_block){.d_model = a->d_model,
                               .d_ff = c->d_ff,
                               .activation = c->activation,
                               .gated = c->gated,
                               .norm_first = c->norm_first,
                               .has_cross = c->cross};
    random_attention(m, &o->self, a, a->d_model, &b->self, &b->d_self);
    w->self = &b->self, d->self = &b->d_self;
    int norms = 0;
    o->norms[norms++] = random_training_norm(m, c->norm, c->eps, a->d_model, &w->self_gamma, &w->self_beta,
                                             &d->self_gamma, &d->self_beta);
    if (c->cross) {
        random_attention(m, &o->cross, a, d_memory, &b->cross, &b->d_cross);
        w->cross = &b->cross, d->cross = &b->d_cross;
        o->norms[norms++] = random_training_norm(m, c->norm, c->eps, a->d_model, &w->cross_gamma, &w->cross_beta,
                                                 &d->cross_gamma, &d->cross_beta);
    }
    if (c->gated)
        o->gate = random_dense(m, c->d_ff, a->d_model, &w->w_gate, &w->b_gate, &d->w_gate, &d->b_gate);
    o->up = random_dense(m, c->d_ff, a->d_model, &w->w_up, &w->b_up, &d->w_up, &d->b_up);
    o->down = random_dense(m, a->d_model, c->d_ff, &w->w_down, &w->b_down, &d->w_down, &d->b_down);
    o->norms[norms] = random_training_norm(m, c->norm, c->eps, a->d_model, &w->network_gamma, &w->network_beta,
                                           &d->network_gamma, &d->network_beta);
}

size_t random_block_varied(const struct random_block *b, struct varied *list)
{
    const struct oracle_block *o = &b->oracle;
    const struct oracle_mha *s = &o->self, *c = &o->cross;
    const attn_block_weights *d = &b->gradients;
    const int last = o->has_cross ? 2 : 1;
#define VARIED(name, values, gradient)                                                                                 \
    {                                                                                                                  \
        name, (double *)(uintptr_t)(values), &(gradient)                                                               \
    }
    const struct varied all[BLOCK_VARIED] = {
        VARIED("self w_q", s->q.w, b->d_self.w_q),
        VARIED("self w_k", s->k.w, b->d_self.w_k),
        VARIED("self w_v", s->v.w, b->d_self.w_v),
        VARIED("self w_o", s->o.w, b->d_self.w_o),
        VARIED("self b_v", s->v.b, b->d_self.b_v),
        VARIED("self b_o", s->o.b, b->d_self.b_o),
        VARIED("cross w_q", c->q.w, b->d_cross.w_q),
        VARIED("cross w_k", c->k.w, b->d_cross.w_k),
        VARIED("cross w_v", c->v.w, b->d_cross.w_v),
        VARIED("cross w_o", c->o.w, b->d_cross.w_o),
        VARIED("cross b_o", c->o.b, b->d_cross.b_o),
        VARIED("w_gate", o->gate.w, d->w_gate),
        VARIED("b_gate", o->gate.b, d->b_gate),
        VARIED("w_up", o->up.w, d->w_up),
        VARIED("b_up", o->up.b, d->b_up),
        VARIED("w_down", o->down.w, d->w_down),
        VARIED("b_down", o->down.b, d->b_down),
        VARIED("self_gamma", o->norms[0].gamma, d->self_gamma),
        VARIED("self_beta", o->norms[0].beta, d->self_beta),
        VARIED("cross_gamma", o->has_cross ? o->norms[1].gamma : NULL, d->cross_gamma),
        VARIED("cross_beta", o->has_cross ? o->norms[1].beta : NULL, d->cross_beta),
        VARIED("network_gamma", o->norms[last].gamma, d->network_gamma),
        VARIED("network_beta", o->norms[last].beta, d->network_beta),
    };
#undef VARIED
    memcpy(list, all, sizeof all);
    return BLOCK_VARIED;
}

double random_block_usual(struct memory *m, const struct random_block *b)
{
    const attn_tensor *v = &b->d_self.w_v, *down = &b->gradients.w_down;
    return root_mean_square(read_all(m, v), v->shape[2] * v->shape[3]) +
           root_mean_square(read_all(m, down), down->shape[2] * down->shape[3]);
}
