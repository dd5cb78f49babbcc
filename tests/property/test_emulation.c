/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of instructions and its emulation give the same bits: random problems
 * run on the set that --isa names, and on the one called emulated_ and that.
 * What passes on the emulation, on any processor with AVX-512, so holds on one
 * that has the registers. Skipped where one of both cannot run.
 */
#include "dtype.h"
#include "properties.h"
#include "test_isa.h"
#include "training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static char emulation[64];

/** Runs a problem on both sets, compares all outputs, and frees it. */
static int same_and_free(struct problem *p, const char *isa)
{
    struct result expected = problem_run(p);
    p->params.isa = emulation;
    struct result emulated = problem_run(p);
    p->params.isa = isa;
    const int same = results_equal(&expected, &emulated);
    if (!same)
        printf("  B=%d H=%d Tq=%d Tk=%d dk=%d dv=%d: the emulation has other bits\n", (int)expected.batch,
               (int)expected.heads, (int)expected.tq, (int)expected.tk, (int)p->q.shape[3], (int)expected.dv);
    result_free(&expected);
    result_free(&emulated);
    problem_free(p);
    return same;
}

static int masks_and_lengths(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_ALL);
    return same_and_free(&p, isa);
}

static int threads(struct rng *rng, const char *isa)
{
    struct problem p;
    const int num_threads = (int)rng_range(rng, 2, 5);
    problem_for_threads(&p, rng, isa, num_threads);
    p.params.num_threads = num_threads;
    return same_and_free(&p, isa);
}

/** Some elements of q, k and v that are no usual numbers: tiny, huge, or not finite. */
static int unusual_numbers(struct rng *rng, const char *isa)
{
    static const float unusual[] = {1e-38f, -1e-40f, 0x1p-100f, 1e30f, -3e38f, INFINITY, -INFINITY, NAN, -0.0f};
    struct problem p;
    problem_random(&p, rng, isa, WITH_ALL);
    const int64_t kinds = rng_percent(rng, 50) ? 5 : (int64_t)(sizeof unusual / sizeof *unusual);
    attn_tensor *const tensors[] = {&p.q, &p.k, &p.v};
    for (int i = 0; i < 3; i++)
        for (int64_t at = 0, n = problem_count(tensors[i]); at < n; at++)
            if (rng_percent(rng, 1))
                dtype_store(tensors[i]->dtype, tensors[i]->data, at, unusual[rng_range(rng, 0, kinds - 1)]);
    return same_and_free(&p, isa);
}

/** Windows, a cap, sinks, dropout, int8 scores, large scales: each or several of them. */
static int forms(struct rng *rng, const char *isa)
{
    struct problem p;
    problem_random(&p, rng, isa, WITH_MASK | WITH_LENGTHS);
    const attn_window window = {.left = rng_range(rng, 0, 60), .right = rng_range(rng, 0, 20)};
    const attn_dropout dropout = {.p = 0.3f, .seed = rng_bits(rng)};
    float sinks[16];
    for (int i = 0; i < 16; i++)
        sinks[i] = rng_normal(rng) * 3;
    p.params.window = rng_percent(rng, 40) ? &window : NULL;
    p.params.dropout = rng_percent(rng, 30) ? &dropout : NULL;
    p.params.sinks = rng_percent(rng, 30) ? sinks : NULL;
    p.params.softcap = rng_percent(rng, 30) ? 5.0f : 0.0f;
    p.params.qk = rng_percent(rng, 20) ? ATTN_QK_INT8 : ATTN_QK_DEFAULT;
    if (rng_percent(rng, 30))
        p.params.scale = (float)RNG_PICK(rng, 30, 1000, -1);
    return same_and_free(&p, isa);
}

/** int8 scores, which have a set of their own, over blocks that are walked over, and others. */
static int int8_scores(struct rng *rng, const char *isa)
{
    struct problem p;
    if (rng_percent(rng, 50))
        problem_for_threads(&p, rng, isa, 2);
    else
        problem_random(&p, rng, isa, WITH_ALL);
    p.params.qk = ATTN_QK_INT8;
    if (rng_percent(rng, 30))
        p.params.scale = (float)RNG_PICK(rng, 30, 1000, -1);
    return same_and_free(&p, isa);
}

/** All gradients of rows: sums over queries and over keys, with threads, and with numbers that are not usual. */
static int gradients(struct rng *rng, const char *isa)
{
    struct training t;
    training_draw(&t, rng, isa, WITH_ALL);
    const attn_window window = {.left = rng_range(rng, 0, 60), .right = rng_range(rng, 0, 20)};
    t.p.params.window = rng_percent(rng, 30) ? &window : NULL;
    t.p.params.num_threads = (int)rng_range(rng, 1, 3);
    attn_tensor *const tensors[] = {&t.p.q, &t.p.k, &t.p.v, &t.d_out};
    for (int i = 0; i < 4 && rng_percent(rng, 20); i++)
        for (int64_t at = 0, n = problem_count(tensors[i]); at < n; at++)
            if (rng_percent(rng, 1))
                dtype_store(tensors[i]->dtype, tensors[i]->data, at, rng_percent(rng, 50) ? 1e-38f : NAN);
    struct gradients expected = training_run(&t, ALL_GRADIENTS);
    t.p.params.isa = emulation;
    struct gradients emulated = training_run(&t, ALL_GRADIENTS);
    int same = 1;
    for (int g = 0; g < GRADIENTS_OF_ROWS; g++)
        for (int64_t at = 0; at < problem_count(&expected.of[g]); at++) {
            const attn_tensor *x = &expected.of[g], *y = &emulated.of[g];
            const float a = dtype_load(x->dtype, x->data, at), b = dtype_load(y->dtype, y->data, at);
            same &= isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0; /* payloads of NaN are not promised */
        }
    if (!same)
        printf("  Tq=%d Tk=%d dk=%d dv=%d: the emulation has gradients of other bits\n", (int)t.p.q.shape[2],
               (int)t.p.k.shape[2], (int)t.p.q.shape[3], (int)t.p.v.shape[3]);
    gradients_free(&expected);
    gradients_free(&emulated);
    training_free(&t);
    return same;
}

int main(int argc, char **argv)
{
    static const struct property properties[] = {
        {"masks and lengths", masks_and_lengths},
        {"threads", threads},
        {"unusual numbers", unusual_numbers},
        {"forms", forms},
        {"int8 scores", int8_scores},
        {"gradients", gradients},
    };
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--isa") == 0)
            snprintf(emulation, sizeof emulation, "emulated_%s", argv[i + 1]);
    if (!test_isa_from_list(emulation) || !attn_isa_supported(emulation)) {
        printf("skipped: this build has no %s, or the processor cannot run it\n", emulation);
        return TEST_SKIPPED;
    }
    return properties_run(argc, argv, "test_emulation", properties, sizeof properties / sizeof *properties);
}
