/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of rows that are long beside a task: causality, prefixes and windows
 * with first and global tokens leave blocks of queries out, and give the bits of
 * a boolean mask that hides the same keys, of which every block is looked at: in
 * f32, and on each instruction set that multiplies pairs of bf16. So do those of tables by distance.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "attn/attn.h"
#include "attn/backward.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

enum { CASES = 16, D = 8, MOST = 1200, SPAN = 90 };

/** A long row, and what hides its keys. */
struct hidden {
    int64_t tq, tk, offset, start, prefix, global[2];
    attn_causal causal;
    attn_window window;
    int windowed;
};

static float *floats(struct rng *rng, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = rng_normal(rng);
    return x;
}

static struct hidden draw(struct rng *rng)
{
    struct hidden h = {.tq = rng_range(rng, 600, MOST), .tk = rng_range(rng, 600, MOST)};
    h.offset = rng_range(rng, -800, 800);
    h.start = rng_range(rng, 0, 200);
    h.causal = rng_percent(rng, 50) ? ATTN_CAUSAL_OFFSET : ATTN_CAUSAL_NONE;
    h.prefix = h.causal && rng_percent(rng, 50) ? rng_range(rng, 1, 400) : 0;
    h.windowed = rng_percent(rng, 75);
    h.window.left = rng_percent(rng, 75) ? rng_range(rng, 0, 300) : ATTN_UNLIMITED;
    h.window.right = rng_percent(rng, 75) ? rng_range(rng, 0, 300) : ATTN_UNLIMITED;
    h.window.first_tokens = rng_percent(rng, 30) ? rng_range(rng, 1, 200) : 0;
    h.window.num_global = rng_percent(rng, 25) ? 2 : 0;
    h.global[0] = rng_range(rng, 0, 299);
    h.global[1] = rng_range(rng, 300, 599);
    return h;
}

static int sees(const struct hidden *h, int64_t query, int64_t key)
{
    const int64_t position = h->offset + query, live = key - h->start;
    if (live < 0 || (h->causal && key > position && live >= h->prefix))
        return 0;
    if (!h->windowed || live < h->window.first_tokens)
        return 1;
    for (int64_t i = 0; i < h->window.num_global; i++)
        if (h->global[i] == key || h->global[i] == position)
            return 1;
    return (h->window.left == ATTN_UNLIMITED || key >= position - h->window.left) &&
           (h->window.right == ATTN_UNLIMITED || key <= position + h->window.right);
}

/** A tensor's numbers in bf16, cut off, and the tensor of these. */
static attn_tensor narrowed(const attn_tensor *t)
{
    const int64_t n = t->shape[2] * t->shape[3];
    uint16_t *halves = malloc((size_t)n * sizeof *halves);
    assert_non_null(halves);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, (const float *)t->data + i, sizeof bits);
        halves[i] = (uint16_t)(bits >> 16);
    }
    attn_tensor r = *t;
    r.data = halves;
    r.dtype = ATTN_BF16;
    return r;
}

/** Cases on a set, in pairs of bf16; NULL: the default one, in f32. */
static void compare_masks(const char *isa)
{
    struct rng rng = rng_for_case(15, 1);
    for (int i = 0; i < CASES; i++) {
        struct hidden h = draw(&rng);
        h.window.global = h.window.num_global ? h.global : NULL;
        const int64_t nq = h.tq * D, nk = h.tk * D;
        float *q = floats(&rng, nq), *k = floats(&rng, nk), *v = floats(&rng, nk), *d_out = floats(&rng, nq);
        float *out = floats(&rng, nq), *lse = floats(&rng, h.tq);
        const int64_t nt = 2 * SPAN * D, all_numbers = nq + 2 * nk + 2 * nt;
        float *got = floats(&rng, all_numbers), *expected = floats(&rng, all_numbers), *tables = floats(&rng, 2 * nt);
        uint8_t *mask = malloc((size_t)(h.tq * h.tk));
        assert_non_null(mask);
        for (int64_t a = 0; a < h.tq; a++)
            for (int64_t b = 0; b < h.tk; b++)
                mask[a * h.tk + b] = (uint8_t)sees(&h, a, b);
        attn_tensor tq = attn_bhtd(q, 1, 1, h.tq, D), tk = attn_bhtd(k, 1, 1, h.tk, D);
        attn_tensor tv = attn_bhtd(v, 1, 1, h.tk, D), td = attn_bhtd(d_out, 1, 1, h.tq, D);
        const attn_tensor to = attn_bhtd(out, 1, 1, h.tq, D), tl = attn_bhtd(lse, 1, 1, h.tq, 1);
        attn_tensor *const inputs[] = {&tq, &tk, &tv, &td};
        for (int n = 0; isa && n < 4; n++)
            *inputs[n] = narrowed(inputs[n]);
        attn_tensor tm = attn_bhtd(mask, 1, 1, h.tq, h.tk);
        tm.dtype = ATTN_BOOL;
        attn_params masked = attn_params_default(), ruled;
        masked.lse = &tl;
        masked.isa = isa;
        masked.kv_start = &h.start;
        masked.query_offset = &h.offset;
        const attn_tensor rel_k = attn_bhtd(tables, 1, 1, 2 * SPAN, D);
        const attn_tensor rel_q = attn_bhtd(tables + nt, 1, 1, 2 * SPAN, D);
        const attn_disentangled terms = {.span = SPAN, .rel_k = &rel_k, .rel_q = &rel_q};
        const int relative = !isa && i % 2; /* terms of tables are computed in f32 */
        masked.disentangled = relative ? &terms : NULL;
        ruled = masked;
        masked.mask = &tm;
        ruled.causal = h.causal;
        ruled.prefix_len = h.prefix ? &h.prefix : NULL;
        ruled.window = h.windowed ? &h.window : NULL;
        assert_int_equal(attn_forward(&tq, &tk, &tv, &to, &masked), ATTN_OK);
        for (int rules = 0; rules < 2; rules++) {
            float *at = rules ? got : expected;
            const attn_tensor dq = attn_bhtd(at, 1, 1, h.tq, D), dk = attn_bhtd(at + nq, 1, 1, h.tk, D);
            const attn_tensor dv = attn_bhtd(at + nq + nk, 1, 1, h.tk, D);
            attn_gradients gradients = attn_gradients_default();
            gradients.out = &td;
            gradients.q = &dq, gradients.k = &dk, gradients.v = &dv;
            const attn_tensor d_rel_k = attn_bhtd(at + nq + 2 * nk, 1, 1, 2 * SPAN, D);
            const attn_tensor d_rel_q = attn_bhtd(at + nq + 2 * nk + nt, 1, 1, 2 * SPAN, D);
            gradients.rel_k = relative ? &d_rel_k : NULL;
            gradients.rel_q = relative ? &d_rel_q : NULL;
            assert_int_equal(attn_backward(&tq, &tk, &tv, &to, rules ? &ruled : &masked, &gradients), ATTN_OK);
        }
        assert_memory_equal(got, expected, (size_t)(relative ? all_numbers : nq + 2 * nk) * sizeof *got);
        for (int n = 0; isa && n < 4; n++)
            free(inputs[n]->data);
        void *const all[] = {q, k, v, d_out, out, lse, got, expected, mask, tables};
        for (size_t n = 0; n < sizeof all / sizeof *all; n++)
            free(all[n]);
    }
}

static void test_masks(void **state)
{
    (void)state;
    compare_masks(NULL);
    for (int n = 0; attn_isa_name(n); n++)
        if (strstr(attn_isa_name(n), "bf16") && attn_isa_supported(attn_isa_name(n)))
            compare_masks(attn_isa_name(n));
}

/** Shapes for which more would be kept than can be counted. */
static void test_huge(void **state)
{
    (void)state;
    const int64_t many = (int64_t)1 << 50;
    const attn_tensor q = attn_bhtd(NULL, many, 64, 1, 8), k = attn_bhtd(NULL, many, 64, 1, 8);
    const attn_tensor lse = attn_bhtd(NULL, many, 64, 1, 1);
    attn_params params = attn_params_default();
    attn_gradients gradients = attn_gradients_default();
    size_t size = 1;
    params.lse = &lse;
    gradients.out = gradients.q = &q;
    assert_int_equal(attn_backward_workspace_size(&q, &k, &k, &q, &params, &gradients, &size), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "q and k have shapes for which 6.55453e+22 bytes of memory are kept; "
                                           "expected less than 2^62");
    assert_int_equal(size, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_masks), cmocka_unit_test(test_huge)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
