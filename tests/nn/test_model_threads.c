/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of libattn_nn that runs on several threads, models included: all of
 * its parts run on the executor of the call or of the process, and none on
 * OpenMP's threads; a workspace that was measured for other threads serves, and
 * an executor that is exchanged in the middle of a call does no harm. Linked
 * statically, so that teams of threads and checks can be watched.
 */
#include "arguments.h"
#include "calls.h"
#include "memory.h"

#include "api/check.h"
#include "driver/threads.h"

/* ----------------------------------------------------------------- watching -- */

/** Executors of the tests, and teams of several threads by who had them. */
enum { OF_PROCESS, OF_CALL, OF_SELF, NUM_EXECUTORS, OPENMP = NUM_EXECUTORS, OTHER };
static attn_executor executors[NUM_EXECUTORS];
static int teams[OTHER + 1];

void __real_attn_run_shares(const struct attn_team *team, void (*share)(void *context, int ith), void *context);
void __wrap_attn_run_shares(const struct attn_team *team, void (*share)(void *context, int ith), void *context);

void __wrap_attn_run_shares(const struct attn_team *team, void (*share)(void *context, int ith), void *context)
{
    int owner = team->executor ? OTHER : OPENMP;
    for (int i = 0; i < NUM_EXECUTORS; i++)
        if (team->executor == &executors[i])
            owner = i;
    teams[owner] += team->size > 1;
    __real_attn_run_shares(team, share, context);
}

/** The process gets OF_PROCESS after so many checks of the core. */
static int checks_until_exchange, exchanges;

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
    const attn_status status = __real_attn_check_rectangle(problem, rectangle, q, k, v, out, params, depth);
    if (checks_until_exchange && --checks_until_exchange == 0) {
        OK(attn_set_executor(&executors[OF_PROCESS]));
        exchanges++;
    }
    return status;
}

/** All shares on the calling thread. */
static void run_in_turn(void *user, int shares, void (*share)(void *context, int ith), void *context)
{
    (void)user;
    for (int ith = shares - 1; ith >= 0; ith--)
        share(context, ith);
}

static int make(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_EXECUTORS; i++) {
        executors[i] = attn_executor_default();
        executors[i].num_threads = 4;
        executors[i].run = run_in_turn;
    }
    make_models();
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    destroy_models();
    return 0;
}

/* -------------------------------------------------------------------- tests -- */

static float expected[MOST_NUMBERS], got[MOST_NUMBERS];

/** Makes a call, and compares with what one thread without an executor has made. */
static void run(const struct call *call, const struct how *how)
{
    snprintf(guard_case_line, sizeof guard_case_line, "%s, %d threads, %zu bytes", call->name, how->num_threads,
             how->size);
    memset(got, 0, sizeof got);
    memset(teams, 0, sizeof teams);
    OK(call->run(how, got));
    if (memcmp(got, expected, sizeof got) != 0)
        fail_msg("%s: other bits", guard_case_line);
}

static void run_expected(const struct call *call)
{
    memset(expected, 0, sizeof expected);
    OK(call->run(&(struct how){.num_threads = 1}, expected));
}

/** Who had the teams of a call; nobody else had any. */
static void check_teams(const struct call *call, int owner, int number)
{
    for (int i = 0; i <= OTHER; i++)
        if (teams[i] != (i == owner ? number : 0))
            fail_msg("%s: %d teams of %s %d; expected %d", call->name, teams[i], i < OPENMP ? "executor" : "OpenMP", i,
                     i == owner ? number : 0);
}

static void test_executors(void **state)
{
    (void)state;
    tokens = MOST_TOKENS;
    for (int i = 0; i < num_calls; i++) {
        const struct call *call = &calls[i];
        run_expected(call);
        OK(attn_set_executor(&executors[OF_PROCESS]));
        run(call, &(struct how){0});
        check_teams(call, OF_PROCESS, call->parts);
        if (call->own) {
            run(call, &(struct how){.executor = &executors[OF_CALL]});
            check_teams(call, OF_CALL, call->parts);
        }
        OK(attn_set_executor(NULL));
        assert_null(attn_executor_of(NULL)); /* and it is nobody's any more */
    }
}

/** An executor of the self-attention has its three parts, and the layer's the others. */
static void test_executor_of_self(void **state)
{
    (void)state;
    tokens = MOST_TOKENS;
    for (int i = 0; i < num_calls; i++) {
        const struct call *call = &calls[i];
        if (!call->own || strcmp(call->own, "inputs") != 0)
            continue;
        run_expected(call);
        run(call, &(struct how){.executor = &executors[OF_CALL], .of_self = &executors[OF_SELF]});
        assert_int_equal(teams[OF_SELF], 3);
        teams[OF_SELF] = 0;
        check_teams(call, OF_CALL, call->parts - 3);
    }
}

static void test_wrong_executors(void **state)
{
    (void)state;
    tokens = 8;
    const attn_executor none = attn_executor_default();
    attn_executor no_run = executors[OF_CALL];
    no_run.run = NULL;
    for (int i = 0; i < num_calls; i++) {
        char words[80];
        if (!calls[i].own)
            continue;
        memset(got, 0, sizeof got);
        memset(expected, 0, sizeof expected);
        snprintf(words, sizeof words, "%s.executor.num_threads is 0;", calls[i].own);
        REFUSES(NULL, calls[i].run(&(struct how){.executor = &none}, got), ATTN_INVALID_ARGUMENT, words);
        snprintf(words, sizeof words, "%s.executor.run is NULL;", calls[i].own);
        REFUSES(NULL, calls[i].run(&(struct how){.executor = &no_run}, got), ATTN_INVALID_ARGUMENT, words);
        assert_memory_equal(got, expected, sizeof got);
        if (calls[i].size)
            assert_true(calls[i].size(&(struct how){.executor = &none}) == SIZE_MAX);
    }
    nn_end_refusals();
}

/** A size that was told for one number of threads serves any other. */
static void test_workspace_of_other_threads(void **state)
{
    (void)state;
    static const int counts[] = {1, 8, 3};
    const int num_counts = surroundings_are_slow() ? 2 : 3;
    tokens = MOST_TOKENS / 4;
    for (int i = 0; i < num_calls; i++) {
        const struct call *call = &calls[i];
        if (!call->size)
            continue;
        run_expected(call);
        for (int asked = 0; asked < num_counts; asked++)
            for (int used = 0; used < num_counts; used++) {
                if (num_counts < 3 && asked == used)
                    continue;
                struct how how = {.num_threads = counts[asked]};
                how.size = call->size(&how);
                how.num_threads = counts[used];
                struct guard guard = guard_create(how.size);
                how.workspace = guard_place(&guard, how.size, 1);
                run(call, &how);
                assert_true(guard_intact(&guard));
                guard_destroy(&guard);
            }
    }
}

/** The size that the refusal of a small workspace names is enough, and the least. */
static void test_least_workspace(void **state)
{
    (void)state;
    tokens = MOST_TOKENS / 4;
    for (int i = 0; i < num_calls; i++) {
        const struct call *call = &calls[i];
        struct how how = {.num_threads = 4, .size = 1};
        char small[1];
        if (!call->size)
            continue;
        run_expected(call);
        memset(got, 0, sizeof got);
        how.workspace = small;
        assert_int_equal(call->run(&how, got), ATTN_WORKSPACE_TOO_SMALL);
        assert_int_equal(sscanf(attn_last_error(), "workspace_size is 1; expected %zu bytes or more", &how.size), 1);
        assert_true(how.size <= call->size(&how));
        struct guard guard = guard_create(how.size);
        how.workspace = guard_place(&guard, how.size, 1);
        how.size--;
        assert_int_equal(call->run(&how, got), ATTN_WORKSPACE_TOO_SMALL);
        for (int n = 0; n < MOST_NUMBERS; n++)
            assert_true(got[n] == 0.0f);
        how.size++;
        run(call, &how);
        guard_destroy(&guard);
    }
}

/** Another thread sets an executor with more threads while a call is measured, and takes it away for the next call. */
static void test_exchanged_executor(void **state)
{
    (void)state;
    tokens = MOST_TOKENS / 4;
    attn_executor one = executors[OF_CALL];
    one.num_threads = 1;
    executors[OF_PROCESS].num_threads = 8;
    for (int i = 0; i < num_calls; i++) {
        const struct call *call = &calls[i];
        run_expected(call);
        for (int checks = 1; checks <= 4; checks += surroundings_are_slow() ? 2 : 1) {
            struct how how = {0};
            OK(attn_set_executor(&one));
            how.size = call->size ? call->size(&how) : 0;
            struct guard guard = guard_create(how.size ? how.size : 1);
            if (call->size)
                how.workspace = guard_place(&guard, how.size, 1);
            checks_until_exchange = checks;
            run(call, &how);
            checks_until_exchange = 0;
            if (call->size)
                assert_true(guard_intact(&guard));
            guard_destroy(&guard);
        }
        OK(attn_set_executor(NULL));
    }
    executors[OF_PROCESS].num_threads = 4;
    assert_true(exchanges > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_executors),       cmocka_unit_test(test_executor_of_self),
        cmocka_unit_test(test_wrong_executors), cmocka_unit_test(test_workspace_of_other_threads),
        cmocka_unit_test(test_least_workspace), cmocka_unit_test(test_exchanged_executor),
    };
    guard_catch_faults();
    nn_begin();
    return cmocka_run_group_tests(tests, make, destroy);
}
