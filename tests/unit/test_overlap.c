/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outputs that lie on something that the call reads, or on each other, are
 * refused before a byte is written; slices of one buffer that lie between each
 * other's rows are not. Random views are held against a look at every byte.
 */
#include "fixture.h"
#include "forms.h"

#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Restores the call, changes it, and expects a refusal with this sentence. */
#define OVERLAPS(change, sentence)                                                                                     \
    do {                                                                                                               \
        fixture_initialize(&f);                                                                                        \
        change;                                                                                                        \
        assert_int_equal(fixture_forward(&f), ATTN_INVALID_ARGUMENT);                                                  \
        assert_string_equal(attn_last_error(), sentence "; expected memory of its own");                               \
        assert_true(fixture_outputs_untouched(&f));                                                                    \
    } while (0)

static void test_outputs_on_inputs(void **state)
{
    (void)state;
    static struct fixture f;
    OVERLAPS(f.q.data = f.out_data, "out overlaps q");
    OVERLAPS(f.k.data = f.out_data + 5, "out overlaps k");
    OVERLAPS((f.v = f.out, f.v.shape[1] = FIX_HKV, f.v.shape[2] = FIX_TK, f.v.stride[2] = 0), "out overlaps v");
    OVERLAPS((f.mask.data = f.out_data, f.mask.shape[0] = f.mask.shape[1] = 1), "out overlaps params.mask");
    OVERLAPS((f.mask.dtype = ATTN_BOOL, f.mask.data = f.key_sums_data), "params.key_sums overlaps params.mask");
    OVERLAPS(f.lse.data = f.out_data, "params.lse overlaps out");
    OVERLAPS(f.weights.data = f.mask_data, "params.weights overlaps params.mask");
    OVERLAPS(f.weights.data = f.q_data, "params.weights overlaps q");
    OVERLAPS(f.key_sums.data = f.weights_data, "params.key_sums overlaps params.weights");
    OVERLAPS(f.key_sums.data = f.lse_data, "params.key_sums overlaps params.lse");
}

/** An output that begins at the last entry of an array. */
static void test_output_on_the_end_of_an_array(void **state)
{
    (void)state;
    static struct fixture f;
    static int64_t room[FIX_B + FIX_B * FIX_HQ * FIX_TQ * FIX_DV];
    OVERLAPS((f.params.kv_start = NULL, f.params.kv_len = room, f.out.data = room + FIX_B - 1),
             "out overlaps params.kv_len");
}

/** Arrays of zeros that are right as every option, in the middle of out. */
static void test_outputs_on_arrays(void **state)
{
    (void)state;
    static struct forms c;
    const struct {
        unsigned forms;
        size_t pointer; /**< in struct forms */
        const char *name;
    } arrays[] = {
        {FORM_HEAD_SCALE, offsetof(struct forms, params.head_scale), "params.head_scale"},
        {FORM_SINKS, offsetof(struct forms, params.sinks), "params.sinks"},
        {FORM_SLOPES, offsetof(struct forms, params.alibi_slopes), "params.alibi_slopes"},
        {FORM_BIAS, offsetof(struct forms, bias.table), "params.relative_bias->table"},
        {FORM_DISENTANGLED, offsetof(struct forms, rel_k.data), "params.disentangled->rel_k"},
        {FORM_DISENTANGLED, offsetof(struct forms, rel_q.data), "params.disentangled->rel_q"},
        {FORM_ROPE, offsetof(struct forms, rope_q.data), "params.rope->q"},
        {FORM_ROPE, offsetof(struct forms, rope_k.data), "params.rope->k"},
        {FORM_SEGMENTS, offsetof(struct forms, segments.q), "params.segments->q"},
        {FORM_SEGMENTS, offsetof(struct forms, segments.k), "params.segments->k"},
        {FORM_TREE, offsetof(struct forms, tree.ancestors), "params.tree->ancestors"},
        {FORM_BLOCKS, offsetof(struct forms, blocks.offsets), "params.block_mask->offsets"},
        {FORM_RAGGED, offsetof(struct forms, ragged.cu_seqlens_q), "params.ragged->cu_seqlens_q"},
        {FORM_RAGGED, offsetof(struct forms, ragged.cu_seqlens_k), "params.ragged->cu_seqlens_k"},
        {0, offsetof(struct forms, params.query_offset), "params.query_offset"},
        {0, offsetof(struct forms, params.kv_start), "params.kv_start"},
        {0, offsetof(struct forms, params.kv_len), "params.kv_len"},
    };
    for (size_t n = 0; n < sizeof arrays / sizeof *arrays; n++) {
        char sentence[128];
        forms_initialize(&c, arrays[n].forms);
        memset(c.out_data, 0, sizeof c.out_data);
        void *zeros = c.out_data + 32;
        memcpy((char *)&c + arrays[n].pointer, &zeros, sizeof zeros);
        assert_int_equal(forms_forward(&c), ATTN_INVALID_ARGUMENT);
        snprintf(sentence, sizeof sentence, "out overlaps %s; expected memory of its own", arrays[n].name);
        assert_string_equal(attn_last_error(), sentence);
        for (size_t i = 0; i < sizeof c.out_data / sizeof(float); i++)
            assert_true(c.out_data[i] == 0);
    }
}

/** q, k, v and out as slots of a token, and as halves of a head; other tokens of the buffer are another layer's. */
static void test_slices_of_one_buffer(void **state)
{
    (void)state;
    enum { B = 2, H = 4, T = 9, D = 8, SLOTS = 6 };
    static float packed[B * T * SLOTS * H * D], out_data[B * H * T * D];
    for (int style = 0; style < 4; style++) {
        for (int kv_heads = 1; kv_heads <= H; kv_heads *= 2) {
            struct rng rng = rng_for_case(8, (uint64_t)style);
            rng_fill_normal(&rng, packed, sizeof packed / sizeof *packed);
            attn_tensor slot[SLOTS];
            for (int s = 0; s < SLOTS; s++) {
                static const int64_t strides[4][4] = {
                    {T * SLOTS * H * D, D, SLOTS * H * D, 1},         /* [batch][token][slot][head][channel] */
                    {T * SLOTS * H * D, SLOTS * D, SLOTS * H * D, 1}, /* [batch][token][head][slot][channel] */
                    {SLOTS * H * T * D, T * D, D, 1},                 /* [batch][slot][head][token][channel] */
                    {D, T * SLOTS * B * D, SLOTS * B * D, 1},         /* [head][token][slot][batch][channel] */
                };
                static const int64_t steps[] = {H * D, D, H * T * D, B * D};
                slot[s] = (attn_tensor){packed + s * steps[style], ATTN_F32, {B, H, T, D}, {0}};
                memcpy(slot[s].stride, strides[style], sizeof strides[style]);
            }
            attn_tensor q = slot[0], k = slot[1], v = slot[3], out = slot[4];
            attn_tensor apart = attn_bhtd(out_data, B, H, T, D);
            k.shape[1] = v.shape[1] = kv_heads;
            k.shape[2] = v.shape[2] = T - style; /* of other lengths, too */
            assert_int_equal(attn_forward(&q, &k, &v, &apart, NULL), ATTN_OK);
            assert_int_equal(attn_forward(&q, &k, &v, &out, NULL), ATTN_OK);
            for (int i = 0; i < B * H * T * D; i++) {
                const int64_t b = i / (H * T * D), h = i / (T * D) % H, t = i / D % T;
                const float *at = (const float *)out.data + b * out.stride[0] + h * out.stride[1] + t * out.stride[2];
                assert_true(at[i % D] == out_data[i]);
            }
            out.data = (float *)out.data + 1; /* a channel of the next slot, or of the buffer's end, is another's */
            out.shape[3] = v.shape[3] = D - 1;
            assert_int_equal(attn_forward(&q, &k, &v, &out, NULL), ATTN_OK);
            out.data = (float *)slot[0].data + D - 1;
            assert_int_equal(attn_forward(&q, &k, &v, &out, NULL), ATTN_INVALID_ARGUMENT);
            assert_string_equal(attn_last_error(), "out overlaps q; expected memory of its own");
        }
    }
}

/** Marks the bytes of a view, or counts those that are marked. */
static int visit(const attn_tensor *t, const unsigned char *origin, unsigned char *marks, int mark)
{
    int met = 0;
    const int64_t size = (int64_t)attn_dtype_size(t->dtype);
    for (int64_t i = 0; i < t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3] * size; i++) {
        const int64_t element = i / size, c = element % t->shape[3], token = element / t->shape[3] % t->shape[2];
        const int64_t h = element / t->shape[3] / t->shape[2] % t->shape[1];
        const int64_t b = element / t->shape[3] / t->shape[2] / t->shape[1];
        const int64_t at = (const unsigned char *)t->data - origin + i % size +
                           (b * t->stride[0] + h * t->stride[1] + token * t->stride[2] + c * t->stride[3]) * size;
        met += marks[at];
        marks[at] |= (unsigned char)mark;
    }
    return met;
}

/** Strides in any order and of either sign; apart for an output, else they may be small, or 0. Returns the reach. */
static int64_t draw_strides(attn_tensor *t, int apart, int contiguous, struct rng *rng)
{
    int64_t reach = 1, axes = contiguous ? 3 : 4;
    const int64_t first = rng_range(rng, 0, axes - 1);
    if (contiguous) {
        t->stride[3] = 1;
        reach = t->shape[3];
    }
    for (int64_t i = 0; i < axes; i++) {
        const int64_t axis = (first + i) % axes;
        t->stride[axis] = apart || rng_percent(rng, 50) ? reach + rng_range(rng, 0, reach) : rng_range(rng, 0, reach);
        reach += t->stride[axis] * (t->shape[axis] - 1);
        if (rng_percent(rng, 30))
            t->stride[axis] = -t->stride[axis];
    }
    return reach;
}

static void test_exact(void **state)
{
    (void)state;
    enum { SIZE = 1 << 16 };
    static _Alignas(8) unsigned char memory[SIZE];
    static unsigned char marks[SIZE];
    static float elsewhere[4096];
    int refused = 0, done = 0;
    for (uint64_t n = 0; n < 30000; n++) {
        struct rng rng = rng_for_case(44, n);
        const int64_t b = rng_range(&rng, 1, 3), h = rng_range(&rng, 1, 3), tq = rng_range(&rng, 1, 4);
        const int64_t tk = rng_range(&rng, 1, 5), d = rng_range(&rng, 1, 4);
        static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_BOOL};
        attn_tensor k = attn_bhtd(elsewhere, b, 1, tk, 1), v = attn_bhtd(elsewhere, b, 1, tk, d);
        attn_tensor q = attn_bhtd(elsewhere, b, h, tq, 1);
        attn_tensor out = {memory + SIZE / 2, types[rng_range(&rng, 0, 1)], {b, h, tq, d}, {0}};
        attn_tensor mask = {NULL, types[rng_range(&rng, 0, 2)], {b, h, tq, tk}, {0}};
        const int64_t reach = draw_strides(&out, 1, 1, &rng) * (int64_t)attn_dtype_size(out.dtype);
        const int64_t mask_reach = draw_strides(&mask, 0, 0, &rng) * (int64_t)attn_dtype_size(mask.dtype);
        if (reach > SIZE / 8 || mask_reach > SIZE / 8)
            continue;
        if (rng_percent(&rng, 30) && mask.dtype == out.dtype) /* as slices of one buffer are */
            memcpy(mask.stride, out.stride, sizeof mask.stride);
        const int64_t size = (int64_t)attn_dtype_size(mask.dtype);
        mask.data = memory + SIZE / 2 + rng_range(&rng, -reach, reach) / size * size;
        attn_params params = attn_params_default();
        params.mask = &mask;
        memset(marks, 0, sizeof marks);
        visit(&mask, memory, marks, 1);
        const attn_status expected = visit(&out, memory, marks, 0) ? ATTN_INVALID_ARGUMENT : ATTN_OK;
        assert_int_equal(attn_forward(&q, &k, &v, &out, &params), expected);
        *(expected ? &refused : &done) += 1;
    }
    assert_true(refused > 3000 && done > 3000);
}

/** Many rows of layouts with nothing in common, between each other: the answer comes within the test's time. */
static void test_many_rows_between_each_other(void **state)
{
    (void)state;
    enum { H = 64, T = 4096, GAP = 16 };
    float *memory = calloc((size_t)H * T * GAP, sizeof *memory);
    assert_non_null(memory);
    static const int64_t none[1];
    attn_params params = attn_params_default();
    params.kv_len = none; /* little to compute, all to check */
    attn_tensor q = {memory, ATTN_F32, {1, H, T, 2}, {0, GAP, H * GAP, 1}}, k = q, v = q, out = q;
    out.data = memory + 4;
    assert_int_equal(attn_forward(&q, &k, &v, &out, &params), ATTN_OK);
    q.stride[1] = T * 8, q.stride[2] = 8; /* heads one behind the other, and other steps */
    assert_int_equal(attn_forward(&q, &k, &v, &out, &params), ATTN_OK);
    out.data = memory + 1;
    assert_int_equal(attn_forward(&q, &k, &v, &out, &params), ATTN_INVALID_ARGUMENT);
    free(memory);
}

static void test_empty_outputs_and_inputs(void **state)
{
    (void)state;
    static struct fixture f;
    fixture_initialize(&f); /* no element, no overlap, whatever the strides */
    f.q.shape[2] = f.out.shape[2] = f.lse.shape[2] = f.weights.shape[2] = f.mask.shape[2] = 0;
    f.out.data = f.q_data;
    f.lse.data = f.q_data;
    f.params.key_sums = NULL;
    memset(f.out.stride, 0, sizeof f.out.stride);
    memset(f.q.stride, 0, sizeof f.q.stride);
    f.lse.stride[0] = INT64_MIN;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    fixture_initialize(&f);
    f.k.shape[2] = f.v.shape[2] = 0;
    memset(f.k.stride, 0, sizeof f.k.stride);
    for (int axis = 0; axis < 4; axis++)
        f.v.stride[axis] = axis % 2 ? INT64_MAX : INT64_MIN;
    f.k.data = f.out_data;
    f.weights.shape[3] = f.key_sums.shape[3] = f.mask.shape[3] = 0;
    f.params.kv_len = f.params.kv_start = NULL;
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    for (size_t i = 0; i < sizeof f.out_data / sizeof(float); i++)
        assert_true(f.out_data[i] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs_on_inputs),
        cmocka_unit_test(test_output_on_the_end_of_an_array),
        cmocka_unit_test(test_outputs_on_arrays),
        cmocka_unit_test(test_slices_of_one_buffer),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_many_rows_between_each_other),
        cmocka_unit_test(test_empty_outputs_and_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
