/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range of queries against a range of keys: whether any of them see one another, and the call that computes them.
 *
 * Everything that hides a key or changes a score is a function of positions, so a rectangle of the whole problem is a
 * problem of its own, whose offsets and lengths are moved by where its ranges begin. What follows from indices instead,
 * the core takes from where they lie in the whole (struct attn_rectangle).
 */
#ifndef ATTN_MPI_RECTANGLE_H
#define ATTN_MPI_RECTANGLE_H

#include "attn/mpi_plan.h"
#include "driver/driver.h"
#include "mpi/placement.h"

/** The labels of a share of tokens, as far as its ranges are concerned: the least and the greatest of each range in
 * each batch element. */
struct mpi_labels {
    int32_t least, most;
};

/** What the rectangles of one run share. */
struct mpi_rectangles {
    const struct attn_problem *problem; /**< of the whole sequence; arrays have been checked */
    int ranks;
    int64_t first_head;                       /**< of the whole, that this rank computes with */
    const struct mpi_share *queries, *keys;   /**< [ranks] */
    struct mpi_labels **q_labels, **k_labels; /**< [ranks][ranges * batch], or NULL without segments */
    /* What a call of the rectangle points to; made anew for each. */
    int64_t *query_offset, *kv_len, *kv_start, *prefix_len, *cu_q, *cu_k; /**< [sequences + 1] */
    struct attn_origin *origins;                                          /**< [sequences] */
    int32_t *labels;                                                      /**< of both sides, in turn */
    size_t labels_room;                                                   /**< entries of labels */
};

/** Allocates; ATTN_OUT_OF_MEMORY. mpi_rectangles_free() in either case. */
attn_status mpi_rectangles_make(struct mpi_rectangles *r, const struct attn_problem *problem, int64_t first_head,
                                int ranks, const struct mpi_share *queries, const struct mpi_share *keys);
void mpi_rectangles_free(struct mpi_rectangles *r);

/** Whether a query of a range of rank's may see a key of a range of source's: 0 only if none does. */
int mpi_sees(const struct mpi_rectangles *r, int rank, int64_t query_range, int source, int64_t key_range);

/** The same of all their ranges. */
int mpi_sees_any(const struct mpi_rectangles *r, int rank, int source);

/** How many queries from the one at position first on may be in one call: of a block pattern, those of one row of
 * blocks, if its first is behind that row's first. */
int64_t mpi_queries_at_once(const struct mpi_rectangles *r, int64_t first);

/** Where a rectangle's call has its options; valid until the next one is made. */
struct mpi_rectangle {
    attn_params params;
    struct attn_rectangle place;
    attn_segments segments;
    attn_ragged ragged;
    attn_tensor mask;
};

/**
 * The options of the call for a range of queries and one of keys, both by positions of the whole sequence. params are
 * the caller's, with the mask's rows from first_row on for these queries. What is per call and not per position
 * (outputs, rope, sinks) is not set. Either range may be empty.
 */
void mpi_make_rectangle(struct mpi_rectangles *r, struct mpi_rectangle *rectangle, const attn_params *params,
                        attn_mpi_range queries, int64_t first_row, attn_mpi_range keys);

#endif
