/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The products of a chunk of linear attention (state_chunk.h), held to the formulas of
 * that header in double.
 *
 * An error is bounded by the roundings that a term goes through: of n products that are
 * added up each goes through n at most, in whatever order, whether multiply-adds round
 * once or twice, as the first one is added to 0. Numbers are drawn so that nothing
 * underflows. Where what one token writes goes into that of the next, the formula of each
 * is computed with what the kernel has written of those before: every equation holds by
 * itself within the roundings of its own terms, and no error grows from one to the other.
 *
 * Some elements are NaN or Inf, and all is NaN that a formula does not have, as scores
 * with tokens behind one's own; so what a formula leaves out reaches no result, not even
 * times 0. Besides, bits do not depend on what is computed beside them, as a sum has its
 * terms in the same order: a row, or a vector of columns, is computed once more alone.
 */
#include "state_operands.h"

#include <string.h>

/* ------------------------------------------------------------------ scores -- */

/** A row of scores alone has the bits that it has among others. */
static void expect_scores_alone(const struct tile_case *c, const struct attn_chunk_scores *x, int keys)
{
    static float alone[ATTN_CHUNK + 64 * MAX_LANES];
    const int r = (int)rng_range(c->rng, 0, x->n - 1);
    struct attn_chunk_scores one = *x;
    one.n = 1;
    one.keys = (int)whole_vectors(c, keys ? keys : r + 1);
    one.a += r * x->a_pitch;
    one.within = x->within ? x->within + r * x->to_pitch : NULL;
    one.to = alone;
    states_of(c)->scores(&one);
    for (int j = 0; j < (keys ? keys : r + 1); j++)
        expect_float(c, "alone", r, j, alone[j], x->to[r * x->to_pitch + j]);
}

static void check_scores(const struct tile_case *c)
{
    const int lanes = c->set->lanes, n = draw_tokens(c), panel = states_of(c)->panel;
    /* All of the first keys, or of a triangle what is up to whole panels. */
    const int keys = c->shape.plain || rng_percent(c->rng, 50) ? 0 : lanes * (int)rng_range(c->rng, 1, 9);
    const int64_t dk = c->shape.d, columns = keys ? keys : attn_in_steps(n, panel);
    struct matrix a = draw_rows_apart(c, n, dk), kt = draw_matrix(c, dk, columns, draw_pitch(c, columns));
    struct matrix to = draw_matrix(c, n, columns, draw_pitch(c, columns));
    struct matrix within = draw_decays(c, 1, floats_of(&to));
    const int fades = draw_whether(c);
    for (int64_t i = 0; i < dk && !keys; i++)
        for (int64_t j = n; j < columns; j++)
            kt.x[i * kt.pitch + j] = NAN;
    for (int i = 0; i < n; i++)
        for (int64_t j = keys ? columns : i + 1; j < (i + 1 < n ? to.pitch : columns); j++)
            within.x[i * to.pitch + j] = NAN;
    plant(c, &a);
    plant(c, &kt);
    struct matrix *const all[] = {&a, &kt, &to, &within};
    for (int i = 0; i < 4; i++)
        remember(all[i]);
    const struct attn_chunk_scores x = {.n = n,
                                        .keys = keys,
                                        .dk = dk,
                                        .a = a.x,
                                        .a_pitch = a.pitch,
                                        .kt = kt.x,
                                        .kt_pitch = kt.pitch,
                                        .within = if_drawn(fades, &within),
                                        .to = to.x,
                                        .to_pitch = to.pitch};
    TIME_IF_WANTED(c, states_of(c)->scores(&x));
    states_of(c)->scores(&x);
    for (int i = 0; i < n; i++) {
        for (int64_t j = 0; j < (keys ? keys : i + 1); j++) {
            struct bounded sum = {0, 0};
            for (int64_t e = 0; e < dk; e++)
                add_product(&sum, (double)a.x[i * a.pitch + e], (double)kt.x[e * kt.pitch + j]);
            multiply_by(&sum, fades ? (double)within.x[i * to.pitch + j] : 1);
            expect_sum(c, "to", i, j, to.x[i * to.pitch + j], &sum, dk + 1);
        }
        expect_kept(c, "gap", &to, i, keys ? keys : attn_in_steps(i + 1, panel));
    }
    expect_scores_alone(c, &x, keys);
    expect_read(c, "a", &a);
    expect_read(c, "kt", &kt);
    expect_read(c, "within", &within);
}

static void check_near_scores(const struct tile_case *c)
{
    const int lanes = c->set->lanes, n = c->shape.plain ? lanes : (int)rng_range(c->rng, 1, lanes);
    const int64_t dk = c->shape.d;
    struct matrix a = draw_rows_apart(c, n, dk), k = draw_rows_apart(c, n, dk), decay = draw_decays(c, n, dk);
    struct matrix to = draw_matrix(c, n, lanes, ATTN_CHUNK);
    float *const parts = operand_place(c, (size_t)lanes * (size_t)(lanes * lanes) * sizeof *parts);
    memset(parts, 0xff, (size_t)lanes * (size_t)(lanes * lanes) * sizeof *parts);
    for (int64_t e = 0; e < dk; e++) /* no pair is on both sides of the first token */
        decay.x[e] = NAN;
    plant(c, &a);
    plant(c, &k);
    struct matrix *const all[] = {&a, &k, &decay, &to};
    for (int i = 0; i < 4; i++)
        remember(all[i]);
    const struct attn_near_scores x = {.n = n,
                                       .dk = dk,
                                       .a = a.x,
                                       .a_pitch = a.pitch,
                                       .k = k.x,
                                       .k_pitch = k.pitch,
                                       .decay = decay.x,
                                       .parts = parts,
                                       .to = to.x};
    TIME_IF_WANTED(c, states_of(c)->near_scores(&x));
    states_of(c)->near_scores(&x);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j <= i; j++) {
            struct bounded sum = {0, 0};
            for (int64_t e = 0; e < dk; e++) {
                double product = (double)k.x[j * k.pitch + e];
                for (int t = j + 1; t <= i; t++)
                    product *= (double)decay.x[t * dk + e];
                add_product(&sum, (double)a.x[i * a.pitch + e], product);
            }
            expect_sum(c, "to", i, j, to.x[i * ATTN_CHUNK + j], &sum, dk + (i - j));
        }
        expect_kept(c, "gap", &to, i, lanes);
    }
    expect_read(c, "a", &a);
    expect_read(c, "k", &k);
    expect_read(c, "decay", &decay);
}

/* ------------------------------------------------------------------ panels -- */

/** A panel and all of its operands. */
struct panel {
    struct attn_chunk_panel x;
    struct matrix a, factor, scores, beta, u, o, kt, decay, s;
    struct drawn_rows ahead[ATTN_AHEAD];
};

typedef void panel_function(const struct attn_chunk_panel *x);

/** Rows that are asked for ahead, and may be no more than that. */
static void draw_ahead(const struct tile_case *c, struct panel *p)
{
    for (int i = 0; i < ATTN_AHEAD; i++) {
        const int n = c->shape.plain || rng_percent(c->rng, 60) ? 0 : draw_tokens(c);
        const int64_t width = rng_range(c->rng, 1, 40);
        if (n == 0)
            continue;
        p->ahead[i] = draw_rows(c, c->shape.dtype, n, width);
        p->x.ahead[i] = (struct attn_ahead){p->ahead[i].rows, n, width, (int)rng_range(c->rng, 0, 1)};
    }
}

/** Operands that solve() and read() have: rows meet S, and take of the tokens before their own, or up to it with own.
 */
static struct panel draw_panel(const struct tile_case *c, int own)
{
    const int n = draw_tokens(c), lanes = c->set->lanes, most = states_of(c)->panel / lanes;
    const int width = lanes * (c->shape.plain ? most : (int)rng_range(c->rng, 1, most));
    const int64_t dk = c->shape.d;
    struct panel p = {.a = draw_rows_apart(c, n, dk),
                      .factor = draw_matrix(c, 1, n, n),
                      .scores = draw_matrix(c, n, n, ATTN_CHUNK),
                      .beta = draw_matrix(c, 1, n, n),
                      .u = draw_matrix(c, n, width, width),
                      .o = draw_matrix(c, n, width, width),
                      .s = draw_matrix(c, dk, width, width)};
    for (int i = 0; i < n; i++)
        for (int j = 0; j < (i + 1 < n ? ATTN_CHUNK : n); j++)
            p.scores.x[i * ATTN_CHUNK + j] = j < i + own ? 0.2f * rng_normal(c->rng) : NAN;
    struct matrix *const all[] = {&p.a, &p.factor, &p.beta, &p.u, &p.s, &p.scores, &p.o};
    for (int i = 0; i < 7; i++) {
        if (i < 5) /* scores have NaN already, and o is only written */
            plant(c, all[i]);
        remember(all[i]);
    }
    p.x = (struct attn_chunk_panel){.n = n,
                                    .width = width,
                                    .dk = dk,
                                    .a = p.a.x,
                                    .a_pitch = p.a.pitch,
                                    .factor = if_drawn(draw_whether(c), &p.factor),
                                    .scores = p.scores.x,
                                    .u = p.u.x,
                                    .s = p.s.x};
    draw_ahead(c, &p);
    return p;
}

/** Some vector of columns alone has the bits that it has in the panel; results are in it already. */
static void expect_panel_alone(const struct tile_case *c, const struct panel *p, panel_function *function)
{
    static float u[ATTN_CHUNK * MAX_LANES], o[ATTN_CHUNK * MAX_LANES], s[MAX_CHANNELS * MAX_LANES];
    const int lanes = c->set->lanes, width = p->x.width, n = p->x.n;
    const int64_t dk = p->x.dk, start = lanes * rng_range(c->rng, 0, width / lanes - 1);
    struct attn_chunk_panel x = p->x;
    for (int64_t i = 0; i < n; i++)
        memcpy(u + i * lanes, p->u.before + i * width + start, (size_t)lanes * sizeof *u);
    for (int64_t i = 0; i < dk; i++)
        memcpy(s + i * lanes, p->s.before + i * width + start, (size_t)lanes * sizeof *s);
    x.width = lanes;
    x.u = u;
    x.o = o;
    x.s = s;
    function(&x);
    for (int i = 0; i < n; i++)
        for (int e = 0; e < lanes; e++) {
            expect_float(c, "u alone", i, e, u[i * lanes + e], p->x.u[i * width + start + e]);
            if (p->x.o)
                expect_float(c, "o alone", i, e, o[i * lanes + e], p->x.o[i * width + start + e]);
        }
    for (int64_t i = 0; i < dk; i++)
        for (int e = 0; e < lanes; e++)
            expect_float(c, "s alone", i, e, s[i * lanes + e], p->x.s[i * width + start + e]);
}

/** What has only been read. */
static void expect_panel_read(const struct tile_case *c, const struct panel *p)
{
    expect_read(c, "a", &p->a);
    expect_read(c, "factor", &p->factor);
    expect_read(c, "scores", &p->scores);
    expect_read(c, "beta", &p->beta);
    expect_read(c, "kt", &p->kt);
    expect_read(c, "decay", &p->decay);
}

/** factor_i S'a_i in column e */
static struct bounded met_state(const struct panel *p, int i, int e)
{
    struct bounded sum = {0, 0};
    for (int64_t t = 0; t < p->x.dk; t++)
        add_product(&sum, (double)p->a.x[i * p->a.pitch + t], (double)p->s.before[t * p->x.width + e]);
    multiply_by(&sum, p->x.factor ? (double)p->factor.x[i] : 1);
    return sum;
}

/** u_i = beta_i (u_i - factor_i S'a_i - the sum over j < i of scores_ij u_j) */
static void check_solve(const struct tile_case *c)
{
    struct panel p = draw_panel(c, 0);
    const int n = p.x.n, width = p.x.width;
    p.x.beta = p.beta.x;
    for (int i = 0; i < n && c->shape.plain; i++)
        p.beta.x[i] = 0.5f;
    TIME_IF_WANTED(c, states_of(c)->solve(&p.x));
    states_of(c)->solve(&p.x);
    for (int i = 0; i < n; i++)
        for (int e = 0; e < width; e++) {
            const double v = (double)p.u.before[i * width + e];
            struct bounded sum = met_state(&p, i, e);
            for (int j = 0; j < i; j++)
                add_product(&sum, (double)p.scores.x[i * ATTN_CHUNK + j], (double)p.u.x[j * width + e]);
            sum.exact = v - sum.exact;
            sum.size += fabs(v);
            multiply_by(&sum, (double)p.beta.x[i]);
            expect_sum(c, "u", i, e, p.u.x[i * width + e], &sum, p.x.dk + 3 + i);
        }
    expect_panel_alone(c, &p, states_of(c)->solve);
    expect_panel_read(c, &p);
    expect_read(c, "s", &p.s);
    expect_read(c, "o", &p.o);
}

/** o_i = factor_i S'a_i + the sum over j <= i of scores_ij u_j */
static void check_read(const struct tile_case *c)
{
    struct panel p = draw_panel(c, 1);
    const int n = p.x.n, width = p.x.width, takes = draw_whether(c);
    p.x.o = p.o.x;
    p.x.scores = if_drawn(takes, &p.scores);
    TIME_IF_WANTED(c, states_of(c)->read(&p.x));
    states_of(c)->read(&p.x);
    for (int i = 0; i < n; i++)
        for (int e = 0; e < width; e++) {
            struct bounded sum = met_state(&p, i, e);
            for (int j = 0; j <= i && takes; j++)
                add_product(&sum, (double)p.scores.x[i * ATTN_CHUNK + j], (double)p.u.x[j * width + e]);
            expect_sum(c, "o", i, e, p.o.x[i * width + e], &sum, p.x.dk + 2 + i);
        }
    expect_panel_alone(c, &p, states_of(c)->read);
    expect_panel_read(c, &p);
    expect_read(c, "s", &p.s);
    expect_read(c, "u", &p.u);
}

/** S = decay S + the sum over tokens of k_j u_j' */
static void check_write(const struct tile_case *c)
{
    const int n = draw_tokens(c), lanes = c->set->lanes, most = states_of(c)->panel / lanes;
    const int width = lanes * (c->shape.plain ? most : (int)rng_range(c->rng, 1, most));
    const int64_t dk = c->shape.d;
    const int fades = draw_whether(c), by_rows = rng_percent(c->rng, 50);
    struct panel p = {.kt = draw_matrix(c, dk, n, ATTN_CHUNK),
                      .u = draw_matrix(c, n, width, width),
                      .s = draw_matrix(c, dk, width, width),
                      .decay = draw_decays(c, 1, by_rows ? dk : 1)};
    for (int64_t i = 0; i + 1 < dk; i++) /* keys behind the chunk */
        for (int j = n; j < ATTN_CHUNK; j++)
            p.kt.x[i * ATTN_CHUNK + j] = NAN;
    struct matrix *const all[] = {&p.kt, &p.u, &p.s, &p.decay};
    for (int i = 0; i < 4; i++) {
        if (i < 3)
            plant(c, all[i]);
        remember(all[i]);
    }
    p.x = (struct attn_chunk_panel){.n = n,
                                    .width = width,
                                    .dk = dk,
                                    .u = p.u.x,
                                    .kt = p.kt.x,
                                    .decay = {if_drawn(fades, &p.decay), by_rows},
                                    .s = p.s.x};
    draw_ahead(c, &p);
    TIME_IF_WANTED(c, states_of(c)->write(&p.x));
    states_of(c)->write(&p.x);
    for (int64_t i = 0; i < dk; i++)
        for (int e = 0; e < width; e++) {
            struct bounded sum = {0, 0};
            add_product(&sum, (double)p.s.before[i * width + e], fades ? (double)p.decay.x[by_rows ? i : 0] : 1);
            for (int j = 0; j < n; j++)
                add_product(&sum, (double)p.kt.x[i * ATTN_CHUNK + j], (double)p.u.x[j * width + e]);
            expect_sum(c, "s", i, e, p.s.x[i * width + e], &sum, n + 1);
        }
    expect_panel_alone(c, &p, states_of(c)->write);
    expect_panel_read(c, &p);
    expect_read(c, "u", &p.u);
}

static const struct row rows[] = {
    TILE_ROW("scores", HAS_STATES, check_scores), TILE_ROW("near_scores", HAS_STATES, check_near_scores),
    TILE_ROW("solve", HAS_STATES, check_solve),   TILE_ROW("read", HAS_STATES, check_read),
    TILE_ROW("write", HAS_STATES, check_write),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    const struct attn_state_kernels *k = set->kernels->states;
    (void)row;
    return k->scores && k->near_scores && k->solve && k->read && k->write;
}

const struct group group_state_products = {
    .name = "state_products",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
