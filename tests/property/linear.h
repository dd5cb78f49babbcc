/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random problems of linear attention for the property tests: contiguous tensors
 * with all options, and results that hold out and the states, so that two ways to the
 * same result can be compared.
 */
#ifndef PROPERTY_LINEAR_H
#define PROPERTY_LINEAR_H

#include "problem.h"

#include "attn/linear_attention.h"

/** What linear_draw() may draw. */
enum linear_features {
    LINEAR_RESETS = 1,  /**< resets, now and then */
    LINEAR_LARGE = 2,   /**< a problem that is worth several threads */
    LINEAR_NO_BETA = 4, /**< no rule with beta */
    LINEAR_BETA = 8,    /**< a rule with beta */
    LINEAR_DECAY = 16,  /**< a rule with decay */
    LINEAR_WIDE = 32    /**< no f16, whose range is narrow */
};

/** A problem. What it has not has no data; views of it own nothing. */
struct linear_problem {
    attn_tensor q, k, v, decay, beta, resets, state_in;
    attn_dtype out;                      /**< type of the output */
    attn_linear_attention_params params; /**< without tensors */
};

/** Outputs, contiguous. */
struct linear_result {
    attn_tensor out, state;
};

void linear_draw(struct linear_problem *p, struct rng *rng, const char *isa, int features);
void linear_free(struct linear_problem *p);

/** The options of a call, pointing to the tensors of p. */
attn_linear_attention_params linear_params(const struct linear_problem *p);

/** Memory for the outputs, with a pattern in it. */
struct linear_result linear_allocate(const struct linear_problem *p);
void linear_result_free(struct linear_result *r);

/** Runs a problem; ends the program with a sentence when the call fails. */
struct linear_result linear_run(const struct linear_problem *p);

/** Makes p the n tokens from first on. */
void linear_narrow_tokens(struct linear_problem *p, int64_t first, int64_t n);

/** Whether out of part has the bits of whole from (batch b, head h, token t) on, as far as it reaches. Says so of
 * others by what. */
int linear_same_out(const char *what, const struct linear_result *whole, int64_t b, int64_t h, int64_t t,
                    const struct linear_result *part);
/** The same of states, from (sequence n, head h) on. */
int linear_same_state(const char *what, const struct linear_result *whole, int64_t n, int64_t h,
                      const struct linear_result *part);
/** The same of all of two results. */
int linear_same(const char *what, const struct linear_result *a, const struct linear_result *b);

/** Whether a result is what the oracle says of a problem, which may be another one than it is of. */
int linear_is_right(const char *what, const struct linear_problem *p, const struct linear_result *r);

/** How far each number of a result may be from the exact one, by the table in support/tolerance.h; besides the rounding
 * of out to its type. */
struct linear_limits {
    double *out, *state;
};
struct linear_limits linear_limits_of(const struct linear_problem *p);
void linear_limits_free(struct linear_limits *limits);

/** Whether two results are as near to each other as what is allowed for each lets them be. */
int linear_near(const char *what, const struct linear_result *a, const struct linear_limits *limits_a,
                const struct linear_result *b, const struct linear_limits *limits_b);

#endif
