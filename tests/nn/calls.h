/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of libattn_nn that runs on several threads, each on a model of its
 * own, with the same few ways to make it: for tests of what all of them promise.
 */
#ifndef TEST_NN_CALLS_H
#define TEST_NN_CALLS_H

#include "attn/nn.h"

/** How a call is made. */
struct how {
    int num_threads;
    const attn_executor *executor; /**< the call's own */
    const attn_executor *of_self;  /**< of a layer's self-attention */
    void *workspace;
    size_t size;
};

/** A call, and how many parts of it find work for several threads where there are MOST_TOKENS. */
struct call {
    const char *name;
    attn_status (*run)(const struct how *how, float *to);
    size_t (*size)(const struct how *how); /**< NULL: takes no workspace */
    const char *own;                       /**< the struct that an executor of its own stands in, or NULL */
    int parts;
};

/** Channels of the models; numbers that a call may write. */
enum { MOST_TOKENS = 1024, D = 128, MOST_NUMBERS = 2 * MOST_TOKENS * D };

extern const struct call calls[];
extern const int num_calls;

/** Tokens of a call from now on, a multiple of 8 up to MOST_TOKENS. */
extern int64_t tokens;

void make_models(void);
void destroy_models(void);

#endif
