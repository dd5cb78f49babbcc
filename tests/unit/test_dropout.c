/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout: the generator against the known answers that Random123 publishes for
 * Philox4x32-10, the public decision against the description of its counters,
 * and what the kernels drop against that decision. Rate and scale are held to
 * limits that a right generator exceeds once in some millions of seeds; the
 * seeds are fixed.
 */
#include "fixture.h"

#include "kernels/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void test_known_answers(void **state)
{
    /* kat_vectors of Random123 1.14 (Salmon et al. 2011), "philox4x32 10". */
    static const struct {
        uint32_t counter[4], key[2], word[4];
    } answers[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        uint32_t word[4];
        attn_philox(answers[i].counter, answers[i].key, word);
        assert_memory_equal(word, answers[i].word, sizeof word);
    }
}

static void test_decision(void **state)
{
    const attn_dropout dropout = {.p = 0.25f, .seed = 0x0123456789abcdefu, .offset = 0xfedcba9876543210u};
    const uint32_t seed[2] = {0x89abcdef, 0x01234567}, offset[4] = {0x76543210, 0xfedcba98, 0, 0};
    uint32_t key[4];
    (void)state;
    attn_philox(offset, seed, key);
    for (uint32_t j = 0; j < 1000; j++) {
        const uint32_t counter[4] = {j / 4, j + 7, j % 5, j % 3};
        uint32_t word[4];
        attn_philox(counter, key, word);
        assert_int_equal(attn_dropout_keeps(&dropout, j % 3, j % 5, j + 7, j), word[j % 4] >= 0x40000000u);
    }
    const attn_dropout none = {.p = 0.0f, .seed = 1};
    for (int j = 0; j < 1000; j++)
        assert_true(attn_dropout_keeps(&none, 0, 0, 0, j));
}

/* A call whose weights are all 1 / T before the dropout and whose values are 1. */
enum { HEADS = 3, TQ = 67, TK = 1021, DV = 5 };

struct uniform {
    float *zeros, *ones, *out, *weights;
    attn_tensor q, k, v, o, w;
};

static void uniform_create(struct uniform *u)
{
    u->zeros = calloc(HEADS * TK, sizeof(float));
    u->ones = malloc(HEADS * TK * DV * sizeof(float));
    u->out = malloc(HEADS * TQ * DV * sizeof(float));
    u->weights = malloc(HEADS * TQ * TK * sizeof(float));
    assert_true(u->zeros && u->ones && u->out && u->weights);
    for (int i = 0; i < HEADS * TK * DV; i++)
        u->ones[i] = 1.0f;
    u->q = attn_bhtd(u->zeros, 1, HEADS, TQ, 1);
    u->k = attn_bhtd(u->zeros, 1, HEADS, TK, 1);
    u->v = attn_bhtd(u->ones, 1, HEADS, TK, DV);
    u->o = attn_bhtd(u->out, 1, HEADS, TQ, DV);
    u->w = attn_bhtd(u->weights, 1, HEADS, TQ, TK);
}

static void uniform_free(struct uniform *u)
{
    free(u->zeros);
    free(u->ones);
    free(u->out);
    free(u->weights);
}

static void test_kernels(void **state)
{
    static const float rates[] = {0.0f, 0x1p-33f, 0.1f, 0.5f, 0.999f};
    struct uniform u;
    (void)state;
    uniform_create(&u);
    for (int isa = 0; attn_isa_name(isa); isa++) {
        for (size_t n = 0; attn_isa_supported(attn_isa_name(isa)) && n < sizeof rates / sizeof *rates; n++) {
            const attn_dropout dropout = {.p = rates[n], .seed = 42 + n, .offset = (uint64_t)n << 40};
            attn_params params = attn_params_default();
            params.isa = attn_isa_name(isa);
            params.dropout = &dropout;
            params.weights = &u.w;
            assert_int_equal(attn_forward(&u.q, &u.k, &u.v, &u.o, &params), ATTN_OK);
            const double p = (double)rates[n], kept_weight = 1.0 / TK / (1.0 - p);
            int64_t kept = 0;
            double sum = 0;
            for (int row = 0; row < HEADS * TQ; row++) {
                double weights = 0;
                for (int j = 0; j < TK; j++) {
                    const double w = (double)u.weights[row * TK + j];
                    const int keeps = attn_dropout_keeps(&dropout, 0, row / TQ, row % TQ, j);
                    assert_true(fabs(w - (keeps ? kept_weight : 0.0)) <= 1e-6 * kept_weight);
                    kept += keeps;
                    weights += w;
                }
                for (int c = 0; c < DV; c++) {
                    assert_true(fabs((double)u.out[row * DV + c] - weights) <= 1e-5 * fmax(weights, 1));
                    sum += (double)u.out[row * DV + c];
                }
            }
            /* Five standard deviations of the binomial distribution, and what the mean of out differs by with it. */
            const double trials = (double)HEADS * TQ * TK, spread = 5 * sqrt(p * (1 - p) / trials);
            assert_true(fabs((double)kept / trials - (1 - p)) <= spread + 1e-9);
            assert_true(fabs(sum / (HEADS * TQ * DV) - 1) <= spread / (1 - p) + 1e-5);
        }
    }
    uniform_free(&u);
}

/** Another offset, and another seed, is another choice: as many agreements as independent ones have. */
static void test_streams_differ(void **state)
{
    const attn_dropout one = {.p = 0.5f, .seed = 1}, others[] = {{.p = 0.5f, .seed = 2},
                                                                 {.p = 0.5f, .seed = 1, .offset = 1},
                                                                 {.p = 0.5f, .seed = (uint64_t)1 << 32}};
    (void)state;
    for (size_t n = 0; n < sizeof others / sizeof *others; n++) {
        int same = 0;
        for (int j = 0; j < 40000; j++)
            same += attn_dropout_keeps(&one, 0, 0, j / 200, j % 200) ==
                    attn_dropout_keeps(&others[n], 0, 0, j / 200, j % 200);
        assert_true(abs(same - 20000) < 5 * 100); /* five times the square root of 40000 / 4 */
    }
}

static void test_no_dropout(void **state)
{
    (void)state;
    for (int64_t key = 0; key < 100; key++)
        assert_int_equal(attn_dropout_keeps(NULL, 0, 1, 2, key), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),  cmocka_unit_test(test_decision),   cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_streams_differ), cmocka_unit_test(test_no_dropout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
