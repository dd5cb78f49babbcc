/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks gradients of linear attention of one instruction set against the oracle on
 * random cases, in the manner of check_linear_attention, whose cases they are.
 *
 *     check_linear_backward --isa avx2 --cases 20000 [--seed N] [--case N]
 *
 * Decays from 0 to -inf, states, resets, ragged batches, heads that share anything,
 * both directions, each gradient wanted or not, in any layout and mix of types. A
 * failure prints the case and the command that repeats just it. A run of many cases is
 * distrusted when an option was hardly ever drawn, or too much of what it expects is 0 or
 * may be anything.
 */
#include "arguments.h"
#include "compare_linear.h"
#include "linear_gradients.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Failures after which a run stops. */
#define MAX_FAILURES 10

/** What a case may have, counted over a run. */
enum option {
    NO_DECAY,
    ROW_DECAY,
    HEAD_DECAY,
    BROADCAST_DECAY,
    DECAY_GRADIENT,
    ONLY_DECAY_GRADIENT,
    STATE_IN,
    STATE_GRADIENT,
    STATE_GRADIENT_IN,
    BIDIRECTIONAL,
    RESETS,
    RAGGED,
    LENGTHS,
    MORE_QUERY_HEADS,
    FEWER_QUERY_HEADS,
    SHARED_KEYS,
    THREADS,
    WORKSPACE,
    PLAN,
    SHARES,
    ROUNDED,
    LONG,
    LONGER,
    LARGE_HEADS,
    OPTIONS
};

static const struct {
    const char *name;
    int per_mille; /**< of the cases that should have it, at least */
} options[OPTIONS] = {
    [NO_DECAY] = {"no decay", 300},
    [ROW_DECAY] = {"a decay for each row", 120},
    [HEAD_DECAY] = {"a decay for each head", 120},
    [BROADCAST_DECAY] = {"a decay with an axis of 1", 80},
    [DECAY_GRADIENT] = {"gradients of decays", 300},
    [ONLY_DECAY_GRADIENT] = {"gradients of decays without those of q or k", 50},
    [STATE_IN] = {"state_in", 400},
    [STATE_GRADIENT] = {"the gradient of state_out", 300},
    [STATE_GRADIENT_IN] = {"the gradient of state_in", 300},
    [BIDIRECTIONAL] = {"both directions", 100},
    [RESETS] = {"resets", 100},
    [RAGGED] = {"cu_seqlens", 100},
    [LENGTHS] = {"lengths", 80},
    [MORE_QUERY_HEADS] = {"more heads of q", 100},
    [FEWER_QUERY_HEADS] = {"fewer heads of q", 30},
    [SHARED_KEYS] = {"fewer heads of k", 80},
    [THREADS] = {"several threads", 200},
    [WORKSPACE] = {"a workspace", 100},
    [PLAN] = {"a plan", 100},
    [SHARES] = {"shares of a plan", 100},
    [ROUNDED] = {"gradients of 16 bits", 300},
    [LONG] = {"more tokens than a chunk", 150},
    [LONGER] = {"more tokens than two chunks", 50},
    [LARGE_HEADS] = {"heads of 64 or more", 100},
};

/** What a whole run has seen. */
struct totals {
    int64_t runs, has[OPTIONS], elements, zeros, unknown;
    double worst[LINEAR_GRADIENTS];
    int64_t worst_case[LINEAR_GRADIENTS];
};

static void add_options(struct totals *totals, const struct linear_gradient_case *c)
{
    const struct linear_case *f = &c->forward;
    const attn_linear_attention_params *p = &f->params;
    const attn_linear_attention_gradients *g = &c->gradients;
    const int64_t *decay = f->decay.shape, *v = f->v.shape;
    int rounded = 0;
    for (int i = 0; i < LINEAR_GRADIENTS; i++)
        rounded |= linear_gradient_of(c, (enum linear_gradient)i) && c->d[i].dtype != ATTN_F32;
    totals->has[NO_DECAY] += !p->decay;
    totals->has[ROW_DECAY] += p->decay && decay[3] > 1;
    totals->has[HEAD_DECAY] += p->decay && decay[3] == 1;
    totals->has[BROADCAST_DECAY] += p->decay && (decay[0] < v[0] || decay[1] < v[1] || decay[2] < v[2]);
    totals->has[DECAY_GRADIENT] += g->decay != NULL;
    totals->has[ONLY_DECAY_GRADIENT] += g->decay && (!g->q || !g->k);
    totals->has[STATE_IN] += p->state_in != NULL;
    totals->has[STATE_GRADIENT] += g->state_out != NULL;
    totals->has[STATE_GRADIENT_IN] += g->state_in != NULL;
    totals->has[BIDIRECTIONAL] += p->bidirectional;
    totals->has[RESETS] += p->resets != NULL;
    totals->has[RAGGED] += p->cu_seqlens != NULL;
    totals->has[LENGTHS] += p->lengths != NULL;
    totals->has[MORE_QUERY_HEADS] += f->q.shape[1] > v[1];
    totals->has[FEWER_QUERY_HEADS] += f->q.shape[1] < v[1];
    totals->has[SHARED_KEYS] += f->k.shape[1] < v[1];
    totals->has[THREADS] += p->num_threads > 1;
    totals->has[WORKSPACE] += f->entry == LINEAR_IN_WORKSPACE;
    totals->has[PLAN] += f->entry == LINEAR_PLAN;
    totals->has[SHARES] += f->entry == LINEAR_SHARES;
    totals->has[ROUNDED] += rounded;
    totals->has[LONG] += f->tokens > ATTN_LINEAR_ATTENTION_CHUNK;
    totals->has[LONGER] += f->tokens > 2 * ATTN_LINEAR_ATTENTION_CHUNK;
    totals->has[LARGE_HEADS] += f->k.shape[3] >= 64 && v[3] >= 64;
}

static void *place_workspace(struct linear_gradient_case *c, size_t size)
{
    void *workspace = guard_place(&c->workspace, size, 1);
    if (!workspace) {
        fprintf(stderr, "%zu bytes of workspace are wanted, more than this test can guard\n", size);
        exit(1);
    }
    return workspace;
}

static attn_status run_in_workspace(struct linear_gradient_case *c)
{
    const struct linear_case *f = &c->forward;
    size_t size = 0;
    const attn_status status =
        attn_linear_attention_backward_workspace_size(&f->q, &f->k, &f->v, NULL, &f->params, &c->gradients, &size);
    if (status != ATTN_OK)
        return status;
    return attn_linear_attention_backward_in(&f->q, &f->k, &f->v, NULL, &f->params, &c->gradients,
                                             place_workspace(c, size), size);
}

/** A plan, run as a whole or in shares, from the last to the first. */
static attn_status run_plan(struct linear_gradient_case *c)
{
    const struct linear_case *f = &c->forward;
    const attn_linear_attention_gradients *g = &c->gradients;
    attn_linear_attention_backward_plan *plan = NULL;
    attn_status status = attn_linear_attention_backward_plan_create(&plan, &f->q, &f->k, &f->v, NULL, &f->params, g);
    if (status != ATTN_OK)
        return status;
    const size_t size = attn_linear_attention_backward_plan_workspace_size(plan);
    void *workspace = place_workspace(c, size);
    if (f->entry == LINEAR_PLAN) {
        status =
            attn_linear_attention_backward_plan_run(plan, &f->q, &f->k, &f->v, NULL, &f->params, g, workspace, size);
    } else {
        const int threads = attn_linear_attention_backward_plan_num_threads(plan);
        const int nth = f->nth < threads ? f->nth : threads;
        status =
            attn_linear_attention_backward_plan_begin(plan, &f->q, &f->k, &f->v, NULL, &f->params, g, workspace, size);
        for (int phase = 0; phase < attn_linear_attention_backward_plan_num_phases(plan); phase++)
            for (int ith = nth - 1; ith >= 0 && status == ATTN_OK; ith--)
                status = attn_linear_attention_backward_plan_run_share(plan, workspace, phase, ith, nth);
    }
    attn_linear_attention_backward_plan_destroy(plan);
    return status;
}

static attn_status run_call(struct linear_gradient_case *c)
{
    const struct linear_case *f = &c->forward;
    if (f->entry == LINEAR_CALL)
        return attn_linear_attention_backward(&f->q, &f->k, &f->v, NULL, &f->params, &c->gradients);
    return f->entry == LINEAR_IN_WORKSPACE ? run_in_workspace(c) : run_plan(c);
}

/** Runs one case; on a failure message says what is wrong. */
static int run_case(struct linear_gradient_case *c, int64_t index, struct totals *totals, char *message, size_t size)
{
    const struct linear_case *f = &c->forward;
    const attn_status status = run_call(c);
    if (status != ATTN_OK) {
        snprintf(message, size, "status is \"%s\": %s", attn_status_string(status), attn_last_error());
        return 0;
    }
    if (!linear_gradient_case_check_memory(c, message, size))
        return 0;
    const struct linear_inputs inputs = {&f->q, &f->k, &f->v, &c->d_out, &f->params};
    struct linear_gradients_reference reference = linear_gradients_compute(&inputs, &c->d_out, c->gradients.state_out);
    int right = 1;
    for (int i = 0; i < LINEAR_GRADIENTS && right; i++) {
        const attn_tensor *got = linear_gradient_of(c, (enum linear_gradient)i);
        struct linear_comparison comparison;
        if (!got)
            continue;
        right = compare_linear_numbers(&reference.of[i], &tolerance_linear_gradients_table[i], got, &comparison,
                                       message, size);
        totals->elements += comparison.elements;
        totals->zeros += comparison.zeros;
        totals->unknown += comparison.unknown;
        if (comparison.error > totals->worst[i]) {
            totals->worst[i] = comparison.error;
            totals->worst_case[i] = index;
        }
    }
    linear_gradients_free(&reference);
    totals->runs++;
    add_options(totals, c);
    return right;
}

/** Whether a run of many cases has covered what it claims to. */
static int totals_trustworthy(const struct totals *t)
{
    int rare = 0;
    for (int i = 0; i < OPTIONS && t->runs >= 5000; i++) /* a few large cases decide what a short run is made of */
        if (t->has[i] < t->runs * options[i].per_mille / 1000) {
            printf("FAILED: %s in %" PRId64 " cases only\n", options[i].name, t->has[i]);
            rare++;
        }
    if (t->runs >= 5000 && (t->unknown * 50 > t->elements || t->zeros * 3 > t->elements)) {
        printf("FAILED: of %" PRId64 " numbers %" PRId64 " are 0 and %" PRId64
               " may be anything; such a run shows little\n",
               t->elements, t->zeros, t->unknown);
        rare++;
    }
    return rare == 0;
}

int main(int argc, char **argv)
{
    const struct arguments arguments = arguments_parse(argc, argv, 20000);
    static struct linear_gradient_case c;
    static struct totals totals;
    linear_gradient_case_initialize(&c);
    guard_catch_faults();
    int failures = 0;
    const int64_t first = arguments.only >= 0 ? arguments.only : 0;
    const int64_t end = arguments.only >= 0 ? first + 1 : arguments.cases;
    for (int64_t i = first; i < end && failures < MAX_FAILURES; i++) {
        char message[512] = "";
        int length = snprintf(guard_case_line, sizeof guard_case_line,
                              "repeat: check_linear_backward --isa %s --seed %" PRIu64 " --case %" PRId64 "\n  ",
                              arguments.isa, arguments.seed, i);
        linear_gradient_case_generate(&c, arguments.seed, (uint64_t)i, arguments.isa);
        linear_case_describe(&c.forward, guard_case_line + length, sizeof guard_case_line - (size_t)length);
        if (run_case(&c, i, &totals, message, sizeof message) && arguments.only < 0)
            continue;
        failures += message[0] != 0;
        printf("%s: case %" PRId64 ": %s\n  %s\n", message[0] ? "FAILED" : "right", i, message, guard_case_line);
        fflush(stdout);
    }
    for (int i = 0; i < LINEAR_GRADIENTS; i++)
        printf("%-9s largest error %.2f units, in case %" PRId64 "\n", tolerance_linear_gradients_table[i].output,
               totals.worst[i], totals.worst_case[i]);
    failures += !totals_trustworthy(&totals);
    printf("%" PRId64 " cases right; of %" PRId64 " numbers %" PRId64 " are 0 and %" PRId64 " may be anything\n",
           totals.runs - failures, totals.elements, totals.zeros, totals.unknown);
    return failures > 0;
}
