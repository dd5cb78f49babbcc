/* SPDX-License-Identifier: Apache-2.0 */
/* How examples/smollm draws tokens and prints text in whole characters. */
#include "cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sampler.h"
#include "text_stream.h"

enum { VOCABULARY = 6, DRAWS = 60000 };

/* Probabilities 0.4, 0.3, 0.2, 0.1 of ids 2, 0, 5, 3; the others have none. */
static const double probabilities[VOCABULARY] = {0.3, 0, 0.4, 0.1, 0, 0.2};

static void make_logits(float *logits)
{
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = (float)log(probabilities[i]) + 7;
    logits[4] = NAN;
}

static int32_t take(const float *logits, double temperature, double top_p, uint64_t seed)
{
    struct sampler sampler;
    assert_int_equal(sampler_open(&sampler, VOCABULARY, temperature, top_p, seed), ATTN_OK);
    const int32_t id = sampler_take(&sampler, logits);
    sampler_close(&sampler);
    return id;
}

static void takes_the_greatest(void **state)
{
    (void)state;
    float logits[VOCABULARY] = {1, 3, 2, 3, -INFINITY, NAN};
    assert_int_equal(take(logits, 0, 1, 0), 1);
    logits[5] = INFINITY;
    assert_int_equal(take(logits, 0, 1, 0), 5);
    assert_int_equal(take(logits, 2, 1, 0), 5);
    for (int i = 0; i < VOCABULARY; i++)
        logits[i] = i % 2 ? NAN : -INFINITY;
    assert_int_equal(take(logits, 0, 1, 0), -1);
    assert_int_equal(take(logits, 1, 0.5, 0), -1);
    /* What is likely enough is all that is drawn. */
    make_logits(logits);
    for (uint64_t seed = 0; seed < 100; seed++) {
        assert_int_equal(take(logits, 1e-3, 1, seed), 2);
        assert_int_equal(take(logits, 1, 0.3, seed), 2);
        assert_int_equal(take(logits, 1, 1e-9, seed), 2);
    }
}

/* Of many draws each id has its share, within five standard deviations. */
static void has_shares(double temperature, double top_p, const double *expected)
{
    struct sampler sampler;
    float logits[VOCABULARY];
    int found[VOCABULARY] = {0};
    make_logits(logits);
    assert_int_equal(sampler_open(&sampler, VOCABULARY, temperature, top_p, 1234), ATTN_OK);
    for (int i = 0; i < DRAWS; i++)
        found[sampler_take(&sampler, logits)]++;
    sampler_close(&sampler);
    for (int i = 0; i < VOCABULARY; i++) {
        const double off = fabs(found[i] - DRAWS * expected[i]);
        if (off > 5 * sqrt(DRAWS * expected[i] * (1 - expected[i])))
            fail_msg("T=%g, top_p=%g: id %d came %d times; expected about %g", temperature, top_p, i, found[i],
                     DRAWS * expected[i]);
    }
}

static void draws_shares(void **state)
{
    (void)state;
    has_shares(1, 1, probabilities);
    /* 0.4 + 0.3 is less than 0.71, so id 5 is in; 3 is not. */
    has_shares(1, 0.71, (double[]){0.3 / 0.9, 0, 0.4 / 0.9, 0, 0, 0.2 / 0.9});
    has_shares(1, 0.65, (double[]){0.3 / 0.7, 0, 0.4 / 0.7, 0, 0, 0});
    has_shares(1, 0.95, probabilities);
    /* At T = 1/2 probabilities are squared: 16, 9, 4, 1 of 30. */
    has_shares(0.5, 1, (double[]){9 / 30.0, 0, 16 / 30.0, 1 / 30.0, 0, 4 / 30.0});
    has_shares(0.5, 0.8, (double[]){9 / 25.0, 0, 16 / 25.0, 0, 0, 0});
}

static void repeats_by_seed(void **state)
{
    (void)state;
    struct sampler one, same, other;
    float logits[VOCABULARY];
    int differ = 0;
    make_logits(logits);
    assert_int_equal(sampler_open(&one, VOCABULARY, 1, 1, 7), ATTN_OK);
    assert_int_equal(sampler_open(&same, VOCABULARY, 1, 1, 7), ATTN_OK);
    assert_int_equal(sampler_open(&other, VOCABULARY, 1, 1, 8), ATTN_OK);
    for (int i = 0; i < 200; i++) {
        const int32_t id = sampler_take(&one, logits);
        assert_int_equal(sampler_take(&same, logits), id);
        differ += sampler_take(&other, logits) != id;
    }
    assert_true(differ > 50);
    sampler_close(&one);
    sampler_close(&same);
    sampler_close(&other);
}

/* -------------------------------------------------------------------- text -- */

/* The text of size bytes that come step at a time, and what is out before the end of them. */
static void streams(const char *bytes, size_t size, const char *before_end, const char *expected)
{
    for (size_t step = 1; step <= size; step++) {
        char *text = NULL;
        size_t length = 0;
        struct text_stream stream = {0};
        FILE *to = open_memstream(&text, &length);
        assert_non_null(to);
        for (size_t at = 0; at < size; at += step) {
            text_stream_put(&stream, bytes + at, size - at < step ? size - at : step, to);
            fflush(to);
            /* Whatever is out so far is the beginning of the text, and ends with a whole character. */
            assert_memory_equal(text, expected, length);
            assert_true((expected[length] & 0xc0) != 0x80);
        }
        assert_string_equal(text, before_end);
        text_stream_end(&stream, to);
        fclose(to);
        assert_string_equal(text, expected);
        free(text);
    }
}

#define BYTES(literal) literal, sizeof literal - 1

static void prints_whole_characters(void **state)
{
    (void)state;
    streams(BYTES("plain"), "plain", "plain");
    streams(BYTES("naïve 中文 🙂!"), "naïve 中文 🙂!", "naïve 中文 🙂!");
    /* A character that never ends. */
    streams(BYTES("a\xf0\x9f\x99"), "a", "a\ufffd");
    streams(BYTES("a\xf0\x9f\x99z"), "a\ufffdz", "a\ufffdz");
    streams(BYTES("\xe4\xb8é"), "\ufffdé", "\ufffdé");
    streams(BYTES("\xc3\xc3\xa9"), "\ufffdé", "\ufffdé");
    /* Bytes that begin none; forms that are too long, surrogates, and what is above U+10FFFF. */
    streams(BYTES("\x80\xff"
                  "b"),
            "\ufffd\ufffdb", "\ufffd\ufffdb");
    streams(BYTES("\xc0\xaf"), "\ufffd\ufffd", "\ufffd\ufffd");
    streams(BYTES("\xe0\x80\xaf"), "\ufffd\ufffd\ufffd", "\ufffd\ufffd\ufffd");
    streams(BYTES("\xed\xa0\x80"), "\ufffd\ufffd\ufffd", "\ufffd\ufffd\ufffd");
    streams(BYTES("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd", "\ufffd\ufffd\ufffd\ufffd");
    streams(BYTES("\xf0\x80\x80\x80"), "\ufffd\ufffd\ufffd\ufffd", "\ufffd\ufffd\ufffd\ufffd");
    streams(BYTES("\xf4\x8f\xbf\xbf\xed\x9f\xbf"), "\U0010ffff\ud7ff", "\U0010ffff\ud7ff");
    /* One for each attempt at a character. */
    streams(BYTES("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
                  "A"),
            "\ufffd\ufffd\ufffd\ufffdA", "\ufffd\ufffd\ufffd\ufffdA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_greatest),
        cmocka_unit_test(draws_shares),
        cmocka_unit_test(repeats_by_seed),
        cmocka_unit_test(prints_whole_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
