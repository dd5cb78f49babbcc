/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_rope() on layouts, broadcasts and threads, and what a rotation is for:
 * lengths stay, and products depend on distances.
 */
#include "fixture.h"

#include "attn/rope.h"
#include "random.h"
#include "rotation.h"
#include "test_isa.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16};

enum { B = 2, H = 3, T = 70, D = 22, PAIRS = 9 };

static void rope(const attn_tensor *x, const attn_tensor *table, attn_rope_layout layout, const attn_tensor *out,
                 int threads)
{
    if (attn_rope(x, table, layout, out, threads) != ATTN_OK)
        fail_msg("%s", attn_last_error());
}

/** A (B, H, T, D) tensor in one of several layouts; data has room for twice its elements. */
static attn_tensor arranged(void *data, attn_dtype type, int arrangement)
{
    attn_tensor t = attn_bhtd(data, B, H, T, D);
    switch (arrangement) {
    case 1:
        t = attn_bthd(data, B, T, H, D);
        break;
    case 2: /* rows with gaps, the last token first */
        t = attn_bhtd(data, B, H, T, D + 5);
        t.shape[3] = D;
        t.data = (char *)data + (size_t)((T - 1) * (D + 5)) * attn_dtype_size(type);
        t.stride[2] = -t.stride[2];
        break;
    case 3: /* the batch innermost */
        t.stride[0] = D, t.stride[2] = B * D, t.stride[1] = T * B * D;
        break;
    default:
        break;
    }
    t.dtype = type;
    return t;
}

/** A table of its own numbers that broadcasts along some axes: bit 0 batch, 1 heads, 2 tokens. */
static attn_tensor broadcast_table(const float *data, int axes)
{
    attn_tensor t = attn_bhtd(data, axes & 1 ? 1 : B, axes & 2 ? 1 : H, T, 2 * PAIRS);
    if (axes & 4)
        t.stride[2] = 0;
    return t;
}

static void check_tensor(const attn_tensor *out, const attn_tensor *x, const attn_tensor *table,
                         attn_rope_layout layout)
{
    const int64_t pairs = table->shape[3] / 2;
    for (int64_t row = 0; row < B * H * T; row++) {
        const int64_t b = row / H / T, h = row / T % H, t = row % T;
        for (int64_t i = 0; i < pairs; i++) {
            float before[2], after[2];
            for (int part = 0; part < 2; part++) {
                before[part] = tensor_get(x, b, h, t, channel_of(layout, pairs, i, part));
                after[part] = tensor_get(out, b, h, t, channel_of(layout, pairs, i, part));
            }
            assert_true(is_rotated(x->dtype, after, before, tensor_get(table, b, h, t, i),
                                   tensor_get(table, b, h, t, pairs + i)));
        }
        for (int64_t i = 2 * pairs; i < D; i++)
            assert_true(tensor_get(out, b, h, t, i) == tensor_get(x, b, h, t, i));
    }
}

static void test_layouts_and_broadcasts(void **state)
{
    (void)state;
    enum { SPACE = 2 * B * H * T * D };
    static float values[SPACE], x_data[SPACE], out_data[SPACE], table_data[B * H * T * 2 * PAIRS];
    struct rng rng = rng_for_case(31, 1);
    rng_fill_normal(&rng, values, SPACE);
    rng_fill_normal(&rng, table_data, sizeof table_data / sizeof *table_data);
    for (int n = 0; n < 4 * 4 * 8; n++) {
        const attn_dtype type = types[n % 3];
        const attn_rope_layout layout = n % 2 ? ATTN_ROPE_INTERLEAVED : ATTN_ROPE_HALF_SPLIT;
        const attn_tensor x = arranged(x_data, type, n % 4), out = arranged(out_data, type, n / 4 % 4);
        const attn_tensor table = broadcast_table(table_data, n / 16);
        for (int64_t i = 0; i < SPACE; i++)
            dtype_store(type, x_data, i, values[i]);
        rope(&x, &table, layout, &out, 1 + n % 3);
        check_tensor(&out, &x, &table, layout);
        rope(&x, &table, layout, &x, 1);
        for (int64_t row = 0; row < B * H * T; row++)
            for (int64_t i = 0; i < D; i++)
                assert_true(tensor_get(&x, row / H / T, row / T % H, row % T, i) ==
                            tensor_get(&out, row / H / T, row / T % H, row % T, i));
    }
}

enum { MANY_T = 500, MANY_H = 6, MANY_D = 64, MANY = MANY_T * MANY_H * MANY_D };

static float many_x[MANY], many_out[MANY], many_expected[MANY], many_table[MANY_T * MANY_D];

/** Enough rows for three threads, whose result on one goes to many_expected. */
static void prepare_many(attn_tensor *x, attn_tensor *out, attn_tensor *table, attn_dtype type, int bthd)
{
    struct rng rng = rng_for_case(37, 1);
    attn_rope_config config = attn_rope_config_default();
    config.pairs = MANY_D / 2;
    assert_int_equal(attn_rope_table(&config, NULL, MANY_T, many_table), ATTN_OK);
    for (int64_t i = 0; i < MANY; i++)
        dtype_store(type, many_x, i, rng_normal(&rng));
    *table = attn_bhtd(many_table, 1, 1, MANY_T, MANY_D);
    *x = bthd ? attn_bthd(many_x, 1, MANY_T, MANY_H, MANY_D) : attn_bhtd(many_x, 1, MANY_H, MANY_T, MANY_D);
    x->dtype = type;
    *out = *x;
    out->data = many_expected;
    rope(x, table, ATTN_ROPE_HALF_SPLIT, out, 1);
    out->data = many_out;
}

static void test_threads(void **state)
{
    (void)state;
    attn_tensor x, out, table;
    for (int n = 0; n < 6; n++) {
        prepare_many(&x, &out, &table, types[n % 3], n / 3);
        const size_t size = MANY * attn_dtype_size(x.dtype);
        for (int threads = 0; threads <= 5; threads++) {
            memset(many_out, 0, size);
            rope(&x, &table, ATTN_ROPE_HALF_SPLIT, &out, threads);
            assert_memory_equal(many_out, many_expected, size);
        }
        rope(&x, &table, ATTN_ROPE_HALF_SPLIT, &x, 3);
        assert_memory_equal(many_x, many_expected, size);
    }
}

/** A child of a process that has used threads must not wait for them. */
static void test_in_a_child(void **state)
{
    (void)state;
    attn_tensor x, out, table;
    prepare_many(&x, &out, &table, ATTN_F32, 0);
    rope(&x, &table, ATTN_ROPE_HALF_SPLIT, &out, 3);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        memset(many_out, 0, sizeof many_out);
        const attn_status status = attn_rope(&x, &table, ATTN_ROPE_HALF_SPLIT, &out, 3);
        _exit(status == ATTN_OK && memcmp(many_out, many_expected, sizeof many_out) == 0 ? 0 : 1);
    }
    int ended = -1;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
}

static double dot(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < MANY_D; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/** Rotations keep lengths, and q·k depends on the distance of the positions alone. */
static void test_meaning(void **state)
{
    (void)state;
    static const int64_t shifts[] = {0, 1, 4095, -100000, 1000000 - 40};
    struct rng rng = rng_for_case(41, 1);
    attn_rope_config config = attn_rope_config_default();
    config.pairs = MANY_D / 2;
    float q[MANY_D], k[MANY_D], rows[2][MANY_D], turned[2][MANY_D], table_rows[2][MANY_D];
    for (int n = 0; n < 40; n++)
        for (int layout = 0; layout < 2; layout++) {
            double expected = 0;
            rng_fill_normal(&rng, q, MANY_D);
            rng_fill_normal(&rng, k, MANY_D);
            const double size = sqrt(dot(q, q) * dot(k, k));
            for (int s = 0; s < 5; s++) {
                const int64_t positions[2] = {shifts[s] + n, shifts[s] + 13};
                const attn_tensor x = attn_bhtd(rows, 1, 1, 2, MANY_D), out = attn_bhtd(turned, 1, 1, 2, MANY_D);
                const attn_tensor table = attn_bhtd(table_rows, 1, 1, 2, MANY_D);
                memcpy(rows[0], q, sizeof q);
                memcpy(rows[1], k, sizeof k);
                assert_int_equal(attn_rope_table(&config, positions, 2, table_rows[0]), ATTN_OK);
                rope(&x, &table, (attn_rope_layout)layout, &out, 1);
                assert_true(fabs(dot(turned[0], turned[0]) / dot(q, q) - 1) < 1e-6);
                assert_true(fabs(dot(turned[1], turned[1]) / dot(k, k) - 1) < 1e-6);
                const double product = dot(turned[0], turned[1]);
                expected = s == 0 ? product : expected;
                assert_true(fabs(product - expected) < 1e-6 * size);
                if (n == 13) /* distance 0 */
                    assert_true(fabs(product - dot(q, k)) < 1e-6 * size);
                if (n == 12) /* and it is not the same for every distance */
                    assert_true(fabs(product - dot(q, k)) > 1e-3);
            }
        }
}

/** Where inputs may be bf16 and pairs are multiplied, q and k are rounded after they have been turned. */
static void test_turned_rows_are_rounded(void **state)
{
    (void)state;
    enum { N = B * H * T * D };
    static float data[3][N], turned[2][N], table_data[T * 2 * PAIRS], out_data[2][N];
    static uint16_t rounded[3][N];
    struct rng rng = rng_for_case(0x509e, 0);
    for (int i = 0; i < 3; i++)
        rng_fill_normal(&rng, data[i], N);
    rng_fill_normal(&rng, table_data, T * 2 * PAIRS);
    const attn_tensor table = attn_bhtd(table_data, 1, 1, T, 2 * PAIRS);
    attn_tensor given[3], before[3], out[2];
    for (int i = 0; i < 3; i++) {
        given[i] = attn_bhtd(data[i], B, H, T, D);
        attn_tensor x = given[i];
        if (i < 2) {
            x.data = turned[i];
            rope(&given[i], &table, ATTN_ROPE_INTERLEAVED, &x, 1);
        }
        for (int64_t j = 0; j < N; j++)
            dtype_store(ATTN_BF16, rounded[i], j, ((const float *)x.data)[j]);
        before[i] = attn_bhtd(rounded[i], B, H, T, D);
        before[i].dtype = ATTN_BF16;
    }
    for (int i = 0; i < 2; i++)
        out[i] = attn_bhtd(out_data[i], B, H, T, D);
    const attn_rope_tables tables = {.q = &table, .k = &table, .layout = ATTN_ROPE_INTERLEAVED};
    for (int isa = 0; attn_isa_name(isa); isa++) {
        if (!test_isa_has_pairs(attn_isa_name(isa)) || !attn_isa_supported(attn_isa_name(isa)))
            continue;
        attn_params params = attn_params_default();
        params.isa = attn_isa_name(isa);
        assert_int_equal(attn_forward(&before[0], &before[1], &before[2], &out[0], &params), ATTN_OK);
        params.rope = &tables;
        params.inputs = ATTN_INPUTS_MAY_BE_BF16;
        assert_int_equal(attn_forward(&given[0], &given[1], &given[2], &out[1], &params), ATTN_OK);
        assert_memory_equal(out_data[0], out_data[1], sizeof out_data[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts_and_broadcasts),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_in_a_child),
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_turned_rows_are_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
