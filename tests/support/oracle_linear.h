/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of linear attention: the recurrence of the header token by token in
 * double precision, with a unit for each number, and a naive f32 computation
 * beside it, as oracle.h has them for attention.
 *
 * It reads tensors as they are: any strides, types in any mix, exactly. Inputs that
 * the library would refuse are not looked for.
 */
#ifndef TEST_ORACLE_LINEAR_H
#define TEST_ORACLE_LINEAR_H

#include "attn/linear_attention.h"

/** What a call reads. Of out the shape counts, of params->state_in what is there now. */
struct linear_inputs {
    const attn_tensor *q, *k, *v, *out;
    const attn_linear_attention_params *params;
};

/** What a call writes: out (B, heads, T, dv) and the states (N, H, dk, dv), contiguous. */
enum linear_output { LINEAR_OUT, LINEAR_STATE, LINEAR_OUTPUTS };

/**
 * The numbers of one output. One that is not finite must not be finite in a result, either, of whatever kind; a unit
 * that is infinite permits any number, as f32 says nothing there.
 */
struct linear_numbers {
    int64_t count;
    double *value, *unit;
    double *naive_error; /**< distance of the naive result from value, the largest of several orders */
};

struct linear_reference {
    struct linear_numbers of[LINEAR_OUTPUTS];
};

/** Computes everything; ends the program when memory is short. Free with linear_reference_free(). */
struct linear_reference linear_reference_compute(const struct linear_inputs *inputs);

/** The same without the naive computation, whose errors are 0. */
struct linear_reference linear_reference_compute_alone(const struct linear_inputs *inputs);
void linear_reference_free(struct linear_reference *reference);

/** Sequences, each with a state of its own; the batch that one lies in, and its tokens from first to end - 1. */
int64_t linear_sequences(const struct linear_inputs *inputs);
int64_t linear_batch(const struct linear_inputs *inputs, int64_t sequence);
int64_t linear_first(const struct linear_inputs *inputs, int64_t sequence);
int64_t linear_end(const struct linear_inputs *inputs, int64_t sequence);

/** Whether S is cleared before a token. */
int linear_resets(const struct linear_inputs *inputs, int64_t b, int64_t h, int64_t t);

/** Heads of out, and those of them that read the state of head h: readers of them from the first on. */
struct linear_readers {
    int64_t first, count;
};
struct linear_readers linear_readers_of(const struct linear_inputs *inputs, int64_t h);

/** The head of q that a head of out has, and the head of k that a state has. */
int64_t linear_query_head(const struct linear_inputs *inputs, int64_t out_head);
int64_t linear_key_head(const struct linear_inputs *inputs, int64_t h);

/** Naive f32: adds to naive_error where it is further from value than what stands there. */
void linear_naive_compute(const struct linear_inputs *inputs, struct linear_reference *reference);

#endif
