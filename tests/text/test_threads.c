/* SPDX-License-Identifier: Apache-2.0 */
/* Threads use a tokenizer at once, and get what one gets. */
#include "tokenizer_files.h"

#include <pthread.h>
#include <stdlib.h>

#include "whole_files.h"

enum { THREADS = 4, ROUNDS = 20 };

struct job {
    const attn_tokenizer *tokenizer;
    const attn_encoding *expected;
    int wrong;
};

static void *encode(void *context)
{
    struct job *job = context;
    attn_encoding e = attn_encoding_default();
    for (int round = 0; round < ROUNDS; round++) {
        char text[200];
        size_t length = 0;
        e.count = 0;
        if (attn_tokenizer_encode(job->tokenizer, whole_text, strlen(whole_text), NULL, &e) != ATTN_OK ||
            e.count != job->expected->count ||
            memcmp(e.ids, job->expected->ids, (size_t)e.count * sizeof *e.ids) != 0 ||
            attn_tokenizer_decode(job->tokenizer, e.ids, e.count, 1, text, sizeof text, &length) != ATTN_OK ||
            length == 0)
            job->wrong++;
    }
    attn_encoding_free(&e);
    return NULL;
}

static void test_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < WHOLE_FILES; i++) {
        attn_tokenizer *t = open_text(whole_files[i]);
        attn_encoding expected = attn_encoding_default();
        struct job jobs[THREADS];
        pthread_t threads[THREADS];
        assert_int_equal(attn_tokenizer_encode(t, whole_text, strlen(whole_text), NULL, &expected), ATTN_OK);
        assert_true(expected.count > 5);
        for (int k = 0; k < THREADS; k++) {
            jobs[k] = (struct job){t, &expected, 0};
            assert_int_equal(pthread_create(&threads[k], NULL, encode, &jobs[k]), 0);
        }
        for (int k = 0; k < THREADS; k++) {
            pthread_join(threads[k], NULL);
            assert_int_equal(jobs[k].wrong, 0);
        }
        attn_encoding_free(&expected);
        attn_tokenizer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
