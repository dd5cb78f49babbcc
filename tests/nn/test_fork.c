/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child of a process that has used threads computes, too, and gets the same
 * bits: libattn_nn and libattn each start OpenMP threads, whose pool the child
 * does not inherit.
 */
#include "memory.h"

#include <sys/wait.h>
#include <unistd.h>

enum { T = 64, D = 128, HEADS = 4 };

static attn_mha *mha;
static float x_data[T * D], out_data[T * D];

static attn_status forward(float *out)
{
    const attn_tensor x = attn_btc(x_data, 1, T, D), y = attn_btc(out, 1, T, D);
    attn_params params = attn_params_default();
    params.num_threads = 2;
    return attn_mha_forward(mha, &x, NULL, &y, &params, NULL, 0);
}

static void test_child_computes(void **state)
{
    (void)state;
    static float w[D * D];
    attn_mha_config config = attn_mha_config_default();
    attn_mha_weights weights = attn_mha_weights_default();
    for (int i = 0; i < D * D; i++)
        w[i] = (float)(i % 13 - 6) / 40.0f;
    for (int i = 0; i < T * D; i++)
        x_data[i] = (float)(i % 11 - 5) / 4.0f;
    weights.w_q = weights.w_k = weights.w_v = weights.w_o = attn_matrix(w, D, D);
    config.d_model = D, config.heads = HEADS;
    OK(attn_mha_create(&mha, &config, &weights));
    OK(forward(out_data));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static float again[T * D];
        alarm(60); /* a hang is a failure */
        _exit(forward(again) != ATTN_OK ? 1 : memcmp(again, out_data, sizeof again) != 0 ? 2 : 0);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
    attn_mha_destroy(mha);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_child_computes)};
    nn_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
