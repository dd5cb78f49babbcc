/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor of a process, and how many threads a call asks for.
 */
#ifndef ATTN_EXECUTOR_H
#define ATTN_EXECUTOR_H

#include "attn/attn.h"

/** That an executor, or NULL, can be used; name stands for it in sentences. */
attn_status attn_check_executor(const char *name, const attn_executor *executor);

/** The threads that a call with its own num_threads and executor, or 0 and NULL, asks for; ATTN_MAX_THREADS at most. */
int attn_threads_asked(const attn_executor *own, int num_threads);

/** Of these as many as can start now: for a call that nobody else can join. */
int attn_threads_now(const attn_executor *own, int num_threads);

#endif
