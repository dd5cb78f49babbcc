/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executors: calls on the threads of a pool, or in whatever order and on
 * whatever threads a caller runs shares, give the bits of one thread. Which
 * executor a call takes, how many shares it makes, what is refused, calls inside
 * of shares, several callers at once, what begins a run, and a child of fork().
 */
#include "fixture.h"
#include "arguments.h"
#include "large.h"

#include "attn/linear_attention.h"
#include "attn/rope.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, MOST_SHARES = 64, ROUNDS = 6 };

/** An executor that notes what it is asked for. */
struct noting {
    atomic_int calls, shares, most, inside;
};

static void note(struct noting *n, int shares)
{
    assert_true(shares >= 2 && shares <= MOST_SHARES);
    atomic_fetch_add(&n->calls, 1);
    atomic_fetch_add(&n->shares, shares);
    if (shares > atomic_load(&n->most))
        atomic_store(&n->most, shares);
}

/** All shares on the calling thread, the last one first. */
static void run_backwards(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    struct noting *n = user;
    note(n, shares);
    assert_int_equal(atomic_fetch_add(&n->inside, 1), 0); /* shares do not get here */
    for (int ith = shares - 1; ith >= 0; ith--)
        share(context, ith);
    atomic_fetch_sub(&n->inside, 1);
}

struct one_share {
    pthread_t id;
    void (*share)(void *context, int ith);
    void *context;
    int ith;
};

static void *run_one(void *argument)
{
    struct one_share *one = argument;
    one->share(one->context, one->ith);
    return NULL;
}

/** A thread for each share. */
static void run_on_new_threads(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    struct one_share all[MOST_SHARES];
    note(user, shares);
    for (int ith = 0; ith < shares; ith++) {
        all[ith] = (struct one_share){.share = share, .context = context, .ith = ith};
        if (pthread_create(&all[ith].id, NULL, run_one, &all[ith]) != 0)
            abort();
    }
    for (int ith = 0; ith < shares; ith++)
        pthread_join(all[ith].id, NULL);
}

/** A pool whose threads, but for the caller, live as long as it does. */
struct pool {
    struct noting noted;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    pthread_t threads[THREADS - 1];
    int closing, shares, next, running, others;
    void (*share)(void *context, int ith);
    void *context;
};

static void pool_run_shares(struct pool *p, int other)
{
    while (p->next < p->shares) {
        const int ith = p->next++;
        p->running++;
        pthread_mutex_unlock(&p->lock);
        p->share(p->context, ith);
        pthread_mutex_lock(&p->lock);
        p->running--;
        p->others += other;
    }
    if (p->running == 0)
        pthread_cond_signal(&p->done);
}

static void *pool_work(void *argument)
{
    struct pool *p = argument;
    pthread_mutex_lock(&p->lock);
    while (!p->closing) {
        pool_run_shares(p, 1);
        pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void run_on_pool(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    struct pool *p = user;
    note(&p->noted, shares);
    pthread_mutex_lock(&p->lock);
    p->share = share, p->context = context, p->shares = shares, p->next = 0;
    pthread_cond_broadcast(&p->work);
    while (p->next == 0) /* the first share is one of the pool's threads', so that these do take part */
        pthread_cond_wait(&p->done, &p->lock);
    pool_run_shares(p, 0);
    while (p->running > 0)
        pthread_cond_wait(&p->done, &p->lock);
    p->shares = p->next = 0;
    pthread_mutex_unlock(&p->lock);
}

static void pool_open(struct pool *p)
{
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 0; i < THREADS - 1; i++)
        assert_int_equal(pthread_create(&p->threads[i], NULL, pool_work, p), 0);
}

static void pool_close(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->closing = 1;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < THREADS - 1; i++)
        assert_int_equal(pthread_join(p->threads[i], NULL), 0);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
}

static attn_executor executor_of(void (*run)(void *, int, void (*)(void *, int), void *), void *user, int threads)
{
    attn_executor e = attn_executor_default();
    e.num_threads = threads;
    e.run = run;
    e.user = user;
    return e;
}

static void expect(struct large *expected)
{
    large_initialize(expected, 1);
    assert_int_equal(large_forward(expected), ATTN_OK);
}

/** Runs a call with an executor of its own, as a simple call, in the caller's memory and as a plan. */
static void check_bits(const attn_executor *executor, int num_threads)
{
    static struct large l, expected;
    expect(&expected);
    for (int way = 0; way < 3; way++) {
        attn_plan *plan = NULL;
        size_t size = 0;
        void *workspace;
        large_initialize(&l, num_threads);
        l.params.executor = executor;
        if (way == 0) {
            assert_int_equal(large_forward(&l), ATTN_OK);
        } else if (way == 1) {
            assert_int_equal(attn_forward_workspace_size(&l.q, &l.k, &l.v, &l.out, &l.params, &size), ATTN_OK);
            assert_non_null(workspace = malloc(size));
            assert_int_equal(attn_forward_in(&l.q, &l.k, &l.v, &l.out, &l.params, workspace, size), ATTN_OK);
            free(workspace);
        } else {
            assert_int_equal(attn_plan_create(&plan, &l.q, &l.k, &l.v, &l.out, &l.params), ATTN_OK);
            assert_int_equal(attn_plan_num_threads(plan), num_threads ? num_threads : executor->num_threads);
            size = attn_plan_workspace_size(plan);
            assert_non_null(workspace = malloc(size));
            assert_int_equal(attn_plan_run(plan, &l.q, &l.k, &l.v, &l.out, &l.params, workspace, size), ATTN_OK);
            free(workspace);
            attn_plan_destroy(plan);
        }
        assert_true(large_equal(&l, &expected));
    }
}

static void test_any_order(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 9; threads += surroundings_are_slow() ? 3 : 1) {
        struct noting backwards = {0}, threaded = {0};
        const attn_executor a = executor_of(run_backwards, &backwards, threads);
        const attn_executor b = executor_of(run_on_new_threads, &threaded, threads);
        for (int asked = 0; asked <= 12; asked += 4) { /* 0: the executor's own */
            check_bits(&a, asked);
            check_bits(&b, asked);
        }
        assert_true(backwards.calls == 12 && threaded.calls == 12);
        assert_true(backwards.most == threads && threaded.most == threads); /* never more than it has */
    }
}

static void test_pool(void **state)
{
    (void)state;
    static struct pool pool;
    pool_open(&pool);
    const attn_executor executor = executor_of(run_on_pool, &pool, THREADS);
    const int rounds = surroundings_are_slow() ? 10 : 20;
    for (int i = 0; i < rounds; i++)
        check_bits(&executor, 0);
    assert_int_equal(pool.noted.calls, 3 * rounds);
    assert_true(pool.others >= 3 * rounds);
    pool_close(&pool);
}

static attn_status rotate(float *data)
{
    static float turns[2048 * 64];
    const attn_tensor x = attn_bhtd(data, 1, 8, 2048, 64), table = attn_bhtd(turns, 1, 1, 2048, 64);
    return attn_rope(&x, &table, ATTN_ROPE_HALF_SPLIT, &x, 0);
}

static attn_status merge(float *data)
{
    static float lse[8 * 2048];
    attn_tensor parts[2] = {attn_bhtd(data, 1, 8, 2048, 64), attn_bhtd(data, 1, 8, 2048, 64)};
    const attn_tensor lses[2] = {attn_bhtd(lse, 1, 8, 2048, 1), attn_bhtd(lse, 1, 8, 2048, 1)};
    return attn_merge(2, parts, lses, parts, NULL, 0);
}

/** The process's executor serves all calls, until there is none. That of a call goes before it. */
static void test_of_process(void **state)
{
    (void)state;
    static struct large l, expected;
    static float data[8 * 2048 * 64];
    struct noting noted = {0}, own = {0};
    const attn_executor executor = executor_of(run_backwards, &noted, 5), of_call = executor_of(run_backwards, &own, 2);
    expect(&expected);
    assert_int_equal(attn_set_executor(&executor), ATTN_OK);
    if (!getenv("ATTN_NUM_THREADS"))
        assert_int_equal(attn_default_num_threads(), 5);
    large_initialize(&l, 0);
    assert_int_equal(large_forward(&l), ATTN_OK);
    assert_true(large_equal(&l, &expected));
    assert_int_equal(noted.calls, 1);
    assert_int_equal(rotate(data), ATTN_OK);
    assert_int_equal(noted.calls, 2);
    assert_int_equal(merge(data), ATTN_OK);
    assert_int_equal(noted.calls, 3);
    large_initialize(&l, 1); /* one thread needs none */
    assert_int_equal(large_forward(&l), ATTN_OK);
    assert_int_equal(noted.calls, 3);
    large_initialize(&l, 0);
    l.params.executor = &of_call;
    assert_int_equal(large_forward(&l), ATTN_OK);
    assert_true(noted.calls == 3 && own.calls == 1 && own.most == 2);
    assert_int_equal(attn_set_executor(NULL), ATTN_OK);
    large_initialize(&l, 0);
    assert_int_equal(large_forward(&l), ATTN_OK);
    assert_true(large_equal(&l, &expected));
    assert_int_equal(noted.calls, 3);
}

static void test_refusals(void **state)
{
    (void)state;
    static struct large l;
    struct noting noted = {0};
    union {
        attn_executor executor;
        char bytes[sizeof(attn_executor) + 16];
    } newer;
    memset(&newer, 0, sizeof newer);
    static const struct {
        attn_status status;
        const char *words;
    } wrong[] = {{ATTN_INVALID_ARGUMENT, "executor.struct_size is 0"},
                 {ATTN_INVALID_ARGUMENT, "executor.struct_size|expected"},
                 {ATTN_INVALID_ARGUMENT, "executor.num_threads is 0"},
                 {ATTN_INVALID_ARGUMENT, "executor.num_threads is -2"},
                 {ATTN_INVALID_ARGUMENT, "executor.run is NULL; expected a function"},
                 {ATTN_UNSUPPORTED, "executor.struct_size|set"}};
    for (int i = 0; i < 6; i++) {
        newer.executor = executor_of(run_backwards, &noted, 2);
        attn_executor *e = &newer.executor;
        e->struct_size = i == 0 ? 0 : i == 1 ? (size_t)-1 : i == 5 ? sizeof newer : e->struct_size;
        e->num_threads = i == 2 ? 0 : i == 3 ? -2 : 2;
        e->run = i == 4 ? NULL : run_backwards;
        newer.bytes[sizeof newer - 1] = i == 5;
        assert_int_equal(attn_set_executor(e), wrong[i].status);
        assert_true(holds_words(attn_last_error(), wrong[i].words));
        large_initialize(&l, 2);
        l.params.executor = e;
        assert_int_equal(large_forward(&l), wrong[i].status);
        assert_true(holds_words(attn_last_error(), wrong[i].words));
        assert_true(large_untouched(&l));
    }
    newer.bytes[sizeof newer - 1] = 0; /* a later version's struct that sets nothing new */
    large_initialize(&l, 2);
    l.params.executor = &newer.executor;
    assert_int_equal(large_forward(&l), ATTN_OK);
    assert_int_equal(noted.calls, 1);
}

/** What a callback does inside of a share, at the first tile of each head: the call of user, which is its result, too;
 * or nothing. */
static void compute_inside(const attn_score_tile *tile, void *user)
{
    static _Thread_local struct large inner;
    if (!user || tile->first_query > 0 || tile->first_key > 0)
        return;
    large_initialize(&inner, 4);
    if (large_forward(&inner) != ATTN_OK || !large_equal(&inner, user))
        abort();
}

/** A call inside of a share stays on its thread: run_backwards() fails if it is called again. */
static void test_call_in_share(void **state)
{
    (void)state;
    static struct large l, expected, inside;
    struct noting noted = {0};
    const attn_executor executor = executor_of(run_backwards, &noted, 3);
    expect(&inside);
    large_initialize(&expected, 1);
    expected.params.callback = compute_inside;
    assert_int_equal(large_forward(&expected), ATTN_OK);
    assert_int_equal(attn_set_executor(&executor), ATTN_OK);
    large_initialize(&l, 3);
    l.params.callback = compute_inside;
    l.params.callback_user = &inside;
    assert_int_equal(large_forward(&l), ATTN_OK);
    assert_int_equal(attn_set_executor(NULL), ATTN_OK);
    assert_true(large_equal(&l, &expected));
    assert_int_equal(noted.calls, 1);
}

struct caller {
    pthread_t id;
    const attn_executor *executor;
    const struct large *expected;
    int failures;
};

static void *call_again_and_again(void *argument)
{
    struct caller *c = argument;
    struct large *l = malloc(sizeof *l);
    for (int i = 0; i < ROUNDS && l; i++) {
        large_initialize(l, 0);
        l->params.executor = c->executor;
        c->failures += large_forward(l) != ATTN_OK || !large_equal(l, c->expected);
    }
    c->failures += l == NULL;
    free(l);
    return NULL;
}

static void test_several_callers(void **state)
{
    (void)state;
    static struct large expected;
    static struct caller callers[4];
    struct noting noted = {0};
    const attn_executor executor = executor_of(run_on_new_threads, &noted, THREADS);
    expect(&expected);
    for (int i = 0; i < 4; i++) {
        callers[i] = (struct caller){.executor = &executor, .expected = &expected};
        assert_int_equal(pthread_create(&callers[i].id, NULL, call_again_and_again, &callers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(callers[i].id, NULL), 0);
        assert_int_equal(callers[i].failures, 0);
    }
    assert_int_equal(noted.calls, 4 * ROUNDS);
}

static int in_child(const attn_executor *executor, const struct noting *noted, const struct large *expected)
{
    static struct large l;
    const int before = noted->calls;
    alarm(60);               /* a hang is a failure */
    large_initialize(&l, 3); /* without the process's executor, whose threads the child does not have */
    if (large_forward(&l) != ATTN_OK || !large_equal(&l, expected) || noted->calls != before)
        return 1;
    large_initialize(&l, 3);
    l.params.executor = executor; /* the child's own decision */
    if (large_forward(&l) != ATTN_OK || !large_equal(&l, expected) || noted->calls != before + 1)
        return 2;
    if (attn_set_executor(executor) != ATTN_OK)
        return 3;
    large_initialize(&l, 3); /* likewise */
    if (large_forward(&l) != ATTN_OK || !large_equal(&l, expected) || noted->calls != before + 2)
        return 4;
    return 0;
}

static void test_fork(void **state)
{
    (void)state;
    static struct large l, expected;
    struct noting noted = {0};
    const attn_executor executor = executor_of(run_backwards, &noted, THREADS);
    expect(&expected);
    assert_int_equal(attn_set_executor(&executor), ATTN_OK);
    large_initialize(&l, 0);
    assert_int_equal(large_forward(&l), ATTN_OK);
    const pid_t child = fork();
    if (child == 0)
        _exit(in_child(&executor, &noted, &expected));
    assert_true(child > 0);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    const int before = noted.calls;
    assert_int_equal(large_forward(&l), ATTN_OK); /* the parent still has it */
    assert_int_equal(noted.calls, before + 1);
    assert_int_equal(attn_set_executor(NULL), ATTN_OK);
}

enum { MANY = 150000 };

/**
 * What is long to look at, scales of a cache and decays, is shared out where a call runs; a program that brings its own
 * threads gets none from what begins a run.
 */
static void test_long_looks(void **state)
{
    (void)state;
    static int8_t numbers[MANY];
    static float scales[MANY], decays[MANY], rows[MANY];
    struct noting noted = {0};
    const attn_executor executor = executor_of(run_backwards, &noted, 2);
    attn_tensor k = attn_bhtd(numbers, 1, 1, MANY, 1);
    k.dtype = ATTN_I8;
    const attn_tensor scale = attn_bhtd(scales, 1, 1, MANY, 1), q = attn_bhtd(rows, 1, 1, 1, 1);
    float result[1];
    const attn_tensor out = attn_bhtd(result, 1, 1, 1, 1);
    attn_params params = attn_params_default();
    params.k_scale = params.v_scale = &scale;
    params.executor = &executor;
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, &q, &k, &k, &out, &params), ATTN_OK);
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    assert_int_equal(attn_plan_begin(plan, &q, &k, &k, &out, &params, workspace, size), ATTN_OK);
    assert_int_equal(noted.calls, 0);
    scales[MANY - 1] = NAN;
    assert_int_equal(attn_plan_begin(plan, &q, &k, &k, &out, &params, workspace, size), ATTN_INVALID_ARGUMENT);
    assert_int_equal(noted.calls, 0);
    assert_int_equal(attn_plan_run(plan, &q, &k, &k, &out, &params, workspace, size), ATTN_INVALID_ARGUMENT);
    assert_int_equal(noted.calls, 1);
    attn_plan_destroy(plan);
    free(workspace);

    const attn_tensor x = attn_bhtd(rows, 1, 1, MANY, 1), decay = attn_bhtd(decays, 1, 1, MANY, 1);
    attn_linear_attention_params linear = attn_linear_attention_params_default();
    attn_linear_attention_plan *linear_plan;
    static float sums[MANY];
    const attn_tensor all = attn_bhtd(sums, 1, 1, MANY, 1);
    linear.decay = &decay;
    linear.executor = &executor;
    noted.calls = 0;
    assert_int_equal(attn_linear_attention_plan_create(&linear_plan, &x, &x, &x, &all, &linear), ATTN_OK);
    const size_t needed = attn_linear_attention_plan_workspace_size(linear_plan);
    workspace = malloc(needed);
    assert_non_null(workspace);
    decays[MANY - 1] = 1;
#define LINEAR(what) attn_linear_attention_plan_##what(linear_plan, &x, &x, &x, &all, &linear, workspace, needed)
    assert_int_equal(LINEAR(begin), ATTN_INVALID_ARGUMENT);
    assert_int_equal(noted.calls, 0);
    assert_int_equal(LINEAR(run), ATTN_INVALID_ARGUMENT);
    assert_int_equal(noted.calls, 1);
    attn_linear_attention_plan_destroy(linear_plan);
    free(workspace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order),  cmocka_unit_test(test_pool),          cmocka_unit_test(test_of_process),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_call_in_share), cmocka_unit_test(test_several_callers),
        cmocka_unit_test(test_long_looks), cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
