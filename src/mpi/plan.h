/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan of libattn_mpi keeps between runs.
 */
#ifndef ATTN_MPI_PLAN_INTERNAL_H
#define ATTN_MPI_PLAN_INTERNAL_H

#include "mpi/agree.h"
#include "mpi/groups.h"
#include "mpi/options.h"
#include "mpi/rectangle.h"
#include "mpi/whole.h"
#include "mpi/wire.h"

struct attn_mpi_plan {
    struct mpi_transport transport;
    struct mpi_team team;                       /**< all ranks */
    struct mpi_team ring;                       /**< those with the same heads, one of each group: keys travel here */
    struct mpi_team group;                      /**< those that share tokens, each with heads of its own */
    int lost;                                   /**< a message of any of them has failed */
    struct attn_mpi_plan *left_before;          /**< of those that were destroyed after that, the one before */
    double *left_options;                       /**< gradients of options that were being summed then */
    attn_mpi_config config;                     /**< head_ranks is the number, chosen or given */
    attn_tensor q, k, v, out;                   /**< this rank's shapes and types */
    int rotated;                                /**< with rope: q and k are turned before anything else */
    struct mpi_share *queries, *keys;           /**< [ranks] what each rank gives */
    struct mpi_pool *pools[2];                  /**< [ranks of ring] of queries and of keys; NULL without groups */
    struct mpi_share *ring_queries, *ring_keys; /**< [ranks of ring] what a group has together */
    struct mpi_exchange exchange;               /**< in groups */
    double waited_for, without_groups;          /**< mpi_waited_for() */
    int64_t *slots;                             /**< 0, 1, 2, ...: rows of attn_store(), as many as there are tokens */

    /* Of the group's tokens and this rank's heads, from here on */
    attn_tensor ring_q, ring_k, ring_v, ring_out; /**< shapes, data in groups alone */
    struct mpi_block block;                       /**< keys and values as they travel */
    int packs;                                    /**< this rank's block lies in own, not where the caller has it */
    int64_t rows;                                 /**< queries that are computed at once */
    struct mpi_lane lane;                         /**< of keys and values */
    void *own, *arriving[2];                      /**< blocks */
    float *turned;                                /**< (B, Hq, Tq, dk) this rank's q, rotated */
    void *converted;                              /**< with groups: the block of this rank's tokens and all heads */
    void *all_q, *all_out;                        /**< with groups: ring_q, ring_out */
    float *sums, *lse;                            /**< (B, Hq, Tq, dv), (B, Hq, Tq): the queries' results so far */
    double *exact_lse;                            /**< the same as lse, while they are joined */
    float *part, *part_lse;                       /**< (B, Hq, rows, dv), (B, Hq, rows): what one rectangle gives */
    struct mpi_lane gradients_lane;               /**< of gradients of keys and values, back to where these are */
    struct mpi_block gradients_block;             /**< f32 */
    void *leaving[2], *returning[2];              /**< blocks of gradients, for others and from others */
    float *d_keys;                                /**< the block of gradients of the group's keys and values */
    float *d_q, *part_q, *part_keys;              /**< sums of gradients of q; what one rectangle gives */
    float *all_d_out, *all_d_lse;                 /**< with groups: gradients of out, of any type, and of lse */
    float *own_d_q, *own_d_keys;                  /**< with groups: of this rank's tokens and all heads */
};

/**
 * Makes a plan whose messages a transport carries, as attn_mpi_plan_create() does for MPI; collective. The transport is
 * the plan's from here on, also on an error; *plan is written after ATTN_OK alone. refused: an error that this rank has
 * met already, with the sentence of attn_last_error(), and which all are told; nothing else is looked at then. t NULL
 * with ATTN_OK: another rank is known to have met one.
 */
attn_status mpi_plan_create(attn_mpi_plan **plan, const struct mpi_transport *transport, attn_status refused,
                            const struct mpi_tensors *t, const attn_params *params, const attn_mpi_config *config);

/** Whether ranks share heads out. */
static inline int mpi_has_groups(const struct attn_mpi_plan *plan)
{
    return plan->config.head_ranks > 1;
}
/** The queries, and the keys, that this rank computes with. */
static inline const struct mpi_share *mpi_my_queries(const struct attn_mpi_plan *plan)
{
    return &plan->ring_queries[plan->ring.rank];
}
static inline const struct mpi_share *mpi_my_keys(const struct attn_mpi_plan *plan)
{
    return &plan->ring_keys[plan->ring.rank];
}

/** Of queries (0) or keys (1): what this rank's group has together, and where. */
static inline const struct mpi_pool *mpi_my_pool(const struct attn_mpi_plan *plan, int side)
{
    return &plan->pools[side][plan->ring.rank];
}

/** A run: the call, its options, and what follows from them. */
struct mpi_run {
    struct attn_mpi_plan *plan;
    struct mpi_whole whole;
    attn_params params; /**< taken */
    attn_params own;    /**< with the options of the heads that this rank computes with; they point to these: */
    attn_relative_bias relative_bias;
    attn_disentangled disentangled;
    attn_tensor rel_k, rel_q;
    struct mpi_rectangles rectangles;
    /* What is computed with: rotated, in the types that travel, of the group's tokens and this rank's heads. */
    attn_tensor q, k, v, out, lse, d_out, d_lse;
    const attn_executor *around; /**< what attn_executor_leave() puts back, */
    int has_entered;             /**< if it has something to */
    attn_status failed;          /**< this rank's computing, though not its messages */
    unsigned char *begun;        /**< [ranges of this rank's queries] whether one has been computed with */
    int *steps;                  /**< [ranks] */
    attn_gradients gradients;    /**< of a backward run, taken */
    struct mpi_options options;
};

/** Collective: checks a run, and makes its tensors ready; mpi_run_end() in either case. */
attn_status mpi_run_begin(struct mpi_run *run, struct attn_mpi_plan *plan, const struct mpi_tensors *t,
                          const attn_params *params, const attn_gradients *gradients, int backward);
/** Ends a run that has begun or not. Collective after ATTN_OK: whether computing has failed on any rank. */
attn_status mpi_run_end(struct mpi_run *run, attn_status status);

/** Tokens [first, first + count) of a tensor. */
static inline attn_tensor mpi_tokens(const attn_tensor *t, int64_t first, int64_t count)
{
    attn_tensor part = *t;
    if (first)
        part.data = (char *)t->data + first * t->stride[2] * (int64_t)attn_dtype_size(t->dtype);
    part.shape[2] = count;
    return part;
}

/** Rows of x as rows of out, rounded to its type: (B, H, T, d) both, rotated by a table unless it is NULL. */
attn_status mpi_copy(const struct attn_mpi_plan *plan, const attn_tensor *x, const attn_tensor *table,
                     attn_rope_layout layout, const attn_tensor *out, int num_threads);

/** The rank of the ring whose keys are a step's. */
static inline int mpi_source(const struct attn_mpi_plan *plan, int step)
{
    return (plan->ring.rank + plan->ring.ranks - step) % plan->ring.ranks;
}

/** A range of this rank's queries, and one of the keys of a block. */
struct mpi_pair {
    int64_t number;               /**< of the range of queries */
    attn_mpi_range queries, keys; /**< in the whole sequence */
    int64_t row, key;             /**< where they begin in this rank's tensors, and in the block's */
    attn_tensor k, v;             /**< these keys */
};
typedef attn_status mpi_cross(struct mpi_run *run, void *context, const struct mpi_pair *pair);

/** Of a range of queries those from number done on that one call takes, most at most. */
attn_mpi_range mpi_next_queries(const struct mpi_run *run, attn_mpi_range queries, int64_t done, int64_t most);

/** All pairs of a step's block that may see one another. */
attn_status mpi_cross_block(struct mpi_run *run, int step, const attn_tensor *k, const attn_tensor *v, mpi_cross *cross,
                            void *context);
/** Each range of queries that has been in no pair, with no keys: run->begun says which have. */
attn_status mpi_cross_blind(struct mpi_run *run, mpi_cross *cross, void *context);

/**
 * Walks over the blocks of keys that this rank's queries see, its own first, while those behind are on their way, and
 * sends its own to those who see them. visit(run, context, step, k, v) computes with one, unless run->failed, where it
 * keeps what goes wrong; it returns the status of messages.
 */
typedef attn_status mpi_visit(struct mpi_run *run, void *context, int step, const attn_tensor *k, const attn_tensor *v);
attn_status mpi_walk(struct mpi_run *run, mpi_visit *visit, void *context);

#endif
