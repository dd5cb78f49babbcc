/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call between its checks and its run: what the simple call and a plan are
 * made of, and what libattn_nn uses, whose layers check everything before they
 * write the q, k and v that attention reads.
 */
#ifndef ATTN_CALL_H
#define ATTN_CALL_H

#include "api/check.h"
#include "attn/backward.h"

struct attn_call {
    struct attn_problem problem;
    struct attn_geometry geometry;
    size_t held_size; /**< attn_held_size(): with CHECK_ALL scales are looked at while they are used, if it is not 0 */
};

/**
 * Checks a request and cuts it. With CHECK_SHAPES it can tell sizes; with CHECK_ALL it can run, as long as what the
 * arguments point to stays: contents of q, k and v may be written later, those of arrays may not.
 */
attn_status attn_call_make(struct attn_call *call, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                           const attn_tensor *out, const attn_params *params, enum check_depth depth);

/** Bytes of workspace, of any alignment, for all threads that the call is worth. */
size_t attn_call_size(const struct attn_call *call);

/** Bytes with which the call runs on one thread, whatever number of threads it was made for. */
size_t attn_call_least_size(const struct attn_call *call);

/**
 * Runs a call that was made with CHECK_ALL in a workspace of attn_call_least_size() bytes or more, on as many threads
 * as there is room for. Fails, and has written nothing, if workspace is NULL or too small.
 */
attn_status attn_call_run(const struct attn_call *call, void *workspace, size_t size);

/** attn_forward() and attn_backward() of a rectangle of a larger problem (driver/driver.h). */
attn_status attn_forward_rectangle(const struct attn_rectangle *rectangle, const attn_tensor *q, const attn_tensor *k,
                                   const attn_tensor *v, const attn_tensor *out, const attn_params *params);
attn_status attn_backward_rectangle(const struct attn_rectangle *rectangle, const attn_tensor *q, const attn_tensor *k,
                                    const attn_tensor *v, const attn_tensor *out, const attn_params *params,
                                    const attn_gradients *gradients);

/** All checks of attn_backward(), without the run. */
attn_status attn_backward_check(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                const attn_tensor *out, const attn_params *params, const attn_gradients *gradients);

#endif
