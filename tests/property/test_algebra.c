/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of softmax attention that hold in exact arithmetic and must hold
 * within the tolerance here: permuting the keys changes nothing, a constant
 * added to all logits changes only the log-sum-exp, the output is linear in V,
 * a temperature is a scale, and weights, key sums, output and log-sum-exp fit
 * together. close.h says how far two results may be apart.
 */
#include "close.h"
#include "dtype.h"
#include "properties.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void swap_rows(attn_tensor *t, int64_t bh, int64_t i, int64_t j)
{
    const int64_t at_i = bh * t->stride[1] + i * t->shape[3], at_j = bh * t->stride[1] + j * t->shape[3];
    for (int64_t c = 0; c < t->shape[3]; c++) {
        const float x = dtype_load(t->dtype, t->data, at_i + c);
        dtype_store(t->dtype, t->data, at_i + c, dtype_load(t->dtype, t->data, at_j + c));
        dtype_store(t->dtype, t->data, at_j + c, x);
    }
}

static void swap_columns(attn_tensor *mask, int64_t i, int64_t j)
{
    const size_t size = attn_dtype_size(mask->dtype);
    unsigned char x[sizeof(float)], *row = mask->data;
    for (int64_t r = 0; r < mask->shape[0] * mask->shape[1] * mask->shape[2];
         r++, row += size * (size_t)mask->shape[3]) {
        memcpy(x, row + size * (size_t)i, size);
        memcpy(row + size * (size_t)i, row + size * (size_t)j, size);
        memcpy(row + size * (size_t)j, x, size);
    }
}

static int permuted_keys(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_MASK);
    problem_copy(&changed, &p);
    for (int64_t i = p.k.shape[2] - 1; i > 0; i--) {
        const int64_t j = rng_range(rng, 0, i);
        for (int64_t bh = 0; bh < p.k.shape[0] * p.k.shape[1]; bh++) {
            swap_rows(&changed.k, bh, i, j);
            swap_rows(&changed.v, bh, i, j);
        }
        if (changed.mask.data)
            swap_columns(&changed.mask, i, j);
    }
    return close_and_free(&p, &changed, &p, 0);
}

static int shifted_logits(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_CAUSAL | WITH_LENGTHS);
    problem_copy(&changed, &p);
    float *shift = must_allocate(1, sizeof *shift);
    *shift = (float)rng_range(rng, -40, 40) + 0.3f;
    changed.mask = attn_bhtd(shift, 1, 1, 1, 1);
    changed.params.mask = &changed.mask;
    return close_and_free(&p, &changed, &p, (double)*shift);
}

/** out(V1 + V2) = out(V1) + out(V2). */
/** Whether out of the third is the sum of the others', with or without the naive errors in what is allowed. */
static int third_is_sum(const struct problem p[3], const struct result r[3], int naive)
{
    struct reference ref[3];
    double units[3];
    int holds = 1;
    const int64_t n_out = r[0].batch * r[0].heads * r[0].tq * r[0].dv;
    for (int i = 0; i < 3; i++) {
        ref[i] = naive ? reference_compute(&p[i].q, &p[i].k, &p[i].v, &p[i].params, NAIVE_F32)
                       : reference_compute_alone(&p[i].q, &p[i].k, &p[i].v, &p[i].params);
        units[i] = close_units(TEST_OUT, ref[i].out, ref[i].out_unit, ref[i].naive_out_error, n_out);
    }
    for (int64_t i = 0; i < n_out && holds; i++) {
        double difference = 0, x[3];
        for (int n = 0; n < 3; n++) {
            x[n] = (double)result_out(&r[n], i);
            difference += units[n] * ref[n].out_unit[i] + ref[n].out_slack[i] + close_rounding(r[n].dtype, x[n]);
        }
        holds = close_enough(naive ? "out" : NULL, i, x[0] + x[1], x[2], difference);
    }
    for (int i = 0; i < 3; i++)
        reference_free(&ref[i]);
    return holds;
}

static int linear_in_values(struct rng *rng, const char *isa)
{
    struct problem p[3];
    struct result r[3];
    problem_random(&p[0], rng, isa, WITH_ALL);
    problem_copy(&p[1], &p[0]);
    problem_copy(&p[2], &p[0]);
    const int64_t values = p[0].v.shape[0] * p[0].v.stride[0];
    for (int64_t i = 0; i < values; i++) {
        const float v1 = (float)rng_range(rng, -100, 100) / 32; /* so that the sum is exact, in bf16 too */
        const float v2 = (float)rng_range(rng, -100, 100) / 32;
        dtype_store(p[0].v.dtype, p[0].v.data, i, v1);
        dtype_store(p[1].v.dtype, p[1].v.data, i, v2);
        dtype_store(p[2].v.dtype, p[2].v.data, i, v1 + v2);
    }
    for (int i = 0; i < 3; i++)
        r[i] = problem_run(&p[i]);
    const int holds = third_is_sum(p, r, 0) || third_is_sum(p, r, 1);
    for (int i = 0; i < 3; i++) {
        result_free(&r[i]);
        problem_free(&p[i]);
    }
    return holds;
}

static int temperature_is_a_scale(struct rng *rng, const char *isa)
{
    struct problem p, changed;
    problem_random(&p, rng, isa, WITH_ALL);
    const float temperature = (float)(0.2 + 3 * rng_uniform(rng));
    p.params.temperature = temperature;
    problem_copy(&changed, &p);
    changed.params.scale = (p.params.scale != 0 ? p.params.scale : 1 / sqrtf((float)p.q.shape[3])) / temperature;
    changed.params.temperature = 0;
    return close_and_free(&p, &changed, &p, 0);
}

/** Weights sum to 1 (or 0 in a dead row), make out with V and key sums by columns, and lie in 0..1. */
static int outputs_fit_together(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_ALL);
    struct result r = problem_run(&p);
    const int64_t group = r.heads / p.k.shape[1];
    const double slack = 1e-5; /* a sum of up to 300 rounded weights, each below 1 */
    /* Weights on request are not rounded to bf16, but what they are divided by is the sum of rounded ones. */
    const double rounded = reference_weight_rounding(&p.q, &p.k, &p.v, &p.params) * 1.002;
    int holds = 1;
    double *columns = must_allocate(r.tk, sizeof *columns);
    for (int64_t bh = 0; bh < r.batch * r.heads && holds; bh++) {
        const int64_t g = bh / r.heads * p.k.shape[1] + bh % r.heads / group;
        memset(columns, 0, (size_t)r.tk * sizeof *columns);
        for (int64_t row = bh * r.tq; row < (bh + 1) * r.tq && holds; row++) {
            double sum = 0;
            for (int64_t j = 0; j < r.tk && holds; j++) {
                const double weight = (double)r.weights[row * r.tk + j];
                holds = close_enough("weight within 0..1", j, weight, fmin(fmax(weight, 0), 1), slack + rounded);
                sum += weight;
                columns[j] += weight;
            }
            holds = holds && close_enough("sum of weights", row, sum, isinf(r.lse[row]) ? 0 : 1, slack + rounded);
            for (int64_t c = 0; c < r.dv && holds; c++) {
                double out = 0, size = 0;
                const double got = (double)result_out(&r, row * r.dv + c);
                for (int64_t j = 0; j < r.tk; j++) {
                    const double v = (double)dtype_load(p.v.dtype, p.v.data, (g * r.tk + j) * r.dv + c);
                    if (r.weights[row * r.tk + j] > 0) {
                        out += (double)r.weights[row * r.tk + j] * v;
                        size += (double)r.weights[row * r.tk + j] * fabs(v);
                    }
                }
                holds = close_enough("out", row * r.dv + c, out, got,
                                     6 * slack + 2 * rounded * size + close_rounding(r.dtype, got));
            }
        }
        for (int64_t j = 0; j < r.tk && holds; j++)
            holds = close_enough("key sum", bh * r.tk + j, columns[j], (double)r.key_sums[bh * r.tk + j],
                                 slack * (double)r.tq);
    }
    free(columns);
    result_free(&r);
    problem_free(&p);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"permuted keys", permuted_keys},
        {"shifted logits", shifted_logits},
        {"linear in values", linear_in_values},
        {"temperature is a scale", temperature_is_a_scale},
        {"outputs fit together", outputs_fit_together},
    };
    return properties_run(argc, argv, "test_algebra", properties, sizeof properties / sizeof *properties);
}
