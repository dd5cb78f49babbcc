/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files that draw a case share: memory between guard pages, strides,
 * and the lengths of sequences, which in a ragged batch are not the tensors'.
 */
#ifndef CHECK_CASE_DRAW_H
#define CHECK_CASE_DRAW_H

#include "case.h"
#include "place.h"

/** Bytes that a slot can hold. */
size_t case_capacity(enum case_slot slot);

/** Memory in a slot, flush with one of its ends. */
void *case_place(struct test_case *c, enum case_slot slot, size_t bytes, struct rng *rng);

/** An array of n elements of a type in a slot. */
#define CASE_PLACE(c, slot, type, n, rng) ((type *)case_place((c), (slot), (size_t)(n) * sizeof(type), (rng)))

/** Strides for t's shape, and memory for it in a slot. */
void case_place_tensor(struct test_case *c, enum case_slot slot, attn_tensor *t, int liberties, struct rng *rng);

/** Sequences, and the queries and keys of each. */
int64_t case_sequences(const struct test_case *c);
int64_t case_queries(const struct test_case *c, int64_t sequence);
int64_t case_keys(const struct test_case *c, int64_t sequence);

static inline int case_has(const struct test_case *c, enum case_form form)
{
    return (int)(c->forms >> form & 1u);
}

/** Whether a slot holds what the call reads: those before outputs; out and lse, too, in a backward pass. */
static inline int case_reads(const struct test_case *c, int slot)
{
    return slot < SLOT_FIRST_OUTPUT || (c->backward && slot <= SLOT_LSE);
}

attn_dtype case_any_float(struct rng *rng);

/** Which options a case has; those that exclude each other do not come together. */
unsigned case_draw_forms(struct rng *rng);

/** Cumulative lengths of a ragged batch of num sequences, and tokens behind the last one; sets the tensors' lengths. */
void case_draw_ragged(struct test_case *c, int64_t num, const int64_t *queries, const int64_t *keys, struct rng *rng);

/** Options that hide keys, once lengths and causality stand. */
void case_draw_hiding(struct test_case *c, struct rng *rng);

/** Options that change scores and weights. */
void case_draw_terms(struct test_case *c, struct rng *rng);

/** What the library is called with, once everything else stands. */
void case_draw_pages(struct test_case *c, struct rng *rng);

/** k and v in 8 or 4 bits, for a call without pages. */
void case_draw_stored(struct test_case *c, struct rng *rng);

/** Numbers in what case_draw_terms() has placed with strides. */
void case_fill_terms(struct test_case *c, struct rng *rng);

/** The callback of a case, whose user is &c->callback. */
attn_score_callback case_callback;

/** Its partner in a backward pass, of the same user. */
attn_score_gradient_callback case_callback_partner;

/** The same of weights, whose user is &c->weight_callback. */
attn_weight_callback case_weight_callback;

#endif
