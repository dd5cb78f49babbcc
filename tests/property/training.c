/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings: drawn, run, and their gradients compared bit by bit. */
#include "training.h"

#include "dtype.h"
#include "guard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const gradient_names[GRADIENTS_OF_ROWS] = {"dq", "dk", "dv"};

attn_tensor training_tensor(attn_dtype dtype, const int64_t shape[4], int64_t channels)
{
    attn_tensor t = attn_bhtd(NULL, shape[0], shape[1], shape[2], channels);
    t.dtype = dtype;
    t.data = must_allocate(problem_count(&t), attn_dtype_size(dtype));
    return t;
}

void training_forward(struct training *t)
{
    t->out = training_tensor(t->p.out, t->p.q.shape, t->p.v.shape[3]);
    t->lse = training_tensor(ATTN_F32, t->p.q.shape, 1);
    attn_params params = t->p.params;
    params.lse = &t->lse;
    must_succeed(attn_forward(&t->p.q, &t->p.k, &t->p.v, &t->out, &params), "attn_forward");
}

/** s / (1 + |s|). */
static void bend(const attn_score_tile *tile, void *user)
{
    (void)user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++)
            tile->scores[j * tile->key_stride + i] /= 1 + fabsf(tile->scores[j * tile->key_stride + i]);
}

void training_partner(const attn_score_gradient_tile *tile, void *user)
{
    (void)user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++) {
            const float slope = 1 / (1 + fabsf(tile->scores[j * tile->key_stride + i]));
            tile->gradients[j * tile->key_stride + i] *= slope * slope;
        }
}

void training_bind_tables(struct training *t)
{
    t->disentangled.rel_k = t->rel_k.data ? &t->rel_k : NULL;
    t->disentangled.rel_q = t->rel_q.data ? &t->rel_q : NULL;
    t->p.params.disentangled = t->rel_k.data || t->rel_q.data ? &t->disentangled : NULL;
}

void training_draw_tables(struct training *t, struct rng *rng)
{
    const int64_t heads = t->p.q.shape[1], dk = t->p.q.shape[3], span = RNG_PICK(rng, 1, 2, 5, 16, 40, 200);
    const int which = (int)RNG_PICK(rng, 1, 2, 3, 3);
    t->disentangled = (attn_disentangled){.span = span};
    if (which & 1)
        t->rel_k = problem_tensor(rng, ATTN_F32, 1, rng_percent(rng, 50) ? heads : 1, 2 * span, dk);
    if (which & 2) {
        t->rel_q = problem_tensor(rng, ATTN_F32, 1, rng_percent(rng, 50) ? heads : 1, 2 * span, dk);
        t->disentangled.delta = (attn_delta)rng_range(rng, 0, 1);
    }
    training_bind_tables(t);
}

void training_begin(struct training *t, struct rng *rng)
{
    struct problem *p = &t->p;
    const int64_t *n = p->q.shape;
    t->d_out = problem_tensor(rng, rng_percent(rng, 80) ? p->out : ATTN_F32, n[0], n[1], n[2], p->v.shape[3]);
    t->d_lse = rng_percent(rng, 50) ? problem_tensor(rng, ATTN_F32, n[0], n[1], n[2], 1) : (attn_tensor){0};
    const attn_dtype of[GRADIENTS_OF_ROWS] = {p->q.dtype, p->k.dtype, p->v.dtype};
    for (int i = 0; i < GRADIENTS_OF_ROWS; i++)
        t->types[i] = rng_percent(rng, 70) ? of[i] : ATTN_F32;
    for (int h = 0; h < MAX_HEADS; h++) {
        t->sinks[h] = rng_normal(rng);
        t->slopes[h] = (float)ldexp(1, -h - 1);
    }
    p->params.sinks = rng_percent(rng, 20) ? t->sinks : NULL;
    p->params.alibi_slopes = rng_percent(rng, 20) ? t->slopes : NULL;
    p->params.softcap = rng_percent(rng, 20) ? 5 : 0;
    t->dropout = (attn_dropout){0.2f, rng_bits(rng), 1};
    p->params.dropout = rng_percent(rng, 20) ? &t->dropout : NULL;
    p->params.callback = rng_percent(rng, 20) ? bend : NULL;
    t->rel_k = t->rel_q = (attn_tensor){0};
    if (rng_percent(rng, 30))
        training_draw_tables(t, rng);
    training_forward(t);
}

void training_draw(struct training *t, struct rng *rng, const char *isa, int features)
{
    if (rng_percent(rng, 10))
        problem_long(&t->p, rng, isa, features);
    else
        problem_random(&t->p, rng, isa, features);
    training_begin(t, rng);
}

void training_free(struct training *t)
{
    problem_free(&t->p);
    free(t->out.data);
    free(t->lse.data);
    free(t->d_out.data);
    free(t->d_lse.data);
    free(t->rel_k.data);
    free(t->rel_q.data);
}

void gradients_free(struct gradients *g)
{
    for (int i = 0; i < GRADIENTS_OF_ROWS; i++)
        free(g->of[i].data);
    for (int i = 0; i < 2; i++)
        free(g->tables[i].data);
}

struct gradients training_run(const struct training *t, unsigned wanted)
{
    const attn_tensor *const of[GRADIENTS_OF_ROWS] = {&t->p.q, &t->p.k, &t->p.v};
    struct gradients g;
    attn_gradients call = attn_gradients_default();
    const attn_tensor **const fields[GRADIENTS_OF_ROWS] = {&call.q, &call.k, &call.v};
    for (int i = 0; i < GRADIENTS_OF_ROWS; i++) {
        g.of[i] = (attn_tensor){0};
        if (!(wanted >> i & 1u))
            continue;
        g.of[i] = training_tensor(t->types[i], of[i]->shape, of[i]->shape[3]);
        memset(g.of[i].data, 0xA5, (size_t)problem_count(&g.of[i]) * attn_dtype_size(t->types[i]));
        *fields[i] = &g.of[i];
    }
    const attn_tensor *const tables[] = {&t->rel_k, &t->rel_q};
    const attn_tensor **const table_fields[] = {&call.rel_k, &call.rel_q};
    for (int i = 0; i < 2; i++) {
        g.tables[i] = (attn_tensor){0};
        if (!(wanted >> OF_TABLES & 1u) || !t->p.params.disentangled || !tables[i]->data)
            continue;
        g.tables[i] = training_tensor(ATTN_F32, tables[i]->shape, tables[i]->shape[3]);
        memset(g.tables[i].data, 0xA5, (size_t)problem_count(&g.tables[i]) * sizeof(float));
        *table_fields[i] = &g.tables[i];
    }
    call.out = &t->d_out;
    call.lse = t->d_lse.data ? &t->d_lse : NULL;
    attn_params params = t->p.params;
    params.lse = &t->lse;
    call.callback = params.callback ? training_partner : NULL;
    must_succeed(attn_backward(&t->p.q, &t->p.k, &t->p.v, &t->out, &params, &call), "attn_backward");
    return g;
}

/** Whether a row of two tensors has the same bits. */
static int same_row(const attn_tensor *a, const int64_t at[3], const attn_tensor *b, const int64_t bt[3])
{
    const int64_t size = (int64_t)attn_dtype_size(a->dtype), channels = a->shape[3];
    const char *x = (const char *)a->data + (channels ? tensor_offset(a, at[0], at[1], at[2], 0) : 0) * size;
    const char *y = (const char *)b->data + (channels ? tensor_offset(b, bt[0], bt[1], bt[2], 0) : 0) * size;
    return memcmp(x, y, (size_t)(channels * size)) == 0;
}

int gradients_same_part(const char *what, const struct gradients *whole, int64_t b, const int64_t h[GRADIENTS_OF_ROWS],
                        const int64_t token[GRADIENTS_OF_ROWS], const struct gradients *part)
{
    for (int g = 0; g < GRADIENTS_OF_ROWS; g++) {
        const attn_tensor *w = &whole->of[g], *p = &part->of[g];
        for (int64_t at = 0; p->data && at < p->shape[0] * p->shape[1] * p->shape[2]; at++) {
            const int64_t from[3] = {at / p->shape[2] / p->shape[1], at / p->shape[2] % p->shape[1], at % p->shape[2]};
            if (same_row(w, (int64_t[]){b + from[0], h[g] + from[1], token[g] + from[2]}, p, from))
                continue;
            printf("  %s: %s[%d,%d,%d] has other bits\n", what, gradient_names[g], (int)from[0], (int)from[1],
                   (int)from[2]);
            return 0;
        }
    }
    return 1;
}

int gradients_same(const char *what, const struct gradients *a, const struct gradients *b)
{
    static const int64_t start[GRADIENTS_OF_ROWS] = {0, 0, 0};
    for (int i = 0; i < 2; i++) {
        const attn_tensor *x = &a->tables[i], *y = &b->tables[i];
        if (!x->data || !y->data || memcmp(x->data, y->data, (size_t)problem_count(x) * sizeof(float)) == 0)
            continue;
        printf("  %s: drel_%c has other bits\n", what, i ? 'q' : 'k');
        return 0;
    }
    return gradients_same_part(what, a, 0, start, start, b);
}
