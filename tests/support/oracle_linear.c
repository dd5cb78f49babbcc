/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention token by token in double precision. With a_d = exp(decay_d), of
 * one row d of S or of all, for each column e of S and v:
 *
 *     S_de = a_d S_de
 *     u_e  = v_e     or, with beta,  beta (v_e - sum_d k_d S_de)
 *     S_de = S_de + k_d u_e
 *     out_e = scale sum_d q_d S_de
 *
 * What is not finite goes the way that these formulas say: NaN in v_e reaches column
 * e, in k_d row d, or with beta all of S, in q only the token's own row of out.
 *
 * Units. A recurrence has no sum whose terms could be counted, so a unit is what
 * roundings do to a number if they do not depend on each other: the root of a
 * variance that goes through the recurrence with S. With u = 2^-24, V_de that of
 * S_de, every operation adds the square of u times its result, and what was there is
 * multiplied by the square of its factor:
 *
 *     decay   V_de = a_d^2 V_de + 5 (u a_d S_de)^2                exp() 4 (1 ULP is 2 u), product 1
 *     read    R_e  = sum_d k_d^2 (V_de + (u S_de)^2) + (u r_ed)^2     r_ed = sum_d' <= d k_d' S_d'e
 *     u       W_e  = beta^2 R_e + 2 (u u_e)^2
 *     write   V_de = V_de (1 - 2 beta k_d^2) + k_d^2 W_e + (u k_d u_e)^2 + (u S_de)^2
 *
 * (The factor of the last line is what remains of (1 - beta k_d^2)^2 when the square
 * of the row's own part of R_e is taken out. Where S does not grow by the formulas,
 * neither does V.) So a token corrects a part of the errors of those before it. A sum
 * of what the tokens of a chunk write does not: it keeps the errors of all its terms,
 * with beta another variance of S,
 *
 *     write   K_de = K_de + 4 (u k_d u_e)^2 + (u S_de)^2     product 1, the product of keys 3
 *
 * which fades as V does, is read with it (V + K for V in R_e), and becomes a part of
 * it at the end of the chunk. It counts where keys are much alike, as those of few
 * channels are. A number of S has the unit sqrt(V_de + K_de), out |scale| sqrt(sum_d
 * q_d^2 (V_de + K_de + (u S_de)^2) + (u sum_d)^2) + 2 u |out|.
 *
 * Roundings depend on each other where the same numbers are multiplied again and
 * again: while a key k is the one before it but for the sign, and decays are the same,
 * the product c_m of two keys of a chunk that are m tokens apart, and of the decays
 * between them, is off by the same part e_m each time. With L_mde what S_de would change
 * by for each unit of e_m, and w_t what token t of the chunk has written along k, a token
 * corrects what it finds of both:
 *
 *     x_me = -beta (sum_d k_d a_d L_mde + c_m w_(t-m)e),   L_mde = a_d L_mde + k_d x_me
 *
 * e_m is a part that all have (of the keys' product 3, of beta 1), one that grows by a
 * rounding with each factor, one that m times the error of exp() makes, and two roundings
 * of its own. A read by a row q has, beside its variance, with y_m = sum_d q_d L_mde,
 *
 *     u^2 (4 (sum_m y_m)^2 + sum_m (sum_(n >= m) y_n)^2 + 4 (sum_m m y_m)^2 + 2 sum_m y_m^2)
 *
 * of which the first is all that there is without a decay, and S_de the same of L_mde.
 *
 * Numbers near the end of the range: a factor of a decay below 2^-126 may be 0, so a
 * unit has FLT_MIN times all that a column has held without decay; products have
 * 2^-149. Numbers that f32 has no room for make units infinite until S is cleared.
 */
#include "oracle_linear.h"

#include "dtype.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U        0x1p-24
#define DENORMAL 0x1p-149

/** Numbers below this have room in f32, and sums of them. */
#define LARGE ((double)FLT_MAX * 0x1p-20)

/* ------------------------------------------------------------------ shapes -- */

int64_t linear_sequences(const struct linear_inputs *in)
{
    return in->params->cu_seqlens ? in->params->num_sequences : in->v->shape[0];
}

int64_t linear_batch(const struct linear_inputs *in, int64_t sequence)
{
    return in->params->cu_seqlens ? 0 : sequence;
}

int64_t linear_first(const struct linear_inputs *in, int64_t sequence)
{
    return in->params->cu_seqlens ? in->params->cu_seqlens[sequence] : 0;
}

int64_t linear_end(const struct linear_inputs *in, int64_t sequence)
{
    const attn_linear_attention_params *p = in->params;
    return p->cu_seqlens ? p->cu_seqlens[sequence + 1] : p->lengths ? p->lengths[sequence] : in->v->shape[2];
}

int linear_resets(const struct linear_inputs *in, int64_t b, int64_t h, int64_t t)
{
    const attn_tensor *resets = in->params->resets;
    return resets && ((const uint8_t *)resets->data)[tensor_offset(resets, b, h, t, 0)] != 0;
}

struct linear_readers linear_readers_of(const struct linear_inputs *in, int64_t h)
{
    const int64_t queries = in->q->shape[1], states = in->v->shape[1];
    const int64_t count = queries > states ? queries / states : 1;
    return (struct linear_readers){h * count, count};
}

int64_t linear_query_head(const struct linear_inputs *in, int64_t out_head)
{
    const int64_t queries = in->q->shape[1], states = in->v->shape[1];
    return queries < states ? out_head / (states / queries) : out_head;
}

int64_t linear_key_head(const struct linear_inputs *in, int64_t h)
{
    return h / (in->v->shape[1] / in->k->shape[1]);
}

/* --------------------------------------------------------------- recurrence -- */

/** Tokens of the same key, and of the same decays. */
struct alike {
    double *key, *exponents; /**< [dk] of the last token */
    double *written;         /**< [CHUNK][dv] w, of the tokens of the chunk so far */
    double *lag;             /**< [CHUNK][dk][dv] L, of distances from 1 on */
    double *along;           /**< [CHUNK][dv] y of a row */
    int known;               /**< whether there is a last token */
    int tokens, reach;       /**< tokens in written; distances in lag */
};

/** A state, with the variance of each of its numbers. */
struct state {
    double *s, *variance, *kept; /**< [dk][dv]; kept: of errors that no token corrects */
    double *top;                 /**< [dv] what a column has held, without decay */
    int beyond;                  /**< f32 has no room for it, so it may be anything */
};

/** One head of one sequence, and the rows of the token at hand. */
struct head {
    const struct linear_inputs *in;
    struct linear_reference *result;
    int64_t b, h, dk, dv;
    double scale;
    struct state state;
    struct alike alike;
    double *q, *k, *u, *sum, *sum_variance; /**< u: v, or beta times what S does not say of it */
};

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

static void load_row(const attn_tensor *t, int64_t b, int64_t h, int64_t i, double *row)
{
    for (int64_t c = 0; c < t->shape[3]; c++)
        row[c] = (double)tensor_get(t, b, h, i, c);
}

static void clear(struct head *work)
{
    const int64_t n = work->dk * work->dv;
    memset(work->state.s, 0, (size_t)n * sizeof(double));
    memset(work->state.variance, 0, (size_t)n * sizeof(double));
    memset(work->state.kept, 0, (size_t)n * sizeof(double));
    memset(work->state.top, 0, (size_t)work->dv * sizeof(double));
    work->state.beyond = 0;
    work->alike.known = work->alike.reach = 0;
}

static void load_state(struct head *work, int64_t sequence)
{
    const attn_tensor *in = work->in->params->state_in;
    clear(work);
    for (int64_t d = 0; in && d < work->dk; d++) {
        double *s = work->state.s + d * work->dv;
        load_row(in, sequence, work->h, d, s);
        for (int64_t e = 0; e < work->dv; e++) {
            if (isfinite(s[e]))
                work->state.top[e] = fmax(work->state.top[e], fabs(s[e]));
            work->state.beyond |= isfinite(s[e]) && fabs(s[e]) > LARGE;
        }
    }
}

/** S = a S. */
static void fade(struct head *work, int64_t t)
{
    const attn_tensor *decay = work->in->params->decay;
    for (int64_t d = 0; decay && d < work->dk; d++) {
        double *s = work->state.s + d * work->dv, *variance = work->state.variance + d * work->dv;
        double *kept = work->state.kept + d * work->dv;
        const double g = (double)tensor_get(decay, work->b, work->h, t, d), a = exp(g);
        const double rounding = a == 0 || g == 0 ? 0 : 5 * square(U);
        for (int64_t e = 0; e < work->dv; e++) {
            s[e] *= a;
            variance[e] = square(a) * variance[e] + rounding * square(s[e]) + square(DENORMAL);
            kept[e] *= square(a);
        }
    }
}

/** sum_d row_d S_de and its variance, that of S included if that is wanted. */
static void product(struct head *work, const double *row)
{
    double *sum = work->sum, *sum_variance = work->sum_variance;
    for (int64_t e = 0; e < work->dv; e++)
        sum[e] = sum_variance[e] = 0;
    for (int64_t d = 0; d < work->dk; d++) {
        const double *s = work->state.s + d * work->dv, *variance = work->state.variance + d * work->dv;
        const double *kept = work->state.kept + d * work->dv;
        const double x = row[d], x2 = square(x);
        for (int64_t e = 0; e < work->dv; e++) {
            sum[e] += x * s[e];
            sum_variance[e] += x2 * (variance[e] + kept[e] + square(U) * square(s[e]));
            sum_variance[e] += square(U) * square(sum[e]) + square(DENORMAL);
        }
    }
}

static double exponent_at(const struct head *work, int64_t t, int64_t d)
{
    const attn_tensor *decay = work->in->params->decay;
    return decay ? (double)tensor_get(decay, work->b, work->h, t, d) : 0;
}

/** The sign with which the token's key is that of the one before it, 0 if it is another or a decay is. */
static int sign_of_key(const struct head *work, int64_t t)
{
    const struct alike *alike = &work->alike;
    int same = alike->known, opposite = same;
    for (int64_t d = 0; d < work->dk; d++) {
        const int decays = exponent_at(work, t, d) == alike->exponents[d];
        same &= decays && work->k[d] == alike->key[d];
        opposite &= decays && work->k[d] == -alike->key[d];
    }
    return same ? 1 : opposite ? -1 : 0;
}

/** y of a row, of all distances. */
static void find_along(struct head *work, const double *row)
{
    const struct alike *alike = &work->alike;
    memset(alike->along, 0, (size_t)(alike->reach * work->dv) * sizeof(double));
    for (int64_t i = 0; i < alike->reach * work->dk; i++)
        for (int64_t e = 0; e < work->dv; e++)
            alike->along[i / work->dk * work->dv + e] += row[i % work->dk] * alike->lag[i * work->dv + e];
}

/** The variance that a number has by what it would change by with e_1, e_2 ... */
static double variance_of(const struct head *work, const double *lag, int64_t pitch)
{
    double sum = 0, chain = 0, weighted = 0, squares = 0;
    for (int m = work->alike.reach; m > 0; m--) {
        const double x = lag[(m - 1) * pitch];
        sum += x;
        chain += square(sum);
        weighted += m * x;
        squares += square(x);
    }
    const double of_decays = work->in->params->decay ? chain + 4 * square(weighted) + 2 * squares : 0;
    const double variance = square(U) * (4 * square(sum) + of_decays);
    return isfinite(variance) ? variance : (double)INFINITY;
}

/** What a token that writes k u' changes of L and w. */
static void follow_alike(struct head *work, int64_t t, double beta)
{
    struct alike *alike = &work->alike;
    const int64_t dk = work->dk, dv = work->dv;
    int sign = sign_of_key(work, t);
    if (sign == 0) {
        for (int64_t d = 0; d < dk; d++) {
            alike->key[d] = work->k[d];
            alike->exponents[d] = exponent_at(work, t, d);
        }
        alike->known = sign = 1;
        alike->tokens = alike->reach = 0;
    }
    for (; alike->reach < alike->tokens; alike->reach++)
        memset(alike->lag + alike->reach * dk * dv, 0, (size_t)(dk * dv) * sizeof(double));
    for (int64_t i = 0; i < alike->reach * dk; i++) {
        const double a = exp(alike->exponents[i % dk]);
        for (int64_t e = 0; e < dv; e++)
            alike->lag[i * dv + e] *= a;
    }
    find_along(work, alike->key);
    for (int m = 1; m <= alike->reach; m++) {
        const double *const written = m <= alike->tokens ? alike->written + (alike->tokens - m) * dv : NULL;
        double product = 0;
        for (int64_t d = 0; d < dk; d++)
            product += square(alike->key[d]) * exp(m * alike->exponents[d]);
        for (int64_t e = 0; e < dv; e++) {
            const double x = -beta * (alike->along[(m - 1) * dv + e] + (written ? product * written[e] : 0));
            for (int64_t d = 0; d < dk; d++)
                alike->lag[((m - 1) * dk + d) * dv + e] += alike->key[d] * x;
        }
    }
    for (int64_t e = 0; e < dv; e++)
        alike->written[alike->tokens * dv + e] = sign * work->u[e];
    alike->tokens++;
}

/** S = S + k u'. */
static void write_token(struct head *work, int64_t t)
{
    const attn_tensor *beta_of = work->in->params->beta;
    double *u = work->u, *u_variance = work->sum_variance, beta = 0, largest = 0;
    load_row(work->in->v, work->b, work->h, t, u);
    memset(u_variance, 0, (size_t)work->dv * sizeof(double));
    if (beta_of) {
        product(work, work->k);
        beta = (double)tensor_get(beta_of, work->b, work->h, t, 0);
        for (int64_t e = 0; e < work->dv; e++) {
            u[e] = beta * (u[e] - work->sum[e]);
            u_variance[e] = square(beta) * u_variance[e] + 2 * square(U) * square(u[e]);
        }
    }
    for (int64_t d = 0; d < work->dk; d++) {
        double *s = work->state.s + d * work->dv, *variance = work->state.variance + d * work->dv;
        double *kept = work->state.kept + d * work->dv;
        const double k = work->k[d], rest = 1 - 2 * beta * square(k);
        if (isfinite(k))
            largest = fmax(largest, fabs(k));
        for (int64_t e = 0; e < work->dv; e++) {
            const double term = k * u[e];
            s[e] += term;
            const double before = variance[e] * rest + square(k) * u_variance[e];
            const double rounding = square(U) * (square(term) + square(s[e])) + square(DENORMAL);
            variance[e] = (before > 0 ? before : 0) + rounding;
            kept[e] += beta_of ? 3 * square(U) * square(term) + rounding : 0;
        }
    }
    for (int64_t e = 0; e < work->dv; e++)
        work->state.top[e] += largest * fabs(u[e]);
    if (beta_of)
        follow_alike(work, t, beta);
}

/** Whether a number of S is finite here and need not be in f32. */
static int has_left_range(const struct head *work)
{
    int beyond = 0;
    for (int64_t i = 0; i < work->dk * work->dv; i++)
        beyond |= fabs(work->state.s[i]) > LARGE && fabs(work->state.s[i]) < (double)INFINITY;
    for (int64_t e = 0; e < work->dv; e++)
        beyond |= fabs(work->u[e]) > LARGE && fabs(work->u[e]) < (double)INFINITY;
    return beyond;
}

/** out = scale S' q, of one head of out. */
static void read_token(struct head *work, int64_t out_head, int64_t t)
{
    const attn_tensor *shape = work->in->out;
    const int64_t at = ((work->b * shape->shape[1] + out_head) * shape->shape[2] + t) * work->dv;
    double *out = work->result->of[LINEAR_OUT].value + at, *unit = work->result->of[LINEAR_OUT].unit + at;
    double length = 0;
    load_row(work->in->q, work->b, linear_query_head(work->in, out_head), t, work->q);
    for (int64_t d = 0; d < work->dk; d++)
        length += fabs(work->q[d]);
    product(work, work->q);
    find_along(work, work->q);
    for (int64_t e = 0; e < work->dv; e++)
        work->sum_variance[e] += variance_of(work, work->alike.along + e, work->dv);
    const double scale = fabs(work->scale), lost = scale * length * (double)FLT_MIN;
    for (int64_t e = 0; e < work->dv; e++) {
        out[e] = work->scale * work->sum[e];
        unit[e] = scale * sqrt(work->sum_variance[e]) + 2 * U * fabs(out[e]) + DENORMAL;
        unit[e] += work->in->params->decay ? lost * work->state.top[e] : 0;
        if (work->state.beyond || (isfinite(out[e]) && fmax(fabs(out[e]), fabs(work->sum[e])) > LARGE))
            unit[e] = INFINITY;
    }
}

static void store_state(struct head *work, int64_t sequence)
{
    const int64_t at = (sequence * work->in->v->shape[1] + work->h) * work->dk * work->dv;
    double *value = work->result->of[LINEAR_STATE].value + at, *unit = work->result->of[LINEAR_STATE].unit + at;
    for (int64_t i = 0; i < work->dk * work->dv; i++) {
        const double alike = work->alike.reach ? variance_of(work, work->alike.lag + i, work->dk * work->dv) : 0;
        value[i] = work->state.s[i];
        unit[i] = work->state.beyond ? (double)INFINITY : sqrt(work->state.variance[i] + work->state.kept[i] + alike);
        unit[i] += work->in->params->decay ? (double)FLT_MIN * work->state.top[i % work->dv] : 0;
    }
}

/** The errors that a chunk has kept are those of S. */
static void begin_chunk(struct head *work)
{
    for (int64_t i = 0; i < work->dk * work->dv; i++) {
        work->state.variance[i] += work->state.kept[i];
        work->state.kept[i] = 0;
    }
    work->alike.tokens = 0;
}

static void walk_head(struct head *work, int64_t sequence)
{
    const struct linear_inputs *in = work->in;
    const struct linear_readers readers = linear_readers_of(in, work->h);
    int64_t chunk = linear_first(in, sequence);
    load_state(work, sequence);
    for (int64_t t = chunk; t < linear_end(in, sequence); t++) {
        if (linear_resets(in, work->b, work->h, t)) {
            clear(work);
            chunk = t;
        }
        if ((t - chunk) % ATTN_LINEAR_ATTENTION_CHUNK == 0)
            begin_chunk(work);
        fade(work, t);
        load_row(in->k, work->b, linear_key_head(in, work->h), t, work->k);
        write_token(work, t);
        work->state.beyond |= has_left_range(work);
        for (int64_t i = 0; i < readers.count; i++)
            read_token(work, readers.first + i, t);
    }
    store_state(work, sequence);
}

/* ------------------------------------------------------------------- result -- */

static struct linear_numbers numbers_of(int64_t count)
{
    return (struct linear_numbers){count, allocate(count), allocate(count), allocate(count)};
}

/** Rows of out that no sequence has stay 0, with the unit 0. */
struct linear_reference linear_reference_compute_alone(const struct linear_inputs *in)
{
    const int64_t *out = in->out->shape, heads = in->v->shape[1], dk = in->q->shape[3], dv = in->v->shape[3];
    struct linear_reference result = {
        .of = {numbers_of(out[0] * out[1] * out[2] * out[3]), numbers_of(linear_sequences(in) * heads * dk * dv)}};
    const int64_t chunk = ATTN_LINEAR_ATTENTION_CHUNK * dv, lags = in->params->beta ? chunk * dk : 0;
    double *memory = allocate(3 * dk * dv + 2 * chunk + lags + 4 * dv + 4 * dk);
    struct head work = {.in = in, .result = &result, .dk = dk, .dv = dv};
    double **const parts[] = {&work.state.s,
                              &work.state.variance,
                              &work.state.kept,
                              &work.state.top,
                              &work.u,
                              &work.sum,
                              &work.sum_variance,
                              &work.q,
                              &work.k,
                              &work.alike.key,
                              &work.alike.exponents,
                              &work.alike.written,
                              &work.alike.along,
                              &work.alike.lag};
    const int64_t sizes[] = {dk * dv, dk * dv, dk * dv, dv, dv, dv, dv, dk, dk, dk, dk, chunk, chunk, lags};
    double *next = memory;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        *parts[i] = next;
        next += sizes[i];
    }
    work.scale = in->params->scale != 0 ? (double)in->params->scale : dk > 0 ? 1 / sqrt((double)dk) : 1;
    for (int64_t s = 0; s < linear_sequences(in); s++)
        for (int64_t h = 0; h < heads; h++) {
            work.b = linear_batch(in, s);
            work.h = h;
            walk_head(&work, s);
        }
    free(memory);
    return result;
}

struct linear_reference linear_reference_compute(const struct linear_inputs *in)
{
    struct linear_reference result = linear_reference_compute_alone(in);
    linear_naive_compute(in, &result);
    return result;
}

void linear_reference_free(struct linear_reference *reference)
{
    for (int i = 0; i < LINEAR_OUTPUTS; i++) {
        free(reference->of[i].value);
        free(reference->of[i].unit);
        free(reference->of[i].naive_error);
    }
    memset(reference, 0, sizeof *reference);
}
