/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which attn_rope() and attn_rope_table() can be called wrongly,
 * one at a time: the status, a sentence that names the argument and the value,
 * and not a byte written. Then what is unusual but right: sizes of 0, views
 * between each other's rows, a newer config.
 */
#include "fixture.h"

#include "attn/rope.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- rotation -- */

enum { B = 2, H = 4, T = 5, D = 10, PAIRS = 3 };

struct call {
    float x_data[B * H * T * D], out_data[B * H * T * D], table_data[B * H * T * 2 * PAIRS];
    attn_tensor x, table, out;
    const attn_tensor *x_arg, *table_arg, *out_arg;
    int layout, num_threads;
};

static void call_initialize(struct call *c)
{
    memset(c, 0, sizeof *c);
    memset(c->out_data, CANARY, sizeof c->out_data);
    for (int i = 0; i < B * H * T * D; i++)
        c->x_data[i] = (float)i;
    c->x = attn_bhtd(c->x_data, B, H, T, D);
    c->out = attn_bhtd(c->out_data, B, H, T, D);
    c->table = attn_bhtd(c->table_data, B, H, T, 2 * PAIRS);
    c->x_arg = &c->x, c->table_arg = &c->table, c->out_arg = &c->out;
}

static attn_status call_run(const struct call *c)
{
    return attn_rope(c->x_arg, c->table_arg, (attn_rope_layout)c->layout, c->out_arg, c->num_threads);
}

static void refuses(const struct call *c, attn_status expected, const char *words)
{
    const attn_status status = call_run(c);
    const int untouched = all_canary(c->out_data, sizeof c->out_data);
    if (status != expected || !holds_words(attn_last_error(), words) || !untouched)
        fail_msg("status %d \"%s\"; expected %d and the words %s%s", (int)status, attn_last_error(), (int)expected,
                 words, untouched ? "" : "; out WAS WRITTEN");
}

/** A valid call with one assignment that makes it wrong. */
#define REFUSES(assignment, status, words)                                                                             \
    do {                                                                                                               \
        call_initialize(&c);                                                                                           \
        assignment;                                                                                                    \
        refuses(&c, status, words);                                                                                    \
    } while (0)

static void test_rope_refuses(void **state)
{
    (void)state;
    static struct call c;
    REFUSES(c.x_arg = NULL, ATTN_INVALID_ARGUMENT, "x |NULL");
    REFUSES(c.table_arg = NULL, ATTN_INVALID_ARGUMENT, "table |NULL");
    REFUSES(c.out_arg = NULL, ATTN_INVALID_ARGUMENT, "out |NULL");
    REFUSES(c.x.data = NULL, ATTN_INVALID_ARGUMENT, "x.data|NULL");
    REFUSES(c.table.data = NULL, ATTN_INVALID_ARGUMENT, "table.data|NULL");
    REFUSES(c.out.data = NULL, ATTN_INVALID_ARGUMENT, "out.data|NULL");
    REFUSES(c.x.data = (char *)c.x_data + 2, ATTN_INVALID_ARGUMENT, "x.data|aligned to 4");
    REFUSES(c.table.data = (char *)c.table_data + 1, ATTN_INVALID_ARGUMENT, "table.data|aligned to 4");
    REFUSES(c.out.data = (char *)c.out_data + 3, ATTN_INVALID_ARGUMENT, "out.data|aligned to 4");
    REFUSES(c.x.dtype = (attn_dtype)99, ATTN_INVALID_ARGUMENT, "x.dtype|99");
    REFUSES(c.x.dtype = ATTN_I8, ATTN_UNSUPPORTED, "x.dtype|i8|f32");
    REFUSES(c.x.dtype = ATTN_BOOL, ATTN_UNSUPPORTED, "x.dtype|bool|f32");
    REFUSES(c.table.dtype = ATTN_BF16, ATTN_UNSUPPORTED, "table.dtype is bf16; expected f32");
    REFUSES(c.table.dtype = (attn_dtype)-1, ATTN_INVALID_ARGUMENT, "table.dtype|-1");
    REFUSES(c.out.dtype = ATTN_BF16, ATTN_UNSUPPORTED, "out.dtype|bf16|f32");
    REFUSES(c.x.dtype = ATTN_F16, ATTN_UNSUPPORTED, "out.dtype is f32; expected f16, the type of x");
    REFUSES(c.x.shape[1] = -4, ATTN_INVALID_ARGUMENT, "x.shape[1]|-4");
    REFUSES(c.table.shape[3] = -6, ATTN_INVALID_ARGUMENT, "table.shape[3]|-6");
    REFUSES(c.out.shape[2] = -5, ATTN_INVALID_ARGUMENT, "out.shape[2]|-5");
    REFUSES(c.table.shape[0] = 3, ATTN_SHAPE_MISMATCH, "table.shape[0] is 3; expected 1 or 2, the batch of x");
    REFUSES(c.table.shape[1] = 2, ATTN_SHAPE_MISMATCH, "table.shape[1]|2|1 or 4|heads");
    REFUSES(c.table.shape[2] = 1, ATTN_SHAPE_MISMATCH, "table.shape[2] is 1; expected 5, the tokens of x");
    REFUSES(c.table.shape[2] = 6, ATTN_SHAPE_MISMATCH, "table.shape[2]|6|5|tokens");
    REFUSES(c.table.shape[3] = 5, ATTN_SHAPE_MISMATCH,
            "table.shape[3] is 5; expected an even number up to 10, the head size of x");
    REFUSES(c.table.shape[3] = 12, ATTN_SHAPE_MISMATCH, "table.shape[3]|12|10");
    REFUSES(c.out.shape[0] = 1, ATTN_SHAPE_MISMATCH, "out.shape[0]|1|2");
    REFUSES(c.out.shape[1] = 2, ATTN_SHAPE_MISMATCH, "out.shape[1]|2|4");
    REFUSES(c.out.shape[2] = 4, ATTN_SHAPE_MISMATCH, "out.shape[2]|4|5");
    REFUSES(c.out.shape[3] = 9, ATTN_SHAPE_MISMATCH, "out.shape[3]|9|10");
    REFUSES(c.x.stride[3] = 2, ATTN_INVALID_ARGUMENT, "x.stride[3]|2|1");
    REFUSES(c.table.stride[3] = -1, ATTN_INVALID_ARGUMENT, "table.stride[3]|-1|1");
    REFUSES(c.out.stride[3] = 2, ATTN_INVALID_ARGUMENT, "out.stride[3]|2|1");
    REFUSES(c.x.stride[0] = INT64_MAX, ATTN_SIZE_OVERFLOW, "x.stride[0]|9223372036854775807");
    REFUSES(c.table.stride[2] = INT64_MAX / 4, ATTN_SIZE_OVERFLOW, "table.stride[2]|2305843009213693951");
    REFUSES(c.out.stride[1] = INT64_MIN, ATTN_SIZE_OVERFLOW, "out.stride[1]|-9223372036854775808");
    REFUSES(c.x.shape[0] = c.x.shape[2] = (int64_t)1 << 40, ATTN_SIZE_OVERFLOW, "x.shape|1099511627776");
    REFUSES(c.out.stride[1] = 0, ATTN_INVALID_ARGUMENT, "out.stride[1]|0|overlap");
    REFUSES(c.out.stride[2] = D - 1, ATTN_INVALID_ARGUMENT, "out.stride[2]|9|overlap");
    REFUSES(c.layout = 2, ATTN_INVALID_ARGUMENT, "layout is 2; expected an attn_rope_layout");
    REFUSES(c.layout = -1, ATTN_INVALID_ARGUMENT, "layout|-1");
    REFUSES(c.num_threads = -3, ATTN_INVALID_ARGUMENT, "num_threads|-3");
}

static void test_rope_refuses_overlap(void **state)
{
    (void)state;
    static struct call c;
    REFUSES((c.x.shape[0] = c.out.shape[0] = c.table.shape[0] = 1, c.x.data = c.out_data + 1), ATTN_INVALID_ARGUMENT,
            "out overlaps x");
    REFUSES((c.x.data = c.out_data, c.x.stride[0] = 0), ATTN_INVALID_ARGUMENT, "out overlaps x");
    REFUSES((c.x.data = c.out_data + T * D, c.x.shape[1] = c.out.shape[1] = c.table.shape[1] = 3),
            ATTN_INVALID_ARGUMENT, "out overlaps x");
    /* Another order of the same elements. */
    REFUSES((c.x.data = c.out_data + (T - 1) * D, c.x.stride[2] = -D), ATTN_INVALID_ARGUMENT, "out overlaps x");
    REFUSES((c.x = attn_bthd(c.out_data, B, T, H, D)), ATTN_INVALID_ARGUMENT, "out overlaps x");
    /* Rows with gaps, shifted by less than a row, forwards and backwards. */
    for (int shift = -(D / 2 - 1); shift < D / 2; shift++) {
        if (shift == 0)
            continue;
        REFUSES((c.x.shape[3] = c.out.shape[3] = D / 2, c.table.shape[3] = 4, c.out.data = c.out_data + D / 2,
                 c.x.data = c.out_data + D / 2 + shift, c.x.shape[0] = c.out.shape[0] = c.table.shape[0] = 1),
                ATTN_INVALID_ARGUMENT, "out overlaps x");
    }
    REFUSES((c.table.data = c.out_data), ATTN_INVALID_ARGUMENT, "out overlaps table");
    REFUSES((c.table = attn_bhtd(c.out_data + 20, 1, 1, T, 2 * PAIRS)), ATTN_INVALID_ARGUMENT, "out overlaps table");
    call_initialize(&c); /* even where table and out are one tensor */
    c.table.shape[3] = c.x.shape[3] = c.out.shape[3] = 2 * PAIRS;
    c.out.data = c.table_data;
    c.out.stride[0] = c.table.stride[0], c.out.stride[1] = c.table.stride[1], c.out.stride[2] = c.table.stride[2];
    refuses(&c, ATTN_INVALID_ARGUMENT, "out overlaps table");
}

/** x and out in the rows of one buffer in turns, as q and k come out of one projection. */
static void test_rope_between_rows(void **state)
{
    (void)state;
    static struct call c;
    static float packed[B * T * 3 * H * D];
    for (int part = 0; part < 3; part += 2) {
        call_initialize(&c);
        for (int i = 0; i < B * H * T * 2 * PAIRS; i++)
            c.table_data[i] = i / PAIRS % 2 ? 0.0f : 2.0f; /* cosines 2, sines 0 */
        for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
            packed[i] = 1;
        const int64_t token = 3 * H * D;
        c.x = (attn_tensor){packed + part * H * D, ATTN_F32, {B, H, T, D}, {T * token, D, token, 1}};
        c.out = (attn_tensor){packed + H * D, ATTN_F32, {B, H, T, D}, {T * token, D, token, 1}};
        assert_int_equal(call_run(&c), ATTN_OK);
        for (int64_t i = 0; i < B * T * 3 * H * D; i++)
            assert_true(packed[i] == (i / H / D % 3 == 1 && i % D < 2 * PAIRS ? 2.0f : 1.0f));
    }
    call_initialize(&c); /* an axis of one element has no stride, so this is in place */
    c.x.shape[0] = c.out.shape[0] = c.table.shape[0] = 1;
    c.x.data = c.out_data;
    c.x.stride[0] = 77;
    assert_int_equal(call_run(&c), ATTN_OK);
}

/** Marks the elements of a view, or counts those that are marked. */
static int visit(const attn_tensor *t, const float *origin, unsigned char *marks, int mark)
{
    int met = 0;
    for (int64_t i = 0; i < t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]; i++) {
        const int64_t c = i % t->shape[3], token = i / t->shape[3] % t->shape[2];
        const int64_t h = i / t->shape[3] / t->shape[2] % t->shape[1], b = i / t->shape[3] / t->shape[2] / t->shape[1];
        const int64_t at = (const float *)t->data - origin + b * t->stride[0] + h * t->stride[1] +
                           token * t->stride[2] + c * t->stride[3];
        met += marks[at];
        marks[at] |= (unsigned char)mark;
    }
    return met;
}

/** Two views of one layout and any distance, against a look at every element. */
static void test_rope_overlap_is_exact(void **state)
{
    (void)state;
    enum { SIZE = 4096 };
    static float memory[SIZE], angles[4 * 8];
    static unsigned char marks[SIZE];
    int refused = 0, done = 0;
    for (uint64_t n = 0; n < 20000; n++) {
        struct rng rng = rng_for_case(43, n);
        attn_tensor x = {memory + SIZE / 2, ATTN_F32, {1, 1, 1, rng_range(&rng, 1, 4)}, {1, 1, 1, 1}}, out;
        int64_t reach = x.shape[3];
        const int64_t first = rng_range(&rng, 0, 2);
        for (int i = 0; i < 3; i++) { /* axes 0 to 2 in any order, each beyond the ones before it */
            const int64_t axis = (first + i) % 3;
            x.shape[axis] = rng_range(&rng, 1, 4);
            x.stride[axis] = reach + rng_range(&rng, 0, reach);
            reach = x.stride[axis] * (x.shape[axis] - 1) + reach;
            if (rng_percent(&rng, 30))
                x.stride[axis] = -x.stride[axis];
        }
        if (reach > SIZE / 4)
            continue;
        out = x;
        out.data = memory + SIZE / 2 + rng_range(&rng, -reach, reach);
        attn_tensor rows = attn_bhtd(angles, 1, 1, x.shape[2], x.shape[3] / 2 * 2);
        memset(marks, 0, sizeof marks);
        visit(&x, memory, marks, 1);
        const int met = visit(&out, memory, marks, 0);
        const attn_status expected = met && out.data != x.data ? ATTN_INVALID_ARGUMENT : ATTN_OK;
        assert_int_equal(attn_rope(&x, &rows, ATTN_ROPE_INTERLEAVED, &out, 1), expected);
        *(expected ? &refused : &done) += 1;
    }
    assert_true(refused > 1000 && done > 1000);
}

static void test_rope_of_nothing(void **state)
{
    (void)state;
    static struct call c;
    for (int axis = 0; axis < 4; axis++) {
        call_initialize(&c);
        c.x.shape[axis] = c.out.shape[axis] = c.table.shape[axis] = 0;
        c.x.data = c.out.data = c.table.data = NULL;
        assert_int_equal(call_run(&c), ATTN_OK);
    }
    call_initialize(&c); /* no pairs: a copy */
    c.table.shape[3] = 0;
    c.table.data = NULL;
    assert_int_equal(call_run(&c), ATTN_OK);
    assert_memory_equal(c.x_data, c.out_data, sizeof c.x_data);
}

/* ------------------------------------------------------------------- table -- */

static float table[4 * 2 * 8];
static int64_t positions[4];
static attn_rope_config config;
static double short_factor[8], long_factor[8];

static void config_initialize(attn_rope_scaling scaling)
{
    for (int i = 0; i < 8; i++)
        short_factor[i] = long_factor[i] = 1 + i;
    memset(table, CANARY, sizeof table);
    memcpy(positions, (const int64_t[]){0, 1, -2, 3}, sizeof positions);
    config = attn_rope_config_default();
    config.pairs = 8;
    config.scaling = scaling;
    config.factor = scaling == ATTN_ROPE_PLAIN ? 0 : 4;
    config.original_length = scaling >= ATTN_ROPE_YARN ? 100 : 0;
    config.short_factor = scaling == ATTN_ROPE_LONGROPE ? short_factor : NULL;
    config.long_factor = scaling == ATTN_ROPE_LONGROPE ? long_factor : NULL;
}

static void table_refuses(const attn_rope_config *c, const int64_t *p, int64_t num, float *to, attn_status expected,
                          const char *words)
{
    const attn_status status = attn_rope_table(c, p, num, to);
    const int untouched = all_canary(table, sizeof table);
    if (status != expected || !holds_words(attn_last_error(), words) || !untouched)
        fail_msg("status %d \"%s\"; expected %d and the words %s%s", (int)status, attn_last_error(), (int)expected,
                 words, untouched ? "" : "; table WAS WRITTEN");
}

/** A valid config of a scaling with one field that makes it wrong. */
#define CONFIG_REFUSES(kind, field, value, words)                                                                      \
    do {                                                                                                               \
        config_initialize(ATTN_ROPE_##kind);                                                                           \
        config.field = value;                                                                                          \
        table_refuses(&config, positions, 4, table, ATTN_INVALID_ARGUMENT, words);                                     \
    } while (0)

/** A field that any number from lowest on is good for, and whose default has 0. */
#define NUMBER_REFUSES(kind, field)                                                                                    \
    do {                                                                                                               \
        CONFIG_REFUSES(kind, field, (double)NAN, "config." #field "|nan");                                             \
        CONFIG_REFUSES(kind, field, (double)INFINITY, "config." #field "|inf");                                        \
        CONFIG_REFUSES(kind, field, -1.5, "config." #field "|-1.5");                                                   \
    } while (0)

static void test_config_refuses(void **state)
{
    (void)state;
    CONFIG_REFUSES(PLAIN, struct_size, 0, "config.struct_size is 0|_default()");
    CONFIG_REFUSES(PLAIN, struct_size, 87, "config.struct_size is 87; expected 88 to ");
    CONFIG_REFUSES(PLAIN, pairs, 0, "config.pairs|0|1 to 2048");
    CONFIG_REFUSES(PLAIN, pairs, -1, "config.pairs|-1|1 to 2048");
    CONFIG_REFUSES(PLAIN, pairs, 2049, "config.pairs|2049|1 to 2048");
    CONFIG_REFUSES(NTK, pairs, 1, "config.pairs|1|2 or more|NTK");
    NUMBER_REFUSES(PLAIN, base);
    CONFIG_REFUSES(PLAIN, base, 0.5, "config.base is 0.5; expected a number from 1, or 0 for 10000");
    CONFIG_REFUSES(YARN, base, 1, "config.base|1|more than 1|YARN");
    CONFIG_REFUSES(PLAIN, scaling, (attn_rope_scaling)6, "config.scaling|6|attn_rope_scaling");
    CONFIG_REFUSES(PLAIN, scaling, (attn_rope_scaling)-1, "config.scaling|-1");
    NUMBER_REFUSES(LINEAR, factor);
    NUMBER_REFUSES(NTK, factor);
    NUMBER_REFUSES(YARN, factor);
    NUMBER_REFUSES(LLAMA3, factor);
    CONFIG_REFUSES(LINEAR, factor, 0, "config.factor|0|LINEAR");
    CONFIG_REFUSES(NTK, factor, 0.99, "config.factor is 0.99; expected a number from 1 for ATTN_ROPE_NTK");
    CONFIG_REFUSES(NTK, factor, 1e306,
                   "config.factor is 1e+306; expected one by which a base of 10000 can be stretched in double");
    CONFIG_REFUSES(YARN, original_length, 0, "config.original_length|0|1 or more|YARN");
    CONFIG_REFUSES(LLAMA3, original_length, -5, "config.original_length|-5|1 or more|LLAMA3");
    NUMBER_REFUSES(YARN, beta_fast);
    NUMBER_REFUSES(YARN, beta_slow);
    CONFIG_REFUSES(YARN, beta_fast, 0.5, "config.beta_fast|0.5|beta_slow|1");
    CONFIG_REFUSES(YARN, beta_slow, 33, "config.beta_fast|32|beta_slow|33");
    NUMBER_REFUSES(YARN, attention_factor);
    CONFIG_REFUSES(YARN, attention_factor, 1e39, "config.attention_factor|1e+39|float");
    CONFIG_REFUSES(YARN, attention_factor, 1e-40, "config.attention_factor|1e-40|float");
    NUMBER_REFUSES(LLAMA3, low_freq_factor);
    NUMBER_REFUSES(LLAMA3, high_freq_factor);
    CONFIG_REFUSES(LLAMA3, low_freq_factor, 4, "config.high_freq_factor|4|low_freq_factor");
    CONFIG_REFUSES(LLAMA3, high_freq_factor, 0.5, "config.high_freq_factor|0.5|low_freq_factor|1");
    NUMBER_REFUSES(LONGROPE, factor);
    NUMBER_REFUSES(LONGROPE, attention_factor);
    CONFIG_REFUSES(LONGROPE, factor, 0.5, "config.factor|0.5|LONGROPE");
    CONFIG_REFUSES(LONGROPE, original_length, 0, "config.original_length|0|1 or more|LONGROPE");
    CONFIG_REFUSES(LONGROPE, original_length, 1, "config.original_length|1|2 or more|without attention_factor");
    CONFIG_REFUSES(LONGROPE, short_factor, NULL, "config.short_factor|NULL|8 divisors");
    CONFIG_REFUSES(LONGROPE, long_factor, NULL,
                   "config.long_factor is NULL; expected 8 divisors for ATTN_ROPE_LONGROPE");
    CONFIG_REFUSES(LONGROPE, length, -1, "config.length|-1|0 or more");
    static const double wrong[] = {0, -1, (double)NAN, (double)INFINITY, 1e39, 1e-39};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        config_initialize(ATTN_ROPE_LONGROPE);
        long_factor[7] = wrong[i];
        table_refuses(&config, positions, 4, table, ATTN_INVALID_ARGUMENT,
                      "config.long_factor[7] is |; expected a positive number that a float can hold");
    }
}

/** A field that the scaling does not look at is not set in vain. */
static void test_config_refuses_unused(void **state)
{
    (void)state;
    CONFIG_REFUSES(PLAIN, factor, 1, "config.factor is 1; expected 0, as ATTN_ROPE_PLAIN does not use it");
    CONFIG_REFUSES(PLAIN, factor, (double)NAN, "config.factor|nan|PLAIN does not use it");
    CONFIG_REFUSES(PLAIN, original_length, 4096, "config.original_length|4096|PLAIN");
    CONFIG_REFUSES(LINEAR, original_length, 4096, "config.original_length|4096|LINEAR");
    CONFIG_REFUSES(NTK, original_length, 4096, "config.original_length|4096|NTK");
    CONFIG_REFUSES(PLAIN, beta_fast, 32, "config.beta_fast|32|PLAIN");
    CONFIG_REFUSES(LINEAR, beta_slow, 1, "config.beta_slow|1|LINEAR");
    CONFIG_REFUSES(NTK, attention_factor, 1, "config.attention_factor|1|NTK");
    CONFIG_REFUSES(LLAMA3, beta_fast, 32, "config.beta_fast|32|LLAMA3");
    CONFIG_REFUSES(LLAMA3, beta_slow, 1, "config.beta_slow|1|LLAMA3");
    CONFIG_REFUSES(LLAMA3, attention_factor, 2, "config.attention_factor|2|LLAMA3");
    CONFIG_REFUSES(YARN, low_freq_factor, 1, "config.low_freq_factor|1|YARN");
    CONFIG_REFUSES(YARN, high_freq_factor, 4, "config.high_freq_factor|4|YARN");
    CONFIG_REFUSES(PLAIN, low_freq_factor, 1, "config.low_freq_factor|1|PLAIN");
    CONFIG_REFUSES(LLAMA3, no_truncation, 1, "config.no_truncation|1|LLAMA3");
    CONFIG_REFUSES(LONGROPE, beta_fast, 32, "config.beta_fast|32|LONGROPE");
    CONFIG_REFUSES(YARN, length, 5000, "config.length|5000|YARN");
    CONFIG_REFUSES(YARN, short_factor, short_factor, "config.short_factor is set; expected NULL|YARN");
    CONFIG_REFUSES(PLAIN, long_factor, long_factor,
                   "config.long_factor is set; expected NULL, as ATTN_ROPE_PLAIN does not use it");
}

static void test_table_refuses(void **state)
{
    (void)state;
    config_initialize(ATTN_ROPE_PLAIN);
    table_refuses(NULL, positions, 4, table, ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_rope_config");
    table_refuses(&config, positions, -1, table, ATTN_INVALID_ARGUMENT, "num is -1; expected 0 or more");
    table_refuses(&config, NULL, INT64_MAX / 32, table, ATTN_SIZE_OVERFLOW,
                  "num is 288230376151711743; expected fewer than 2^63 bytes for rows of 8 pairs");
    table_refuses(&config, positions, 4, NULL, ATTN_INVALID_ARGUMENT, "table is NULL; expected room for 256 bytes");
    table_refuses(&config, positions, 1, (float *)(void *)((char *)table + 2), ATTN_INVALID_ARGUMENT,
                  "table is |; expected an address aligned to 4 bytes");
    positions[2] = ((int64_t)1 << 53) + 1;
    table_refuses(&config, positions, 4, table, ATTN_INVALID_ARGUMENT,
                  "positions[2] is 9007199254740993; expected -2^53");
    positions[2] = INT64_MIN;
    table_refuses(&config, positions, 4, table, ATTN_INVALID_ARGUMENT, "positions[2]|-9223372036854775808|2^53");
    positions[2] = -((int64_t)1 << 53);
    assert_int_equal(attn_rope_table(&config, positions, 4, table), ATTN_OK);
    assert_int_equal(attn_rope_table(&config, NULL, 0, NULL), ATTN_OK);
    assert_int_equal(attn_rope_table(&config, positions, 0, NULL), ATTN_OK);
}

/** A program that was compiled with a later header, in which the struct has grown. */
static void test_newer_config(void **state)
{
    (void)state;
    union {
        attn_rope_config config;
        unsigned char bytes[sizeof(attn_rope_config) + 24];
    } newer;
    memset(&newer, 0, sizeof newer);
    config_initialize(ATTN_ROPE_YARN);
    newer.config = config;
    newer.config.struct_size = sizeof newer;
    newer.bytes[sizeof newer - 1] = 1;
    table_refuses(&newer.config, positions, 4, table, ATTN_UNSUPPORTED,
                  "config.struct_size is 144 and a field behind the 120 bytes that version 0.1.0 knows is set");
    newer.bytes[sizeof newer - 1] = 0;
    assert_int_equal(attn_rope_table(&newer.config, positions, 4, table), ATTN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_refuses),          cmocka_unit_test(test_rope_refuses_overlap),
        cmocka_unit_test(test_rope_between_rows),     cmocka_unit_test(test_rope_overlap_is_exact),
        cmocka_unit_test(test_rope_of_nothing),       cmocka_unit_test(test_config_refuses),
        cmocka_unit_test(test_config_refuses_unused), cmocka_unit_test(test_table_refuses),
        cmocka_unit_test(test_newer_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
