/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floating-point environment of the caller: control bits (rounding, flush
 * to zero, masked exceptions) are left as found, on the calling thread and in
 * a process that merely links the library; denormal results are not flushed by
 * the library behind the caller's back.
 */
#include "fixture.h"
#include "large.h"

#include <fenv.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/** The control bits of the vector unit, without the sticky exception flags. */
static uint64_t control_bits(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & ~0x3fu;
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
    return (uint64_t)fegetround();
#endif
}

static uint64_t initial_bits;

static void test_default_state(void **state)
{
    (void)state;
#if defined(__x86_64__)
    assert_int_equal(initial_bits, 0x1f80); /* all exceptions masked, no flushing, round to nearest */
#elif defined(__aarch64__)
    assert_int_equal(initial_bits, 0);
#else
    assert_int_equal(initial_bits, FE_TONEAREST);
#endif
}

static void test_left_as_found(void **state)
{
    (void)state;
    static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        for (int threads = 1; threads <= 2; threads++) {
            static struct large l;
            large_initialize(&l, threads);
            assert_int_equal(fesetround(modes[i]), 0);
            const uint64_t before = control_bits();
            const attn_status status = large_forward(&l);
            const uint64_t after = control_bits();
            fesetround(FE_TONEAREST);
            assert_int_equal(status, ATTN_OK);
            assert_int_equal(before, after);
        }
    }
}

#if defined(__x86_64__)
static void test_flush_to_zero_of_caller(void **state)
{
    (void)state;
    struct fixture f;
    fixture_initialize(&f);
    const unsigned found = _mm_getcsr();
    _mm_setcsr(found | 0x8040u); /* FTZ and DAZ */
    const attn_status status = fixture_forward(&f);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(found);
    assert_int_equal(status, ATTN_OK);
    assert_int_equal(after & 0x8040u, 0x8040u);
}
#endif

/** One key of weight 1: a denormal value comes out as it went in, on every instruction set. */
static void test_denormal_results(void **state)
{
    (void)state;
    for (int isa = 0; attn_isa_name(isa); isa++) {
        if (!attn_isa_supported(attn_isa_name(isa)))
            continue;
        float q[4] = {1, 2, 3, 4}, k[4] = {1, 0, 1, 0}, v[4] = {0x1p-149f, -0x1p-140f, 0x1.8p-130f, 0x1p-126f}, o[4];
        attn_tensor qt = attn_bhtd(q, 1, 1, 1, 4), kt = attn_bhtd(k, 1, 1, 1, 4), vt = attn_bhtd(v, 1, 1, 1, 4),
                    ot = attn_bhtd(o, 1, 1, 1, 4);
        attn_params params = attn_params_default();
        params.isa = attn_isa_name(isa);
        assert_int_equal(attn_forward(&qt, &kt, &vt, &ot, &params), ATTN_OK);
        assert_memory_equal(o, v, sizeof v);
    }
}

int main(void)
{
    initial_bits = control_bits();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_state),
        cmocka_unit_test(test_left_as_found),
#if defined(__x86_64__)
        cmocka_unit_test(test_flush_to_zero_of_caller),
#endif
        cmocka_unit_test(test_denormal_results),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
