/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which a call of linear attention can be wrong, one at a time: the
 * status that the header promises, a sentence that names the argument and the value,
 * and not a byte written anywhere. Each runs through attn_linear_attention(),
 * attn_linear_attention_in() and a run of the plan of the valid call.
 */
#include "linear_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHANGED struct linear_fixture
#include "change.h"

enum { MAX_CHANGES = 4 };

struct wrong {
    attn_status status;
    const char *words; /**< all of them stand in the sentence */
    struct change change[MAX_CHANGES];
};

/** Fails the test unless all entry points refuse the call so, and nothing at all has changed. */
static void expect_refused(const struct linear_fixture *f, const attn_linear_attention_plan *plan, attn_status status,
                           const char *words, const char *what)
{
    static struct linear_fixture before;
    static char workspace[1 << 20], untouched[1 << 20];
    memcpy(&before, f, sizeof before);
    memset(workspace, CANARY, sizeof workspace);
    memset(untouched, CANARY, sizeof untouched);
    for (int entry = 0; entry < 3; entry++) {
        const attn_status got = entry == 0 ? linear_fixture_call(f)
                                : entry == 1
                                    ? attn_linear_attention_in(f->q_arg, f->k_arg, f->v_arg, f->out_arg, f->params_arg,
                                                               workspace, sizeof workspace)
                                    : attn_linear_attention_plan_run(plan, f->q_arg, f->k_arg, f->v_arg, f->out_arg,
                                                                     f->params_arg, workspace, sizeof workspace);
        if (got != status || !holds_words(attn_last_error(), words))
            fail_msg("%s, entry %d: expected status %d and %s; got %d, \"%s\"", what, entry, (int)status, words,
                     (int)got, attn_last_error());
        assert_memory_equal(&before, f, sizeof before);
    }
    assert_memory_equal(workspace, untouched, sizeof workspace);
}

static attn_linear_attention_plan *plan_of(const struct linear_fixture *f)
{
    attn_linear_attention_plan *plan = NULL;
    assert_int_equal(attn_linear_attention_plan_create(&plan, &f->q, &f->k, &f->v, &f->out, &f->params), ATTN_OK);
    return plan;
}

static void make_changes(struct linear_fixture *f, const struct wrong *wrong, char *what, size_t size)
{
    what[0] = '\0';
    for (int i = 0; i < MAX_CHANGES; i++) {
        change_make(f, &wrong->change[i]);
        if (wrong->change[i].kind != 0)
            snprintf(what + strlen(what), size - strlen(what), "%s ", wrong->change[i].where);
    }
}

static void run_table(const struct wrong *wrongs, size_t n, int ragged)
{
    static struct linear_fixture f;
    linear_fixture_initialize(&f);
    if (ragged)
        linear_fixture_make_ragged(&f);
    attn_linear_attention_plan *plan = plan_of(&f);
    for (size_t i = 0; i < n; i++) {
        char what[256];
        linear_fixture_initialize(&f);
        if (ragged)
            linear_fixture_make_ragged(&f);
        make_changes(&f, &wrongs[i], what, sizeof what);
        expect_refused(&f, plan, wrongs[i].status, wrongs[i].words, what);
    }
    attn_linear_attention_plan_destroy(plan);
}

#define HUGE_LENGTH ((int64_t)1 << 40)

static const float some_float[64];
#define MISALIGNED ((const char *)some_float + 1)

static const struct wrong wrongs[] = {
    /* the arguments */
    {ATTN_INVALID_ARGUMENT, "q is NULL", {POINTER(q_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "k is NULL", {POINTER(k_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "v is NULL", {POINTER(v_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "out is NULL", {POINTER(out_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.struct_size is 0", {INT64(params.struct_size, 0)}},
    {ATTN_INVALID_ARGUMENT, "params.struct_size is 8", {INT64(params.struct_size, 8)}},
    {ATTN_INVALID_ARGUMENT,
     "params.struct_size is",
     {INT64(params.struct_size, (int64_t)sizeof(attn_linear_attention_params) - 8)}},
    {ATTN_INVALID_ARGUMENT, "params.struct_size is 1000000", {INT64(params.struct_size, 1000000)}},

    /* data */
    {ATTN_INVALID_ARGUMENT, "q.data is NULL", {POINTER(q.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "k.data is NULL", {POINTER(k.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "v.data is NULL", {POINTER(v.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "out.data is NULL", {POINTER(out.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.decay.data is NULL", {POINTER(decay.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.beta.data is NULL", {POINTER(beta.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.resets.data is NULL", {POINTER(resets.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.state_in.data is NULL", {POINTER(state_in.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.state_out.data is NULL", {POINTER(state_out.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "q.data|align", {POINTER(q.data, MISALIGNED)}},
    {ATTN_INVALID_ARGUMENT, "k.data|align", {POINTER(k.data, MISALIGNED), INT(k.dtype, ATTN_BF16)}},
    {ATTN_INVALID_ARGUMENT, "params.decay.data|align", {POINTER(decay.data, MISALIGNED)}},
    {ATTN_INVALID_ARGUMENT, "params.beta.data|align", {POINTER(beta.data, MISALIGNED), INT(beta.dtype, ATTN_F16)}},
    {ATTN_INVALID_ARGUMENT, "params.state_in.data|align", {POINTER(state_in.data, MISALIGNED)}},

    /* types */
    {ATTN_INVALID_ARGUMENT, "q.dtype is 99", {INT(q.dtype, 99)}},
    {ATTN_INVALID_ARGUMENT, "params.decay.dtype is -1", {INT(decay.dtype, -1)}},
    {ATTN_INVALID_ARGUMENT, "params.state_out.dtype is 99", {INT(state_out.dtype, 99)}},
    {ATTN_UNSUPPORTED, "q.dtype is bool|f16", {INT(q.dtype, ATTN_BOOL)}},
    {ATTN_UNSUPPORTED, "k.dtype is i8|f16", {INT(k.dtype, ATTN_I8)}},
    {ATTN_UNSUPPORTED, "v.dtype is f8_e4m3|f16", {INT(v.dtype, ATTN_F8_E4M3)}},
    {ATTN_UNSUPPORTED, "out.dtype is u8|f16", {INT(out.dtype, ATTN_U8)}},
    {ATTN_UNSUPPORTED, "params.decay.dtype is bool|f16", {INT(decay.dtype, ATTN_BOOL)}},
    {ATTN_UNSUPPORTED, "params.beta.dtype is i8|f16", {INT(beta.dtype, ATTN_I8)}},
    {ATTN_UNSUPPORTED, "params.resets.dtype is u8|bool", {INT(resets.dtype, ATTN_U8)}},
    {ATTN_UNSUPPORTED, "params.state_in.dtype is bf16|f32", {INT(state_in.dtype, ATTN_BF16)}},
    {ATTN_UNSUPPORTED, "params.state_out.dtype is f16|f32", {INT(state_out.dtype, ATTN_F16)}},

    /* shapes */
    {ATTN_INVALID_ARGUMENT, "q.shape[2] is -5", {INT64(q.shape[2], -5)}},
    {ATTN_INVALID_ARGUMENT, "params.decay.shape[0] is -1", {INT64(decay.shape[0], -1)}},
    {ATTN_SHAPE_MISMATCH, "k.shape[0] is 1; expected 2, the batch of q", {INT64(k.shape[0], 1)}},
    {ATTN_SHAPE_MISMATCH, "v.shape[0] is 3; expected 2", {INT64(v.shape[0], 3)}},
    {ATTN_SHAPE_MISMATCH, "out.shape[0] is 1; expected 2", {INT64(out.shape[0], 1)}},
    {ATTN_SHAPE_MISMATCH, "k.shape[2] is 5; expected 6", {INT64(k.shape[2], 5)}},
    {ATTN_SHAPE_MISMATCH, "v.shape[2] is 7; expected 6", {INT64(v.shape[2], 7)}},
    {ATTN_SHAPE_MISMATCH, "out.shape[2] is 5; expected 6", {INT64(out.shape[2], 5)}},
    {ATTN_SHAPE_MISMATCH, "k.shape[3] is 7; expected 8", {INT64(k.shape[3], 7)}},
    {ATTN_SHAPE_MISMATCH, "out.shape[3] is 4; expected 5", {INT64(out.shape[3], 4)}},
    {ATTN_SHAPE_MISMATCH, "out.shape[1] is 2; expected 4", {INT64(out.shape[1], 2)}},
    {ATTN_SHAPE_MISMATCH, "q.shape[1] is 3|2", {INT64(q.shape[1], 3)}},
    {ATTN_UNSUPPORTED, "q.shape[1] is 8194; expected at most 4096 times 2, the heads of v", {INT64(q.shape[1], 8194)}},
    {ATTN_SHAPE_MISMATCH,
     "q.shape[1] is 0; expected a multiple or a divisor of 2, the heads of v",
     {INT64(q.shape[1], 0)}},
    {ATTN_SHAPE_MISMATCH, "k.shape[1] is 4|2", {INT64(k.shape[1], 4)}},
    {ATTN_SHAPE_MISMATCH, "k.shape[1] is 0; expected a divisor of 2, the heads of v", {INT64(k.shape[1], 0)}},
    {ATTN_SHAPE_MISMATCH, "q.shape[1] is 4|0", {INT64(v.shape[1], 0)}},
    {ATTN_UNSUPPORTED,
     "q.shape[3] is 4097; expected at most 4096 channels",
     {INT64(q.shape[3], 4097), INT64(k.shape[3], 4097)}},
    {ATTN_UNSUPPORTED, "v.shape[3] is 5000|4096", {INT64(v.shape[3], 5000), INT64(out.shape[3], 5000)}},
    {ATTN_SHAPE_MISMATCH, "params.decay.shape[0] is 3; expected 1 or 2", {INT64(decay.shape[0], 3)}},
    {ATTN_SHAPE_MISMATCH, "params.decay.shape[1] is 4; expected 1 or 2", {INT64(decay.shape[1], 4)}},
    {ATTN_SHAPE_MISMATCH, "params.decay.shape[2] is 5; expected 1 or 6", {INT64(decay.shape[2], 5)}},
    {ATTN_SHAPE_MISMATCH, "params.decay.shape[3] is 5; expected 1 or 8", {INT64(decay.shape[3], 5)}},
    {ATTN_SHAPE_MISMATCH, "params.beta.shape[0] is 0; expected 1 or 2", {INT64(beta.shape[0], 0)}},
    {ATTN_SHAPE_MISMATCH, "params.beta.shape[1] is 4; expected 1 or 2", {INT64(beta.shape[1], 4)}},
    {ATTN_SHAPE_MISMATCH, "params.beta.shape[2] is 7; expected 1 or 6", {INT64(beta.shape[2], 7)}},
    {ATTN_SHAPE_MISMATCH, "params.beta.shape[3] is 8; expected 1, a number for each head", {INT64(beta.shape[3], 8)}},
    {ATTN_SHAPE_MISMATCH, "params.resets.shape[0] is 3; expected 1 or 2", {INT64(resets.shape[0], 3)}},
    {ATTN_SHAPE_MISMATCH, "params.resets.shape[1] is 3; expected 1 or 2", {INT64(resets.shape[1], 3)}},
    {ATTN_SHAPE_MISMATCH, "params.resets.shape[2] is 5|6", {INT64(resets.shape[2], 5)}},
    {ATTN_SHAPE_MISMATCH,
     "params.resets.shape[3] is 2; expected 1, a mark for each token",
     {INT64(resets.shape[3], 2)}},
    {ATTN_SHAPE_MISMATCH, "params.state_in.shape[0] is 1; expected 2", {INT64(state_in.shape[0], 1)}},
    {ATTN_SHAPE_MISMATCH, "params.state_in.shape[1] is 4; expected 2, the heads of v", {INT64(state_in.shape[1], 4)}},
    {ATTN_SHAPE_MISMATCH, "params.state_in.shape[2] is 5; expected 8", {INT64(state_in.shape[2], 5)}},
    {ATTN_SHAPE_MISMATCH,
     "params.state_in.shape[3] is 8; expected 5, the channels of v",
     {INT64(state_in.shape[3], 8)}},
    {ATTN_SHAPE_MISMATCH, "params.state_out.shape[0] is 3; expected 2", {INT64(state_out.shape[0], 3)}},
    {ATTN_SHAPE_MISMATCH, "params.state_out.shape[1] is 1; expected 2", {INT64(state_out.shape[1], 1)}},
    {ATTN_SHAPE_MISMATCH, "params.state_out.shape[2] is 7; expected 8", {INT64(state_out.shape[2], 7)}},
    {ATTN_SHAPE_MISMATCH, "params.state_out.shape[3] is 4; expected 5", {INT64(state_out.shape[3], 4)}},

    /* strides */
    {ATTN_INVALID_ARGUMENT, "q.stride[3] is 2; expected 1", {INT64(q.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "k.stride[3] is -1; expected 1", {INT64(k.stride[3], -1)}},
    {ATTN_INVALID_ARGUMENT, "v.stride[3] is 0; expected 1", {INT64(v.stride[3], 0)}},
    {ATTN_INVALID_ARGUMENT, "out.stride[3] is 2; expected 1", {INT64(out.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "params.state_in.stride[3] is 2; expected 1", {INT64(state_in.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "params.state_out.stride[3] is 8; expected 1", {INT64(state_out.stride[3], 8)}},
    {ATTN_INVALID_ARGUMENT, "out.stride[1]|0", {INT64(out.stride[1], 0)}},
    {ATTN_INVALID_ARGUMENT, "out.stride[2]|4", {INT64(out.stride[2], LIN_DV - 1)}},
    {ATTN_INVALID_ARGUMENT, "params.state_out.stride[0]|0", {INT64(state_out.stride[0], 0)}},
    {ATTN_INVALID_ARGUMENT, "params.state_out.stride[2]|3", {INT64(state_out.stride[2], 3)}},
    {ATTN_SIZE_OVERFLOW, "q|9223372036854775807", {INT64(q.stride[0], INT64_MAX)}},
    {ATTN_SIZE_OVERFLOW, "k|-9223372036854775808", {INT64(k.stride[2], INT64_MIN)}},
    {ATTN_SIZE_OVERFLOW, "params.decay|4611686018427387903", {INT64(decay.stride[3], INT64_MAX / 2)}},
    {ATTN_SIZE_OVERFLOW, "params.beta|4611686018427387903", {INT64(beta.stride[1], INT64_MAX / 2)}},
    {ATTN_SIZE_OVERFLOW, "params.state_in|9223372036854775807", {INT64(state_in.stride[1], INT64_MAX)}},
    {ATTN_SIZE_OVERFLOW,
     "q.shape is 1099511627776 x 4 x 1099511627776 x 8; expected",
     {INT64(q.shape[0], HUGE_LENGTH), INT64(q.shape[2], HUGE_LENGTH)}},

    /* options */
    {ATTN_INVALID_ARGUMENT, "params.scale|nan", {FLOAT(params.scale, NAN)}},
    {ATTN_INVALID_ARGUMENT, "params.scale is inf; expected a finite number", {FLOAT(params.scale, INFINITY)}},
    {ATTN_INVALID_ARGUMENT, "params.num_threads is -1", {INT(params.num_threads, -1)}},
    {ATTN_INVALID_ARGUMENT, "params.isa|sse9|scalar", {POINTER(params.isa, "sse9")}},
    {ATTN_INVALID_ARGUMENT, "params.num_sequences is 1|cu_seqlens", {INT64(params.num_sequences, 1)}},

    /* decays: of a NaN or a number above 0 the first is named */
    {ATTN_INVALID_ARGUMENT, "params.decay[0][0][0][0] is nan; expected a number up to 0", {FLOAT(decay_data[0], NAN)}},
    {ATTN_INVALID_ARGUMENT,
     "params.decay[0][1][2][3] is 0.5; expected a number up to 0",
     {FLOAT(decay_data[(1 * LIN_T + 2) * LIN_DK + 3], 0.5f), FLOAT(decay_data[(3 * LIN_T + 5) * LIN_DK + 7], NAN)}},
    {ATTN_INVALID_ARGUMENT,
     "params.decay[1][1][5][7] is inf; expected a number up to 0",
     {FLOAT(decay_data[LIN_B * LIN_H * LIN_T * LIN_DK - 1], INFINITY)}},
    {ATTN_INVALID_ARGUMENT,
     "params.decay[1][0][0][0] is 1.4013e-45|0",
     {FLOAT(decay_data[2 * LIN_T * LIN_DK], 1e-45f)}},

    /* a mark for all tokens would reset each of them */
    {ATTN_SHAPE_MISMATCH, "params.resets.shape[2] is 1|6", {INT64(resets.shape[2], 1)}},
};

static void test_wrongs(void **state)
{
    (void)state;
    run_table(wrongs, sizeof wrongs / sizeof *wrongs, 0);
}

static const struct wrong ragged_wrongs[] = {
    {ATTN_SHAPE_MISMATCH,
     "q.shape[0] is 2; expected 1, the batch of a ragged call",
     {INT64(q.shape[0], 2), INT64(k.shape[0], 2), INT64(v.shape[0], 2), INT64(out.shape[0], 2)}},
    {ATTN_INVALID_ARGUMENT, "params.num_sequences is -1; expected 0 or more", {INT64(params.num_sequences, -1)}},
    {ATTN_INVALID_ARGUMENT, "params.num_sequences is 3|cu_seqlens", {POINTER(params.cu_seqlens, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.cu_seqlens[0] is 1; expected 0 to 0, the tokens of q", {INT64(cu_seqlens[0], 1)}},
    {ATTN_INVALID_ARGUMENT, "params.cu_seqlens[0] is -1", {INT64(cu_seqlens[0], -1)}},
    {ATTN_INVALID_ARGUMENT, "params.cu_seqlens[2] is 1", {INT64(cu_seqlens[2], 1)}},
    {ATTN_INVALID_ARGUMENT, "params.cu_seqlens[3] is 7", {INT64(cu_seqlens[3], LIN_T + 1)}},
    {ATTN_INVALID_ARGUMENT, "params.cu_seqlens[3] is -9223372036854775808", {INT64(cu_seqlens[3], INT64_MIN)}},
    {ATTN_INVALID_ARGUMENT, "params.cu_seqlens[1] is 9223372036854775807", {INT64(cu_seqlens[1], INT64_MAX)}},
    {ATTN_SHAPE_MISMATCH, "params.state_in.shape[0] is 1; expected 3", {INT64(state_in.shape[0], 1)}},
    {ATTN_SHAPE_MISMATCH, "params.state_out.shape[0] is 2; expected 3", {INT64(state_out.shape[0], 2)}},
    {ATTN_SIZE_OVERFLOW, "params.cu_seqlens", {INT64(params.num_sequences, INT64_MAX)}},
    {ATTN_SIZE_OVERFLOW, "params.cu_seqlens", {INT64(params.num_sequences, INT64_MAX / 8)}},
    {ATTN_SIZE_OVERFLOW,
     "params.num_sequences is 1000000000000000000; expected states with fewer than 2^63 columns in all",
     {INT64(params.num_sequences, 1000000000000000000), INT64(v.shape[1], 2)}},
    {ATTN_INVALID_ARGUMENT,
     "params.decay[0][0][1][2] is 2; expected a number up to 0",
     {FLOAT(decay_data[LIN_DK + 2], 2)}},
};

static void test_ragged(void **state)
{
    (void)state;
    run_table(ragged_wrongs, sizeof ragged_wrongs / sizeof *ragged_wrongs, 1);
}

/** Lengths of padded sequences, and what they have in common with a ragged batch. */
static void test_lengths(void **state)
{
    (void)state;
    static const struct {
        int64_t lengths[LIN_B];
        const char *words;
    } wrong[] = {
        {{-1, 6}, "params.lengths[0] is -1"},
        {{6, 7}, "params.lengths[1] is 7; expected 0 to 6, the tokens of q"},
        {{0, INT64_MIN}, "params.lengths[1] is -9223372036854775808"},
        {{INT64_MAX, 0}, "params.lengths[0] is 9223372036854775807"},
    };
    static struct linear_fixture f;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        linear_fixture_initialize(&f);
        f.params.lengths = f.lengths;
        attn_linear_attention_plan *plan = plan_of(&f);
        memcpy(f.lengths, wrong[i].lengths, sizeof f.lengths);
        expect_refused(&f, plan, ATTN_INVALID_ARGUMENT, wrong[i].words, wrong[i].words);
        attn_linear_attention_plan_destroy(plan);
    }
    linear_fixture_initialize(&f);
    linear_fixture_make_ragged(&f);
    attn_linear_attention_plan *plan = plan_of(&f);
    f.params.lengths = f.lengths;
    expect_refused(&f, plan, ATTN_INVALID_ARGUMENT, "params.lengths|cu_seqlens", "lengths of a ragged batch");
    attn_linear_attention_plan_destroy(plan);
    linear_fixture_initialize(&f);
    f.params.lengths = f.lengths;
    plan = plan_of(&f);
    memcpy(f.out_data, f.lengths, sizeof f.lengths);
    f.params.lengths = (const int64_t *)(const void *)f.out_data;
    expect_refused(&f, plan, ATTN_INVALID_ARGUMENT, "out overlaps params.lengths", "lengths in out");
    attn_linear_attention_plan_destroy(plan);
    linear_fixture_initialize(&f); /* decays behind a sequence are not read */
    f.params.lengths = f.lengths;
    f.decay_data[4 * LIN_DK] = NAN;
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);
    f.decay_data[3 * LIN_DK] = NAN;
    assert_int_equal(linear_fixture_call(&f), ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "params.decay[0][0][3][0] is nan"));
}

/** Outputs that lie on something. */
static void test_overlaps(void **state)
{
    (void)state;
    static struct linear_fixture f;
    const struct {
        const char *words;
        attn_tensor *tensor;
        void *data;
    } overlaps[] = {
        {"out overlaps q", &f.q, f.out_data + 100},
        {"out overlaps k", &f.k, f.out_data + 7},
        {"out overlaps v", &f.v, f.out_data},
        {"out overlaps params.decay", &f.decay, f.out_data + 1},
        {"out overlaps params.beta", &f.beta, f.out_data + 50},
        {"out overlaps params.resets", &f.resets, (char *)f.out_data + 33},
        {"out overlaps params.state_in", &f.state_in, f.out_data + 3},
        {"params.state_out overlaps q", &f.q, f.state_out_data + 2},
        {"params.state_out overlaps k", &f.k, f.state_out_data + 2},
        {"params.state_out overlaps v", &f.v, f.state_out_data + 2},
        {"params.state_out overlaps params.decay", &f.decay, f.state_out_data + 9},
        {"params.state_out overlaps params.beta", &f.beta, f.state_out_data + 9},
        {"params.state_out overlaps params.resets", &f.resets, (char *)f.state_out_data + 1},
        {"params.state_out overlaps params.state_in", &f.state_in, f.state_out_data + 1},
        {"params.state_out|out", &f.state_out, f.out_data + 200},
    };
    for (size_t i = 0; i < sizeof overlaps / sizeof *overlaps; i++) {
        linear_fixture_initialize(&f);
        attn_linear_attention_plan *plan = plan_of(&f);
        overlaps[i].tensor->data = overlaps[i].data;
        for (size_t n = 0; overlaps[i].tensor == &f.decay && n < sizeof f.out_data / sizeof(float); n++)
            f.out_data[n] = -1; /* decays that are none of the reasons */
        for (size_t n = 0; overlaps[i].tensor == &f.decay && n < sizeof f.state_out_data / sizeof(float); n++)
            f.state_out_data[n] = -1;
        expect_refused(&f, plan, ATTN_INVALID_ARGUMENT, overlaps[i].words, overlaps[i].words);
        attn_linear_attention_plan_destroy(plan);
    }
    linear_fixture_initialize(&f); /* columns of one state between those of the other are another view */
    attn_linear_attention_plan *plan = plan_of(&f);
    f.state_in = f.state_out;
    f.state_in.stride[0] = -f.state_in.stride[0];
    f.state_in.data = f.state_out_data + LIN_H * LIN_DK * LIN_DV;
    expect_refused(&f, plan, ATTN_INVALID_ARGUMENT, "params.state_out overlaps params.state_in", "reversed states");
    attn_linear_attention_plan_destroy(plan);
    linear_fixture_initialize(&f);
    linear_fixture_make_ragged(&f);
    plan = plan_of(&f);
    memcpy(f.out_data, f.cu_seqlens, sizeof f.cu_seqlens);
    f.params.cu_seqlens = (const int64_t *)(const void *)f.out_data;
    expect_refused(&f, plan, ATTN_INVALID_ARGUMENT, "out overlaps params.cu_seqlens", "cu_seqlens in out");
    attn_linear_attention_plan_destroy(plan);
}

/** What looks wrong and is not. */
static void test_right(void **state)
{
    (void)state;
    static struct linear_fixture f;
    linear_fixture_initialize(&f); /* nothing but the tensors */
    f.params_arg = NULL;
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);
    assert_false(all_canary(f.out_data, sizeof f.out_data));
    assert_true(all_canary(f.state_out_data, sizeof f.state_out_data));

    linear_fixture_initialize(&f); /* axes of 1, and strides that are not looked at */
    f.decay.shape[0] = f.decay.shape[1] = f.decay.shape[2] = f.decay.shape[3] = 1;
    f.beta.shape[0] = f.beta.shape[1] = f.beta.shape[2] = 1;
    f.resets.shape[0] = f.resets.shape[1] = 1;
    for (int axis = 0; axis < 4; axis++)
        f.decay.stride[axis] = INT64_MIN;
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);

    linear_fixture_initialize(&f); /* decays of -inf, -0 and 0, betas and states that are no numbers */
    f.decay_data[0] = -INFINITY, f.decay_data[1] = -0.0f, f.decay_data[2] = 0.0f;
    f.beta_data[3] = NAN, f.state_in_data[5] = INFINITY;
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);

    linear_fixture_initialize(&f); /* in place, by one tensor or by two */
    f.params.state_in = &f.state_out;
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);
    f.state_in = f.state_out;
    f.params.state_in = &f.state_in;
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);

    linear_fixture_initialize(&f); /* inputs may lie on each other */
    f.k = f.q, f.k.shape[1] = 1;
    f.decay.data = f.decay_data, f.beta.data = f.decay_data;
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);

    linear_fixture_initialize(&f); /* the last sequence ends before the tokens do; sequences are empty */
    linear_fixture_make_ragged(&f);
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);
    memset(f.cu_seqlens, 0, sizeof f.cu_seqlens);
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);
    f.params.num_sequences = 0;
    f.state_in.shape[0] = f.state_out.shape[0] = 0;
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);
    for (int64_t i = 0; i < LIN_HQ * LIN_T * LIN_DV; i++)
        assert_true(f.out_data[i] == 0);
}

/** A struct of a later version, of which nothing is set that is not known here. */
static void test_later_version(void **state)
{
    (void)state;
    static struct linear_fixture f;
    const size_t size = sizeof(attn_linear_attention_params);
    linear_fixture_initialize(&f);
    attn_linear_attention_plan *plan = plan_of(&f);
    const size_t later = 2 * size;
    f.params.struct_size = later;
    memcpy(f.larger, &f.params, size);
    f.params_arg = (const attn_linear_attention_params *)(const void *)f.larger;
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);
    linear_fixture_initialize(&f);
    f.params.struct_size = later;
    memcpy(f.larger, &f.params, size);
    f.larger[size + 3] = 1;
    f.params_arg = (const attn_linear_attention_params *)(const void *)f.larger;
    expect_refused(&f, plan, ATTN_UNSUPPORTED, "params.struct_size", "a field of a later version");
    attn_linear_attention_plan_destroy(plan);
}

/** The names of all sets are known; the processor has some of them. */
static void test_instruction_sets(void **state)
{
    (void)state;
    static struct linear_fixture f, other;
    for (int i = 0; attn_isa_name(i); i++) {
        const char *isa = attn_isa_name(i);
        linear_fixture_initialize(&f);
        f.params.isa = isa;
        const attn_status status = linear_fixture_call(&f);
        assert_int_equal(status, attn_isa_supported(isa) ? ATTN_OK : ATTN_UNSUPPORTED);
        if (status != ATTN_OK) {
            {
                char words[128];
                snprintf(words, sizeof words, "params.isa is %s, which this processor does not have", isa);
                assert_string_equal(attn_last_error(), words);
            }
            assert_true(linear_fixture_untouched(&f));
            continue;
        }
        /* A set that extends another one has the bits of that one. */
        const char *const bases[] = {"avx2", "avx512", "neon"};
        for (size_t n = 0; n < sizeof bases / sizeof *bases; n++) {
            const char *at = strstr(isa, "amx") && strcmp(bases[n], "avx512") == 0 ? isa : strstr(isa, bases[n]);
            if (at != isa)
                continue;
            linear_fixture_initialize(&other);
            other.params.isa = bases[n];
            assert_int_equal(linear_fixture_call(&other), ATTN_OK);
            assert_memory_equal(f.out_data, other.out_data, sizeof f.out_data);
            assert_memory_equal(f.state_out_data, other.state_out_data, sizeof f.state_out_data);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrongs),           cmocka_unit_test(test_ragged), cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_overlaps),         cmocka_unit_test(test_right),  cmocka_unit_test(test_later_version),
        cmocka_unit_test(test_instruction_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
