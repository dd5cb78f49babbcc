/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of a linear layer y = x Wᵀ from that of y: those of x and of W
 * in one call of attn_linear_backward(), and in two of cblas_sgemm().
 */
#include "linear.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/nn/linear.h"
#include "naive.h"
#include "numbers.h"
#include "turns.h"

/* Largest difference from OpenBLAS of sums of n products of normal numbers: as for linear layers, their size is
 * sqrt(n). */
#define TOLERANCE    0x1p-20

#define SEED_X       31
#define SEED_WEIGHTS 32
#define SEED_D_OUT   33

/* A layer, and what each of the two sides makes of it. */
struct layer {
    const struct bench_case *bcase;
    int threads;
    float *x, *weights, *d_out;
    struct {
        float *x, *weights;
    } own, blas;
};

static int run_layer(void *context)
{
    const struct layer *l = context;
    const struct bench_case *c = l->bcase;
    const attn_tensor weights = attn_matrix(l->weights, c->outputs, c->inputs),
                      x = attn_btc(l->x, 1, c->rows, c->inputs), d_out = attn_btc(l->d_out, 1, c->rows, c->outputs),
                      d_x = attn_btc(l->own.x, 1, c->rows, c->inputs),
                      d_weights = attn_matrix(l->own.weights, c->outputs, c->inputs);
    attn_linear_gradients gradients = attn_linear_gradients_default();
    gradients.x = &d_x;
    gradients.weights = &d_weights;
    gradients.num_threads = l->threads;
    return attn_linear_backward(&weights, &x, &d_out, &gradients, NULL, 0) == ATTN_OK;
}

static int run_blas(void *context)
{
    const struct layer *l = context;
    const int rows = (int)l->bcase->rows, outputs = (int)l->bcase->outputs, inputs = (int)l->bcase->inputs;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, inputs, outputs, 1.0f, l->d_out, outputs, l->weights,
                inputs, 0.0f, l->blas.x, inputs);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, outputs, inputs, rows, 1.0f, l->d_out, outputs, l->x, inputs,
                0.0f, l->blas.weights, inputs);
    return 1;
}

static void destroy_layer(struct layer *l)
{
    free(l->x);
    free(l->weights);
    free(l->d_out);
    free(l->own.x);
    free(l->own.weights);
    free(l->blas.x);
    free(l->blas.weights);
}

static int create_layer(struct layer *l, const struct bench_case *c, int threads)
{
    const int64_t of_x = c->rows * c->inputs, of_weights = c->outputs * c->inputs, of_out = c->rows * c->outputs;
    *l = (struct layer){.bcase = c, .threads = threads};
    l->x = bench_alloc_floats(of_x);
    l->weights = bench_alloc_floats(of_weights);
    l->d_out = bench_alloc_floats(of_out);
    l->own.x = bench_alloc_floats(of_x);
    l->own.weights = bench_alloc_floats(of_weights);
    l->blas.x = bench_alloc_floats(of_x);
    l->blas.weights = bench_alloc_floats(of_weights);
    if (!l->x || !l->weights || !l->d_out || !l->own.x || !l->own.weights || !l->blas.x || !l->blas.weights) {
        fprintf(stderr, "attn-bench: there is not enough memory for the matrices of case %s\n", c->id);
        return -1;
    }
    bench_fill_normal(l->x, of_x, SEED_X);
    bench_fill_normal(l->weights, of_weights, SEED_WEIGHTS);
    bench_fill_normal(l->d_out, of_out, SEED_D_OUT);
    return 0;
}

/* The largest difference of two arrays; NaN if there is one in either. */
static double difference(const float *a, const float *b, int64_t n)
{
    double largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double diff = fabs((double)a[i] - (double)b[i]);
        if (isnan(diff))
            return NAN;
        largest = fmax(largest, diff);
    }
    return largest;
}

/* Computes both results afresh; an output that is never written must not look right. */
static int check_layer(struct layer *l, struct bench_variant *v)
{
    const struct bench_case *c = l->bcase;
    const int64_t of_x = c->rows * c->inputs, of_weights = c->outputs * c->inputs;
    memset(l->own.x, 0xff, (size_t)of_x * sizeof(float));
    memset(l->own.weights, 0xff, (size_t)of_weights * sizeof(float));
    run_blas(l);
    if (!run_layer(l))
        return bench_variant_error(v);
    const double of[2] = {difference(l->own.x, l->blas.x, of_x),
                          difference(l->own.weights, l->blas.weights, of_weights)};
    const double sizes[2] = {(double)c->outputs, (double)c->rows};
    for (int i = 0; i < 2; i++) {
        const double tolerance = TOLERANCE * sizes[i];
        if (!(of[i] <= tolerance)) {
            fprintf(stderr, "attn-bench: the gradient of %s of %s differs from OpenBLAS's by %g; expected at most %g\n",
                    i ? "the weights" : "x", v->row.name, of[i], tolerance);
            return -1;
        }
        v->row.max_abs_diff = fmax(v->row.max_abs_diff, of[i]);
    }
    return 0;
}

static struct bench_variant make_variant(struct layer *l, enum bench_kind kind, const char *isa)
{
    const struct bench_case *c = l->bcase;
    struct bench_variant v = {.body = kind == BENCH_NAIVE ? run_blas : run_layer, .context = l};
    v.row.kind = kind;
    v.row.bcase = c;
    v.row.isa = bench_f32_isa(isa);
    v.row.flops = 4.0 * (double)c->rows * (double)c->outputs * (double)c->inputs;
    if (kind == BENCH_NAIVE) {
        bench_naive_name(c, v.row.name);
        v.row.strategy = bench_naive_strategy_name(BENCH_NAIVE_BLAS);
    } else {
        bench_forward_name(c, v.row.name);
    }
    return v;
}

int bench_linear_backward_run(struct bench_machine *machine, const struct bench_options *options,
                              const struct bench_case *c, struct bench_selection selection,
                              struct bench_results *results)
{
    struct layer layer;
    struct bench_variant variants[BENCH_MAX_VARIANTS];
    int count = 0, status = -1;
    openblas_set_num_threads(options->threads);
    if (create_layer(&layer, c, options->threads) != 0)
        goto done;
    if (selection.library)
        variants[count++] = make_variant(&layer, BENCH_FORWARD, options->isa);
    if (selection.naive)
        variants[count++] = make_variant(&layer, BENCH_NAIVE, options->isa);
    if ((selection.library && check_layer(&layer, &variants[0]) != 0) ||
        bench_turns_take(variants, count, machine->f32, NULL, options) != 0 ||
        (selection.library && check_layer(&layer, &variants[0]) != 0))
        goto done;
    status = bench_turns_report(variants, count, results);
done:
    destroy_layer(&layer);
    return status;
}
