/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ATTN_VERBOSE: each call that computes writes one line about itself, whichever
 * of the operators it is. The variable is read at the first call, so it is set before
 * anything else is done; lines are read from a file that takes stderr's place.
 */
#include "linear_fixture.h"

#include "attn/backward.h"
#include "attn/linear_attention_backward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *lines;

/** Fails the test unless one line was written since the last time, and words stand in it. What is wrong goes to stdout,
 * as stderr is the file. */
static void expect_line(const char *words)
{
    static char line[1024], more[1024];
    fflush(stderr);
    const int found = fgets(line, sizeof line, lines) != NULL, another = fgets(more, sizeof more, lines) != NULL;
    if (!found || another || strncmp(line, "attn: ", 6) != 0 || !holds_words(line, words)) {
        printf("expected one line with %s; got: %s%s\n", words, found ? line : "none", another ? more : "");
        fail();
    }
    clearerr(lines);
}

static void test_softmax(void **state)
{
    (void)state;
    static struct fixture f;
    static float d_q_data[1 << 14], lse_data[1 << 10];
    fixture_initialize(&f);
    attn_tensor lse = attn_bhtd(lse_data, f.out.shape[0], f.out.shape[1], f.out.shape[2], 1);
    attn_tensor d_q = attn_bhtd(d_q_data, f.q.shape[0], f.q.shape[1], f.q.shape[2], f.q.shape[3]);
    attn_params params = attn_params_default();
    params.lse = &lse;
    assert_int_equal(attn_forward(&f.q, &f.k, &f.v, &f.out, &params), ATTN_OK);
    expect_line("q=f32|kernel|thread| ms");
    attn_gradients g = attn_gradients_default();
    g.out = &f.out, g.q = &d_q;
    assert_int_equal(attn_backward(&f.q, &f.k, &f.v, &f.out, &params, &g), ATTN_OK);
    expect_line("backward dq|kernel| ms");
}

static void test_linear(void **state)
{
    (void)state;
    static struct linear_fixture f;
    static float d_q_data[LIN_B * LIN_HQ * LIN_T * LIN_DK], d_decay_data[LIN_B * LIN_H * LIN_T * LIN_DK];
    linear_fixture_initialize(&f);
    assert_int_equal(linear_fixture_call(&f), ATTN_OK);
    expect_line("linear attention q=f32|rule=gated delta by channel resets| ms");
    const attn_tensor d_q = attn_bhtd(d_q_data, LIN_B, LIN_HQ, LIN_T, LIN_DK);
    const attn_tensor d_decay = attn_bhtd(d_decay_data, LIN_B, LIN_H, LIN_T, LIN_DK);
    f.params.beta = NULL, f.params.state_out = NULL;
    attn_linear_attention_gradients g = attn_linear_attention_gradients_default();
    g.out = &f.out, g.q = &d_q, g.decay = &d_decay;
    assert_int_equal(attn_linear_attention_backward(&f.q, &f.k, &f.v, NULL, &f.params, &g), ATTN_OK);
    expect_line("linear attention backward dq ddecay q=f32|rule=gated by channel resets|phases| ms");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_softmax), cmocka_unit_test(test_linear)};
    char name[] = "/tmp/attn_verbose_XXXXXX";
    const int file = mkstemp(name);
    if (file < 0 || setenv("ATTN_VERBOSE", "1", 1) != 0 || !(lines = fopen(name, "r"))) {
        perror("test_verbose");
        return 1;
    }
    unlink(name);
    const int kept = dup(STDERR_FILENO);
    dup2(file, STDERR_FILENO);
    close(file);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dup2(kept, STDERR_FILENO);
    return failed;
}
