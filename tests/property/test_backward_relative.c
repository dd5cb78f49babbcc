/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of terms by distance (params.disentangled): neither the borders of
 * strips, blocks and tasks nor what stands where nobody looks changes a bit of
 * them; and heads that share a table have the sum of what each would give it.
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

/** A training with terms by distance. */
static void draw(struct training *t, struct rng *rng, const char *isa, int features)
{
    training_draw(t, rng, isa, features);
    if (!t->p.params.disentangled)
        training_draw_tables(t, rng);
    free(t->out.data);
    free(t->lse.data);
    training_forward(t);
}

/** Many strips and tasks, on so many threads. */
static int thread_counts(struct rng *rng, const char *isa)
{
    struct training t;
    problem_for_threads(&t.p, rng, isa, 7);
    training_begin(&t, rng);
    if (!t.p.params.disentangled)
        training_draw_tables(&t, rng);
    free(t.out.data);
    free(t.lse.data);
    training_forward(&t);
    struct gradients expected = training_run(&t, ALL_GRADIENTS);
    int holds = 1;
    for (int threads = 2; threads <= 7; threads++) {
        t.p.params.num_threads = threads;
        struct gradients g = training_run(&t, ALL_GRADIENTS);
        holds &= gradients_same("other threads", &expected, &g);
        gradients_free(&g);
    }
    gradients_free(&expected);
    training_free(&t);
    return holds;
}

/**
 * A sequence of a ragged batch with a pattern of blocks. Alone it is a row of blocks, whose strips are full; with
 * another one behind it, strips end with the blocks of the pattern. Nothing comes from the other one, which has no
 * loss, so not even tables differ.
 */
static int moved_borders(struct rng *rng, const char *isa)
{
    struct training t;
    const int64_t size = RNG_PICK(rng, 32, 64); /* 32 are no strips of 24, nor 64 of 48 */
    do {
        problem_random(&t.p, rng, isa, 0);
        if (t.p.q.shape[2] > size)
            break;
        problem_free(&t.p);
    } while (1);
    t.p.params.causal = (attn_causal)rng_range(rng, 0, 2);
    problem_narrow(&t.p.q, 0, 0, 1);
    problem_narrow(&t.p.k, 0, 0, 1);
    problem_narrow(&t.p.v, 0, 0, 1);
    const int64_t tq = t.p.q.shape[2], tk = t.p.k.shape[2];
    const int64_t cut = rng_percent(rng, 50) ? size : rng_range(rng, 0, size), cut_k = rng_range(rng, tk / 2 + 1, tk);
    const int64_t cu_q[3] = {0, cut, tq}, cu_k[3] = {0, cut_k, tk};
    const int64_t longest = cut > tq - cut ? cut : tq - cut, rows = (longest + size - 1) / size;
    const int64_t columns = (cut_k + size - 1) / size; /* of the first sequence, which has more keys */
    int64_t *offsets = must_allocate(rows + 1, sizeof *offsets), n = 0;
    int32_t *list = must_allocate(rows * columns, sizeof *list);
    for (int64_t row = 0; row < rows; row++) {
        offsets[row] = n;
        for (int64_t column = 0; column < columns; column++)
            if (rng_percent(rng, 80))
                list[n++] = (int32_t)column;
    }
    offsets[rows] = n;
    attn_block_mask pattern = {.size = size, .heads = 1, .rows = rows, .offsets = offsets, .columns = list};
    attn_ragged batch = {2, cu_q, cu_k};
    t.p.params.ragged = &batch;
    t.p.params.block_mask = &pattern;
    t.p.params.num_threads = (int)rng_range(rng, 1, 3);
    training_begin(&t, rng);
    if (!t.p.params.disentangled)
        training_draw_tables(&t, rng);
    t.p.params.dropout = NULL; /* follows from the number of the sequence */
    free(t.d_lse.data);
    t.d_lse.data = NULL;
    for (int64_t h = 0; h < t.d_out.shape[1]; h++)
        for (int64_t i = cut; i < tq; i++)
            for (int64_t c = 0; c < t.d_out.shape[3]; c++)
                tensor_set(&t.d_out, 0, h, i, c, 0);
    free(t.out.data);
    free(t.lse.data);
    training_forward(&t);
    struct gradients whole = training_run(&t, ALL_GRADIENTS);
    struct training part = t;
    attn_tensor *const of_q[] = {&part.p.q, &part.out, &part.lse, &part.d_out};
    for (size_t i = 0; i < sizeof of_q / sizeof *of_q; i++)
        problem_narrow(of_q[i], 2, 0, cut);
    problem_narrow(&part.p.k, 2, 0, cut_k);
    problem_narrow(&part.p.v, 2, 0, cut_k);
    training_bind_tables(&part);
    part.p.params.ragged = NULL;
    part.p.params.num_threads = 1;
    pattern.rows = (cut + size - 1) / size;
    struct gradients alone = training_run(&part, ALL_GRADIENTS);
    int holds = gradients_same_part("a sequence alone", &whole, 0, from_start, from_start, &alone);
    for (int i = 0; i < 2; i++)
        for (int64_t at = 0; whole.tables[i].data && at < problem_count(&whole.tables[i]) && holds; at++) {
            const float x = ((const float *)whole.tables[i].data)[at], y = ((const float *)alone.tables[i].data)[at];
            holds = x == y; /* but for the sign of zeros */
            if (!holds)
                printf("  drel_%c[%d] is %.9g, and %.9g of the sequence alone\n", i ? 'q' : 'k', (int)at, (double)x,
                       (double)y);
        }
    gradients_free(&whole);
    gradients_free(&alone);
    free(offsets);
    free(list);
    training_free(&t);
    return holds;
}

/** Whether a pair that someone sees has a row of a table. */
static int is_used(const struct training *t, int of_q, int64_t table_head, int64_t row)
{
    const attn_params *p = &t->p.params;
    const attn_tensor *const table = of_q ? &t->rel_q : &t->rel_k;
    for (int64_t b = 0; b < t->p.q.shape[0]; b++)
        for (int64_t h = 0; h < t->p.q.shape[1]; h++)
            for (int64_t i = 0; i < t->p.q.shape[2] && (table->shape[1] == 1 || h == table_head); i++) {
                const struct oracle_query query = oracle_query_at(p, t->p.q.shape[2], t->p.k.shape[2], b, h, i);
                for (int64_t j = query.start; j < query.end; j++) {
                    const int64_t distance = oracle_distance(&query, j);
                    const int64_t at = of_q ? oracle_position_row(&t->disentangled, distance)
                                            : oracle_content_row(t->disentangled.span, distance);
                    if (at == row && oracle_sees(p, &query, j))
                        return 1;
                }
            }
    return 0;
}

/** NaN in rows that no pair has, in keys that nobody sees and in queries that see nothing. */
static int unseen_rows(struct rng *rng, const char *isa)
{
    struct training t;
    draw(&t, rng, isa, WITH_ALL);
    struct gradients expected = training_run(&t, ALL_GRADIENTS);
    const attn_params *p = &t.p.params;
    const int64_t *n = t.p.q.shape, *m = t.p.k.shape, group = n[1] / m[1];
    const float poison = rng_percent(rng, 70) ? NAN : INFINITY;
    for (int of_q = 0; of_q < 2; of_q++) {
        attn_tensor *table = of_q ? &t.rel_q : &t.rel_k;
        for (int64_t h = 0; table->data && h < table->shape[1]; h++)
            for (int64_t row = 0; row < table->shape[2]; row++)
                for (int64_t c = 0, used = is_used(&t, of_q, h, row); c < table->shape[3] && !used; c++)
                    tensor_set(table, 0, h, row, c, poison);
    }
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2]; i++) {
                int sees = 0;
                for (int64_t j = 0; j < m[2]; j++)
                    sees |= oracle_key_is_live(p, n[2], m[2], b, h, i, j);
                for (int64_t c = 0; c < n[3] && !sees; c++)
                    tensor_set(&t.p.q, b, h, i, c, poison);
            }
    for (int64_t b = 0; b < m[0]; b++)
        for (int64_t g = 0; g < m[1]; g++)
            for (int64_t j = 0; j < m[2]; j++) {
                int seen = 0;
                for (int64_t h = g * group; h < (g + 1) * group && !seen; h++)
                    for (int64_t i = 0; i < n[2]; i++)
                        seen |= oracle_key_is_live(p, n[2], m[2], b, h, i, j);
                for (int64_t c = 0; c < m[3] && !seen; c++)
                    tensor_set(&t.p.k, b, g, j, c, poison);
            }
    struct gradients got = training_run(&t, ALL_GRADIENTS);
    const int holds = gradients_same("what nobody sees", &expected, &got);
    gradients_free(&expected);
    gradients_free(&got);
    training_free(&t);
    return holds;
}

/** A table of all heads gets the sum of what tables of their own would get, and the others their gradients as ever. */
static int shared_tables(struct rng *rng, const char *isa)
{
    struct training t;
    draw(&t, rng, isa, WITH_ALL);
    const int64_t heads = t.p.q.shape[1];
    struct training own = t;
    for (int i = 0; i < 2; i++) {
        attn_tensor *shared = i ? &t.rel_q : &t.rel_k, *copy = i ? &own.rel_q : &own.rel_k;
        if (!shared->data)
            continue;
        shared->shape[1] = 1; /* the first head's, for all of them */
        *copy = training_tensor(ATTN_F32, (int64_t[]){1, heads, shared->shape[2], 0}, shared->shape[3]);
        for (int64_t at = 0; at < problem_count(copy); at++) {
            const int64_t c = at % copy->shape[3], row = at / copy->shape[3] % copy->shape[2];
            tensor_set(copy, 0, at / copy->shape[3] / copy->shape[2], row, c, tensor_get(shared, 0, 0, row, c));
        }
    }
    training_bind_tables(&own);
    free(t.out.data);
    free(t.lse.data);
    training_forward(&t);
    own.out = t.out;
    own.lse = t.lse;
    struct gradients a = training_run(&t, ALL_GRADIENTS), b = training_run(&own, ALL_GRADIENTS);
    int holds = gradients_same_part("tables of their own", &a, 0, from_start, from_start, &b);
    for (int i = 0; i < 2; i++)
        for (int64_t at = 0; a.tables[i].data && at < problem_count(&a.tables[i]) && holds; at++) {
            const int64_t floats = problem_count(&a.tables[i]);
            double sum = 0, size = 0;
            for (int64_t h = 0; h < heads; h++) {
                const double x = (double)((const float *)b.tables[i].data)[h * floats + at];
                sum += x;
                size += fabs(x);
            }
            const double x = (double)((const float *)a.tables[i].data)[at];
            holds = fabs(x - sum) <= size * 0x1p-23 + 0x1p-148; /* each has been rounded once */
            if (!holds)
                printf("  drel_%c[%d] is %.9g, the sum of its heads %.9g\n", i ? 'q' : 'k', (int)at, x, sum);
        }
    gradients_free(&a);
    gradients_free(&b);
    free(own.rel_k.data);
    free(own.rel_q.data);
    training_free(&t);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"threads change no bit", thread_counts},
        {"borders of strips and blocks change no bit", moved_borders},
        {"what nobody sees changes no bit", unseen_rows},
        {"a table of all heads has the sum of theirs", shared_tables},
    };
    return properties_run(argc, argv, "test_backward_relative", properties, sizeof properties / sizeof *properties);
}
