/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets beyond 2^31 and 2^32 elements. Tensors of few elements lie far apart
 * in a sparse mapping of many GiB (MAP_NORESERVE: only pages that are touched
 * exist), with strides by batch, by head, by token, and in masks; the results
 * must have the bits of the same tensors lying close together, for elements of
 * four bytes and of two. An offset that
 * is computed in 32 bits anywhere lands on a page of zeros or faults.
 */
#include "fixture.h"
#include "arguments.h"
#include "guard.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/** Elements between the first and the last of an axis that is moved apart: above 2^32. */
#define FAR ((int64_t)4096 * 4097 * 257)

/**
 * A mapping of size bytes that has no memory until it is touched; skips the test where there is no room for it. Where
 * the first one was, if that is free: an emulator keeps notes on every page that has ever been mapped.
 */
static void *map_sparse(size_t size)
{
    static void *first;
    void *map = mmap(first, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        print_message("skipped: no address space for %zu bytes\n", size);
        skip();
    }
    if (!first)
        first = map;
    return map;
}

static int64_t reach(const attn_tensor *t)
{
    int64_t last = 1;
    for (int axis = 0; axis < 4; axis++)
        last += (t->shape[axis] - 1) * t->stride[axis];
    return last;
}

/** Moves the elements of t into a sparse mapping, where those of the given axis span more than 2^32 elements. */
static size_t move_apart(attn_tensor *t, int axis, int with_contents)
{
    attn_tensor far = *t;
    const size_t element = attn_dtype_size(t->dtype);
    far.stride[axis] = FAR / (t->shape[axis] - 1);
    const size_t size = (size_t)reach(&far) * element;
    char *map = map_sparse(size);
    for (int64_t b = 0; b < t->shape[0] && with_contents; b++)
        for (int64_t h = 0; h < t->shape[1]; h++)
            for (int64_t i = 0; i < t->shape[2]; i++)
                for (int64_t c = 0; c < t->shape[3]; c++) {
                    const int64_t from = b * t->stride[0] + h * t->stride[1] + i * t->stride[2] + c * t->stride[3];
                    const int64_t to = b * far.stride[0] + h * far.stride[1] + i * far.stride[2] + c * far.stride[3];
                    memcpy(map + (size_t)to * element, (char *)t->data + (size_t)from * element, element);
                }
    far.data = map;
    *t = far;
    return size;
}

static void compare_far(const attn_tensor *far, const void *data)
{
    const size_t element = attn_dtype_size(far->dtype);
    const char *expected = data;
    for (int64_t b = 0; b < far->shape[0]; b++)
        for (int64_t h = 0; h < far->shape[1]; h++)
            for (int64_t i = 0; i < far->shape[2]; i++)
                for (int64_t c = 0; c < far->shape[3]; c++) {
                    const int64_t at =
                        b * far->stride[0] + h * far->stride[1] + i * far->stride[2] + c * far->stride[3];
                    if (memcmp((const char *)far->data + (size_t)at * element, expected, element) != 0)
                        fail_msg("element (%d,%d,%d,%d) differs from the one in a small tensor", (int)b, (int)h, (int)i,
                                 (int)c);
                    expected += element;
                }
}

/** Tensor number which, moved apart along an axis. */
static void check_axis(const char *isa, attn_dtype dtype, int which, int axis)
{
    struct fixture near, f;
    fixture_initialize(&near);
    fixture_initialize(&f);
    fixture_narrow(&near, dtype);
    fixture_narrow(&f, dtype);
    near.params.isa = f.params.isa = isa;
    assert_int_equal(fixture_forward(&near), ATTN_OK);
    attn_tensor *const tensors[] = {&f.q, &f.k, &f.v, &f.mask, &f.out, &f.lse, &f.weights, &f.key_sums};
    const float *const expected[] = {
        NULL, NULL, NULL, NULL, near.out_data, near.lse_data, near.weights_data, near.key_sums_data};
    attn_tensor *t = tensors[which];
    snprintf(guard_case_line, sizeof guard_case_line, "tensor %d of %s, axis %d, isa %s", which,
             attn_dtype_name(t->dtype), axis, isa);
    const size_t size = move_apart(t, axis, which < 4);
    assert_int_equal(fixture_forward(&f), ATTN_OK);
    if (expected[which])
        compare_far(t, expected[which]);
    munmap(t->data, size);
    *t = *(which == 4   ? &near.out
           : which == 5 ? &near.lse
           : which == 6 ? &near.weights
           : which == 7 ? &near.key_sums
                        : t);
    if (which != 4)
        assert_memory_equal(f.out_data, near.out_data, sizeof f.out_data);
    if (which < 4) {
        assert_memory_equal(f.lse_data, near.lse_data, sizeof f.lse_data);
        assert_memory_equal(f.weights_data, near.weights_data, sizeof f.weights_data);
    }
}

static void test_far_apart(void **state)
{
    (void)state;
    for (int isa = 0; attn_isa_name(isa); isa++)
        for (int which = 0; which < 8 && attn_isa_supported(attn_isa_name(isa)); which++)
            for (int axis = 0; axis < 4; axis++) {
                const int any_stride = which == 3 || which > 4; /* q, k, v and out need contiguous channels */
                if ((axis == 3 && !any_stride) || (which == 5 && axis == 3) || (which == 7 && axis == 2))
                    continue;
                for (int dtype = ATTN_F32; dtype <= ATTN_F16; dtype++)
                    if (!surroundings_are_slow() || dtype == (which + axis) % 3)
                        check_axis(attn_isa_name(isa), (attn_dtype)dtype, which, axis);
            }
}

/** A boolean mask whose rows span more than 2^32 bytes, for a count of queries above one strip. */
static void test_far_boolean_mask(void **state)
{
    (void)state;
    enum { T = 50 };
    static float q[T * 4], k[T * 4], v[T * 4], out[T * 4], expected[T * 4];
    static uint8_t near[T * T];
    for (int i = 0; i < T * 4; i++) {
        q[i] = (float)(i % 11) / 8;
        k[i] = (float)(i % 7) / 8;
        v[i] = (float)i;
    }
    for (int i = 0; i < T * T; i++)
        near[i] = i % 3 != 0;
    attn_tensor qt = attn_bhtd(q, 1, 1, T, 4), kt = attn_bhtd(k, 1, 1, T, 4), vt = attn_bhtd(v, 1, 1, T, 4);
    attn_tensor ot = attn_bhtd(expected, 1, 1, T, 4), mask = attn_bhtd(near, 1, 1, T, T);
    attn_params params = attn_params_default();
    mask.dtype = ATTN_BOOL;
    params.mask = &mask;
    assert_int_equal(attn_forward(&qt, &kt, &vt, &ot, &params), ATTN_OK);
    const size_t size = move_apart(&mask, 2, 1);
    ot.data = out;
    assert_int_equal(attn_forward(&qt, &kt, &vt, &ot, &params), ATTN_OK);
    munmap(mask.data, size);
    assert_memory_equal(out, expected, sizeof out);
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_apart),
        cmocka_unit_test(test_far_boolean_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
