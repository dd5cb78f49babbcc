/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of attention in double precision, a query and a key at a time.
 *
 * For query i with the log-sum-exp L_i, a key j that it sees, whose score is
 * s_ij = softcap(x_ij) + biases with x_ij = scale q_i·k_j, and what dropout
 * multiplies the weight by, M_ij:
 *
 *     P_ij  = exp(s_ij - L_i)
 *     D_i   = sum_c dO_ic O_ic                      (= sum_j P_ij M_ij dO_i·v_j)
 *     G_ij  = M_ij dO_i·v_j - D_i + dL_i
 *     dS_ij = P_ij G_ij                             with respect to s_ij and its biases
 *     dX_ij = dS_ij (1 - tanh^2(x_ij / softcap))    with respect to x_ij
 *     dV_j += M_ij P_ij dO_i,   dQ_i += scale dX_ij k_j,   dK_j += scale dX_ij q_i
 *
 * With terms by distance q_i·a + k_j·b is added to q_i·k_j, a and b rows of tables:
 * each of the four has the gradient scale dX_ij times what it is multiplied by.
 *
 * A sink is a key whose value is 0: dS = exp(sink - L_i) (dL_i - D_i). Rotated q
 * and k stand for q and k, and their gradients are rotated back at the end.
 *
 * Units. With u = 2^-24, a_ij the size of s_ij (oracle_score.c), one relative
 * rounding at each place moves P_ij by w_ij = P_ij (e^x - 1), x = u (a_ij + |L_i|),
 * and by u P_ij; G_ij by u times the sizes of all terms in it; a product and a
 * sum of products by what moves its factors and by u of its size. Sizes add up:
 * nothing cancels. Where x is large, f32 says nothing of the weight, unless it is 0
 * for all that x may be: the unit is infinite.
 *
 * Slack. Where the kernels multiply pairs of bf16, M_ij P_ij and dX_ij are rounded
 * to bf16, each by a factor 1 + e with |e| <= W. What that can do to a sum of
 * terms t is at most W sum |t|. If the e are independent it is at most 8 W
 * sqrt(sum t^2) but once in 10^13 times (Hoeffding), and if they are all alike W
 * |sum t|. The smaller of the first and of the sum of the other two counts. To
 * this comes what the instruction takes for 0: products and operands that are
 * denormal.
 */
#include "naive_backward.h"
#include "oracle_backward.h"
#include "oracle_score.h"

#include "dtype.h"
#include "test_isa.h"
#include "tolerance.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/** W, as in oracle.c. */
#define WEIGHT_ROUNDING (0x1p-8 * 1.03)

/** Standard deviations, so to say, that a sum of independent roundings stays within. */
#define HOEFFDING 8

/** Scores that are so far below the log-sum-exp have no weight in f32, denormals counted. */
#define NO_WEIGHT (-110)

/** Sums of terms below this have room in f32. */
#define LARGE ((double)FLT_MAX * 0x1p-20)

/** Weights below this may be 0. */
#define SAFE_WEIGHT 1e-30

int backward_rounds_weights(const struct backward_inputs *in)
{
    return reference_rounds_weights(in->q, in->k, in->v, in->params) && in->d_out->dtype == ATTN_BF16;
}

/** Sums of the sizes of an element's terms, and of their squares. */
struct terms {
    double *size, *square;
};

struct backward {
    const struct backward_inputs *in;
    struct oracle_inputs inputs;
    attn_tensor d_out; /**< f32 */
    double *out, *lse; /**< [batch][heads][tq][dv], [batch][heads][tq] */
    struct backward_reference *result;
    struct terms terms[GRADIENTS];
    unsigned char *sees; /**< [batch][heads][tq] whether a query sees a key */
    double tiny;         /**< what the rounding of a product at the bottom of the range can be */
};

/** An addend, with what one rounding at each place before it does to it. */
struct uncertain {
    double value, error;
};

static void add_term(struct backward *work, enum gradient_of of, int64_t at, double factor, struct uncertain x)
{
    struct gradient *g = &work->result->of[of];
    const double term = factor * x.value;
    g->value[at] += term;
    g->unit[at] += isinf(x.error)   ? INFINITY
                   : isfinite(term) ? fabs(factor) * x.error + U * fabs(term) + work->tiny
                                    : 0;
    work->terms[of].size[at] += fabs(term);
    work->terms[of].square[at] += term * term;
}

/** Adds x times a row of n numbers to a row of a gradient; sizes: of the numbers, or NULL: they are exact. */
static void add_row(struct backward *work, enum gradient_of of, int64_t at, struct uncertain x, const double *row,
                    const double *sizes, double factor, int64_t n)
{
    double *value = work->result->of[of].value + at, *unit = work->result->of[of].unit + at;
    double *size = work->terms[of].size + at, *square = work->terms[of].square + at;
    const double lost = work->result->rounds_weights ? (double)FLT_MIN : 0; /* an operand that is denormal */
    const double f = factor * x.value, error = fabs(factor) * (x.error + lost);
    const double tiny = work->tiny * fmax(1, fabs(factor));
    for (int64_t c = 0; c < n; c++) {
        const double term = f * row[c];
        value[c] += term;
        unit[c] += isfinite(term) ? error * fabs(row[c]) + U * fabs(term) + tiny : 0;
        size[c] += fabs(term);
        square[c] += term * term;
    }
    for (int64_t c = 0; c < n && isinf(x.error); c++)
        unit[c] = INFINITY;
    /* Roundings of the rotation; and products of a factor and of numbers that are denormal. */
    for (int64_t c = 0; sizes && c < n; c++)
        unit[c] += isfinite(f * sizes[c]) ? 2 * U * fabs(f) * sizes[c] : 0;
    if (!isfinite(x.value))
        return;
    for (int64_t c = 0; c < n; c++) {
        unit[c] += 0x1p-149 * (fabs(f) + fabs(x.value));
        if (isfinite(row[c]) && fabs(x.value * row[c]) > LARGE) /* the factor comes too late */
            unit[c] = INFINITY;
    }
}

/** Row i of a tensor of f32, in double. */
static void load_row(const attn_tensor *t, int64_t b, int64_t h, int64_t i, double *row)
{
    const int64_t n = t->shape[3];
    const float *from = n ? (const float *)t->data + tensor_offset(t, b, h, i, 0) : NULL;
    for (int64_t c = 0; c < n; c++)
        row[c] = (double)from[c];
}

/** What is known of a row before its keys. */
struct row_gradient {
    double *d_out, *q, *q_size, *k, *k_size, *v; /**< rows; sizes NULL without rope */
    double lse, d_lse, d, d_size;
};

/** P of a score of some size, and what moves it. An infinite error: it may be anything. */
static struct uncertain weight_of(double score, double size, double lse)
{
    const double log_p = score - lse, p = exp(log_p), x = U * (size + fabs(lse));
    if (isnan(p) || score == -INFINITY)
        return (struct uncertain){p, 0};
    if (log_p + SCORE_ROUNDINGS * x < NO_WEIGHT)
        return (struct uncertain){p, exp(log_p + SCORE_ROUNDINGS * x)};
    if (!(x < 0.1)) /* of a score and a log-sum-exp that are both off, exp() may be anything */
        return (struct uncertain){fmin(p, 1), INFINITY};
    return (struct uncertain){p, p * (expm1(x) + U) + (p < SAFE_WEIGHT ? (double)FLT_MIN : 0)};
}

static struct uncertain product(struct uncertain a, struct uncertain b)
{
    const double value = a.value * b.value;
    if (isinf(a.error) || isinf(b.error))
        return (struct uncertain){value, INFINITY};
    if (!isfinite(value))
        return (struct uncertain){value, 0};
    return (struct uncertain){value, a.error * fabs(b.value) + (fabs(a.value) + a.error) * b.error + U * fabs(value) +
                                         0x1p-149};
}

/** 1 - tanh^2(x / softcap) of the product that one rounding moves by u size. */
static struct uncertain slope_of(double x, double size, double softcap)
{
    const double t = tanh(x / softcap), slope = 1 / cosh(x / softcap) / cosh(x / softcap);
    if (isnan(x))
        return (struct uncertain){NAN, 0};
    if (isinf(x))
        return (struct uncertain){0, 2 * U};
    const double nearest = fmax(fabs(x) - SCORE_ROUNDINGS * U * size, 0) / softcap;
    /* Near the smallest number a rounding is no longer a share of what it rounds: product, cap and capped score. */
    const double lost = 0x1p-149 / softcap;
    const double off = U * (size + fabs(x)) / softcap + lost * (1 + fabs(x) / softcap);
    const double moved = 2 * fmin(off / cosh(nearest) / cosh(nearest), 1);
    return (struct uncertain){slope, fmin(moved, 1) + 2 * (U + lost) * fabs(t)};
}

/** The slope of the callback, which its partner knows, at a score that may be off. */
static struct uncertain slope_of_callback(const struct backward *work, const struct oracle_row *row, int64_t token)
{
    const struct backward_inputs *in = work->in;
    if (!in->callback)
        return (struct uncertain){1, 0};
    const int64_t j = token - row->query.first_key;
    const double score = row->called[token], off = SCORE_ROUNDINGS * U * row->called_size[token];
    double at[3];
    for (int i = 0; i < 3; i++)
        at[i] = (double)oracle_callback_slope(in->callback, in->callback_user, &row->query, j,
                                              (float)(i && isfinite(off) ? score + (i - 1.5) * 2 * off : score));
    return (struct uncertain){at[0], fmax(fabs(at[1] - at[0]), fabs(at[2] - at[0])) + 2 * U * fabs(at[0])};
}

/** M dO·v - D + dL. */
static struct uncertain score_gradient(const struct backward *work, const struct row_gradient *r, double kept)
{
    const int64_t dv = work->inputs.v.shape[3];
    double dot = 0, size = 0, lost = 0;
    for (int64_t c = 0; c < dv; c++) {
        dot += r->d_out[c] * r->v[c];
        size += fabs(r->d_out[c] * r->v[c]);
    }
    lost = (double)dv * work->tiny;
    if (kept == 0 && isfinite(dot))
        size = lost = 0;
    const double value = kept * dot - r->d + r->d_lse;
    const double all = kept * size + r->d_size + fabs(r->d_lse);
    if (kept == 0 && !isfinite(dot)) /* 0 * Inf, or the choice not to multiply */
        return (struct uncertain){isnan(r->d) ? (double)NAN : 0, INFINITY};
    if (!isfinite(value))
        return (struct uncertain){value, 0};
    const double largest = fmax(fmax(size, all), 1) * fmax(kept, 1);
    return (struct uncertain){value, largest < (double)FLT_MAX / 4 ? U * (all + fabs(value)) + kept * lost : INFINITY};
}

/** Where the options' gradients of query and key are, and what their terms are multiplied by. */
static void add_options(struct backward *work, const struct oracle_query *query, int64_t token, struct uncertain ds)
{
    const attn_params *p = work->in->params;
    const int64_t j = token - query->first_key;
    if (work->result->of[GRADIENT_MASK].count) {
        const int64_t *n = p->mask->shape;
        const int64_t b = n[0] > 1 ? query->b : 0, h = n[1] > 1 ? query->h : 0, i = n[2] > 1 ? query->token : 0;
        add_term(work, GRADIENT_MASK, ((b * n[1] + h) * n[2] + i) * n[3] + (n[3] > 1 ? token : 0), 1, ds);
    }
    if (p->alibi_slopes)
        add_term(work, GRADIENT_ALIBI_SLOPES, query->h, -fabs((double)oracle_distance(query, j)), ds);
    if (p->relative_bias)
        add_term(work, GRADIENT_RELATIVE_BIAS,
                 query->h * p->relative_bias->buckets + oracle_relative_bucket(p->relative_bias, query, j), 1, ds);
}

/** A product of two rows beside q·k, before its scale. */
struct relative_product {
    double value, size;
};

/**
 * What a term by distance adds, the product of a row of the table t with that of q or k, whose gradients are at at. An
 * end of the table is multiplied by the sum of dX of all that have it: that must have room in f32, too.
 */
static struct relative_product add_relative(struct backward *work, const attn_tensor *t, enum gradient_of of_table,
                                            int64_t h, int64_t i, enum gradient_of of_row, int64_t at,
                                            const double *row, struct uncertain dx, double scale)
{
    struct relative_product product = {0, 0};
    const int64_t n = t->shape[3], place = ((t->shape[1] > 1 ? h : 0) * t->shape[2] + i) * n;
    double *table_row = oracle_allocate(n, sizeof(double));
    load_row(t, 0, h, i, table_row);
    if (fabs(dx.value) > LARGE)
        dx.error = INFINITY;
    add_row(work, of_row, at, dx, table_row, NULL, scale, n);
    add_row(work, of_table, place, dx, row, NULL, scale, n);
    for (int64_t c = 0; c < n; c++) {
        product.value += table_row[c] * row[c];
        product.size += fabs(table_row[c] * row[c]);
    }
    free(table_row);
    return product;
}

/** Everything that a query and a key add to gradients. g: the head of k. */
static void add_pair(struct backward *work, const struct oracle_row *row, const struct row_gradient *r, int64_t token,
                     int64_t g)
{
    const attn_params *p = work->in->params;
    const struct oracle_query *query = &row->query;
    const attn_tensor *q = &work->inputs.q, *k = &work->inputs.k, *v = &work->inputs.v;
    const int64_t dk = q->shape[3], dv = v->shape[3];
    const int64_t at_q = ((query->b * q->shape[1] + query->h) * query->tq + query->token) * dk;
    const int64_t key = (query->b * k->shape[1] + g) * query->tk + token;
    const double kept = row->kept[token], scale = oracle_head_scale(p, dk, query->h);
    struct uncertain weight = weight_of(row->score[token], row->size[token], r->lse);
    if (r->lse == -INFINITY) /* all scores are -Inf, and what they weigh is a matter of taste */
        weight = (struct uncertain){0, INFINITY};
    struct uncertain g_ij = score_gradient(work, r, kept);
    const int may_be_zero = weight.value < SAFE_WEIGHT; /* then 0 * Inf, or the choice not to multiply */
    if (may_be_zero && !isfinite(g_ij.value))
        g_ij.error = INFINITY;
    const struct uncertain ds = product(weight, g_ij);
    const struct uncertain dropped = product(weight, (struct uncertain){kept, kept > 1 ? U * kept : 0});
    add_row(work, GRADIENT_V, key * dv, dropped, r->d_out, NULL, 1, dv);
    for (int64_t c = 0; c < dv && (kept == 0 || may_be_zero); c++)
        if (!isfinite(weight.value * r->d_out[c]))
            work->result->of[GRADIENT_V].unit[key * dv + c] = INFINITY;
    const struct uncertain given = product(ds, slope_of_callback(work, row, token));
    add_options(work, query, token, given);
    if (dk == 0)
        return;
    const struct uncertain dx =
        p->softcap == 0 ? given
                        : product(given, slope_of(row->product[token], row->product_size[token], (double)p->softcap));
    add_row(work, GRADIENT_Q, at_q, dx, r->k, r->k_size, scale, dk);
    add_row(work, GRADIENT_K, key * dk, dx, r->q, r->q_size, scale, dk);
    const attn_disentangled *terms = p->disentangled;
    const int64_t distance = oracle_distance(query, token - query->first_key);
    struct relative_product of_q = {0, 0}, of_k = {0, 0};
    if (terms && terms->rel_k)
        of_q = add_relative(work, terms->rel_k, GRADIENT_REL_K, query->h, oracle_content_row(terms->span, distance),
                            GRADIENT_Q, at_q, r->q, dx, scale);
    if (terms && terms->rel_q)
        of_k = add_relative(work, terms->rel_q, GRADIENT_REL_Q, query->h, oracle_position_row(terms, distance),
                            GRADIENT_K, key * dk, r->k, dx, scale);
    if (p->head_scale) {
        double dot = of_q.value + of_k.value, size = of_q.size + of_k.size;
        for (int64_t c = 0; c < dk; c++) {
            dot += r->q[c] * r->k[c];
            size += fabs(r->q_size ? r->q_size[c] * r->k_size[c] * 3 : r->q[c] * r->k[c]);
        }
        const double tiny = (double)dk * work->tiny * (terms ? 3 : 1);
        struct uncertain x = product(dx, (struct uncertain){dot, U * (size + fabs(dot)) + tiny});
        /* The sum may be Inf before it is multiplied by the scale; where a callback's slope is 0, 0 * NaN is a choice.
         */
        if ((fabs(dx.value) + dx.error) * size > (double)FLT_MAX / 4 || (terms && fabs(dx.value) > LARGE) ||
            (p->callback && dx.value == 0 && !isfinite(dot)))
            x.error = INFINITY;
        add_term(work, GRADIENT_HEAD_SCALE, query->h, oracle_scale(p, dk), x);
    }
}

static int is_finite_row(const attn_tensor *t, const struct oracle_query *query)
{
    int finite = 1;
    for (int64_t c = 0; c < t->shape[3]; c++)
        finite &= isfinite(tensor_get(t, query->b, query->h, query->token, c)) != 0;
    return finite;
}

static void load_turned(const struct oracle_turned *turned, int64_t at, int64_t n, double *value, double *size)
{
    for (int64_t c = 0; c < n; c++) {
        value[c] = turned->value[at + c];
        size[c] = turned->size[at + c];
    }
}

static void add_query(struct backward *work, struct oracle_row *row, struct row_gradient *r)
{
    const attn_params *p = work->in->params;
    const struct oracle_inputs *inputs = &work->inputs;
    const struct oracle_query *query = &row->query;
    const int64_t dk = inputs->q.shape[3], dv = inputs->v.shape[3], heads = inputs->q.shape[1];
    const int64_t g = query->h / (heads / inputs->k.shape[1]);
    const int64_t at = (query->b * heads + query->h) * query->tq + query->token;
    int64_t live = 0;
    for (int64_t j = 0; j < query->tk; j++)
        live += row->live[j];
    r->lse = work->lse[at];
    r->d_lse = work->in->d_lse ? (double)tensor_get(work->in->d_lse, query->b, query->h, query->token, 0) : 0;
    r->d = r->d_size = 0;
    if (live) { /* else out is 0, whatever stands there */
        load_row(&work->d_out, query->b, query->h, query->token, r->d_out);
        for (int64_t c = 0; c < dv; c++) {
            const double x = r->d_out[c] * work->out[at * dv + c];
            r->d += x;
            r->d_size += fabs(x) + work->tiny / U * fmax(1, fabs(work->out[at * dv + c]));
        }
    }
    if (row->live[query->tk]) {
        struct uncertain ds = product(weight_of(row->score[query->tk], row->size[query->tk], r->lse),
                                      (struct uncertain){r->d_lse - r->d, U * (fabs(r->d_lse) + r->d_size)});
        /* Where a callback hides everything, D is 0 * dO. */
        if (p->callback && !live && !is_finite_row(&work->d_out, query))
            ds.error = INFINITY;
        add_term(work, GRADIENT_SINKS, query->h, 1, ds);
    }
    work->sees[at] = live > 0;
    if (!live)
        return;
    if (p->rope)
        load_turned(&inputs->q_exact, at * dk, dk, r->q, r->q_size);
    else
        load_row(&inputs->q, query->b, query->h, query->token, r->q);
    for (int64_t j = 0; j < query->tk; j++) {
        if (!row->live[j])
            continue;
        if (p->rope)
            load_turned(&inputs->k_exact, ((query->b * inputs->k.shape[1] + g) * query->tk + j) * dk, dk, r->k,
                        r->k_size);
        else
            load_row(&inputs->k, query->b, g, j, r->k);
        load_row(&inputs->v, query->b, g, j, r->v);
        add_pair(work, row, r, j, g);
    }
}

/** The rounding of a number, 0 of one that is not finite. */
static double relative(double x)
{
    return isfinite(x) ? U * fabs(x) : 0;
}

/** The transpose of a rotation, for rows that something was added to. */
static void turn_back(struct gradient *g, const attn_tensor *t, const attn_tensor *table, attn_rope_layout layout)
{
    const int64_t d = t->shape[3], pairs = table->shape[3] / 2;
    int64_t at = 0;
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++, at += d) {
                double touched = 0;
                for (int64_t c = 0; c < d; c++)
                    touched += g->unit[at + c];
                for (int64_t c = 0; c < pairs && touched != 0; c++) {
                    int64_t pair[2];
                    oracle_pair_channels(layout, pairs, c, pair);
                    double *x = &g->value[at + pair[0]], *y = &g->value[at + pair[1]];
                    double *x_unit = &g->unit[at + pair[0]], *y_unit = &g->unit[at + pair[1]];
                    const double cosine = (double)tensor_get(table, b, h, i, c);
                    const double sine = (double)tensor_get(table, b, h, i, pairs + c);
                    const double a = *x, e = *y, a_unit = *x_unit + relative(a), e_unit = *y_unit + relative(e);
                    *x = a * cosine + e * sine;
                    *y = e * cosine - a * sine;
                    *x_unit = isinf(a_unit) || isinf(e_unit)
                                  ? INFINITY
                                  : fabs(cosine) * a_unit + fabs(sine) * e_unit + relative(*x);
                    *y_unit = isinf(a_unit) || isinf(e_unit)
                                  ? INFINITY
                                  : fabs(cosine) * e_unit + fabs(sine) * a_unit + relative(*y);
                }
            }
}

/** Slack of an element, and what cannot be said of it. */
static void settle(struct backward *work)
{
    for (int of = 0; of < GRADIENTS; of++) {
        struct gradient *g = &work->result->of[of];
        const struct terms *terms = &work->terms[of];
        for (int64_t at = 0; at < g->count; at++) {
            if (!isfinite(g->value[at])) {
                g->unit[at] = isinf(g->unit[at]) ? INFINITY : 0;
                continue;
            }
            if (isnan(g->unit[at]) || !(terms->size[at] < (double)FLT_MAX / 4))
                g->unit[at] = INFINITY;
            if (work->result->rounds_weights && (of <= GRADIENT_V || of == GRADIENT_HEAD_SCALE))
                g->slack[at] =
                    WEIGHT_ROUNDING * fmin(terms->size[at], HOEFFDING * sqrt(terms->square[at]) + fabs(g->value[at]));
        }
    }
}

static int64_t elements(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

/** out and lse in double: those that are given, or exact ones. */
static void find_outputs(struct backward *work)
{
    const struct backward_inputs *in = work->in;
    const int64_t batch = in->q->shape[0], heads = in->q->shape[1], tq = in->q->shape[2], dv = in->v->shape[3];
    const int64_t rows = batch * heads * tq;
    work->out = oracle_allocate(rows * dv, sizeof(double));
    work->lse = oracle_allocate(rows, sizeof(double));
    struct reference exact = {0};
    if (!in->out || !in->lse)
        exact = reference_compute_alone(in->q, in->k, in->v, in->params);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t b = r / tq / heads, h = r / tq % heads, i = r % tq;
        work->lse[r] = in->lse ? (double)tensor_get(in->lse, b, h, i, 0) : exact.lse[r];
        for (int64_t c = 0; c < dv; c++)
            work->out[r * dv + c] = in->out ? (double)tensor_get(in->out, b, h, i, c) : exact.out[r * dv + c];
    }
    if (!in->out || !in->lse)
        reference_free(&exact);
}

static void allocate(struct backward *work)
{
    const struct backward_inputs *in = work->in;
    const attn_params *p = in->params;
    const int64_t heads = in->q->shape[1];
    const int64_t counts[GRADIENTS] = {
        [GRADIENT_Q] = elements(in->q),
        [GRADIENT_K] = elements(in->k),
        [GRADIENT_V] = elements(in->v),
        [GRADIENT_MASK] = p->mask && p->mask->dtype != ATTN_BOOL ? elements(p->mask) : 0,
        [GRADIENT_ALIBI_SLOPES] = p->alibi_slopes ? heads : 0,
        [GRADIENT_RELATIVE_BIAS] = p->relative_bias ? heads * p->relative_bias->buckets : 0,
        [GRADIENT_SINKS] = p->sinks ? heads : 0,
        [GRADIENT_HEAD_SCALE] = p->head_scale ? heads : 0,
        [GRADIENT_REL_K] = p->disentangled && p->disentangled->rel_k ? elements(p->disentangled->rel_k) : 0,
        [GRADIENT_REL_Q] = p->disentangled && p->disentangled->rel_q ? elements(p->disentangled->rel_q) : 0,
    };
    work->sees = oracle_allocate(in->q->shape[0] * heads * in->q->shape[2], 1);
    for (int of = 0; of < GRADIENTS; of++) {
        const int64_t n = counts[of];
        work->result->of[of] =
            (struct gradient){n, oracle_allocate(n, sizeof(double)), oracle_allocate(n, sizeof(double)),
                              oracle_allocate(n, sizeof(double)), oracle_allocate(n, sizeof(double))};
        work->terms[of] = (struct terms){oracle_allocate(n, sizeof(double)), oracle_allocate(n, sizeof(double))};
    }
}

static struct row_gradient row_gradient_allocate(int64_t dk, int64_t dv, int turned)
{
    return (struct row_gradient){.d_out = oracle_allocate(dv, sizeof(double)),
                                 .q = oracle_allocate(dk, sizeof(double)),
                                 .q_size = turned ? oracle_allocate(dk, sizeof(double)) : NULL,
                                 .k = oracle_allocate(dk, sizeof(double)),
                                 .k_size = turned ? oracle_allocate(dk, sizeof(double)) : NULL,
                                 .v = oracle_allocate(dv, sizeof(double))};
}

static struct backward_reference compute(const struct backward_inputs *given, int naively)
{
    struct backward_reference result = {.rounds_weights = backward_rounds_weights(given)};
    attn_params params = *given->params;
    params.scores = NULL; /* of which the rows of the forward oracle need not be told */
    struct backward_inputs in = *given;
    in.params = &params;
    struct backward work = {.in = &in, .result = &result, .tiny = result.rounds_weights ? (double)FLT_MIN : 0x1p-149};
    work.inputs = (struct oracle_inputs){.params = &params,
                                         .q = oracle_widened(in.q, result.rounds_weights),
                                         .k = oracle_widened(in.k, result.rounds_weights),
                                         .v = oracle_widened(in.v, result.rounds_weights),
                                         .flushes = result.rounds_weights};
    work.d_out = oracle_widened(in.d_out, result.rounds_weights);
    oracle_turn(&work.inputs, ATTN_F32);
    allocate(&work);
    find_outputs(&work);
    const int64_t batch = in.q->shape[0], heads = in.q->shape[1], tq = in.q->shape[2], tk = in.k->shape[2];
    struct oracle_row row = oracle_row_allocate(tk);
    struct row_gradient r = row_gradient_allocate(in.q->shape[3], in.v->shape[3], params.rope != NULL);
    for (int64_t at = 0; at < batch * heads * tq; at++) {
        row.query = oracle_query_at(&params, tq, tk, at / tq / heads, at / tq % heads, at % tq);
        oracle_score_row(&work.inputs, &row);
        add_query(&work, &row, &r);
    }
    if (params.rope) {
        turn_back(&result.of[GRADIENT_Q], in.q, params.rope->q, params.rope->layout);
        turn_back(&result.of[GRADIENT_K], in.k, params.rope->k, params.rope->layout);
    }
    settle(&work);
    if (naively)
        naive_backward(&in, &work.inputs, &work.d_out, &row, &result);

    const attn_tensor *const wide[] = {&work.inputs.q, &work.inputs.k, &work.inputs.v, &work.d_out};
    const attn_tensor *const from[] = {in.q, in.k, in.v, in.d_out};
    oracle_turned_free(&work.inputs);
    for (int i = 0; i < 4; i++)
        if (wide[i]->data != from[i]->data)
            free(wide[i]->data);
    for (int of = 0; of < GRADIENTS; of++) {
        free(work.terms[of].size);
        free(work.terms[of].square);
    }
    void *const rows[] = {work.out, work.lse, work.sees, r.d_out, r.q, r.q_size, r.k, r.k_size, r.v};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        free(rows[i]);
    oracle_row_free(&row);
    return result;
}

struct backward_reference backward_reference_compute(const struct backward_inputs *inputs)
{
    return compute(inputs, 1);
}

struct backward_reference backward_reference_compute_alone(const struct backward_inputs *inputs)
{
    return compute(inputs, 0);
}

void backward_reference_free(struct backward_reference *reference)
{
    for (int of = 0; of < GRADIENTS; of++) {
        free(reference->of[of].value);
        free(reference->of[of].unit);
        free(reference->of[of].slack);
        free(reference->of[of].naive_error);
    }
}
