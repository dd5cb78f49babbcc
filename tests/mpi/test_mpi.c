/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libattn_mpi's refusals and agreement between ranks. Run on three ranks; what one of them does wrong, all
 * are told, and nothing is written. With the argument single, on one rank: MPI without support of threads. With bound,
 * on ranks that mpirun has given some of the processors: threads keep to these.
 */
#include "attn/mpi.h"

#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, HEADS = 2, D = 16, TOKENS = 50 };

static int rank;

/** A call that is right on every rank. */
struct call {
    attn_mpi_config config;
    attn_params params;
    attn_gradients gradients;
    attn_tensor q, k, v, out, lse, d_out, d_q, d_k, d_v;
    float q_data[HEADS * TOKENS * D], k_data[HEADS * TOKENS * D], v_data[HEADS * TOKENS * D];
    float out_data[HEADS * TOKENS * D], lse_data[HEADS * TOKENS], d_out_data[HEADS * TOKENS * D];
    float d_q_data[HEADS * TOKENS * D], d_k_data[HEADS * TOKENS * D], d_v_data[HEADS * TOKENS * D];
};

static void make_call(struct call *c)
{
    memset(c, 0, sizeof *c);
    c->config = attn_mpi_config_default();
    c->config.queries = c->config.keys = TOKENS;
    c->config.placement = ATTN_MPI_ZIGZAG;
    c->config.timeout = 20;
    c->config.backward = 1;
    const int64_t mine = attn_mpi_local_tokens(&c->config, TOKENS, RANKS, rank);
    c->q = attn_bhtd(c->q_data, 1, HEADS, mine, D);
    c->k = attn_bhtd(c->k_data, 1, HEADS, mine, D);
    c->v = attn_bhtd(c->v_data, 1, HEADS, mine, D);
    c->out = attn_bhtd(c->out_data, 1, HEADS, mine, D);
    c->lse = attn_bhtd(c->lse_data, 1, HEADS, mine, 1);
    c->d_out = attn_bhtd(c->d_out_data, 1, HEADS, mine, D);
    c->d_q = attn_bhtd(c->d_q_data, 1, HEADS, mine, D);
    c->d_k = attn_bhtd(c->d_k_data, 1, HEADS, mine, D);
    c->d_v = attn_bhtd(c->d_v_data, 1, HEADS, mine, D);
    c->params = attn_params_default();
    c->params.causal = ATTN_CAUSAL_TOP_LEFT;
    c->params.lse = &c->lse;
    c->gradients = attn_gradients_default();
    c->gradients.out = &c->d_out;
    c->gradients.q = &c->d_q;
    c->gradients.k = &c->d_k;
    c->gradients.v = &c->d_v;
    for (int i = 0; i < HEADS * TOKENS * D; i++) {
        c->q_data[i] = 0.01f * (float)(i % 97);
        c->k_data[i] = 0.02f * (float)(i % 31);
        c->v_data[i] = 0.03f * (float)(i % 13);
        c->out_data[i] = c->d_q_data[i] = 77.0f; /* must stay after an error */
    }
}

static attn_mpi_plan *plan_of(struct call *c)
{
    attn_mpi_plan *plan = NULL;
    const attn_status status =
        attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &c->q, &c->k, &c->v, &c->out, &c->params, &c->config);
    if (status)
        print_error("%s\n", attn_last_error());
    assert_int_equal(status, ATTN_OK);
    return plan;
}

static void assert_said(const char *sentence)
{
    if (!strstr(attn_last_error(), sentence))
        print_error("the sentence is: %s\nexpected: %s\n", attn_last_error(), sentence);
    assert_non_null(strstr(attn_last_error(), sentence));
}

/** That plans are refused on all ranks with this sentence. */
static void assert_no_plan(struct call *c, attn_status status, const char *sentence)
{
    attn_mpi_plan *plan = (attn_mpi_plan *)c;
    assert_int_equal(attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &c->q, &c->k, &c->v, &c->out, &c->params, &c->config),
                     status);
    assert_null(plan);
    assert_said(sentence);
}

static void assert_not_run(attn_mpi_plan *plan, struct call *c, attn_status status, const char *sentence)
{
    assert_int_equal(attn_mpi_forward(plan, &c->q, &c->k, &c->v, &c->out, &c->params), status);
    assert_said(sentence);
    assert_true(c->out_data[0] == 77.0f && c->lse_data[0] == 0);
}

static void assert_not_back(attn_mpi_plan *plan, struct call *c, attn_status status, const char *sentence)
{
    assert_int_equal(attn_mpi_backward(plan, &c->q, &c->k, &c->v, &c->out, &c->params, &c->gradients), status);
    assert_said(sentence);
    assert_true(c->d_q_data[0] == 77.0f);
}

/** One rank's wrong argument is every rank's error. */
static void test_one_wrong(void **state)
{
    (void)state;
    struct call c;
    make_call(&c);
    if (rank == 1)
        c.k.shape[1] = 3;
    assert_no_plan(&c, ATTN_SHAPE_MISMATCH, "rank 1: ");
    make_call(&c);
    if (rank == 2)
        c.q.shape[2]++;
    assert_no_plan(&c, ATTN_SHAPE_MISMATCH, "rank 2: q.shape[2] is 17; expected 16, tokens that this rank holds");
    make_call(&c);
    attn_mpi_plan *plan = plan_of(&c);
    if (rank == 0)
        c.q.dtype = ATTN_BF16;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT, "rank 0: q.dtype is bf16; expected f32, as in the plan");
    make_call(&c);
    if (rank == 1)
        c.out.data = c.q.data;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT, "rank 1: out");
    make_call(&c);
    float slope[HEADS] = {0.5f, NAN};
    c.params.alibi_slopes = slope;
    if (rank != 1)
        slope[1] = 0.25f;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT, "rank 1: params.alibi_slopes[1] is");
    /* The first of several is told. */
    make_call(&c);
    if (rank)
        c.params.scale = NAN;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT, "rank 1: params.scale is");
    /* And then all is well. */
    make_call(&c);
    assert_int_equal(attn_mpi_forward(plan, &c.q, &c.k, &c.v, &c.out, &c.params), ATTN_OK);
    assert_true(c.out_data[0] != 77.0f && c.lse_data[0] != 0);
    attn_mpi_plan_destroy(plan);
    attn_mpi_plan_destroy(NULL);
}

/** Ranks that do not say the same. */
static void test_differences(void **state)
{
    (void)state;
    struct call c;
    make_call(&c);
    if (rank == 2)
        c.config.wire = ATTN_MPI_BF16;
    assert_no_plan(&c, ATTN_INVALID_ARGUMENT, "rank 2: config of this rank are not those of rank 0; expected the same");
    make_call(&c);
    if (rank == 1)
        c.k.dtype = ATTN_BF16;
    assert_no_plan(&c, ATTN_INVALID_ARGUMENT,
                   "rank 1: shapes or types of tensors of this rank are not those of rank 0; expected the same");
    make_call(&c);
    attn_mpi_plan *plan = plan_of(&c);
    if (rank == 1)
        c.params.causal = ATTN_CAUSAL_NONE;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT, "rank 1: params of this rank are not those of rank 0");
    make_call(&c);
    const int64_t length = rank == 2 ? 49 : 50;
    c.params.kv_len = &length;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT,
                   "rank 2: arrays that params points to of this rank are not those of rank 0");
    make_call(&c);
    const attn_dropout dropout = {.p = 0.5f, .seed = 7, .offset = rank == 1};
    c.params.dropout = &dropout;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT, "rank 1: params of this rank are not those of rank 0");
    make_call(&c);
    const int64_t global = rank == 2;
    const attn_window window = {.left = 4, .right = 0, .global = &global, .num_global = 1};
    c.params.window = &window;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT,
                   "rank 2: arrays that params points to of this rank are not those of rank 0");
    make_call(&c);
    const int64_t rows[] = {0, 1, 2, 3, 4};
    const int32_t columns[] = {0, 1, 2, rank == 1 ? 2 : 3};
    const attn_block_mask pattern = {.size = 16, .rows = 4, .offsets = rows, .columns = columns};
    c.params.block_mask = &pattern;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT,
                   "rank 1: arrays that params points to of this rank are not those of rank 0");
    make_call(&c);
    if (rank == 1)
        c.gradients.k = c.gradients.v = NULL;
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT, "rank 1: params of this rank are not those of rank 0");
    attn_mpi_plan_destroy(plan);
}

static void change_nothing(const attn_score_tile *tile, void *user)
{
    (void)tile;
    (void)user;
}

static void test_refused(void **state)
{
    (void)state;
    struct call c;
    make_call(&c);
    attn_mpi_plan *plan = plan_of(&c);
    attn_tensor sums = attn_bhtd(c.lse_data, 1, HEADS, 1, TOKENS);
    c.params.key_sums = &sums;
    assert_not_run(plan, &c, ATTN_UNSUPPORTED,
                   "rank 0: params.key_sums is set; expected none, as keys are on several ranks");
    make_call(&c);
    const int64_t global = TOKENS;
    attn_window window = {.left = 4, .right = 0, .global = &global, .num_global = 1};
    c.params.window = &window;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT, "params.window->global[0] is 50; expected 0 to 49, a token of k");
    make_call(&c);
    const int64_t rows[] = {0, 1, 2, 2, 3};
    const int32_t columns[] = {0, 1, 4};
    const attn_block_mask pattern = {.size = 16, .rows = 4, .offsets = rows, .columns = columns};
    c.params.block_mask = &pattern;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT, "params.block_mask->columns[2] is 4 in block row 3 of head 0");
    make_call(&c);
    attn_tensor terms = attn_bhtd(NULL, 1, 1, 8, D);
    attn_disentangled disentangled = {.rel_k = &terms, .span = 4};
    c.params.disentangled = &disentangled;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT, "params.disentangled->rel_k.data is NULL");
    make_call(&c);
    float tables[TOKENS * 8] = {0};
    const attn_tensor table = attn_bhtd(tables, 1, 1, c.q.shape[2], 8);
    attn_rope_tables rope = {ATTN_ROPE_HALF_SPLIT, &table, &table};
    c.params.rope = &rope;
    assert_not_run(plan, &c, ATTN_INVALID_ARGUMENT, "params.rope is set; expected it NULL, as in the plan");
    make_call(&c);
    unsigned char masked[TOKENS * TOKENS] = {0};
    attn_tensor mask = attn_bhtd(masked, 1, 1, c.q.shape[2], TOKENS - 1);
    mask.dtype = ATTN_BOOL;
    c.params.mask = &mask;
    assert_not_run(plan, &c, ATTN_SHAPE_MISMATCH,
                   "params.mask.shape[3] is 49; expected 50, the keys of all ranks, or 1");
    make_call(&c);
    assert_int_equal(attn_mpi_forward(NULL, &c.q, &c.k, &c.v, &c.out, &c.params), ATTN_INVALID_ARGUMENT);
    assert_said("plan is NULL");
    assert_int_equal(attn_mpi_backward(NULL, &c.q, &c.k, &c.v, &c.out, &c.params, &c.gradients), ATTN_INVALID_ARGUMENT);
    assert_said("plan is NULL");
    assert_int_equal(attn_mpi_forward(plan, NULL, &c.k, &c.v, &c.out, &c.params), ATTN_INVALID_ARGUMENT);
    assert_said("rank 0: q is NULL");
    /* Backward */
    c.params.lse = NULL;
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT,
                    "params.lse is NULL; expected what attn_mpi_forward() has written");
    make_call(&c);
    c.gradients.out = NULL;
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT, "gradients.out is NULL; expected the gradient of out");
    make_call(&c);
    c.d_q.shape[3] = D - 1;
    assert_not_back(plan, &c, ATTN_SHAPE_MISMATCH,
                    "gradients.q.shape[3] is 15; expected 16, as in the tensor that it is a gradient of");
    make_call(&c);
    attn_tensor d_lse = c.lse;
    d_lse.shape[1] = 1;
    c.gradients.lse = &d_lse;
    assert_not_back(plan, &c, ATTN_SHAPE_MISMATCH, "gradients.lse.shape[1] is 1; expected 2, as in params.lse");
    make_call(&c);
    c.q.shape[3] = c.k.shape[3] = D / 2;
    assert_not_run(plan, &c, ATTN_SHAPE_MISMATCH, "q.shape[3] is 8; expected 16, as in the plan");
    make_call(&c);
    c.gradients.mask = &c.d_q;
    assert_not_back(plan, &c, ATTN_UNSUPPORTED, "gradients.mask is set; expected NULL, as keys are on several ranks");
    make_call(&c);
    float sinks[HEADS];
    c.gradients.sinks = sinks;
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT, "gradients.sinks is set; expected NULL, as params.sinks is NULL");
    make_call(&c);
    float rows_of_terms[8 * D] = {0};
    terms.data = rows_of_terms;
    c.gradients.rel_k = &terms;
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT,
                    "gradients.rel_k is set; expected NULL, as params.disentangled is NULL");
    c.params.disentangled = &disentangled;
    c.gradients.rel_q = &terms;
    c.gradients.rel_k = NULL;
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT,
                    "gradients.rel_q is set; expected NULL, as params.disentangled->rel_q is NULL");
    c.gradients.rel_k = &terms;
    c.gradients.rel_q = NULL;
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT, "gradients.rel_k");
    make_call(&c);
    c.params.callback = change_nothing;
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT,
                    "gradients.callback is NULL; expected the partner of params.callback");
    make_call(&c);
    c.gradients.callback_user = sinks;
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT,
                    "gradients.callback is set; expected NULL, as params.callback is NULL");
    make_call(&c);
    c.d_k.data = c.k.data;
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT, "gradients.k");
    assert_int_equal(attn_mpi_backward(plan, &c.q, &c.k, &c.v, &c.out, &c.params, NULL), ATTN_INVALID_ARGUMENT);
    assert_said("gradients is NULL");
    attn_mpi_plan_destroy(plan);
    c.config.backward = 0;
    make_call(&c);
    c.config.backward = 0;
    plan = plan_of(&c);
    assert_not_back(plan, &c, ATTN_INVALID_ARGUMENT, "config.backward of the plan is 0; expected 1 for gradients");
    attn_mpi_plan_destroy(plan);
    /* Plans */
    assert_int_equal(attn_mpi_plan_create(&plan, MPI_COMM_NULL, &c.q, &c.k, &c.v, &c.out, &c.params, &c.config),
                     ATTN_INVALID_ARGUMENT);
    assert_null(plan);
    assert_said("comm is MPI_COMM_NULL; expected an intracommunicator");
    MPI_Comm part, inter;
    MPI_Comm_split(MPI_COMM_WORLD, rank > 0, rank, &part);
    MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, rank > 0 ? 0 : 1, 5, &inter);
    assert_int_equal(attn_mpi_plan_create(&plan, inter, &c.q, &c.k, &c.v, &c.out, &c.params, &c.config),
                     ATTN_INVALID_ARGUMENT);
    assert_said("comm is an intercommunicator; expected an intracommunicator");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&part);
    assert_int_equal(attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &c.q, &c.k, &c.v, &c.out, &c.params, NULL),
                     ATTN_INVALID_ARGUMENT);
    assert_said("rank 0: config is NULL");
    assert_int_equal(attn_mpi_plan_create(NULL, MPI_COMM_WORLD, &c.q, &c.k, &c.v, &c.out, &c.params, &c.config),
                     ATTN_INVALID_ARGUMENT);
    assert_said("rank 0: plan is NULL");
    make_call(&c);
    c.config.head_ranks = 2;
    assert_no_plan(&c, ATTN_INVALID_ARGUMENT,
                   "config.head_ranks is 2; expected a divisor of 3 ranks and of 2 heads of k");
    make_call(&c);
    c.config.queries = INT64_MAX / 2;
    assert_int_equal(attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &c.q, &c.k, &c.v, &c.out, &c.params, &c.config),
                     ATTN_SHAPE_MISMATCH);
}

static void test_describe(void **state)
{
    (void)state;
    struct call c;
    char text[256], few[8];
    make_call(&c);
    c.config.wire = ATTN_MPI_BF16;
    attn_mpi_plan *plan = plan_of(&c);
    const size_t length = attn_mpi_plan_describe(plan, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, rank == 2 ? "rank 2 of 3, zig-zag: 16 of 50 queries in 1 ranges, 16 of 50 keys"
                                 : rank    ? "rank 1 of 3, zig-zag: 17 of 50 queries in 2 ranges"
                                           : "rank 0 of 3, zig-zag: 17 of 50 queries in 2 ranges"));
    assert_non_null(strstr(text, "k in bf16, v in bf16"));
    assert_int_equal(attn_mpi_plan_describe(plan, few, sizeof few), length);
    assert_int_equal(strlen(few), sizeof few - 1);
    assert_int_equal(attn_mpi_plan_describe(plan, NULL, 0), length);
    assert_int_equal(attn_mpi_plan_describe(NULL, text, sizeof text), 0);
    assert_string_equal(text, "");
    attn_mpi_plan_destroy(plan);
}

/** Heads shared out: who has what is said, a mask is refused, and options of another head are not taken. */
static void test_groups(void **state)
{
    (void)state;
    static float data[4][3 * TOKENS * D], expected[3 * TOKENS * D];
    const float slopes[] = {0.5f, 0.125f, 2.0f};
    struct call c;
    char text[512];
    make_call(&c);
    c.config.placement = ATTN_MPI_CONTIGUOUS;
    c.config.head_ranks = 3;
    c.params.lse = NULL;
    c.params.alibi_slopes = slopes;
    attn_tensor whole[4], *const own[] = {&c.q, &c.k, &c.v, &c.out};
    attn_mpi_range range;
    assert_int_equal(attn_mpi_ranges(&c.config, TOKENS, RANKS, rank, &range, 1, NULL), ATTN_OK);
    for (int i = 0; i < 4; i++) {
        for (int n = 0; n < 3 * TOKENS * D; n++)
            data[i][n] = i < 3 ? 0.01f * (float)(n * (i + 7) % 103) : 0;
        whole[i] = attn_bhtd(data[i], 1, 3, TOKENS, D);
        *own[i] = whole[i];
        own[i]->data = data[i] + range.first * D;
        own[i]->shape[2] = range.count;
    }
    attn_params params = attn_params_default();
    params.causal = ATTN_CAUSAL_TOP_LEFT;
    params.alibi_slopes = slopes;
    attn_tensor out = attn_bhtd(expected, 1, 3, TOKENS, D);
    assert_int_equal(attn_forward(&whole[0], &whole[1], &whole[2], &out, &params), ATTN_OK);
    attn_mpi_plan *plan = plan_of(&c);
    attn_mpi_plan_describe(plan, text, sizeof text);
    assert_non_null(
        strstr(text, "heads on 3 ranks of a group: 2.67 blocks of keys and values are waited for, 2 without"));
    unsigned char masked[TOKENS * TOKENS] = {0};
    attn_tensor mask = attn_bhtd(masked, 1, 1, c.q.shape[2], TOKENS);
    mask.dtype = ATTN_BOOL;
    c.params.mask = &mask;
    assert_int_equal(attn_mpi_forward(plan, &c.q, &c.k, &c.v, &c.out, &c.params), ATTN_UNSUPPORTED);
    assert_said("params.mask is set; expected NULL, as config.head_ranks is 3");
    c.params.mask = NULL;
    assert_int_equal(attn_mpi_forward(plan, &c.q, &c.k, &c.v, &c.out, &c.params), ATTN_OK);
    /* Each head is one call over all of its keys: the bits of a single process. */
    for (int h = 0; h < 3; h++)
        assert_memory_equal(data[3] + (h * TOKENS + range.first) * D, expected + (h * TOKENS + range.first) * D,
                            (size_t)range.count * D * sizeof(float));
    attn_mpi_plan_destroy(plan);
    c.params.mask = &mask;
    assert_no_plan(&c, ATTN_UNSUPPORTED, "params.mask is set; expected NULL, as config.head_ranks is 3");
}

/** A rank that does not come: the others end in time, with a sentence, and the plan with them. */
static void test_lost(void **state)
{
    (void)state;
    struct call c;
    make_call(&c);
    c.config.timeout = 2; /* long enough for the plan on a busy machine */
    attn_mpi_plan *plan = plan_of(&c);
    const double begin = MPI_Wtime();
    if (rank != 1) {
        assert_int_equal(attn_mpi_forward(plan, &c.q, &c.k, &c.v, &c.out, &c.params), ATTN_PEER_LOST);
        assert_said("did not come in 2 seconds, config.timeout");
        assert_true(MPI_Wtime() - begin < 20);
        assert_true(c.out_data[0] == 77.0f);
        assert_int_equal(attn_mpi_forward(plan, &c.q, &c.k, &c.v, &c.out, &c.params), ATTN_PEER_LOST);
        assert_said("an earlier message has failed; expected no further call of this plan");
        assert_int_equal(attn_mpi_backward(plan, &c.q, &c.k, &c.v, &c.out, &c.params, &c.gradients), ATTN_PEER_LOST);
        attn_mpi_plan_destroy(plan);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* The one that was late is told so, too, or finds nobody. */
    if (rank == 1) {
        assert_int_equal(attn_mpi_forward(plan, &c.q, &c.k, &c.v, &c.out, &c.params), ATTN_PEER_LOST);
        attn_mpi_plan_destroy(plan);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/** Threads of a rank, though MPI was told of none. */
static int check_single(int argc, char **argv, struct call *c)
{
    attn_mpi_plan *plan = NULL;
    int threads = MPI_THREAD_SINGLE;
    setenv("ATTN_NUM_THREADS", "2", 1);
    MPI_Init(&argc, &argv);
    MPI_Query_thread(&threads);
    make_call(c);
    const attn_status status =
        attn_mpi_plan_create(&plan, MPI_COMM_SELF, &c->q, &c->k, &c->v, &c->out, &c->params, &c->config);
    const int right = threads > MPI_THREAD_SINGLE || /* an engine that always supports them */
                      (status == ATTN_INVALID_ARGUMENT &&
                       strstr(attn_last_error(), "MPI was initialised without support of threads; expected "
                                                 "MPI_THREAD_FUNNELED or more, or ATTN_NUM_THREADS=1"));
    if (!right)
        printf("FAILED: two threads without support: %s\n", attn_last_error());
    attn_mpi_plan_destroy(plan);
    MPI_Finalize();
    free(c);
    return !right;
}

/** No rank has more threads than processors. */
static int check_bound(int argc, char **argv)
{
    cpu_set_t allowed;
    int support;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &support);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int wrong = sched_getaffinity(0, sizeof allowed, &allowed) != 0;
    const int processors = CPU_COUNT(&allowed), threads = attn_default_num_threads();
    printf("rank %d: %d processors, %d threads\n", rank, processors, threads);
    wrong |= threads < 1 || threads > processors;
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return wrong;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "bound") == 0)
        return check_bound(argc, argv);
    struct call *c = malloc(sizeof *c);
    attn_mpi_plan *plan = NULL;
    if (argc > 1 && strcmp(argv[1], "single") == 0)
        return check_single(argc, argv, c);
    rank = 0;
    make_call(c);
    if (attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &c->q, &c->k, &c->v, &c->out, &c->params, &c->config) !=
            ATTN_INVALID_ARGUMENT ||
        !strstr(attn_last_error(),
                "MPI is not initialised; expected a call between MPI_Init_thread and MPI_Finalize")) {
        printf("FAILED: a plan before MPI_Init: %s\n", attn_last_error());
        return 1;
    }
    int threads, ranks;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != RANKS) {
        printf("FAILED: on %d ranks; expected %d\n", ranks, RANKS);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_wrong), cmocka_unit_test(test_differences),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_describe),
        cmocka_unit_test(test_groups),    cmocka_unit_test(test_lost), /* last, as messages are left */
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    MPI_Finalize();
    if (attn_mpi_plan_create(&plan, MPI_COMM_WORLD, &c->q, &c->k, &c->v, &c->out, &c->params, &c->config) !=
            ATTN_INVALID_ARGUMENT ||
        !strstr(attn_last_error(), "MPI is finalized; expected a call between MPI_Init_thread and MPI_Finalize")) {
        printf("FAILED: a plan after MPI_Finalize: %s\n", attn_last_error());
        return 1;
    }
    free(c);
    return failed;
}
