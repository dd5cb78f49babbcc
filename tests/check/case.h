/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random cases for the forward pass.
 *
 * A case is made from (seed, index) alone. All of its tensors and arrays lie
 * between guard pages (support/guard.h), each in a guard of its own, flush
 * with one end; inputs are remembered so that a change in them is seen, and
 * the gaps between rows hold NaN in inputs and a canary in outputs.
 */
#ifndef CHECK_CASE_H
#define CHECK_CASE_H

#include "attn/attn.h"
#include "guard.h"
#include "random.h"

#include <stdint.h>

#define CASE_MAX_BATCH 8
#define CASE_MAX_ROWS  64

/** Where each tensor and array of a case lies. */
enum case_slot {
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_MASK,
    SLOT_KV_LEN,
    SLOT_KV_START,
    SLOT_QUERY_OFFSET,
    SLOT_WEIGHT_ROWS,
    SLOT_FIRST_OUTPUT,
    SLOT_OUT = SLOT_FIRST_OUTPUT,
    SLOT_LSE,
    SLOT_WEIGHTS,
    SLOT_KEY_SUMS,
    SLOT_LAST_OUTPUT = SLOT_KEY_SUMS,
    SLOT_WORKSPACE,
    SLOTS
};

enum case_values { VALUES_NORMAL, VALUES_HUGE, VALUES_INF, VALUES_NAN, VALUES_DENORMAL, VALUES_CONSTANT, VALUES_KINDS };

/** Through which function the case is run. */
enum case_entry { ENTRY_FORWARD, ENTRY_PLAN_RUN, ENTRY_PLAN_SHARE, ENTRIES };

/** The type of each tensor that has a choice; mask: if it is additive. */
struct case_types {
    attn_dtype q, k, v, out, mask;
};

struct test_case {
    struct guard guard[SLOTS];
    unsigned char *snapshot[SLOT_FIRST_OUTPUT]; /**< the inputs as they were */
    size_t snapshot_capacity[SLOT_FIRST_OUTPUT];

    attn_tensor q, k, v, out, mask, lse, weights, key_sums;
    attn_params params;
    enum case_values values;
    enum case_entry entry;
    int packed; /**< q, k and v share one buffer */
};

/** Maps the guards. One struct serves any number of cases. */
void case_initialize(struct test_case *c);
void case_release(struct test_case *c);

/** Makes case index of the run that seed started, for one instruction set. */
void case_generate(struct test_case *c, uint64_t seed, uint64_t index, attn_isa isa);

/** Values of the tensors, once shapes, layouts and lengths stand. */
void case_fill(struct test_case *c, struct rng *rng);

/** Whether the inputs are unchanged and nothing outside the outputs was written; else names what was. */
int case_check_memory(const struct test_case *c, char *message, size_t size);

/** One line with shapes, strides and options. */
void case_describe(const struct test_case *c, char *buffer, size_t size);

#endif
