/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the forward pass of one instruction set against the oracle on random
 * cases, in the manner of checkasm: guard pages around every buffer, odd
 * strides, special values, all types and options (see case.h for what a case
 * varies).
 *
 *     check_forward --isa avx2 --cases 20000 [--seed N] [--case N]
 *
 * A failure prints the case and the command that repeats just it. A run of
 * many cases is itself distrusted when too many of its expected outputs are 0,
 * or when an option was hardly ever drawn: such a run would show nothing.
 */
#include "arguments.h"
#include "case.h"
#include "compare.h"
#include "test_isa.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Failures after which a run stops. */
#define MAX_FAILURES 10

/** Types of q, k and v, by attn_dtype where they are alike. */
enum { TYPES_MIXED = 3, TYPES_KINDS };

/** What a whole run has seen. */
struct totals {
    int64_t elements, zeros, runs;
    int64_t seen[VALUES_KINDS], entries[ENTRIES], causal[4], masks[4]; /**< masks: by attn_dtype, additive ones */
    int64_t types[TYPES_KINDS], out[3];
    int64_t forms[FORMS], no_form, combined; /**< cases with a form, with none, with two or more */
    int64_t callbacks[CALLBACK_KINDS], weight_callbacks[WEIGHT_KINDS], buckets[3], layouts[2], deltas[2], short_masks;
    int64_t stages[4], paged, long_rows, stored; /**< long: of more keys than a split of 4096 */
    int pairs;                        /**< the instruction set is one for pairs of bf16, and draws no other types */
    double worst[TEST_OUTPUTS];       /**< largest error by output, in units */
    double ratio[TEST_OUTPUTS];       /**< largest error as a part of what is allowed */
    int64_t ratio_case[TEST_OUTPUTS]; /**< the case that had it */
};

static attn_status run_plan(struct test_case *c)
{
    const attn_tensor *k = &c->called.k, *v = &c->called.v;
    const attn_params *params = &c->called.params;
    attn_plan *plan = NULL;
    attn_status status = attn_plan_create(&plan, &c->q, k, v, &c->out, params);
    if (status != ATTN_OK)
        return status;
    const size_t size = attn_plan_workspace_size(plan);
    void *workspace = guard_place(&c->guard[SLOT_WORKSPACE], size, 1);
    if (!workspace) {
        fprintf(stderr, "a plan asks for %zu bytes of workspace, more than this test can guard\n", size);
        exit(1);
    }
    if (c->entry == ENTRY_PLAN_RUN) {
        status = attn_plan_run(plan, &c->q, k, v, &c->out, params, workspace, size);
    } else {
        const int nth = attn_plan_num_threads(plan), phases = attn_plan_num_phases(plan);
        status = attn_plan_begin(plan, &c->q, k, v, &c->out, params, workspace, size);
        for (int phase = 0; phase < phases; phase++)
            for (int ith = nth - 1; ith >= 0 && status == ATTN_OK; ith--) /* any order will do */
                status = attn_plan_run_share(plan, workspace, phase, ith, nth);
    }
    attn_plan_destroy(plan);
    return status;
}

static void add_to_totals(struct totals *totals, const struct test_case *c, const struct comparison *comparison,
                          int64_t index)
{
    const attn_params *p = &c->params;
    totals->runs++;
    totals->elements += comparison->elements;
    totals->zeros += comparison->zeros;
    totals->seen[c->values]++;
    totals->entries[c->entry]++;
    totals->causal[p->causal]++;
    totals->types[c->q.dtype == c->k.dtype && c->q.dtype == c->v.dtype ? (int)c->q.dtype : TYPES_MIXED]++;
    totals->out[c->out.dtype]++;
    totals->pairs = test_isa_has_pairs(p->isa);
    if (p->mask)
        totals->masks[p->mask->dtype]++;
    totals->short_masks += c->short_mask;
    totals->paged += c->called.params.block_table != NULL;
    totals->stored += c->stored > 0;
    totals->long_rows += c->k.shape[2] > 4096;
    int forms = 0;
    for (int i = 0; i < FORMS; i++) {
        totals->forms[i] += c->forms >> i & 1u;
        forms += (int)(c->forms >> i & 1u);
    }
    totals->no_form += forms == 0;
    totals->combined += forms >= 2;
    if (p->callback)
        totals->callbacks[c->callback.kind]++;
    if (p->weight_callback)
        totals->weight_callbacks[c->weight_callback.kind]++;
    if (p->scores)
        totals->stages[p->score_stage]++;
    if (p->relative_bias)
        totals->buckets[p->relative_bias->kind]++;
    if (p->disentangled && p->disentangled->rel_q)
        totals->deltas[p->disentangled->delta]++;
    if (p->rope)
        totals->layouts[p->rope->layout]++;
    for (int i = 0; i < TEST_OUTPUTS; i++) {
        const double allowed = comparison->allowed[i];
        totals->worst[i] = fmax(totals->worst[i], comparison->error[i]);
        if (comparison->error[i] > totals->ratio[i] * allowed) {
            totals->ratio[i] = comparison->error[i] / allowed;
            totals->ratio_case[i] = index;
        }
    }
}

/** Runs one case; on a failure message says what is wrong. */
static int run_case(struct test_case *c, int64_t index, struct totals *totals, char *message, size_t size)
{
    c->callback.watching = c->weight_callback.watching = 1;
    const attn_status status = c->entry == ENTRY_FORWARD
                                   ? attn_forward(&c->q, &c->called.k, &c->called.v, &c->out, &c->called.params)
                                   : run_plan(c);
    c->callback.watching = c->weight_callback.watching = 0;
    if (status != ATTN_OK) {
        snprintf(message, size, "status is \"%s\": %s", attn_status_string(status), attn_last_error());
        return 0;
    }
    if (c->callback.wrong) {
        snprintf(message, size,
                 "a tile of the callback lies outside the problem, or has a hidden key that is not at "
                 "-inf");
        return 0;
    }
    if (c->weight_callback.wrong) {
        snprintf(message, size, "a tile of weights lies outside the problem, or has a hidden key that is not at 0");
        return 0;
    }
    struct comparison comparison;
    attn_params params = c->params;
    params.k_scale = c->called.params.k_scale; /* floats may stand for what was multiplied */
    struct reference reference = reference_compute(&c->q, &c->k, &c->v, &params, NAIVE_F32);
    const int right = compare_with_reference(&reference, &c->out, &params, &comparison, message, size) &&
                      case_check_memory(c, message, size);
    reference_free(&reference);
    if (right)
        add_to_totals(totals, c, &comparison, index);
    return right;
}

/** Whether every option by which attention takes another form came often enough, alone or not, and together. */
static int forms_covered(const struct totals *totals, int64_t few)
{
    int covered = totals->no_form >= totals->runs / 4 && totals->combined >= totals->runs / 10;
    for (int i = 0; i < FORMS; i++) {
        if (totals->forms[i] < few)
            printf("FAILED: %s occurs in %" PRId64 " cases only\n", case_form_name((enum case_form)i),
                   totals->forms[i]);
        covered = covered && totals->forms[i] >= few;
    }
    for (int i = 0; i < CALLBACK_KINDS; i++)
        covered = covered && totals->callbacks[i] >= few / 10;
    for (int i = 0; i < WEIGHT_KINDS; i++)
        covered = covered && totals->weight_callbacks[i] >= few / 10;
    for (int i = 0; i < 4; i++)
        covered = covered && totals->stages[i] >= few;
    for (int i = 0; i < 3; i++)
        covered = covered && totals->buckets[i] >= few / 10;
    for (int i = 0; i < 2; i++)
        covered = covered && totals->layouts[i] >= few / 10 && totals->deltas[i] >= few / 10;
    return covered;
}

/** Whether a run of many cases has covered what it claims to. */
static int totals_trustworthy(const struct totals *totals)
{
    if (totals->runs < 5000) /* a few large cases decide what a short run is made of */
        return 1;
    const int64_t few = totals->runs / 100;
    int covered = totals->short_masks >= few && totals->paged >= 10 * few && totals->long_rows >= few / 3 &&
                  totals->stored >= few && forms_covered(totals, few);
    for (int i = 0; i < 4; i++)
        covered = covered && totals->masks[i] >= few;
    for (int i = 0; i < 3; i++)
        covered = covered && totals->out[i] >= few;
    for (int i = 0; i < TYPES_KINDS; i++)
        covered = covered && totals->types[i] >= (totals->pairs ? (i == ATTN_BF16 ? totals->runs / 2 : 0) : few);
    for (int i = 0; i < VALUES_KINDS; i++)
        covered = covered && totals->seen[i] >= few;
    for (int i = 0; i < ENTRIES; i++)
        covered = covered && totals->entries[i] >= few;
    for (int i = 0; i < 4; i++)
        covered = covered && totals->causal[i] >= few;
    if (!covered)
        printf("FAILED: some option occurs in fewer than 1 %% of the cases\n");
    if (totals->zeros * 2 > totals->elements) {
        printf("FAILED: %" PRId64 " of %" PRId64 " expected outputs are 0; such a run shows little\n", totals->zeros,
               totals->elements);
        covered = 0;
    }
    return covered;
}

int main(int argc, char **argv)
{
    const struct arguments arguments = arguments_parse(argc, argv, 20000);
    static struct test_case c;
    static struct totals totals;
    case_initialize(&c);
    guard_catch_faults();
    int failures = 0;
    const int64_t first = arguments.only >= 0 ? arguments.only : 0;
    const int64_t end = arguments.only >= 0 ? first + 1 : arguments.cases;
    for (int64_t i = first; i < end && failures < MAX_FAILURES; i++) {
        char message[512] = "";
        int length = snprintf(guard_case_line, sizeof guard_case_line,
                              "repeat: check_forward --isa %s --seed %" PRIu64 " --case %" PRId64 "\n  ", arguments.isa,
                              arguments.seed, i);
        case_generate(&c, arguments.seed, (uint64_t)i, arguments.isa);
        case_describe(&c, guard_case_line + length, sizeof guard_case_line - (size_t)length);
        if (run_case(&c, i, &totals, message, sizeof message) && arguments.only < 0)
            continue;
        failures += message[0] != 0;
        printf("%s: case %" PRId64 ": %s\n  %s\n", message[0] ? "FAILED" : "right", i, message, guard_case_line);
        fflush(stdout);
    }
    for (int i = 0; i < TEST_OUTPUTS; i++)
        printf("%-8s  largest error %.2f units; nearest to its limit: case %" PRId64 ", %.0f %% of it\n",
               tolerance_table[i].output, totals.worst[i], totals.ratio_case[i], 100 * totals.ratio[i]);
    failures += !totals_trustworthy(&totals);
    printf("%" PRId64 " cases without, %" PRId64 " with several of:", totals.no_form, totals.combined);
    for (int i = 0; i < FORMS; i++)
        printf("%s %s %" PRId64, i ? "," : "", case_form_name((enum case_form)i), totals.forms[i]);
    printf("\n%" PRId64 " cases right, of which q, k, v are f32 in %" PRId64 ", bf16 in %" PRId64 ", f16 in %" PRId64
           "; %" PRId64 " of more keys than a split, %" PRId64 " with k or v quantised; %d failures\n",
           totals.runs, totals.types[ATTN_F32], totals.types[ATTN_BF16], totals.types[ATTN_F16], totals.long_rows,
           totals.stored, failures);
    case_release(&c);
    return failures != 0;
}
