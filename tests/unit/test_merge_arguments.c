/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong arguments of attn_merge(): the status, a sentence, and nothing written.
 * Which overlaps are refused is compared with a map of bytes.
 */
#include "fixture.h"

#include "random.h"

#include <string.h>

struct call {
    int64_t num_parts;
    attn_tensor parts[2], lses[2], out, lse;
    const attn_tensor *parts_arg, *lses_arg, *out_arg, *lse_arg;
    int num_threads;
    float values[2][24], x[2][6], out_data[24], lse_data[6];
};

static void call_initialize(struct call *c)
{
    memset(c, 0, sizeof *c);
    c->num_parts = 2;
    for (int n = 0; n < 2; n++) {
        c->parts[n] = attn_bhtd(c->values[n], 1, 2, 3, 4);
        c->lses[n] = attn_bhtd(c->x[n], 1, 2, 3, 1);
    }
    c->out = attn_bhtd(c->out_data, 1, 2, 3, 4);
    c->lse = attn_bhtd(c->lse_data, 1, 2, 3, 1);
    memset(c->out_data, 0xA5, sizeof c->out_data);
    memset(c->lse_data, 0xA5, sizeof c->lse_data);
    c->parts_arg = c->parts, c->lses_arg = c->lses, c->out_arg = &c->out, c->lse_arg = &c->lse;
}

static void call_fails(const struct call *c, attn_status status, const char *words)
{
    static struct call before;
    before = *c;
    const attn_status got = attn_merge(c->num_parts, c->parts_arg, c->lses_arg, c->out_arg, c->lse_arg, c->num_threads);
    if (got != status || !holds_words(attn_last_error(), words))
        fail_msg("expected status %d and %s; got %d, \"%s\"", (int)status, words, (int)got, attn_last_error());
    assert_memory_equal(&before, c, sizeof before);
}

#define WRONG(status, words, ...)                                                                                      \
    do {                                                                                                               \
        call_initialize(&c);                                                                                           \
        __VA_ARGS__;                                                                                                   \
        call_fails(&c, status, words);                                                                                 \
    } while (0)

static void test_wrong_arguments(void **state)
{
    (void)state;
    static struct call c;
    call_initialize(&c);
    assert_int_equal(attn_merge(2, c.parts, c.lses, &c.out, &c.lse, 1), ATTN_OK);
    WRONG(ATTN_INVALID_ARGUMENT, "num_parts|0|1 or more", c.num_parts = 0);
    WRONG(ATTN_INVALID_ARGUMENT, "num_parts|-3|1 or more", c.num_parts = -3);
    WRONG(ATTN_INVALID_ARGUMENT, "parts is NULL; expected 2 tensors", c.parts_arg = NULL);
    WRONG(ATTN_INVALID_ARGUMENT, "lses is NULL; expected 2 tensors", c.lses_arg = NULL);
    WRONG(ATTN_INVALID_ARGUMENT, "out is NULL; expected a tensor", c.out_arg = NULL);
    WRONG(ATTN_INVALID_ARGUMENT, "num_threads|-1", c.num_threads = -1);
    WRONG(ATTN_INVALID_ARGUMENT, "parts[1].data|NULL", c.parts[1].data = NULL);
    WRONG(ATTN_INVALID_ARGUMENT, "lses[0].data|NULL", c.lses[0].data = NULL);
    WRONG(ATTN_INVALID_ARGUMENT, "out.data|NULL", c.out.data = NULL);
    WRONG(ATTN_INVALID_ARGUMENT, "lse.data|NULL", c.lse.data = NULL);
    WRONG(ATTN_INVALID_ARGUMENT, "lses[1].data|align", c.lses[1].data = (char *)c.x + 2);
    WRONG(ATTN_INVALID_ARGUMENT, "parts[0].dtype|99", c.parts[0].dtype = (attn_dtype)99);
    WRONG(ATTN_UNSUPPORTED, "parts[1].dtype|i8|bf16", c.parts[1].dtype = ATTN_I8);
    WRONG(ATTN_UNSUPPORTED, "out.dtype|bool|bf16", c.out.dtype = ATTN_BOOL);
    WRONG(ATTN_UNSUPPORTED, "lses[1].dtype is bf16; expected f32", c.lses[1].dtype = ATTN_BF16);
    WRONG(ATTN_UNSUPPORTED, "lse.dtype|f16|f32", c.lse.dtype = ATTN_F16);
    WRONG(ATTN_SHAPE_MISMATCH, "parts[1].shape[0]|2|1", c.parts[1].shape[0] = 2);
    WRONG(ATTN_SHAPE_MISMATCH, "parts[0].shape[1]|1|2", c.parts[0].shape[1] = 1);
    WRONG(ATTN_SHAPE_MISMATCH, "parts[1].shape[2]|2|3", c.parts[1].shape[2] = 2);
    WRONG(ATTN_SHAPE_MISMATCH, "parts[0].shape[3]|3|4", c.parts[0].shape[3] = 3);
    WRONG(ATTN_SHAPE_MISMATCH, "lses[1].shape[2] is 2; expected 3, that of out", c.lses[1].shape[2] = 2);
    WRONG(ATTN_SHAPE_MISMATCH, "lses[0].shape[3]|4|1", c.lses[0] = c.parts[0]);
    WRONG(ATTN_SHAPE_MISMATCH, "lse.shape[1] is 1; expected 2, that of out", c.lse.shape[1] = 1);
    WRONG(ATTN_INVALID_ARGUMENT, "out.shape[2]|-1", c.out.shape[2] = -1);
    WRONG(ATTN_INVALID_ARGUMENT, "parts[0].stride[3]|2|contiguous", c.parts[0].stride[3] = 2);
    WRONG(ATTN_INVALID_ARGUMENT, "out.stride[3]|2|contiguous", c.out.stride[3] = 2);
    WRONG(ATTN_INVALID_ARGUMENT, "out.stride[2]|3|overlap", c.out.stride[2] = 3);
    WRONG(ATTN_INVALID_ARGUMENT, "lse.stride[1]|0|overlap", c.lse.stride[1] = 0);
    WRONG(ATTN_SIZE_OVERFLOW, "parts[1].stride[1]", c.parts[1].stride[1] = INT64_MAX);
    WRONG(ATTN_SIZE_OVERFLOW, "lses[0] spans 2305843009213693960 bytes; expected no",
          c.lses[0].stride[1] = INT64_MAX / 16);
    /* Overlaps that are not the very same view. */
    WRONG(ATTN_INVALID_ARGUMENT, "out overlaps parts[0]|same view", c.out.data = c.values[0] + 4);
    WRONG(ATTN_INVALID_ARGUMENT, "out overlaps parts[0]|same view", c.out = c.parts[0], c.out.dtype = ATTN_BF16);
    WRONG(ATTN_INVALID_ARGUMENT, "out overlaps lses[1]", c.lses[1].data = c.out_data + 3);
    WRONG(ATTN_INVALID_ARGUMENT, "lse overlaps out", c.lse.data = c.out_data);
    WRONG(ATTN_INVALID_ARGUMENT, "lse overlaps parts[0]", c.lse.data = c.values[0] + 20);
    WRONG(ATTN_INVALID_ARGUMENT, "lse overlaps lses[0]", c.lse.data = c.x[0] + 1);
    /* Without lse its arguments are not looked at. */
    call_initialize(&c);
    assert_int_equal(attn_merge(2, c.parts, c.lses, &c.out, NULL, 1), ATTN_OK);
}

/** Marks the bytes of a tensor in a map whose byte 0 is at base; returns whether one was marked already. */
static int mark(const attn_tensor *t, const char *base, unsigned char *map)
{
    int met = 0;
    const int64_t size = (int64_t)attn_dtype_size(t->dtype);
    const int64_t rows = t->shape[0] * t->shape[1] * t->shape[2];
    for (int64_t r = 0; r < rows; r++) {
        const int64_t i = r % t->shape[2], h = r / t->shape[2] % t->shape[1], b = r / t->shape[2] / t->shape[1];
        const char *row = (const char *)t->data + (b * t->stride[0] + h * t->stride[1] + i * t->stride[2]) * size;
        for (int64_t c = 0; c < t->shape[3] * size; c++)
            met |= map[row - base + c]++;
    }
    return met != 0;
}

/** Somewhere in a buffer of SIDE bytes on each side of its middle. */
enum { SIDE = 4096 };

static attn_tensor anywhere(struct rng *rng, char *middle, const int64_t shape[4], int like, const attn_tensor *other)
{
    attn_tensor t = {NULL, (attn_dtype)rng_range(rng, ATTN_F32, ATTN_BF16), {0}, {0, 0, 0, 1}};
    memcpy(t.shape, shape, sizeof t.shape);
    for (int axis = 0; axis < 3; axis++)
        t.stride[axis] = like ? other->stride[axis] : rng_range(rng, -40, 40) * RNG_PICK(rng, 1, 1, 2, 4);
    if (like)
        t.dtype = rng_percent(rng, 80) ? other->dtype : t.dtype;
    t.data = middle + 4 * rng_range(rng, -30, 30);
    return t;
}

/** attn_merge() refuses an overlap if and only if some byte belongs to both. */
static void test_overlaps(void **state)
{
    (void)state;
    static float buffer[2 * SIDE / 4];
    static float x_data[27], lse_data[27];
    static unsigned char map[2 * SIDE];
    int apart = 0, overlapping = 0, same = 0;
    for (uint64_t n = 0; n < 60000; n++) {
        struct rng rng = rng_for_case(38, n);
        const int64_t shape[4] = {rng_range(&rng, 1, 3), rng_range(&rng, 1, 3), rng_range(&rng, 1, 3),
                                  rng_range(&rng, 1, 6)};
        const attn_tensor x = attn_bhtd(x_data, shape[0], shape[1], shape[2], 1);
        const attn_tensor lse = attn_bhtd(lse_data, shape[0], shape[1], shape[2], 1);
        char *middle = (char *)buffer + SIDE;
        attn_tensor out = anywhere(&rng, middle, shape, 0, NULL);
        attn_tensor part = anywhere(&rng, middle, shape, rng_percent(&rng, 50), &out);
        memset(buffer, 0, sizeof buffer);
        memset(map, 0, sizeof map);
        if (mark(&out, (char *)buffer, map))
            continue; /* no output */
        int equal = out.data == part.data && out.dtype == part.dtype;
        for (int axis = 0; axis < 3; axis++)
            equal = equal && (shape[axis] == 1 || out.stride[axis] == part.stride[axis]);
        memset(map, 0, sizeof map);
        mark(&part, (char *)buffer, map); /* this one first, as it may hold a row several times */
        const int overlap = mark(&out, (char *)buffer, map);
        const attn_status status = attn_merge(1, &part, &x, &out, &lse, 1);
        if (status && strstr(attn_last_error(), "expected an output whose elements do not overlap"))
            continue; /* strides that only a closer look would find right are refused before */
        if (status != (overlap && !equal ? ATTN_INVALID_ARGUMENT : ATTN_OK))
            fail_msg("case %d: status %d, but overlap is %d and the same view %d", (int)n, (int)status, overlap, equal);
        apart += !overlap;
        overlapping += overlap && !equal;
        same += equal;
    }
    assert_true(apart > 1000 && overlapping > 1000 && same > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_overlaps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
