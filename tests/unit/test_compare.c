/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The judge of the random checks, where a callback of weights meets a V that is
 * not finite: what it asks for, and what it lets pass because rounding decides.
 * And the yardstick where sums round to one side, all their lives.
 */
#include "fixture.h"

#include "compare.h"

#include <math.h>
#include <string.h>

enum { POSITIVE = 1, NEGATIVE = 2, NOT_A_NUMBER = 4, FINITE = 8, ANY_SIGN = POSITIVE | NEGATIVE | NOT_A_NUMBER };

static const struct {
    const char *what;
    float bias;     /* of both keys, which then weigh a half each; a large one leaves their weights open */
    float shift[2]; /* what the callback adds to half a weight */
    float v[2];
    unsigned accepted;
} cases[] = {
    {"positive", 0, {0, 0}, {INFINITY, 1}, POSITIVE},
    {"negative", 0, {-0.3f, 0}, {INFINITY, 1}, NEGATIVE},
    {"negative, of -Inf", 0, {-0.3f, 0}, {-INFINITY, 1}, POSITIVE},
    {"0", 0, {-0.25f, 0}, {INFINITY, 1}, ANY_SIGN},
    {"opposed", 0, {-0.3f, 0}, {INFINITY, INFINITY}, NOT_A_NUMBER},
    {"NaN", 0, {0, 0}, {NAN, 1}, NOT_A_NUMBER},
    {"finite", 0, {-0.3f, 0}, {2, 1}, FINITE},
    {"open", 1e9f, {-0.2f, 0}, {INFINITY, 1}, ANY_SIGN},
    {"open, of -Inf", 1e9f, {-0.2f, 0}, {-INFINITY, 1}, ANY_SIGN},
    {"open, but not below 0", 1e9f, {0, 0}, {INFINITY, 1}, POSITIVE | NOT_A_NUMBER},
    {"open, but above 0", 1e9f, {0.1f, 0}, {INFINITY, 1}, POSITIVE},
    {"open, but below 0", 1e9f, {-0.6f, 0}, {INFINITY, 1}, NEGATIVE},
    {"open, beside one above 0", 1e9f, {-0.2f, 0.1f}, {INFINITY, INFINITY}, POSITIVE | NOT_A_NUMBER},
    {"open, beside NaN", 1e9f, {-0.2f, 0}, {INFINITY, NAN}, NOT_A_NUMBER},
};

static void halve_and_add(const attn_weight_tile *tile, void *user)
{
    const float *shift = user;
    for (int64_t j = 0; j < tile->num_keys; j++)
        for (int64_t i = 0; i < tile->num_queries; i++) {
            float *weight = &tile->weights[j * tile->key_stride + i];
            *weight = 0.5f * *weight + shift[tile->first_key + j];
        }
}

static void infinite_values(void **state)
{
    (void)state;
    const float candidates[] = {INFINITY, -INFINITY, NAN, 0.45f};
    const char *isa;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        float zeros[2] = {0, 0}, mask[2] = {cases[n].bias, cases[n].bias}, v[2], shift[2], out;
        memcpy(v, cases[n].v, sizeof v);
        memcpy(shift, cases[n].shift, sizeof shift);
        const attn_tensor q = attn_bhtd(zeros, 1, 1, 1, 1), k = attn_bhtd(zeros, 1, 1, 2, 1);
        const attn_tensor values = attn_bhtd(v, 1, 1, 2, 1), result = attn_bhtd(&out, 1, 1, 1, 1);
        const attn_tensor biases = attn_bhtd(mask, 1, 1, 1, 2);
        attn_params p = attn_params_default();
        p.mask = &biases;
        p.weight_callback = halve_and_add;
        p.weight_callback_user = shift;
        struct reference ref = reference_compute(&q, &k, &values, &p, NAIVE_F32);
        struct comparison comparison;
        char message[512];
        for (int i = 0; i < 3; i++) {
            out = candidates[i];
            const int passes = compare_with_reference(&ref, &result, &p, &comparison, message, sizeof message);
            if (passes != (int)(cases[n].accepted >> i & 1))
                fail_msg("%s: %g %s", cases[n].what, (double)out, passes ? "passes" : message);
        }
        out = candidates[3];
        if (cases[n].accepted != FINITE &&
            compare_with_reference(&ref, &result, &p, &comparison, message, sizeof message))
            fail_msg("%s: a finite number passes", cases[n].what);
        for (int i = 0; (isa = attn_isa_name(i)) != NULL; i++) {
            p.isa = isa;
            if (!attn_isa_supported(isa))
                continue;
            assert_int_equal(attn_forward(&q, &k, &values, &result, &p), ATTN_OK);
            if (!compare_with_reference(&ref, &result, &p, &comparison, message, sizeof message))
                fail_msg("%s, %s: %s", cases[n].what, isa, message);
        }
        reference_free(&ref);
    }
}

/** Keys with the weight 2^-25 behind one of 1, all with the same value: added to 1 one by one, they are lost. */
static void small_weights_of_equal_values(void **state)
{
    (void)state;
    enum { KEYS = 4097 };
    static float keys[KEYS];
    float query = 1, value = 1, out;
    const char *isa;
    for (int j = 1; j < KEYS; j++)
        keys[j] = -25 * 0.69314718f;
    const attn_tensor q = attn_bhtd(&query, 1, 1, 1, 1), k = attn_bhtd(keys, 1, 1, KEYS, 1);
    attn_tensor v = attn_bhtd(&value, 1, 1, KEYS, 1);
    v.stride[2] = 0;
    const attn_tensor result = attn_bhtd(&out, 1, 1, 1, 1);
    attn_params p = attn_params_default();
    struct reference ref = reference_compute(&q, &k, &v, &p, NAIVE_F32);
    /* What is lost is 2^-13 in all, 2^11 units. Divided by a sum that has lost as much it would not show. */
    const double lost = ref.naive_out_error[0] / ref.out_unit[0];
    if (!(lost > 0x1p10 && lost < 0x1p11))
        fail_msg("the naive computation is off by %g units; expected 1024 to 2048", lost);
    struct comparison comparison;
    char message[512];
    for (int i = 0; (isa = attn_isa_name(i)) != NULL; i++) {
        p.isa = isa;
        if (!attn_isa_supported(isa))
            continue;
        assert_int_equal(attn_forward(&q, &k, &v, &result, &p), ATTN_OK);
        if (!compare_with_reference(&ref, &result, &p, &comparison, message, sizeof message))
            fail_msg("%s: %s", isa, message);
    }
    out = 1 - 0x1p-10f; /* 8 times as much */
    assert_false(compare_with_reference(&ref, &result, &p, &comparison, message, sizeof message));
    reference_free(&ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(infinite_values),
                                       cmocka_unit_test(small_weights_of_equal_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
