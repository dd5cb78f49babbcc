/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls whose scaling is looked at, as a table, and such a call as a plan
 * with its tensors and workspace.
 */
#ifndef SCALING_SHAPES_H
#define SCALING_SHAPES_H

#include "attn/attn.h"
#include "attn/backward.h"

#include <stdbool.h>

/** How the sequences of a ragged batch differ. */
enum scaling_lengths {
    SCALING_EQUAL,   /**< a batch that is not ragged */
    SCALING_TEXTS,   /**< lengths as of texts: many short ones, few long ones */
    SCALING_LENGTHS, /**< a batch that is not ragged, whose sequences have as many keys as they have */
    SCALING_SERVING, /**< a step of a server: a few prompts, and many sequences with a token each */
};

struct scaling_shape {
    const char *name;
    const char *words; /**< what it stands for */
    int64_t batch;     /**< or the sequences of a ragged batch */
    int64_t heads, kv_heads;
    int64_t tq, tk; /**< of a ragged batch: of the longest sequence */
    int64_t d;
    attn_causal causal;
    int64_t window; /**< keys to the left; 0: none */
    enum scaling_lengths lengths;
    int64_t page;   /**< keys of a page; 0: none */
    int64_t common; /**< keys in pages that all sequences share */
    attn_dtype dtype;
    attn_qk qk;
    bool backward;
    bool table; /**< of T5's biases, whose gradient is wanted, too */
};

/** The table; name NULL ends it. */
extern const struct scaling_shape scaling_shapes[];

/** A shape as a plan. */
struct scaling_call {
    const struct scaling_shape *shape;
    int threads;
    double work; /**< multiply-adds of live pairs of query and key */
    attn_tensor q, k, v, out, lse, dout, dq, dk, dv;
    attn_params params;
    attn_gradients gradients;
    attn_ragged ragged;
    attn_window window;
    attn_relative_bias bias;
    float *table; /**< of bias; then its gradient */
    attn_executor executor;
    int64_t *cu_seqlens_q, *cu_seqlens_k, *kv_len;
    int32_t *block_table;
    attn_plan *plan;
    attn_backward_plan *backward_plan;
    void *workspace;
    size_t workspace_size;
};

/** Whether the instruction set can compute a shape: its type's own kernels are asked for. */
bool scaling_shape_has(const struct scaling_shape *shape, const char *isa);

/**
 * Makes a plan of a shape for so many threads, with tensors in memory that no page has been touched of, unless data is
 * set: then they hold numbers. An executor that stands for as many threads lets the plan have them on any machine;
 * without, they are OpenMP's. 0, or -1 after a sentence on stderr.
 */
int scaling_call_open(struct scaling_call *call, const struct scaling_shape *shape, const char *isa, int threads,
                      bool executor, bool data);

/** Begins a run, whose tasks then lie in the workspace; 0, or -1 after a sentence on stderr. */
int scaling_call_begin(struct scaling_call *call);

/** Runs all of it on the plan's threads; the same. */
int scaling_call_run(struct scaling_call *call);

/** One share of a phase of a run that has begun; the same. */
int scaling_call_share(struct scaling_call *call, int phase, int ith, int nth);

int scaling_call_phases(const struct scaling_call *call);

void scaling_call_close(struct scaling_call *call);

#endif
