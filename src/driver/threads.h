/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who runs the shares of a call: OpenMP's threads, the threads of a caller's
 * executor, or the calling thread alone. What is worth a thread stands here,
 * too, for every kind of work in both libraries.
 */
#ifndef ATTN_THREADS_H
#define ATTN_THREADS_H

#include "attn/attn.h"

/**
 * @name Work that is worth one more thread: waking it costs some microseconds
 * Every cut into threads takes its threshold from here.
 */
/**@{*/
#define ATTN_WORTH_ATTENTION (512.0 * 1024) /**< multiply-adds of both products */
#define ATTN_WORTH_COPY      (64.0 * 1024)  /**< numbers that are read, little is computed, and written again */
#define ATTN_WORTH_LAYER     250e3          /**< operations of a layer (src/nn) */
/**@}*/

/** Threads, 1 to most, of which each finds its worth of work. */
int attn_threads_worth(double work, double worth, int most);

/** The threads that share a piece of work. */
struct attn_team {
    int size;                      /**< shares; 1: the calling thread alone */
    const attn_executor *executor; /**< NULL: OpenMP */
};

/** Makes an executor that has been checked the process's; NULL: none. */
void attn_use_executor(const attn_executor *executor);

/**
 * The executor of a call that brings own: that, else the one of the call around it (attn_executor_enter()), else the
 * process's; NULL: OpenMP.
 */
const attn_executor *attn_executor_of(const attn_executor *own);

/** @name Calls inside of a call
 * What attn_executor_enter() is given, unless NULL, is the executor of the calls that follow on this thread. It returns
 * what attn_executor_leave() has to put back.
 */
/**@{*/
const attn_executor *attn_executor_enter(const attn_executor *own);
void attn_executor_leave(const attn_executor *before);
/**@}*/

/** Shares that an executor, or OpenMP if it is NULL, can run at once here: 1 in a share, and where no thread may start.
 */
int attn_most_threads(const attn_executor *executor);

/**
 * The team of a call that brings the executor own and would like so many threads. Starts some and ends them again where
 * OpenMP is about to start more than it has on this thread: fewer are in the team if the system has no more.
 */
struct attn_team attn_team_of(const attn_executor *own, int threads);

/** Calls share(context, ith) for ith = 0 to team->size - 1, in any order or at once, and returns when all have. */
void attn_run_shares(const struct attn_team *team, void (*share)(void *context, int ith), void *context);

/** OpenMP's own setting for the number of threads, or the process's quota of processors where that is smaller and
 * nobody has set a number; 1 without OpenMP. */
int attn_openmp_threads(void);

#endif
