/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan, run by the caller's own threads.
 *
 * A server that answers many requests of one shape makes a plan once, keeps a
 * workspace, and runs without any allocation. If it has a thread pool of its
 * own it runs shares instead of letting OpenMP start threads: here plain POSIX
 * threads stand for the pool. attn_plan_begin() checks a request once; then each
 * thread runs its share of one phase after the other, and waits for the others
 * in between. Neither the number of threads nor who ran which share changes a
 * bit of the result, which the program checks against a simple call.
 */
#include <attn/attn.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, HEADS = 4, TOKENS = 300, HEAD_DIM = 48, THREADS = 3 };
enum { ELEMENTS = BATCH * HEADS * TOKENS * HEAD_DIM };

/* What every share of one call has in common. */
struct call {
    const attn_plan *plan;
    void *workspace; /* prepared by attn_plan_begin() */
    int shares;
    pthread_barrier_t *phase_end;
};

struct worker {
    const struct call *call;
    int index;
    attn_status status;
    char error[256];
};

static void *run_share(void *argument)
{
    struct worker *worker = argument;
    const struct call *call = worker->call;
    for (int phase = 0; phase < attn_plan_num_phases(call->plan); phase++) {
        attn_status status = attn_plan_run_share(call->plan, call->workspace, phase, worker->index, call->shares);
        if (status != ATTN_OK) {
            /* The sentence belongs to this thread, which is about to end: carry it home. */
            worker->status = status;
            snprintf(worker->error, sizeof worker->error, "%s", attn_last_error());
        }
        pthread_barrier_wait(call->phase_end);
    }
    return NULL;
}

static int run_on_threads(const struct call *call)
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    int ok = 1;
    for (int i = 0; i < call->shares; i++) {
        workers[i] = (struct worker){.call = call, .index = i, .status = ATTN_OK};
        if (pthread_create(&threads[i], NULL, run_share, &workers[i]) != 0) {
            fprintf(stderr, "plan: thread %d could not be started\n", i);
            exit(EXIT_FAILURE); /* those that run would wait for it */
        }
    }
    for (int i = 0; i < call->shares; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].status != ATTN_OK) {
            fprintf(stderr, "plan: share %d: %s\n", i, workers[i].error);
            ok = 0;
        }
    }
    return ok;
}

static void fill(float *x, size_t n, unsigned state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
}

int main(void)
{
    static float q_data[ELEMENTS], k_data[ELEMENTS], v_data[ELEMENTS], out_data[ELEMENTS], expected[ELEMENTS];
    fill(q_data, ELEMENTS, 1);
    fill(k_data, ELEMENTS, 2);
    fill(v_data, ELEMENTS, 3);

    /* The layout that a projection writes: [batch][token][head][channel], read in place. */
    attn_tensor q = attn_bthd(q_data, BATCH, TOKENS, HEADS, HEAD_DIM);
    attn_tensor k = attn_bthd(k_data, BATCH, TOKENS, HEADS, HEAD_DIM);
    attn_tensor v = attn_bthd(v_data, BATCH, TOKENS, HEADS, HEAD_DIM);
    attn_tensor out = attn_bthd(out_data, BATCH, TOKENS, HEADS, HEAD_DIM);
    attn_tensor reference = attn_bthd(expected, BATCH, TOKENS, HEADS, HEAD_DIM);

    /* The second sequence of the batch is shorter; its last keys are padding. */
    const int64_t kv_len[BATCH] = {TOKENS, TOKENS / 2};
    attn_params params = attn_params_default();
    params.kv_len = kv_len;
    params.num_threads = THREADS;

    attn_plan *plan = NULL;
    if (attn_plan_create(&plan, &q, &k, &v, &out, &params) != ATTN_OK) {
        fprintf(stderr, "plan: %s\n", attn_last_error());
        return EXIT_FAILURE;
    }
    char text[512];
    attn_plan_describe(plan, text, sizeof text);
    printf("%s\n", text);

    pthread_barrier_t phase_end;
    const size_t size = attn_plan_workspace_size(plan);
    struct call call = {plan, malloc(size), attn_plan_num_threads(plan), &phase_end};
    int ok = 0;
    pthread_barrier_init(&phase_end, NULL, (unsigned)call.shares);
    if (call.workspace == NULL) {
        fprintf(stderr, "plan: no memory for a workspace of %zu bytes\n", size);
    } else if (attn_plan_begin(plan, &q, &k, &v, &out, &params, call.workspace, size) != ATTN_OK) {
        fprintf(stderr, "plan: %s\n", attn_last_error());
    } else if (run_on_threads(&call)) {
        if (attn_forward(&q, &k, &v, &reference, &params) != ATTN_OK) {
            fprintf(stderr, "plan: %s\n", attn_last_error());
        } else if (memcmp(out_data, expected, sizeof expected) != 0) {
            fprintf(stderr, "plan: %d shares gave other bits than attn_forward\n", call.shares);
        } else {
            printf("%d shares on threads of the program gave the bits of attn_forward\n", call.shares);
            ok = 1;
        }
    }
    pthread_barrier_destroy(&phase_end);
    free(call.workspace);
    attn_plan_destroy(plan);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
