/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of reading, encoding and decoding fails in turn: a status, nothing lost, and the encoding as it was.
 */
#include "tokenizer_files.h"

#include <jansson.h>
#include <stdlib.h>

#include "failing_memory.h"
#include "sentences.h"
#include "text/vocabulary.h"
#include "whole_files.h"

/* What the library says where memory is short. */
static struct sentences shortages[] = {
    {.words = "t.json: out of memory"},
    {.words = "a tokenizer: out of memory"},
    {.words = "no memory for | more tokens"},
    {.words = "no memory for the tokens of a text of 9 bytes"},
    {.words = "no memory for the tokens of a text of | bytes"},
    {0},
};

static void arm(int fails_at)
{
    allocations.made = 0;
    allocations.fails_at = fails_at;
}

/* Whether allocation number n was one of those that were made. */
static bool disarm(void)
{
    const bool failed = allocations.made >= allocations.fails_at;
    allocations.fails_at = 0;
    return failed;
}

static void test_reading(void **state)
{
    (void)state;
    for (int i = 0; i < WHOLE_FILES; i++) {
        char json[3000];
        strcpy(json, whole_files[i]);
        for (char *c = json; *c != '\0'; c++)
            *c = *c == '\'' ? '"' : *c;
        bool failed = true;
        int count = 0;
        for (; failed; count++) {
            attn_tokenizer *t;
            arm(count + 1);
            const attn_status status = attn_tokenizer_parse(&t, json, strlen(json), "t.json");
            failed = disarm();
            assert_int_equal(status, failed ? ATTN_OUT_OF_MEMORY : ATTN_OK);
            if (failed)
                sentences_meet(shortages, attn_last_error());
            attn_tokenizer_close(t);
        }
        assert_true(count > 10);
    }
}

static int allocations_left;

static void *allocate_few(size_t size)
{
    return allocations_left-- > 0 ? malloc(size) : NULL;
}

/* The same of jansson's. Without room for a text it takes what is there for bad JSON. */
static void test_parsing(void **state)
{
    static const char json[] = "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0}}}";
    attn_tokenizer *t = NULL;
    int missing = 0, n = 0;
    (void)state;
    for (; t == NULL && n < 200; n++) {
        allocations_left = n;
        json_set_alloc_funcs(allocate_few, free);
        const attn_status status = attn_tokenizer_parse(&t, json, strlen(json), "t.json");
        json_set_alloc_funcs(malloc, free);
        if (status == ATTN_OUT_OF_MEMORY) {
            missing++;
            assert_string_equal(attn_last_error(), "t.json: out of memory");
        } else if (status != ATTN_OK) {
            assert_int_equal(status, ATTN_INVALID_FILE);
            assert_says(attn_last_error(), " (line 1)");
        }
    }
    attn_tokenizer_close(t);
    assert_true(n > 5 && n < 200 && missing > 3);
}

static void test_encoding(void **state)
{
    (void)state;
    for (int i = 0; i < WHOLE_FILES; i++) {
        attn_tokenizer *t = open_text(whole_files[i]);
        bool failed = true;
        int count = 0;
        for (; failed; count++) {
            attn_encoding e = attn_encoding_default();
            assert_int_equal(attn_tokenizer_encode(t, "a", 1, NULL, &e), ATTN_OK);
            const int64_t before = e.count;
            arm(count + 1);
            const attn_status status =
                attn_tokenizer_encode_pair(t, whole_text, strlen(whole_text), whole_text, strlen(whole_text), NULL, &e);
            failed = disarm();
            assert_int_equal(status, failed ? ATTN_OUT_OF_MEMORY : ATTN_OK);
            if (failed)
                sentences_meet(shortages, attn_last_error());
            assert_true(failed ? e.count == before : e.count > before);
            attn_encoding_free(&e);
        }
        assert_true(count > 5);
        attn_tokenizer_close(t);
    }
}

static void test_decoding(void **state)
{
    (void)state;
    for (int i = 0; i < WHOLE_FILES; i++) {
        attn_tokenizer *t = open_text(whole_files[i]);
        const int32_t ids[] = {1, 2, 3, 4, 1};
        bool failed = true;
        int count = 0;
        for (; failed; count++) {
            char text[100];
            size_t length = 1000;
            arm(count + 1);
            const attn_status status = attn_tokenizer_decode(t, ids, 5, 1, text, sizeof text, &length);
            failed = disarm();
            assert_int_equal(status, failed ? ATTN_OUT_OF_MEMORY : ATTN_OK);
            if (failed)
                sentences_meet(shortages, attn_last_error());
            assert_true(failed ? length == 1000 : length < sizeof text);
        }
        assert_true(count > 1);
        attn_tokenizer_close(t);
    }
}

/* More tokens than a vocabulary may have are refused before memory is asked for. */
static void test_many_tokens(void **state)
{
    struct vocabulary v = {0};
    (void)state;
    arm(1);
    assert_int_equal(vocabulary_reserve(&v, (1 << 24) + 1, 1, "t.json"), ATTN_INVALID_FILE);
    assert_false(disarm());
    assert_string_equal(attn_last_error(), "t.json has 16777217 tokens; expected at most 16777216");
    assert_null(v.tokens);
}

static void test_sentences(void **state)
{
    (void)state;
    sentences_end(shortages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reading),     cmocka_unit_test(test_parsing),
                                       cmocka_unit_test(test_encoding),    cmocka_unit_test(test_decoding),
                                       cmocka_unit_test(test_many_tokens), cmocka_unit_test(test_sentences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
