/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout of activations: against the decisions of attn_dropout_keeps(), in every
 * mix of types and in place; wrong arguments.
 */
#include "memory.h"

/** Elements are dropped where attn_dropout_keeps() says, NaN too; in place, and in other types. */
static void test_drop(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(120); n++) {
        struct memory *m = memory_create("dropout drop", n);
        const int64_t batch = RNG_PICK(&m->rng, 0, 1, 2, 3), tokens = RNG_PICK(&m->rng, 0, 1, 2, 9);
        const int64_t channels = RNG_PICK(&m->rng, 0, 1, 3, 4, 5, 16, 17, 63, 64, 65, 130, 200);
        const attn_dropout dropout = {
            .p = (float)rng_range(&m->rng, 0, 9) / 10, .seed = (uint64_t)rng_range(&m->rng, 0, INT64_MAX), .offset = n};
        const attn_tensor x = place_rows_of(m, random_dtype(m), batch, tokens, channels),
                          out = place_rows(m, batch, tokens, channels);
        fill(m, &x, 1);
        for (int64_t t = 0; batch && channels && t < tokens; t++)
            tensor_set(&x, 0, 0, t, t % channels, t % 2 ? NAN : INFINITY);
        memory_seal(m);
        OK(attn_drop_activations(n % 8 ? &dropout : NULL, &x, &out, (int)(n % 4)));
        const float scale = (float)(1 / (1 - (double)dropout.p));
        for (int64_t b = 0; b < batch; b++)
            for (int64_t t = 0; t < tokens; t++)
                for (int64_t c = 0; c < channels; c++) {
                    const float value = (float)tensor_get(&x, b, 0, t, c), got = (float)tensor_get(&out, b, 0, t, c);
                    const float kept = n % 8 ? value * scale : value;
                    if (n % 8 && !attn_dropout_keeps(&dropout, b, 0, t, c))
                        assert_true(got == 0 && !signbit(got));
                    else
                        assert_true(isnan(kept) ? isnan(got) : got == kept);
                }
        if (n % 8) {
            const attn_tensor narrow =
                place_rows_of(m, rng_percent(&m->rng, 50) ? ATTN_BF16 : ATTN_F16, batch, tokens, channels);
            OK(attn_drop_activations(&dropout, &x, &narrow, 1));
            assert_rounded("narrow", &narrow, &out);
        }
        memory_destroy(m);
        m = memory_create("dropout drop in place", n);
        const attn_tensor same = random_rows(m, batch, tokens, channels),
                          other = place_rows(m, batch, tokens, channels);
        OK(attn_drop_activations(&dropout, &same, &other, 1));
        OK(attn_drop_activations(&dropout, &same, &same, 3));
        assert_true(equal_bits(&same, &other));
        mark_output(m, &same);
        memory_destroy(m);
    }
}

static void test_drop_refuses(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("dropout drop_refuses", 0);
    const attn_tensor x = random_rows(m, 2, 3, 8), out = place_rows(m, 2, 3, 8);
    attn_dropout dropout = {.p = 0.5f};
    memory_seal(m);
    REFUSES(m, attn_drop_activations(&dropout, NULL, &out, 0), ATTN_INVALID_ARGUMENT, "x is NULL");
    REFUSES(m, attn_drop_activations(&dropout, &x, NULL, 0), ATTN_INVALID_ARGUMENT, "out is NULL");
    REFUSES(m, attn_drop_activations(&dropout, &x, CHANGED(attn_tensor, out, shape[3] = 7), 0), ATTN_SHAPE_MISMATCH,
            "out.shape[3] is 7");
    REFUSES(m, attn_drop_activations(&dropout, &x, CHANGED(attn_tensor, x, data = (float *)x.data + 1), 0),
            ATTN_INVALID_ARGUMENT, "out|overlaps x");
    REFUSES(m, attn_drop_activations(&dropout, &x, &out, -1), ATTN_INVALID_ARGUMENT, "num_threads is -1");
    static const float wrong[] = {1, -0.25f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dropout.p = wrong[i];
        REFUSES(m, attn_drop_activations(&dropout, &x, &out, 0), ATTN_INVALID_ARGUMENT,
                "dropout->p is |; expected 0 or more and less than 1");
    }
    dropout.p = -0.25f;
    REFUSES(m, attn_drop_activations(&dropout, &x, &out, 0), ATTN_INVALID_ARGUMENT,
            "dropout->p is -0.25; expected 0 or more and less than 1");
    nn_end_refusals();
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_drop), cmocka_unit_test(test_drop_refuses)};
    return NN_MAIN(tests);
}
