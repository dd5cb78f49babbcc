/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block-sparse patterns: small ones written out by hand, random ones against
 * the definition block by block, the choice of random blocks, and arguments.
 */
#include "fixture.h"

#include "attn/patterns.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** Whether a pattern is well formed: a compressed sparse row matrix of the given size with rising columns. */
static void check_form(const attn_pattern *pattern, int64_t size, int64_t heads, int64_t rows, int64_t columns)
{
    const attn_block_mask *m = attn_pattern_block_mask(pattern);
    assert_non_null(m);
    assert_int_equal(m->size, size);
    assert_int_equal(m->heads, heads);
    assert_int_equal(m->rows, rows);
    assert_int_equal(m->offsets[0], 0);
    for (int64_t n = 0; n < heads * rows; n++) {
        assert_true(m->offsets[n + 1] >= m->offsets[n]);
        for (int64_t i = m->offsets[n]; i < m->offsets[n + 1]; i++) {
            assert_in_range(m->columns[i], 0, columns - 1);
            assert_true(i == m->offsets[n] || m->columns[i] > m->columns[i - 1]);
        }
    }
    const double blocks = (double)(heads * rows) * (double)columns, listed = (double)m->offsets[heads * rows];
    assert_true(attn_pattern_density(pattern) == (blocks > 0 ? listed / blocks : 0));
}

static int lists(const attn_pattern *pattern, int64_t head, int64_t row, int64_t column)
{
    const attn_block_mask *m = attn_pattern_block_mask(pattern);
    const int64_t n = head * m->rows + row;
    for (int64_t i = m->offsets[n]; i < m->offsets[n + 1]; i++)
        if (m->columns[i] == column)
            return 1;
    return 0;
}

/** Compares one head with rows of text, '#' being a listed block, and destroys the pattern. */
static void check_picture(attn_pattern *pattern, int64_t head, const char *const *picture, int64_t rows)
{
    assert_non_null(pattern);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; picture[r][c]; c++)
            if (lists(pattern, head, r, c) != (picture[r][c] == '#'))
                fail_msg("block (%d, %d) is wrong", (int)r, (int)c);
    const attn_block_mask *m = attn_pattern_block_mask(pattern);
    check_form(pattern, m->size, m->heads, rows, (int64_t)strlen(picture[0]));
    attn_pattern_destroy(pattern);
}

#define PICTURE(...)                                                                                                   \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)

static attn_pattern *longformer(int64_t tq, int64_t tk, attn_longformer options)
{
    attn_pattern *pattern = NULL;
    assert_int_equal(attn_pattern_longformer(&pattern, tq, tk, 16, &options), ATTN_OK);
    return pattern;
}

static attn_pattern *bigbird(int64_t tq, int64_t tk, attn_bigbird options)
{
    attn_pattern *pattern = NULL;
    assert_int_equal(attn_pattern_bigbird(&pattern, tq, tk, 16, &options), ATTN_OK);
    return pattern;
}

static attn_pattern *strided(int64_t tq, int64_t tk, attn_strided options)
{
    attn_pattern *pattern = NULL;
    assert_int_equal(attn_pattern_strided(&pattern, tq, tk, 16, &options), ATTN_OK);
    return pattern;
}

static void test_longformer_by_hand(void **state)
{
    (void)state;
    check_picture(longformer(96, 96, (attn_longformer){.window = 1, .global = 1}), 0,
                  PICTURE("######", "###...", "####..", "#.###.", "#..###", "#...##"));
    check_picture(longformer(96, 96, (attn_longformer){.window = 1, .global = 1, .causal = 1}), 0,
                  PICTURE("#.....", "##....", "###...", "#.##..", "#..##.", "#...##"));
    check_picture(longformer(96, 96, (attn_longformer){.window = 0, .global = 2}), 0,
                  PICTURE("######", "######", "###...", "##.#..", "##..#.", "##...#"));
    /* 81 tokens need six blocks, 65 five. */
    check_picture(longformer(81, 65, (attn_longformer){.window = 0}), 0,
                  PICTURE("#....", ".#...", "..#..", "...#.", "....#", "....."));
    check_picture(longformer(80, 32, (attn_longformer){.window = 1}), 0, PICTURE("##", "##", ".#", "..", ".."));
    check_picture(longformer(80, 32, (attn_longformer){.window = 1, .causal = 1}), 0,
                  PICTURE("#.", "##", ".#", "..", ".."));
    check_picture(longformer(48, 80, (attn_longformer){.window = 1, .global = 1}), 0,
                  PICTURE("#####", "###..", "####."));
    check_picture(longformer(48, 80, (attn_longformer){.window = INT64_MAX, .causal = -1}), 0,
                  PICTURE("#....", "##...", "###.."));
    check_picture(longformer(32, 48, (attn_longformer){.global = INT64_MAX}), 0, PICTURE("###", "###"));
}

static void test_strided_by_hand(void **state)
{
    (void)state;
    check_picture(strided(112, 112, (attn_strided){.stride = 3}), 0,
                  PICTURE("####..#", "#####..", "######.", "#######", ".######", "..#####", "#..####"));
    check_picture(strided(112, 112, (attn_strided){.stride = 3, .causal = 1}), 0,
                  PICTURE("#......", "##.....", "###....", "####...", ".####..", "..####.", "#..####"));
    check_picture(strided(64, 64, (attn_strided){.stride = 1}), 0, PICTURE("####", "####", "####", "####"));
    check_picture(strided(64, 64, (attn_strided){.stride = INT64_MAX, .causal = 1}), 0,
                  PICTURE("#...", "##..", "###.", "####"));
    /* Rows behind the last column still see those a multiple of the stride before them. */
    check_picture(strided(96, 32, (attn_strided){.stride = 2}), 0, PICTURE("##", "##", "##", ".#", "#.", ".#"));
}

static void test_default_stride(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, stride;
    } cases[] = {{0, 1}, {1, 1}, {2, 1}, {3, 2}, {6, 2}, {7, 3}, {9, 3}, {12, 3}, {13, 4}, {100, 10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t tokens = 16 * cases[i].rows;
        attn_pattern *chosen = strided(tokens, tokens, (attn_strided){.stride = 0});
        attn_pattern *given = strided(tokens, tokens, (attn_strided){.stride = cases[i].stride});
        const attn_block_mask *a = attn_pattern_block_mask(chosen), *b = attn_pattern_block_mask(given);
        assert_memory_equal(a->offsets, b->offsets, (size_t)(cases[i].rows + 1) * sizeof *a->offsets);
        assert_memory_equal(a->columns, b->columns, (size_t)a->offsets[a->rows] * sizeof *a->columns);
        attn_pattern_destroy(chosen);
        attn_pattern_destroy(given);
    }
}

/** A seed means the same blocks for ever. These were computed by another program, from the text in src/api/patterns.c.
 */
static void test_bigbird_by_hand(void **state)
{
    (void)state;
    check_picture(
        bigbird(128, 128, (attn_bigbird){.window = 1, .global = 1, .random = 2, .seed = 1}), 0,
        PICTURE("########", "####...#", "####.#.#", "######..", "######..", "##.####.", "#..#####", "#..#.###"));
    check_picture(
        bigbird(128, 128, (attn_bigbird){.global = 1, .random = 2, .seed = 2024, .heads = 4, .causal = 1}), 3,
        PICTURE("#.......", "##......", "###.....", "####....", "#.###...", "#.#.##..", "##...##.", "###....#"));
    /* Where there are fewer candidates, all are taken. */
    check_picture(bigbird(64, 64, (attn_bigbird){.random = 3, .seed = 5}), 0, PICTURE("####", "####", "####", "####"));
    check_picture(bigbird(64, 64, (attn_bigbird){.random = INT64_MAX, .causal = 1}), 0,
                  PICTURE("#...", "##..", "###.", "####"));
}

static int64_t distance(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

/** Random sizes and options, against the definitions block by block. */
static void test_definitions(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 3000; n++) {
        struct rng rng = rng_for_case(21, n);
        const int64_t size = RNG_PICK(&rng, 16, 32, 48, 128);
        const int64_t tq = rng_range(&rng, 0, 20 * size), tk = rng_range(&rng, 0, 20 * size);
        const int64_t rows = (tq + size - 1) / size, columns = (tk + size - 1) / size;
        const int64_t window = rng_range(&rng, 0, 6), global = rng_range(&rng, 0, 4), random = rng_range(&rng, 0, 6);
        const int64_t stride = rng_range(&rng, 1, 8), heads = rng_range(&rng, 0, 3);
        const int causal = (int)rng_range(&rng, 0, 1);
        attn_pattern *l, *b, *s;
        assert_int_equal(attn_pattern_longformer(&l, tq, tk, size, &(attn_longformer){window, global, causal}),
                         ATTN_OK);
        assert_int_equal(
            attn_pattern_bigbird(&b, tq, tk, size, &(attn_bigbird){window, global, random, n, heads, causal}), ATTN_OK);
        assert_int_equal(attn_pattern_strided(&s, tq, tk, size, &(attn_strided){stride, causal}), ATTN_OK);
        const int64_t copies = heads > 1 ? heads : 1;
        check_form(l, size, 1, rows, columns);
        check_form(b, size, copies, rows, columns);
        check_form(s, size, 1, rows, columns);
        for (int64_t r = 0; r < rows; r++) {
            int64_t others[3] = {0}, chosen[3] = {0};
            for (int64_t c = 0; c < columns; c++) {
                const int seen = !causal || c <= r;
                const int fixed = seen && (distance(r, c) <= window || r < global || c < global);
                assert_int_equal(lists(l, 0, r, c), fixed);
                assert_int_equal(lists(s, 0, r, c), seen && (distance(r, c) < stride || distance(r, c) % stride == 0));
                for (int64_t h = 0; h < copies; h++) {
                    const int listed = lists(b, h, r, c);
                    assert_true(listed || !fixed);
                    assert_true(seen || !listed);
                    others[h] += seen && !fixed;
                    chosen[h] += listed && !fixed;
                }
            }
            for (int64_t h = 0; h < copies; h++)
                assert_int_equal(chosen[h], others[h] < random ? others[h] : random);
        }
        attn_pattern_destroy(l);
        attn_pattern_destroy(b);
        attn_pattern_destroy(s);
    }
}

static int same_head(const attn_pattern *a, int64_t i, const attn_pattern *b, int64_t j)
{
    const attn_block_mask *m = attn_pattern_block_mask(a), *n = attn_pattern_block_mask(b);
    const int64_t from = m->offsets[i * m->rows], other = n->offsets[j * n->rows];
    const int64_t count = m->offsets[(i + 1) * m->rows] - from;
    assert_int_equal(count, n->offsets[(j + 1) * n->rows] - other); /* whatever was chosen */
    return memcmp(m->columns + from, n->columns + other, (size_t)count * sizeof *m->columns) == 0;
}

static void test_seeds_and_heads(void **state)
{
    (void)state;
    const attn_bigbird options = {.window = 1, .global = 1, .random = 3, .seed = 9, .heads = 3};
    attn_bigbird one = options, another = options;
    one.heads = 0;
    another.seed = 10;
    attn_pattern *p = bigbird(640, 640, options), *again = bigbird(640, 640, options), *single = bigbird(640, 640, one);
    attn_pattern *seeded = bigbird(640, 640, another);
    for (int64_t h = 0; h < 3; h++) {
        assert_true(same_head(p, h, again, h));
        assert_false(same_head(p, h, seeded, h));
        assert_false(same_head(p, h, p, (h + 1) % 3));
    }
    assert_int_equal(attn_pattern_block_mask(single)->heads, 1);
    assert_true(same_head(p, 0, single, 0));
    attn_pattern_destroy(p);
    attn_pattern_destroy(again);
    attn_pattern_destroy(single);
    attn_pattern_destroy(seeded);
}

/** Each candidate is chosen about as often as the others: 3 of the 9 others of each row, in 3000 heads. */
static void test_choice_is_even(void **state)
{
    (void)state;
    enum { HEADS = 3000, BLOCKS = 10, CHOSEN = 3 };
    static int times[BLOCKS][BLOCKS];
    attn_pattern *p = bigbird(16 * BLOCKS, 16 * BLOCKS, (attn_bigbird){.random = CHOSEN, .heads = HEADS, .seed = 4});
    for (int64_t h = 0; h < HEADS; h++)
        for (int64_t r = 0; r < BLOCKS; r++)
            for (int64_t c = 0; c < BLOCKS; c++)
                times[r][c] += lists(p, h, r, c);
    const double share = (double)CHOSEN / (BLOCKS - 1), deviation = sqrt(HEADS * share * (1 - share));
    for (int r = 0; r < BLOCKS; r++)
        for (int c = 0; c < BLOCKS; c++)
            assert_true(r == c ? times[r][c] == HEADS : fabs(times[r][c] - HEADS * share) < 5 * deviation);
    attn_pattern_destroy(p);
}

/** More columns than one word of the map has bits, and all of its borders. */
static void test_wide_choice(void **state)
{
    (void)state;
    for (int64_t columns = 120; columns < 200; columns++) {
        attn_pattern *p = bigbird(160, 16 * columns, (attn_bigbird){.global = 1, .random = 100, .seed = 3});
        check_form(p, 16, 1, 10, columns);
        const attn_block_mask *m = attn_pattern_block_mask(p);
        for (int64_t r = 1; r < 10; r++)
            assert_int_equal(m->offsets[r + 1] - m->offsets[r], 102);
        attn_pattern_destroy(p);
    }
}

static void test_empty(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{0, 0}, {0, 100}, {100, 0}};
    for (size_t i = 0; i < 3; i++) {
        attn_pattern *p = bigbird(sizes[i][0], sizes[i][1], (attn_bigbird){.window = 2, .global = 3, .random = 2});
        check_form(p, 16, 1, (sizes[i][0] + 15) / 16, 0);
        assert_true(attn_pattern_density(p) == 0);
        attn_pattern_destroy(p);
    }
    attn_pattern_destroy(NULL);
}

/** Checks a status, the words of its sentence, and that the pointer was cleared. */
static void fails(attn_status got, attn_status expected, const char *words, const attn_pattern *pattern)
{
    assert_int_equal(got, expected);
    if (!holds_words(attn_last_error(), words))
        fail_msg("\"%s\" does not hold %s", attn_last_error(), words);
    assert_null(pattern);
}

/** The call, which leaves a pointer in p. */
#define FAILS(status, words, call)                                                                                     \
    do {                                                                                                               \
        p = (attn_pattern *)(uintptr_t)64;                                                                             \
        const attn_status got = (call);                                                                                \
        fails(got, status, words, p);                                                                                  \
    } while (0)

static void test_wrong_arguments(void **state)
{
    (void)state;
    attn_pattern *p;
    const attn_longformer l = {.window = 1};
    const attn_bigbird b = {.window = 1};
    const attn_strided s = {.stride = 1};
    fails(attn_pattern_longformer(NULL, 16, 16, 16, &l), ATTN_INVALID_ARGUMENT,
          "pattern is NULL; expected the address of a pointer", NULL);
    fails(attn_pattern_bigbird(NULL, 16, 16, 16, &b), ATTN_INVALID_ARGUMENT,
          "pattern is NULL; expected the address of a pointer", NULL);
    fails(attn_pattern_strided(NULL, 16, 16, 16, &s), ATTN_INVALID_ARGUMENT,
          "pattern is NULL; expected the address of a pointer", NULL);
    FAILS(ATTN_INVALID_ARGUMENT, "options|NULL|attn_longformer", attn_pattern_longformer(&p, 16, 16, 16, NULL));
    FAILS(ATTN_INVALID_ARGUMENT, "options is NULL; expected an attn_bigbird",
          attn_pattern_bigbird(&p, 16, 16, 16, NULL));
    FAILS(ATTN_INVALID_ARGUMENT, "options|NULL|attn_strided", attn_pattern_strided(&p, 16, 16, 16, NULL));
    FAILS(ATTN_INVALID_ARGUMENT, "tq is -1; expected 0 or more", attn_pattern_longformer(&p, -1, 16, 16, &l));
    FAILS(ATTN_INVALID_ARGUMENT, "tk is -7; expected 0 or more", attn_pattern_bigbird(&p, 16, -7, 16, &b));
    static const int64_t bad_sizes[] = {0, -16, 1, 8, 24, 100, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof bad_sizes / sizeof *bad_sizes; i++)
        FAILS(ATTN_INVALID_ARGUMENT, "size|multiple of 16", attn_pattern_strided(&p, 16, 16, bad_sizes[i], &s));
    FAILS(ATTN_INVALID_ARGUMENT, "options.window|-1",
          attn_pattern_longformer(&p, 16, 16, 16, &(attn_longformer){.window = -1}));
    FAILS(ATTN_INVALID_ARGUMENT, "options.global|-2",
          attn_pattern_longformer(&p, 16, 16, 16, &(attn_longformer){.global = -2}));
    FAILS(ATTN_INVALID_ARGUMENT, "options.window|-3",
          attn_pattern_bigbird(&p, 16, 16, 16, &(attn_bigbird){.window = -3}));
    FAILS(ATTN_INVALID_ARGUMENT, "options.global|-4",
          attn_pattern_bigbird(&p, 16, 16, 16, &(attn_bigbird){.global = -4}));
    FAILS(ATTN_INVALID_ARGUMENT, "options.random|-5",
          attn_pattern_bigbird(&p, 16, 16, 16, &(attn_bigbird){.random = -5}));
    FAILS(ATTN_INVALID_ARGUMENT, "options.heads is -6; expected 0 or more",
          attn_pattern_bigbird(&p, 16, 16, 16, &(attn_bigbird){.heads = -6}));
    FAILS(ATTN_INVALID_ARGUMENT, "options.stride|-7",
          attn_pattern_strided(&p, 16, 16, 16, &(attn_strided){.stride = -7}));
}

static void test_overflow(void **state)
{
    (void)state;
    attn_pattern *p;
    const attn_longformer l = {.window = 1};
    FAILS(ATTN_SIZE_OVERFLOW, "tq is 9223372036854775807, which makes 576460752303423488 block rows",
          attn_pattern_longformer(&p, INT64_MAX, 16, 16, &l));
    FAILS(ATTN_SIZE_OVERFLOW, "tk is 34359738368, which makes 2147483648 block columns",
          attn_pattern_longformer(&p, 16, (int64_t)1 << 35, 16, &l));
    /* The largest of a size that is a power of two: one block. */
    assert_int_equal(attn_pattern_longformer(&p, INT64_MAX, INT64_MAX, (int64_t)1 << 62, &l), ATTN_OK);
    check_form(p, (int64_t)1 << 62, 1, 2, 2);
    attn_pattern_destroy(p);
    /* Heads times rows, offsets in bytes, heads times blocks, blocks in bytes, and the sum of both. */
    static const struct {
        int64_t heads, tokens;
    } cases[] = {{INT64_MAX, 32},
                 {(int64_t)1 << 60, 16},
                 {(int64_t)1 << 57, 16 * 16},
                 {(int64_t)1 << 56, 16 * 16},
                 {((int64_t)1 << 59) + ((int64_t)1 << 58), 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        FAILS(ATTN_SIZE_OVERFLOW, " heads of | block rows list | blocks each; expected fewer than 2^63 bytes in all",
              attn_pattern_bigbird(&p, cases[i].tokens, cases[i].tokens, 16,
                                   &(attn_bigbird){.window = INT64_MAX, .heads = cases[i].heads}));
}

static void test_alibi_slopes(void **state)
{
    (void)state;
    float slopes[64];
    /* The paper's example: 1/2, 1/4, ... 1/256 for 8 heads; and for 16, 1/2^0.5, 1/2^1, ... 1/2^8. */
    assert_int_equal(attn_alibi_slopes(slopes, 8), ATTN_OK);
    for (int i = 0; i < 8; i++)
        assert_true(slopes[i] == ldexpf(1, -(i + 1)));
    assert_int_equal(attn_alibi_slopes(slopes, 16), ATTN_OK);
    for (int i = 0; i < 16; i++)
        assert_true(slopes[i] == (float)pow(0.5, 0.5 * (i + 1)));
    /* 12: those of 8, then every other one of 16. */
    static const double twelve[] = {0.5,
                                    0.25,
                                    0.125,
                                    0.0625,
                                    0.03125,
                                    0.015625,
                                    0.0078125,
                                    0.00390625,
                                    0.70710678118654752,
                                    0.35355339059327376,
                                    0.17677669529663688,
                                    0.08838834764831844};
    assert_int_equal(attn_alibi_slopes(slopes, 12), ATTN_OK);
    for (int i = 0; i < 12; i++)
        assert_true(slopes[i] == (float)twelve[i]);
    assert_int_equal(attn_alibi_slopes(slopes, 1), ATTN_OK);
    assert_true(slopes[0] == 0x1p-8f);
    assert_int_equal(attn_alibi_slopes(slopes, 3), ATTN_OK);
    assert_true(slopes[0] == 0x1p-4f && slopes[1] == 0x1p-8f && slopes[2] == 0x1p-2f);
    assert_int_equal(attn_alibi_slopes(slopes, 6), ATTN_OK);
    static const float six[] = {0x1p-2f, 0x1p-4f, 0x1p-6f, 0x1p-8f, 0x1p-1f, 0x1p-3f};
    assert_memory_equal(slopes, six, sizeof six);

    slopes[0] = 7;
    assert_int_equal(attn_alibi_slopes(slopes, 0), ATTN_OK);
    assert_int_equal(attn_alibi_slopes(NULL, 0), ATTN_OK);
    fails(attn_alibi_slopes(slopes, -1), ATTN_INVALID_ARGUMENT, "heads is -1; expected 0 or more", NULL);
    fails(attn_alibi_slopes(NULL, 4), ATTN_INVALID_ARGUMENT, "slopes is NULL; expected room for 4 slopes", NULL);
    assert_true(slopes[0] == 7);
}

static void test_no_pattern(void **state)
{
    (void)state;
    assert_true(attn_pattern_density(NULL) == 0);
    assert_null(attn_pattern_block_mask(NULL));
    attn_pattern_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longformer_by_hand),
        cmocka_unit_test(test_strided_by_hand),
        cmocka_unit_test(test_default_stride),
        cmocka_unit_test(test_bigbird_by_hand),
        cmocka_unit_test(test_definitions),
        cmocka_unit_test(test_seeds_and_heads),
        cmocka_unit_test(test_choice_is_even),
        cmocka_unit_test(test_wide_choice),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_alibi_slopes),
        cmocka_unit_test(test_no_pattern),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
