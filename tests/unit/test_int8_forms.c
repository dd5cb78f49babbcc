/* SPDX-License-Identifier: Apache-2.0 */
/*
 * int8 scores together with the forms of attention: every form, and every pair
 * of them, must give what exact scores give but for the rounding of q and k.
 * The random checks hold exact scores to f32's standard; what could be wrong
 * beyond them is that int8's own steps (the mean of k, steps per row, shifted
 * scores) do not fit a form, and that shows at once. All on every set, and with
 * inputs that may be bf16, so that values are pairs where a set has these.
 */
#include "fixture.h"
#include "forms.h"

#include <math.h>
#include <stdio.h>

/*
 * Rows of 8 normal numbers have steps of about 2 / 127, so a score errs by some
 * hundredths, and so do averages of values of order 1; head scales reach 2.
 */
#define TOLERANCE 0.15

static const char *isa;
static attn_inputs inputs;

static int int8_supported(void)
{
    static struct forms c;
    attn_plan *plan;
    forms_initialize(&c, 0);
    c.params.qk = ATTN_QK_INT8;
    c.params.isa = isa;
    const int supported = forms_plan(&c, &plan) == ATTN_OK;
    attn_plan_destroy(plan);
    return supported;
}

static double largest_difference(const float *a, const float *b, int n)
{
    double largest = 0;
    for (int i = 0; i < n; i++)
        if (!(a[i] == b[i])) /* infinities too */
            largest = fmax(largest, isfinite(a[i]) && isfinite(b[i]) ? fabs((double)a[i] - (double)b[i]) : INFINITY);
    return largest;
}

static void compare(unsigned set)
{
    static struct forms exact, rounded;
    const unsigned positions = FORM_POSITIONS | FORM_PREFIX; /* one is without causality, the other with it */
    if ((set & FORM_DISENTANGLED) || (set & positions) == positions)
        return; /* refused */
    forms_initialize(&exact, set);
    forms_initialize(&rounded, set);
    rounded.params.qk = ATTN_QK_INT8;
    exact.params.isa = rounded.params.isa = isa;
    exact.params.inputs = rounded.params.inputs = inputs;
    exact.params.lse = &exact.lse;
    rounded.params.lse = &rounded.lse;
    assert_int_equal(forms_forward(&exact), ATTN_OK);
    assert_int_equal(forms_forward(&rounded), ATTN_OK);
    const int rows = (int)(exact.out.shape[0] * FORM_HQ * FORM_TQ);
    const double out = largest_difference(exact.out_data, rounded.out_data, rows * FORM_DV);
    const double lse = largest_difference(exact.lse_data, rounded.lse_data, rows);
    if (!(out <= TOLERANCE && lse <= TOLERANCE))
        fail_msg("%s, inputs %d, forms %#x: out differs by %g, lse by %g; expected at most %g", isa, (int)inputs, set,
                 out, lse, TOLERANCE);
}

static void test_every_pair(void **state)
{
    (void)state;
    int found = 0;
    for (int i = 0; attn_isa_name(i); i++) {
        isa = attn_isa_name(i);
        if (!attn_isa_supported(isa) || !int8_supported())
            continue;
        for (int may_be = 0; may_be < 2; may_be++, found++) {
            inputs = may_be ? ATTN_INPUTS_MAY_BE_BF16 : ATTN_INPUTS_AS_GIVEN;
            compare(0);
            for (unsigned one = 1; one < FORM_END; one <<= 1)
                for (unsigned other = one; other < FORM_END; other <<= 1)
                    compare(one | other);
        }
    }
    if (!found)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
