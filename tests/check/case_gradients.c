/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a case of the backward pass has beside that of the forward pass:
 * gradients that are read and written, in any layout, and NaN where it must not
 * look.
 */
#include "case_draw.h"
#include "dtype.h"
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Whether a gradient that is written is wanted; then it has memory. */
static int place_written(struct test_case *c, enum gradient_of of, int liberties, struct rng *rng)
{
    c->d_written[of] = NULL;
    if (!rng_percent(rng, 80))
        return 0;
    case_place_tensor(c, (enum case_slot)(SLOT_D_Q + (int)of), &c->d_of[of], liberties, rng);
    c->d_written[of] = &c->d_of[of];
    return 1;
}

/** The gradient of rows, of the type of its tensor as a rule. */
static void draw_rows(struct test_case *c, enum gradient_of of, const attn_tensor *rows, const attn_tensor **wanted,
                      struct rng *rng)
{
    c->d_of[of] = *rows;
    c->d_of[of].dtype = rng_percent(rng, 75) ? rows->dtype : case_any_float(rng);
    *wanted = place_written(c, of, 0, rng) ? &c->d_of[of] : NULL;
}

/** The gradient of an option that is an array of n numbers, where it is set. */
static void draw_array(struct test_case *c, enum gradient_of of, int set, int64_t n, float **wanted, struct rng *rng)
{
    c->d_of[of] = attn_bhtd(NULL, 1, 1, 1, n);
    c->d_written[of] = NULL;
    *wanted = NULL;
    if (!set || !rng_percent(rng, 80))
        return;
    c->d_of[of].data = *wanted = CASE_PLACE(c, (enum case_slot)(SLOT_D_Q + (int)of), float, n, rng);
    c->d_written[of] = &c->d_of[of];
}

/** The gradient of a table of rows, where it is set. */
static void draw_table(struct test_case *c, enum gradient_of of, const attn_tensor *table, const attn_tensor **wanted,
                       struct rng *rng)
{
    c->d_written[of] = NULL;
    if (!table)
        return;
    c->d_of[of] = *table;
    if (place_written(c, of, 0, rng))
        *wanted = &c->d_of[of];
}

static void draw_options(struct test_case *c, struct rng *rng)
{
    const attn_params *p = &c->params;
    attn_gradients *g = &c->gradients;
    const int64_t heads = c->q.shape[1];
    draw_array(c, GRADIENT_ALIBI_SLOPES, p->alibi_slopes != NULL, heads, &g->alibi_slopes, rng);
    draw_array(c, GRADIENT_RELATIVE_BIAS, p->relative_bias != NULL,
               p->relative_bias ? heads * p->relative_bias->buckets : 0, &g->relative_bias, rng);
    draw_array(c, GRADIENT_SINKS, p->sinks != NULL, heads, &g->sinks, rng);
    draw_array(c, GRADIENT_HEAD_SCALE, p->head_scale != NULL, heads, &g->head_scale, rng);
    const attn_disentangled *terms = p->disentangled;
    draw_table(c, GRADIENT_REL_K, terms ? terms->rel_k : NULL, &g->rel_k, rng);
    draw_table(c, GRADIENT_REL_Q, terms ? terms->rel_q : NULL, &g->rel_q, rng);
    c->d_written[GRADIENT_MASK] = NULL;
    if (!p->mask || p->mask->dtype == ATTN_BOOL)
        return;
    c->d_of[GRADIENT_MASK] = *p->mask;
    c->d_of[GRADIENT_MASK].dtype = ATTN_F32;
    if (place_written(c, GRADIENT_MASK, FREE_CHANNELS, rng))
        g->mask = &c->d_of[GRADIENT_MASK];
}

void case_draw_gradients(struct test_case *c, uint64_t seed, uint64_t index)
{
    struct rng generator = rng_for_case(seed + 7, index), *rng = &generator;
    attn_params *p = &c->params;
    const attn_tensor *const outputs[] = {p->weights, p->key_sums, p->scores};
    for (int i = 0; i < 3; i++)
        if (outputs[i])
            guard_place(&c->guard[SLOT_WEIGHTS + i], 0, 1);
    guard_place(&c->guard[SLOT_WEIGHT_ROWS], 0, 1);
    p->weights = p->key_sums = p->scores = NULL;
    p->weight_rows = NULL;
    p->num_weight_rows = 0;
    p->score_stage = (attn_score_stage)0;
    const int64_t *n = c->out.shape;
    if (!p->lse) {
        c->lse = tensor_of_shape(ATTN_F32, n[0], n[1], n[2], 1);
        case_place_tensor(c, SLOT_LSE, &c->lse, FREE_CHANNELS, rng);
        p->lse = &c->lse;
    }
    c->gradients = attn_gradients_default();
    c->d_out = tensor_of_shape(rng_percent(rng, 75) ? c->out.dtype : case_any_float(rng), n[0], n[1], n[2], n[3]);
    /* Not where weights may be alike, too: equal terms, added one after the other, round the same way each time. */
    const int alike = c->values != VALUES_NORMAL || (c->q.shape[2] > 1 && c->q.stride[2] == 0);
    case_place_tensor(c, SLOT_D_OUT, &c->d_out, alike ? 0 : MAY_BROADCAST, rng);
    c->gradients.out = &c->d_out;
    if (p->callback) {
        c->gradients.callback = case_callback_partner;
        c->gradients.callback_user = p->callback_user;
    }
    if (rng_percent(rng, 50)) {
        c->d_lse = tensor_of_shape(ATTN_F32, n[0], n[1], n[2], 1);
        case_place_tensor(c, SLOT_D_LSE, &c->d_lse, FREE_CHANNELS | MAY_BROADCAST, rng);
        c->gradients.lse = &c->d_lse;
    }
    draw_rows(c, GRADIENT_Q, &c->q, &c->gradients.q, rng);
    draw_rows(c, GRADIENT_K, &c->k, &c->gradients.k, rng);
    draw_rows(c, GRADIENT_V, &c->v, &c->gradients.v, rng);
    draw_options(c, rng);
    case_fill_gradients(c, rng);
}

/** Whether a query sees any key. */
static int sees_any(const struct test_case *c, int64_t b, int64_t h, int64_t i)
{
    const struct oracle_query query = oracle_query_at(&c->params, c->q.shape[2], c->k.shape[2], b, h, i);
    for (int64_t j = query.start; j < query.end; j++)
        if (oracle_sees(&c->params, &query, j))
            return 1;
    return 0;
}

/** Marks the rows of a table, of content or of position, that a query's live keys have. */
static void mark_rows(const struct test_case *c, const attn_tensor *table, int of_content, int64_t b, int64_t h,
                      int64_t i, unsigned char *used)
{
    const attn_params *p = &c->params;
    const struct oracle_query query = oracle_query_at(p, c->q.shape[2], c->k.shape[2], b, h, i);
    for (int64_t j = query.start; j < query.end; j++) {
        if (!oracle_sees(p, &query, j) || oracle_callback(p, &query, j, 0) == -INFINITY)
            continue;
        const int64_t distance = oracle_distance(&query, j);
        const int64_t row = of_content ? oracle_content_row(p->disentangled->span, distance)
                                       : oracle_position_row(p->disentangled, distance);
        used[(table->shape[1] > 1 ? h : 0) * table->shape[2] + row] = 1;
    }
}

/** Overwrites the rows of a table that no live pair has. */
static void poison_table(struct test_case *c, const attn_tensor *table, int of_content, struct rng *rng)
{
    unsigned char *used = table ? calloc((size_t)(table->shape[1] * table->shape[2]), 1) : NULL;
    if (!used)
        return;
    for (int64_t b = 0; b < c->q.shape[0]; b++)
        for (int64_t h = 0; h < c->q.shape[1]; h++)
            for (int64_t i = 0; i < c->q.shape[2]; i++)
                mark_rows(c, table, of_content, b, h, i, used);
    for (int64_t at = 0; at < table->shape[1] * table->shape[2]; at++)
        if (!used[at] && rng_percent(rng, 70))
            case_poison_row(table, 0, at / table->shape[2], at % table->shape[2], rng);
    free(used);
}

void case_begin_backward(struct test_case *c, uint64_t seed, uint64_t index)
{
    struct rng rng = rng_for_case(seed + 8, index);
    const attn_tensor *const rows[] = {&c->q, &c->out, &c->d_out};
    for (int64_t b = 0; b < c->q.shape[0]; b++)
        for (int64_t h = 0; h < c->q.shape[1]; h++)
            for (int64_t i = 0; i < c->q.shape[2]; i++) {
                if (sees_any(c, b, h, i))
                    continue;
                for (int which = 0; which < 3; which++)
                    if (rng_percent(&rng, 70))
                        case_poison_row(rows[which], b, h, i, &rng);
            }
    const attn_disentangled *terms = c->params.disentangled;
    poison_table(c, terms ? terms->rel_k : NULL, 1, &rng);
    poison_table(c, terms ? terms->rel_q : NULL, 0, &rng);
    case_remember_inputs(c);
}
