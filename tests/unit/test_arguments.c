/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which a call can be wrong, one at a time: the status that the
 * header promises, a sentence that names the argument and the value, and not a
 * byte written to any output. Each runs through attn_forward() and through
 * attn_plan_run() with the plan of the valid call.
 *
 * The table holds what is stored where in the fixture, so a row reads as the
 * assignment that makes the call wrong. The options that have structs and arrays
 * of their own are in test_form_arguments.c.
 */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHANGED struct fixture
#include "change.h"

#define MAX_CHANGES 6

struct wrong {
    attn_status status;
    const char *words; /**< all of them stand in the sentence */
    struct change change[MAX_CHANGES];
};

#define BIG ((int64_t)1 << 40)

#if defined(__aarch64__)
#define ISA_ELSEWHERE "avx512_bf16"
#else
#define ISA_ELSEWHERE "neon_bf16"
#endif

static const float some_float[64];
static const int64_t some_int64[8];
static const int32_t some_int32[8];
static const attn_tensor some_tensor;
static const int64_t rows_negative[FIX_TQ] = {0, 1, 2, -4, 4};
static const int64_t rows_large[FIX_TQ] = {4, 3, 2, 1, FIX_TQ};
#define LONG_NAME  "a name of thirty-two characters, and much more than that"
#define MISALIGNED ((const char *)some_float + 1)

static const struct wrong wrongs[] = {
    {ATTN_INVALID_ARGUMENT, "q |NULL", {POINTER(q_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "k |NULL", {POINTER(k_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "v |NULL", {POINTER(v_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "out |NULL", {POINTER(out_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "q|data|NULL", {POINTER(q.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "k|data|NULL", {POINTER(k.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "v|data|NULL", {POINTER(v.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "out|data|NULL", {POINTER(out.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "mask|data|NULL", {POINTER(mask.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "lse|data|NULL", {POINTER(lse.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "q|align", {POINTER(q.data, MISALIGNED)}},
    {ATTN_INVALID_ARGUMENT, "out|align", {POINTER(out.data, MISALIGNED)}},
    {ATTN_INVALID_ARGUMENT, "k|align", {POINTER(k.data, MISALIGNED), INT(k.dtype, ATTN_BF16)}},
    {ATTN_INVALID_ARGUMENT, "mask|align", {POINTER(mask.data, MISALIGNED), INT(mask.dtype, ATTN_F16)}},
    {ATTN_UNSUPPORTED, "q.dtype|i8|f32", {INT(q.dtype, ATTN_I8)}},
    {ATTN_UNSUPPORTED, "q.dtype|bool|f32", {INT(q.dtype, ATTN_BOOL)}},
    {ATTN_UNSUPPORTED, "k.dtype is u8; expected f32, bf16, f16, i8, f8_e4m3 or i4", {INT(k.dtype, ATTN_U8)}},
    {ATTN_UNSUPPORTED, "v.dtype|bool|f8_e4m3", {INT(v.dtype, ATTN_BOOL)}},
    {ATTN_INVALID_ARGUMENT, "params.v_scale is NULL and v.dtype is i8", {INT(v.dtype, ATTN_I8)}},
    {ATTN_UNSUPPORTED, "v.dtype|bool|bf16", {INT(v.dtype, ATTN_BOOL)}},
    {ATTN_UNSUPPORTED, "out.dtype|u8|f16", {INT(out.dtype, ATTN_U8)}},
    {ATTN_UNSUPPORTED, "out.dtype|bool|f16", {INT(out.dtype, ATTN_BOOL)}},
    {ATTN_INVALID_ARGUMENT, "q|dtype|99", {INT(q.dtype, 99)}},
    {ATTN_INVALID_ARGUMENT, "out|dtype|-1", {INT(out.dtype, -1)}},
    {ATTN_UNSUPPORTED, "params.mask.dtype is i8; expected bool, f32, bf16 or f16", {INT(mask.dtype, ATTN_I8)}},
    {ATTN_UNSUPPORTED, "params.mask.dtype is u8; expected bool, f32, bf16 or f16", {INT(mask.dtype, ATTN_U8)}},
    {ATTN_INVALID_ARGUMENT, "mask|dtype|77", {INT(mask.dtype, 77)}},
    {ATTN_UNSUPPORTED, "lse.dtype|f16|f32", {INT(lse.dtype, ATTN_F16)}},
    {ATTN_UNSUPPORTED, "weights.dtype|bf16|f32", {INT(weights.dtype, ATTN_BF16)}},
    {ATTN_UNSUPPORTED, "weights.dtype|u8|f32", {INT(weights.dtype, ATTN_U8)}},
    {ATTN_UNSUPPORTED, "key_sums.dtype|f16|f32", {INT(key_sums.dtype, ATTN_F16)}},
    {ATTN_INVALID_ARGUMENT, "q|shape|-5", {INT64(q.shape[2], -5)}},
    {ATTN_INVALID_ARGUMENT, "k|shape|-8", {INT64(k.shape[3], -8)}},
    {ATTN_SHAPE_MISMATCH, "k|3|2", {INT64(k.shape[0], 3)}},
    {ATTN_SHAPE_MISMATCH, "v|1|2", {INT64(v.shape[0], 1)}},
    {ATTN_SHAPE_MISMATCH, "out|1|2", {INT64(out.shape[0], 1)}},
    {ATTN_SHAPE_MISMATCH, "v|1|2", {INT64(v.shape[1], 1)}},
    {ATTN_SHAPE_MISMATCH, "head|4|3", {INT64(k.shape[1], 3), INT64(v.shape[1], 3)}},
    {ATTN_SHAPE_MISMATCH,
     "q.shape[1] is 4; expected a multiple of the 0 heads of k",
     {INT64(k.shape[1], 0), INT64(v.shape[1], 0)}},
    {ATTN_SHAPE_MISMATCH, "out.shape[1] is 2; expected 4, the heads of q", {INT64(out.shape[1], 2)}},
    {ATTN_SHAPE_MISMATCH, "v|6|7", {INT64(v.shape[2], 6)}},
    {ATTN_SHAPE_MISMATCH, "out|4|5", {INT64(out.shape[2], 4)}},
    {ATTN_SHAPE_MISMATCH, "k|7|8", {INT64(k.shape[3], 7)}},
    {ATTN_SHAPE_MISMATCH, "out|5|6", {INT64(out.shape[3], 5)}},
    {ATTN_UNSUPPORTED,
     "q.shape[3] is 4097; head sizes go up to 4096",
     {INT64(q.shape[3], 4097), INT64(k.shape[3], 4097)}},
    {ATTN_UNSUPPORTED, "5000|4096", {INT64(v.shape[3], 5000), INT64(out.shape[3], 5000)}},
    {ATTN_SHAPE_MISMATCH, "mask|3|2", {INT64(mask.shape[0], 3)}},
    {ATTN_SHAPE_MISMATCH, "mask|2|4", {INT64(mask.shape[1], 2)}},
    {ATTN_SHAPE_MISMATCH, "mask|4|5", {INT64(mask.shape[2], 4)}},
    {ATTN_SHAPE_MISMATCH, "params.mask.shape[3] is 8; expected at most 7, the tokens of k", {INT64(mask.shape[3], 8)}},
    {ATTN_SHAPE_MISMATCH, "params.lse.shape[2] is 4; expected 5, the tokens of q", {INT64(lse.shape[2], 4)}},
    {ATTN_SHAPE_MISMATCH, "params.lse.shape[3] is 2; expected 1, a number for each query", {INT64(lse.shape[3], 2)}},
    {ATTN_SHAPE_MISMATCH, "params.weights.shape[2] is 4; expected 5, the tokens of q", {INT64(weights.shape[2], 4)}},
    {ATTN_SHAPE_MISMATCH, "params.weights.shape[3] is 5; expected 7, the tokens of k", {INT64(weights.shape[3], 5)}},
    {ATTN_SHAPE_MISMATCH, "key_sums.shape[2] is 5; expected 1, as queries are summed", {INT64(key_sums.shape[2], 5)}},
    {ATTN_SHAPE_MISMATCH, "key_sums.shape[3] is 3; expected 7, the tokens of k", {INT64(key_sums.shape[3], 3)}},
    {ATTN_SIZE_OVERFLOW,
     "1099511627776",
     {INT64(q.shape[0], BIG), INT64(q.shape[2], BIG), INT64(out.shape[0], BIG), INT64(out.shape[2], BIG),
      INT64(k.shape[0], BIG), INT64(v.shape[0], BIG)}},
    {ATTN_SIZE_OVERFLOW,
     "q.shape is 131072 x 131072 x 131072 x 131072; expected fewer than 2^63 bytes in all",
     {INT64(q.shape[0], 1 << 17), INT64(q.shape[1], 1 << 17), INT64(q.shape[2], 1 << 17), INT64(q.shape[3], 1 << 17)}},
    {ATTN_SIZE_OVERFLOW, "q|9223372036854775807", {INT64(q.stride[0], INT64_MAX)}},
    {ATTN_SIZE_OVERFLOW, "k.stride[2] is 2305843009213693951 for 7 elements", {INT64(k.stride[2], INT64_MAX / 4)}},
    {ATTN_SIZE_OVERFLOW, "out|-9223372036854775808", {INT64(out.stride[1], INT64_MIN)}},
    {ATTN_SIZE_OVERFLOW, "mask|4611686018427387903", {INT64(mask.stride[3], INT64_MAX / 2)}},
    {ATTN_SIZE_OVERFLOW, "v|4611686018427387903", {INT64(v.stride[0], INT64_MAX / 2)}},
    {ATTN_INVALID_ARGUMENT, "q|stride|2|1", {INT64(q.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "v|stride|-1|1", {INT64(v.stride[3], -1)}},
    {ATTN_INVALID_ARGUMENT, "out|stride|2|1", {INT64(out.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "out|stride|0", {INT64(out.stride[1], 0)}},
    {ATTN_INVALID_ARGUMENT, "out|stride|5", {INT64(out.stride[2], FIX_DV - 1)}},
    {ATTN_INVALID_ARGUMENT, "out|stride|3", {INT64(out.stride[1], 3)}},
    {ATTN_INVALID_ARGUMENT, "lse|stride|0", {INT64(lse.stride[2], 0)}},
    {ATTN_INVALID_ARGUMENT, "weights|stride|0", {INT64(weights.stride[3], 0)}},
    {ATTN_INVALID_ARGUMENT, "key_sums|stride|0", {INT64(key_sums.stride[0], 0)}},
    {ATTN_INVALID_ARGUMENT, "struct_size|0", {INT64(params.struct_size, 0)}},
    {ATTN_INVALID_ARGUMENT, "struct_size|5", {INT64(params.struct_size, 5)}},
    {ATTN_INVALID_ARGUMENT, "scale|nan", {FLOAT(params.scale, NAN)}},
    {ATTN_INVALID_ARGUMENT, "scale|-inf", {FLOAT(params.scale, -INFINITY)}},
    {ATTN_INVALID_ARGUMENT,
     "params.temperature is -0.5; expected a positive number, or 0 for 1",
     {FLOAT(params.temperature, -0.5f)}},
    {ATTN_INVALID_ARGUMENT, "temperature|nan", {FLOAT(params.temperature, NAN)}},
    {ATTN_INVALID_ARGUMENT, "temperature|inf", {FLOAT(params.temperature, INFINITY)}},
    {ATTN_INVALID_ARGUMENT,
     "params.temperature is 0.5|the scale, 3e+38|at most 1.70141e+38",
     {FLOAT(params.scale, 3e38f), FLOAT(params.temperature, 0.5f)}},
    {ATTN_INVALID_ARGUMENT, "params.temperature is 1e-39|the scale, 0.35", {FLOAT(params.temperature, 1e-39f)}},
    {ATTN_INVALID_ARGUMENT, "params.scale is 2e+38; expected at most 1.70141e+38", {FLOAT(params.scale, 2e38f)}},
    {ATTN_INVALID_ARGUMENT,
     "params.scale is -3e+38; expected at most 1.70141e+38",
     {FLOAT(params.scale, -3e38f), FLOAT(params.temperature, 1)}},
    {ATTN_INVALID_ARGUMENT, "causal|9", {INT(params.causal, 9)}},
    {ATTN_INVALID_ARGUMENT, "params.qk is 9; expected an attn_qk", {INT(params.qk, 9)}},
    {ATTN_INVALID_ARGUMENT, "params.inputs is 2; expected an attn_inputs", {INT(params.inputs, 2)}},
    {ATTN_INVALID_ARGUMENT, "params.sums is 2; expected an attn_sums", {INT(params.sums, 2)}},
    {ATTN_INVALID_ARGUMENT, "params.isa is 'auto'; expected NULL or one of scalar|or ", {POINTER(params.isa, "auto")}},
    {ATTN_INVALID_ARGUMENT, "params.isa is ''|scalar", {POINTER(params.isa, "")}},
    {ATTN_INVALID_ARGUMENT, "params.isa is 'Scalar'|scalar", {POINTER(params.isa, "Scalar")}},
    {ATTN_INVALID_ARGUMENT, "params.isa is 'avx2_int8'|scalar", {POINTER(params.isa, "avx2_int8")}},
    {ATTN_INVALID_ARGUMENT, "params.isa is 'neon_int8'|scalar", {POINTER(params.isa, "neon_int8")}},
    {ATTN_INVALID_ARGUMENT, "params.isa|" ISA_ELSEWHERE "|one of scalar", {POINTER(params.isa, ISA_ELSEWHERE)}},
    {ATTN_INVALID_ARGUMENT,
     "params.isa is 'a name of thirty-two characters,'; expected",
     {POINTER(params.isa, LONG_NAME)}},
    {ATTN_INVALID_ARGUMENT, "num_threads|-3", {INT(params.num_threads, -3)}},
    {ATTN_INVALID_ARGUMENT, "kv_len[1]|-1|7", {INT64(kv_len[1], -1)}},
    {ATTN_INVALID_ARGUMENT, "kv_len[1]|8|7", {INT64(kv_len[1], FIX_TK + 1)}},
    {ATTN_INVALID_ARGUMENT, "kv_len[0]|9223372036854775807|7", {INT64(kv_len[0], INT64_MAX)}},
    {ATTN_INVALID_ARGUMENT, "kv_start[0]|-2", {INT64(kv_start[0], -2)}},
    {ATTN_INVALID_ARGUMENT, "kv_start[1]|7|6", {INT64(kv_start[1], FIX_TK)}},
    {ATTN_INVALID_ARGUMENT, "query_offset|NULL", {INT(params.causal, ATTN_CAUSAL_OFFSET)}},
    {ATTN_INVALID_ARGUMENT, "query_offset", {POINTER(params.query_offset, some_int64)}},
    {ATTN_INVALID_ARGUMENT,
     "weight_rows[3]|-4",
     {POINTER(params.weight_rows, rows_negative), INT64(params.num_weight_rows, FIX_TQ)}},
    {ATTN_INVALID_ARGUMENT,
     "params.weight_rows[4] is 5; expected a query from 0 to 4",
     {POINTER(params.weight_rows, rows_large), INT64(params.num_weight_rows, FIX_TQ)}},
    {ATTN_SHAPE_MISMATCH,
     "params.weights.shape[2] is 5; expected 4, params.num_weight_rows",
     {POINTER(params.weight_rows, some_int64), INT64(params.num_weight_rows, 4)}},
    {ATTN_INVALID_ARGUMENT,
     "params.num_weight_rows is -1; expected 0 or more",
     {POINTER(params.weight_rows, some_int64), INT64(params.num_weight_rows, -1)}},
    {ATTN_INVALID_ARGUMENT,
     "params.num_weight_rows is 3 but params.weight_rows is NULL",
     {INT64(params.num_weight_rows, 3)}},
    {ATTN_INVALID_ARGUMENT,
     "weight_rows|weights",
     {POINTER(params.weight_rows, some_int64), INT64(params.num_weight_rows, FIX_TQ), POINTER(params.weights, NULL)}},
    {ATTN_INVALID_ARGUMENT, "page_size is 0", {POINTER(params.block_table, some_int32)}},
    {ATTN_INVALID_ARGUMENT, "block_table_stride|set|without a block table", {INT64(params.block_table_stride, 4)}},
    {ATTN_INVALID_ARGUMENT, "page_size|set|without a block table", {INT64(params.page_size, 16)}},
    {ATTN_UNSUPPORTED,
     "params.q_scale is set; version |does not implement it",
     {POINTER(params.q_scale, &some_tensor)}},
    {ATTN_INVALID_ARGUMENT,
     "params.k_scale is set and k.dtype is f32; expected NULL",
     {POINTER(params.k_scale, &some_tensor)}},
    {ATTN_INVALID_ARGUMENT,
     "params.v_scale is set and v.dtype is f32; expected NULL",
     {POINTER(params.v_scale, &some_tensor)}},
};

static attn_status run_valid_plan(const struct fixture *f)
{
    struct fixture valid;
    fixture_initialize(&valid);
    attn_plan *plan = NULL;
    assert_int_equal(attn_plan_create(&plan, valid.q_arg, valid.k_arg, valid.v_arg, valid.out_arg, valid.params_arg),
                     ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size ? size : 1);
    assert_non_null(workspace);
    const attn_status status =
        attn_plan_run(plan, f->q_arg, f->k_arg, f->v_arg, f->out_arg, f->params_arg, workspace, size);
    free(workspace);
    attn_plan_destroy(plan);
    return status;
}

static void make_wrong(struct fixture *f, const struct wrong *w)
{
    fixture_initialize(f);
    for (int i = 0; i < MAX_CHANGES; i++)
        change_make(f, &w->change[i]);
}

static void test_forward_refuses(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        const struct wrong *w = &wrongs[i];
        struct fixture f;
        make_wrong(&f, w);
        const attn_status status = fixture_forward(&f);
        const int untouched = fixture_outputs_untouched(&f);
        if (status == w->status && holds_words(attn_last_error(), w->words) && untouched)
            continue;
        failures++;
        print_error("wrong %s: status %d \"%s\", expected %d and the words %s%s\n", w->change[0].where, (int)status,
                    attn_last_error(), (int)w->status, w->words, untouched ? "" : "; AN OUTPUT WAS WRITTEN");
    }
    assert_int_equal(failures, 0);
}

/** A run may also say that a tensor is not the plan's, so only that it refuses, says why and writes nothing counts. */
static void test_plan_run_refuses(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        const struct wrong *w = &wrongs[i];
        struct fixture f;
        if (strcmp(w->change[0].where, "params.num_threads") == 0)
            continue; /* not looked at in a run */
        make_wrong(&f, w);
        const attn_status status = run_valid_plan(&f);
        const int untouched = fixture_outputs_untouched(&f);
        if (status != ATTN_OK && attn_last_error()[0] && untouched)
            continue;
        failures++;
        print_error("wrong %s: attn_plan_run gives status %d \"%s\"%s\n", w->change[0].where, (int)status,
                    attn_last_error(), untouched ? "" : "; AN OUTPUT WAS WRITTEN");
    }
    assert_int_equal(failures, 0);
}

static void test_larger_params(void **state)
{
    (void)state;
    struct {
        attn_params params;
        unsigned char tail[64]; /* what a later version of the header would have added */
    } later;
    struct fixture f;
    fixture_initialize(&f);
    memset(&later, 0, sizeof later);
    later.params = f.params;
    later.params.struct_size = sizeof later;
    f.params_arg = &later.params;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    assert_false(fixture_outputs_untouched(&f));
    for (size_t i = 0; i < sizeof later.tail; i += 21) {
        fixture_initialize(&f);
        f.params_arg = &later.params;
        memset(later.tail, 0, sizeof later.tail);
        later.tail[i] = 1;
        assert_int_equal(fixture_forward(&f), ATTN_UNSUPPORTED);
        assert_non_null(strstr(attn_last_error(), "struct_size"));
        assert_true(fixture_outputs_untouched(&f));
    }
}

/** What a plan keeps (dtypes, shapes, options) is checked when it is made; *plan is NULL then. */
static void test_plan_create_refuses(void **state)
{
    (void)state;
    int refused = 0;
    struct fixture f;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        const struct wrong *w = &wrongs[i];
        if (strstr(w->change[0].where, "data") || strstr(w->change[0].where, "stride[") ||
            strncmp(w->change[0].where, "kv_", 3) == 0 || strstr(w->words, "rows[") ||
            strcmp(w->words, "query_offset|NULL") == 0)
            continue; /* arrays, contents and strides are each run's own */
        attn_plan *plan = (attn_plan *)(void *)&f;
        make_wrong(&f, w);
        const attn_status status = attn_plan_create(&plan, f.q_arg, f.k_arg, f.v_arg, f.out_arg, f.params_arg);
        if (status != w->status || plan)
            print_error("wrong %s: attn_plan_create gives status %d, expected %d\n", w->change[0].where, (int)status,
                        (int)w->status);
        assert_int_equal(status, w->status);
        assert_null(plan);
        refused++;
    }
    assert_true(refused > 60);
    fixture_initialize(&f);
    assert_int_equal(attn_plan_create(NULL, f.q_arg, f.k_arg, f.v_arg, f.out_arg, f.params_arg), ATTN_INVALID_ARGUMENT);
    assert_string_equal(attn_last_error(), "plan is NULL; expected the address of a pointer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_refuses),
        cmocka_unit_test(test_plan_run_refuses),
        cmocka_unit_test(test_larger_params),
        cmocka_unit_test(test_plan_create_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
