/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What attn run computes: the arrays that are asked for, as the library takes them and as they are written.
 */
#ifndef ATTN_TOOLS_RESULTS_H
#define ATTN_TOOLS_RESULTS_H

#include "inputs.h"
#include "kinds.h"

enum result { RESULT_OUT, RESULT_LSE, RESULT_WEIGHTS, RESULT_SCORES, RESULT_KEY_SUMS, RESULT_STATE, RESULTS };

struct results {
    bool wanted[RESULTS];         /* the output always is */
    bool average;                 /* weights are written as their mean over the heads */
    struct integers rows;         /* of weights and scores; values NULL: all */
    struct array arrays[RESULTS]; /* what is written */
    attn_tensor views[RESULTS];
    struct array of_heads; /* the weights of all heads, where their mean is written */
};

/* Allocates what is wanted and makes the views. rows are those of queries that there are. */
attn_status results_allocate(struct results *results, const struct inputs *in, const struct kinds *kinds,
                             enum array_dtype out_dtype);
/* Sets what params has of them. */
void results_request(const struct results *results, attn_params *params);
/* What is left to do once the call has been made: the mean over the heads. */
void results_finish(struct results *results);
/* The view of a result, or NULL if it is not wanted. */
const attn_tensor *results_view(const struct results *results, enum result result);
void results_free(struct results *results);

#endif
