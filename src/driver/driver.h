/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver: cuts a checked problem into tasks and runs them.
 *
 * A task is a block of queries of one (batch, head), or of some heads that
 * share a key head and have few (heads.c), or, when sums over all queries are
 * wanted, a whole (batch, head), so that no two tasks write one number. Blocks
 * get smaller when there are few of them; that moves no bit of the result, as
 * lanes do not depend on each other.
 */
#ifndef ATTN_DRIVER_H
#define ATTN_DRIVER_H

#include "driver/ranges.h"
#include "pass/work.h"

#include <stdatomic.h>

/** Where a sequence of a rectangle lies in one of the larger problem. */
struct attn_origin {
    int64_t sequence;   /**< index there */
    int64_t query, key; /**< tokens of that sequence before the first query, and before the first key, of here */
    int64_t live;       /**< of these keys, the live ones */
};

/**
 * A problem that has some queries and some keys of each sequence of a larger one, and heads from first_head on. What
 * options say of indices they say of those there: first tokens, global tokens, block patterns, what dropout draws by
 * and what callbacks are told. With a block pattern the queries of a sequence begin where a row of its blocks does, or
 * are all of one.
 */
struct attn_rectangle {
    int64_t first_head;
    const struct attn_origin *origins; /**< [num_sequences] */
};

/** A request whose arguments have all been checked; params is the caller's, completed. */
struct attn_problem {
    attn_tensor q, k, v, out;   /**< k and v as sequences have them, also where they are in pages,
                                   data and strides of which mean nothing here: */
    attn_tensor k_pool, v_pool; /**< with a block table, what the caller gave */
    attn_params params;
    const struct attn_rectangle *rectangle; /**< NULL: the problem is whole */
    int isa;                                /**< the set that params.isa named (dispatch.h); 0: none */
    float scale;                            /**< the final factor of q·k */
    int plain;                              /**< params ask for causality and the log-sum-exp at most; 0 may
                                               be said of such, too */
    size_t reserved;                        /**< bytes of a thread's scratch that are wanted for something else */
    int64_t block_rows;                     /**< rows of a block of queries at most, whole vectors; 0: any number */
    int may_be_together;                    /**< params ask for nothing that wants a head by itself; 0 may be
                                        said of such, too */
    int64_t num_sequences;                  /**< the batch, or the sequences of a ragged one */
    attn_tensor mask, lse, weights, key_sums, scores; /**< copies; data NULL when absent */
    attn_tensor rope_q, rope_k, rel_k, rel_q;         /**< the same, of rope and disentangled */
    attn_tensor k_scale, v_scale;                     /**< the same, of a quantised k and v */
};

/** A sequence: a batch element, or one of a ragged batch. */
struct attn_sequence {
    int64_t batch;            /**< index on the tensors' batch axis */
    int64_t q_first, k_first; /**< index of its first query and key on their token axes */
    int64_t queries, keys;    /**< how many there are */
    int64_t begin, end;       /**< the live ones of its keys, counted from its first */
};

/** Sequence s of a problem whose arrays are right. */
struct attn_sequence attn_sequence_of(const struct attn_problem *problem, int64_t s);

/** Keys, from the first live one on, that causality leaves to the first query of a sequence. */
int64_t attn_keys_of_first_query(const struct attn_problem *problem, int64_t s);

/** Whether key_sums have a batch of their own: keys of a ragged batch in pages do not lie one after the other. */
static inline int attn_sums_by_sequence(const struct attn_problem *problem)
{
    return problem->params.ragged && problem->params.block_table;
}

struct attn_run;

/** Phases that a call may have. */
#define ATTN_MAX_PHASES 8

/** Tasks that may run in any order or at once, after all tasks of the phase before. */
struct attn_phase {
    int64_t tasks;
    int parallel;                                                              /**< threads that are worth starting */
    void (*run_task)(const struct attn_run *run, int64_t task, void *scratch); /**< in a thread's scratch */
};

/** How a problem's shape is cut, decided once per plan. */
struct attn_geometry {
    struct attn_kernels kernels;
    int64_t group;         /**< rows that no strip reaches across the multiples of: the blocks of a pattern; or 0 */
    int gathers;           /**< global queries have a strip of their own */
    int64_t together;      /**< query heads of a key head that may be in one block of queries: attn_heads_of() */
    int64_t rows_together; /**< rows that such a block may have */
    int64_t heads; /**< that tasks count: those of q or, where all sequences have them together, so many fewer */
    int64_t rows_per_block; /**< of a task: queries, of each head that is together */
    int64_t unit, pieces;   /**< a sequence is cut into units of rows, and these into pieces: the blocks */
    int64_t blocks;         /**< of a head: of one sequence, or of all those of a ragged batch, some of them empty */
    int64_t tasks;
    int64_t heads_per_task;            /**< of heads that are a single tile; 0: heads are blocks of queries */
    int far;                           /**< most of q, k and out comes from memory: rows are asked for ahead */
    int threads;                       /**< that there is scratch for */
    int parallel;                      /**< of these, how many are worth starting */
    int key_block;                     /**< keys per step */
    int64_t splits;                    /**< of the keys that a sequence has at most */
    int64_t parts;                     /**< tasks that share the splits of a block of queries; 1: a task takes all */
    size_t partial_size;               /**< bytes of what a split gives to a block of queries */
    struct attn_scratch_shape scratch; /**< of a thread */
    size_t scratch_size;               /**< bytes a thread, a multiple of ATTN_ALIGN */
    int64_t shared_rows;               /**< queries that may go together over keys that sequences share; 0: none do */
    size_t sums_at;                    /**< in a thread's scratch: the sums of these */
    int ordered;                       /**< sequences are handed out in an order of their own */
    size_t order_at;                   /**< in what phases hand on: that order */
    size_t labels_size;                /**< of what attn_summarise_labels() makes, a multiple of ATTN_ALIGN */
    size_t shared_size; /**< bytes that phases hand on, a multiple of ATTN_ALIGN: labels, then partials or what
                           attn_find_shared() makes */
    int num_phases;
    struct attn_phase phases[ATTN_MAX_PHASES];
    atomic_llong *begun; /**< counts tasks as they begin, for whoever watches a call that this one is a part of; NULL:
                            nobody does */
};

/** Bytes of working memory that one thread may use: with what a run keeps besides, a call has no more than 2 MiB a
 * thread. */
#define ATTN_SCRATCH_LIMIT (((size_t)2 << 20) - 4096)

/** Cuts a problem for at most threads threads. Looks at shapes and at which outputs are wanted, not at data. */
struct attn_geometry attn_geometry_of(const struct attn_problem *problem, const struct attn_kernels *kernels,
                                      int threads);

/** The same with the keys of a block of queries in one task: less memory, perhaps for fewer threads. */
void attn_geometry_unsplit(struct attn_geometry *geometry);

/** Rows that a block of heads together may have where there is room for so many. */
int64_t attn_most_rows_together(int64_t rows);

/** Query heads of a key head that are together in one block of queries, of so many rows at most: as many as leave work
 * for all threads, 1 at least. splits: those of the keys are such work. */
int64_t attn_heads_together(const struct attn_problem *problem, int64_t most_rows, int threads, int splits);

/** The same of a sequence that has so many queries: all they are in one block if it is not 1. */
int64_t attn_heads_of(const struct attn_geometry *geometry, int64_t tokens);

/** Whether the options of a problem, and how many queries a sequence has, leave its sums free, if they are few. */
int attn_sums_are_free(const struct attn_problem *problem, int64_t queries);

/** Whether any output has an element: without, there may be more heads or tokens than can be counted through. */
int attn_writes_anything(const struct attn_problem *problem);

/** Bytes that attn_summarise_labels() needs, a multiple of ATTN_ALIGN; 0 without documents. */
size_t attn_labels_size(const struct attn_problem *problem, int key_block);

/** Sequences that follow each other and whose keys begin with the same pages. */
struct attn_sharers {
    int64_t first, end; /**< of them */
    int64_t keys;       /**< from the first live one on, that all their queries see; 0: the sequence is by itself */
};

/** Queries that may go together over keys that sequences share, if there is room for most; 0: none do. */
int64_t attn_shared_rows(const struct attn_problem *problem, int64_t together, int64_t most);

/** The only task of the first phase, if sequences may share keys: looks which do. */
void attn_find_shared(const struct attn_run *run, int64_t task, void *scratch);

/**
 * A block of queries of a sequence that shares keys: the first of its sharers has the blocks of all, and the others
 * find nothing to do. Returns 0 if the sequence is by itself.
 */
int attn_run_shared(const struct attn_run *run, int64_t s, int64_t counted, int64_t block, void *scratch);

/** A sequence in its place, from the one with the longest tasks on. */
struct attn_ordered {
    int64_t s;
    int64_t first; /**< units of rows of a ragged batch's head that come before */
};

/** Whether a call is worth that sequences are put in order: their lengths are data, and threads have few tasks each. */
int attn_is_ordered(const struct attn_problem *problem, const struct attn_geometry *geometry, int threads);

/** Bytes of an order, a multiple of ATTN_ALIGN. */
size_t attn_order_size(const struct attn_problem *problem);

/** The only task of a phase, behind attn_find_shared(): puts them in order. */
void attn_order_sequences(const struct attn_run *run, int64_t task, void *scratch);

/** attn_ragged_block() of a run whose sequences are in order. */
int64_t attn_ordered_block(const struct attn_run *run, int64_t *block);

/** A checked call at work, at the start of its workspace. */
struct attn_run {
    const void *owner;                  /**< of whoever has begun it, to be known again; NULL: not begun */
    const struct attn_problem *problem; /**< the arrays that params point to are the caller's */
    const struct attn_geometry *geometry;
    struct attn_label_range *labels;            /**< what attn_summarise_labels() makes; NULL without documents */
    const struct attn_backward *backward;       /**< of a backward call (driver/backward.h); NULL: of a forward one */
    const struct attn_backward_steps *steps;    /**< of a backward call: how it goes over queries and keys */
    const struct attn_linear_attention *linear; /**< of linear attention (driver/linear_attention.h): no problem then */
    const struct attn_linear_backward *linear_backward; /**< of its gradients (driver/linear_backward.h): the same */
    const attn_executor *executor;                      /**< that params name; NULL: none */
    struct attn_looks *looks;     /**< where tasks say what scales they have seen; NULL: these have been checked */
    struct attn_sharers *sharers; /**< of each sequence; NULL: none share keys */
    struct attn_ordered *order;   /**< [num_sequences + 1] the last one is no sequence; NULL: they are as they come */
    char *partials;               /**< [batch][heads that tasks count][blocks][splits] what attn_run_part() leaves */
    char *scratch;                /**< scratch_size bytes a thread */
    struct attn_problem kept;     /**< by attn_run_keep() */
    struct {
        _Alignas(ATTN_ALIGN) atomic_llong task; /**< the next one to be handed out; all threads write here */
    } next[ATTN_MAX_PHASES];
};

/** A task of the first phase, if there are documents: looks at the labels of all keys of a sequence once, so that no
 * task of the next phase has to. */
void attn_summarise_labels(const struct attn_run *run, int64_t s, void *scratch);

/** Points a view to the summary of sequence s. */
void attn_view_labels(const struct attn_run *run, int64_t s, struct attn_view *view);

/** What is done with a block of queries: all of it or, in turn, parts 0 to geometry->parts - 1 of its keys and the join
 * of what they have given. */
enum { ATTN_ALL_KEYS = -1, ATTN_JOIN_PARTS = -2 };

/** Row row of a head of a tensor, and those behind it; axes of length 1 are broadcast. */
struct attn_rows attn_head_rows(const attn_tensor *t, int64_t b, int64_t h, int64_t row);

/**
 * A block of queries of sequence s and a head, as tasks count them, for a pass. Returns 0 if it holds none. Where a
 * ragged batch has a sequence's heads together, block 0 of the first of them holds all. s == num_sequences: queries
 * that belong to none.
 */
int attn_work_of(const struct attn_run *run, int64_t s, int64_t counted, int64_t block, void *scratch,
                 struct attn_work *work);

/** Whether the sums of a sequence of so many queries are free, with the kernels that there are. */
int attn_frees_sums(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t queries);

/**
 * The sequence of a ragged batch that piece number *number belongs to, and *number as it counts its own. Tokens are cut
 * into pieces of unit from each sequence's first one on, and sequence s has those from offsets[s] / unit + s to
 * offsets[s + 1] / unit + s: enough for its tokens wherever they begin, and found without a table; the last of them may
 * be empty. What lies behind the last sequence counts as one more.
 */
int64_t attn_piece_of(const int64_t *offsets, int64_t sequences, int64_t unit, int64_t *number);

/** The sequence that block number *block of a head of a ragged batch belongs to, and *block as it counts its own. */
int64_t attn_ragged_block(const struct attn_run *run, int64_t *block);

/** Hands such a block, or a part of its keys, to the kernel, if it holds any. */
void attn_run_block(const struct attn_run *run, int64_t s, int64_t counted, int64_t block, int64_t part, void *scratch);

/** The block of queries that a number of a task stands for: of batch element b, or of all sequences of a ragged batch
 * (attn_ragged_block()). */
struct attn_place {
    int64_t b, h, block;
};

struct attn_place attn_place_of(const struct attn_run *run, int64_t number);

/** Runs task number task in a thread's scratch. */
void attn_run_task(const struct attn_run *run, int64_t task, void *scratch);

/** The same where a task is a part of the keys of a block of queries, and where it joins what all parts have given. */
void attn_run_part(const struct attn_run *run, int64_t task, void *scratch);
void attn_run_join(const struct attn_run *run, int64_t task, void *scratch);

/** Whether each head is a single tile, with nothing but causality to it: attn_run_singles() does. */
int attn_is_single(const struct attn_problem *problem, const struct attn_kernels *kernels);

/** Bytes of scratch for that, a multiple of ATTN_ALIGN. */
size_t attn_single_size(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t together);

/** Runs a task of heads_per_task heads. */
void attn_run_singles(const struct attn_run *run, int64_t task, void *scratch);

/** Bytes of a workspace, of any alignment, for so many threads. */
size_t attn_run_size(const struct attn_geometry *geometry, int threads);

/** Lays a run out in a workspace; problem and geometry have to outlive it. */
struct attn_run *attn_run_begin(void *workspace, const struct attn_problem *problem,
                                const struct attn_geometry *geometry);

/** The tasks of a run in a workspace that have begun, and all of them. Any thread may ask; see attn_plan_progress(). */
void attn_run_progress(const void *workspace, const struct attn_geometry *geometry, int64_t *begun, int64_t *tasks);

/** All tasks of its phases. */
int64_t attn_geometry_tasks(const struct attn_geometry *geometry);

/** Takes a copy of the problem into the workspace: what was given need not outlive this. */
void attn_run_keep(struct attn_run *run);

/** Where attn_run_begin() has put it. */
struct attn_run *attn_run_in(void *workspace);

/** Runs tasks of a phase that nobody else has, in the scratch of thread ith, until there are none. */
void attn_run_share(struct attn_run *run, int phase, int ith);

/** Runs all phases on geometry->parallel threads or fewer. */
void attn_run_parallel(struct attn_run *run);

/** out = the rows of x, turned by those of table. Everything has been checked. */
void attn_rotate(const struct attn_kernels *kernels, const attn_tensor *x, const attn_tensor *table,
                 attn_rope_layout layout, const attn_tensor *out, int threads);

/** Channels of a row that is quantised as it is stored. */
#define ATTN_MAX_STORED 4096

/** Rows of a store. */
struct attn_store_work {
    attn_tensor x, rotations, pool; /**< rotations.shape[3] 0: none */
    attn_tensor scales;             /**< of a quantised pool, whose rows have up to ATTN_MAX_STORED channels */
    const int64_t *slots;           /**< [tokens of x] */
    attn_rope_layout layout;
};

/** Writes them. Everything has been checked. */
void attn_run_store(const struct attn_kernels *kernels, const struct attn_store_work *store, int threads);

/** out and scale = the rows of x in 8 or 4 bits. Everything has been checked. */
void attn_run_quantise(const struct attn_kernels *kernels, const attn_tensor *x, const attn_tensor *out,
                       const attn_tensor *scale, int threads);

/** Computes the rows of a merge, whose arguments have all been checked, on up to threads threads. */
void attn_run_merge(const struct attn_kernels *kernels, const struct attn_merge_work *merge, int threads);

#endif
