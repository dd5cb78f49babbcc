/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Panels of a state whose columns fade (state_columns.h), held to the formulas of
 * states.h in double. Bounds are those of state_products.c: roundings that a term goes
 * through, times the sizes of all terms.
 */
#include "state_operands.h"

/** Columns of a panel: whole vectors. */
static int draw_width(const struct tile_case *c)
{
    const int panel = states_of(c)->panel;
    return c->shape.plain ? panel : c->set->lanes * (int)rng_range(c->rng, 1, panel / c->set->lanes);
}

static double at(const struct matrix *m, int64_t r, int64_t i)
{
    return (double)m->before[r * m->pitch + i];
}

static void check_fade_columns(const struct tile_case *c)
{
    const int width = draw_width(c), n = draw_tokens(c), in_place = !c->shape.plain && rng_percent(c->rng, 30);
    struct matrix from = draw_matrix(c, n, width, draw_pitch(c, width)), by = draw_matrix(c, 1, width, width);
    struct matrix to = in_place ? from : draw_matrix(c, n, width, draw_pitch(c, width));
    plant(c, &from);
    struct matrix *const all[] = {&from, &by, &to};
    for (int i = 0; i < 3; i++)
        remember(all[i]);
    TIME_IF_WANTED(c, states_of(c)->fade_columns(to.x, to.pitch, from.x, from.pitch, n, width, by.x));
    states_of(c)->fade_columns(to.x, to.pitch, from.x, from.pitch, n, width, by.x);
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < width; i++)
            expect_float(c, "to", r, i, to.x[r * to.pitch + i], from.before[r * from.pitch + i] * by.x[i]);
        expect_kept(c, "gap", &to, r, width);
    }
    if (!in_place)
        expect_read(c, "from", &from);
    expect_read(c, "by", &by);
}

static void check_add_numbers(const struct tile_case *c)
{
    const int64_t n = draw_width(c) * (int64_t)draw_tokens(c);
    struct matrix to = draw_matrix(c, 1, n, (ptrdiff_t)n), from = draw_matrix(c, 1, n, (ptrdiff_t)n);
    plant(c, &from);
    remember(&to);
    remember(&from);
    TIME_IF_WANTED(c, states_of(c)->add_numbers(to.x, from.x, n));
    states_of(c)->add_numbers(to.x, from.x, n);
    for (int64_t i = 0; i < n; i++)
        expect_float(c, "to", 0, i, to.x[i], to.before[i] + from.x[i]);
    expect_read(c, "from", &from);
}

/** The decays of a column from token j on up to token i. */
static double decays_between(const struct matrix *decay, int j, int i, int64_t column)
{
    double product = 1;
    for (int t = j + 1; t <= i; t++)
        product *= at(decay, t, column);
    return product;
}

static void check_near_columns(const struct tile_case *c)
{
    const int width = draw_width(c),
              n = c->shape.plain ? ATTN_NEAR_TOKENS : (int)rng_range(c->rng, 1, ATTN_NEAR_TOKENS);
    struct matrix scores = draw_matrix(c, n, n, ATTN_CHUNK), u = draw_matrix(c, n, width, width);
    struct matrix decay = draw_decays(c, n, width), o = draw_matrix(c, n, width, width);
    struct matrix partners = draw_matrix(c, n, width, width), sums = draw_matrix(c, n, width, draw_pitch(c, width));
    const int wanted = draw_whether(c), backwards = !c->shape.plain && rng_percent(c->rng, 30);
    const float factor = rng_normal(c->rng);
    for (int r = 0; r < n; r++)
        for (int64_t i = r + 1; i < (r + 1 < n ? ATTN_CHUNK : n); i++) /* tokens behind a row's own */
            scores.x[r * ATTN_CHUNK + i] = NAN;
    for (int i = 0; i < width; i++) /* no pair is on both sides of the first token */
        decay.x[i] = NAN;
    plant(c, &u);
    struct matrix *const all[] = {&scores, &u, &decay, &o, &partners, &sums};
    for (int i = 0; i < 6; i++)
        remember(all[i]);
    struct attn_near_columns x = {.n = n, .width = width, .scores = scores.x, .u = u.x, .decay = decay.x, .o = o.x};
    if (wanted) /* sums in the order of rows, or from the last to the first */
        x.partners = (struct attn_partners){.rows = partners.x,
                                            .factor = factor,
                                            .sums = backwards ? sums.x + (n - 1) * sums.pitch : sums.x,
                                            .pitch = backwards ? -sums.pitch : sums.pitch};
    TIME_IF_WANTED(c, states_of(c)->near_columns(&x));
    states_of(c)->near_columns(&x);
    for (int i = 0; i < n; i++)
        for (int e = 0; e < width; e++) {
            struct bounded read = {0, 0}, sum = {0, 0};
            add_product(&read, at(&o, i, e), 1);
            for (int j = 0; j <= i; j++)
                add_product(&read, at(&scores, i, j) * decays_between(&decay, j, i, e), at(&u, j, e));
            expect_sum(c, "o", i, e, o.x[i * width + e], &read, 2 * n + 2);
            for (int j = 0; j < i; j++) /* all pairs around token i */
                for (int later = i; later < n; later++)
                    add_product(&sum, at(&scores, later, j) * decays_between(&decay, j, later, e) * at(&u, j, e),
                                (double)factor * at(&partners, later, e));
            const int64_t row = backwards ? n - 1 - i : i;
            add_product(&sum, at(&sums, row, e), 1);
            if (wanted)
                expect_sum(c, "sums", row, e, sums.x[row * sums.pitch + e], &sum, 4 * n + 6);
        }
    for (int r = 0; r < n; r++)
        expect_kept(c, "gap", &sums, r, wanted ? width : 0);
    expect_read(c, "scores", &scores);
    expect_read(c, "u", &u);
    expect_read(c, "decay", &decay);
    expect_read(c, "partners", &partners);
}

static void check_sum_later(const struct tile_case *c)
{
    const int width = draw_width(c), n = draw_tokens(c), skip = !c->shape.plain && rng_percent(c->rng, 50);
    const int add = draw_whether(c);
    struct matrix rows = draw_matrix(c, n, width, width), o = draw_matrix(c, n, width, width);
    struct matrix sums = draw_matrix(c, n, width, draw_pitch(c, width));
    const float factor = rng_normal(c->rng);
    plant(c, &o);
    for (int i = 0; i < width && !add; i++)
        sums.x[skip * sums.pitch * (n > 1) + i] = NAN; /* it is not read */
    struct matrix *const all[] = {&rows, &o, &sums};
    for (int i = 0; i < 3; i++)
        remember(all[i]);
    const struct attn_partners x = {.rows = rows.x, .factor = factor, .sums = sums.x, .pitch = sums.pitch};
    TIME_IF_WANTED(c, states_of(c)->sum_later(&x, o.x, n, width, skip, add));
    states_of(c)->sum_later(&x, o.x, n, width, skip, add);
    for (int r = 0; r < n; r++)
        for (int e = 0; e < width && r >= skip; e++) {
            struct bounded sum = {0, 0};
            if (add)
                add_product(&sum, at(&sums, r, e), 1);
            for (int i = r; i < n; i++)
                add_product(&sum, (double)factor * at(&rows, i, e), at(&o, i, e));
            expect_sum(c, "sums", r, e, sums.x[r * sums.pitch + e], &sum, n + 3);
        }
    for (int r = 0; r < n; r++)
        expect_kept(c, "gap", &sums, r, r < skip ? 0 : width);
    expect_read(c, "rows", &rows);
    expect_read(c, "o", &o);
}

static void check_add_products(const struct tile_case *c)
{
    const int width = draw_width(c), n = draw_tokens(c);
    const int64_t rows = c->shape.d;
    struct matrix sums = draw_matrix(c, n, width, draw_pitch(c, width)), by = draw_matrix(c, 1, width, width);
    struct matrix a = draw_matrix(c, rows, width, draw_pitch(c, width)), b = draw_matrix(c, rows, width, width);
    plant(c, &a);
    struct matrix *const all[] = {&sums, &by, &a, &b};
    for (int i = 0; i < 4; i++)
        remember(all[i]);
    TIME_IF_WANTED(c, states_of(c)->add_products(sums.x, sums.pitch, n, width, by.x, a.x, a.pitch, b.x, rows));
    states_of(c)->add_products(sums.x, sums.pitch, n, width, by.x, a.x, a.pitch, b.x, rows);
    for (int e = 0; e < width; e++) {
        struct bounded product = {0, 0};
        for (int64_t r = 0; r < rows; r++)
            add_product(&product, at(&a, r, e), at(&b, r, e));
        multiply_by(&product, at(&by, 0, e));
        for (int r = 0; r < n; r++) {
            struct bounded sum = product;
            add_product(&sum, at(&sums, r, e), 1);
            expect_sum(c, "sums", r, e, sums.x[r * sums.pitch + e], &sum, rows + 3);
        }
    }
    for (int r = 0; r < n; r++)
        expect_kept(c, "gap", &sums, r, width);
    expect_read(c, "by", &by);
    expect_read(c, "a", &a);
    expect_read(c, "b", &b);
}

static const struct row rows[] = {
    TILE_ROW("fade_columns", HAS_STATES, check_fade_columns), TILE_ROW("add_numbers", HAS_STATES, check_add_numbers),
    TILE_ROW("near_columns", HAS_STATES, check_near_columns), TILE_ROW("sum_later", HAS_STATES, check_sum_later),
    TILE_ROW("add_products", HAS_STATES, check_add_products),
};

static int has_code(const struct row *row, const struct kernel_set *set)
{
    const struct attn_state_kernels *k = set->kernels->states;
    (void)row;
    return k->fade_columns && k->add_numbers && k->near_columns && k->sum_later && k->add_products;
}

const struct group group_state_columns = {
    .name = "state_columns",
    .rows = rows,
    .num_rows = sizeof rows / sizeof *rows,
    .has_code = has_code,
    .check = check_tiles,
    .time = time_tile,
};
