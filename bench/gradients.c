/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients by their definition, pair by pair, in double:
 *
 *     P = exp(scale q.k - LSE),  D = dO.O,  dS = P (dO.v - D)
 *     dq = scale sum of dS k over the keys of a query,  dk = scale sum of dS q and dv = sum of P dO over the queries of
 * a key
 *
 * LSE and O are what the forward call has left, as attn_backward() reads them; both are compared with their own
 * definitions, in as many rows.
 *
 * A row may be much smaller than its terms: a query that sees one key has dO.v = D, and what is left of
 * the gradient is rounding. So its error is judged by what the terms would come to if none of them cancelled: the root
 * of the sum of their squares, where dO.v - D counts as |dO| (|v| + |O|) / sqrt(channels), whatever the two are.
 */
#include "gradients.h"
#include "numbers.h"
#include "pairs.h"
#include "rounding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Streams of random numbers; those of a problem and its form are below. */
#define SEED_OUT  41
#define SEED_ROWS 42

/*
 * As those of results in runner.c, for the same reasons; relative in f32, too, as gradients have any size. The
 * log-sum-exp is a sum of weights: its error is that of all of them, relative.
 */
#define TOLERANCE      2e-5
#define TOLERANCE_BF16 0x1p-6
#define TOLERANCE_F16  0x1p-10

/* Which gradient: its place in bench_gradients.of. */
enum { OF_Q, OF_K, OF_V };

static int64_t count_of(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

/* A dense tensor of the shape and layout of another one, full of NaN; data is NULL when there is no memory. */
static attn_tensor alike(const attn_tensor *t, attn_dtype dtype)
{
    attn_tensor made = *t;
    const size_t bytes = (size_t)count_of(t) * attn_dtype_size(dtype);
    made.dtype = dtype;
    made.data = bench_alloc_floats((int64_t)((bytes + 3) / 4));
    if (made.data != NULL)
        memset(made.data, 0xff, bytes);
    return made;
}

int bench_gradients_create(struct bench_gradients *g, const struct bench_problem *p)
{
    memset(g, 0, sizeof *g);
    g->wide = alike(&p->out, ATTN_F32);
    g->out = p->out.dtype != ATTN_F32 ? alike(&p->out, p->out.dtype) : g->wide;
    const attn_tensor lse = attn_bhtd(NULL, p->out.shape[0], p->out.shape[1], p->out.shape[2], 1);
    g->lse = alike(&lse, ATTN_F32);
    bool made = g->wide.data != NULL && g->out.data != NULL && g->lse.data != NULL;
    for (int i = 0; i < 3; i++) {
        g->of[i] = alike(&p->typed[i], p->typed[i].dtype);
        g->rows[i].expected = malloc((size_t)(BENCH_SAMPLED_ROWS * p->typed[i].shape[3]) * sizeof *g->rows[i].expected);
        made = made && g->of[i].data != NULL && g->rows[i].expected != NULL;
    }
    if (!made) {
        fprintf(stderr, "attn-bench: there is not enough memory for the gradients of case %s\n", p->bcase->id);
        bench_gradients_destroy(g);
        return -1;
    }
    const int64_t n = count_of(&g->wide), d = g->wide.shape[3];
    bench_fill_normal(g->wide.data, n, SEED_OUT);
    if (g->out.dtype != ATTN_F32)
        bench_round_rows(g->wide.data, g->out.data, g->out.dtype, NULL, n / d, d);
    return 0;
}

void bench_gradients_destroy(struct bench_gradients *g)
{
    if (g->out.data != g->wide.data)
        free(g->out.data);
    free(g->wide.data);
    free(g->lse.data);
    for (int i = 0; i < 3; i++) {
        free(g->of[i].data);
        free(g->rows[i].expected);
    }
    memset(g, 0, sizeof *g);
}

void bench_gradients_spoil(struct bench_gradients *g)
{
    for (int i = 0; i < 3; i++)
        memset(g->of[i].data, 0xff, (size_t)count_of(&g->of[i]) * attn_dtype_size(g->of[i].dtype));
}

double bench_gradients_tolerance(attn_dtype dtype)
{
    return dtype == ATTN_F32 ? TOLERANCE : dtype == ATTN_BF16 ? TOLERANCE_BF16 : TOLERANCE_F16;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t c = 0; c < n; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

static double scale_of(const struct bench_problem *p)
{
    return p->params.scale != 0.0f ? (double)p->params.scale : 1.0 / sqrt((double)p->bcase->d);
}

static int64_t group_of(const struct bench_problem *p)
{
    return p->bcase->heads / p->bcase->kv_heads;
}

/* What all pairs of a query have in common. */
struct query {
    double delta, out, dout; /* D; |O| and |dO| */
};

static struct query query_of(const struct bench_gradients *g, const struct bench_problem *p, int64_t b, int64_t h,
                             int64_t i)
{
    const float *dout = bench_row_floats(&g->wide, b, h, i);
    const int64_t at = b * p->out.stride[0] + h * p->out.stride[1] + i * p->out.stride[2], d = p->out.shape[3];
    double sum = 0.0, squares = 0.0;
    for (int64_t c = 0; c < d; c++) {
        const double out = (double)bench_element(p->out.data, p->out.dtype, at + c);
        sum += (double)dout[c] * out;
        squares += out * out;
    }
    return (struct query){.delta = sum, .out = sqrt(squares), .dout = sqrt(dot(dout, dout, d))};
}

/* A live pair. */
struct pair {
    double weight;
    double ds, ds_size; /* with the scale; the second as if nothing cancelled */
};

static struct pair pair_of(const struct bench_gradients *g, const struct bench_problem *p, int64_t b, int64_t h,
                           int64_t i, int64_t j, const struct query *query)
{
    const int64_t kv_head = h / group_of(p);
    const double scale = scale_of(p);
    const double score =
        scale * dot(bench_row_floats(&p->q, b, h, i), bench_row_floats(&p->k, b, kv_head, j), p->bcase->d);
    const float *v = bench_row_floats(&p->v, b, kv_head, j);
    const int64_t dv = p->v.shape[3];
    const double dp = dot(bench_row_floats(&g->wide, b, h, i), v, dv);
    const double dp_size = query->dout * (sqrt(dot(v, v, dv)) + query->out) / sqrt((double)dv);
    const double weight = exp(score - (double)*bench_row_floats(&g->lse, b, h, i));
    return (struct pair){
        .weight = weight, .ds = scale * weight * (dp - query->delta), .ds_size = scale * weight * dp_size};
}

/* sum += factor x; returns the square of the length of size x. */
static double add(double *sum, double factor, double size, const float *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        sum[c] += factor * (double)x[c];
    return size * size * dot(x, x, n);
}

/* Row n of a gradient: where it is, and its sum before anything is added. */
static double *begin_row(struct bench_gradients *g, int which, int64_t n, struct bench_row row)
{
    const attn_tensor *t = &g->of[which];
    const int64_t d = t->shape[3];
    g->rows[which].at[n] = (row.sequence * t->stride[0] + row.head * t->stride[1] + row.token * t->stride[2]) / d;
    g->rows[which].size[n] = 0.0;
    double *sum = g->rows[which].expected + n * d;
    memset(sum, 0, (size_t)d * sizeof *sum);
    return sum;
}

/* Returns the difference of the row's log-sum-exp from its definition. */
static double expect_query(struct bench_gradients *g, const struct bench_problem *p, int64_t n, struct bench_row row)
{
    const int64_t b = row.sequence, h = row.head, i = row.token, d = p->bcase->d;
    const struct query query = query_of(g, p, b, h, i);
    double *dq = begin_row(g, OF_Q, n, row), squares = 0.0, total = 0.0;
    for (int64_t j = 0; j < bench_num_keys(p, b); j++) {
        if (!bench_pair_live(p, b, h, i, j))
            continue;
        const struct pair pair = pair_of(g, p, b, h, i, j, &query);
        total += pair.weight; /* 1 if the log-sum-exp is right */
        squares += add(dq, pair.ds, pair.ds_size, bench_row_floats(&p->k, b, h / group_of(p), j), d);
    }
    g->rows[OF_Q].size[n] = sqrt(squares);
    return total > 0.0 ? fabs(log(total)) : isnan(total) ? NAN : 0.0;
}

/* queries: all of them, [B][H][Tq]. */
static void expect_key(struct bench_gradients *g, const struct bench_problem *p, int64_t n, struct bench_row row,
                       const struct query *queries)
{
    const int64_t b = row.sequence, j = row.token, group = group_of(p), d = p->bcase->d, tq = p->bcase->tq;
    double *dk = begin_row(g, OF_K, n, row), *dv = begin_row(g, OF_V, n, row), squares[2] = {0.0, 0.0};
    for (int64_t h = row.head * group; h < (row.head + 1) * group; h++)
        for (int64_t i = 0; i < bench_num_queries(p, b); i++) {
            if (!bench_pair_live(p, b, h, i, j))
                continue;
            const struct pair pair = pair_of(g, p, b, h, i, j, &queries[(b * p->bcase->heads + h) * tq + i]);
            squares[0] += add(dk, pair.ds, pair.ds_size, bench_row_floats(&p->q, b, h, i), d);
            squares[1] += add(dv, pair.weight, pair.weight, bench_row_floats(&g->wide, b, h, i), p->v.shape[3]);
        }
    g->rows[OF_K].size[n] = sqrt(squares[0]);
    g->rows[OF_V].size[n] = sqrt(squares[1]);
}

double bench_gradients_expect(struct bench_gradients *g, const struct bench_problem *p)
{
    const struct bench_case *c = p->bcase;
    struct query *queries = malloc((size_t)(c->batch * c->heads * c->tq) * sizeof *queries);
    double worst = 0.0;
    uint64_t state = SEED_ROWS;
    if (queries == NULL)
        return NAN;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t t = 0; t < c->tq; t++)
                queries[(b * c->heads + h) * c->tq + t] = query_of(g, p, b, h, t);
    for (int64_t n = 0; n < BENCH_SAMPLED_ROWS; n++) {
        const double difference = expect_query(g, p, n, bench_row_choose(p, false, n, &state));
        worst = isnan(difference) || isnan(worst) ? NAN : fmax(worst, difference);
        expect_key(g, p, n, bench_row_choose(p, true, n, &state), queries);
    }
    free(queries);
    return worst;
}

static bool holds_nan(const attn_tensor *t)
{
    const int64_t n = count_of(t);
    for (int64_t i = 0; i < n; i++)
        if (isnan(bench_element(t->data, t->dtype, i)))
            return true;
    return false;
}

struct bench_difference bench_gradients_difference(const struct bench_gradients *g)
{
    struct bench_difference worst = {0.0, 0.0};
    for (int which = 0; which < 3; which++) {
        const attn_tensor *t = &g->of[which];
        const struct bench_gradient_rows *rows = &g->rows[which];
        const int64_t d = t->shape[3];
        if (holds_nan(t))
            return (struct bench_difference){NAN, NAN};
        for (int64_t n = 0; n < BENCH_SAMPLED_ROWS; n++) {
            double squares = 0.0;
            for (int64_t c = 0; c < d; c++) {
                const double written = (double)bench_element(t->data, t->dtype, rows->at[n] * d + c);
                const double diff = fabs(written - rows->expected[n * d + c]);
                worst.largest = fmax(worst.largest, diff);
                squares += diff * diff;
            }
            if (squares > 0.0)
                worst.of_row = fmax(worst.of_row, sqrt(squares) / rows->size[n]);
        }
    }
    return worst;
}
