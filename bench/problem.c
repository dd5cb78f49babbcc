/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the inputs of a case. The numbers are standard normal, as the rows of a trained
 * projection roughly are: uniform or constant inputs would make the maximum of
 * a row settle in the first block of keys and so hide the cost of rescaling.
 *
 * For a 16-bit type the numbers are rounded to it, and the f32 tensors get the
 * rounded values too, so that both sides compute with the same inputs. The
 * conversions are arithmetic on exponents, not the library's bit patterns: a
 * mistake there must not hide itself here.
 */
#include "problem.h"
#include "forms.h"
#include "numbers.h"
#include "pairs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One pair in this many is hidden by the boolean mask. */
#define MASK_PERIOD 64

/* The significand's bits with the implicit one, the exponent's bias, and the bits stored of the significand. */
struct half_format {
    int precision, bias;
};

static struct half_format half_format(attn_dtype dtype)
{
    return dtype == ATTN_BF16 ? (struct half_format){8, 127} : (struct half_format){11, 15};
}

/*
 * x = n * 2^e with |n| <= 2^precision, rounded to even. Numbers of one exponent
 * are neighbours in their encoding, and so are the largest of one and the
 * smallest of the next, so a carry needs no care. x is finite and in range.
 */
static uint16_t to_half(float x, attn_dtype dtype)
{
    const struct half_format f = half_format(dtype);
    const int least = 2 - f.bias - f.precision; /* exponent of the smallest denormal */
    int e;
    frexpf(x, &e);
    e = x != 0.0f && e - f.precision > least ? e - f.precision : least;
    const int n = (int)nearbyintf(ldexpf(fabsf(x), -e));
    return (uint16_t)(((e - least) << (f.precision - 1)) + n + (signbit(x) ? 0x8000 : 0));
}

static float from_half(uint16_t bits, attn_dtype dtype)
{
    const struct half_format f = half_format(dtype);
    const int one = 1 << (f.precision - 1), exponent = (bits & 0x7fff) / one, n = bits % one;
    const int least = 2 - f.bias - f.precision;
    float x;
    if (exponent == 2 * f.bias + 1)
        x = n != 0 ? NAN : INFINITY;
    else
        x = exponent == 0 ? ldexpf((float)n, least) : ldexpf((float)(n + one), least + exponent - 1);
    return (bits & 0x8000) != 0 ? -x : x;
}

/* A tensor in the layout of the case; data is NULL when there is no memory. */
static attn_tensor make_tensor(const struct bench_problem *p, attn_dtype dtype, int64_t heads, int64_t tokens)
{
    const struct bench_case *c = p->bcase;
    const int64_t n = p->batch * heads * tokens * c->d;
    float *data = bench_alloc_floats(dtype == ATTN_F32 ? n : (n + 1) / 2);
    attn_tensor t = c->layout == BENCH_BTHD ? attn_bthd(data, p->batch, tokens, heads, c->d)
                                            : attn_bhtd(data, p->batch, heads, tokens, c->d);
    t.dtype = dtype;
    return t;
}

static int64_t count_of(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

/* Fills t with the numbers of a seed and makes typed of it, in the type of the case. */
static int fill_input(const struct bench_problem *p, attn_tensor *t, attn_tensor *typed, uint64_t seed)
{
    const attn_dtype dtype = p->bcase->dtype;
    const int64_t n = count_of(t);
    float *x = t->data;
    bench_fill_normal(x, n, seed);
    *typed = *t;
    if (dtype == ATTN_F32)
        return 0;
    *typed = make_tensor(p, dtype, t->shape[1], t->shape[2]);
    uint16_t *h = typed->data;
    for (int64_t i = 0; h != NULL && i < n; i++) {
        h[i] = to_half(x[i], dtype);
        x[i] = from_half(h[i], dtype);
    }
    return h != NULL ? 0 : -1;
}

static int make_mask(struct bench_problem *p)
{
    const struct bench_case *c = p->bcase;
    const int64_t n = c->batch * c->tq * c->tk;
    uint8_t *data = malloc((size_t)n);
    if (data == NULL)
        return -1;
    uint64_t state = 4;
    for (int64_t i = 0; i < n; i++)
        data[i] = bench_random(&state) % MASK_PERIOD != 0;
    p->mask = (attn_tensor){
        .data = data, .dtype = ATTN_BOOL, .shape = {c->batch, 1, c->tq, c->tk}, .stride = {c->tq * c->tk, 0, c->tk, 1}};
    p->params.mask = &p->mask;
    return 0;
}

/* Lengths in the middle of B equal parts of 0..Tk: all different, half of Tk on average. */
static int make_lengths(struct bench_problem *p)
{
    const struct bench_case *c = p->bcase;
    p->kv_len = malloc((size_t)c->batch * sizeof *p->kv_len);
    if (p->kv_len == NULL)
        return -1;
    for (int64_t b = 0; b < c->batch; b++)
        p->kv_len[b] = c->tk * (2 * b + 1) / (2 * c->batch);
    p->params.kv_len = p->kv_len;
    return 0;
}

/* The pages of all sequences in random order. */
static int make_block_table(struct bench_problem *p, int64_t columns)
{
    const int64_t pages = p->batch * columns;
    uint64_t state = 5;
    p->block_table = malloc((size_t)pages * sizeof *p->block_table);
    if (p->block_table == NULL)
        return -1;
    for (int64_t i = 0; i < pages; i++)
        p->block_table[i] = (int32_t)i;
    for (int64_t i = pages - 1; i > 0; i--) {
        const int64_t j = (int64_t)(bench_random(&state) % (uint64_t)(i + 1));
        const int32_t swap = p->block_table[i];
        p->block_table[i] = p->block_table[j];
        p->block_table[j] = swap;
    }
    p->params.block_table = p->block_table;
    p->params.block_table_stride = columns;
    p->params.page_size = p->bcase->page;
    return 0;
}

/* Copies k or v, which lie head by head, into pages. */
static int fill_pool(const struct bench_problem *p, const attn_tensor *t, attn_tensor *pool)
{
    const int64_t page = p->bcase->page, columns = p->tk / page;
    const size_t row = (size_t)(page * t->shape[3]) * attn_dtype_size(t->dtype); /* of a head and page */
    *pool = attn_bhtd(malloc((size_t)(p->batch * columns * t->shape[1]) * row), p->batch * columns, t->shape[1], page,
                      t->shape[3]);
    pool->dtype = t->dtype;
    for (int64_t b = 0; pool->data != NULL && b < p->batch; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < columns; i++)
                memcpy((char *)pool->data + (size_t)(p->block_table[b * columns + i] * t->shape[1] + h) * row,
                       (const char *)t->data + (size_t)((b * t->shape[1] + h) * columns + i) * row, row);
    return pool->data != NULL ? 0 : -1;
}

static int make_pages(struct bench_problem *p)
{
    if (make_block_table(p, p->tk / p->bcase->page) != 0)
        return -1;
    return fill_pool(p, &p->typed[1], &p->pools[0]) != 0 || fill_pool(p, &p->typed[2], &p->pools[1]) != 0 ? -1 : 0;
}

int bench_problem_create(struct bench_problem *p, const struct bench_case *c)
{
    memset(p, 0, sizeof *p);
    p->bcase = c;
    p->batch = c->batch, p->tq = c->tq, p->tk = c->tk;
    p->params = attn_params_default();
    p->params.causal = c->causal;
    p->params.sums = c->free_sums ? ATTN_SUMS_FREE : ATTN_SUMS_ORDERED;
    const bool formed = bench_form_create(p) == 0, whole = !bench_case_sampled(c);
    p->q = make_tensor(p, ATTN_F32, c->heads, p->tq);
    p->k = make_tensor(p, ATTN_F32, c->kv_heads, p->tk);
    p->v = make_tensor(p, ATTN_F32, c->kv_heads, p->tk);
    p->out = make_tensor(p, c->dtype, c->heads, p->tq);
    if (whole)
        p->expected = make_tensor(p, ATTN_F32, c->heads, p->tq);
    if (!formed || p->q.data == NULL || p->k.data == NULL || p->v.data == NULL || p->out.data == NULL ||
        (whole && p->expected.data == NULL) || fill_input(p, &p->q, &p->typed[0], 1) != 0 ||
        fill_input(p, &p->k, &p->typed[1], 2) != 0 || fill_input(p, &p->v, &p->typed[2], 3) != 0 ||
        (c->page > 0 && make_pages(p) != 0) || (c->bool_mask && make_mask(p) != 0) ||
        (c->padded && make_lengths(p) != 0) || bench_count_pairs(p, &p->live_pairs) != 0) {
        fprintf(stderr, "attn-bench: there is not enough memory for the tensors of case %s\n", c->id);
        bench_problem_destroy(p);
        return -1;
    }
    /* An output that is never written must not look right, and its pages must exist before anything is timed. */
    bench_problem_spoil(p);
    if (whole)
        memset(p->expected.data, 0xff, (size_t)count_of(&p->expected) * sizeof(float));
    p->flops = 4.0 * p->live_pairs * (double)c->d;
    return 0;
}

void bench_problem_spoil(struct bench_problem *p)
{
    memset(p->out.data, 0xff, (size_t)count_of(&p->out) * attn_dtype_size(p->out.dtype));
}

void bench_problem_destroy(struct bench_problem *p)
{
    for (int i = 0; i < 3 && p->bcase->dtype != ATTN_F32; i++)
        free(p->typed[i].data);
    free(p->q.data);
    free(p->k.data);
    free(p->v.data);
    free(p->out.data);
    free(p->expected.data);
    free(p->mask.data);
    free(p->pools[0].data);
    free(p->pools[1].data);
    free(p->block_table);
    free(p->kv_len);
    free(p->rows);
    bench_form_destroy(p);
    memset(p, 0, sizeof *p);
}

/* Element n of out, counted through its memory. */
static double output(const struct bench_problem *p, int64_t n)
{
    const void *data = p->out.data;
    return p->out.dtype == ATTN_F32 ? (double)((const float *)data)[n]
                                    : (double)from_half(((const uint16_t *)data)[n], p->out.dtype);
}

/* Rows that nothing is known of must have been written at least. */
static bool holds_nan(const struct bench_problem *p)
{
    const int64_t n = count_of(&p->out);
    for (int64_t i = 0; i < n; i++)
        if (isnan(output(p, i)))
            return true;
    return false;
}

struct bench_difference bench_problem_difference(const struct bench_problem *p)
{
    /* Both layouts are dense, with the channels of a row side by side. */
    const int64_t d = p->out.shape[3], rows = count_of(&p->expected) / d;
    struct bench_difference worst = {0.0, 0.0};
    for (int64_t i = 0; i < rows; i++) {
        const float *expected = (const float *)p->expected.data + i * d;
        const int64_t at = (p->rows != NULL ? p->rows[i] : i) * d;
        double error = 0.0, size = 0.0;
        for (int64_t c = 0; c < d; c++) {
            const double diff = fabs(output(p, at + c) - (double)expected[c]);
            if (isnan(diff))
                return (struct bench_difference){NAN, NAN};
            worst.largest = fmax(worst.largest, diff);
            error += diff * diff;
            size += (double)expected[c] * (double)expected[c];
        }
        if (error > 0.0)
            worst.of_row = fmax(worst.of_row, sqrt(error / size));
    }
    return p->rows != NULL && holds_nan(p) ? (struct bench_difference){NAN, NAN} : worst;
}
