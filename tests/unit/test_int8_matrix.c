/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8 scores on matrix registers have the bits of those in vectors: sums of
 * integers are exact, and all else is the same. Random calls run on the set that
 * the library chooses and on the same with AVX512-VNNI's scores, block by block
 * where the former walks over many.
 *
 * The registers are the processor's, or emulated, if the build has that.
 */
#include "fixture.h"
#include "random.h"
#include "dtype.h"
#include "test_isa.h"

#include "api/check.h"
#include "cpu/cpu.h"
#include "dispatch.h"
#include "driver/driver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct attn_isa_kernels attn_kernels_avx512_int8;

enum { CASES = 400, MAX_TQ = 150, MAX_TK = 700, MAX_D = 300 };

static const char *isa;

static struct {
    attn_dtype dtype;
    int64_t tq, tk, dk, dv;
    uint16_t q[MAX_TQ * MAX_D], k[MAX_TK * MAX_D], v[MAX_TK * MAX_D];
    uint8_t live[MAX_TQ * MAX_TK];
    float bias[MAX_TQ * MAX_TK];
} call;

static struct result {
    float out[MAX_TQ * MAX_D], lse[MAX_TQ], weights[MAX_TQ * MAX_TK], scores[MAX_TQ * MAX_TK];
} results[2];

static attn_tensor half_tensor(uint16_t *data, int64_t tokens, int64_t d)
{
    return tensor_as(attn_bhtd((float *)(void *)data, 1, 1, tokens, d), ATTN_BF16);
}

/** Rows of usual numbers; some of them larger, of one number in all channels, of zeros, denormals, or not finite. */
static void draw_rows(struct rng *rng, uint16_t *rows, int64_t tokens, int64_t d, int unusual)
{
    for (int64_t i = 0; i < tokens; i++) {
        const int64_t kind = unusual && rng_percent(rng, 4) ? rng_range(rng, 0, 5) : -1;
        const float size = kind == 0 ? 30.0f : kind == 1 ? 1e-40f : kind == 2 ? 0.0f : kind == 3 ? 1e30f : 1.0f;
        for (int64_t c = 0; c < d; c++)
            rows[i * d + c] = dtype_narrow(ATTN_BF16, (double)(kind == 4 ? 3.0f : size * rng_normal(rng)));
        if (kind == 5 && unusual > 1)
            rows[i * d + rng_range(rng, 0, d - 1)] = dtype_narrow(ATTN_BF16, rng_percent(rng, 50) ? NAN : INFINITY);
    }
}

static void run(const struct attn_problem *problem, const struct attn_kernels *kernels)
{
    const struct attn_geometry geometry = attn_geometry_of(problem, kernels, 1);
    const struct attn_run run = {.problem = problem, .geometry = &geometry};
    void *scratch = aligned_alloc(ATTN_ALIGN, geometry.scratch_size);
    assert_non_null(scratch);
    memset(scratch, 0x55, geometry.scratch_size);
    for (int64_t task = 0; task < geometry.tasks; task++)
        attn_run_task(&run, task, scratch);
    free(scratch);
}

static void expect_same(int number, const char *what, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("case %d (tq %d tk %d dk %d dv %d): %s[%d] is %a, and with scores in vectors %a", number,
                     (int)call.tq, (int)call.tk, (int)call.dk, (int)call.dv, what, (int)i, (double)a[i], (double)b[i]);
}

static void check_case(int number)
{
    struct rng rng = rng_for_case(0x18a, (uint64_t)number);
    const int long_rows = rng_percent(&rng, 30); /* of blocks that are walked over */
    call.tq = rng_range(&rng, 1, long_rows ? 40 : MAX_TQ);
    call.tk = rng_range(&rng, long_rows ? 300 : 1, MAX_TK);
    call.dk = RNG_PICK(&rng, 1, 3, 4, 16, 17, 33, 64, 64, 65, 128, 128, 129, 192, 256, 300);
    call.dv = RNG_PICK(&rng, 1, 16, 17, 33, 64, 128, 300);
    const int unusual = number % 3 ? (int)rng_range(&rng, 0, 2) : 0;
    draw_rows(&rng, call.q, call.tq, call.dk, unusual);
    draw_rows(&rng, call.k, call.tk, call.dk, unusual);
    draw_rows(&rng, call.v, call.tk, call.dv, unusual > 1 ? 2 : 0);
    for (int64_t i = 0; i < call.tq * call.tk; i++) {
        call.live[i] = !rng_percent(&rng, 30);
        call.bias[i] = call.live[i] ? rng_normal(&rng) : -INFINITY;
    }
    const attn_tensor q = half_tensor(call.q, call.tq, call.dk), k = half_tensor(call.k, call.tk, call.dk),
                      v = half_tensor(call.v, call.tk, call.dv);
    attn_tensor live = tensor_as(attn_bhtd(NULL, 1, 1, call.tq, call.tk), ATTN_BOOL);
    live.data = call.live;
    const attn_tensor bias = attn_bhtd(call.bias, 1, 1, call.tq, call.tk);
    const attn_window window = {.left = rng_range(&rng, 0, 400), .right = rng_range(&rng, 0, 60)};
    const attn_dropout dropout = {.p = 0.3f, .seed = 7};
    const float sink = 2.0f;
    attn_params params = attn_params_default();
    params.isa = isa;
    params.qk = ATTN_QK_INT8;
    params.causal = (attn_causal)RNG_PICK(&rng, ATTN_CAUSAL_NONE, ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_BOTTOM_RIGHT);
    params.scale = rng_percent(&rng, 30) ? (float)RNG_PICK(&rng, -1, 2, 30) : 0.0f;
    if (!long_rows || rng_percent(&rng, 20)) {
        params.mask = rng_percent(&rng, 30) ? &live : rng_percent(&rng, 30) ? &bias : NULL;
        params.window = rng_percent(&rng, 20) ? &window : NULL;
        params.dropout = rng_percent(&rng, 20) ? &dropout : NULL;
        params.softcap = rng_percent(&rng, 20) ? 3.0f : 0.0f;
    }
    params.sinks = rng_percent(&rng, 20) ? &sink : NULL;
    struct attn_kernels kernels[2];
    for (int i = 0; i < 2; i++) {
        memset(&results[i], 0x55, sizeof results[i]);
        const attn_tensor out = attn_bhtd(results[i].out, 1, 1, call.tq, call.dv),
                          lse = attn_bhtd(results[i].lse, 1, 1, call.tq, 1),
                          weights = attn_bhtd(results[i].weights, 1, 1, call.tq, call.tk),
                          scores = attn_bhtd(results[i].scores, 1, 1, call.tq, call.tk);
        params.lse = &lse;
        params.weights = number % 2 ? &weights : NULL;
        params.scores = number % 4 == 1 ? &scores : NULL;
        struct attn_problem problem;
        if (attn_check(&problem, &q, &k, &v, &out, &params, CHECK_ALL) != ATTN_OK)
            fail_msg("%s", attn_last_error());
        const struct attn_demand demand = {.isa = attn_isa_row(isa), .insists = 1, .qk = ATTN_QK_INT8, .pairs = 1};
        assert_int_equal(attn_kernels_choose(&kernels[i], &demand), 1);
        assert_non_null(strstr(kernels[i].score_isa, "amx_int8"));
        assert_non_null(kernels[i].scores->walk);
        if (i == 1)
            kernels[i].scores = attn_kernels_avx512_int8.scores;
        run(&problem, &kernels[i]);
    }
    expect_same(number, "out", results[0].out, results[1].out, call.tq * call.dv);
    expect_same(number, "lse", results[0].lse, results[1].lse, call.tq);
    expect_same(number, "weights", results[0].weights, results[1].weights, call.tq * call.tk);
    expect_same(number, "scores", results[0].scores, results[1].scores, call.tq * call.tk);
}

static void test_bits_of_vectors(void **state)
{
    (void)state;
    for (int number = 0; number < CASES; number++)
        check_case(number);
}

/** Values that are floats go with scores in vectors. */
static void test_choice(void **state)
{
    (void)state;
    struct attn_kernels kernels;
    struct attn_demand demand = {.isa = attn_isa_row(isa), .qk = ATTN_QK_INT8};
    assert_int_equal(attn_kernels_choose(&kernels, &demand), 1);
    assert_string_equal(kernels.isa, "avx512");
    assert_string_equal(kernels.score_isa, "avx512_int8");
    demand.pairs = 1;
    assert_int_equal(attn_kernels_choose(&kernels, &demand), 1);
    assert_string_equal(kernels.isa, isa);
    assert_int_equal(kernels.scores->int8, 1);
    demand.qk = ATTN_QK_DEFAULT;
    assert_int_equal(attn_kernels_choose(&kernels, &demand), 1);
    assert_string_equal(kernels.score_isa, isa);
    assert_int_equal(kernels.scores->int8, 0);
    demand = (struct attn_demand){.isa = attn_isa_row("avx512_bf16"), .qk = ATTN_QK_INT8, .pairs = 1, .insists = 1};
    assert_int_equal(attn_kernels_choose(&kernels, &demand), 1);
    assert_string_equal(kernels.isa, "avx512_bf16");
    assert_string_equal(kernels.score_isa, "avx512_int8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits_of_vectors), cmocka_unit_test(test_choice)};
    static const char *const names[] = {"amx_bf16", "emulated_amx_bf16"};
    int failed = 0, found = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        isa = names[i];
        if (!attn_isa_row(isa) || !attn_isa_supported(isa) || !attn_cpu_has("avx512vnni"))
            continue;
        found++;
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    if (!found) {
        printf("skipped: matrix registers are neither there nor emulated\n");
        return TEST_SKIPPED;
    }
    return failed;
}
