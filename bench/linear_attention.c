/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention. A call takes some tokens of each sequence and carries the states on, as it would for a prompt, or
 * in decoding.
 *
 * Counted are the operations of the recurrence: an update of S and a read of it for each token, and with beta the read
 * of what S says of a key: 4 or 6 for each element of S, whatever is computed besides. For a few tokens the bytes of
 * the states are counted, once; their limit is how fast threads change the same memory in place.
 *
 * Before and after measuring, the first tokens of some heads are compared with the recurrence in double.
 */
#include "linear_attention.h"
#include "attn/linear_attention.h"
#include "numbers.h"
#include "rounding.h"
#include "turns.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED 41 /* and the next ones: q, k, v, decays, beta, states */

/* Tokens, and heads, that are held against the recurrence. */
#define CHECKED_TOKENS 1024
#define CHECKED_HEADS  2

/* Of the size of a row of the output: both sides are sums of thousands of products. */
#define TOLERANCE      1e-4
#define TOLERANCE_BF16 0x1p-7

enum { Q, K, V, OUT, DECAY, BETA, STATE, TENSORS };

struct recurrence {
    const struct bench_case *bcase;
    attn_tensor t[TENSORS];
    attn_linear_attention_params params;
    attn_linear_attention_plan *plan;
    void *workspace;
    size_t workspace_size;
    double *before, *expected; /**< S of a head, and rows of the output */
};

static bool has_decay(const struct bench_case *c)
{
    return c->rule != BENCH_LINEAR && c->rule != BENCH_DELTA;
}

static bool has_beta(const struct bench_case *c)
{
    return c->rule == BENCH_DELTA || c->rule == BENCH_GATED_DELTA || c->rule == BENCH_GATED_DELTA_ROWS;
}

static bool decays_rows(const struct bench_case *c)
{
    return c->rule == BENCH_GATED_ROWS || c->rule == BENCH_GATED_DELTA_ROWS;
}

static void destroy(struct recurrence *r)
{
    attn_linear_attention_plan_destroy(r->plan);
    for (int i = 0; i < TENSORS; i++)
        free(r->t[i].data);
    free(r->workspace);
    free(r->before);
    free(r->expected);
}

static float *floats_of(const attn_tensor *t)
{
    return t->data;
}

static int64_t count(const attn_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

/* Keys of the length 1. */
static void normalise(float *k, int64_t rows, int64_t d)
{
    for (int64_t i = 0; i < rows; i++) {
        double square = 0.0;
        for (int64_t c = 0; c < d; c++)
            square += (double)k[i * d + c] * (double)k[i * d + c];
        const float factor = (float)(1.0 / sqrt(square));
        for (int64_t c = 0; c < d; c++)
            k[i * d + c] *= factor;
    }
}

/* Decays of some hundredths, from a hundred tokens on that are forgotten; beta from 0 to 1. */
static void fill_gates(struct recurrence *r)
{
    float *const decay = floats_of(&r->t[DECAY]), *const beta = floats_of(&r->t[BETA]);
    for (int64_t i = 0; i < count(&r->t[DECAY]); i++)
        decay[i] = -0.02f * fabsf(decay[i]);
    for (int64_t i = 0; i < count(&r->t[BETA]); i++)
        beta[i] = 1.0f / (1.0f + expf(-beta[i]));
}

/* Floats become a tensor of another type. */
static int narrow(attn_tensor *t, attn_dtype dtype)
{
    void *const rounded = bench_alloc_large((size_t)count(t) * attn_dtype_size(dtype));
    if (rounded == NULL) {
        fputs("attn-bench: there is not enough memory for tensors of 16 bits\n", stderr);
        return -1;
    }
    bench_round_rows(floats_of(t), rounded, dtype, NULL, count(t) / t->shape[3], t->shape[3]);
    free(t->data);
    t->data = rounded;
    t->dtype = dtype;
    return 0;
}

static int create(struct recurrence *r, const struct bench_case *c, const struct bench_options *options)
{
    const int64_t b = c->batch, h = c->heads, t = c->tq, d = c->d;
    const int64_t shapes[TENSORS][4] = {[Q] = {b, h, t, d},
                                        [K] = {b, h, t, d},
                                        [V] = {b, h, t, d},
                                        [OUT] = {b, h, t, d},
                                        [DECAY] = {b, h, t, decays_rows(c) ? d : 1},
                                        [BETA] = {b, h, t, 1},
                                        [STATE] = {b, h, d, d}};
    bool made = true;
    *r = (struct recurrence){.bcase = c, .params = attn_linear_attention_params_default()};
    for (int i = 0; i < TENSORS; i++) {
        const int64_t *s = shapes[i];
        r->t[i] =
            attn_bhtd(bench_alloc_large((size_t)(s[0] * s[1] * s[2] * s[3]) * sizeof(float)), s[0], s[1], s[2], s[3]);
        made = made && r->t[i].data != NULL;
        if (r->t[i].data != NULL && i != OUT)
            bench_fill_normal(floats_of(&r->t[i]), count(&r->t[i]), (uint64_t)(SEED + i));
    }
    r->before = malloc((size_t)(d * d) * sizeof *r->before);
    r->expected = malloc((size_t)d * sizeof *r->expected);
    if (!made || r->before == NULL || r->expected == NULL) {
        fprintf(stderr, "attn-bench: there is not enough memory for the tensors of case %s\n", c->id);
        return -1;
    }
    normalise(floats_of(&r->t[K]), b * h * t, d);
    fill_gates(r);
    for (int i = Q; i <= OUT && c->dtype != ATTN_F32; i++)
        if (narrow(&r->t[i], c->dtype) != 0)
            return -1;
    r->params.decay = has_decay(c) ? &r->t[DECAY] : NULL;
    r->params.beta = has_beta(c) ? &r->t[BETA] : NULL;
    r->params.state_in = r->params.state_out = &r->t[STATE];
    r->params.isa = options->isa;
    r->params.num_threads = options->threads;
    return 0;
}

static int run(void *context)
{
    struct recurrence *r = context;
    return attn_linear_attention_plan_run(r->plan, &r->t[Q], &r->t[K], &r->t[V], &r->t[OUT], &r->params, r->workspace,
                                          r->workspace_size) == ATTN_OK;
}

static double at(const struct recurrence *r, int tensor, int64_t row, int64_t c)
{
    const attn_tensor *t = &r->t[tensor];
    return (double)bench_element(t->data, t->dtype, row * t->shape[3] + (t->shape[3] > 1 ? c : 0));
}

/* A token of the recurrence: row is that of its head and token. The largest difference of a row, of its size. */
static double step(const struct recurrence *r, int64_t row, double *s)
{
    const struct bench_case *c = r->bcase;
    const int64_t d = c->d;
    double largest = 0.0, size = 0.0;
    for (int64_t i = 0; i < d * d && has_decay(c); i++)
        s[i] *= exp(at(r, DECAY, row, i / d));
    for (int64_t e = 0; e < d; e++) {
        double u = at(r, V, row, e), out = 0.0;
        if (has_beta(c)) {
            for (int64_t i = 0; i < d; i++)
                u -= s[i * d + e] * at(r, K, row, i);
            u *= at(r, BETA, row, 0);
        }
        for (int64_t i = 0; i < d; i++) {
            s[i * d + e] += at(r, K, row, i) * u;
            out += s[i * d + e] * at(r, Q, row, i);
        }
        r->expected[e] = out / sqrt((double)d);
        size = fmax(size, fabs(r->expected[e]));
    }
    for (int64_t e = 0; e < d; e++) {
        const double difference = fabs(at(r, OUT, row, e) - r->expected[e]);
        largest = isnan(difference) ? INFINITY : fmax(largest, difference);
    }
    return size > 0.0 ? largest / size : largest;
}

/* Runs, and compares some heads from the states before. */
static int check(struct bench_variant *v, struct recurrence *r)
{
    const struct bench_case *c = r->bcase;
    const int64_t d = c->d, tokens = c->tq < CHECKED_TOKENS ? c->tq : CHECKED_TOKENS, heads = c->batch * c->heads;
    const double tolerance = c->dtype == ATTN_F32 ? TOLERANCE : TOLERANCE_BF16;
    double *states[CHECKED_HEADS] = {NULL};
    int status = 0;
    for (int n = 0; n < CHECKED_HEADS; n++) {
        const float *from = floats_of(&r->t[STATE]) + (n == 0 ? 0 : heads - 1) * d * d;
        states[n] = malloc((size_t)(d * d) * sizeof **states);
        for (int64_t i = 0; states[n] != NULL && i < d * d; i++)
            states[n][i] = (double)from[i];
        status = states[n] == NULL ? -1 : status;
    }
    memset(r->t[OUT].data, 0xff, (size_t)count(&r->t[OUT]) * attn_dtype_size(r->t[OUT].dtype)); /* NaN */
    if (status == 0 && !run(r))
        status = bench_variant_error(v);
    for (int n = 0; n < CHECKED_HEADS && status == 0; n++)
        for (int64_t t = 0; t < tokens; t++) {
            const double difference = step(r, (n == 0 ? 0 : heads - 1) * c->tq + t, states[n]);
            v->row.max_abs_diff = fmax(v->row.max_abs_diff, difference);
            if (difference <= tolerance)
                continue;
            fprintf(stderr, "attn-bench: %s: token %lld differs from the recurrence by %g of its size; expected %g\n",
                    v->row.name, (long long)t, difference, tolerance);
            status = -1;
            break;
        }
    for (int n = 0; n < CHECKED_HEADS; n++)
        free(states[n]);
    return status;
}

static int make_plan(struct recurrence *r, struct bench_variant *v)
{
    if (attn_linear_attention_plan_create(&r->plan, &r->t[Q], &r->t[K], &r->t[V], &r->t[OUT], &r->params) != ATTN_OK)
        return bench_variant_error(v);
    attn_linear_attention_plan_describe(r->plan, v->row.plan, sizeof v->row.plan);
    r->workspace_size = v->row.workspace_bytes = attn_linear_attention_plan_workspace_size(r->plan);
    r->workspace = bench_alloc_workspace(r->workspace_size);
    if (r->workspace == NULL)
        return -1;
    return bench_result_check_kernels(&v->row);
}

int bench_linear_attention_run(struct bench_machine *machine, const struct bench_options *options,
                               const struct bench_case *c, struct bench_results *results)
{
    struct recurrence r;
    struct bench_variant v = {.body = run, .context = &r};
    struct bench_bandwidth updating = {
        .kernels = machine->f32->kernels, .threads = options->threads, .access = BENCH_UPDATE};
    const double elements = (double)c->batch * (double)c->heads * (double)(c->d * c->d);
    int status = -1;
    v.row.kind = BENCH_FORWARD;
    v.row.bcase = c;
    v.row.isa = bench_f32_isa(options->isa);
    v.row.flops = (has_beta(c) ? 6.0 : 4.0) * elements * (double)c->tq;
    if (bench_case_updates_states(c)) {
        v.row.bytes = elements * (double)sizeof(float);
        v.row.written = true;
    }
    bench_forward_name(c, v.row.name);
    if (create(&r, c, options) != 0 || make_plan(&r, &v) != 0 || check(&v, &r) != 0)
        goto done;
    updating.regions[updating.num_regions++] =
        (struct bench_region){.words = r.t[STATE].data, .count = count(&r.t[STATE])};
    if (bench_turns_take(&v, 1, machine->f32, bench_case_updates_states(c) ? &updating : NULL, options) != 0 ||
        check(&v, &r) != 0)
        goto done;
    status = bench_turns_report(&v, 1, results);
done:
    destroy(&r);
    return status;
}
