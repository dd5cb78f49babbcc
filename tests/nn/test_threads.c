/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers and threads: an executor of the call or of the process serves every
 * product and the attention between them; a workspace that was measured for
 * other threads serves; a call checks its options once. Linked statically, so
 * that the checks of the core can be counted.
 */
#include "arguments.h"
#include "memory.h"

#include "api/check.h"
#include "attn/nn.h"

enum { T = 256, D = 128, HEADS = 8 };

static struct {
    int shapes, all;
} checks;

attn_status __real_attn_check_rectangle(struct attn_problem *problem, const struct attn_rectangle *rectangle,
                                        const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                        const attn_tensor *out, const attn_params *params, enum check_depth depth);
attn_status __wrap_attn_check_rectangle(struct attn_problem *problem, const struct attn_rectangle *rectangle,
                                        const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                        const attn_tensor *out, const attn_params *params, enum check_depth depth);

attn_status __wrap_attn_check_rectangle(struct attn_problem *problem, const struct attn_rectangle *rectangle,
                                        const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                        const attn_tensor *out, const attn_params *params, enum check_depth depth)
{
    *(depth == CHECK_ALL ? &checks.all : &checks.shapes) += 1;
    return __real_attn_check_rectangle(problem, rectangle, q, k, v, out, params, depth);
}

/** All shares on the calling thread; user counts the calls. */
static void run_in_turn(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    *(int *)user += 1;
    for (int ith = shares - 1; ith >= 0; ith--)
        share(context, ith);
}

static attn_executor executor_of(int *calls, int threads)
{
    attn_executor e = attn_executor_default();
    e.num_threads = threads;
    e.run = run_in_turn;
    e.user = calls;
    return e;
}

static float x_data[T * D], expected[T * D], out_data[T * D];
static attn_mha *mha;
static attn_alignment *dot, *additive;

static int make_layers(void **state)
{
    (void)state;
    static float w[D * D], v[D];
    attn_mha_config config = attn_mha_config_default();
    attn_mha_weights weights = attn_mha_weights_default();
    attn_alignment_config scaled = attn_alignment_config_default(), tanhs = scaled;
    for (int i = 0; i < D * D; i++)
        w[i] = (float)(i % 13 - 6) / 40.0f;
    for (int i = 0; i < D; i++)
        v[i] = (float)(i % 5 - 2) / 8.0f;
    for (int i = 0; i < T * D; i++)
        x_data[i] = (float)(i % 11 - 5) / 4.0f;
    weights.w_q = weights.w_k = weights.w_v = weights.w_o = attn_matrix(w, D, D);
    config.d_model = D, config.heads = HEADS;
    scaled.score = ATTN_SCORE_SCALED_DOT;
    scaled.d_query = scaled.d_key = D;
    tanhs.score = ATTN_SCORE_ADDITIVE;
    tanhs.d_query = tanhs.d_key = tanhs.d_attention = D;
    tanhs.w_q = tanhs.w_k = attn_matrix(w, D, D);
    tanhs.v = attn_vector(v, D);
    return attn_mha_create(&mha, &config, &weights) || attn_alignment_create(&dot, &scaled) ||
           attn_alignment_create(&additive, &tanhs);
}

static int destroy_layers(void **state)
{
    (void)state;
    attn_mha_destroy(mha);
    attn_alignment_destroy(dot);
    attn_alignment_destroy(additive);
    return 0;
}

/** Layers by number. */
enum { LINFORMER = 3, LAYERS };

static attn_tensor projection(void)
{
    return attn_matrix(x_data, D, T);
}

static attn_status forward(int layer, float *data, const attn_params *params, void *workspace, size_t size)
{
    const attn_tensor x = attn_btc(x_data, 1, T, D), out = attn_btc(data, 1, T, D), e = projection();
    if (layer == LINFORMER)
        return attn_linformer_forward(&x, &x, &x, &e, NULL, &out, params, workspace, size);
    return layer == 0 ? attn_mha_forward(mha, &x, NULL, &out, params, workspace, size)
                      : attn_alignment_forward(layer == 1 ? dot : additive, &x, &x, &x, &out, params, workspace, size);
}

static size_t workspace_size(int layer, const attn_params *params)
{
    const attn_tensor x = attn_btc(NULL, 1, T, D), e = projection();
    if (layer == LINFORMER)
        return attn_linformer_workspace_size(&x, &x, &x, &e, NULL, &x, params);
    return layer == 0 ? attn_mha_workspace_size(mha, 1, T, T, params)
                      : attn_alignment_workspace_size(layer == 1 ? dot : additive, 1, T, T, D, params);
}

static attn_params threads(int num_threads)
{
    attn_params p = attn_params_default();
    p.num_threads = num_threads;
    return p;
}

static void test_executors(void **state)
{
    (void)state;
    for (int layer = 0; layer < LAYERS; layer++) {
        int of_process = 0, of_call = 0;
        const attn_executor process = executor_of(&of_process, 4), call = executor_of(&of_call, 3);
        attn_params one = threads(1), own = threads(0);
        OK(forward(layer, expected, &one, NULL, 0));
        OK(attn_set_executor(&process));
        OK(forward(layer, out_data, NULL, NULL, 0));
        assert_memory_equal(out_data, expected, sizeof expected);
        const int calls = of_process; /* products, and what lies between them */
        assert_int_equal(calls, layer == 0 || layer == LINFORMER ? 3 : layer == 1 ? 1 : 2);
        own.executor = &call;
        OK(forward(layer, out_data, &own, NULL, 0));
        assert_memory_equal(out_data, expected, sizeof expected);
        assert_true(of_process == calls && of_call == calls);
        OK(attn_set_executor(NULL));
        OK(forward(layer, out_data, &own, NULL, 0));
        assert_true(of_process == calls && of_call == 2 * calls);
        OK(forward(layer, out_data, &one, NULL, 0)); /* and it is nobody's any more */
        assert_true(of_process == calls && of_call == 2 * calls);
        const attn_executor none = attn_executor_default();
        own.executor = &none;
        memset(out_data, 0, sizeof out_data);
        assert_int_equal(forward(layer, out_data, &own, NULL, 0), ATTN_INVALID_ARGUMENT);
        assert_true(says("params.executor.num_threads is 0"));
        assert_true(out_data[0] == 0.0f && out_data[T * D - 1] == 0.0f);
    }
}

/** A size that was told for one number of threads serves any other. */
static void test_workspace_of_other_threads(void **state)
{
    (void)state;
    static const int counts[] = {1, 8, 2, 3, 5};
    const int num_counts = surroundings_are_slow() ? 2 : 5;
    for (int layer = 0; layer < LAYERS; layer++) {
        attn_params one = threads(1);
        OK(forward(layer, expected, &one, NULL, 0));
        for (int asked = 0; asked < num_counts; asked++)
            for (int used = 0; used < num_counts; used++) {
                attn_params then = threads(counts[asked]), now = threads(counts[used]);
                const size_t size = workspace_size(layer, &then);
                unsigned char *workspace = malloc(size + 1);
                assert_non_null(workspace);
                workspace[size] = 0x5a;
                OK(forward(layer, out_data, &now, workspace, size));
                assert_memory_equal(out_data, expected, sizeof expected);
                assert_int_equal(workspace[size], 0x5a);
                free(workspace);
            }
    }
}

/** The size that the refusal of a small workspace names is enough, and the least. */
static void test_least_workspace(void **state)
{
    (void)state;
    for (int layer = 0; layer < LAYERS; layer++) {
        attn_params p = threads(4);
        char small[1];
        size_t least = 0;
        assert_int_equal(forward(layer, out_data, &p, small, 1), ATTN_WORKSPACE_TOO_SMALL);
        assert_int_equal(sscanf(attn_last_error(), "workspace_size is 1; expected %zu bytes or more", &least), 1);
        char *workspace = malloc(least);
        assert_non_null(workspace);
        assert_int_equal(forward(layer, out_data, &p, workspace, least - 1), ATTN_WORKSPACE_TOO_SMALL);
        OK(forward(layer, out_data, &p, workspace, least));
        free(workspace);
    }
}

/** The contents of arrays are looked at once in a call, shapes as often as memory is measured. */
static void test_one_check(void **state)
{
    (void)state;
    const int64_t kv_len[] = {T - 3};
    attn_params p = threads(2);
    p.kv_len = kv_len;
    for (int layer = 0; layer < 2; layer++) {
        memset(&checks, 0, sizeof checks);
        OK(forward(layer, out_data, &p, NULL, 0));
        assert_int_equal(checks.all, 1);
        assert_true(checks.shapes <= 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_executors),
        cmocka_unit_test(test_workspace_of_other_threads),
        cmocka_unit_test(test_least_workspace),
        cmocka_unit_test(test_one_check),
    };
    nn_begin();
    return cmocka_run_group_tests(tests, make_layers, destroy_layers);
}
