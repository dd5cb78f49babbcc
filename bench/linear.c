/* SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x Wᵀ by attn_linear_forward() and by cblas_sgemm(), without bias: the
 * product that both can do.
 *
 * The layer is made once and its weights packed, as a model does it. OpenBLAS
 * packs them in each call; what a program could do for it once is done, so it
 * gets them as nn.Linear stores them, outputs by inputs, or transposed, and one
 * thread or all of them, whichever is fastest for the shape.
 *
 * With few rows the time is that of fetching the weights, so it matters where
 * they are. In a model a layer is followed by others, and by its next turn has
 * left the cache of its core. So both sides walk through as many matrices as a
 * small model has in weights, and the rate at which they come is reported.
 *
 * Each result of the layer is compared with OpenBLAS's, for each matrix, before
 * and after measuring.
 */
#include "linear.h"
#include "naive.h"
#include "numbers.h"
#include "turns.h"

#include "attn/nn/linear.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Outputs are standard normal, so each of the sums on the way is known to some
 * 2^-24. That makes sqrt(inputs) times as much in the end, and of millions of
 * differences the largest is several times the usual one. A product too many or
 * too few would be of the size 1 / sqrt(inputs), hundreds of times the bound.
 */
#define TOLERANCE 0x1p-20 /* times sqrt(inputs) */

/* Weights and activations that are rounded: the largest of some thousand differences, for outputs of size 1. */
#define TOLERANCE_PAIRS 0.02
#define TOLERANCE_INT8  0.1
#define TOLERANCE_INT4  0.7

/* Above this many operations one thread is not tried against several. */
#define SERIAL_FLOPS 1e9

#define SEED_X       21
#define SEED_WEIGHTS 22

struct layers {
    const struct bench_case *bcase;
    int threads;
    bool blas_serial, blas_transposed; /* how OpenBLAS is called */
    int64_t count, distinct;           /* layers, and matrices that they are made from */
    attn_linear **packed;
    float *weights;    /* [distinct][outputs][inputs] */
    float *transposed; /* [distinct][inputs][outputs] */
    float *x, *out, *expected;
};

/* A side, which takes the matrices in turns. */
struct side {
    const struct layers *layers;
    int64_t next;
};

static int64_t take_next(struct side *s)
{
    const int64_t at = s->next;
    s->next = at + 1 < s->layers->count ? at + 1 : 0;
    return at;
}

static int run_layer(void *side)
{
    const struct layers *l = ((struct side *)side)->layers;
    const struct bench_case *c = l->bcase;
    const attn_tensor x = attn_btc(l->x, 1, c->rows, c->inputs), out = attn_btc(l->out, 1, c->rows, c->outputs);
    attn_linear_options options = attn_linear_options_default();
    options.num_threads = l->threads;
    return attn_linear_forward(l->packed[take_next(side)], &x, &out, &options) == ATTN_OK;
}

static int run_blas(void *side)
{
    const struct layers *l = ((struct side *)side)->layers;
    const struct bench_case *c = l->bcase;
    const int m = (int)c->rows, n = (int)c->outputs, k = (int)c->inputs;
    const bool transposed = l->blas_transposed;
    const float *weights =
        (transposed ? l->transposed : l->weights) + take_next(side) % l->distinct * c->outputs * c->inputs;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasNoTrans : CblasTrans, m, n, k, 1.0f, l->x, k, weights,
                transposed ? n : k, 0.0f, l->expected, n);
    return 1;
}

static void select_way(struct layers *l, bool serial, bool transposed)
{
    l->blas_serial = serial;
    l->blas_transposed = transposed;
    openblas_set_num_threads(serial ? 1 : l->threads);
}

/* Keeps the fastest of the ways to call OpenBLAS; with probe_time 0 nothing is measured and the usual one taken. */
static void choose_way(struct layers *l, double probe_time)
{
    struct side side = {.layers = l};
    bool serial = l->threads == 1, transposed = false;
    double fastest = INFINITY;
    const struct bench_case *c = l->bcase;
    const bool small = 2.0 * (double)c->rows * (double)c->outputs * (double)c->inputs < SERIAL_FLOPS;
    for (int way = 0; way < 4 && probe_time > 0.0; way++) {
        const bool one = way / 2 == 1;
        if (one ? l->threads > 1 && !small : l->threads == 1)
            continue;
        select_way(l, one, way % 2 == 1);
        const double took = bench_probe(run_blas, &side, probe_time);
        if (took < fastest) {
            fastest = took;
            serial = l->blas_serial;
            transposed = l->blas_transposed;
        }
    }
    select_way(l, serial, transposed);
}

static const char *way_name(const struct layers *l)
{
    if (l->blas_transposed)
        return l->blas_serial ? "serial-t" : "blas-t";
    return bench_naive_strategy_name(l->blas_serial ? BENCH_NAIVE_SERIAL : BENCH_NAIVE_BLAS);
}

static void destroy_layers(struct layers *l)
{
    for (int64_t i = 0; l->packed != NULL && i < l->count; i++)
        attn_linear_destroy(l->packed[i]);
    free(l->packed);
    free(l->weights);
    free(l->transposed);
    free(l->x);
    free(l->out);
    free(l->expected);
}

static void transpose(const struct bench_case *c, const float *from, float *to)
{
    for (int64_t k = 0; k < c->inputs; k++)
        for (int64_t n = 0; n < c->outputs; n++)
            to[k * c->outputs + n] = from[n * c->inputs + k];
}

/* Cuts weights to bf16, in place, so that OpenBLAS has the same ones; copy is as many. */
static void cut_to_bf16(float *weights, uint16_t *copy, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &weights[i], sizeof bits);
        copy[i] = (uint16_t)(bits >> 16);
        bits &= 0xffff0000u;
        memcpy(&weights[i], &bits, sizeof bits);
    }
}

static attn_linear_format format_of(const struct bench_case *c)
{
    attn_linear_format format = attn_linear_format_default();
    format.weights = c->weights == BENCH_WEIGHTS_INT8   ? ATTN_WEIGHTS_INT8
                     : c->weights == BENCH_WEIGHTS_INT4 ? ATTN_WEIGHTS_INT4
                                                        : ATTN_WEIGHTS_AS_GIVEN;
    format.group = c->group;
    if (c->narrow_products)
        format.multiply = c->weights ? ATTN_MULTIPLY_INT8 : ATTN_MULTIPLY_BF16;
    return format;
}

static double tolerance_of(const struct bench_case *c)
{
    return c->weights == BENCH_WEIGHTS_INT4   ? TOLERANCE_INT4
           : c->weights == BENCH_WEIGHTS_INT8 ? TOLERANCE_INT8
           : c->narrow_products               ? TOLERANCE_PAIRS
                                              : TOLERANCE * sqrt((double)c->inputs);
}

static int create_layers(struct layers *l, const struct bench_case *c, int threads)
{
    const int64_t size = c->outputs * c->inputs;
    *l = (struct layers){.bcase = c, .threads = threads, .count = bench_case_matrices(c)};
    l->distinct = bench_case_far(c) ? 1 : l->count;
    l->packed = calloc((size_t)l->count, sizeof(attn_linear *));
    l->weights = bench_alloc_floats(l->distinct * size);
    l->transposed = bench_alloc_floats(l->distinct * size);
    l->x = bench_alloc_floats(c->rows * c->inputs);
    l->out = bench_alloc_floats(c->rows * c->outputs);
    l->expected = bench_alloc_floats(c->rows * c->outputs);
    if (l->packed == NULL || l->weights == NULL || l->transposed == NULL || l->x == NULL || l->out == NULL ||
        l->expected == NULL) {
        fprintf(stderr, "attn-bench: there is not enough memory for the matrices of case %s\n", c->id);
        return -1;
    }
    bench_fill_normal(l->x, c->rows * c->inputs, SEED_X);
    bench_fill_normal(l->weights, l->distinct * size, SEED_WEIGHTS);
    const float scale = 1.0f / sqrtf((float)c->inputs);
    for (int64_t i = 0; i < l->distinct * size; i++)
        l->weights[i] *= scale;
    const bool narrow = c->dtype == ATTN_BF16;
    const attn_linear_format format = format_of(c);
    uint16_t *copy = malloc(narrow ? (size_t)size * sizeof *copy : 1);
    int status = copy != NULL ? 0 : -1;
    if (copy == NULL)
        fprintf(stderr, "attn-bench: there is not enough memory for the matrices of case %s\n", c->id);
    for (int64_t i = 0; i < l->count && status == 0; i++) {
        float *const weights = l->weights + i % l->distinct * size;
        if (narrow && i < l->distinct)
            cut_to_bf16(weights, copy, size);
        if (i < l->distinct)
            transpose(c, weights, l->transposed + i * size);
        attn_tensor weight = attn_matrix(weights, c->outputs, c->inputs);
        if (narrow)
            weight.data = copy, weight.dtype = ATTN_BF16;
        if (attn_linear_quantize(&l->packed[i], &format, 1, &weight, NULL) != ATTN_OK) {
            fprintf(stderr, "attn-bench: case %s failed: %s\n", c->id, attn_last_error());
            status = -1;
        }
    }
    free(copy);
    return status;
}

/* The largest difference of the two results; NaN if there is one in either. */
static double difference(const struct layers *l)
{
    double largest = 0.0;
    for (int64_t i = 0; i < l->bcase->rows * l->bcase->outputs; i++) {
        const double diff = fabs((double)l->out[i] - (double)l->expected[i]);
        if (isnan(diff))
            return NAN;
        largest = fmax(largest, diff);
    }
    return largest;
}

/* Computes both results afresh, with each of the matrices. */
static int check_layers(const struct layers *l, struct bench_variant *v)
{
    const double tolerance = tolerance_of(l->bcase);
    struct side layer = {.layers = l}, blas = {.layers = l};
    for (int64_t i = 0; i < l->count; i++) {
        /* An output that is never written must not look right. */
        memset(l->out, 0xff, (size_t)(l->bcase->rows * l->bcase->outputs) * sizeof *l->out);
        run_blas(&blas);
        if (!run_layer(&layer))
            return bench_variant_error(v);
        const double diff = difference(l);
        if (!(diff <= tolerance)) {
            fprintf(stderr, "attn-bench: %s differs from OpenBLAS by %g; expected at most %g\n", v->row.name, diff,
                    tolerance);
            return -1;
        }
        v->row.max_abs_diff = fmax(v->row.max_abs_diff, diff);
    }
    return 0;
}

bool bench_linear_supported(const char *isa)
{
    return bench_same_isa(bench_f32_isa(isa), bench_f32_isa(attn_isa_active()));
}

static struct bench_variant make_variant(const struct layers *l, enum bench_kind kind, struct side *side,
                                         const char *isa)
{
    const struct bench_case *c = l->bcase;
    const double weights = (double)c->outputs * (double)c->inputs;
    struct bench_variant v = {.body = kind == BENCH_NAIVE ? run_blas : run_layer, .context = side};
    v.row.kind = kind;
    v.row.bcase = c;
    v.row.isa = kind == BENCH_NAIVE ? bench_f32_isa(isa) : attn_linear_isa(l->packed[0]);
    v.row.flops = 2.0 * (double)c->rows * weights;
    v.row.bytes = l->count > 1
                      ? kind == BENCH_NAIVE ? weights * sizeof(float) : (double)attn_linear_weight_bytes(l->packed[0])
                      : 0.0;
    if (kind == BENCH_NAIVE) {
        bench_naive_name(c, v.row.name);
        v.row.strategy = way_name(l);
    } else {
        bench_forward_name(c, v.row.name);
    }
    return v;
}

int bench_linear_run(struct bench_machine *machine, const struct bench_options *options, const struct bench_case *c,
                     struct bench_selection selection, struct bench_results *results)
{
    struct layers layers;
    struct side layer = {.layers = &layers}, blas = {.layers = &layers};
    struct bench_variant variants[BENCH_MAX_VARIANTS];
    int count = 0, status = -1;
    const bool far = bench_case_far(c) && bench_case_matrices(c) > 1;
    if (create_layers(&layers, c, options->threads) != 0)
        goto done;
    struct bench_peak *const own = bench_machine_peak(machine, attn_linear_isa(layers.packed[0])),
                             *const peak = own != NULL ? own : machine->f32;
    choose_way(&layers, selection.naive ? options->min_time / 4 : 0.0);
    if (selection.library)
        variants[count++] = make_variant(&layers, BENCH_FORWARD, &layer, options->isa);
    if (selection.naive)
        variants[count++] = make_variant(&layers, BENCH_NAIVE, &blas, options->isa);
    if ((selection.library && check_layers(&layers, &variants[0]) != 0) ||
        bench_turns_take(variants, count, peak, far ? &machine->memory[BENCH_READ] : NULL, options) != 0 ||
        (selection.library && check_layers(&layers, &variants[0]) != 0))
        goto done;
    status = bench_turns_report(variants, count, results);
done:
    destroy_layers(&layers);
    return status;
}
