/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of linear attention in double precision. Of each head of out by itself,
 * with S_t for what the state holds once token t has written, and R_t for the gradient
 * with respect to it:
 *
 *     S_t = a_t S_(t-1) + k_t v_t'
 *     R_t = scale q_t dO_t' + a_(t+1) R_(t+1)
 *     dq_t = scale S_t dO_t,   dk_t = R_t v_t,   dv_t = R_t' k_t
 *     dg_td = sum_e a_td S_(t-1)de R_tde,   g the exponent of a
 *
 * and dS, the gradient of the state before the first token, is a_0 R_0. A reset before token t is a_t = 0 with the
 * gradient 0. Where tokens read what all of a document write, S_t is its last S, and R_t its first R.
 *
 * Units are those of oracle_linear.c: V of S as there, without beta, and W of R the same way. A
 * sum over x y of numbers with variances X and Y has
 *
 *     sum (x^2 Y + y^2 X + (u x y)^2) + (u partial sums)^2
 *
 * and the gradient of a decay, which is a sum over all pairs of a token before it and one behind, whatever
 * S and R are by themselves, 4 u^2 times the squares of all its terms besides.
 *
 * A factor of decays below 2^-126 may be 0, so each unit has FLT_MIN times what all
 * products could be, without decay; numbers that f32 has no room for make it infinite.
 */
#include "oracle_linear_backward.h"

#include "dtype.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U        0x1p-24
#define DENORMAL 0x1p-149
#define LARGE    ((double)FLT_MAX * 0x1p-20)

static void *allocate(int64_t n)
{
    void *p = calloc(n > 0 ? (size_t)n : 1, sizeof(double));
    if (!p) {
        fprintf(stderr, "no memory for %lld numbers of the oracle\n", (long long)n);
        exit(1);
    }
    return p;
}

static double square(double x)
{
    return x * x;
}

/** A matrix, the variance of each of its numbers, and the sum of the squares of the terms that it is a sum of. */
struct matrix {
    double *x, *variance, *squares;
};

/** Rows of a tensor, which are read once. */
struct rows {
    double *x; /**< [tokens][width] */
    int64_t width;
    int alike; /**< all tokens have the same */
};

/** One head of out of one sequence. */
struct walk {
    const struct linear_inputs *in;
    const attn_tensor *d_out, *d_state;
    struct linear_gradients_reference *result;
    int64_t sequence, b, state, out_head, q_head, k_head, first, tokens, dk, dv;
    int reads_d_state; /**< what state_out's gradient gives counts with the first head that reads it */
    double scale, largest, top;
    struct rows q, k, v, d_rows; /**< of this head's tokens; d_rows are those of d_out */
    struct matrix *s, *r;        /**< [tokens + 1]: s[t + 1] is S_t; r[t] is R_t, r[tokens] that of state_out */
};

/** Adds a term of a sum to a number and its variance. */
static void add(struct linear_numbers *to, int64_t at, double value, double variance)
{
    to->value[at] += value;
    to->unit[at] += variance + square(U * to->value[at]);
}

static double decay_of(const struct walk *w, int64_t t, int64_t d, double *g)
{
    const attn_tensor *decay = w->in->params->decay;
    *g = decay ? (double)tensor_get(decay, w->b, w->state, w->first + t, d) : 0;
    return exp(*g);
}

static int is_reset(const struct walk *w, int64_t t)
{
    return linear_resets(w->in, w->b, w->state, w->first + t);
}

/** Tokens that have one decay, of which the error is the same, so that errors add up and not their squares. */
static double shared_by(const struct walk *w)
{
    const attn_tensor *decay = w->in->params->decay;
    return decay && (decay->shape[2] == 1 || decay->stride[2] == 0) ? (double)w->tokens : 1;
}

/** to = a_t from; from's document ends where t is reset. */
static void fade(const struct walk *w, const struct matrix *from, const struct matrix *to, int64_t t)
{
    for (int64_t d = 0; d < w->dk; d++) {
        double g = 0, a = 0; /* of a reset */
        if (!is_reset(w, t))
            a = decay_of(w, t, d, &g);
        for (int64_t i = d * w->dv; i < (d + 1) * w->dv; i++) {
            to->x[i] = a == 0 ? 0 : a * from->x[i];
            to->variance[i] = a == 0 ? 0 : square(a) * from->variance[i];
            to->squares[i] = a == 0 ? 0 : square(a) * from->squares[i];
            to->variance[i] += g == 0 ? 0 : shared_by(w) * 5 * square(U * to->x[i]) + square(DENORMAL);
        }
    }
}

static struct rows load_rows(const struct walk *w, const attn_tensor *t, int64_t head)
{
    const int64_t width = t->shape[3];
    const struct rows rows = {allocate(w->tokens * width), width, t->stride[2] == 0};
    for (int64_t i = 0; i < w->tokens; i++)
        for (int64_t c = 0; c < width; c++)
            rows.x[i * width + c] = (double)tensor_get(t, w->b, head, w->first + i, c);
    return rows;
}

/** As fmax(), which is a call of a library here. */
static double larger(double a, double b)
{
    return b > a ? b : a;
}

/** to += factor row column', both of token t. Where all tokens have the same, all additions may round the same way. */
static void write_product(struct walk *w, const struct matrix *to, double factor, const struct rows *rows,
                          const struct rows *columns, int64_t t)
{
    const double alike = rows->alike && columns->alike ? (double)w->tokens : 1;
    const double *const column = columns->x + t * w->dv;
    double largest = w->largest, top = w->top;
    for (int64_t d = 0; d < w->dk; d++) {
        const double row = factor * rows->x[t * w->dk + d];
        double *const x = to->x + d * w->dv, *const variance = to->variance + d * w->dv;
        double *const squares = to->squares + d * w->dv;
        for (int64_t e = 0; e < w->dv; e++) {
            const double product = row * column[e];
            x[e] += product;
            squares[e] += square(product);
            variance[e] += alike * (2 * square(U * product) + square(U * x[e])) + square(DENORMAL);
            largest = larger(largest, fabs(x[e]));
            top = larger(top, fabs(product));
        }
    }
    w->largest = largest;
    w->top = top;
}

static void copy(const struct walk *w, const struct matrix *from, const struct matrix *to)
{
    memcpy(to->x, from->x, (size_t)(w->dk * w->dv) * sizeof(double));
    memcpy(to->variance, from->variance, (size_t)(w->dk * w->dv) * sizeof(double));
    memcpy(to->squares, from->squares, (size_t)(w->dk * w->dv) * sizeof(double));
}

static void load(struct walk *w, const attn_tensor *t, const struct matrix *to)
{
    for (int64_t d = 0; d < w->dk; d++)
        for (int64_t e = 0; e < w->dv; e++) {
            to->x[d * w->dv + e] = t ? (double)tensor_get(t, w->sequence, w->state, d, e) : 0;
            to->variance[d * w->dv + e] = 0;
            to->squares[d * w->dv + e] = square(to->x[d * w->dv + e]);
            w->largest = larger(w->largest, fabs(to->x[d * w->dv + e]));
            w->top = larger(w->top, fabs(to->x[d * w->dv + e]));
        }
}

/** All S_t and R_t. */
static void find_states(struct walk *w)
{
    const struct linear_inputs *in = w->in;
    load(w, in->params->state_in, &w->s[0]);
    load(w, w->reads_d_state ? w->d_state : NULL, &w->r[w->tokens]);
    for (int64_t t = 0; t < w->tokens; t++) {
        fade(w, &w->s[t], &w->s[t + 1], t);
        write_product(w, &w->s[t + 1], 1, &w->k, &w->v, t);
    }
    for (int64_t t = w->tokens - 1; t >= 0; t--) {
        if (t + 1 < w->tokens)
            fade(w, &w->r[t + 1], &w->r[t], t + 1);
        else
            copy(w, &w->r[t + 1], &w->r[t]);
        write_product(w, &w->r[t], w->scale, &w->q, &w->d_rows, t);
    }
    for (int64_t t = 1; t < w->tokens && in->params->bidirectional; t++)
        if (!is_reset(w, t))
            copy(w, &w->r[t - 1], &w->r[t]);
    for (int64_t t = w->tokens - 2; t >= 0 && in->params->bidirectional; t--)
        if (!is_reset(w, t + 1))
            copy(w, &w->s[t + 2], &w->s[t + 1]);
}

/** Number at of one of the results += factor times the sum of a row, or column, of m times row t of a tensor. */
static void add_row(struct walk *w, enum linear_gradient of, int64_t at, const struct matrix *m, int64_t first,
                    int64_t step, double factor, const struct rows *rows, int64_t t)
{
    double sum = 0, variance = 0;
    for (int64_t i = 0; i < rows->width; i++) {
        const double x = m->x[first + i * step], y = rows->x[t * rows->width + i];
        sum += x * y;
        variance += square(y) * (m->variance[first + i * step] + square(U * x)) + square(U * sum) + square(DENORMAL);
    }
    add(&w->result->of[of], at, factor * sum, square(factor) * variance + square(U * factor * sum));
}

/** The place of an element of a contiguous tensor of a shape, whose axes may have the length 1. */
static int64_t place(const attn_tensor *shape, int64_t b, int64_t h, int64_t t, int64_t c)
{
    const int64_t *n = shape->shape;
    return (((n[0] > 1 ? b : 0) * n[1] + (n[1] > 1 ? h : 0)) * n[2] + (n[2] > 1 ? t : 0)) * n[3] + (n[3] > 1 ? c : 0);
}

static void add_decays(struct walk *w, int64_t t)
{
    const attn_tensor *decay = w->in->params->decay;
    for (int64_t d = 0; decay && d < w->dk && !is_reset(w, t); d++) {
        double g, sum = 0, variance = 0;
        const double a = decay_of(w, t, d, &g);
        for (int64_t i = d * w->dv; i < (d + 1) * w->dv && a > 0; i++) {
            const double s = a * w->s[t].x[i], r = w->r[t].x[i];
            sum += s * r;
            variance += square(s) * w->r[t].variance[i] + square(a * r) * w->s[t].variance[i];
            variance += 8 * square(U * s * r) + square(U * sum) + square(DENORMAL);
            variance += 4 * square(U * a) * w->s[t].squares[i] * w->r[t].squares[i];
        }
        /* What is off in S is so at each token whose decay this is. */
        add(&w->result->of[LINEAR_DDECAY], place(decay, w->b, w->state, w->first + t, d), sum,
            variance * (decay->shape[2] == 1 ? (double)w->tokens : 1));
    }
}

static void add_state(struct walk *w)
{
    const struct linear_numbers *to = &w->result->of[LINEAR_DSTATE];
    const int64_t at = (w->sequence * w->in->v->shape[1] + w->state) * w->dk * w->dv;
    if (w->tokens > 0)
        fade(w, &w->r[0], &w->s[0], 0);
    else
        copy(w, &w->r[0], &w->s[0]);
    for (int64_t i = 0; i < w->dk * w->dv; i++) {
        to->value[at + i] += w->s[0].x[i];
        to->unit[at + i] += w->s[0].variance[i] + square(U * to->value[at + i]);
    }
}

/** The units of a head: what it might have lost, or all. */
static void add_lost(struct walk *w, double *lost)
{
    const double all = (double)(w->tokens + 1) * (double)(w->dk + w->dv) * fmax(w->top, 1) * fmax(w->largest, 1);
    *lost = fmax(*lost, w->largest > LARGE ? (double)INFINITY : (FLT_MIN + 64 * DENORMAL) * square(all));
}

static void walk_head(struct walk *w)
{
    const struct linear_inputs *in = w->in;
    w->q = load_rows(w, in->q, w->q_head);
    w->k = load_rows(w, in->k, w->k_head);
    w->v = load_rows(w, in->v, w->state);
    w->d_rows = load_rows(w, w->d_out, w->out_head);
    find_states(w);
    for (int64_t t = 0; t < w->tokens; t++) {
        const int64_t token = w->first + t;
        for (int64_t d = 0; d < w->dk; d++) {
            add_row(w, LINEAR_DQ, place(in->q, w->b, w->q_head, token, d), &w->s[t + 1], d * w->dv, 1, w->scale,
                    &w->d_rows, t);
            add_row(w, LINEAR_DK, place(in->k, w->b, w->k_head, token, d), &w->r[t], d * w->dv, 1, 1, &w->v, t);
        }
        for (int64_t e = 0; e < w->dv; e++)
            add_row(w, LINEAR_DV, place(in->v, w->b, w->state, token, e), &w->r[t], e, w->dv, 1, &w->k, t);
        add_decays(w, t);
    }
    add_state(w);
    free(w->q.x);
    free(w->k.x);
    free(w->v.x);
    free(w->d_rows.x);
}

static struct linear_numbers numbers_like(const attn_tensor *t)
{
    const int64_t count = t ? t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] : 0;
    return (struct linear_numbers){count, allocate(count), allocate(count), allocate(count)};
}

struct linear_gradients_reference linear_gradients_compute(const struct linear_inputs *in, const attn_tensor *d_out,
                                                           const attn_tensor *d_state)
{
    const int64_t dk = in->q->shape[3], dv = in->v->shape[3], heads = in->v->shape[1];
    const attn_tensor states = {.shape = {linear_sequences(in), heads, dk, dv}};
    struct linear_gradients_reference result = {.of = {numbers_like(in->q), numbers_like(in->k), numbers_like(in->v),
                                                       numbers_like(in->params->decay), numbers_like(&states)}};
    double lost = 0;
    for (int64_t s = 0; s < linear_sequences(in); s++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < linear_readers_of(in, h).count; i++) {
                const int64_t first = linear_first(in, s), tokens = linear_end(in, s) - first;
                const int64_t out_head = linear_readers_of(in, h).first + i;
                double *memory = allocate(6 * (tokens + 1) * dk * dv);
                struct matrix *matrices = allocate(6 * (tokens + 1));
                struct walk w = {.in = in,
                                 .d_out = d_out,
                                 .d_state = d_state,
                                 .result = &result,
                                 .sequence = s,
                                 .b = linear_batch(in, s),
                                 .state = h,
                                 .out_head = out_head,
                                 .q_head = linear_query_head(in, out_head),
                                 .k_head = linear_key_head(in, h),
                                 .first = first,
                                 .tokens = tokens,
                                 .dk = dk,
                                 .dv = dv,
                                 .reads_d_state = i == 0,
                                 .scale = in->params->scale != 0 ? (double)in->params->scale
                                          : dk > 0               ? 1 / sqrt((double)dk)
                                                                 : 1,
                                 .s = matrices,
                                 .r = matrices + tokens + 1};
                for (int64_t m = 0; m < 2 * (tokens + 1); m++)
                    matrices[m] = (struct matrix){memory + 3 * m * dk * dv, memory + (3 * m + 1) * dk * dv,
                                                  memory + (3 * m + 2) * dk * dv};
                walk_head(&w);
                add_lost(&w, &lost);
                free(memory);
                free(matrices);
            }
    for (int of = 0; of < LINEAR_GRADIENTS; of++)
        for (int64_t i = 0; i < result.of[of].count; i++)
            result.of[of].unit[i] = sqrt(result.of[of].unit[i]) + (result.of[of].value[i] != 0 ? lost : 0);
    return result;
}

void linear_gradients_free(struct linear_gradients_reference *reference)
{
    for (int i = 0; i < LINEAR_GRADIENTS; i++) {
        free(reference->of[i].value);
        free(reference->of[i].unit);
        free(reference->of[i].naive_error);
    }
    memset(reference, 0, sizeof *reference);
}
