/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Algebra of gradients: they are linear in the gradients of out and lse, what
 * shifts all scores of a row alike changes none of them, heads that share a key
 * head add up in it, and keys that nobody sees have none.
 */
#include "compare_backward.h"
#include "dtype.h"
#include "guard.h"
#include "properties.h"
#include "training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/** What the oracle says of a training; without the naive computation, what is within the floors alone passes. */
static struct backward_reference reference_of(const struct training *t, int naively)
{
    struct backward_reference (*const compute)(const struct backward_inputs *) =
        naively ? backward_reference_compute : backward_reference_compute_alone;
    return compute(&(struct backward_inputs){.q = &t->p.q,
                                             .k = &t->p.k,
                                             .v = &t->p.v,
                                             .params = &t->p.params,
                                             .out = &t->out,
                                             .lse = &t->lse,
                                             .d_out = &t->d_out,
                                             .d_lse = t->d_lse.data ? &t->d_lse : NULL,
                                             .callback = t->p.params.callback ? training_partner : NULL});
}

/** How far two results may be apart that should be equal, at one element: so many units and slack for each. */
static double distance_allowed(const struct backward_reference *ref, int of, int64_t at)
{
    const struct gradient *g = &ref->of[of];
    return 2 * (TOLERANCE_GRADIENT_FACTOR * g->naive_error[at] +
                2 * tolerance_gradient_floor((enum gradient_of)of) * g->unit[at] + g->slack[at]);
}

/** Whether a and b, less what is less, are equal within what two references allow; says so of others by what, or NULL.
 */
static int close_gradients(const char *what, const struct gradients *a, const struct gradients *b,
                           const struct gradients *less, const struct backward_reference *first,
                           const struct backward_reference *second)
{
    for (int g = 0; g < GRADIENTS_OF_ROWS; g++)
        for (int64_t at = 0; at < problem_count(&a->of[g]); at++) {
            const double x = (double)dtype_load(a->of[g].dtype, a->of[g].data, at);
            const double y = (double)dtype_load(b->of[g].dtype, b->of[g].data, at) -
                             (double)dtype_load(less->of[g].dtype, less->of[g].data, at);
            if (fabs(x - y) <= distance_allowed(first, g, at) + distance_allowed(second, g, at))
                continue;
            if (what)
                printf("  %s: %s[%d] is %.9g and %.9g\n", what, gradient_names[g], (int)at, x, y);
            return 0;
        }
    return 1;
}

static void scale_tensor(const attn_tensor *t, float factor)
{
    for (int64_t at = 0; t->data && at < problem_count(t); at++)
        dtype_store(t->dtype, t->data, at, factor * dtype_load(t->dtype, t->data, at));
}

/** -2 times the gradients of out and lse give -2 times the others, bit by bit: nothing rounds otherwise, as long as no
 * product is denormal. Slopes are small here, for a denormal number beside a product decides how its halves round. */
static int homogeneous(struct rng *rng, const char *isa)
{
    struct training t;
    training_draw(&t, rng, isa, WITH_ALL);
    if (t.p.params.alibi_slopes) {
        for (int h = 0; h < MAX_HEADS; h++)
            t.slopes[h] /= 1024;
        free(t.out.data);
        free(t.lse.data);
        training_forward(&t);
    }
    for (int i = 0; i < GRADIENTS_OF_ROWS; i++)
        t.types[i] = ATTN_F32; /* f16 has denormals here */
    struct gradients once = training_run(&t, ALL_GRADIENTS);
    scale_tensor(&t.d_out, -2);
    scale_tensor(&t.d_lse, -2);
    struct gradients twice = training_run(&t, ALL_GRADIENTS);
    int holds = 1;
    for (int g = 0; g < GRADIENTS_OF_ROWS; g++)
        for (int64_t at = 0; at < problem_count(&once.of[g]) && holds; at++) {
            const float x = ((const float *)once.of[g].data)[at], y = ((const float *)twice.of[g].data)[at];
            holds = y == -2 * x;
            if (!holds)
                printf("  %s[%d] is %.9g, and %.9g for -2 times the loss\n", gradient_names[g], (int)at, (double)x,
                       (double)y);
        }
    for (int i = 0; i < 2 && once.tables[i].data; i++)
        for (int64_t at = 0; at < problem_count(&once.tables[i]) && holds; at++) {
            const float x = ((const float *)once.tables[i].data)[at], y = ((const float *)twice.tables[i].data)[at];
            holds = y == -2 * x;
            if (!holds)
                printf("  drel_%c[%d] is %.9g, and %.9g for -2 times the loss\n", i ? 'q' : 'k', (int)at, (double)x,
                       (double)y);
        }
    gradients_free(&once);
    gradients_free(&twice);
    training_free(&t);
    return holds;
}

/** The gradients of a sum of losses are the sums of their gradients. */
static int additive(struct rng *rng, const char *isa)
{
    struct training t;
    problem_random(&t.p, rng, isa, WITH_ALL);
    training_begin(&t, rng);
    for (int i = 0; i < GRADIENTS_OF_ROWS; i++)
        t.types[i] = ATTN_F32;
    struct training parts[2] = {t, t}; /* halves of the channels, and lse in the second */
    for (int i = 0; i < 2; i++) {
        parts[i].d_out = problem_converted(&t.d_out, t.d_out.dtype);
        attn_tensor contiguous = parts[i].d_out;
        for (int64_t at = 0; at < problem_count(&contiguous); at++) {
            const int64_t c = at % contiguous.shape[3];
            dtype_store(contiguous.dtype, contiguous.data, at,
                        (c < contiguous.shape[3] / 2) == (i == 0) ? dtype_load(t.d_out.dtype, t.d_out.data, at) : 0);
        }
        parts[i].d_out.stride[0] = t.d_out.stride[0];
        parts[i].d_out.stride[1] = t.d_out.stride[1];
        parts[i].d_out.stride[2] = t.d_out.stride[2]; /* as it lies in t */
    }
    parts[0].d_lse.data = NULL;
    struct gradients whole = training_run(&t, ALL_GRADIENTS), first = training_run(&parts[0], ALL_GRADIENTS),
                     second = training_run(&parts[1], ALL_GRADIENTS);
    int holds = 0;
    for (int naively = 0; naively < 2 && !holds; naively++) {
        struct backward_reference a = reference_of(&parts[0], naively), b = reference_of(&parts[1], naively);
        holds = close_gradients(naively ? "a sum of losses" : NULL, &second, &whole, &first, &a, &b);
        backward_reference_free(&a);
        backward_reference_free(&b);
    }
    gradients_free(&whole);
    gradients_free(&first);
    gradients_free(&second);
    free(parts[0].d_out.data);
    free(parts[1].d_out.data);
    training_free(&t);
    return holds;
}

/** The largest size of a number that is finite. */
static double largest_of(const attn_tensor *t)
{
    double most = 0;
    for (int64_t at = 0; at < problem_count(t); at++) {
        const double size = fabs((double)dtype_load(t->dtype, t->data, at));
        most = isfinite(size) && size > most ? size : most;
    }
    return most;
}

/** What a gradient may come to if all of its terms are of their largest size and none cancel: roundings of out and lse
 * are in proportion to that. */
static double size_of_terms(const struct training *t, int of)
{
    const struct problem *p = &t->p;
    const double queries = (double)(p->q.shape[2] * (p->q.shape[1] / p->k.shape[1])), d_out = largest_of(&t->d_out);
    const double factor = p->params.scale == 0.0f ? 1.0 : fabs((double)p->params.scale);
    const double score = factor * d_out * largest_of(&p->v) * (double)p->v.shape[3];
    return of == DV ? queries * d_out : of == DQ ? score * largest_of(&p->k) : queries * score * largest_of(&p->q);
}

/** A vector added to all keys shifts the scores of a row alike: dq and dv stay, and dk, as long as lse has no part. */
static int shifted_keys(struct rng *rng, const char *isa)
{
    struct training t;
    problem_random(&t.p, rng, isa, WITH_ALL);
    training_begin(&t, rng);
    free(t.d_lse.data);
    t.d_lse.data = NULL;
    t.p.params.sinks = NULL; /* which is not shifted */
    t.p.params.softcap = 0;
    t.p.params.callback = NULL;
    t.p.params.disentangled = NULL; /* whose products with keys are not shifted alike */
    for (int i = 0; i < GRADIENTS_OF_ROWS; i++)
        t.types[i] = ATTN_F32;
    struct training shifted = t;
    shifted.p.k = problem_converted(&t.p.k, t.p.k.dtype);
    for (int64_t at = 0; at < problem_count(&t.p.k); at++) { /* of so few bits that sums are exact in any type */
        const float k = rintf(4 * dtype_load(t.p.k.dtype, t.p.k.data, at)) / 4;
        dtype_store(t.p.k.dtype, t.p.k.data, at, k);
        dtype_store(t.p.k.dtype, shifted.p.k.data, at, k + (at % t.p.k.shape[3] % 3 == 0 ? 1.5f : -0.5f));
    }
    free(t.out.data);
    free(t.lse.data);
    training_forward(&t);
    training_forward(&shifted);
    const int rounds = reference_rounds_weights(&t.p.q, &t.p.k, &t.p.v, &t.p.params);
    const double rounding = t.p.out == ATTN_BF16 || rounds ? 0x1p16 : t.p.out == ATTN_F16 ? 0x1p13 : 1;
    struct gradients a = training_run(&t, ALL_GRADIENTS), b = training_run(&shifted, ALL_GRADIENTS);
    const double largest[GRADIENTS_OF_ROWS] = {size_of_terms(&shifted, DQ), size_of_terms(&shifted, DK),
                                               size_of_terms(&shifted, DV)};
    int holds = 0;
    for (int naively = 0; naively < 2 && !holds; naively++) {
        struct backward_reference first = reference_of(&t, naively), second = reference_of(&shifted, naively);
        holds = 1;
        for (int g = 0; g < GRADIENTS_OF_ROWS; g++)
            for (int64_t at = 0; at < problem_count(&a.of[g]) && holds; at++) {
                const double x = (double)((float *)a.of[g].data)[at], y = (double)((float *)b.of[g].data)[at];
                /* How far the references of both are apart is a matter of out and lse, which have been rounded. */
                const double exact = fabs(first.of[g].value[at] - second.of[g].value[at]);
                const double size = largest[g] * 0x1p-22 * rounding;
                holds = exact <= 16 * rounding * (first.of[g].unit[at] + second.of[g].unit[at]) + size &&
                        fabs(x - y) <= exact + distance_allowed(&first, g, at) + distance_allowed(&second, g, at);
                if (!holds && naively)
                    printf("  shifted keys: %s[%d] is %.9g and %.9g\n", gradient_names[g], (int)at, x, y);
            }
        backward_reference_free(&first);
        backward_reference_free(&second);
    }
    gradients_free(&a);
    gradients_free(&b);
    free(shifted.p.k.data);
    free(shifted.out.data);
    free(shifted.lse.data);
    training_free(&t);
    return holds;
}

/** Query heads that share a key head add up in it: as if each had a copy. */
static int shared_heads(struct rng *rng, const char *isa)
{
    struct training t;
    do {
        problem_random(&t.p, rng, isa, WITH_ALL);
        if (t.p.q.shape[1] > t.p.k.shape[1])
            break;
        problem_free(&t.p);
    } while (1);
    training_begin(&t, rng);
    for (int i = 0; i < GRADIENTS_OF_ROWS; i++)
        t.types[i] = ATTN_F32;
    const int64_t heads = t.p.q.shape[1], group = heads / t.p.k.shape[1];
    struct training own = t;
    attn_tensor *const copies[] = {&own.p.k, &own.p.v};
    for (int i = 0; i < 2; i++) {
        const attn_tensor from = *copies[i];
        const int64_t shape[4] = {from.shape[0], heads, from.shape[2], 0};
        *copies[i] = training_tensor(from.dtype, shape, from.shape[3]);
        for (int64_t at = 0; at < problem_count(copies[i]); at++) {
            const int64_t c = at % from.shape[3], j = at / from.shape[3] % from.shape[2];
            const int64_t h = at / from.shape[3] / from.shape[2] % heads,
                          b = at / from.shape[3] / from.shape[2] / heads;
            tensor_set(copies[i], b, h, j, c, tensor_get(&from, b, h / group, j, c));
        }
    }
    struct gradients a = training_run(&t, ALL_GRADIENTS), b = training_run(&own, ALL_GRADIENTS);
    int holds = 0;
    for (int naively = 0; naively < 2 && !holds; naively++) {
        struct backward_reference ref = reference_of(&t, naively);
        holds = 1;
        for (int g = 0; g < GRADIENTS_OF_ROWS; g++)
            for (int64_t at = 0; at < problem_count(&a.of[g]) && holds; at++) {
                const int64_t *n = a.of[g].shape, row = at / n[3] % n[2], h = at / n[3] / n[2] % n[1];
                double sum = 0;
                for (int64_t copy = 0; copy < (g == DQ ? 1 : group); copy++)
                    sum += (double)tensor_get(&b.of[g], at / n[3] / n[2] / n[1], g == DQ ? h : h * group + copy, row,
                                              at % n[3]);
                const double x = (double)((float *)a.of[g].data)[at];
                holds = g == DQ ? x == sum : fabs(x - sum) <= distance_allowed(&ref, g, at);
                if (!holds && naively)
                    printf("  shared heads: %s[%d] is %.9g, the sum of its heads %.9g\n", gradient_names[g], (int)at, x,
                           sum);
            }
        backward_reference_free(&ref);
    }
    gradients_free(&a);
    gradients_free(&b);
    free(own.p.k.data);
    free(own.p.v.data);
    training_free(&t);
    return holds;
}

/** Keys behind the last query have the gradient 0, exactly, and so have queries before the first key. */
static int unseen(struct rng *rng, const char *isa)
{
    struct training t;
    training_draw(&t, rng, isa, 0);
    const int64_t tq = t.p.q.shape[2], tk = t.p.k.shape[2], batch = t.p.q.shape[0];
    const int64_t offset = rng_range(rng, -tq, tk);
    for (int64_t b = 0; b < batch; b++)
        t.p.query_offset[b] = offset;
    t.p.params.causal = ATTN_CAUSAL_OFFSET;
    problem_bind(&t.p, 0, 0, 1);
    free(t.out.data);
    free(t.lse.data);
    training_forward(&t);
    struct gradients g = training_run(&t, ALL_GRADIENTS);
    int holds = 1;
    for (int of = 0; of < GRADIENTS_OF_ROWS; of++)
        for (int64_t at = 0; at < problem_count(&g.of[of]) && holds; at++) {
            const int64_t row = at / g.of[of].shape[3] % g.of[of].shape[2];
            const int none = of == DQ ? row + offset < 0 : row > tq - 1 + offset;
            const float x = dtype_load(g.of[of].dtype, g.of[of].data, at);
            holds = isfinite(x) && (!none || x == 0);
            if (!holds)
                printf("  %s[%d] of row %d is %g\n", gradient_names[of], (int)at, (int)row, (double)x);
        }
    gradients_free(&g);
    training_free(&t);
    return holds;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"-2 times the loss is -2 times its gradients", homogeneous},
        {"sums of losses are sums of gradients", additive},
        {"keys that are shifted alike leave the gradients", shifted_keys},
        {"heads that share a key head add up", shared_heads},
        {"what nobody sees has the gradient 0", unseen},
    };
    return properties_run(argc, argv, "test_backward_algebra", properties, sizeof properties / sizeof *properties);
}
