/* SPDX-License-Identifier: Apache-2.0 */
/* How attn generate draws tokens. */
#include "cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/sampler.h"

enum { VOCABULARY = 6, DRAWS = 60000 };

/* Probabilities 0.4, 0.3, 0.2, 0.1 of ids 2, 0, 5, 3; the others have none. */
static const double probabilities[VOCABULARY] = {0.3, 0, 0.4, 0.1, 0, 0.2};

static void make_logits(float *logits)
{
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = (float)log(probabilities[i]) + 7;
    logits[4] = NAN;
}

static int32_t take(const float *logits, double temperature, double top_p, int64_t top_k, uint64_t seed)
{
    struct sampler sampler;
    const struct sampling how = {temperature, top_p, top_k};
    assert_int_equal(sampler_open(&sampler, VOCABULARY, &how), ATTN_OK);
    const int32_t id = sampler_take(&sampler, &seed, logits);
    sampler_close(&sampler);
    return id;
}

static void takes_the_greatest(void **state)
{
    (void)state;
    float logits[VOCABULARY] = {1, 3, 2, 3, -INFINITY, NAN};
    assert_int_equal(take(logits, 0, 1, 0, 0), 1);
    logits[5] = INFINITY;
    assert_int_equal(take(logits, 0, 1, 0, 0), 5);
    assert_int_equal(take(logits, 2, 1, 0, 0), 5);
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = i % 2 ? NAN : -INFINITY;
    assert_int_equal(take(logits, 0, 1, 0, 0), -1);
    assert_int_equal(take(logits, 1, 0.5, 0, 0), -1);
    /* What is likely enough is all that is drawn. */
    make_logits(logits);
    for (uint64_t seed = 0; seed < 100; seed++) {
        assert_int_equal(take(logits, 1e-3, 1, 0, seed), 2);
        assert_int_equal(take(logits, 1, 0.3, 0, seed), 2);
        assert_int_equal(take(logits, 1, 1e-9, 0, seed), 2);
        assert_int_equal(take(logits, 1, 1, 1, seed), 2);
    }
}

/* Of many draws each id has its share, within five standard deviations. */
static void has_shares(double temperature, double top_p, int64_t top_k, const double *expected)
{
    struct sampler sampler;
    float logits[VOCABULARY];
    int found[VOCABULARY] = {0};
    uint64_t state = 1234;
    const struct sampling how = {temperature, top_p, top_k};
    make_logits(logits);
    assert_int_equal(sampler_open(&sampler, VOCABULARY, &how), ATTN_OK);
    for (int i = 0; i < DRAWS; i++)
        found[sampler_take(&sampler, &state, logits)]++;
    sampler_close(&sampler);
    for (int i = 0; i < VOCABULARY; i++) {
        const double off = fabs(found[i] - DRAWS * expected[i]);
        if (off > 5 * sqrt(DRAWS * expected[i] * (1 - expected[i])))
            fail_msg("T=%g, top_p=%g, top_k=%d: id %d came %d times; expected about %g", temperature, top_p, (int)top_k,
                     i, found[i], DRAWS * expected[i]);
    }
}

static void draws_shares(void **state)
{
    (void)state;
    has_shares(1, 1, 0, probabilities);
    /* 0.4 + 0.3 is less than 0.71, so id 5 is in; 3 is not. */
    has_shares(1, 0.71, 0, (double[]){0.3 / 0.9, 0, 0.4 / 0.9, 0, 0, 0.2 / 0.9});
    has_shares(1, 0.65, 0, (double[]){0.3 / 0.7, 0, 0.4 / 0.7, 0, 0, 0});
    has_shares(1, 0.95, 0, probabilities);
    /* At T = 1/2 probabilities are squared: 16, 9, 4, 1 of 30. */
    has_shares(0.5, 1, 0, (double[]){9 / 30.0, 0, 16 / 30.0, 1 / 30.0, 0, 4 / 30.0});
    has_shares(0.5, 0.8, 0, (double[]){9 / 25.0, 0, 16 / 25.0, 0, 0, 0});
    has_shares(1, 1, 3, (double[]){0.3 / 0.9, 0, 0.4 / 0.9, 0, 0, 0.2 / 0.9});
    has_shares(1, 1, 100, probabilities);
    /* Of the three 0.4 + 0.3 are more than 0.75 of what they have. */
    has_shares(1, 0.75, 3, (double[]){0.3 / 0.7, 0, 0.4 / 0.7, 0, 0, 0});
}

static void repeats_by_seed(void **state)
{
    (void)state;
    struct sampler sampler;
    const struct sampling how = {1, 1, 0};
    uint64_t one = 7, same = 7, other = 8;
    float logits[VOCABULARY];
    int differ = 0;
    make_logits(logits);
    assert_int_equal(sampler_open(&sampler, VOCABULARY, &how), ATTN_OK);
    for (int i = 0; i < 200; i++) {
        const int32_t id = sampler_take(&sampler, &one, logits);
        assert_int_equal(sampler_take(&sampler, &same, logits), id);
        differ += sampler_take(&sampler, &other, logits) != id;
    }
    assert_true(differ > 50);
    sampler_close(&sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_greatest),
        cmocka_unit_test(draws_shares),
        cmocka_unit_test(repeats_by_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
