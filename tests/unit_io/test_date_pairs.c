/* SPDX-License-Identifier: Apache-2.0 */
/* What the translator's training reads, and which pairs its steps learn from. */
#include "cmocka_all.h"

#include <attn/attn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "curriculum.h"
#include "date_pairs.h"
#include "file.h"

enum { MOST_DATE = 10, MOST_TEXT = 12 };
static char path[] = "/tmp/attn-date-pairs-XXXXXX";

static int make_file(void **state)
{
    (void)state;
    const int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static attn_status read_text(struct date_pairs *pairs, const char *text)
{
    assert_int_equal(file_write(path, &(struct file_part){text, strlen(text)}, 1), ATTN_OK);
    return date_pairs_read(pairs, path, MOST_DATE, MOST_TEXT);
}

static void expect_ids(const int32_t *ids, const int32_t *expected, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(ids[i], expected[i]);
}

/* Tokens of two pairs: targets begin with <bos>, labels end with <eos>, and nothing stands between the pairs. */
static void joins_pairs(void **state)
{
    (void)state;
    struct date_pairs pairs = {0};
    struct alphabet alphabet = {0};
    struct pair_batch batch = {0};
    bool occurs[256] = {false};
    assert_int_equal(read_text(&pairs, "12\tb a\n3\tab\r\n"), ATTN_OK);
    assert_int_equal(pairs.longest_date, 2);
    assert_int_equal(pairs.longest_text, 3);
    date_pairs_mark(&pairs, occurs);
    assert_int_equal(alphabet_make(&alphabet, occurs), ATTN_OK);
    assert_int_equal(alphabet.names.count, 9); /* three special ones; blank, 1, 2, 3, a, b */
    assert_string_equal(alphabet.names.text[3], " ");
    assert_int_equal(pair_batch_create(&batch, 2, pairs.longest_date, pairs.longest_text), ATTN_OK);
    assert_int_equal(pair_batch_fill(&batch, &pairs, &alphabet, (const int64_t[]){1, 0}, 2), ATTN_OK);
    assert_int_equal(batch.pairs.num_pairs, 2);
    assert_int_equal(batch.source_offsets[1], 2);
    assert_int_equal(batch.source_offsets[2], 5);
    assert_int_equal(batch.target_offsets[1], 2);
    assert_int_equal(batch.target_offsets[2], 5);
    expect_ids(batch.source_ids, (const int32_t[]){7, 8, 8, 3, 7}, 5);
    expect_ids(batch.target_ids, (const int32_t[]){ALPHABET_BOS, 6, ALPHABET_BOS, 4, 5}, 5);
    expect_ids(batch.labels, (const int32_t[]){6, ALPHABET_EOS, 4, 5, ALPHABET_EOS}, 5);
    int32_t id;
    assert_int_equal(alphabet_encode(&alphabet, "z", 1, &id), ATTN_INVALID_FILE);
    assert_says(attn_last_error(), "'z' has a character at place 1 that is not in the alphabet");
    pair_batch_free(&batch);
    alphabet_free(&alphabet);
    date_pairs_free(&pairs);
}

static void refuses_pairs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"", "is empty; expected lines DATE TAB TEXT"},
        {"1\ta\nno tab\n", "line 2 has no tab; expected DATE TAB TEXT"},
        {"\ta\n", "the date in line 1 has 0 characters; expected 1 to 10"},
        {"12345678901\ta\n", "the date in line 1 has 11 characters; expected 1 to 10"},
        {"1\ta\n1\t\n", "the text in line 2 has 0 characters; expected 1 to 12"},
        {"1\tabcdefghijklm\n", "the text in line 1 has 13 characters; expected 1 to 12"},
        {"1\ta\xc3\xa9\n", "the text in line 1 has byte 195 at place 2; expected printable ASCII, 32 to 126"},
        {"1\ta\tb\n", "the text in line 1 has byte 9 at place 2"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct date_pairs pairs = {0};
        assert_int_equal(read_text(&pairs, wrong[i].text), ATTN_INVALID_FILE);
        assert_says(attn_last_error(), wrong[i].says);
        date_pairs_free(&pairs);
    }
}

enum { PAIRS = 200, BATCH = 4, STEPS = 50 };

static void make_pairs(struct date_pairs *pairs)
{
    for (int i = 0; i < PAIRS; i++) {
        assert_int_equal(lines_add(&pairs->dates, "1", 1), ATTN_OK);
        assert_int_equal(lines_add(&pairs->texts, "aaaaaaaaaaaaaaaaaaaa", 1 + (size_t)i * 7 % 20), ATTN_OK);
    }
}

/* As many draws as pairs: each comes once, short texts first; another seed gives another order. */
static void short_texts_first(void **state)
{
    (void)state;
    struct date_pairs pairs = {0};
    static int64_t orders[3][STEPS * BATCH];
    int seen[PAIRS] = {0};
    make_pairs(&pairs);
    for (int o = 0; o < 3; o++) {
        const struct curriculum c = {
            .batch = BATCH, .steps = STEPS, .seed = 5 + (uint64_t)o / 2, .shortest = 8, .longest = 20, .growth = 0.5};
        assert_int_equal(curriculum_order(&c, &pairs, orders[o]), ATTN_OK);
    }
    assert_memory_equal(orders[0], orders[1], sizeof orders[0]);
    assert_memory_not_equal(orders[0], orders[2], sizeof orders[0]);
    for (int i = 0; i < STEPS * BATCH; i++) {
        const int64_t length = (int64_t)pairs.texts.size[orders[0][i]];
        seen[orders[0][i]]++;
        /* Groups of 16 steps: up to 8, and up to 8 + 20 * 16 / 25. */
        assert_true(length <= (i < 16 * BATCH ? 8 : 20));
    }
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(seen[i], 1);
    date_pairs_free(&pairs);
}

/* More draws than pairs: none comes three times before all have come twice. No text is short enough for the start. */
static void draws_again(void **state)
{
    (void)state;
    struct date_pairs pairs = {0};
    static int64_t order[STEPS * BATCH];
    int seen[3] = {0};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(lines_add(&pairs.dates, "1", 1), ATTN_OK);
        assert_int_equal(lines_add(&pairs.texts, "long enough", 11), ATTN_OK);
    }
    const struct curriculum c = {.batch = BATCH, .steps = STEPS, .shortest = 1, .longest = 20, .growth = 1};
    assert_int_equal(curriculum_order(&c, &pairs, order), ATTN_OK);
    for (int i = 0; i < STEPS * BATCH; i++)
        seen[order[i]]++;
    for (int i = 0; i < 3; i++)
        assert_in_range(seen[i], STEPS * BATCH / 3, STEPS * BATCH / 3 + 1);
    date_pairs_free(&pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_pairs),
        cmocka_unit_test(refuses_pairs),
        cmocka_unit_test(short_texts_first),
        cmocka_unit_test(draws_again),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
