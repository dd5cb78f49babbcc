/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the backward pass of one instruction set against the oracle on random
 * cases, in the manner of checkasm: those of check_forward (case.h) without what
 * attn_backward() refuses, whose out and lse the library has computed itself.
 *
 *     check_backward --isa avx2 --cases 20000 [--seed N] [--case N]
 *
 * Any of the gradients may not be wanted; those of options are, as a rule, where the option is set. Half of the losses
 * depend on lse, too. Where nobody may look, NaN stands: in keys and values that are hidden, in rows of q, out and
 * dO that see no key, and in rows of tables whose distances only hidden pairs have. A failure prints the case and the
 * command that repeats just it. A run of many cases is distrusted when an option was hardly ever drawn, or too much of
 * what it expects is 0 or may be anything.
 */
#include "arguments.h"
#include "case.h"
#include "compare_backward.h"
#include "dtype.h"
#include "test_isa.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Failures after which a run stops. */
#define MAX_FAILURES 10

/** Gradients of tensors: q, k, v. The others are of options. */
enum { ROWS = 3 };

/** What a whole run has seen. */
struct totals {
    int64_t runs, elements, zeros, unknown;
    int64_t empty; /**< cases more than half of which are 0, or may be anything */
    int64_t wanted[1 << ROWS], written[GRADIENTS], entries[ENTRIES];
    int64_t with_lse, types[3], mixed, narrowed; /**< narrowed: of another type than what of */
    int64_t seen[VALUES_KINDS], causal[4], forms[FORMS], no_form, combined, masks, long_rows;
    int pairs;
    double worst[GRADIENTS], ratio[GRADIENTS]; /**< largest error in units, and as a part of what is allowed */
    int64_t ratio_case[GRADIENTS];
};

static void add_to_totals(struct totals *totals, const struct test_case *c,
                          const struct gradient_comparison comparison[GRADIENTS], int64_t index)
{
    const attn_params *p = &c->params;
    const attn_tensor *const of[ROWS] = {&c->q, &c->k, &c->v};
    unsigned wanted = 0;
    int64_t elements = 0, told = 0;
    for (int i = 0; i < GRADIENTS; i++) {
        if (!c->d_written[i])
            continue;
        totals->written[i]++;
        wanted |= i < ROWS ? 1u << i : 0;
        elements += comparison[i].elements;
        told += comparison[i].elements - comparison[i].zeros - comparison[i].unknown;
        totals->elements += comparison[i].elements;
        totals->zeros += comparison[i].zeros;
        totals->unknown += comparison[i].unknown;
        totals->narrowed += i < ROWS && c->d_written[i]->dtype != of[i]->dtype;
        totals->worst[i] = fmax(totals->worst[i], comparison[i].error);
        if (comparison[i].error > totals->ratio[i] * comparison[i].allowed) {
            totals->ratio[i] = comparison[i].error / comparison[i].allowed;
            totals->ratio_case[i] = index;
        }
    }
    totals->runs++;
    totals->empty += 2 * told < elements;
    totals->wanted[wanted]++;
    totals->entries[c->entry]++;
    totals->with_lse += c->gradients.lse != NULL;
    const int mixed = c->q.dtype != c->k.dtype || c->q.dtype != c->v.dtype || c->q.dtype != c->d_out.dtype;
    totals->mixed += mixed;
    totals->types[c->q.dtype] += !mixed;
    totals->seen[c->values]++;
    totals->causal[p->causal]++;
    totals->masks += p->mask != NULL;
    totals->long_rows += c->k.shape[2] > 4096;
    totals->pairs = test_isa_has_pairs(p->isa);
    int forms = 0;
    for (int i = 0; i < FORMS; i++) {
        totals->forms[i] += c->forms >> i & 1u;
        forms += (int)(c->forms >> i & 1u);
    }
    totals->no_form += forms == 0;
    totals->combined += forms >= 2;
}

/** A plan, run as a whole or in shares, in any order. */
static attn_status run_plan(struct test_case *c)
{
    attn_backward_plan *plan = NULL;
    attn_status status = attn_backward_plan_create(&plan, &c->q, &c->k, &c->v, &c->out, &c->params, &c->gradients);
    if (status != ATTN_OK)
        return status;
    const size_t size = attn_backward_plan_workspace_size(plan);
    void *workspace = guard_place(&c->guard[SLOT_WORKSPACE], size, 1);
    if (!workspace) {
        fprintf(stderr, "a plan asks for %zu bytes of workspace, more than this test can guard\n", size);
        exit(1);
    }
    if (c->entry == ENTRY_PLAN_RUN) {
        status = attn_backward_plan_run(plan, &c->q, &c->k, &c->v, &c->out, &c->params, &c->gradients, workspace, size);
    } else {
        const int nth = attn_backward_plan_num_threads(plan), phases = attn_backward_plan_num_phases(plan);
        status =
            attn_backward_plan_begin(plan, &c->q, &c->k, &c->v, &c->out, &c->params, &c->gradients, workspace, size);
        for (int phase = 0; phase < phases; phase++)
            for (int ith = nth - 1; ith >= 0 && status == ATTN_OK; ith--)
                status = attn_backward_plan_run_share(plan, workspace, phase, ith, nth);
    }
    attn_backward_plan_destroy(plan);
    return status;
}

/** Runs one case; on a failure message says what is wrong. */
static int run_case(struct test_case *c, uint64_t seed, int64_t index, struct totals *totals, char *message,
                    size_t size)
{
    attn_status status = attn_forward(&c->q, &c->k, &c->v, &c->out, &c->params);
    if (status == ATTN_OK) {
        case_begin_backward(c, seed, (uint64_t)index);
        c->callback.watching = 1;
        status = c->entry == ENTRY_FORWARD ? attn_backward(&c->q, &c->k, &c->v, &c->out, &c->params, &c->gradients)
                                           : run_plan(c);
        c->callback.watching = 0;
    }
    if (status != ATTN_OK) {
        snprintf(message, size, "status is \"%s\": %s", attn_status_string(status), attn_last_error());
        return 0;
    }
    if (!case_check_memory(c, message, size))
        return 0;
    if (c->callback.wrong) {
        snprintf(message, size,
                 "a tile of the callback or of its partner lies outside the problem, or has a hidden "
                 "key that is not at -inf");
        return 0;
    }
    const struct backward_inputs inputs = {&c->q,
                                           &c->k,
                                           &c->v,
                                           &c->params,
                                           &c->out,
                                           c->params.lse,
                                           c->gradients.out,
                                           c->gradients.lse,
                                           c->gradients.callback,
                                           c->gradients.callback_user};
    struct gradient_comparison comparison[GRADIENTS];
    if (!compare_backward_call(&inputs, c->d_written, comparison, message, size))
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
    static const unsigned refused = 1u << FORM_WEIGHT_CALLBACK;
    const int64_t few = t->runs / 100;
    int rare = is_rare("no form", t->no_form, t->runs / 4) + is_rare("several forms", t->combined, t->runs / 12) +
               is_rare("dlse", t->with_lse, t->runs / 3) + is_rare("mask", t->masks, t->runs / 5) +
               is_rare("other types of gradients", t->narrowed, t->runs / 10) +
               is_rare("more keys than a split", t->long_rows, few / 3) +
               is_rare("bf16", t->types[ATTN_BF16], t->pairs ? t->runs / 2 : few);
    for (int i = 0; i < FORMS; i++)
        if (!(refused >> i & 1u))
            rare += is_rare(case_form_name((enum case_form)i), t->forms[i], few);
    for (int i = 0; i < ENTRIES; i++)
        rare += is_rare("some entry point", t->entries[i], few);
    for (int i = 0; i < GRADIENTS; i++)
        rare += is_rare(tolerance_gradient_table[i].output, t->written[i], few);
    for (int i = 1; i < 1 << ROWS; i++)
        rare += is_rare("some set of wanted gradients", t->wanted[i], few);
    for (int i = 0; i < VALUES_KINDS; i++)
        rare += is_rare("some kind of values", t->seen[i], few);
    for (int i = 0; i < 4; i++)
        rare += is_rare("some causality", t->causal[i], few);
    if (!t->pairs)
        rare += is_rare("f32", t->types[ATTN_F32], few) + is_rare("f16", t->types[ATTN_F16], few) +
                is_rare("mixed types", t->mixed, few);
    if (t->empty * 2 > t->runs || t->unknown * 10 > t->elements) {
        printf("FAILED: %" PRId64 " cases expect little but 0, and %" PRId64 " of %" PRId64
               " numbers may be anything; such a run shows little\n",
               t->empty, t->unknown, t->elements);
        rare++;
    }
    return rare == 0;
}

int main(int argc, char **argv)
{
    const struct arguments arguments = arguments_parse(argc, argv, 20000);
    static struct test_case c;
    static struct totals totals;
    case_initialize(&c);
    c.backward = 1;
    guard_catch_faults();
    int failures = 0;
    const int64_t first = arguments.only >= 0 ? arguments.only : 0;
    const int64_t end = arguments.only >= 0 ? first + 1 : arguments.cases;
    for (int64_t i = first; i < end && failures < MAX_FAILURES; i++) {
        char message[512] = "";
        int length = snprintf(guard_case_line, sizeof guard_case_line,
                              "repeat: check_backward --isa %s --seed %" PRIu64 " --case %" PRId64 "\n  ",
                              arguments.isa, arguments.seed, i);
        case_generate(&c, arguments.seed, (uint64_t)i, arguments.isa);
        case_draw_gradients(&c, arguments.seed, (uint64_t)i);
        case_describe(&c, guard_case_line + length, sizeof guard_case_line - (size_t)length);
        if (run_case(&c, arguments.seed, i, &totals, message, sizeof message) && arguments.only < 0)
            continue;
        failures += message[0] != 0;
        printf("%s: case %" PRId64 ": %s\n  %s\n", message[0] ? "FAILED" : "right", i, message, guard_case_line);
        fflush(stdout);
    }
    for (int i = 0; i < GRADIENTS; i++)
        printf("%-11s largest error %.2f units; nearest to its limit: case %" PRId64 ", %.0f %% of it\n",
               tolerance_gradient_table[i].output, totals.worst[i], totals.ratio_case[i], 100 * totals.ratio[i]);
    failures += !totals_trustworthy(&totals);
    printf("%" PRId64 " cases right, of which q, k, v and dout are f32 in %" PRId64 ", bf16 in %" PRId64
           ", f16 in %" PRId64 "; of %" PRId64 " numbers %" PRId64 " are 0 and %" PRId64 " may be anything; in %" PRId64
           " cases half; %d failures\n",
           totals.runs, totals.types[ATTN_F32], totals.types[ATTN_BF16], totals.types[ATTN_F16], totals.elements,
           totals.zeros, totals.unknown, totals.empty, failures);
    case_release(&c);
    return failures != 0;
}
