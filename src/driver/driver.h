/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver: cuts a checked problem into tasks and runs them.
 *
 * A task is a block of queries of one (batch, head), or, when sums over all
 * queries are wanted, a whole (batch, head), so that no two tasks write one
 * number. Blocks get smaller when there are few of them; that moves no bit of
 * the result, as lanes do not depend on each other.
 */
#ifndef ATTN_DRIVER_H
#define ATTN_DRIVER_H

#include "kernels/kernels.h"

/** A request whose arguments have all been checked; params is the caller's, completed. */
struct attn_problem {
    attn_tensor q, k, v, out;
    attn_params params;
    float scale;                              /**< the final factor of q·k */
    attn_tensor mask, lse, weights, key_sums; /**< copies; data NULL when absent */
};

/** How a problem's shape is cut, decided once per plan. */
struct attn_geometry {
    const struct attn_kernels *kernels;
    int64_t strips_per_block, blocks, tasks;
    int threads;         /**< that there is scratch for */
    int parallel;        /**< of these, how many are worth starting */
    int key_block;       /**< keys per step */
    size_t scratch_size; /**< bytes a thread, a multiple of ATTN_ALIGN */
};

/** Bytes of working memory that one thread may use. */
#define ATTN_SCRATCH_LIMIT ((size_t)2 << 20)

/** Cuts a problem for at most threads threads. Looks at shapes and at which outputs are wanted, not at data. */
struct attn_geometry attn_geometry_of(const struct attn_problem *problem, const struct attn_kernels *kernels,
                                      int threads);

/** Runs task number task of the problem in a thread's scratch. */
void attn_run_task(const struct attn_problem *problem, const struct attn_geometry *geometry, int64_t task,
                   void *scratch);

/** Runs all tasks on OpenMP threads; scratch is geometry->threads times scratch_size bytes. */
void attn_run_parallel(const struct attn_problem *problem, const struct attn_geometry *geometry, void *scratch);

/** OpenMP's own setting for the number of threads. */
int attn_driver_max_threads(void);

/** Whether this process is a forked child that must not start OpenMP threads. */
int attn_forked_from_threads(void);

/** Notes that this process has started OpenMP threads. */
void attn_note_threads(void);

#endif
