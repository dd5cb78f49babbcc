/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks linear attention of one instruction set against the oracle on random
 * cases, in the manner of check_backward.
 *
 *     check_linear_attention --isa avx2 --cases 20000 [--seed N] [--case N]
 *
 * All four rules, decays from 0 to -inf, states, resets and ragged batches, in any
 * layout and mix of types, by each of the functions that compute. In some cases numbers
 * that are not finite are planted: where the oracle has such, the library must, and
 * nowhere else. A failure prints the case and the command that repeats just it. A run
 * of many cases is distrusted when an option was hardly ever drawn, or too much of
 * what it expects is 0 or may be anything.
 */
#include "arguments.h"
#include "compare_linear.h"
#include "linear_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Failures after which a run stops. */
#define MAX_FAILURES 10

/** What a case may have, counted over a run. */
enum option {
    RULE_LINEAR,
    RULE_GATED,
    RULE_DELTA,
    RULE_GATED_DELTA,
    ROW_DECAY,
    HEAD_DECAY,
    BROADCAST_DECAY,
    STATE_IN,
    STATE_OUT,
    IN_PLACE,
    RESETS,
    RAGGED,
    LENGTHS,
    MORE_QUERY_HEADS,
    FEWER_QUERY_HEADS,
    SHARED_KEYS,
    PACKED,
    SCALE,
    THREADS,
    ALL_F32,
    ALL_BF16,
    ALL_F16,
    MIXED_TYPES,
    NO_TOKEN,
    ONE_TOKEN,
    FEW_TOKENS,
    LONG,
    LONGER,
    LARGE_HEADS,
    PLANTED,
    NOT_FINITE,
    OPTIONS
};

static const struct {
    const char *name;
    int per_mille; /**< of the cases that should have it, at least */
} options[OPTIONS] = {
    [RULE_LINEAR] = {"the rule linear", 200},
    [RULE_GATED] = {"the rule gated", 200},
    [RULE_DELTA] = {"the rule delta", 200},
    [RULE_GATED_DELTA] = {"the rule gated_delta", 200},
    [ROW_DECAY] = {"a decay for each row", 150},
    [HEAD_DECAY] = {"a decay for each head", 150},
    [BROADCAST_DECAY] = {"a decay with an axis of 1", 80},
    [STATE_IN] = {"state_in", 400},
    [STATE_OUT] = {"state_out", 400},
    [IN_PLACE] = {"a state in place", 200},
    [RESETS] = {"resets", 100},
    [RAGGED] = {"cu_seqlens", 100},
    [LENGTHS] = {"lengths", 80},
    [MORE_QUERY_HEADS] = {"more heads of q", 100},
    [FEWER_QUERY_HEADS] = {"fewer heads of q", 30},
    [SHARED_KEYS] = {"fewer heads of k", 80},
    [PACKED] = {"packed q, k and v", 50},
    [SCALE] = {"scale", 200},
    [THREADS] = {"several threads", 200},
    [ALL_F32] = {"f32", 300},
    [ALL_BF16] = {"bf16", 80},
    [ALL_F16] = {"f16", 50},
    [MIXED_TYPES] = {"mixed types", 80},
    [NO_TOKEN] = {"no token", 10},
    [ONE_TOKEN] = {"one token", 20},
    [FEW_TOKENS] = {"2 to 9 tokens", 150},
    [LONG] = {"more tokens than a chunk", 150},
    [LONGER] = {"more tokens than two chunks", 50},
    [LARGE_HEADS] = {"heads of 64 or more", 100},
    [PLANTED] = {"planted NaN and Inf", 80},
    [NOT_FINITE] = {"results that are not finite", 60},
};

/** What a whole run has seen. */
struct totals {
    int64_t runs, has[OPTIONS], entries[LINEAR_ENTRIES], decays[DECAYS];
    int64_t elements, zeros, unknown, not_finite;
    double worst[LINEAR_OUTPUTS],
        ratio[LINEAR_OUTPUTS]; /**< largest error in units, and as a part of what is allowed */
    int64_t ratio_case[LINEAR_OUTPUTS];
};

static void add_options(struct totals *totals, const struct linear_case *c)
{
    const attn_linear_attention_params *p = &c->params;
    const attn_dtype one = c->q.dtype;
    const int alike = one == c->k.dtype && one == c->v.dtype && one == c->out.dtype;
    const int64_t *decay = c->decay.shape, *v = c->v.shape;
    totals->has[(p->decay ? 1 : 0) + (p->beta ? 2 : 0)]++;
    totals->has[ROW_DECAY] += p->decay && decay[3] > 1;
    totals->has[HEAD_DECAY] += p->decay && decay[3] == 1;
    totals->has[BROADCAST_DECAY] += p->decay && (decay[0] < v[0] || decay[1] < v[1] || decay[2] < v[2]);
    totals->has[STATE_IN] += p->state_in != NULL;
    totals->has[STATE_OUT] += p->state_out != NULL;
    totals->has[IN_PLACE] += c->in_place;
    totals->has[RESETS] += p->resets != NULL;
    totals->has[RAGGED] += p->cu_seqlens != NULL;
    totals->has[LENGTHS] += p->lengths != NULL;
    totals->has[MORE_QUERY_HEADS] += c->q.shape[1] > v[1];
    totals->has[FEWER_QUERY_HEADS] += c->q.shape[1] < v[1];
    totals->has[SHARED_KEYS] += c->k.shape[1] < v[1];
    totals->has[PACKED] += c->packed;
    totals->has[SCALE] += p->scale != 0;
    totals->has[THREADS] += p->num_threads > 1;
    totals->has[ALL_F32] += alike && one == ATTN_F32;
    totals->has[ALL_BF16] += alike && one == ATTN_BF16;
    totals->has[ALL_F16] += alike && one == ATTN_F16;
    totals->has[MIXED_TYPES] += !alike;
    totals->has[NO_TOKEN] += c->tokens == 0;
    totals->has[ONE_TOKEN] += c->tokens == 1;
    totals->has[FEW_TOKENS] += c->tokens >= 2 && c->tokens <= 9;
    totals->has[LONG] += c->tokens > ATTN_LINEAR_ATTENTION_CHUNK;
    totals->has[LONGER] += c->tokens > 2 * ATTN_LINEAR_ATTENTION_CHUNK;
    totals->has[LARGE_HEADS] += c->k.shape[3] >= 64 && v[3] >= 64;
    totals->has[PLANTED] += c->planted > 0;
    totals->entries[c->entry]++;
    totals->decays[c->decays]++;
}

static void add_to_totals(struct totals *totals, const struct linear_case *c,
                          const struct linear_comparison comparison[LINEAR_OUTPUTS], int64_t index)
{
    int64_t not_finite = 0;
    totals->runs++;
    add_options(totals, c);
    for (int i = 0; i < LINEAR_OUTPUTS; i++) {
        totals->elements += comparison[i].elements;
        totals->zeros += comparison[i].zeros;
        totals->unknown += comparison[i].unknown;
        not_finite += comparison[i].not_finite;
        totals->worst[i] = fmax(totals->worst[i], comparison[i].error);
        if (comparison[i].error > totals->ratio[i] * comparison[i].allowed) {
            totals->ratio[i] = comparison[i].error / comparison[i].allowed;
            totals->ratio_case[i] = index;
        }
    }
    totals->not_finite += not_finite;
    totals->has[NOT_FINITE] += not_finite > 0;
}

/** Memory between guard pages, of any alignment. */
static void *place_workspace(struct linear_case *c, size_t size)
{
    void *workspace = guard_place(&c->guard[LINEAR_SLOT_WORKSPACE], size, 1);
    if (!workspace) {
        fprintf(stderr, "%zu bytes of workspace are wanted, more than this test can guard\n", size);
        exit(1);
    }
    return workspace;
}

static attn_status run_in_workspace(struct linear_case *c)
{
    size_t size = 0;
    const attn_status status = attn_linear_attention_workspace_size(&c->q, &c->k, &c->v, &c->out, &c->params, &size);
    if (status != ATTN_OK)
        return status;
    return attn_linear_attention_in(&c->q, &c->k, &c->v, &c->out, &c->params, place_workspace(c, size), size);
}

/** A plan, run as a whole or in shares, from the last to the first. */
static attn_status run_plan(struct linear_case *c)
{
    attn_linear_attention_plan *plan = NULL;
    attn_status status = attn_linear_attention_plan_create(&plan, &c->q, &c->k, &c->v, &c->out, &c->params);
    if (status != ATTN_OK)
        return status;
    const size_t size = attn_linear_attention_plan_workspace_size(plan);
    void *workspace = place_workspace(c, size);
    if (c->entry == LINEAR_PLAN) {
        status = attn_linear_attention_plan_run(plan, &c->q, &c->k, &c->v, &c->out, &c->params, workspace, size);
    } else {
        const int threads = attn_linear_attention_plan_num_threads(plan), nth = c->nth < threads ? c->nth : threads;
        status = attn_linear_attention_plan_begin(plan, &c->q, &c->k, &c->v, &c->out, &c->params, workspace, size);
        for (int phase = 0; phase < attn_linear_attention_plan_num_phases(plan); phase++)
            for (int ith = nth - 1; ith >= 0 && status == ATTN_OK; ith--)
                status = attn_linear_attention_plan_run_share(plan, workspace, phase, ith, nth);
    }
    attn_linear_attention_plan_destroy(plan);
    return status;
}

static attn_status run_entry(struct linear_case *c)
{
    if (c->entry == LINEAR_CALL)
        return attn_linear_attention(&c->q, &c->k, &c->v, &c->out, &c->params);
    return c->entry == LINEAR_IN_WORKSPACE ? run_in_workspace(c) : run_plan(c);
}

/** Runs one case; on a failure message says what is wrong. */
static int run_case(struct linear_case *c, int64_t index, struct totals *totals, char *message, size_t size)
{
    const attn_status status = run_entry(c);
    if (status != ATTN_OK) {
        snprintf(message, size, "status is \"%s\": %s", attn_status_string(status), attn_last_error());
        return 0;
    }
    if (!linear_case_check_memory(c, message, size))
        return 0;
    attn_linear_attention_params before = c->params;
    before.state_in = before.state_in ? &c->state_before : NULL;
    const struct linear_inputs inputs = {&c->q, &c->k, &c->v, &c->out, &before};
    struct linear_comparison comparison[LINEAR_OUTPUTS];
    if (!compare_linear_call(&inputs, &c->out, c->params.state_out, comparison, message, size))
        return 0;
    add_to_totals(totals, c, comparison, index);
    return 1;
}

/** Whether a number of cases is too small a part of a run; says so. */
static int is_rare(const char *what, int64_t cases, int64_t least)
{
    if (cases >= least)
        return 0;
    printf("FAILED: %s in %" PRId64 " cases only\n", what, cases);
    return 1;
}

/** Whether a run of many cases has covered what it claims to. */
static int totals_trustworthy(const struct totals *t)
{
    if (t->runs < 5000) /* a few large cases decide what a short run is made of */
        return 1;
    int rare = 0;
    for (int i = 0; i < OPTIONS; i++)
        rare += is_rare(options[i].name, t->has[i], t->runs * options[i].per_mille / 1000);
    for (int i = 0; i < LINEAR_ENTRIES; i++)
        rare += is_rare("some entry point", t->entries[i], t->runs / 10);
    for (int i = 0; i < DECAYS; i++)
        rare += is_rare("some kind of decay", t->decays[i], t->runs / 50);
    if (t->unknown * 50 > t->elements || t->zeros * 4 > t->elements || t->not_finite * 5 > t->elements) {
        printf("FAILED: of %" PRId64 " numbers %" PRId64 " are 0, %" PRId64 " may be anything and %" PRId64
               " are not finite; such a run shows little\n",
               t->elements, t->zeros, t->unknown, t->not_finite);
        rare++;
    }
    return rare == 0;
}

int main(int argc, char **argv)
{
    const struct arguments arguments = arguments_parse(argc, argv, 20000);
    static struct linear_case c;
    static struct totals totals;
    linear_case_initialize(&c);
    guard_catch_faults();
    int failures = 0;
    const int64_t first = arguments.only >= 0 ? arguments.only : 0;
    const int64_t end = arguments.only >= 0 ? first + 1 : arguments.cases;
    for (int64_t i = first; i < end && failures < MAX_FAILURES; i++) {
        char message[512] = "";
        int length = snprintf(guard_case_line, sizeof guard_case_line,
                              "repeat: check_linear_attention --isa %s --seed %" PRIu64 " --case %" PRId64 "\n  ",
                              arguments.isa, arguments.seed, i);
        linear_case_generate(&c, arguments.seed, (uint64_t)i, arguments.isa);
        linear_case_describe(&c, guard_case_line + length, sizeof guard_case_line - (size_t)length);
        if (run_case(&c, i, &totals, message, sizeof message) && arguments.only < 0)
            continue;
        failures += message[0] != 0;
        printf("%s: case %" PRId64 ": %s\n  %s\n", message[0] ? "FAILED" : "right", i, message, guard_case_line);
        fflush(stdout);
    }
    for (int i = 0; i < LINEAR_OUTPUTS; i++)
        printf("%-9s largest error %.2f units; nearest to its limit: case %" PRId64 ", %.0f %% of it\n",
               tolerance_linear_table[i].output, totals.worst[i], totals.ratio_case[i], 100 * totals.ratio[i]);
    failures += !totals_trustworthy(&totals);
    printf("%" PRId64 " cases right; of %" PRId64 " numbers %" PRId64 " are 0, %" PRId64 " may be anything and %" PRId64
           " are not finite; %d failures\n",
           totals.runs, totals.elements, totals.zeros, totals.unknown, totals.not_finite, failures);
    linear_case_release(&c);
    return failures != 0;
}
