/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which a call of the backward pass can be wrong, one at a time:
 * the status that the header promises, a sentence that names the argument and
 * the value, and not a byte written anywhere. Each runs through attn_backward()
 * and attn_backward_in(). What is wrong for attn_forward() already is so here by
 * the same checks; of that the table has some of each kind.
 */
#include "fixture.h"

#include "attn/backward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIX_SPAN = 2 };

/** The valid call: what the fixture's forward pass reads and has written, and all gradients. */
struct backward {
    struct fixture f;
    float d_out_data[FIX_B * FIX_HQ * FIX_TQ * FIX_DV], d_lse_data[FIX_B * FIX_HQ * FIX_TQ];
    float d_q_data[FIX_B * FIX_HQ * FIX_TQ * FIX_DK], d_k_data[FIX_B * FIX_HKV * FIX_TK * FIX_DK];
    float d_v_data[FIX_B * FIX_HKV * FIX_TK * FIX_DV], d_mask_data[FIX_B * FIX_HQ * FIX_TQ * FIX_TK];
    float numbers[FIX_HQ * 5], written[4][FIX_HQ * 5]; /**< options, and their gradients */
    float table_data[2][FIX_HQ * 2 * FIX_SPAN * FIX_DK], d_table_data[2][FIX_HQ * 2 * FIX_SPAN * FIX_DK];
    attn_tensor rel_k, rel_q, d_rel_k, d_rel_q;
    attn_disentangled disentangled;
    attn_tensor d_out, d_lse, d_q, d_k, d_v, d_mask;
    attn_relative_bias bias;
    attn_gradients g;
    const attn_gradients *g_arg;
    char larger[2 * sizeof(attn_gradients)]; /**< gradients of a later version */
};

#define CHANGED struct backward
#include "change.h"

enum { MAX_CHANGES = 4 };

struct wrong {
    attn_status status;
    const char *words; /**< all of them stand in the sentence */
    struct change change[MAX_CHANGES];
};

/** The partner of a callback that keeps scores. */
static void keep_gradients(const attn_score_gradient_tile *tile, void *user)
{
    (void)tile;
    (void)user;
}

static void initialize(struct backward *b)
{
    memset(b, 0, sizeof *b);
    fixture_initialize(&b->f);
    b->f.params.weights = b->f.params.key_sums = NULL;
    assert_int_equal(fixture_forward(&b->f), ATTN_OK);
    for (size_t i = 0; i < sizeof b->d_out_data / sizeof(float); i++)
        b->d_out_data[i] = (float)(i % 7) - 3;
    memset(b->d_q_data, CANARY, sizeof b->d_q_data);
    memset(b->d_k_data, CANARY, sizeof b->d_k_data);
    memset(b->d_v_data, CANARY, sizeof b->d_v_data);
    memset(b->d_mask_data, CANARY, sizeof b->d_mask_data);
    memset(b->written, CANARY, sizeof b->written);
    b->bias = (attn_relative_bias){ATTN_BUCKETS_CLIPPED, 5, 2, b->numbers};
    b->d_mask = attn_bhtd(b->d_mask_data, FIX_B, FIX_HQ, FIX_TQ, FIX_TK);
    b->d_out = attn_bhtd(b->d_out_data, FIX_B, FIX_HQ, FIX_TQ, FIX_DV);
    b->d_lse = attn_bhtd(b->d_lse_data, FIX_B, FIX_HQ, FIX_TQ, 1);
    b->d_q = attn_bhtd(b->d_q_data, FIX_B, FIX_HQ, FIX_TQ, FIX_DK);
    b->d_k = attn_bhtd(b->d_k_data, FIX_B, FIX_HKV, FIX_TK, FIX_DK);
    b->d_v = attn_bhtd(b->d_v_data, FIX_B, FIX_HKV, FIX_TK, FIX_DV);
    b->g = attn_gradients_default();
    b->g.out = &b->d_out;
    b->g.lse = &b->d_lse;
    b->g.q = &b->d_q;
    b->g.k = &b->d_k;
    b->g.v = &b->d_v;
    b->g.mask = &b->d_mask;
    b->g_arg = &b->g;
}

/** The same call with terms by distance and the gradients of their tables. */
static void initialize_tables(struct backward *b)
{
    initialize(b);
    memset(b->d_table_data, CANARY, sizeof b->d_table_data);
    b->rel_k = attn_bhtd(b->table_data[0], 1, FIX_HQ, 2 * FIX_SPAN, FIX_DK);
    b->rel_q = attn_bhtd(b->table_data[1], 1, 1, 2 * FIX_SPAN, FIX_DK); /* that all heads share */
    b->d_rel_k = attn_bhtd(b->d_table_data[0], 1, FIX_HQ, 2 * FIX_SPAN, FIX_DK);
    b->d_rel_q = attn_bhtd(b->d_table_data[1], 1, 1, 2 * FIX_SPAN, FIX_DK);
    b->disentangled = (attn_disentangled){.span = FIX_SPAN, .rel_k = &b->rel_k, .rel_q = &b->rel_q};
    b->f.params.disentangled = &b->disentangled;
    b->g.rel_k = &b->d_rel_k;
    b->g.rel_q = &b->d_rel_q;
}

static attn_status call(const struct backward *b)
{
    return attn_backward(b->f.q_arg, b->f.k_arg, b->f.v_arg, b->f.out_arg, b->f.params_arg, b->g_arg);
}

/** Fails the test unless both entry points refuse the call so, and nothing at all has changed. */
static void expect_refused(const struct backward *b, attn_status status, const char *words, const char *what)
{
    static struct backward before;
    static char workspace[1 << 22], untouched[1 << 22];
    memcpy(&before, b, sizeof before);
    memset(workspace, CANARY, sizeof workspace);
    memset(untouched, CANARY, sizeof untouched);
    for (int in = 0; in < 2; in++) {
        const attn_status got = in ? attn_backward_in(b->f.q_arg, b->f.k_arg, b->f.v_arg, b->f.out_arg, b->f.params_arg,
                                                      b->g_arg, workspace, sizeof workspace)
                                   : call(b);
        if (got != status || !holds_words(attn_last_error(), words))
            fail_msg("%s: expected status %d and %s; got %d, \"%s\"", what, (int)status, words, (int)got,
                     attn_last_error());
        assert_memory_equal(&before, b, sizeof before);
    }
    assert_memory_equal(workspace, untouched, sizeof workspace);
}

static const float some_float[64];
#define MISALIGNED ((const char *)some_float + 1)

static const struct wrong wrongs[] = {
    /* the arguments */
    {ATTN_INVALID_ARGUMENT, "q is NULL", {POINTER(f.q_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "k is NULL", {POINTER(f.k_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "v is NULL", {POINTER(f.v_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "out is NULL", {POINTER(f.out_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.lse is NULL|log-sum-exp", {POINTER(f.params_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.lse is NULL|log-sum-exp", {POINTER(f.params.lse, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients is NULL; expected a struct with the gradient of out", {POINTER(g_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.struct_size is 0", {INT64(g.struct_size, 0)}},
    {ATTN_INVALID_ARGUMENT, "gradients.struct_size is 8", {INT64(g.struct_size, 8)}},
    {ATTN_INVALID_ARGUMENT, "gradients.out is NULL", {POINTER(g.out, NULL)}},

    /* data */
    {ATTN_INVALID_ARGUMENT, "q.data is NULL", {POINTER(f.q.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "out.data is NULL", {POINTER(f.out.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.lse.data is NULL", {POINTER(f.lse.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.out.data is NULL", {POINTER(d_out.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.lse.data is NULL", {POINTER(d_lse.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.q.data is NULL", {POINTER(d_q.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.k.data is NULL", {POINTER(d_k.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.v.data is NULL", {POINTER(d_v.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.out|align", {POINTER(d_out.data, MISALIGNED)}},
    {ATTN_INVALID_ARGUMENT, "gradients.lse|align", {POINTER(d_lse.data, MISALIGNED)}},
    {ATTN_INVALID_ARGUMENT, "gradients.q|align", {POINTER(d_q.data, MISALIGNED)}},
    {ATTN_INVALID_ARGUMENT, "gradients.k|align", {POINTER(d_k.data, MISALIGNED), INT(d_k.dtype, ATTN_BF16)}},

    /* types */
    {ATTN_INVALID_ARGUMENT, "gradients.out.dtype is 99", {INT(d_out.dtype, 99)}},
    {ATTN_INVALID_ARGUMENT, "gradients.v.dtype is -1", {INT(d_v.dtype, -1)}},
    {ATTN_UNSUPPORTED, "q.dtype is bool", {INT(f.q.dtype, ATTN_BOOL)}},
    {ATTN_UNSUPPORTED, "out.dtype is u8", {INT(f.out.dtype, ATTN_U8)}},
    {ATTN_UNSUPPORTED, "params.lse.dtype is f16|f32", {INT(f.lse.dtype, ATTN_F16)}},
    {ATTN_UNSUPPORTED, "gradients.out.dtype is bool|f16", {INT(d_out.dtype, ATTN_BOOL)}},
    {ATTN_UNSUPPORTED, "gradients.lse.dtype is bf16|f32", {INT(d_lse.dtype, ATTN_BF16)}},
    {ATTN_UNSUPPORTED, "gradients.q.dtype is i8|f16", {INT(d_q.dtype, ATTN_I8)}},
    {ATTN_UNSUPPORTED, "gradients.k.dtype is u8|f16", {INT(d_k.dtype, ATTN_U8)}},
    {ATTN_UNSUPPORTED, "gradients.v.dtype is i4|f16", {INT(d_v.dtype, ATTN_I4)}},

    {ATTN_INVALID_ARGUMENT, "gradients.mask.dtype is 99", {INT(d_mask.dtype, 99)}},
    {ATTN_UNSUPPORTED, "gradients.mask.dtype is f16|f32", {INT(d_mask.dtype, ATTN_F16)}},
    {ATTN_INVALID_ARGUMENT, "gradients.mask.data is NULL", {POINTER(d_mask.data, NULL)}},
    {ATTN_SHAPE_MISMATCH, "gradients.mask.shape[0] is 1; expected 2, that of params.mask", {INT64(d_mask.shape[0], 1)}},
    {ATTN_SHAPE_MISMATCH, "gradients.mask.shape[3] is 6; expected 7, that of params.mask", {INT64(d_mask.shape[3], 6)}},
    {ATTN_INVALID_ARGUMENT, "gradients.mask.stride[3]|0", {INT64(d_mask.stride[3], 0)}},
    {ATTN_SIZE_OVERFLOW, "gradients.mask|4611686018427387903", {INT64(d_mask.stride[3], INT64_MAX / 2)}},
    {ATTN_INVALID_ARGUMENT,
     "gradients.mask is set; expected NULL for a mask of type bool",
     {INT(f.mask.dtype, ATTN_BOOL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.mask is set; expected NULL, as params.mask is", {POINTER(f.params.mask, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.sinks is set; expected NULL", {POINTER(g.sinks, some_float)}},
    {ATTN_INVALID_ARGUMENT, "gradients.head_scale is set; expected NULL", {POINTER(g.head_scale, some_float)}},
    {ATTN_INVALID_ARGUMENT, "gradients.alibi_slopes is set; expected NULL", {POINTER(g.alibi_slopes, some_float)}},
    {ATTN_INVALID_ARGUMENT, "gradients.relative_bias is set; expected NULL", {POINTER(g.relative_bias, some_float)}},

    /* shapes */
    {ATTN_INVALID_ARGUMENT, "gradients.q.shape[2] is -5", {INT64(d_q.shape[2], -5)}},
    {ATTN_SHAPE_MISMATCH, "out.shape[2] is 4|5", {INT64(f.out.shape[2], 4)}},
    {ATTN_SHAPE_MISMATCH, "params.lse.shape[2] is 4|5", {INT64(f.lse.shape[2], 4)}},
    {ATTN_SHAPE_MISMATCH, "gradients.out.shape[0] is 1; expected 2|out", {INT64(d_out.shape[0], 1)}},
    {ATTN_SHAPE_MISMATCH, "gradients.out.shape[1] is 2; expected 4|out", {INT64(d_out.shape[1], 2)}},
    {ATTN_SHAPE_MISMATCH, "gradients.out.shape[3] is 5; expected 6|out", {INT64(d_out.shape[3], 5)}},
    {ATTN_SHAPE_MISMATCH, "gradients.lse.shape[2] is 4; expected 5|lse", {INT64(d_lse.shape[2], 4)}},
    {ATTN_SHAPE_MISMATCH, "gradients.lse.shape[3] is 2; expected 1|lse", {INT64(d_lse.shape[3], 2)}},
    {ATTN_SHAPE_MISMATCH, "gradients.q.shape[2] is 4; expected 5, that of q", {INT64(d_q.shape[2], 4)}},
    {ATTN_SHAPE_MISMATCH, "gradients.k.shape[1] is 4; expected 2, that of k", {INT64(d_k.shape[1], 4)}},
    {ATTN_SHAPE_MISMATCH, "gradients.k.shape[2] is 8; expected 7, that of k", {INT64(d_k.shape[2], 8)}},
    {ATTN_SHAPE_MISMATCH, "gradients.v.shape[3] is 8; expected 6, that of v", {INT64(d_v.shape[3], 8)}},

    /* strides */
    {ATTN_INVALID_ARGUMENT, "gradients.out.stride[3] is 2; expected 1", {INT64(d_out.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "gradients.q.stride[3] is -1; expected 1", {INT64(d_q.stride[3], -1)}},
    {ATTN_INVALID_ARGUMENT, "gradients.k.stride[3] is 3; expected 1", {INT64(d_k.stride[3], 3)}},
    {ATTN_INVALID_ARGUMENT, "gradients.v.stride[3] is 0; expected 1", {INT64(d_v.stride[3], 0)}},
    {ATTN_INVALID_ARGUMENT, "gradients.q.stride[1]|0", {INT64(d_q.stride[1], 0)}},
    {ATTN_INVALID_ARGUMENT, "gradients.k.stride[0]|0", {INT64(d_k.stride[0], 0)}},
    {ATTN_INVALID_ARGUMENT, "gradients.v.stride[2]|5", {INT64(d_v.stride[2], FIX_DV - 1)}},
    {ATTN_SIZE_OVERFLOW, "gradients.out|9223372036854775807", {INT64(d_out.stride[0], INT64_MAX)}},
    {ATTN_SIZE_OVERFLOW, "gradients.lse|4611686018427387903", {INT64(d_lse.stride[2], INT64_MAX / 2)}},
    {ATTN_SIZE_OVERFLOW, "gradients.k|-9223372036854775808", {INT64(d_k.stride[0], INT64_MIN)}},

    /* what is wrong for attn_forward(), too */
    {ATTN_INVALID_ARGUMENT, "params.scale|nan", {FLOAT(f.params.scale, NAN)}},
    {ATTN_INVALID_ARGUMENT, "params.softcap|-1", {FLOAT(f.params.softcap, -1)}},
    {ATTN_INVALID_ARGUMENT, "params.causal is 9; expected an attn_causal", {INT(f.params.causal, 9)}},
    {ATTN_INVALID_ARGUMENT, "params.num_threads|-1", {INT(f.params.num_threads, -1)}},
    {ATTN_INVALID_ARGUMENT, "params.isa", {POINTER(f.params.isa, "sse9")}},
    {ATTN_INVALID_ARGUMENT, "params.kv_len[0] is 8", {INT64(f.kv_len[0], FIX_TK + 1)}},
    {ATTN_INVALID_ARGUMENT, "params.kv_start[1]", {INT64(f.kv_start[1], FIX_TK)}},
};

static void test_wrong(void **state)
{
    (void)state;
    static struct backward b;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        initialize(&b);
        for (int n = 0; n < MAX_CHANGES; n++)
            change_make(&b, &wrongs[i].change[n]);
        expect_refused(&b, wrongs[i].status, wrongs[i].words, wrongs[i].change[0].where);
    }
}

/** Options that have structs and types of their own. */
static void test_without_gradient(void **state)
{
    (void)state;
    static struct backward b;
    static float scales[FIX_B * FIX_HKV * FIX_TK];
    static float scores_data[FIX_B * FIX_HQ * FIX_TQ * FIX_TK];
    initialize(&b);
    const attn_tensor scores = attn_bhtd(scores_data, FIX_B, FIX_HQ, FIX_TQ, FIX_TK);
    b.f.params.weights = &b.f.weights;
    expect_refused(&b, ATTN_INVALID_ARGUMENT, "params.weights is set; expected NULL", "weights");
    initialize(&b);
    b.f.params.key_sums = &b.f.key_sums;
    expect_refused(&b, ATTN_INVALID_ARGUMENT, "params.key_sums is set; expected NULL", "key_sums");
    initialize(&b);
    b.f.params.scores = &scores;
    expect_refused(&b, ATTN_INVALID_ARGUMENT, "params.scores is set; expected NULL in attn_backward()", "scores");
    initialize(&b);
    const attn_tensor scale = attn_bhtd(scales, FIX_B, FIX_HKV, FIX_TK, 1);
    b.f.k.dtype = ATTN_I8;
    b.f.params.k_scale = &scale;
    expect_refused(&b, ATTN_UNSUPPORTED, "params.k_scale is set; attn_backward() of version|does not implement it",
                   "k_scale");
    initialize(&b);
    b.f.v.dtype = ATTN_I8;
    b.f.params.v_scale = &scale;
    expect_refused(&b, ATTN_UNSUPPORTED, "params.v_scale is set", "v_scale");
    initialize(&b); /* each batch element is a page */
    const int32_t pages[FIX_B] = {0, 1};
    b.f.params.block_table = pages;
    b.f.params.block_table_stride = 1;
    b.f.params.page_size = FIX_TK;
    expect_refused(&b, ATTN_UNSUPPORTED, "params.block_table is set", "block_table");
    initialize(&b);
    b.f.params.callback = fixture_keep_scores;
    expect_refused(&b, ATTN_INVALID_ARGUMENT, "gradients.callback is NULL; expected the partner of params.callback",
                   "callback");
    initialize(&b);
    b.g.callback = keep_gradients;
    expect_refused(&b, ATTN_INVALID_ARGUMENT, "gradients.callback is set; expected NULL", "its partner");
    initialize(&b);
    b.g.callback_user = &b;
    expect_refused(&b, ATTN_INVALID_ARGUMENT, "gradients.callback_user is set; expected NULL", "the partner's user");
    initialize(&b);
    b.f.params.weight_callback = fixture_keep_weights;
    expect_refused(&b, ATTN_UNSUPPORTED, "params.weight_callback is set", "weight_callback");
    initialize(&b);
    b.f.params.qk = ATTN_QK_INT8;
    if (attn_forward(&b.f.q, &b.f.k, &b.f.v, &b.f.out, &b.f.params) == ATTN_OK) /* there are such kernels */
        expect_refused(&b, ATTN_UNSUPPORTED, "params.qk is set; attn_backward() of version|does not implement it",
                       "qk");
}

/** Gradients of tables by distance. */
static const struct wrong wrong_tables[] = {
    {ATTN_INVALID_ARGUMENT,
     "gradients.rel_k is set; expected NULL, as params.disentangled is",
     {POINTER(f.params.disentangled, NULL)}},
    {ATTN_INVALID_ARGUMENT,
     "gradients.rel_k is set; expected NULL, as params.disentangled->rel_k is",
     {POINTER(disentangled.rel_k, NULL)}},
    {ATTN_INVALID_ARGUMENT,
     "gradients.rel_q is set; expected NULL, as params.disentangled->rel_q is",
     {POINTER(disentangled.rel_q, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.rel_k.data is NULL", {POINTER(d_rel_k.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.rel_q|align", {POINTER(d_rel_q.data, MISALIGNED)}},
    {ATTN_INVALID_ARGUMENT, "gradients.rel_q.dtype is 99", {INT(d_rel_q.dtype, 99)}},
    {ATTN_UNSUPPORTED, "gradients.rel_k.dtype is bf16|f32", {INT(d_rel_k.dtype, ATTN_BF16)}},
    {ATTN_UNSUPPORTED, "gradients.rel_q.dtype is u8", {INT(d_rel_q.dtype, ATTN_U8)}},
    {ATTN_SHAPE_MISMATCH,
     "gradients.rel_k.shape[1] is 1; expected 4, that of params.disentangled->rel_k",
     {INT64(d_rel_k.shape[1], 1)}},
    {ATTN_SHAPE_MISMATCH,
     "gradients.rel_q.shape[1] is 4; expected 1, that of params.disentangled->rel_q",
     {INT64(d_rel_q.shape[1], FIX_HQ)}},
    {ATTN_SHAPE_MISMATCH,
     "gradients.rel_q.shape[2] is 3; expected 4, that of params.disentangled->rel_q",
     {INT64(d_rel_q.shape[2], 3)}},
    {ATTN_SHAPE_MISMATCH, "gradients.rel_k.shape[0] is 2; expected 1", {INT64(d_rel_k.shape[0], 2)}},
    {ATTN_INVALID_ARGUMENT, "gradients.rel_k.stride[3] is 2; expected 1", {INT64(d_rel_k.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "gradients.rel_k.stride[1]|0", {INT64(d_rel_k.stride[1], 0)}},
    {ATTN_INVALID_ARGUMENT, "gradients.rel_q.stride[2]|0", {INT64(d_rel_q.stride[2], 0)}},
    {ATTN_SIZE_OVERFLOW, "gradients.rel_q|4611686018427387903", {INT64(d_rel_q.stride[2], INT64_MAX / 2)}},
    {ATTN_INVALID_ARGUMENT, "params.disentangled->span is 0", {INT64(disentangled.span, 0)}},
    {ATTN_SHAPE_MISMATCH, "params.disentangled->rel_k.shape[2]", {INT64(disentangled.span, 1)}},
};

static void test_wrong_tables(void **state)
{
    (void)state;
    static struct backward b;
    initialize_tables(&b);
    assert_int_equal(call(&b), ATTN_OK);
    assert_false(all_canary(b.d_table_data[0], sizeof b.d_table_data[0]));
    for (size_t i = 0; i < sizeof wrong_tables / sizeof *wrong_tables; i++) {
        initialize_tables(&b);
        for (int n = 0; n < MAX_CHANGES; n++)
            change_make(&b, &wrong_tables[i].change[n]);
        expect_refused(&b, wrong_tables[i].status, wrong_tables[i].words, wrong_tables[i].words);
    }
}

/** What is written may lie on nothing that is read or written. */
static void test_overlaps(void **state)
{
    (void)state;
    static struct backward b;
    const struct {
        size_t written, other; /**< tensors of struct backward */
        const char *sentence;
    } pairs[] = {
#define PAIR(w, o, names) {offsetof(struct backward, w), offsetof(struct backward, o), names}
        PAIR(d_q, f.q, "gradients.q overlaps q"),
        PAIR(d_q, f.k, "gradients.q overlaps k"),
        PAIR(d_q, f.v, "gradients.q overlaps v"),
        PAIR(d_q, f.out, "gradients.q overlaps out"),
        PAIR(d_q, f.lse, "gradients.q overlaps params.lse"),
        PAIR(d_k, f.mask, "gradients.k overlaps params.mask"),
        PAIR(d_q, d_out, "gradients.q overlaps gradients.out"),
        PAIR(d_q, d_lse, "gradients.q overlaps gradients.lse"),
        PAIR(d_k, f.q, "gradients.k overlaps q"),
        PAIR(d_k, f.k, "gradients.k overlaps k"),
        PAIR(d_k, d_out, "gradients.k overlaps gradients.out"),
        PAIR(d_k, d_q, "gradients.k overlaps gradients.q"),
        PAIR(d_v, f.v, "gradients.v overlaps v"),
        PAIR(d_v, f.out, "gradients.v overlaps out"),
        PAIR(d_v, d_lse, "gradients.v overlaps gradients.lse"),
        PAIR(d_v, d_q, "gradients.v overlaps gradients.q"),
        PAIR(d_v, d_k, "gradients.v overlaps gradients.k"),
        PAIR(d_mask, f.mask, "gradients.mask overlaps params.mask"),
        PAIR(d_mask, d_q, "gradients.mask overlaps gradients.q"),
        PAIR(d_mask, d_out, "gradients.mask overlaps gradients.out"),
#undef PAIR
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        initialize(&b);
        attn_tensor *written = (attn_tensor *)(void *)((char *)&b + pairs[i].written);
        const attn_tensor *other = (const attn_tensor *)(const void *)((const char *)&b + pairs[i].other);
        written->data = other->data;
        expect_refused(&b, ATTN_INVALID_ARGUMENT, pairs[i].sentence, pairs[i].sentence);
    }
    const struct {
        size_t written, other;
        const char *sentence;
    } tables[] = {
#define PAIR(w, o, names) {offsetof(struct backward, w), offsetof(struct backward, o), names}
        PAIR(d_rel_k, f.q, "gradients.rel_k overlaps q"),
        PAIR(d_rel_k, rel_k, "gradients.rel_k overlaps params.disentangled->rel_k"),
        PAIR(d_rel_q, rel_k, "gradients.rel_q overlaps params.disentangled->rel_k"),
        PAIR(d_rel_q, rel_q, "gradients.rel_q overlaps params.disentangled->rel_q"),
        PAIR(d_rel_k, d_out, "gradients.rel_k overlaps gradients.out"),
        PAIR(d_rel_k, d_q, "gradients.rel_k overlaps gradients.q"),
        PAIR(d_rel_q, d_rel_k, "gradients.rel_q overlaps gradients.rel_k"),
        PAIR(d_q, rel_q, "gradients.q overlaps params.disentangled->rel_q"),
#undef PAIR
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        initialize_tables(&b);
        attn_tensor *written = (attn_tensor *)(void *)((char *)&b + tables[i].written);
        written->data = ((const attn_tensor *)(const void *)((const char *)&b + tables[i].other))->data;
        expect_refused(&b, ATTN_INVALID_ARGUMENT, tables[i].sentence, tables[i].sentence);
    }
    initialize(&b); /* one byte of it */
    b.d_out.data = b.d_q_data + sizeof b.d_q_data / sizeof(float) - 1;
    expect_refused(&b, ATTN_INVALID_ARGUMENT, "gradients.q overlaps gradients.out", "the last element");
    initialize(&b); /* an array that is read */
    b.d_v.data = b.f.kv_len;
    expect_refused(&b, ATTN_INVALID_ARGUMENT, "gradients.v overlaps params.kv_len", "kv_len");
}

/** The gradients of options that are arrays, each in turn on an option, and on the others. */
static void test_overlapping_options(void **state)
{
    (void)state;
    static struct backward b;
    static const char *const names[] = {"head_scale", "sinks", "alibi_slopes", "relative_bias"};
    for (int i = 0; i < 4; i++)
        for (int other = -1; other < 4; other++) {
            char words[64];
            if (other == i)
                continue;
            initialize(&b);
            b.f.params.head_scale = b.f.params.sinks = b.f.params.alibi_slopes = b.numbers;
            b.f.params.relative_bias = &b.bias;
            float **const written[] = {&b.g.head_scale, &b.g.sinks, &b.g.alibi_slopes, &b.g.relative_bias};
            for (int n = 0; n < 4; n++)
                *written[n] = b.written[n];
            assert_int_equal(call(&b), ATTN_OK);
            *written[i] = other < 0 ? b.numbers : b.written[other] + 1;
            snprintf(words, sizeof words, "gradients.%s|overlaps|%s", names[i], other < 0 ? "params." : names[other]);
            expect_refused(&b, ATTN_INVALID_ARGUMENT, words, words);
        }
}

/** Any set of them may be wanted, structs of other versions are taken, and inputs may be one. */
static void test_accepted(void **state)
{
    (void)state;
    static struct backward b, all;
    initialize(&all);
    assert_int_equal(call(&all), ATTN_OK);
    assert_false(all_canary(all.d_q_data, sizeof all.d_q_data));
    for (int wanted = 0; wanted < 8; wanted++) {
        initialize(&b);
        b.g.q = wanted & 1 ? &b.d_q : NULL;
        b.g.k = wanted & 2 ? &b.d_k : NULL;
        b.g.v = wanted & 4 ? &b.d_v : NULL;
        b.g.lse = NULL; /* which is 0 */
        assert_int_equal(call(&b), ATTN_OK);
        const struct {
            const float *got, *expected;
            size_t size;
        } each[] = {{b.d_q_data, all.d_q_data, sizeof b.d_q_data},
                    {b.d_k_data, all.d_k_data, sizeof b.d_k_data},
                    {b.d_v_data, all.d_v_data, sizeof b.d_v_data}};
        for (int i = 0; i < 3; i++) {
            if (wanted >> i & 1)
                assert_memory_equal(each[i].got, each[i].expected, each[i].size);
            else
                assert_true(all_canary(each[i].got, each[i].size));
        }
    }
    initialize(&b); /* of a later version that sets nothing new, and of one that does */
    memcpy(b.larger, &b.g, sizeof b.g);
    const size_t larger = sizeof b.larger;
    memcpy(b.larger, &larger, sizeof larger);
    b.g_arg = (const attn_gradients *)(const void *)b.larger;
    assert_int_equal(call(&b), ATTN_OK);
    assert_memory_equal(b.d_q_data, all.d_q_data, sizeof all.d_q_data);
    initialize(&b);
    memcpy(b.larger, &b.g, sizeof b.g);
    memcpy(b.larger, &larger, sizeof larger);
    b.larger[sizeof b.g] = 1;
    b.g_arg = (const attn_gradients *)(const void *)b.larger;
    expect_refused(&b, ATTN_UNSUPPORTED, "gradients", "a field of a later version");
    initialize(&b); /* of a version without tables */
    b.g.struct_size = offsetof(attn_gradients, rel_k);
    b.g.rel_k = b.g.rel_q = &b.d_q; /* not looked at */
    assert_int_equal(call(&b), ATTN_OK);
    assert_memory_equal(b.d_q_data, all.d_q_data, sizeof all.d_q_data);
    initialize(&b); /* what is only read may overlap */
    b.d_out.data = b.f.out_data;
    assert_int_equal(call(&b), ATTN_OK);
    initialize(&b); /* strides that broadcast what is read */
    b.d_out.stride[0] = b.d_out.stride[1] = b.d_out.stride[2] = 0;
    b.d_lse.stride[0] = b.d_lse.stride[1] = b.d_lse.stride[2] = b.d_lse.stride[3] = 0;
    assert_int_equal(call(&b), ATTN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_without_gradient),
        cmocka_unit_test(test_wrong_tables),
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_overlapping_options),
        cmocka_unit_test(test_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
