/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows by which gradients are checked: that they are derivatives of the forward pass, by differences
 * of a loss that is computed here, and that a gradient which is wrong is found. Nothing is timed.
 */
#include "attn/backward.h"
#include "gradients.h"
#include "pairs.h"
#include "rounding.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The step of a difference; exact for most floats of order 1, and otherwise what it has become is used. */
#define STEP 0x1p-8f

static const struct bench_case shapes[] = {
    {.id = "dense", .batch = 2, .heads = 2, .kv_heads = 2, .tq = 9, .tk = 13, .d = 4},
    {.id = "causal", .batch = 1, .heads = 4, .kv_heads = 2, .tq = 12, .tk = 12, .d = 3, .causal = ATTN_CAUSAL_TOP_LEFT},
    {.id = "blocks",
     .batch = 1,
     .heads = 2,
     .kv_heads = 2,
     .tq = 48,
     .tk = 48,
     .d = 4,
     .form = BENCH_BLOCKS,
     .size = 16,
     .listed = 2},
    {.id = "bf16", .dtype = ATTN_BF16, .batch = 1, .heads = 4, .kv_heads = 1, .tq = 40, .tk = 70, .d = 16},
};

/* Sum of out times its gradient. Writes out and the log-sum-exp, too. */
static double loss(const struct bench_problem *p, const struct bench_gradients *g, float *out, float *lse)
{
    const struct bench_case *c = p->bcase;
    double sum = 0.0;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t i = 0; i < c->tq; i++) {
                const int64_t kv_head = h / (c->heads / c->kv_heads), row = (b * c->heads + h) * c->tq + i;
                const float *q = bench_row_floats(&p->q, b, h, i), *dout = bench_row_floats(&g->wide, b, h, i);
                double total = 0.0, o[16] = {0.0};
                for (int64_t j = 0; j < c->tk; j++) {
                    if (!bench_pair_live(p, b, h, i, j))
                        continue;
                    const float *k = bench_row_floats(&p->k, b, kv_head, j),
                                *v = bench_row_floats(&p->v, b, kv_head, j);
                    double score = 0.0;
                    for (int64_t n = 0; n < c->d; n++)
                        score += (double)q[n] * (double)k[n];
                    const double weight = exp(score / sqrt((double)c->d));
                    total += weight;
                    for (int64_t n = 0; n < c->d; n++)
                        o[n] += weight * (double)v[n];
                }
                for (int64_t n = 0; n < c->d; n++) {
                    sum += o[n] / total * (double)dout[n];
                    if (out != NULL)
                        out[row * c->d + n] = (float)(o[n] / total);
                }
                if (lse != NULL)
                    lse[row] = (float)log(total);
            }
    return sum;
}

static void test_rows_are_derivatives(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct bench_case c = shapes[s];
        struct bench_problem p;
        struct bench_gradients g;
        c.dtype = ATTN_F32;
        c.sampled = true;
        assert_int_equal(bench_problem_create(&p, &c), 0);
        assert_int_equal(bench_gradients_create(&g, &p), 0);
        loss(&p, &g, p.out.data, g.lse.data);
        assert_true(bench_gradients_expect(&g, &p) < 1e-6);
        const attn_tensor *const inputs[] = {&p.q, &p.k, &p.v};
        for (int which = 0; which < 3; which++)
            for (int64_t n = 0; n < BENCH_SAMPLED_ROWS; n++)
                for (int64_t e = 0; e < c.d; e++) {
                    float *const x = (float *)inputs[which]->data + g.rows[which].at[n] * c.d + e;
                    const float before = *x, above = before + STEP, below = before - STEP;
                    *x = above;
                    double change = loss(&p, &g, NULL, NULL);
                    *x = below;
                    change -= loss(&p, &g, NULL, NULL);
                    *x = before;
                    const double slope = change / ((double)above - (double)below);
                    assert_true(fabs(slope - g.rows[which].expected[n * c.d + e]) < 2e-4);
                }
        bench_gradients_destroy(&g);
        bench_problem_destroy(&p);
    }
}

/* A narrow or wide element becomes another number. */
static void spoil_element(const attn_tensor *t, int64_t n, float factor)
{
    float x = bench_element(t->data, t->dtype, n) * factor;
    if (t->dtype == ATTN_F32)
        ((float *)t->data)[n] = x;
    else
        bench_round_rows(&x, (char *)t->data + (size_t)n * attn_dtype_size(t->dtype), t->dtype, NULL, 1, 1);
}

static double difference(struct bench_gradients *g)
{
    return bench_gradients_difference(g).of_row;
}

/* What the library writes is right; what is not written, or is of another call, is not. */
static void test_wrong_gradients_are_found(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct bench_case c = shapes[s];
        struct bench_problem p;
        struct bench_gradients g;
        c.sampled = true;
        assert_int_equal(bench_problem_create(&p, &c), 0);
        assert_int_equal(bench_gradients_create(&g, &p), 0);
        const double tolerance = bench_gradients_tolerance(c.dtype);
        attn_params params = p.params;
        params.lse = &g.lse;
        attn_gradients asked = attn_gradients_default();
        asked.out = &g.out, asked.q = &g.of[0], asked.k = &g.of[1], asked.v = &g.of[2];
        assert_true(isnan(bench_gradients_expect(&g, &p))); /* nothing has been computed */
        assert_int_equal(attn_forward(&p.typed[0], &p.typed[1], &p.typed[2], &p.out, &params), ATTN_OK);
        assert_true(bench_gradients_expect(&g, &p) <= tolerance);
        assert_true(isnan(difference(&g)));
        assert_int_equal(attn_backward(&p.typed[0], &p.typed[1], &p.typed[2], &p.out, &params, &asked), ATTN_OK);
        assert_true(difference(&g) <= tolerance);
        assert_true(bench_gradients_difference(&g).largest > 0.0);
        for (int which = 0; which < 3; which++) {
            const int64_t at = g.rows[which].at[BENCH_SAMPLED_ROWS - 1] * c.d;
            double row = 0.0; /* with a channel that is not tiny, whatever was drawn */
            for (int64_t e = 0; e < c.d; e++)
                row = fmax(row, fabs((double)bench_element(g.of[which].data, g.of[which].dtype, at + e)));
            for (int64_t e = 0; e < c.d; e++)
                if (fabs((double)bench_element(g.of[which].data, g.of[which].dtype, at + e)) == row) {
                    spoil_element(&g.of[which], at + e, 0.5f);
                    assert_true(difference(&g) > tolerance);
                    spoil_element(&g.of[which], at + e, 2.0f);
                }
            assert_true(difference(&g) <= tolerance);
        }
        /* A log-sum-exp of other scores is seen by itself, and not only by what follows from it. */
        float *const lse = g.lse.data;
        for (int64_t i = 0; i < c.batch * c.heads * c.tq; i++)
            lse[i] += 0.02f;
        assert_true(bench_gradients_expect(&g, &p) > tolerance);
        assert_true(difference(&g) > tolerance);
        bench_gradients_spoil(&g);
        assert_true(isnan(difference(&g)));
        bench_gradients_destroy(&g);
        bench_problem_destroy(&p);
    }
}

/* Forms of these cases do nothing but hide pairs, which is all that the rows know of. */
static void test_forms_of_cases(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; i < bench_num_cases; i++) {
        const struct bench_case *c = &bench_cases[i];
        if (c->pass == BENCH_PASS_FORWARD || bench_case_linear(c) || c->rule) /* checked by themselves */
            continue;
        found++;
        assert_true(c->form == BENCH_PLAIN || c->form == BENCH_BLOCKS);
        assert_true(bench_case_sampled(c) && !c->compare && c->page == 0 && c->values_in_keys == 0);
        assert_int_equal(bench_case_kept(c), c->dtype);
        assert_int_equal(c->qk, ATTN_QK_DEFAULT);
    }
    assert_true(found > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_derivatives),
        cmocka_unit_test(test_wrong_gradients_are_found),
        cmocka_unit_test(test_forms_of_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
