/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread pool of the program's under all calls of the library.
 *
 * A program that has its own pool does not want OpenMP's threads beside it:
 * both would fight for the cores. attn_set_executor() makes every call hand its
 * shares to the pool: attention here, and layers, rotations and merges likewise.
 * The pool below is as small as one can be. Its threads and the thread that
 * calls take shares from one list until it is empty; the call returns when all
 * shares have. The program checks that the bits are those of OpenMP.
 */
#include <attn/attn.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, HEADS = 4, TOKENS = 300, HEAD_DIM = 48, THREADS = 3 };
enum { ELEMENTS = BATCH * HEADS * TOKENS * HEAD_DIM };

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t threads[THREADS - 1]; /* the calling thread is the other one */
    int closing;
    /* the call at work */
    void (*share)(void *context, int ith);
    void *context;
    int shares, next, running;
    long long total; /* shares of all calls */
};

/* Takes shares until there are none. The lock is held before and after. */
static void run_shares(struct pool *pool)
{
    while (pool->next < pool->shares) {
        const int ith = pool->next++;
        pool->running++;
        pthread_mutex_unlock(&pool->lock);
        pool->share(pool->context, ith);
        pthread_mutex_lock(&pool->lock);
        pool->running--;
        pool->total++;
    }
    if (pool->running == 0)
        pthread_cond_broadcast(&pool->done);
}

static void *work(void *argument)
{
    struct pool *pool = argument;
    pthread_mutex_lock(&pool->lock);
    while (!pool->closing) {
        run_shares(pool);
        pthread_cond_wait(&pool->work, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* What the library calls. One call at a time: with callers on several threads a pool would queue them. */
static void run(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    struct pool *pool = user;
    pthread_mutex_lock(&pool->lock);
    pool->share = share;
    pool->context = context;
    pool->shares = shares;
    pool->next = 0;
    pthread_cond_broadcast(&pool->work);
    run_shares(pool);
    while (pool->running > 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    pool->shares = pool->next = 0;
    pthread_mutex_unlock(&pool->lock);
}

static void pool_open(struct pool *pool)
{
    memset(pool, 0, sizeof *pool);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (int i = 0; i < THREADS - 1; i++) {
        if (pthread_create(&pool->threads[i], NULL, work, pool) != 0) {
            fprintf(stderr, "executor: thread %d could not be started\n", i);
            exit(EXIT_FAILURE);
        }
    }
}

static void pool_close(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->closing = 1;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < THREADS - 1; i++)
        pthread_join(pool->threads[i], NULL);
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
    attn_tensor q = attn_bhtd(q_data, BATCH, HEADS, TOKENS, HEAD_DIM);
    attn_tensor k = attn_bhtd(k_data, BATCH, HEADS, TOKENS, HEAD_DIM);
    attn_tensor v = attn_bhtd(v_data, BATCH, HEADS, TOKENS, HEAD_DIM);
    attn_tensor out = attn_bhtd(out_data, BATCH, HEADS, TOKENS, HEAD_DIM);
    attn_tensor reference = attn_bhtd(expected, BATCH, HEADS, TOKENS, HEAD_DIM);

    attn_status status = attn_forward(&q, &k, &v, &reference, NULL);

    struct pool pool;
    pool_open(&pool);
    attn_executor executor = attn_executor_default();
    executor.num_threads = THREADS;
    executor.run = run;
    executor.user = &pool;
    if (status == ATTN_OK)
        status = attn_set_executor(&executor);
    if (status == ATTN_OK)
        status = attn_forward(&q, &k, &v, &out, NULL);
    attn_set_executor(NULL); /* before the pool and the struct go */
    pool_close(&pool);

    if (status != ATTN_OK) {
        fprintf(stderr, "executor: %s\n", attn_last_error());
        return EXIT_FAILURE;
    }
    if (pool.total == 0 || memcmp(out_data, expected, sizeof expected) != 0) {
        fprintf(stderr, "executor: %lld shares in the pool gave other bits\n", pool.total);
        return EXIT_FAILURE;
    }
    printf("%lld shares on threads of the program gave the same bits\n", pool.total);
    return EXIT_SUCCESS;
}
