/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention row by row in double precision: softmax, outputs, and their units.
 *
 * Units. Let u = 2^-24, s_j a live key's score, a_j the sum of the sizes of its
 * terms (for q·k with a mask: |scale| sum|q_c k_c| + |mask|; oracle_score.c has
 * the others), p_j its weight. One relative rounding in the terms moves s_j by
 * u a_j, and relative to the top score t by x_j = u (a_j + a_t). It turns p_j
 * into p_j e^x_j (at most 1): the change is w_j. That moves out_c by sum_j w_j
 * |v_jc - out_c|, and rounding in the sum of products adds u sum_j p_j |v_jc|.
 * For small x this is the condition number of softmax; for huge logits it
 * stays honest, since a key that is far behind has w_j = 0 however large a_j is.
 *
 * A sink is one more live key, whose score is the sink with its own size, and
 * whose value is 0. Dropout multiplies p_j by d_j, 0 or 1/(1-p), after the sum:
 * v_jc stands for d_j v_jc then, the sink has d = 0, and the rounding of d_j
 * adds u sum_j d_j p_j |v_jc| once more. Weights on request are d_j p_j.
 *
 * A callback of weights gets d_j p_j and must not magnify differences, so that
 * what it leaves, w'_j, is off by as much and by the rounding of both; out is
 * sum_j w'_j v_jc, whose unit is the sum of these errors times |v_jc|, as
 * nothing cancels any more, and that of the products.
 *
 * Results that are not finite. NaN with unit 0: must be NaN. An infinity with
 * unit 0 must be met exactly; with unit 1 it may also be NaN, because the
 * weight of the infinite V may underflow to 0 in f32, and 0 * Inf is NaN. The
 * weight of a key that dropout takes is multiplied by 0: it makes NaN of an
 * infinite V for certain, and stays NaN in a row that is NaN. A callback may
 * leave a weight of any sign, and an infinite V makes +Inf or -Inf of it, or NaN
 * of 0. Where a weight that is off by SCORE_ROUNDINGS units may have any of them,
 * nothing but Inf or NaN can be asked for: NaN with unit Inf says so.
 *
 * Slack. Where the kernels multiply pairs of bf16 (arithmetic in the header
 * and in docs/numerics.md), weights are rounded to bf16, each by a factor 1 + e_j
 * with |e_j| <= W, except the top key's, which is 1 (but not where a table makes
 * the weights), and the sink's, which meets no value. Their sum is that of the rounded ones, before dropout, so to
 * first order
 *
 *     l changes by the factor 1 + sum_j e_j p_j      at most W sum_j p_j, less p_top
 *     out_c changes by sum_j e_j p_j (d_j v_jc - out_c)
 *                                                    at most W sum_j p_j |d_j v_jc - out_c|
 *
 * No scheme that rounds weights can do without this, so it is deducted from
 * the error before that is counted in units: what remains is held to f32's
 * standard. For many keys the bound of out_c is far from what happens, since
 * the e_j do not know v; Hoeffding's inequality gives a sharper one, 8 W
 * sqrt(sum_j (p_j (d_j v_jc - out_c))^2), which independent e_j exceed once in
 * 10^13 times. The smaller of the two counts. lse has no such v, and weights
 * that are alike round alike, so its bound stays. Where pairs take ATTN_I4 or
 * ATTN_F8_E4M3 as it lies, the product of a weight and its scale is rounded once more, for which l
 * does not make up: out_c changes by W sum_j p_j |d_j v_jc| at most.
 */
#include "oracle_score.h"

#include "dtype.h"
#include "test_isa.h"
#include "tolerance.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/** Weights below this may be 0 in f32, depending on the order in which the maximum grows. */
#define SAFE_WEIGHT 1e-30

/** W: half a unit in the last of bf16's 8 bits; 3 % more for the polynomial's 7.5e-5 and for terms of second order. */
#define WEIGHT_ROUNDING (0x1p-8 * 1.03)

/** W of weights that a table makes (tolerance.h), with as much more; and what these are divided by, for later maxima to
 * have room, which is also what is lost at the bottom of the range. */
#define TABLE_ROUNDING (EXP2_TABLE_MAX_RELATIVE * 1.03)
#define TABLE_HEADROOM 0x1p25

/** Standard deviations, so to say, that a sum of independent roundings stays within. */
#define HOEFFDING 8

int reference_takes_exact_pairs(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                const attn_params *params)
{
    const char *const isa = params->isa == NULL ? attn_isa_active() : params->isa;
    const int64_t rows = k->shape[1] > 0 ? q->shape[2] * (q->shape[1] / k->shape[1]) : 0;
    return params->k_scale && test_isa_has_table(isa) && q->dtype == ATTN_BF16 && k->dtype == ATTN_F32 &&
           v->dtype == ATTN_F32 && params->sums == ATTN_SUMS_FREE && rows <= 8 && !params->ragged && !params->rope &&
           !params->disentangled && !params->weight_callback;
}

int reference_rounds_weights(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                             const attn_params *params)
{
    const char *const isa = params->isa == NULL ? attn_isa_active() : params->isa;
    if (reference_takes_exact_pairs(q, k, v, params))
        return 1;
    return test_isa_has_pairs(isa) && q->dtype == ATTN_BF16 && k->dtype == ATTN_BF16 && v->dtype == ATTN_BF16 &&
           !params->rope && !params->disentangled && !params->weight_callback;
}

double reference_weight_rounding(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                 const attn_params *params)
{
    const char *const isa = params->isa == NULL ? attn_isa_active() : params->isa;
    return !reference_rounds_weights(q, k, v, params) ? 0 : test_isa_has_table(isa) ? TABLE_ROUNDING : WEIGHT_ROUNDING;
}

/** A row with a NaN or +Inf among its live scores: the softmax is NaN, hidden keys keep the weight 0. */
static void fill_nan_row(struct reference *ref, int64_t r, const unsigned char *live)
{
    for (int64_t c = 0; c < ref->dv; c++) {
        ref->out[r * ref->dv + c] = NAN;
        ref->out_unit[r * ref->dv + c] = 0;
    }
    ref->lse[r] = NAN;
    ref->lse_unit[r] = 0;
    for (int64_t j = 0; j < ref->tk; j++) {
        ref->weights[r * ref->tk + j] = live[j] ? (double)NAN : 0.0;
        ref->weights_unit[r * ref->tk + j] = 0;
    }
}

/** What rounded weights can do to the lse: the top key's, 1, is not rounded unless a sink is above it. */
static double lse_slack(const struct reference *ref, const struct oracle_row *row, double top_key, double sum,
                        double shifts)
{
    const int64_t sink = ref->tk;
    const double keys = 1 - (row->live[sink] ? row->p[sink] : 0);
    const int top_rounds = ref->uses_table || (row->live[sink] && row->score[sink] > top_key);
    return ref->weight_rounding * fmin(keys - (top_rounds ? 0 : 1 / sum) + shifts, 1); /* the top weight is 1 / sum */
}

/** Weights, lse and w_j of row r of the result from its scores. Returns 0 for a row whose softmax is NaN. */
static int softmax_row(struct reference *ref, int64_t r, const struct oracle_row *row)
{
    double *weights = ref->weights + r * ref->tk, *unit = ref->weights_unit + r * ref->tk;
    double *slack = ref->weights_slack + r * ref->tk, *p = row->p;
    double top = -INFINITY, top_key = -INFINITY, top_size = 0, sum = 0, sizes = 0, shifts = 0, rival_size = 0;
    const int64_t sink = ref->tk;
    for (int64_t j = 0; j <= sink; j++) {
        p[j] = row->shift[j] = row->lowest[j] = 0;
        if (!row->live[j])
            continue;
        if (isnan(row->score[j]) || row->score[j] == INFINITY)
            return 0;
        if (row->score[j] > top) {
            top = row->score[j];
            top_size = row->size[j];
            top_key = j < sink ? top : top_key;
        }
    }
    for (int64_t j = 0; j < ref->tk; j++)
        weights[j] = unit[j] = slack[j] = 0;
    ref->lse[r] = -INFINITY;
    ref->lse_unit[r] = ref->lse_slack[r] = 0;
    if (top == -INFINITY)
        return 1; /* no live key, or all of them at -Inf */
    for (int64_t j = 0; j <= sink; j++)
        if (row->live[j])
            sum += p[j] = exp(row->score[j] - top);
    for (int64_t j = 0; j <= sink; j++) {
        if (!row->live[j] || row->score[j] == -INFINITY)
            continue;
        const double x = U * (row->size[j] + top_size);
        const double log_p = row->score[j] - top - log(sum);
        p[j] /= sum;
        row->shift[j] = x < 0.1 ? p[j] * expm1(x) : fmin(exp(fmin(log_p + x, 0)), 1);
        row->lowest[j] = p[j] * exp(-SCORE_ROUNDINGS * x);
        sizes += p[j] * row->size[j];
        shifts += row->shift[j];
        if (row->shift[j] > 0.01) /* may be the true top: the lse then moves as its score does */
            rival_size = fmax(rival_size, row->size[j]);
    }
    ref->lse[r] = top + log(sum);
    ref->lse_unit[r] = U * (1 + fabs(ref->lse[r]) + sizes + rival_size) + log1p(shifts);
    if (ref->rounds_weights)
        ref->lse_slack[r] = lse_slack(ref, row, top_key, sum, shifts);
    for (int64_t j = 0; j < ref->tk; j++) {
        if (!row->live[j])
            continue;
        const double d = row->kept[j];
        weights[j] = d * p[j];
        unit[j] = d * (U * p[j] + row->shift[j] + p[j] * fmin(shifts, 1)) + (double)FLT_MIN * fmax(d, 1);
        unit[j] += d > 1 ? U * weights[j] : 0; /* of d itself */
        slack[j] = weights[j] * ref->lse_slack[r];
    }
    return 1;
}

/** Adds the term of a V that is not finite. */
static void add_infinite(double *out, double *unit, double x, double d, double lowest)
{
    *out += isnan(x) || d == 0 ? (double)NAN : x; /* live: reaches the output whatever its weight */
    if (lowest < SAFE_WEIGHT)
        *unit = INFINITY; /* marks that 0 * Inf may have happened */
}

/** sum_j d_j p_j v_jc and its unit. */
static void output_row(struct reference *ref, int64_t r, const struct oracle_row *row, const attn_tensor *v, int64_t g)
{
    const double *p = row->p;
    const int64_t b = row->query.b;
    double *out = ref->out + r * ref->dv, *unit = ref->out_unit + r * ref->dv;
    double *slack = ref->out_slack + r * ref->dv;
    for (int64_t c = 0; c < ref->dv; c++)
        out[c] = unit[c] = slack[c] = 0;
    for (int64_t j = 0; j < ref->tk; j++) {
        if (!row->live[j])
            continue;
        const float *value = (const float *)v->data + (ref->dv ? tensor_offset(v, b, g, j, 0) : 0);
        const double d = row->kept[j], weight = d * p[j], bottom = fmax(d, 1);
        const double roundings = d > 1 ? 2 : 1; /* of the product, and of d */
        const double product = roundings * U * weight, flushed = p[j] < SAFE_WEIGHT ? (double)FLT_MIN * bottom : 0;
        int finite = 1;
        for (int64_t c = 0; c < ref->dv; c++)
            finite &= fabsf(value[c]) <= FLT_MAX;
        if (finite && !ref->rounds_weights) { /* the rule: the same without a branch */
            for (int64_t c = 0; c < ref->dv; c++) {
                out[c] += weight * (double)value[c];
                unit[c] += product * fabs((double)value[c]) + 0x1p-149 * bottom + flushed * fabs((double)value[c]);
            }
            continue;
        }
        for (int64_t c = 0; c < ref->dv; c++) {
            const double x = (double)value[c];
            if (isfinite(x)) {
                out[c] += weight * x;
                /* Roundings at the bottom of f32's range: each product, and weights that are flushed to 0. */
                unit[c] += product * fabs(x) + 0x1p-149 * bottom + flushed * fabs(x);
                if (ref->rounds_weights) /* the instruction flushes products and sums that are denormal */
                    slack[c] += (double)FLT_MIN * bottom * (ref->uses_table ? TABLE_HEADROOM : 1);
                if (ref->takes_exact_pairs) /* a weight times its scale is rounded, too, and flushed before it meets a
                                               number of E4M3 or int4 */
                    slack[c] += WEIGHT_ROUNDING * weight * fabs(x) + 448 * (double)FLT_MIN * bottom * TABLE_HEADROOM;
                if (ref->uses_table && p[j] < (double)FLT_MIN * TABLE_HEADROOM)
                    slack[c] += p[j] * bottom * fabs(x);
            } else {
                add_infinite(&out[c], &unit[c], x, d, row->lowest[j]);
            }
        }
    }
    for (int64_t c = 0; c < ref->dv; c++)
        if (!isfinite(out[c]))
            unit[c] = isinf(out[c]) && isinf(unit[c]) ? 1 : 0;
    for (int64_t j = 0; j < ref->tk; j++) {
        if (!row->live[j] || row->shift[j] == 0)
            continue;
        const float *value = (const float *)v->data + (ref->dv ? tensor_offset(v, b, g, j, 0) : 0);
        for (int64_t c = 0; c < ref->dv; c++)
            if (isfinite(out[c]))
                unit[c] += row->shift[j] * fabs(row->kept[j] * (double)value[c] - out[c]);
    }
    for (int64_t c = 0; c < ref->dv && row->live[ref->tk]; c++)
        if (isfinite(out[c]))
            unit[c] += row->shift[ref->tk] * fabs(out[c]);
    for (int64_t c = 0; c < ref->dv && ref->rounds_weights; c++) {
        double sum = 0, squares = 0;
        for (int64_t j = 0; j < ref->tk && isfinite(out[c]); j++) {
            if (!row->live[j])
                continue;
            const float *value = (const float *)v->data + tensor_offset(v, b, g, j, 0);
            const double term = (p[j] + row->shift[j]) * fabs(row->kept[j] * (double)value[c] - out[c]);
            sum += term;
            squares += term * term;
        }
        slack[c] += ref->weight_rounding * fmin(sum, HOEFFDING * sqrt(squares));
    }
}

/** What a callback makes of the weights of a row. */
static void call_back(struct reference *ref, int64_t r, const struct oracle_row *row, const attn_params *params)
{
    double *weights = ref->weights + r * ref->tk, *unit = ref->weights_unit + r * ref->tk;
    for (int64_t j = 0; j < ref->tk; j++) {
        if (!row->live[j])
            continue;
        const double before = weights[j], off = SCORE_ROUNDINGS * unit[j];
        const double ends[2] = {fmax(before - off, 0), fmin(before + off, fmax(before, row->kept[j]))};
        double left[2];
        for (int i = 0; i < 2; i++)
            left[i] = (double)oracle_weight_callback(params, &row->query, j - row->query.first_key,
                                                     (float)(isnan(before) ? before : ends[i]));
        weights[j] = (double)oracle_weight_callback(params, &row->query, j - row->query.first_key, (float)before);
        row->least[j] = fmin(weights[j], fmin(left[0], left[1]));
        row->most[j] = fmax(weights[j], fmax(left[0], left[1]));
        unit[j] = isnan(before) ? 0 : unit[j] + U * before;
        unit[j] = isfinite(weights[j]) ? unit[j] + U * fabs(weights[j]) + (double)FLT_MIN : 0;
    }
}

/* What a term or a sum that is not finite may be. */
enum { MAY_BE_NAN = 1, MAY_BE_POSITIVE = 2, MAY_BE_NEGATIVE = 4 };

static unsigned kind_of(double infinite)
{
    return isnan(infinite) ? MAY_BE_NAN : infinite > 0 ? MAY_BE_POSITIVE : MAY_BE_NEGATIVE;
}

/** A weight between two numbers times x, where one of them is not finite. */
static unsigned kinds_of_term(double least, double most, double x)
{
    return kind_of(least * x) | kind_of(most * x) | (least < 0 && most > 0 ? kind_of(0 * x) : 0);
}

/** The sum of two; 0 stands for one that is finite. */
static unsigned kinds_of_sum(unsigned a, unsigned b)
{
    const unsigned opposed =
        (a & MAY_BE_POSITIVE && b & MAY_BE_NEGATIVE) || (a & MAY_BE_NEGATIVE && b & MAY_BE_POSITIVE);
    return !a || !b ? a | b : (a & b) | ((a | b) & MAY_BE_NAN) | (opposed ? MAY_BE_NAN : 0);
}

/** An output that is not finite, and its unit. */
static void set_infinite(unsigned kinds, double *out, double *unit)
{
    const int positive = (kinds & MAY_BE_POSITIVE) != 0, negative = (kinds & MAY_BE_NEGATIVE) != 0;
    *out = positive == negative ? (double)NAN : positive ? (double)INFINITY : -(double)INFINITY;
    *unit = positive && negative ? (double)INFINITY : positive != negative && kinds & MAY_BE_NAN ? 1 : 0;
}

/** out from the weights that a callback has left. */
static void output_called_back(struct reference *ref, int64_t r, const struct oracle_row *row, const attn_tensor *v,
                               int64_t g)
{
    const double *weights = ref->weights + r * ref->tk, *weights_unit = ref->weights_unit + r * ref->tk;
    double *out = ref->out + r * ref->dv, *unit = ref->out_unit + r * ref->dv;
    for (int64_t c = 0; c < ref->dv; c++) {
        unsigned kinds = 0;
        out[c] = unit[c] = ref->out_slack[r * ref->dv + c] = 0;
        for (int64_t j = 0; j < ref->tk; j++) {
            if (!row->live[j])
                continue;
            const double x = (double)((const float *)v->data)[tensor_offset(v, row->query.b, g, j, c)];
            if (!isfinite(weights[j] * x))
                kinds = kinds_of_sum(kinds, kinds_of_term(row->least[j], row->most[j], x));
            out[c] += weights[j] * x;
            unit[c] += (weights_unit[j] + U * fabs(weights[j])) * fabs(x) + 0x1p-149;
        }
        if (kinds)
            set_infinite(kinds, &out[c], &unit[c]);
    }
}

void *oracle_allocate(int64_t n, size_t size)
{
    void *p = calloc(n > 0 ? (size_t)n : 1, size);
    if (!p) {
        fprintf(stderr, "the reference cannot allocate %lld elements\n", (long long)n);
        exit(1);
    }
    return p;
}

/** Space for one naive computation of a row, and for its sums per key, [NAIVE_ORDERS][batch][heads][tk]. */
struct naive {
    float *out, *weights, *key_sums, *scores, *live_scores;
};

/**
 * Roundings of the order that is like the library's, of the factor and of its product with q, that are in the floors
 * of tolerance.h already. They are deducted, so that nothing counts of that order but what it loses in its sums.
 */
#define SCALING_ROUNDINGS 2

static void keep_largest(double *error, float got, double exact, double unit, int order)
{
    const double known = order & NAIVE_LIKE_LIBRARY && isfinite(unit) ? SCALING_ROUNDINGS * unit : 0;
    const double difference = fabs((double)got - exact) - known;
    if (isfinite(difference) && difference > *error)
        *error = difference;
}

/** Computes a row naively in an order, beginning with key first, and keeps the largest errors of its sums. */
static void measure_sums(struct reference *ref, const struct naive *naive, const struct oracle_inputs *inputs,
                         const struct oracle_row *row, struct naive_types types, int order, int64_t first)
{
    const int64_t r = (row->query.b * ref->heads + row->query.h) * ref->tq + row->query.token;
    float lse;
    naive_row(inputs, row, naive->live_scores, types.steps, order, first, naive->out, &lse, naive->weights);
    keep_largest(&ref->naive_lse_error[r], lse, ref->lse[r], ref->lse_unit[r], order);
    for (int64_t c = 0; c < ref->dv; c++)
        keep_largest(&ref->naive_out_error[r * ref->dv + c], dtype_round(types.out, naive->out[c]),
                     ref->out[r * ref->dv + c], ref->out_unit[r * ref->dv + c], order);
}

/** Computes a row naively in every order, and keeps the largest errors. */
static void measure_naive_row(struct reference *ref, const struct naive *naive, const struct oracle_inputs *inputs,
                              const struct oracle_row *row, struct naive_types types)
{
    const int64_t head = row->query.b * ref->heads + row->query.h, r = head * ref->tq + row->query.token;
    for (int order = 0; order < NAIVE_ORDERS; order++) {
        float *sums = naive->key_sums + (order * ref->batch * ref->heads + head) * ref->tk;
        if (!(order & NAIVE_KEYS_BACKWARDS)) /* which changes nothing about scores */
            naive_live_scores(inputs, row, types.steps, order, naive->live_scores);
        measure_sums(ref, naive, inputs, row, types, order, 0);
        for (int64_t j = 0; j < ref->tk; j++) {
            keep_largest(&ref->naive_weights_error[r * ref->tk + j], naive->weights[j], ref->weights[r * ref->tk + j],
                         ref->weights_unit[r * ref->tk + j], order);
            sums[j] += naive->weights[j];
        }
        if (!inputs->params->scores)
            continue;
        naive_scores(inputs, row, types.steps, order, naive->scores);
        for (int64_t j = 0; j < ref->tk; j++)
            keep_largest(&ref->naive_scores_error[r * ref->tk + j], naive->scores[j], ref->scores[r * ref->tk + j],
                         ref->scores_unit[r * ref->tk + j], order);
    }
    const int few = ref->batch * ref->heads * ref->tq <= NAIVE_FEW_ROWS;
    for (int64_t turn = 1; few && turn < NAIVE_TURNS; turn++) /* live_scores are those of the last order */
        measure_sums(ref, naive, inputs, row, types, NAIVE_LIKE_LIBRARY, turn * ref->tk / NAIVE_TURNS);
}

/** Sums over queries, per key; naive: NULL, or what the naive computation made of them. */
static void add_key_sums(struct reference *ref, const struct naive *naive)
{
    const int64_t keys = ref->batch * ref->heads * ref->tk;
    for (int64_t at = 0; at < keys; at++) {
        const int64_t head = at / ref->tk, j = at % ref->tk;
        for (int64_t i = 0; i < ref->tq; i++) {
            ref->key_sums[at] += ref->weights[(head * ref->tq + i) * ref->tk + j];
            ref->key_sums_unit[at] += ref->weights_unit[(head * ref->tq + i) * ref->tk + j];
            ref->key_sums_slack[at] += ref->weights_slack[(head * ref->tq + i) * ref->tk + j];
        }
        for (int order = 0; naive && order < NAIVE_ORDERS; order++)
            keep_largest(&ref->naive_key_sums_error[at], naive->key_sums[order * keys + at], ref->key_sums[at],
                         ref->key_sums_unit[at], order);
    }
}

/* What is denormal is 0 to the instructions that multiply bf16, too. */
attn_tensor oracle_widened(const attn_tensor *t, int flush)
{
    if (t->dtype == ATTN_F32)
        return *t;
    attn_tensor wide = attn_bhtd(NULL, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
    float *at = wide.data = oracle_allocate(t->shape[0] * wide.stride[0], sizeof *at);
    for (int64_t b = 0; b < t->shape[0]; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t c = 0; c < t->shape[3]; c++, at++) {
                    *at = tensor_get(t, b, h, i, c);
                    if (flush && fabsf(*at) < dtype_min_normal(t->dtype))
                        *at = 0;
                }
    return wide;
}

struct oracle_row oracle_row_allocate(int64_t tk)
{
    return (struct oracle_row){.live = oracle_allocate(tk + 1, 1),
                               .score = oracle_allocate(tk + 1, sizeof(double)),
                               .size = oracle_allocate(tk + 1, sizeof(double)),
                               .product = oracle_allocate(tk + 1, sizeof(double)),
                               .product_size = oracle_allocate(tk + 1, sizeof(double)),
                               .called = oracle_allocate(tk, sizeof(double)),
                               .called_size = oracle_allocate(tk, sizeof(double)),
                               .p = oracle_allocate(tk + 1, sizeof(double)),
                               .kept = oracle_allocate(tk + 1, sizeof(double)),
                               .shift = oracle_allocate(tk + 1, sizeof(double)),
                               .lowest = oracle_allocate(tk + 1, sizeof(double)),
                               .least = oracle_allocate(tk, sizeof(double)),
                               .most = oracle_allocate(tk, sizeof(double)),
                               .relative = oracle_allocate(tk + 1, sizeof(float)),
                               .stage = oracle_allocate(tk, sizeof(double)),
                               .stage_unit = oracle_allocate(tk, sizeof(double))};
}

void oracle_row_free(struct oracle_row *row)
{
    free(row->live);
    free(row->score);
    free(row->size);
    free(row->product);
    free(row->product_size);
    free(row->called);
    free(row->called_size);
    free(row->p);
    free(row->kept);
    free(row->shift);
    free(row->lowest);
    free(row->least);
    free(row->most);
    free(row->relative);
    free(row->stage);
    free(row->stage_unit);
}

#define ALL_MEMBERS(ref)                                                                                               \
    {                                                                                                                  \
        &(ref)->out, &(ref)->out_unit, &(ref)->out_slack, &(ref)->naive_out_error, &(ref)->lse, &(ref)->lse_unit,      \
            &(ref)->lse_slack, &(ref)->naive_lse_error, &(ref)->weights, &(ref)->weights_unit, &(ref)->weights_slack,  \
            &(ref)->naive_weights_error, &(ref)->key_sums, &(ref)->key_sums_unit, &(ref)->key_sums_slack,              \
            &(ref)->naive_key_sums_error, &(ref)->scores, &(ref)->scores_unit, &(ref)->scores_slack,                   \
            &(ref)->naive_scores_error                                                                                 \
    }

/** What reference_compute() does; without the naive computation if its types are NULL. */
static struct reference compute(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                const attn_params *params, const struct naive_types *naive_types)
{
    struct reference ref = {.batch = q->shape[0],
                            .heads = q->shape[1],
                            .tq = q->shape[2],
                            .tk = k->shape[2],
                            .dv = v->shape[3],
                            .rounds_weights = reference_rounds_weights(q, k, v, params)};
    ref.takes_exact_pairs = reference_takes_exact_pairs(q, k, v, params);
    ref.weight_rounding = reference_weight_rounding(q, k, v, params);
    ref.uses_table = ref.weight_rounding == TABLE_ROUNDING;
    const int64_t rows = ref.batch * ref.heads * ref.tq, keys = ref.batch * ref.heads * ref.tk;
    double **const all[] = ALL_MEMBERS(&ref);
    const int64_t sizes[] = {rows * ref.dv, rows, rows * ref.tk, keys, params->scores ? rows * ref.tk : 0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] = oracle_allocate(sizes[i / 4], sizeof(double));

    const attn_tensor *const given[] = {q, k, v};
    struct oracle_inputs inputs = {.params = params, .flushes = ref.rounds_weights};
    attn_tensor *const wide[] = {&inputs.q, &inputs.k, &inputs.v};
    for (int i = 0; i < 3; i++)
        *wide[i] = oracle_widened(given[i], ref.rounds_weights);
    oracle_turn(&inputs, naive_types ? naive_types->steps : ATTN_F32);
    const struct naive naive = {oracle_allocate(ref.dv, sizeof(float)), oracle_allocate(ref.tk, sizeof(float)),
                                oracle_allocate(NAIVE_ORDERS * keys, sizeof(float)),
                                oracle_allocate(ref.tk, sizeof(float)), oracle_allocate(ref.tk, sizeof(float))};
    struct oracle_row row = oracle_row_allocate(ref.tk);
    for (int64_t b = 0; b < ref.batch; b++) {
        for (int64_t h = 0; h < ref.heads; h++) {
            for (int64_t i = 0; i < ref.tq; i++) {
                const int64_t r = (b * ref.heads + h) * ref.tq + i;
                row.query = oracle_query_at(params, ref.tq, ref.tk, b, h, i);
                oracle_score_row(&inputs, &row);
                for (int64_t j = 0; params->scores && j < ref.tk; j++) {
                    ref.scores[r * ref.tk + j] = row.stage[j];
                    ref.scores_unit[r * ref.tk + j] = row.stage_unit[j];
                }
                const int64_t g = h / (ref.heads / k->shape[1]);
                if (softmax_row(&ref, r, &row))
                    output_row(&ref, r, &row, &inputs.v, g);
                else
                    fill_nan_row(&ref, r, row.live);
                if (params->weight_callback) {
                    call_back(&ref, r, &row, params);
                    output_called_back(&ref, r, &row, &inputs.v, g);
                }
                if (naive_types && !row.query.outside)
                    measure_naive_row(&ref, &naive, &inputs, &row, *naive_types);
            }
        }
    }
    add_key_sums(&ref, naive_types ? &naive : NULL);
    oracle_turned_free(&inputs);
    for (int i = 0; i < 3; i++)
        if (wide[i]->data != given[i]->data)
            free(wide[i]->data);
    free(naive.out);
    free(naive.weights);
    free(naive.key_sums);
    free(naive.scores);
    free(naive.live_scores);
    oracle_row_free(&row);
    return ref;
}

struct reference reference_compute(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                   const attn_params *params, struct naive_types naive_types)
{
    return compute(q, k, v, params, &naive_types);
}

struct reference reference_compute_alone(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                         const attn_params *params)
{
    return compute(q, k, v, params, NULL);
}

void reference_free(struct reference *ref)
{
    double **const all[] = ALL_MEMBERS(ref);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(*all[i]);
}
