/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which a call for gradients of linear attention can be wrong beside those of a
 * forward call, one at a time: the status that the header promises, a sentence that names
 * the argument and the value, and not a byte written anywhere. Each runs with and without a
 * workspace.
 */
#include "linear_fixture.h"

#include "attn/linear_attention_backward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** The forward fixture without beta and state_out, and all gradients. */
struct gradient_fixture {
    struct linear_fixture f;
    float d_out_data[LIN_B * LIN_HQ * LIN_T * LIN_DV], d_state_data[LIN_B * LIN_H * LIN_DK * LIN_DV];
    float d_q_data[LIN_B * LIN_HQ * LIN_T * LIN_DK], d_k_data[LIN_B * LIN_HK * LIN_T * LIN_DK];
    float d_v_data[LIN_B * LIN_H * LIN_T * LIN_DV], d_decay_data[LIN_B * LIN_H * LIN_T * LIN_DK];
    float d_state_in_data[LIN_B * LIN_H * LIN_DK * LIN_DV], projection_data[16 * LIN_DK];
    attn_tensor d_out, d_state, d_q, d_k, d_v, d_decay, d_state_in, projection;
    attn_linear_attention_gradients gradients;
    const attn_linear_attention_gradients *gradients_arg;
    char larger[2 * sizeof(attn_linear_attention_gradients)];
};

#define CHANGED struct gradient_fixture
#include "change.h"

enum { MAX_CHANGES = 4 };

struct wrong {
    attn_status status;
    const char *words; /**< all of them stand in the sentence */
    struct change change[MAX_CHANGES];
};

static void initialize(struct gradient_fixture *g)
{
    memset(g, 0, sizeof *g);
    linear_fixture_initialize(&g->f);
    g->f.params.beta = NULL;
    g->f.params.state_out = NULL;
    for (size_t i = 0; i < sizeof g->d_out_data / sizeof(float); i++)
        g->d_out_data[i] = 0.01f * (float)(i % 19) - 0.1f;
    for (size_t i = 0; i < sizeof g->d_state_data / sizeof(float); i++)
        g->d_state_data[i] = 0.02f * (float)(i % 17) - 0.2f;
    for (size_t i = 0; i < sizeof g->projection_data / sizeof(float); i++)
        g->projection_data[i] = 0.1f * (float)(i % 5) - 0.2f;
    memset(g->d_q_data, CANARY, sizeof g->d_q_data);
    memset(g->d_k_data, CANARY, sizeof g->d_k_data);
    memset(g->d_v_data, CANARY, sizeof g->d_v_data);
    memset(g->d_decay_data, CANARY, sizeof g->d_decay_data);
    memset(g->d_state_in_data, CANARY, sizeof g->d_state_in_data);
    g->d_out = attn_bhtd(g->d_out_data, LIN_B, LIN_HQ, LIN_T, LIN_DV);
    g->d_state = attn_bhtd(g->d_state_data, LIN_B, LIN_H, LIN_DK, LIN_DV);
    g->d_q = attn_bhtd(g->d_q_data, LIN_B, LIN_HQ, LIN_T, LIN_DK);
    g->d_k = attn_bhtd(g->d_k_data, LIN_B, LIN_HK, LIN_T, LIN_DK);
    g->d_v = attn_bhtd(g->d_v_data, LIN_B, LIN_H, LIN_T, LIN_DV);
    g->d_decay = attn_bhtd(g->d_decay_data, LIN_B, LIN_H, LIN_T, LIN_DK);
    g->d_state_in = attn_bhtd(g->d_state_in_data, LIN_B, LIN_H, LIN_DK, LIN_DV);
    g->projection = attn_bhtd(g->projection_data, 1, 1, 16, LIN_DK);
    g->gradients = attn_linear_attention_gradients_default();
    g->gradients.out = &g->d_out, g->gradients.state_out = &g->d_state;
    g->gradients.q = &g->d_q, g->gradients.k = &g->d_k, g->gradients.v = &g->d_v;
    g->gradients.decay = &g->d_decay, g->gradients.state_in = &g->d_state_in;
    g->gradients_arg = &g->gradients;
}

static attn_status call(const struct gradient_fixture *g)
{
    const struct linear_fixture *f = &g->f;
    return attn_linear_attention_backward(f->q_arg, f->k_arg, f->v_arg, f->out_arg, f->params_arg, g->gradients_arg);
}

/** Fails the test unless both entry points refuse the call so, and nothing at all has changed. */
static void expect_refused(const struct gradient_fixture *g, attn_status status, const char *words, const char *what)
{
    static struct gradient_fixture before;
    static char workspace[1 << 20], untouched[1 << 20];
    const struct linear_fixture *f = &g->f;
    memcpy(&before, g, sizeof before);
    memset(workspace, CANARY, sizeof workspace);
    memset(untouched, CANARY, sizeof untouched);
    for (int entry = 0; entry < 2; entry++) {
        const attn_status got =
            entry == 0 ? call(g)
                       : attn_linear_attention_backward_in(f->q_arg, f->k_arg, f->v_arg, f->out_arg, f->params_arg,
                                                           g->gradients_arg, workspace, sizeof workspace);
        if (got != status || !holds_words(attn_last_error(), words))
            fail_msg("%s, entry %d: expected status %d and %s; got %d, \"%s\"", what, entry, (int)status, words,
                     (int)got, attn_last_error());
        assert_memory_equal(&before, g, sizeof before);
    }
    assert_memory_equal(workspace, untouched, sizeof workspace);
}

#define HUGE_LENGTH ((int64_t)1 << 40)

static const float some_float[64];
#define MISALIGNED ((const char *)some_float + 1)

static const struct wrong wrongs[] = {
    /* the forward call's arguments, a few: they are checked by the same functions */
    {ATTN_INVALID_ARGUMENT, "q is NULL", {POINTER(f.q_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "params.struct_size is 8", {INT64(f.params.struct_size, 8)}},
    {ATTN_SHAPE_MISMATCH, "k.shape[3] is 7; expected 8, the channels of q", {INT64(f.k.shape[3], 7)}},
    {ATTN_INVALID_ARGUMENT, "params.num_threads is -1", {INT(f.params.num_threads, -1)}},

    /* what has no gradient */
    {ATTN_UNSUPPORTED, "params.beta is set|no backward pass", {POINTER(f.params.beta, &some_float)}},
    {ATTN_INVALID_ARGUMENT, "params.state_out is set|as it was", {POINTER(f.params.state_out, &some_float)}},
    {ATTN_INVALID_ARGUMENT, "gradients.decay is set|params.decay is", {POINTER(f.params.decay, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.state_in is set|params.state_in is", {POINTER(f.params.state_in, NULL)}},

    /* the struct */
    {ATTN_INVALID_ARGUMENT,
     "gradients is NULL; expected a struct with the gradient of out",
     {POINTER(gradients_arg, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.struct_size is 0", {INT64(gradients.struct_size, 0)}},
    {ATTN_INVALID_ARGUMENT,
     "gradients.struct_size is",
     {INT64(gradients.struct_size, (int64_t)sizeof(attn_linear_attention_gradients) - 8)}},
    {ATTN_INVALID_ARGUMENT, "gradients.out is NULL", {POINTER(gradients.out, NULL)}},

    /* data, types and shapes of what is read */
    {ATTN_INVALID_ARGUMENT, "gradients.out.data is NULL", {POINTER(d_out.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.out.data|align", {POINTER(d_out.data, MISALIGNED)}},
    {ATTN_UNSUPPORTED, "gradients.out.dtype is bool", {INT(d_out.dtype, ATTN_BOOL)}},
    {ATTN_SHAPE_MISMATCH, "gradients.out.shape[1] is 3|the heads of q and v", {INT64(d_out.shape[1], 3)}},
    {ATTN_SHAPE_MISMATCH, "gradients.out.shape[3] is 4|the channels of v", {INT64(d_out.shape[3], 4)}},
    {ATTN_INVALID_ARGUMENT, "gradients.out.stride[3] is 2", {INT64(d_out.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "gradients.state_out.data is NULL", {POINTER(d_state.data, NULL)}},
    {ATTN_UNSUPPORTED, "gradients.state_out.dtype is bf16", {INT(d_state.dtype, ATTN_BF16)}},
    {ATTN_SHAPE_MISMATCH, "gradients.state_out.shape[2] is 7", {INT64(d_state.shape[2], 7)}},

    /* what is written */
    {ATTN_INVALID_ARGUMENT, "gradients.q.data is NULL", {POINTER(d_q.data, NULL)}},
    {ATTN_INVALID_ARGUMENT, "gradients.k.data|align", {POINTER(d_k.data, MISALIGNED)}},
    {ATTN_UNSUPPORTED, "gradients.v.dtype is i8", {INT(d_v.dtype, ATTN_I8)}},
    {ATTN_SHAPE_MISMATCH, "gradients.q.shape[1] is 2|as q has", {INT64(d_q.shape[1], 2)}},
    {ATTN_SHAPE_MISMATCH, "gradients.k.shape[2] is 5|as k has", {INT64(d_k.shape[2], 5)}},
    {ATTN_SHAPE_MISMATCH, "gradients.v.shape[3] is 6|as v has", {INT64(d_v.shape[3], 6)}},
    {ATTN_SHAPE_MISMATCH, "gradients.decay.shape[3] is 1|as params.decay has", {INT64(d_decay.shape[3], 1)}},
    {ATTN_SHAPE_MISMATCH, "gradients.state_in.shape[0] is 1", {INT64(d_state_in.shape[0], 1)}},
    {ATTN_UNSUPPORTED, "gradients.state_in.dtype is f16", {INT(d_state_in.dtype, ATTN_F16)}},
    {ATTN_INVALID_ARGUMENT, "gradients.q.stride[3] is 2", {INT64(d_q.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "gradients.state_in.stride[3] is 2", {INT64(d_state_in.stride[3], 2)}},
    {ATTN_INVALID_ARGUMENT, "gradients.v|overlap", {INT64(d_v.stride[2], 0)}},
    {ATTN_INVALID_ARGUMENT, "gradients.decay|overlap", {INT64(d_decay.stride[3], 0)}},
    {ATTN_INVALID_ARGUMENT, "gradients.state_in|overlap", {INT64(d_state_in.stride[1], 0)}},

    /* averages */
    {ATTN_INVALID_ARGUMENT,
     "out is NULL|params.normalise",
     {INT(f.params.normalise, 1), POINTER(f.out_arg, NULL), POINTER(f.params.state_in, NULL)}},
    {ATTN_SHAPE_MISMATCH,
     "out.shape[2] is 5|as gradients.out has",
     {INT(f.params.normalise, 1), INT64(f.out.shape[2], 5), POINTER(f.params.state_in, NULL)}},
    {ATTN_UNSUPPORTED,
     "out.dtype is i8",
     {INT(f.params.normalise, 1), INT(f.out.dtype, ATTN_I8), POINTER(f.params.state_in, NULL)}},
    {ATTN_INVALID_ARGUMENT,
     "out.stride[3] is 2",
     {INT(f.params.normalise, 1), INT64(f.out.stride[3], 2), POINTER(f.params.state_in, NULL)}},
};

static void test_wrongs(void **state)
{
    (void)state;
    static struct gradient_fixture g;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        char what[256] = "";
        initialize(&g);
        for (int n = 0; n < MAX_CHANGES; n++) {
            change_make(&g, &wrongs[i].change[n]);
            if (wrongs[i].change[n].kind != 0)
                snprintf(what + strlen(what), sizeof what - strlen(what), "%s ", wrongs[i].change[n].where);
        }
        if (g.f.params.beta)
            g.f.params.beta = &g.f.beta;
        if (g.f.params.state_out)
            g.f.params.state_out = &g.f.state_out;
        expect_refused(&g, wrongs[i].status, wrongs[i].words, what);
    }
}

/** Outputs on inputs, and on each other. */
static void test_overlaps(void **state)
{
    (void)state;
    static struct gradient_fixture g;
    static const struct {
        size_t written, on;
        const char *words;
    } pairs[] = {
#define PAIR(written, on, words)                                                                                       \
    {offsetof(struct gradient_fixture, written), offsetof(struct gradient_fixture, on), words}
        PAIR(d_q, f.q_data, "gradients.q overlaps q"),
        PAIR(d_q, f.k_data, "gradients.q overlaps k"),
        PAIR(d_k, f.v_data, "gradients.k overlaps v"),
        PAIR(d_v, f.decay_data, "gradients.v overlaps params.decay"),
        PAIR(d_v, d_out_data, "gradients.v overlaps gradients.out"),
        PAIR(d_decay, d_state_data, "gradients.decay overlaps gradients.state_out"),
        PAIR(d_state_in, f.state_in_data, "gradients.state_in overlaps params.state_in"),
        PAIR(d_k, d_q_data, "gradients.k overlaps gradients.q"),
        PAIR(d_state_in, d_decay_data, "gradients.state_in overlaps gradients.decay"),
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        initialize(&g);
        ((attn_tensor *)(void *)((char *)&g + pairs[i].written))->data = (char *)&g + pairs[i].on;
        expect_refused(&g, ATTN_INVALID_ARGUMENT, pairs[i].words, pairs[i].words);
    }
    initialize(&g); /* out is read with normalise only */
    g.f.out = g.d_v, g.f.out.shape[1] = LIN_HQ, g.f.out.stride[1] = 0;
    assert_int_equal(call(&g), ATTN_OK);
    initialize(&g);
    g.f.params.normalise = 1, g.f.params.state_in = NULL, g.gradients.state_in = g.gradients.state_out = NULL;
    g.f.out = g.d_v, g.f.out.shape[1] = LIN_HQ, g.f.out.stride[1] = 0;
    expect_refused(&g, ATTN_INVALID_ARGUMENT, "gradients.v overlaps out", "out below dv");
}

static void test_sizes(void **state)
{
    (void)state;
    static struct gradient_fixture g;
    size_t size = 7;
    initialize(&g);
    const struct linear_fixture *f = &g.f;
    assert_int_equal(
        attn_linear_attention_backward_workspace_size(&f->q, &f->k, &f->v, NULL, &f->params, &g.gradients, NULL),
        ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "size is NULL; expected where to put the number of bytes"));
    assert_int_equal(
        attn_linear_attention_backward_workspace_size(&f->q, &f->k, &f->v, NULL, &f->params, &g.gradients, &size),
        ATTN_OK);
    static char workspace[1 << 20];
    assert_true(size > 0 && size < sizeof workspace);
    assert_int_equal(attn_linear_attention_backward_in(&f->q, &f->k, &f->v, NULL, &f->params, &g.gradients, NULL, size),
                     ATTN_INVALID_ARGUMENT);
    assert_true(holds_words(attn_last_error(), "workspace is NULL"));
    assert_int_equal(
        attn_linear_attention_backward_in(&f->q, &f->k, &f->v, NULL, &f->params, &g.gradients, workspace, size / 2),
        ATTN_WORKSPACE_TOO_SMALL);
    assert_true(holds_words(attn_last_error(), "workspace_size is"));
    assert_true(all_canary(g.d_q_data, sizeof g.d_q_data));

    /* Shapes that nothing has memory for. */
    initialize(&g);
    attn_tensor *const tensors[] = {&g.f.q, &g.f.k, &g.f.v, &g.d_out, &g.d_q, &g.d_k, &g.d_v, &g.f.decay, &g.d_decay};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        tensors[i]->shape[2] = HUGE_LENGTH;
        tensors[i]->shape[0] = 1 << 20;
    }
    g.f.params.resets = NULL, g.f.params.state_in = NULL;
    g.gradients.state_in = g.gradients.state_out = NULL;
    assert_int_equal(
        attn_linear_attention_backward_workspace_size(&g.f.q, &g.f.k, &g.f.v, NULL, &g.f.params, &g.gradients, &size),
        ATTN_SIZE_OVERFLOW);

    /* Tensors that there could be, as large as they come, and with vectors of any width more than 2^62 bytes kept. */
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        tensors[i]->shape[2] = (int64_t)1 << 54;
        tensors[i]->shape[0] = LIN_B;
    }
    assert_int_equal(
        attn_linear_attention_backward_workspace_size(&g.f.q, &g.f.k, &g.f.v, NULL, &g.f.params, &g.gradients, &size),
        ATTN_SIZE_OVERFLOW);
    assert_true(holds_words(attn_last_error(), "q, k and v have shapes for which"));
    assert_true(holds_words(attn_last_error(), "bytes of memory are kept; expected less than 2^62"));
}

/** What looks wrong and is not. */
static void test_right(void **state)
{
    (void)state;
    static struct gradient_fixture g;
    initialize(&g); /* nothing is wanted */
    g.gradients.q = g.gradients.k = g.gradients.v = g.gradients.decay = g.gradients.state_in = NULL;
    assert_int_equal(call(&g), ATTN_OK);
    assert_true(all_canary(g.d_q_data, sizeof g.d_q_data));

    initialize(&g); /* one gradient of out for all, and inputs on each other */
    g.d_out.stride[0] = g.d_out.stride[1] = g.d_out.stride[2] = 0;
    g.f.k = g.f.q, g.f.k.shape[1] = 1;
    assert_int_equal(call(&g), ATTN_OK);
    assert_false(all_canary(g.d_q_data, sizeof g.d_q_data));

    initialize(&g); /* no channel of a value: everything is 0 */
    g.f.v.shape[3] = g.d_out.shape[3] = g.d_v.shape[3] = 0;
    g.f.params.state_in = NULL, g.gradients.state_in = g.gradients.state_out = NULL;
    assert_int_equal(call(&g), ATTN_OK);
    for (size_t i = 0; i < sizeof g.d_q_data / sizeof(float); i++)
        assert_true(g.d_q_data[i] == 0);
    for (size_t i = 0; i < sizeof g.d_decay_data / sizeof(float); i++)
        assert_true(g.d_decay_data[i] == 0);

    initialize(&g); /* nor with features */
    g.f.v.shape[3] = g.d_out.shape[3] = g.d_v.shape[3] = 0;
    g.f.params.state_in = NULL, g.gradients.state_in = g.gradients.state_out = NULL;
    g.f.params.map = ATTN_FEATURES_ELU;
    assert_int_equal(call(&g), ATTN_OK);
    for (size_t i = 0; i < sizeof g.d_q_data / sizeof(float); i++)
        assert_true(g.d_q_data[i] == 0);
    for (size_t i = 0; i < sizeof g.d_k_data / sizeof(float); i++)
        assert_true(g.d_k_data[i] == 0);

    initialize(&g); /* no channel of a key */
    g.f.q.shape[3] = g.f.k.shape[3] = g.d_q.shape[3] = g.d_k.shape[3] = g.f.decay.shape[3] = g.d_decay.shape[3] = 0;
    g.f.params.state_in = NULL, g.gradients.state_in = g.gradients.state_out = NULL;
    assert_int_equal(call(&g), ATTN_OK);
    for (size_t i = 0; i < sizeof g.d_v_data / sizeof(float); i++)
        assert_true(g.d_v_data[i] == 0);

    initialize(&g); /* no token: the gradient of the state goes through */
    attn_tensor *const tensors[] = {&g.f.q, &g.f.k, &g.f.v,     &g.d_out,   &g.d_q,
                                    &g.d_k, &g.d_v, &g.f.decay, &g.d_decay, &g.f.resets};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tensors[i]->shape[2] = 0;
    assert_int_equal(call(&g), ATTN_OK);
    assert_memory_equal(g.d_state_in_data, g.d_state_data, sizeof g.d_state_data);
}

/** Where nothing is written there may be more sequences than can be gone through: without tokens, and where no gradient
 * is wanted of what is the same for all. */
static void test_countless(void **state)
{
    (void)state;
    static struct gradient_fixture g;
    attn_tensor *const tensors[] = {&g.f.q,     &g.f.k, &g.f.v, &g.f.out, &g.d_out,
                                    &g.f.decay, &g.d_q, &g.d_k, &g.d_v,   &g.d_decay};
    for (int averages = 0; averages < 2; averages++)
        for (int wanted = 0; wanted < 2; wanted++) {
            initialize(&g);
            for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
                tensors[i]->shape[0] = (int64_t)1 << 40;
                tensors[i]->stride[0] = 0;
                tensors[i]->shape[2] = wanted ? 0 : LIN_T;
            }
            g.f.decay.shape[0] = g.d_decay.shape[0] = 1;
            g.f.params.resets = NULL, g.f.params.state_in = NULL;
            g.gradients.state_in = g.gradients.state_out = NULL;
            if (!wanted)
                g.gradients.q = g.gradients.k = g.gradients.v = g.gradients.decay = NULL;
            if (averages) {
                g.f.params.map = ATTN_FEATURES_ELU, g.f.params.normalise = 1;
                g.f.params.decay = g.gradients.decay = NULL;
            }
            assert_int_equal(call(&g), ATTN_OK);
            assert_true(all_canary(g.d_q_data, sizeof g.d_q_data));
        }
}

/** Decays of -inf have no gradient, and what they cut off has none of the other side. */
static void test_cut_off(void **state)
{
    (void)state;
    static struct gradient_fixture g;
    initialize(&g);
    g.f.params.resets = NULL;
    for (int64_t b = 0; b < LIN_B; b++)
        for (int64_t h = 0; h < LIN_H; h++)
            for (int64_t d = 0; d < LIN_DK; d++)
                g.f.decay_data[((b * LIN_H + h) * LIN_T + 2) * LIN_DK + d] = -INFINITY;
    g.f.state_in_data[3] = 1e30f; /* nothing of it reaches a gradient behind the cut, not even as rounding */
    assert_int_equal(call(&g), ATTN_OK);
    static struct gradient_fixture other;
    memcpy(&other, &g, sizeof other);
    initialize(&g);
    g.f.params.resets = NULL;
    memcpy(g.f.decay_data, other.f.decay_data, sizeof g.f.decay_data);
    assert_int_equal(call(&g), ATTN_OK);
    for (int64_t i = 0; i < LIN_B * LIN_H; i++)
        for (int64_t t = 2; t < LIN_T; t++)
            for (int64_t d = 0; d < LIN_DK; d++) {
                const int64_t at = (i * LIN_T + t) * LIN_DK + d;
                assert_true(t > 2 || g.d_decay_data[at] == 0);
                assert_true(g.d_decay_data[at] == other.d_decay_data[at]);
            }
}

/** Rows of out whose weights add up to 0 are 0: nothing is divided by such a sum on the way back either. */
static void test_no_weight(void **state)
{
    (void)state;
    static struct gradient_fixture g;
    initialize(&g);
    g.f.params.normalise = 1, g.f.params.state_in = NULL, g.gradients.state_in = g.gradients.state_out = NULL;
    memset(g.f.k_data, 0, sizeof g.f.k_data);
    assert_int_equal(linear_fixture_call(&g.f), ATTN_OK);
    assert_int_equal(call(&g), ATTN_OK);
    for (size_t i = 0; i < sizeof g.d_q_data / sizeof(float); i++)
        assert_true(g.d_q_data[i] == 0);
    for (size_t i = 0; i < sizeof g.d_k_data / sizeof(float); i++)
        assert_true(g.d_k_data[i] == 0);
    for (size_t i = 0; i < sizeof g.d_v_data / sizeof(float); i++)
        assert_true(g.d_v_data[i] == 0);
}

/**
 * A key's feature that is held at e^60 does not move with the key; one just below does. Features of a number x are
 * e^(12x - xx/2) and e^(-xx/2). The query -5 reads them times e^-60 and 1, so the second token's out is the average of
 * 1, the first one's value, and 0, with the weights w = e^(12x - xx/2 - 60) and 1.
 */
static void test_held_features(void **state)
{
    (void)state;
    static const float keys[] = {7.05f, 7.15f};
    for (int held = 0; held < 2; held++) {
        float q[2] = {-5, -5}, k[2] = {keys[held], 0}, v[2] = {1, 0}, w[2] = {12, 0}, o[2], d_o[2] = {0, 1}, d_k[2];
        const attn_tensor q_tensor = attn_bhtd(q, 1, 1, 2, 1), k_tensor = attn_bhtd(k, 1, 1, 2, 1);
        const attn_tensor v_tensor = attn_bhtd(v, 1, 1, 2, 1), projection = attn_bhtd(w, 1, 1, 2, 1);
        const attn_tensor out = attn_bhtd(o, 1, 1, 2, 1), d_out = attn_bhtd(d_o, 1, 1, 2, 1);
        const attn_tensor d_key = attn_bhtd(d_k, 1, 1, 2, 1);
        attn_linear_attention_params params = attn_linear_attention_params_default();
        params.map = ATTN_FEATURES_POSITIVE;
        params.projection = &projection;
        params.normalise = 1;
        params.scale = 1;
        attn_linear_attention_gradients gradients = attn_linear_attention_gradients_default();
        gradients.out = &d_out;
        gradients.k = &d_key;
        assert_int_equal(attn_linear_attention(&q_tensor, &k_tensor, &v_tensor, &out, &params), ATTN_OK);
        assert_int_equal(attn_linear_attention_backward(&q_tensor, &k_tensor, &v_tensor, &out, &params, &gradients),
                         ATTN_OK);
        const double x = (double)k[0], weight = exp(12 * x - x * x / 2 - 60);
        assert_true(held ? weight > 1 : weight < 1);
        const double expected = held ? 0 : (12 - x) * weight / ((1 + weight) * (1 + weight));
        assert_true(fabs((double)d_k[0] - expected) < 1e-4);
    }
}

/** A struct of a later version, of which nothing is set that is not known here. */
static void test_later_version(void **state)
{
    (void)state;
    static struct gradient_fixture g;
    const size_t size = sizeof(attn_linear_attention_gradients);
    initialize(&g);
    g.gradients.struct_size = 2 * size;
    memcpy(g.larger, &g.gradients, size);
    g.gradients_arg = (const attn_linear_attention_gradients *)(const void *)g.larger;
    assert_int_equal(call(&g), ATTN_OK);
    initialize(&g);
    g.gradients.struct_size = 2 * size;
    memcpy(g.larger, &g.gradients, size);
    g.larger[size + 3] = 1;
    g.gradients_arg = (const attn_linear_attention_gradients *)(const void *)g.larger;
    expect_refused(&g, ATTN_UNSUPPORTED, "gradients.struct_size", "a field of a later version");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrongs),        cmocka_unit_test(test_overlaps),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_right),         cmocka_unit_test(test_cut_off),       cmocka_unit_test(test_no_weight),
        cmocka_unit_test(test_held_features), cmocka_unit_test(test_later_version), cmocka_unit_test(test_countless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
