/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bits of gradients: on one instruction set they do not depend on the number of
 * threads, on repetition, on which of them are wanted, on other sequences and
 * heads of the call, on padding, nor on what is not finite in rows that a row
 * does not meet.
 */
#include "dtype.h"
#include "guard.h"
#include "oracle.h"
#include "properties.h"
#include "training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t from_start[GRADIENTS_OF_ROWS] = {0, 0, 0};

static int thread_counts(struct rng *rng, const char *isa)
{
    static const int counts[] = {1, 2, 3, 7}; /* 1 again: a repeated run */
    struct training t;
    if (rng_percent(rng, 40)) /* many tasks that wait for each other */
        problem_long(&t.p, rng, isa, WITH_ALL);
    else
        problem_for_threads(&t.p, rng, isa, 7);
    training_begin(&t, rng);
    struct gradients expected = training_run(&t, ALL_GRADIENTS);
    int holds = 1;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        t.p.params.num_threads = counts[i];
        struct gradients g = training_run(&t, ALL_GRADIENTS);
        char what[32];
        snprintf(what, sizeof what, "%d threads", counts[i]);
        holds &= gradients_same(what, &expected, &g);
        gradients_free(&g);
    }
    gradients_free(&expected);
    training_free(&t);
    return holds;
}

static int wanted_sets(struct rng *rng, const char *isa)
{
    struct training t;
    training_draw(&t, rng, isa, WITH_ALL);
    t.p.params.num_threads = (int)rng_range(rng, 1, 3);
    struct gradients expected = training_run(&t, ALL_GRADIENTS);
    int holds = 1;
    for (unsigned wanted = 0; wanted < ALL_GRADIENTS; wanted++) {
        struct gradients g = training_run(&t, wanted);
        holds &= gradients_same("some are not wanted", &expected, &g);
        gradients_free(&g);
    }
    gradients_free(&expected);
    training_free(&t);
    return holds;
}

/** One sequence alone, and the heads of one key head of it. */
static int alone(struct rng *rng, const char *isa)
{
    struct training t;
    training_draw(&t, rng, isa, WITH_ALL);
    t.p.params.num_threads = (int)rng_range(rng, 1, 3);
    struct gradients whole = training_run(&t, ALL_GRADIENTS);
    const int64_t b = t.p.params.dropout ? 0 : rng_range(rng, 0, t.p.q.shape[0] - 1); /* whose weights it takes */
    const int64_t group = t.p.q.shape[1] / t.p.k.shape[1];
    const int64_t g = t.p.params.dropout ? 0 : rng_range(rng, 0, t.p.k.shape[1] - 1);
    int holds = 1;
    for (int one_head = 0; one_head < 2; one_head++) {
        struct training part = t; /* a view: not freed */
        attn_tensor *const of_q[] = {&part.p.q, &part.p.mask, &part.out, &part.lse, &part.d_out, &part.d_lse};
        attn_tensor *const of_k[] = {&part.p.k, &part.p.v};
        for (size_t i = 0; i < sizeof of_q / sizeof *of_q; i++) {
            problem_narrow(of_q[i], 0, b, 1);
            if (one_head)
                problem_narrow(of_q[i], 1, g * group, group);
        }
        for (size_t i = 0; i < sizeof of_k / sizeof *of_k; i++) {
            problem_narrow(of_k[i], 0, b, 1);
            if (one_head)
                problem_narrow(of_k[i], 1, g, 1);
        }
        part.p.kv_len[0] = t.p.kv_len[b];
        part.p.kv_start[0] = t.p.kv_start[b];
        part.p.query_offset[0] = t.p.query_offset[b];
        problem_bind(&part.p, t.p.params.kv_len != NULL, t.p.params.kv_start != NULL, t.p.params.query_offset != NULL);
        part.p.params.num_threads = 1;
        part.p.params.sinks = t.p.params.sinks ? t.sinks + (one_head ? g * group : 0) : NULL;
        part.p.params.alibi_slopes = t.p.params.alibi_slopes ? t.slopes + (one_head ? g * group : 0) : NULL;
        for (int i = 0; i < 2 && one_head; i++) {
            attn_tensor *table = i ? &part.rel_q : &part.rel_k;
            if (table->data && table->shape[1] > 1)
                problem_narrow(table, 1, g * group, group);
        }
        training_bind_tables(&part);
        struct gradients r = training_run(&part, ALL_GRADIENTS);
        const int64_t heads[GRADIENTS_OF_ROWS] = {one_head ? g * group : 0, one_head ? g : 0, one_head ? g : 0};
        holds &=
            gradients_same_part(one_head ? "a key head alone" : "a sequence alone", &whole, b, heads, from_start, &r);
        gradients_free(&r);
    }
    gradients_free(&whole);
    training_free(&t);
    return holds;
}

enum { MOST_BLOCKS = 24 };

/** Which blocks of a pattern are listed, of any number of block rows and columns: that of a shorter sequence is a part
 * of that of a longer one. */
struct pattern {
    int64_t size;
    uint32_t columns[MOST_BLOCKS];
    attn_block_mask mask;
    int64_t offsets[MOST_BLOCKS + 1];
    int32_t list[MOST_BLOCKS * MOST_BLOCKS];
};

static void pattern_draw(struct pattern *p, struct rng *rng)
{
    p->size = RNG_PICK(rng, 16, 16, 32, 48, 64, 80);
    for (int r = 0; r < MOST_BLOCKS; r++)
        p->columns[r] = (uint32_t)rng_bits(rng) | (uint32_t)rng_bits(rng);
}

/** The pattern of so many queries and keys. */
static const attn_block_mask *pattern_of(struct pattern *p, int64_t tq, int64_t tk)
{
    const int64_t rows = (tq + p->size - 1) / p->size, columns = (tk + p->size - 1) / p->size;
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++)
            if (p->columns[r] >> c & 1u)
                p->list[n++] = (int32_t)c;
        p->offsets[r + 1] = n;
    }
    p->mask = (attn_block_mask){.size = p->size, .heads = 1, .rows = rows, .offsets = p->offsets, .columns = p->list};
    return &p->mask;
}

static int64_t larger_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/** Sequences of a ragged batch have the gradients that each has alone; tokens behind the last one have none. */
static int ragged(struct rng *rng, const char *isa)
{
    struct training t;
    static struct pattern pattern;
    problem_random(&t.p, rng, isa, 0);
    t.p.params.causal = (attn_causal)rng_range(rng, 0, 2);
    problem_narrow(&t.p.q, 0, 0, 1);
    problem_narrow(&t.p.k, 0, 0, 1);
    problem_narrow(&t.p.v, 0, 0, 1);
    const int64_t tq = t.p.q.shape[2], tk = t.p.k.shape[2];
    const int64_t cut_q = rng_range(rng, 0, tq), cut_k = rng_range(rng, 0, tk);
    const int64_t cu_q[3] = {0, cut_q, rng_range(rng, cut_q, tq)}, cu_k[3] = {0, cut_k, rng_range(rng, cut_k, tk)};
    const attn_ragged batch = {2, cu_q, cu_k};
    t.p.params.ragged = &batch;
    t.p.params.num_threads = (int)rng_range(rng, 1, 3);
    const int sparse = rng_percent(rng, 50);
    pattern_draw(&pattern, rng);
    if (sparse)
        t.p.params.block_mask =
            pattern_of(&pattern, larger_of(cut_q, cu_q[2] - cut_q), larger_of(cut_k, cu_k[2] - cut_k));
    training_begin(&t, rng);
    if (t.p.params.dropout) { /* follows from the number of the sequence */
        t.p.params.dropout = NULL;
        free(t.out.data);
        free(t.lse.data);
        training_forward(&t);
    }
    struct gradients whole = training_run(&t, ALL_GRADIENTS);
    int holds = 1;
    for (int s = 0; s < 2; s++) {
        struct training part = t;
        attn_tensor *const of_q[] = {&part.p.q, &part.out, &part.lse, &part.d_out, &part.d_lse};
        for (size_t i = 0; i < sizeof of_q / sizeof *of_q; i++)
            problem_narrow(of_q[i], 2, cu_q[s], cu_q[s + 1] - cu_q[s]);
        problem_narrow(&part.p.k, 2, cu_k[s], cu_k[s + 1] - cu_k[s]);
        problem_narrow(&part.p.v, 2, cu_k[s], cu_k[s + 1] - cu_k[s]);
        part.p.params.ragged = NULL;
        if (sparse)
            part.p.params.block_mask = pattern_of(&pattern, cu_q[s + 1] - cu_q[s], cu_k[s + 1] - cu_k[s]);
        part.p.params.num_threads = 1;
        struct gradients r = training_run(&part, ALL_GRADIENTS);
        const int64_t tokens[GRADIENTS_OF_ROWS] = {cu_q[s], cu_k[s], cu_k[s]};
        holds &= gradients_same_part("a ragged sequence", &whole, 0, from_start, tokens, &r);
        gradients_free(&r);
    }
    for (int g = 0; g < GRADIENTS_OF_ROWS; g++)
        for (int64_t h = 0; h < whole.of[g].shape[1]; h++)
            for (int64_t i = g == DQ ? cu_q[2] : cu_k[2]; i < whole.of[g].shape[2]; i++)
                for (int64_t c = 0; c < whole.of[g].shape[3]; c++)
                    holds &= tensor_get(&whole.of[g], 0, h, i, c) == 0;
    gradients_free(&whole);
    training_free(&t);
    return holds;
}

/** t with more tokens, which hold NaN. */
static attn_tensor padded(const attn_tensor *t, int64_t more)
{
    const int64_t shape[4] = {t->shape[0], t->shape[1], t->shape[2] + more, 0};
    const attn_tensor r = training_tensor(t->dtype, shape, t->shape[3]);
    for (int64_t b = 0; b < r.shape[0]; b++)
        for (int64_t h = 0; h < r.shape[1]; h++)
            for (int64_t i = 0; i < r.shape[2]; i++)
                for (int64_t c = 0; c < r.shape[3]; c++)
                    tensor_set(&r, b, h, i, c, i < t->shape[2] ? tensor_get(t, b, h, i, c) : NAN);
    return r;
}

/** Keys within larger tensors, by kv_len. */
static int padding(struct rng *rng, const char *isa)
{
    struct training t;
    training_draw(&t, rng, isa, WITH_ALL & ~WITH_MASK);
    struct gradients expected = training_run(&t, ALL_GRADIENTS);
    struct training larger = t;
    const int64_t tk = t.p.k.shape[2], more = rng_range(rng, 1, 300);
    larger.p.k = padded(&t.p.k, more);
    larger.p.v = padded(&t.p.v, more);
    for (int64_t b = 0; b < t.p.q.shape[0] && !t.p.params.kv_len; b++)
        larger.p.kv_len[b] = tk;
    problem_bind(&larger.p, 1, t.p.params.kv_start != NULL, t.p.params.query_offset != NULL);
    larger.p.params.num_threads = (int)rng_range(rng, 1, 3);
    struct gradients r = training_run(&larger, ALL_GRADIENTS);
    int holds = gradients_same("padding", &r, &expected);
    for (int g = DK; g <= DV; g++)
        for (int64_t at = 0; at < problem_count(&r.of[g]); at++)
            if (at / r.of[g].shape[3] % r.of[g].shape[2] >= tk && dtype_load(r.of[g].dtype, r.of[g].data, at) != 0) {
                printf("  %s of padding is not 0\n", gradient_names[g]);
                holds = 0;
            }
    free(larger.p.k.data);
    free(larger.p.v.data);
    gradients_free(&r);
    gradients_free(&expected);
    training_free(&t);
    return holds;
}

/** Puts what is not finite into some elements of a row. */
static void spoil(const attn_tensor *t, int64_t b, int64_t h, int64_t row, struct rng *rng)
{
    for (int64_t c = 0; c < t->shape[3]; c++)
        if (c == 0 || rng_percent(rng, 20))
            tensor_set(t, b, h, row, c, RNG_PICK(rng, 0, 0, 1) ? INFINITY : NAN);
}

/** Whether a row of two gradients has the same bits; says so of one that has not. */
static int row_stays(const struct gradients *a, const struct gradients *b, int of, int64_t batch, int64_t h,
                     int64_t row)
{
    const attn_tensor *x = &a->of[of], *y = &b->of[of];
    const size_t size = attn_dtype_size(x->dtype);
    const int64_t at = x->shape[3] ? tensor_offset(x, batch, h, row, 0) * (int64_t)size : 0;
    if (memcmp((const char *)x->data + at, (const char *)y->data + at, (size_t)x->shape[3] * size) == 0)
        return 1;
    printf("  %s[%d,%d,%d] has other bits\n", gradient_names[of], (int)batch, (int)h, (int)row);
    return 0;
}

/** A query and a key whose rows hold NaN and Inf change no bit of what does not meet them. */
static int not_finite(struct rng *rng, const char *isa)
{
    struct training t;
    static struct pattern pattern;
    problem_random(&t.p, rng, isa, WITH_ALL);
    const attn_window window = {.left = rng_range(rng, 0, 50), .right = rng_range(rng, 0, 20)};
    const int64_t *n = t.p.q.shape, tk = t.p.k.shape[2];
    pattern_draw(&pattern, rng);
    t.p.params.window = rng_percent(rng, 30) ? &window : NULL;
    t.p.params.block_mask = rng_percent(rng, 30) ? pattern_of(&pattern, n[2], tk) : NULL;
    t.p.params.num_threads = (int)rng_range(rng, 1, 3);
    training_begin(&t, rng);
    struct gradients expected = training_run(&t, ALL_GRADIENTS);
    const int64_t b = rng_range(rng, 0, n[0] - 1), h = rng_range(rng, 0, n[1] - 1), i = rng_range(rng, 0, n[2] - 1);
    const int64_t group = n[1] / t.p.k.shape[1], kh = rng_range(rng, 0, t.p.k.shape[1] - 1);
    const int64_t j = rng_range(rng, 0, tk - 1);
    const int of_query = rng_percent(rng, 70), of_key = !of_query || rng_percent(rng, 50);
    if (of_query)
        spoil(rng_percent(rng, 50) ? &t.p.q : &t.d_out, b, h, i, rng);
    if (of_key)
        spoil(rng_percent(rng, 50) ? &t.p.k : &t.p.v, b, kh, j, rng);
    struct gradients g = training_run(&t, ALL_GRADIENTS);
    int holds = 1;
    for (int64_t batch = 0; batch < n[0]; batch++)
        for (int64_t head = 0; head < n[1]; head++)
            for (int64_t row = 0; row < n[2]; row++) {
                const struct oracle_query query = oracle_query_at(&t.p.params, n[2], tk, batch, head, row);
                const int itself = of_query && batch == b && head == h && row == i;
                const int meets =
                    of_key && batch == b && head / group == kh && oracle_sees(&t.p.params, &query, j - query.first_key);
                if (!itself && !meets)
                    holds &= row_stays(&expected, &g, DQ, batch, head, row);
            }
    const struct oracle_query query = oracle_query_at(&t.p.params, n[2], tk, b, h, i);
    for (int64_t batch = 0; batch < n[0]; batch++)
        for (int64_t head = 0; head < t.p.k.shape[1]; head++)
            for (int64_t row = 0; row < tk; row++) {
                const int itself = of_key && batch == b && head == kh && row == j;
                const int meets = of_query && batch == b && head == h / group &&
                                  oracle_sees(&t.p.params, &query, row - query.first_key);
                for (int of = DK; of <= DV && !itself && !meets; of++)
                    holds &= row_stays(&expected, &g, of, batch, head, row);
            }
    gradients_free(&g);
    gradients_free(&expected);
    training_free(&t);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"threads and repetition change no bit", thread_counts},
        {"what else is wanted changes no bit", wanted_sets},
        {"other sequences and heads change no bit", alone},
        {"a ragged sequence has the bits of one alone", ragged},
        {"padding changes no bit", padding},
        {"NaN and Inf change no bit of what does not meet them", not_finite},
    };
    return properties_run(argc, argv, "test_backward", properties, sizeof properties / sizeof *properties);
}
