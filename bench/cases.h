/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of shapes and options that attn-bench measures. Adding a case is
 * adding a row in cases.c; a figure that it has to reach is a row in bars.c.
 */
#ifndef BENCH_CASES_H
#define BENCH_CASES_H

#include "attn/attn.h"

#include <stdbool.h>

/** How q, k, v and out lie in memory. */
enum bench_layout { BENCH_BHTD, BENCH_BTHD };

/** What a case asks for besides causality, masks and padding; forms.c has the sizes that the case does not give. */
enum bench_form {
    BENCH_PLAIN,
    BENCH_WINDOW,        /**< sliding window, with first tokens when causal */
    BENCH_WINDOW_GLOBAL, /**< sliding window with global tokens */
    BENCH_BLOCKS,        /**< block-sparse pattern, one block in ten */
    BENCH_SEGMENTS,      /**< documents in one sequence */
    BENCH_TREE,          /**< the queries are a tree of drafted tokens, the last of the keys */
    BENCH_PREFIX,        /**< causality that spares a prefix */
    BENCH_ALIBI,
    BENCH_T5, /**< bias by T5's buckets */
    BENCH_DISENTANGLED,
    BENCH_ROPE,
    BENCH_SOFTCAP,
    BENCH_SINKS,
    BENCH_RAGGED, /**< sequences without padding; batch, tq and tk are their number and longest length */
    BENCH_DROPOUT,
    BENCH_CALLBACK
};

/** How a linear layer keeps its weights. */
enum bench_weights {
    BENCH_WEIGHTS_GIVEN, /**< in the case's dtype */
    BENCH_WEIGHTS_INT8,  /**< with a scale for each output */
    BENCH_WEIGHTS_INT4   /**< with a scale for each group of 32 inputs */
};

/** What is computed and timed. */
enum bench_pass {
    BENCH_PASS_FORWARD,
    BENCH_PASS_BACKWARD, /**< attn_backward() on what a forward call has left */
    BENCH_PASS_BOTH      /**< the forward call, too */
};

/** Linear attention, by the options that make its rule. */
enum bench_rule {
    BENCH_NO_RULE, /**< attention with a softmax, or something else */
    BENCH_LINEAR,
    BENCH_GATED,
    BENCH_GATED_ROWS, /**< a decay for each channel of a key */
    BENCH_DELTA,
    BENCH_GATED_DELTA,
    BENCH_GATED_DELTA_ROWS
};

struct bench_case {
    const char *id;   /**< short and unique; bars.c refers to it */
    attn_dtype dtype; /**< of q, k, v and out; see kept */
    attn_qk qk;       /**< how scores are computed */
    int64_t batch, heads, kv_heads, tq, tk, d;
    attn_causal causal;
    enum bench_layout layout;
    enum bench_pass pass; /**< gradients: plain attention, or a form that hides pairs and does nothing else */
    bool bool_mask;       /**< boolean (B,1,Tq,Tk), one pair in 64 hidden: no tile can be skipped or run without it */
    bool padded;          /**< kv_len spread evenly over the batch, half of Tk on average */
    bool compare;         /**< measured against the naive implementation */
    bool sampled; /**< checked by some rows in double, as forms are: the naive one's scores would take gigabytes */
    enum bench_form form;
    /** Tokens of a window, of a document, of each sequence, along the side of a block; 0 where forms.c has its own. */
    int64_t size;
    attn_dtype kept;        /**< of k and v where that is not dtype: narrower, in 8 bits with scales; else ATTN_F32 */
    int64_t values_in_keys; /**< latent attention: v is so many first channels of k, in its memory; 0: v has its own */
    bool additive; /**< additive scores of libattn_nn: one head, d channels of queries, under the tanh and of values */
    enum bench_rule rule; /**< of linear attention: tq tokens, whose state is carried on */
    int64_t features;     /**< Performer: tq tokens, with so many positive random features; 0: none */
    int64_t projected;    /**< Linformer: so many projected keys and values of tk tokens; 0: they are as they are */
    bool append;          /**< attn_store(): tq new tokens of each sequence go to pages, which have room for tk */
    bool free_sums;       /**< ATTN_SUMS_FREE */
    int64_t page;         /**< keys and values are in pages of so many tokens, in random order; 0: side by side */
    int64_t common;       /**< first keys, whole pages, that all sequences have in the same pages */
    int64_t listed;       /**< blocks in a row of BENCH_BLOCKS; 0: one in ten */
    const char *cost;     /**< cases of this name differ in length only, and must not in time per token; or NULL */
    int64_t rows, outputs, inputs; /**< a linear layer instead of attention: x is rows by inputs; otherwise 0 */
    enum bench_weights weights;    /**< of the layer */
    int64_t group;                 /**< inputs of an output with a scale of their own, in int8; 0: all */
    bool narrow_products;          /**< of bf16 with weights in bf16, of int8 with integers; else of f32 */
};

extern const struct bench_case bench_cases[];
extern const int bench_num_cases;

/** The case called id, or NULL. */
const struct bench_case *bench_case_find(const char *id);

/** Whether the result is checked by a sample of rows instead of the naive implementation. */
static inline bool bench_case_sampled(const struct bench_case *c)
{
    return c->sampled || c->form != BENCH_PLAIN;
}

/** Whether the case is a call of attn_forward() or attn_backward(), or what they are compared with. */
static inline bool bench_case_softmax(const struct bench_case *c)
{
    return c->rows == 0 && !c->append && !c->rule && !c->additive && c->features == 0 && c->projected == 0;
}

/** Whether the case is a linear layer of libattn_nn. */
static inline bool bench_case_linear(const struct bench_case *c)
{
    return c->rows > 0;
}

/**
 * Weight matrices that a linear case takes in turns: with few rows as many as no core's cache holds, and at least 2;
 * with many rows 1.
 */
int64_t bench_case_matrices(const struct bench_case *c);

/** Whether its matrices are more than a last level of cache holds; they are copies of one. */
bool bench_case_far(const struct bench_case *c);

/** The type of k and v. */
static inline attn_dtype bench_case_kept(const struct bench_case *c)
{
    return c->kept != ATTN_F32 ? c->kept : c->dtype;
}

/** Channels of v. */
static inline int64_t bench_case_dv(const struct bench_case *c)
{
    return c->values_in_keys > 0 ? c->values_in_keys : c->d;
}

/**
 * Bytes of K and V with their scales, once where V is in K or a page is of several sequences; of the rows that a call
 * keeps, if it appends.
 */
double bench_case_key_bytes(const struct bench_case *c);

/** Whether a call is made of reading and writing the states of linear attention: a few tokens of each sequence. */
bool bench_case_updates_states(const struct bench_case *c);

/** Whether a call is made of reading K and V: one token of each sequence. */
bool bench_case_reads_keys(const struct bench_case *c);

/** Bytes of a weight, without scales. */
double bench_case_weight_size(const struct bench_case *c);

/** Longest name with its terminator. */
#define BENCH_NAME_SIZE 192

/** Whether two names are of the same instruction set. */
static inline bool bench_same_isa(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/**
 * Whether the library can run the case where isa is asked for: int8 scores need instructions of their own, linear
 * layers libattn_nn, and there as for appending isa must be the active one.
 */
bool bench_case_supported(const struct bench_case *c, const char *isa);

/**
 * The instruction set whose kernels run the case, its backward pass if it has one, where isa is asked for: only bf16
 * makes use of products of bf16, and where they are no faster than those of floats the library does without them.
 */
const char *bench_case_isa(const struct bench_case *c, const char *isa);

/** Whether the description of a plan says that the kernels of isa run it. */
bool bench_plan_names(const char *description, const char *isa);

/** Whether calls with isa in bf16 have their int8 scores from a set. */
bool bench_int8_scores_by(const char *set, const char *isa);

/**
 * "forward/f32/B1/H8/Tq2048/Tk2048/d64/causal:none/layout:bhtd", then
 * /kv_heads, /kv, /v_in_k, /page, /common, /sums:free, /mask, /padded, /qk, /form, /block or /size, /listed and /cost;
 * the same with "backward" or "forward-backward", by the pass; "append/f32/B256/H8/T1/Tk512/d128", then /kv and /page;
 * "linear-attention/f32/B1/H8/T8192/d128/rule:gated", then /cost; "linear-attention-backward/..." with gradients;
 * "performer/f32/B1/H8/T8192/d64/causal:none/features:256"; "linformer/f32/B1/H8/Tq2048/Tk8192/d64/projected:256";
 * "additive/f32/B1/Tq1/Tk2048/d256"; or "linear/f32/M24/N1152/K384" (or bf16, int8, int4: the weights), then
 * /multiply:bf16 or int8, /group and /matrices.
 */
void bench_forward_name(const struct bench_case *c, char name[BENCH_NAME_SIZE]);

/** The same with "naive" for "forward", or with "sgemm" for "linear". */
void bench_naive_name(const struct bench_case *c, char name[BENCH_NAME_SIZE]);

#endif
