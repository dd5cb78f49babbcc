/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention token by token (state_steps.h), held to the formulas of that header
 * in double, as state_products.c says. S is computed from the u that the kernel has
 * written; what it may be off by goes through the tokens with it.
 */
#include "state_operands.h"

#include <string.h>

#define MOST_HEADS 12

/** Tokens one by one, and all of their operands. */
struct steps {
    struct attn_state_steps x;
    struct matrix k, kept, q, u, o, beta, decay, from, to;
    const float *heads[MOST_HEADS];
};

/** Columns: some vectors mostly, and a tail; or up to more than the widest pass takes at once. */
static int64_t draw_columns(const struct tile_case *c)
{
    if (c->shape.plain)
        return states_of(c)->panel;
    return rng_range(c->rng, 1, rng_percent(c->rng, 60) ? 3 * c->set->lanes : 5 * states_of(c)->panel);
}

static void draw_steps(const struct tile_case *c, struct steps *s)
{
    const int n = c->shape.plain ? 1 : (int)rng_range(c->rng, 1, ATTN_FEW_TOKENS);
    const int heads = c->shape.plain ? 1 : (int)rng_range(c->rng, 0, rng_percent(c->rng, 70) ? 3 : MOST_HEADS);
    const int64_t dk = c->shape.d, columns = draw_columns(c), whole = whole_vectors(c, columns);
    const int corrects = draw_whether(c), fades = draw_whether(c), by_rows = rng_percent(c->rng, 50);
    const int in_place = !c->shape.plain && rng_percent(c->rng, 50), same_keys = rng_percent(c->rng, 30);
    const ptrdiff_t pitch = draw_pitch(c, whole);
    s->k = draw_rows_apart(c, n, dk);
    for (int64_t i = 0; i < floats_of(&s->k); i++) /* of a length near 1, as keys should have with beta */
        s->k.x[i] /= sqrtf((float)dk);
    s->kept = draw_rows_apart(c, n, dk);
    s->q = draw_rows_apart(c, heads ? (int64_t)heads * n : 1, dk);
    s->u = draw_matrix(c, n, whole, pitch);
    s->o = draw_matrix(c, heads ? (int64_t)heads * n : 1, whole, pitch);
    s->beta = draw_matrix(c, 1, n, n);
    s->decay = draw_decays(c, n, by_rows ? dk : 1);
    s->to = draw_matrix(c, dk, columns, draw_pitch(c, columns));
    s->from = in_place ? s->to : draw_matrix(c, dk, columns, draw_pitch(c, columns));
    struct matrix *const all[] = {&s->k, &s->kept, &s->q, &s->u, &s->beta, &s->from, &s->decay, &s->o, &s->to};
    for (int i = 0; i < 9; i++) {
        if (i < 6)
            plant(c, all[i]);
        remember(all[i]);
    }
    for (int h = 0; h < heads; h++) /* in any order */
        s->heads[h] = s->q.x + (ptrdiff_t)((h * 5 + 3) % heads) * n * s->q.pitch;
    for (int h = 0; h < heads && heads % 5 == 0; h++)
        s->heads[h] = s->q.x + (ptrdiff_t)h * n * s->q.pitch;
    s->x = (struct attn_state_steps){.n = n,
                                     .dk = dk,
                                     .columns = columns,
                                     .heads = heads,
                                     .k = s->k.x,
                                     .k_pitch = s->k.pitch,
                                     .kept = !corrects   ? NULL
                                             : same_keys ? s->k.x
                                                         : s->kept.x,
                                     .kept_pitch = same_keys ? s->k.pitch : s->kept.pitch,
                                     .q = s->heads,
                                     .q_pitch = s->q.pitch,
                                     .u = s->u.x,
                                     .o = s->o.x,
                                     .pitch = pitch,
                                     .beta = if_drawn(corrects, &s->beta),
                                     .decay = {if_drawn(fades, &s->decay), by_rows},
                                     .from = s->from.x,
                                     .from_pitch = s->from.pitch,
                                     .to = s->to.x,
                                     .to_pitch = s->to.pitch,
                                     .far = rng_percent(c->rng, 50),
                                     .asks = rng_percent(c->rng, 50),
                                     .next = rng_percent(c->rng, 50) ? s->from.x : NULL};
}

/**
 * A column. With S and what its numbers may be off by so far, times u:
 *
 *     u   = beta_t (v_t - S'kept_t)       a sum of dk products, a difference and a product
 *     S   = decay_t S + k_t u'            2 roundings, or 3, with the u that has been written
 *     o_t = S'q_t                         a sum of dk products
 */
static void expect_column(const struct tile_case *c, const struct steps *s, int64_t e)
{
    const struct attn_state_steps *x = &s->x;
    double state[MAX_CHANNELS], off[MAX_CHANNELS];
    for (int64_t i = 0; i < x->dk; i++) {
        state[i] = (double)s->from.before[i * x->from_pitch + e];
        off[i] = 0;
    }
    for (int t = 0; t < x->n; t++) {
        const double v = (double)s->u.before[t * x->pitch + e], u = (double)x->u[t * x->pitch + e];
        struct bounded sum = {0, 0};
        double more = 0;
        for (int64_t i = 0; i < x->dk && x->beta; i++) {
            const double kept = (double)x->kept[t * x->kept_pitch + i];
            add_product(&sum, kept, state[i]);
            more += fabs(kept) * off[i];
        }
        sum.exact = v - sum.exact;
        sum.size += fabs(v);
        if (x->beta)
            multiply_by(&sum, (double)x->beta[t]);
        else
            expect_float(c, "u", t, e, x->u[t * x->pitch + e], s->u.before[t * x->pitch + e]);
        more *= x->beta ? fabs((double)x->beta[t]) : 0;
        expect_within(c, "u", t, e, x->u[t * x->pitch + e], sum.exact,
                      1.001 * UNIT * (sum.size * (double)(x->dk + 2) + more));
        for (int64_t i = 0; i < x->dk; i++) {
            const double decay = !x->decay.by ? 1 : (double)x->decay.by[x->decay.rows ? t * x->dk + i : t];
            const double kept = decay * state[i], written = (double)x->k[t * x->k_pitch + i] * u;
            state[i] = kept + written;
            off[i] = decay * off[i] + 2 * fabs(kept) + 2 * fabs(written);
        }
        for (int h = 0; h < x->heads; h++) {
            struct bounded read = {0, 0};
            more = 0;
            for (int64_t i = 0; i < x->dk; i++) {
                const double q = (double)x->q[h][t * x->q_pitch + i];
                add_product(&read, q, state[i]);
                more += fabs(q) * off[i];
            }
            const int64_t row = (int64_t)h * x->n + t;
            expect_within(c, "o", row, e, x->o[row * x->pitch + e], read.exact,
                          1.001 * UNIT * (read.size * (double)x->dk + more));
        }
    }
    for (int64_t i = 0; i < x->dk; i++)
        expect_within(c, "S", i, e, x->to[i * x->to_pitch + e], state[i], 1.001 * UNIT * off[i]);
}

/** Some columns alone, and one head of the queries, have the bits that they have beside others. */
static void expect_steps_alone(const struct tile_case *c, const struct steps *s)
{
    static float u[ATTN_FEW_TOKENS * MAX_LANES], o[ATTN_FEW_TOKENS * MAX_LANES], to[MAX_CHANNELS * MAX_LANES];
    const int lanes = c->set->lanes;
    const int64_t start = lanes * rng_range(c->rng, 0, (s->x.columns - 1) / lanes);
    const int head = s->x.heads ? (int)rng_range(c->rng, 0, s->x.heads - 1) : 0;
    struct attn_state_steps x = s->x;
    x.columns = s->x.columns - start < lanes ? s->x.columns - start : lanes;
    x.heads = s->x.heads ? 1 : 0;
    x.q = s->x.q + head;
    x.u = u;
    x.o = o;
    x.pitch = x.to_pitch = lanes;
    x.from = s->from.before + start;
    x.to = to;
    for (int t = 0; t < x.n; t++)
        memcpy(u + t * lanes, s->u.before + t * s->x.pitch + start, (size_t)lanes * sizeof *u);
    states_of(c)->steps(&x);
    for (int64_t e = 0; e < x.columns; e++) {
        for (int t = 0; t < x.n; t++) {
            const int64_t row = (int64_t)head * x.n + t;
            expect_float(c, "u alone", t, e, u[t * lanes + e], s->x.u[t * s->x.pitch + start + e]);
            if (x.heads)
                expect_float(c, "o alone", row, e, o[t * lanes + e], s->x.o[row * s->x.pitch + start + e]);
        }
        for (int64_t i = 0; i < x.dk; i++)
            expect_float(c, "S alone", i, e, to[i * lanes + e], s->x.to[i * s->x.to_pitch + start + e]);
    }
}

static void check_steps(const struct tile_case *c)
{
    struct steps s;
    draw_steps(c, &s);
    TIME_IF_WANTED(c, states_of(c)->steps(&s.x));
    states_of(c)->steps(&s.x);
    for (int64_t e = 0; e < s.x.columns; e++)
        expect_column(c, &s, e);
    expect_steps_alone(c, &s);
    for (int t = 0; t < s.x.n; t++)
        expect_kept(c, "behind u", &s.u, t, s.u.columns);
    for (int64_t row = 0; row < (int64_t)s.x.heads * s.x.n; row++)
        expect_kept(c, "behind o", &s.o, row, s.o.columns);
    for (int64_t i = 0; i < s.x.dk; i++)
        expect_kept(c, "behind S", &s.to, i, s.to.columns);
    if (s.x.heads == 0)
        expect_read(c, "o", &s.o);
    if (s.x.from != s.x.to)
        expect_read(c, "from", &s.from);
    expect_read(c, "k", &s.k);
    expect_read(c, "kept", &s.kept);
    expect_read(c, "q", &s.q);
    expect_read(c, "beta", &s.beta);
    expect_read(c, "decay", &s.decay);
}

static const struct row rows[] = {
    TILE_ROW("steps", HAS_STATES, check_steps),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    (void)row;
    return set->kernels->states->steps != NULL;
}

const struct group group_state_steps = {
    .name = "state_steps",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
