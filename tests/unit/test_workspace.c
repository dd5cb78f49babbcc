/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound of working memory: 2 MiB a thread, on every instruction set, for
 * every head size and type, and with the options that need memory of their own.
 */
#include "fixture.h"

#include <string.h>

#define LIMIT   ((size_t)2 << 20)
#define ALIGN   64 /* the workspace may begin anywhere */
#define THREADS 4

static void check(const char *isa, attn_dtype dtype, int64_t dk, int64_t dv, const attn_params *options)
{
    /* Of more keys than a split has, sums of all and of one are kept; patterns and tables here are of 4096. */
    const int64_t tk = options->block_mask || options->rope ? 4096 : 20000;
    attn_tensor q = attn_bhtd(NULL, 1, 2, 4096, dk), k = attn_bhtd(NULL, 1, 2, tk, dk);
    attn_tensor v = attn_bhtd(NULL, 1, 2, tk, dv), out = attn_bhtd(NULL, 1, 2, 4096, dv);
    attn_params params = *options;
    attn_plan *plan;
    q.dtype = k.dtype = v.dtype = out.dtype = dtype;
    params.isa = isa;
    params.num_threads = THREADS;
    assert_int_equal(attn_plan_create(&plan, &q, &k, &v, &out, &params), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    attn_plan_destroy(plan);
    if (size > THREADS * LIMIT + ALIGN)
        fail_msg("%s, %s, dk %lld, dv %lld: %zu bytes for %d threads%s", isa, attn_dtype_name(dtype), (long long)dk,
                 (long long)dv, size, THREADS,
                 params.disentangled ? ", disentangled"
                 : params.rope       ? ", rope"
                                     : "");
}

static void check_size(const char *isa, attn_dtype dtype, int64_t dk, int64_t dv)
{
    attn_params params = attn_params_default();
    check(isa, dtype, dk, dv, &params);

    const attn_tensor turns = attn_bhtd(NULL, 1, 1, 4096, dk / 2 * 2);
    const attn_rope_tables rope = {ATTN_ROPE_HALF_SPLIT, &turns, &turns};
    params.rope = dk >= 2 && dk <= 2048 ? &rope : NULL;
    check(isa, dtype, dk, dv, &params);
    params.rope = NULL;

    const attn_tensor rows = attn_bhtd(NULL, 1, 1, 512, dk);
    const attn_disentangled disentangled = {.span = 256, .rel_k = &rows, .rel_q = &rows};
    params.disentangled = dk <= 1024 ? &disentangled : NULL;
    check(isa, dtype, dk, dv, &params);
    params.disentangled = NULL;

    /* Narrow strips, blocks of queries that a pattern's block fills, and blocks that are cut into parts. */
    for (int64_t size = 16; size <= 1024; size *= 2) {
        int64_t offsets[4096 / 16 + 1] = {0};
        const attn_block_mask pattern = {size, 1, 4096 / size, offsets, NULL};
        params.block_mask = &pattern;
        check(isa, dtype, dk, dv, &params);
    }
}

/** What would not keep to it is refused. */
static void test_refusals(void **state)
{
    const attn_tensor t = attn_bhtd(NULL, 1, 1, 4, 1025), u = attn_bhtd(NULL, 1, 1, 4, 2050);
    const attn_tensor rows = attn_bhtd(NULL, 1, 1, 2, 1025), turns = attn_bhtd(NULL, 1, 1, 4, 2);
    const attn_disentangled disentangled = {.span = 1, .rel_k = &rows};
    const attn_rope_tables rope = {ATTN_ROPE_HALF_SPLIT, &turns, &turns};
    attn_params params = attn_params_default();
    attn_plan *plan;
    (void)state;
    params.disentangled = &disentangled;
    assert_int_equal(attn_plan_create(&plan, &t, &t, &t, &t, &params), ATTN_UNSUPPORTED);
    assert_non_null(strstr(attn_last_error(), "q.shape[3] is 1025; head sizes with params.disentangled go up to 1024"));
    params.disentangled = NULL;
    params.rope = &rope;
    assert_int_equal(attn_plan_create(&plan, &u, &u, &u, &u, &params), ATTN_UNSUPPORTED);
    assert_non_null(strstr(attn_last_error(), "q.shape[3] is 2050"));
}

static void test_bound(void **state)
{
    static const int64_t sizes[] = {1, 64, 256, 511, 1024, 1600, 2048, 3333, 4096};
    const int n = (int)(sizeof sizes / sizeof *sizes);
    (void)state;
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int dtype = ATTN_F32; attn_isa_supported(attn_isa_name(isa)) && dtype <= ATTN_F16; dtype++)
            for (int i = 0; i < n; i++)
                for (int j = 0; j < n; j++)
                    check_size(attn_isa_name(isa), (attn_dtype)dtype, sizes[i], sizes[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
