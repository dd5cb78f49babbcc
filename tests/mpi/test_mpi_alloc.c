/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that one rank does not get: all ranks are told, nobody waits, nothing leaks. Each allocation of rank 1 fails
 * in turn, from the making of a plan to the end of a backward pass; on two ranks.
 */
#include "attn/mpi.h"
#include "ledger.h"
#include "sentences.h"

#include <stdlib.h>

enum { BATCH = 2, HEADS = 2, D = 16, TOKENS = 300, PAIRS = 4, MOST = BATCH * HEADS * TOKENS * D };

static int rank;
static float q_data[MOST], k_data[MOST], v_data[MOST], out_data[MOST], d_out_data[MOST];
static float d_q_data[MOST], d_k_data[MOST], d_v_data[MOST], lse_data[BATCH * HEADS * TOKENS];
static float rotations[TOKENS * 2 * PAIRS], slopes[HEADS] = {0.5f, 0.25f}, d_slopes[HEADS];
static int32_t labels[BATCH * TOKENS];

/** What is run: with rings, rotations and documents, or with heads shared out. */
struct kind {
    attn_mpi_config config;
    attn_params params;
    attn_dtype out;
};

/** A plan, a forward and a backward run; the status of the first that fails. */
static attn_status run(const struct kind *kind)
{
    const int64_t mine = attn_mpi_local_tokens(&kind->config, TOKENS, 2, rank);
    attn_tensor q = attn_bhtd(q_data, BATCH, HEADS, mine, D), k = q, v = q, out = q, d_out = q, d_q = q, d_k = q,
                d_v = q;
    const attn_tensor lse = attn_bhtd(lse_data, BATCH, HEADS, mine, 1),
                      table = attn_bhtd(rotations, 1, 1, mine, 2 * PAIRS);
    attn_rope_tables rope = {ATTN_ROPE_HALF_SPLIT, &table, &table};
    attn_params params = kind->params;
    attn_gradients gradients = attn_gradients_default();
    k.data = k_data, v.data = v_data, out.data = out_data, d_out.data = d_out_data;
    d_q.data = d_q_data, d_k.data = d_k_data, d_v.data = d_v_data;
    out.dtype = kind->out;
    params.lse = &lse;
    params.rope = params.segments ? &rope : NULL;
    gradients.out = &d_out;
    gradients.q = &d_q, gradients.k = &d_k, gradients.v = &d_v;
    gradients.alibi_slopes = params.alibi_slopes ? d_slopes : NULL;
    attn_mpi_plan *plan;
    attn_status status = attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &q, &k, &v, &out, &params, &kind->config);
    if (!status)
        status = attn_mpi_forward(plan, &q, &k, &v, &out, &params);
    if (!status)
        status = attn_mpi_backward(plan, &q, &k, &v, &out, &params, &gradients);
    attn_mpi_plan_destroy(plan);
    return status;
}

/** Every allocation in turn. */
static void fail_each(const struct kind *kind, struct sentences *sentences)
{
    attn_status status = ATTN_OUT_OF_MEMORY;
    int failing = 0;
    while (status) {
        failing++;
        if (rank == 1)
            ledger_begin(failing, 0);
        status = run(kind);
        ledger.active = 0;
        assert_true(status == ATTN_OK || status == ATTN_OUT_OF_MEMORY);
        if (rank == 1)
            assert_int_equal(ledger.live, 0);
        if (status) {
            assert_non_null(strstr(attn_last_error(), "rank 1: "));
            sentences_meet(sentences, attn_last_error());
        }
        assert_true(failing < 2000);
    }
    assert_true(failing > 20);
}

static void test_rings(void **state)
{
    (void)state;
    static struct sentences sentences[] = {
        {"no memory for a plan", 0},
        {"no memory for the ranges of 2 ranks", 0},
        {"no memory for a plan of 150 queries and blocks of |bytes of keys", 0},
        {"no memory for gradients of 150 queries and 150 keys", 0},
        {"no memory for messages between 2 ranks", 0},
        {"no memory for gradients of 2 numbers of options", 0},
        {"no memory for the ranges of this rank", 0},
        {"no memory for the offsets of 2 sequences", 0},
        {"no memory for the labels of the ranges of 2 ranks", 0},
        {"no memory for 900 labels", 0},
        {"no memory for a table of rotations", 0},
        {"no memory for a workspace of |bytes", 0}, /* attn_forward() and attn_backward() */
        {NULL, 0},
    };
    const attn_segments segments = {labels, labels};
    struct kind kind = {.config = attn_mpi_config_default(), .params = attn_params_default(), .out = ATTN_BF16};
    kind.config.queries = kind.config.keys = TOKENS;
    kind.config.placement = ATTN_MPI_ZIGZAG;
    kind.config.head_ranks = 1;
    kind.config.backward = 1;
    kind.config.timeout = 60;
    kind.params.segments = &segments;
    kind.params.causal = ATTN_CAUSAL_TOP_LEFT;
    kind.params.alibi_slopes = slopes;
    fail_each(&kind, sentences);
    sentences_end(sentences);
}

static void test_groups(void **state)
{
    (void)state;
    static struct sentences sentences[] = {
        {"no memory for a plan", 0},
        {"no memory for the ranges of", 0},
        {"no memory for the ranges of groups of 2 ranks", 0},
        {"no memory for 300 queries of a group", 0},
        {"no memory for an exchange of |bytes", 0},
        {"no memory", 0},
        {NULL, 0},
    };
    struct kind kind = {.config = attn_mpi_config_default(), .params = attn_params_default(), .out = ATTN_F32};
    kind.config.queries = kind.config.keys = TOKENS;
    kind.config.head_ranks = 2;
    kind.config.backward = 1;
    kind.config.timeout = 60;
    fail_each(&kind, sentences);
    sentences_end(sentences);
}

int main(int argc, char **argv)
{
    int threads;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < MOST; i++) {
        q_data[i] = 0.01f * (float)(i % 97);
        k_data[i] = 0.02f * (float)(i % 31);
        v_data[i] = 0.03f * (float)(i % 13);
        d_out_data[i] = 0.04f * (float)(i % 7);
    }
    for (int i = 0; i < BATCH * TOKENS; i++)
        labels[i] = i % TOKENS / 100;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rings), cmocka_unit_test(test_groups)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    MPI_Finalize();
    return failed;
}
