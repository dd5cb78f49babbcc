/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands of the functions of linear attention: matrices that remember what they
 * held, decays, what is not finite, and sums in double with a bound of their error.
 */
#ifndef KERNELS_STATE_OPERANDS_H
#define KERNELS_STATE_OPERANDS_H

#include "kernels/states.h"
#include "operands.h"

#include <math.h>
#include <string.h>

/** Rows of floats, pitch apart, of which the last one ends with its columns. */
struct matrix {
    float *x;
    const float *before; /**< its floats as they were when they were remembered */
    int64_t rows, columns;
    ptrdiff_t pitch;
};

static inline const struct attn_state_kernels *states_of(const struct tile_case *c)
{
    return c->set->kernels->states;
}

static inline int64_t whole_vectors(const struct tile_case *c, int64_t n)
{
    return attn_in_steps(n, c->set->lanes);
}

/** Tokens of a chunk: mostly about as many as there are lanes, or rows of a register tile, else up to all. */
static inline int draw_tokens(const struct tile_case *c)
{
    return c->shape.plain ? ATTN_CHUNK : (int)rng_range(c->rng, 1, rng_percent(c->rng, 60) ? 27 : ATTN_CHUNK);
}

static inline int64_t floats_of(const struct matrix *m)
{
    return (m->rows - 1) * (int64_t)m->pitch + m->columns;
}

static inline struct matrix draw_matrix(const struct tile_case *c, int64_t rows, int64_t columns, ptrdiff_t pitch)
{
    struct matrix m = {.rows = rows, .columns = columns, .pitch = pitch};
    m.x = operand_place(c, (size_t)floats_of(&m) * sizeof *m.x);
    for (int64_t i = 0; i < floats_of(&m); i++)
        m.x[i] = rng_normal(c->rng);
    return m;
}

static inline ptrdiff_t draw_pitch(const struct tile_case *c, int64_t columns)
{
    return (ptrdiff_t)columns + (c->shape.plain || rng_percent(c->rng, 30) ? 0 : (ptrdiff_t)rng_range(c->rng, 1, 9));
}

/** The same with some floats between rows, which are NaN. */
static inline struct matrix draw_rows_apart(const struct tile_case *c, int64_t rows, int64_t columns)
{
    struct matrix m = draw_matrix(c, rows, columns, draw_pitch(c, columns));
    for (int64_t r = 0; r + 1 < rows; r++)
        for (int64_t i = columns; i < m.pitch; i++)
            m.x[r * m.pitch + i] = NAN;
    return m;
}

/** In wild cases, puts one number among the columns that is not finite, or 0. */
static inline void plant(const struct tile_case *c, struct matrix *m)
{
    if (!c->shape.wild || c->shape.plain || rng_percent(c->rng, 50))
        return;
    m->x[rng_range(c->rng, 0, m->rows - 1) * m->pitch + rng_range(c->rng, 0, m->columns - 1)] =
        (float[]){NAN, INFINITY, -INFINITY, 0.0f}[rng_range(c->rng, 0, 3)];
}

/** Factors of a decay; products of a chunk's are 0 or far from denormal. */
static inline struct matrix draw_decays(const struct tile_case *c, int64_t rows, int64_t columns)
{
    struct matrix m = draw_matrix(c, rows, columns, (ptrdiff_t)columns);
    const int zeros = rng_percent(c->rng, 50);
    for (int64_t i = 0; i < floats_of(&m); i++) {
        const float usual = 0.3f + 0.7f * (float)rng_uniform(c->rng);
        m.x[i] = c->shape.plain                    ? 0.99f
                 : rng_percent(c->rng, 15)         ? 1.0f
                 : zeros && rng_percent(c->rng, 4) ? 0.0f
                                                   : usual;
    }
    return m;
}

/** NULL or what some operand is. */
static inline const float *if_drawn(int drawn, const struct matrix *m)
{
    return drawn ? m->x : NULL;
}

/** Whether an operand that may be NULL is there; when a call is timed, it is. */
static inline int draw_whether(const struct tile_case *c)
{
    return c->shape.plain || rng_percent(c->rng, 60);
}

static inline void remember(struct matrix *m)
{
    m->before = operand_copy(m->x, (size_t)floats_of(m) * sizeof *m->x);
}

/** Row r has been left alone from a column on, up to the next row. */
static inline void expect_kept(const struct tile_case *c, const char *what, const struct matrix *m, int64_t r,
                               int64_t from)
{
    const int64_t end = r + 1 < m->rows ? m->pitch : m->columns;
    for (int64_t i = from; i < end; i++) {
        uint32_t bits[2];
        memcpy(&bits[0], m->x + r * m->pitch + i, sizeof *bits);
        memcpy(&bits[1], m->before + r * m->pitch + i, sizeof *bits);
        expect_word(c, what, r, i, bits[0], bits[1]);
    }
}

/** All of it has been left alone: it was to be read, or belongs to others. */
static inline void expect_read(const struct tile_case *c, const char *what, const struct matrix *m)
{
    for (int64_t r = 0; r < m->rows && m->x; r++)
        expect_kept(c, what, m, r, 0);
}

/**
 * A number in double, and a bound for the error of the same computed in floats. A sum of
 * products of which no term goes through more than k roundings is off by at most k u, and
 * what is of the order of (k u)^2, times the sum of the sizes of its terms: u = 2^-24.
 */
struct bounded {
    double exact, size;
};

#define UNIT 0x1p-24

static inline void add_product(struct bounded *sum, double a, double b)
{
    sum->exact += a * b;
    sum->size += fabs(a * b);
}

static inline void multiply_by(struct bounded *sum, double factor)
{
    sum->exact *= factor;
    sum->size *= fabs(factor);
}

/** Reports a number farther from what is exact than a bound, or not finite where that is, or in another way. */
static inline void expect_within(const struct tile_case *c, const char *what, int64_t i, int64_t lane, float got,
                                 double exact, double bound)
{
    const int same = isnan(exact)   ? isnan(got)
                     : isinf(exact) ? (double)got == exact
                                    : fabs((double)got - exact) <= bound;
    if (!same)
        report_failure(c->run, c->number, "%s[%lld][%lld] is %a, expected %a within %a (%d lanes)", what, (long long)i,
                       (long long)lane, (double)got, exact, bound, c->set->lanes);
}

/** The same after k roundings; less than 0.1 % of all k u here are of second order. */
static inline void expect_sum(const struct tile_case *c, const char *what, int64_t i, int64_t lane, float got,
                              const struct bounded *sum, int64_t k)
{
    expect_within(c, what, i, lane, got, sum->exact, 1.001 * (double)k * UNIT * sum->size);
}

#endif
