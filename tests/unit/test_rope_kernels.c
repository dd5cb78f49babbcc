/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rotation of every instruction set against the definition, between guard
 * pages; and the bits of a pair, which depend on nothing but the pair.
 */
#include "fixture.h"

#include "dispatch.h"
#include "guard.h"
#include "random.h"
#include "rotation.h"

#include <stdio.h>
#include <string.h>

static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F16};

struct kernel_case {
    const struct attn_kernels *kernels;
    attn_dtype from, to;
    attn_rope_layout layout;
    int64_t rows, pairs, width, x_gap, out_gap, table_stride;
    int in_place;
};

struct buffers {
    struct guard x, out, table;
};

static struct kernel_case draw_case(struct rng *rng, const struct attn_kernels *kernels)
{
    struct kernel_case c = {.kernels = kernels};
    c.from = types[rng_range(rng, 0, 2)];
    c.to = rng_percent(rng, 50) ? c.from : ATTN_F32;
    c.layout = rng_percent(rng, 50) ? ATTN_ROPE_INTERLEAVED : ATTN_ROPE_HALF_SPLIT;
    c.rows = rng_range(rng, 1, 4);
    c.pairs = rng_percent(rng, 5) ? 0 : rng_range(rng, 1, 40);
    c.width = 2 * c.pairs + (rng_percent(rng, 50) ? 0 : rng_range(rng, 0, 37));
    c.width += c.width == 0;
    c.x_gap = rng_percent(rng, 50) ? 0 : rng_range(rng, 1, 9);
    c.out_gap = rng_percent(rng, 50) ? 0 : rng_range(rng, 1, 9);
    c.table_stride = rng_percent(rng, 30) ? 0 : 2 * c.pairs + rng_range(rng, 0, 3);
    c.in_place = c.from == c.to && rng_percent(rng, 40);
    snprintf(guard_case_line, sizeof guard_case_line,
             "%s, %s to %s, layout %d, %d rows of %d pairs and %d channels, gaps %d and %d, table %d%s", kernels->isa,
             attn_dtype_name(c.from), attn_dtype_name(c.to), (int)c.layout, (int)c.rows, (int)c.pairs, (int)c.width,
             (int)c.x_gap, (int)c.out_gap, (int)c.table_stride, c.in_place ? ", in place" : "");
    return c;
}

static void check_row(const struct kernel_case *c, const void *got, const void *x, const float *table)
{
    for (int64_t i = 0; i < c->pairs; i++) {
        float before[2], after[2];
        for (int part = 0; part < 2; part++) {
            const int64_t channel = channel_of(c->layout, c->pairs, i, part);
            before[part] = dtype_load(c->from, x, channel);
            after[part] = dtype_load(c->to, got, channel);
        }
        if (!is_rotated(c->to, after, before, table[i], table[c->pairs + i]))
            fail_msg("%s: pair %d is %a, %a", guard_case_line, (int)i, (double)after[0], (double)after[1]);
    }
    for (int64_t i = 2 * c->pairs; i < c->width; i++)
        if (dtype_load(c->to, got, i) != dtype_load(c->from, x, i))
            fail_msg("%s: channel %d is not what it was", guard_case_line, (int)i);
}

static int is_canary(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != GUARD_CANARY)
            return 0;
    return 1;
}

static void run_case(struct buffers *b, struct rng *rng, const struct kernel_case *c)
{
    static float copy_x[4 * 128], kept[128];
    const size_t from = attn_dtype_size(c->from), to = attn_dtype_size(c->to);
    const int64_t x_step = c->width + c->x_gap, out_step = c->in_place ? x_step : c->width + c->out_gap;
    const int64_t x_size = (c->rows - 1) * x_step + c->width, out_size = (c->rows - 1) * out_step + c->width;
    const int64_t table_size = (c->rows - 1) * c->table_stride + 2 * c->pairs;
    const int at_end = rng_percent(rng, 60);
    char *x = guard_place(&b->x, (size_t)x_size * from, at_end);
    char *out = c->in_place ? x : guard_place(&b->out, (size_t)out_size * to, at_end);
    float *table = guard_place(&b->table, (size_t)table_size * sizeof *table, at_end);
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t i = 0; i < c->width; i++)
            dtype_store(c->from, x, row * x_step + i, rng_normal(rng));
    for (int64_t i = 0; i < table_size; i++)
        table[i] = rng_normal(rng);
    for (int64_t row = 0; row < c->rows; row++)
        memcpy(copy_x + row * 128, x + (size_t)(row * x_step) * from, (size_t)c->width * from);
    const struct attn_rotation work = {{x, x_step * (ptrdiff_t)from, c->from, NULL, 0},
                                       {out, out_step * (ptrdiff_t)to, c->to, NULL, 0},
                                       table,
                                       c->table_stride,
                                       c->rows,
                                       c->pairs,
                                       c->width,
                                       c->layout,
                                       0};
    memcpy(kept, table, (size_t)(2 * c->pairs) * sizeof *table);
    c->kernels->vectors->rotate(&work);
    for (int64_t row = 0; row < c->rows; row++) {
        const char *got = out + (size_t)(row * out_step) * to;
        check_row(c, got, copy_x + row * 128, table + row * c->table_stride);
        if (!c->in_place) {
            const char *same = x + (size_t)(row * x_step) * from;
            assert_memory_equal(same, copy_x + row * 128, (size_t)c->width * from);
        }
        if (row + 1 < c->rows)
            assert_true(
                is_canary((const unsigned char *)got + (size_t)c->width * to, (size_t)(out_step - c->width) * to));
    }
    assert_memory_equal(kept, table, (size_t)(2 * c->pairs) * sizeof *table);
    assert_true(guard_intact(&b->x) && guard_intact(&b->table) && (c->in_place || guard_intact(&b->out)));
}

/** The kernels of every instruction set that can run here. */
static int all_kernels(struct attn_kernels list[16])
{
    int count = 0;
    for (int isa = 0; attn_isa_name(isa); isa++)
        if (attn_isa_supported(attn_isa_name(isa)))
            list[count++] = attn_kernels_plain(attn_isa_row(attn_isa_name(isa)));
    return count;
}

static void test_kernels(void **state)
{
    (void)state;
    struct attn_kernels list[16];
    struct buffers b = {guard_create(4096), guard_create(4096), guard_create(4096)};
    const int count = all_kernels(list);
    for (int k = 0; k < count; k++)
        for (uint64_t n = 0; n < 4000; n++) {
            struct rng rng = rng_for_case(23, n);
            const struct kernel_case c = draw_case(&rng, &list[k]);
            run_case(&b, &rng, &c);
        }
    guard_destroy(&b.x);
    guard_destroy(&b.out);
    guard_destroy(&b.table);
}

/** The bits of a pair are those that it has alone: in any place of a vector, in either layout, in place or not. */
static void test_bits_of_a_pair(void **state)
{
    (void)state;
    enum { PAIRS = 53, WIDTH = 2 * PAIRS };
    struct attn_kernels list[16];
    const int count = all_kernels(list);
    float values[WIDTH], table[WIDTH], x[WIDTH], out[WIDTH], alone[2];
    struct rng rng = rng_for_case(29, 1);
    for (int k = 0; k < count; k++)
        for (int round = 0; round < 6; round++) {
            const attn_rope_layout layout = round % 2 ? ATTN_ROPE_INTERLEAVED : ATTN_ROPE_HALF_SPLIT;
            const attn_dtype type = types[round / 2];
            const size_t size = attn_dtype_size(type);
            rng_fill_normal(&rng, values, WIDTH);
            rng_fill_normal(&rng, table, WIDTH);
            for (int i = 0; i < WIDTH; i++)
                dtype_store(type, x, i, values[i]);
            struct attn_rotation work = {
                {x, 0, type, NULL, 0}, {out, 0, type, NULL, 0}, table, 0, 1, PAIRS, WIDTH, layout, 0};
            list[k].vectors->rotate(&work);
            for (int i = 0; i < PAIRS; i++) {
                const float angle[2] = {table[i], table[PAIRS + i]};
                for (int part = 0; part < 2; part++)
                    dtype_store(type, alone, part, dtype_load(type, x, channel_of(layout, PAIRS, i, part)));
                const struct attn_rotation one = {
                    {alone, 0, type, NULL, 0}, {alone, 0, type, NULL, 0}, angle, 0, 1, 1, 2, layout, 0};
                list[k].vectors->rotate(&one);
                for (int part = 0; part < 2; part++)
                    assert_memory_equal((const char *)alone + (size_t)part * size,
                                        (const char *)out + (size_t)channel_of(layout, PAIRS, i, part) * size, size);
            }
            work.out = work.x;
            list[k].vectors->rotate(&work);
            assert_memory_equal(x, out, WIDTH * size);
        }
}

/** What is not rotated keeps its bits, whatever they mean; a NaN stays in its pair. */
static void test_bits_that_are_copied(void **state)
{
    (void)state;
    struct attn_kernels list[16];
    const int count = all_kernels(list);
    static const uint16_t odd[8] = {0x7c01, 0xfc01, 0x7f81, 0xff81, 0x8000, 0x0001, 0x7fff, 0xffff};
    const float table[2] = {0.5f, 0.25f};
    for (int k = 0; k < count; k++)
        for (int t = 1; t < 3; t++) {
            uint16_t x[40], out[40];
            for (int i = 0; i < 40; i++)
                x[i] = i == 1 ? 0x7fff : odd[i % 8];
            x[0] = 0;
            const struct attn_rotation work = {
                {x, 0, types[t], NULL, 0}, {out, 0, types[t], NULL, 0}, table, 0, 1, 1, 40, ATTN_ROPE_HALF_SPLIT, 0};
            list[k].vectors->rotate(&work);
            assert_memory_equal(out + 2, x + 2, 38 * sizeof *x);
            assert_true(isnan(dtype_load(types[t], out, 0)) && isnan(dtype_load(types[t], out, 1)));
        }
}

int main(void)
{
    guard_catch_faults();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_bits_of_a_pair),
        cmocka_unit_test(test_bits_that_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
