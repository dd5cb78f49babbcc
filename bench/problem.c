/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the inputs of a case. The numbers are standard normal, as the rows of a trained
 * projection roughly are: uniform or constant inputs would make the maximum of
 * a row settle in the first block of keys and so hide the cost of rescaling.
 *
 * For a narrow type the numbers are rounded to it, and the f32 tensors get the
 * rounded values too, so that both sides compute with the same inputs.
 */
#include "problem.h"
#include "forms.h"
#include "numbers.h"
#include "pairs.h"
#include "rounding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One pair in this many is hidden by the boolean mask. */
#define MASK_PERIOD 64

/*
 * Rows whose numbers are drawn, as that takes longer than anything else; those behind them repeat the numbers, in
 * memory of their own. A period that no length of a sequence divides lets sequences and heads differ.
 */
#define DRAWN_ROWS 100003

/* What strides count from one row to the next: rows in 4 bits are whole groups. */
static int64_t row_steps(attn_dtype dtype, int64_t d)
{
    return dtype == ATTN_I4 ? bench_scales(dtype, d) * ATTN_I4_GROUP : d;
}

/* A tensor in the layout of the case; data is NULL when there is no memory. */
static attn_tensor make_tensor(const struct bench_problem *p, attn_dtype dtype, int64_t heads, int64_t tokens,
                               int64_t d)
{
    const int64_t bytes = p->batch * heads * tokens * (int64_t)attn_row_size(dtype, d), steps = row_steps(dtype, d);
    /* Keys and values of decoding lie as those of an attn_cache do. */
    float *data =
        p->tq == 1 && tokens > 1 && bytes > 0 ? bench_alloc_large((size_t)bytes) : bench_alloc_floats((bytes + 3) / 4);
    attn_tensor t = p->bcase->layout == BENCH_BTHD ? attn_bthd(data, p->batch, tokens, heads, steps)
                                                   : attn_bhtd(data, p->batch, heads, tokens, steps);
    t.dtype = dtype;
    t.shape[3] = d;
    return t;
}

static int64_t count_of(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

static int64_t bytes_of(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * (int64_t)attn_row_size(t->dtype, t->shape[3]);
}

/* The rest of n bytes repeats the first so many. */
static void repeat(void *data, size_t first, size_t n)
{
    for (size_t at = first; at < n; at += first)
        memcpy((char *)data + at, data, at + first < n ? first : n - at);
}

/* Fills t with the numbers of a seed and makes typed of it, in a type of the case, with scales if that has some. */
static int fill_input(const struct bench_problem *p, attn_tensor *t, attn_dtype dtype, attn_tensor *typed,
                      attn_tensor *scale, uint64_t seed)
{
    const int64_t d = t->shape[3], rows = count_of(t) / d, drawn = rows < DRAWN_ROWS ? rows : DRAWN_ROWS;
    const size_t size = attn_row_size(dtype, d);
    const int64_t scales = bench_scales(dtype, d);
    bench_fill_normal(t->data, drawn * d, seed);
    *typed = *t;
    if (dtype != ATTN_F32) {
        *typed = make_tensor(p, dtype, t->shape[1], t->shape[2], d);
        if (scales > 0)
            *scale = make_tensor(p, ATTN_F32, t->shape[1], t->shape[2], scales);
        if (typed->data == NULL || (scales > 0 && scale->data == NULL))
            return -1;
        bench_round_rows(t->data, typed->data, dtype, scales > 0 ? scale->data : NULL, drawn, d);
        repeat(typed->data, (size_t)drawn * size, (size_t)rows * size);
        if (scales > 0)
            repeat(scale->data, (size_t)(drawn * scales) * sizeof(float), (size_t)(rows * scales) * sizeof(float));
    }
    repeat(t->data, (size_t)(drawn * d) * sizeof(float), (size_t)(rows * d) * sizeof(float));
    return 0;
}

/* The first keys of every sequence become those of the first one. Heads lie one after the other: bhtd. */
static void make_common(const struct bench_problem *p, const attn_tensor *t)
{
    const size_t row = attn_row_size(t->dtype, t->shape[3]), head = (size_t)t->shape[2] * row;
    for (int64_t n = t->shape[1]; t->data != NULL && n < t->shape[0] * t->shape[1]; n++)
        memcpy((char *)t->data + (size_t)n * head, (const char *)t->data + (size_t)(n % t->shape[1]) * head,
               (size_t)p->bcase->common * row);
}

/* q, k and v, and what they are in the types of the case. */
static int make_inputs(struct bench_problem *p)
{
    const struct bench_case *c = p->bcase;
    const attn_dtype kept = bench_case_kept(c);
    p->q = make_tensor(p, ATTN_F32, c->heads, p->tq, c->d);
    p->k = make_tensor(p, ATTN_F32, c->kv_heads, p->tk, c->d);
    if (p->q.data == NULL || p->k.data == NULL || fill_input(p, &p->q, c->dtype, &p->typed[0], NULL, 1) != 0 ||
        fill_input(p, &p->k, kept, &p->typed[1], &p->scales[0], 2) != 0)
        return -1;
    if (c->values_in_keys > 0) {
        p->v = p->k;
        p->typed[2] = p->typed[1];
        p->v.shape[3] = p->typed[2].shape[3] = c->values_in_keys;
        return 0;
    }
    p->v = make_tensor(p, ATTN_F32, c->kv_heads, p->tk, c->d);
    return p->v.data != NULL ? fill_input(p, &p->v, kept, &p->typed[2], &p->scales[1], 3) : -1;
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

static int64_t num_pages(const struct bench_case *c)
{
    return (c->common + c->batch * (c->tk - c->common)) / c->page;
}

/* The pages of all sequences in random order: the common ones first, then those of one sequence after the other. */
static int make_block_table(struct bench_problem *p, int64_t columns)
{
    const int64_t pages = num_pages(p->bcase), common = p->bcase->common / p->bcase->page;
    uint64_t state = 5;
    int32_t *order = malloc((size_t)pages * sizeof *order);
    p->block_table = malloc((size_t)(p->batch * columns) * sizeof *p->block_table);
    if (order == NULL || p->block_table == NULL) {
        free(order);
        return -1;
    }
    for (int64_t i = 0; i < pages; i++)
        order[i] = (int32_t)i;
    for (int64_t i = pages - 1; i > 0; i--) {
        const int64_t j = (int64_t)(bench_random(&state) % (uint64_t)(i + 1));
        const int32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < columns; i++)
            p->block_table[b * columns + i] = order[i < common ? i : b * (columns - common) + i];
    free(order);
    p->params.block_table = p->block_table;
    p->params.block_table_stride = columns;
    p->params.page_size = p->bcase->page;
    return 0;
}

/* Copies rows that lie head by head into pages. */
static int fill_pool(const struct bench_problem *p, const attn_tensor *t, attn_tensor *pool)
{
    const int64_t page = p->bcase->page, columns = p->tk / page;
    const size_t row = (size_t)page * attn_row_size(t->dtype, t->shape[3]); /* of a head and page */
    const int64_t pages = num_pages(p->bcase);
    const size_t bytes = (size_t)(pages * t->shape[1]) * row;
    *pool = attn_bhtd(bench_alloc_large(bytes), pages, t->shape[1], page, row_steps(t->dtype, t->shape[3]));
    pool->dtype = t->dtype;
    pool->shape[3] = t->shape[3];
    for (int64_t b = 0; pool->data != NULL && b < p->batch; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < columns; i++)
                memcpy((char *)pool->data + (size_t)(p->block_table[b * columns + i] * t->shape[1] + h) * row,
                       (const char *)t->data + (size_t)((b * t->shape[1] + h) * columns + i) * row, row);
    return pool->data != NULL ? 0 : -1;
}

static int make_pages(struct bench_problem *p)
{
    if (p->bcase->common > 0) {
        const attn_tensor *const alike[] = {&p->k, &p->v, &p->typed[1], &p->typed[2], &p->scales[0], &p->scales[1]};
        for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
            make_common(p, alike[i]);
    }
    if (make_block_table(p, p->tk / p->bcase->page) != 0 || fill_pool(p, &p->typed[1], &p->pools[0]) != 0)
        return -1;
    if (p->bcase->values_in_keys > 0) {
        p->pools[1] = p->pools[0];
        p->pools[1].shape[3] = p->bcase->values_in_keys;
    } else if (fill_pool(p, &p->typed[2], &p->pools[1]) != 0) {
        return -1;
    }
    for (int i = 0; i < 2; i++)
        if (p->scales[i].data != NULL && fill_pool(p, &p->scales[i], &p->scale_pools[i]) != 0)
            return -1;
    return 0;
}

static void take_scales(struct bench_problem *p)
{
    const attn_tensor *scales = p->block_table != NULL ? p->scale_pools : p->scales;
    if (p->scales[0].data == NULL)
        return;
    p->params.k_scale = &scales[0];
    p->params.v_scale = &scales[1];
}

int bench_problem_create(struct bench_problem *p, const struct bench_case *c)
{
    memset(p, 0, sizeof *p);
    p->bcase = c;
    p->batch = c->batch, p->tq = c->tq, p->tk = c->tk;
    p->params = attn_params_default();
    p->params.causal = c->causal;
    p->params.sums = c->free_sums ? ATTN_SUMS_FREE : ATTN_SUMS_ORDERED;
    const int64_t dv = bench_case_dv(c);
    const bool formed = bench_form_create(p) == 0, whole = !bench_case_sampled(c);
    p->out = make_tensor(p, c->dtype, c->heads, p->tq, dv);
    if (whole)
        p->expected = make_tensor(p, ATTN_F32, c->heads, p->tq, dv);
    if (!formed || p->out.data == NULL || (whole && p->expected.data == NULL) || make_inputs(p) != 0 ||
        (c->page > 0 && make_pages(p) != 0) || (c->bool_mask && make_mask(p) != 0) ||
        (c->padded && make_lengths(p) != 0) || bench_count_pairs(p, &p->live_pairs) != 0) {
        fprintf(stderr, "attn-bench: there is not enough memory for the tensors of case %s\n", c->id);
        bench_problem_destroy(p);
        return -1;
    }
    take_scales(p);
    /* An output that is never written must not look right, and its pages must exist before anything is timed. */
    bench_problem_spoil(p);
    if (whole)
        memset(p->expected.data, 0xff, (size_t)count_of(&p->expected) * sizeof(float));
    p->flops = 2.0 * p->live_pairs * (double)(c->d + dv);
    return 0;
}

static void add_region(struct bench_bandwidth *memory, const attn_tensor *t)
{
    if (t->data == NULL)
        return;
    memory->regions[memory->num_regions++] = (struct bench_region){.words = t->data, .count = bytes_of(t) / 4};
}

void bench_problem_memory(const struct bench_problem *p, struct bench_bandwidth *memory)
{
    const attn_tensor *const scales = p->block_table != NULL ? p->scale_pools : p->scales;
    add_region(memory, bench_problem_keys(p, 1));
    if (p->bcase->values_in_keys == 0)
        add_region(memory, bench_problem_keys(p, 2));
    add_region(memory, &scales[0]);
    add_region(memory, &scales[1]);
}

void bench_problem_spoil(struct bench_problem *p)
{
    memset(p->out.data, 0xff, (size_t)bytes_of(&p->out));
}

void bench_problem_destroy(struct bench_problem *p)
{
    const bool own = p->bcase->values_in_keys == 0;
    for (int i = 0; i < (own ? 3 : 2); i++)
        if (p->typed[i].dtype != ATTN_F32)
            free(p->typed[i].data);
    free(p->q.data);
    free(p->k.data);
    free(own ? p->v.data : NULL);
    free(p->out.data);
    free(p->expected.data);
    free(p->mask.data);
    free(p->pools[0].data);
    free(own ? p->pools[1].data : NULL);
    for (int i = 0; i < 2; i++) {
        free(p->scales[i].data);
        free(p->scale_pools[i].data);
    }
    free(p->block_table);
    free(p->kv_len);
    free(p->rows);
    bench_form_destroy(p);
    memset(p, 0, sizeof *p);
}

/* Element n of out, counted through its memory. */
static double output(const struct bench_problem *p, int64_t n)
{
    return (double)bench_element(p->out.data, p->out.dtype, n);
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
