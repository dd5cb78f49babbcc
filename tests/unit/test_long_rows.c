/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of many blocks of keys, which kernels may take several of at once
 * (struct attn_score_kernels, walk), have the bits of steps one by one. A mask
 * in memory that hides nothing makes these. And keys of many documents, whose labels
 * are looked for in ranges of ranges, have the bits of a mask that shows the same.
 */
#include "fixture.h"
#include "random.h"
#include "dtype.h"
#include "test_isa.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** How large scores are, and how they change from key to key. */
enum kind {
    USUAL,    /**< of the size of a trained network's */
    RISING,   /**< some later blocks have much longer keys: maxima rise */
    LARGE,    /**< so large that few keys count */
    WITH_NAN, /**< of a query and a key */
    MANY_KINDS
};

struct rows {
    attn_tensor q, k, v;
    attn_tensor out[2], lse[2];
};

static attn_tensor tensor_of(attn_dtype dtype, int64_t heads, int64_t tokens, int64_t channels)
{
    const size_t bytes = (size_t)(heads * tokens * channels) * attn_dtype_size(dtype);
    attn_tensor t = attn_bhtd(malloc(bytes), 1, heads, tokens, channels);
    assert_non_null(t.data);
    memset(t.data, 0x55, bytes);
    t.dtype = dtype;
    return t;
}

static void fill(struct rng *rng, const attn_tensor *t, enum kind kind, int is_key)
{
    const int64_t d = t->shape[3];
    for (int64_t i = 0; i < t->shape[1] * t->shape[2] * d; i++) {
        const int64_t token = i / d % t->shape[2];
        const float size = kind == LARGE ? 8.0f : kind == RISING && is_key ? 1.0f + (float)(token / 200 % 3) * 2 : 1.0f;
        const int bad = kind == WITH_NAN && token == (is_key ? 300 : 5) && i % d == 0;
        dtype_store(t->dtype, t->data, i, bad ? NAN : size * rng_normal(rng));
    }
}

static void check_rows(const char *isa, attn_dtype dtype, int64_t tokens, int64_t d, enum kind kind, attn_causal causal)
{
    static const uint8_t one = 1;
    struct rng rng = rng_for_case(0x10c, (uint64_t)(tokens * 1024 + d));
    struct rows rows = {.q = tensor_of(dtype, 2, tokens, d), .k = tensor_of(dtype, 1, tokens, d)};
    rows.v = tensor_of(dtype, 1, tokens, d);
    fill(&rng, &rows.q, kind, 0);
    fill(&rng, &rows.k, kind, 1);
    fill(&rng, &rows.v, USUAL, 0);
    const attn_tensor everything = {
        .data = (void *)(uintptr_t)&one, .dtype = ATTN_BOOL, .shape = {1, 1, tokens, tokens}, .stride = {0, 0, 0, 0}};
    for (int masked = 0; masked < 2; masked++) {
        rows.out[masked] = tensor_of(ATTN_F32, 2, tokens, d);
        rows.lse[masked] = tensor_of(ATTN_F32, 2, tokens, 1);
        attn_params params = attn_params_default();
        params.isa = isa;
        params.causal = causal;
        params.lse = &rows.lse[masked];
        params.mask = masked ? &everything : NULL;
        params.num_threads = masked ? 2 : 1;
        assert_int_equal(attn_forward(&rows.q, &rows.k, &rows.v, &rows.out[masked], &params), ATTN_OK);
    }
    const float *a = rows.out[0].data, *b = rows.out[1].data, *l = rows.lse[0].data, *m = rows.lse[1].data;
    for (int64_t i = 0; i < 2 * tokens * d; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s %s T=%d d=%d kind %d causal %d: out[%d] is %a, with a mask %a", isa, attn_dtype_name(dtype),
                     (int)tokens, (int)d, (int)kind, (int)causal, (int)i, (double)a[i], (double)b[i]);
    for (int64_t i = 0; i < 2 * tokens; i++)
        if (memcmp(&l[i], &m[i], sizeof *l) != 0 && !(isnan(l[i]) && isnan(m[i])))
            fail_msg("%s %s T=%d d=%d kind %d causal %d: lse[%d] is %a, with a mask %a", isa, attn_dtype_name(dtype),
                     (int)tokens, (int)d, (int)kind, (int)causal, (int)i, (double)l[i], (double)m[i]);
    for (int masked = 0; masked < 2; masked++) {
        free(rows.out[masked].data);
        free(rows.lse[masked].data);
    }
    free(rows.q.data);
    free(rows.k.data);
    free(rows.v.data);
}

static void test_blocks_at_once(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{700, 64}, {513, 128}, {384, 32}, {400, 17}, {640, 80}, {520, 160}, {2100, 16}};
    for (int isa = 0; attn_isa_name(isa); isa++) {
        /* Sets that take one block at a time have nothing to show in more than one case. */
        const int walks = strstr(attn_isa_name(isa), "amx") != NULL, kinds = walks ? MANY_KINDS : 1;
        const size_t first = walks ? 0 : 2, most = walks ? sizeof shapes / sizeof *shapes : first + 1;
        for (size_t s = first; s < most && attn_isa_supported(attn_isa_name(isa)); s++)
            for (int kind = 0; kind < kinds; kind++) {
                const attn_causal causal = (s + (size_t)kind) % 2 ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
                check_rows(attn_isa_name(isa), ATTN_BF16, shapes[s][0], shapes[s][1], (enum kind)kind, causal);
            }
    }
}

/** A query over keys of documents up to longest tokens long: labels rise, and here and there one comes again. */
static void check_documents(int64_t keys, int64_t longest, uint64_t seed)
{
    enum { QUERIES = 1, D = 4 }; /* of several in a strip the range of labels would be wide */
    struct rng rng = rng_for_case(0xd0c, seed);
    const attn_tensor q = tensor_of(ATTN_F32, 1, QUERIES, D), k = tensor_of(ATTN_F32, 1, keys, D);
    const attn_tensor v = tensor_of(ATTN_F32, 1, keys, D), shown = tensor_of(ATTN_BOOL, QUERIES, keys, 1);
    const attn_tensor mask = {
        .data = shown.data, .dtype = ATTN_BOOL, .shape = {1, 1, QUERIES, keys}, .stride = {0, 0, keys, 1}};
    int32_t *const labels = malloc((size_t)keys * sizeof *labels), of_query[QUERIES];
    float out[2][QUERIES * D];
    assert_non_null(labels);
    fill(&rng, &q, USUAL, 0);
    fill(&rng, &k, USUAL, 1);
    fill(&rng, &v, USUAL, 0);
    for (int64_t j = 0, label = 0, left = 0; j < keys; j++, left--) {
        if (left == 0) {
            left = rng_range(&rng, 1, longest);
            label++;
        }
        labels[j] = (int32_t)(rng_percent(&rng, 99) ? label : rng_range(&rng, 0, label));
    }
    of_query[0] =
        seed % 8 == 0 ? -1 : labels[seed % 8 == 1 ? keys - 1 : rng_range(&rng, 0, keys - 1)]; /* -1: no key's */
    for (int64_t j = 0; j < keys; j++)
        ((uint8_t *)shown.data)[j] = labels[j] == of_query[0];
    const attn_segments segments = {of_query, labels};
    for (int masked = 0; masked < 2; masked++) {
        const attn_tensor to = attn_bhtd(out[masked], 1, 1, QUERIES, D);
        attn_params params = attn_params_default();
        params.mask = masked ? &mask : NULL;
        params.segments = masked ? NULL : &segments;
        assert_int_equal(attn_forward(&q, &k, &v, &to, &params), ATTN_OK);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    free(q.data);
    free(k.data);
    free(v.data);
    free(shown.data);
    free(labels);
}

static void test_documents(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1100, 2176, 8200, 9300, 20000, 70000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (uint64_t n = 0; n < 8; n++)
            check_documents(lengths[i], n % 2 ? 50 : 1500, 8 * i + n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks_at_once), cmocka_unit_test(test_documents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
