/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets beyond 2^31 and 2^32 elements. A tensor of few elements is moved into
 * a sparse mapping of many GiB (MAP_NORESERVE: only pages that are touched
 * exist), where those of one axis lie far apart, and a call must give the bits
 * that it gives with the same tensors lying close together. An offset that is
 * computed in 32 bits anywhere lands on a page of zeros, or faults.
 */
#ifndef TEST_FAR_H
#define TEST_FAR_H

#include "attn/attn.h"

/** Elements from the first to the last of an axis that is moved apart, about. */
#define FAR_UNSIGNED ((int64_t)4096 * 4097 * 257) /**< above 2^32 */
#define FAR_SIGNED   ((int64_t)4096 * 4097 * 131) /**< above 2^31, below 2^32 */

/** What a call does with a tensor. */
enum far_use { FAR_READ, FAR_WRITTEN /**< or read and replaced */ };

/** A tensor of a call, and the axes that may have any stride. */
struct far_tensor {
    const char *name;
    attn_tensor *tensor; /**< in the struct that the call reads; strides of 0 or more */
    enum far_use use;
    int any_channels; /**< not 0: axis 3 as well as 0 to 2 */
};

/** The call: everything that the tensors point to is its own. */
typedef attn_status far_call(void *user);

/**
 * A mapping of size bytes that has no memory until it is touched, and is 0. Ends the program as skipped where there is
 * no room for it.
 */
void *far_map(size_t size);
void far_unmap(void *map, size_t size);

/**
 * Calls once with all tensors close together, then with one of them moved apart along one of its axes at a time, over
 * more than 2^32 elements, and backwards over more than 2^31: everything that is written must have the same bits.
 * In slow surroundings (surroundings_are_slow()) each axis is taken in one of the two ways. Prints and counts what
 * differs, and calls that fail.
 *
 * @param what for messages
 * @return how much is wrong
 */
int far_check(const char *what, const struct far_tensor *tensors, int num, far_call *call, void *user);

enum { FAR_TENSORS = 32 /**< of a call at most */ };

/** Tensors that are made for a test. */
struct far_set {
    int num;
    struct far_tensor tensors[FAR_TENSORS];
    attn_tensor views[FAR_TENSORS];
};

/**
 * Adds a contiguous tensor and returns it. What is read has normal numbers (ATTN_BOOL: ones and zeros; 8 and 4 bits:
 * zeros, to be filled), what is written a pattern. Rows of ATTN_I4 are whole groups.
 */
attn_tensor *far_add(struct far_set *set, const char *name, enum far_use use, int any_channels, attn_dtype dtype,
                     int64_t batch, int64_t heads, int64_t tokens, int64_t channels);

/** far_check() of all of them. */
int far_check_set(const char *what, const struct far_set *set, far_call *call, void *user);

/** Frees what the tensors point to; the set is empty then. */
void far_clear(struct far_set *set);

#endif
