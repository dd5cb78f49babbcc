/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of arguments. Everything is checked before anything is computed, and
 * what follows relies on it.
 */
#ifndef ATTN_CHECK_H
#define ATTN_CHECK_H

#include "driver/driver.h"

/** What a call has in hand. */
enum check_depth {
    CHECK_SHAPES = 0,  /**< attn_plan_create: shapes and options */
    CHECK_ARRAYS = 1,  /**< attn_plan_keep: the contents of arrays as well */
    CHECK_TENSORS = 2, /**< a run whose arrays have been looked at before: data and strides as well */
    CHECK_SCALES = 4,  /**< the scales of live keys as well, unless the library has made them itself */
    CHECK_ALONE = CHECK_ARRAYS | CHECK_TENSORS | CHECK_SCALES, /**< all, by the calling thread: attn_plan_begin() */
    CHECK_ON_THREADS = 8,                                      /**< threads share what takes one of them long */
    CHECK_ALL = CHECK_ALONE | CHECK_ON_THREADS,
    CHECK_BUT_SCALES = CHECK_ARRAYS | CHECK_TENSORS | CHECK_ON_THREADS /**< those are looked at later */
};

/**
 * Checks a request and fills problem, or returns the status of the first thing that is wrong. rectangle: NULL, or where
 * it lies in a larger problem, whose block pattern and global tokens the caller has checked.
 */
attn_status attn_check_rectangle(struct attn_problem *problem, const struct attn_rectangle *rectangle,
                                 const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                                 const attn_tensor *out, const attn_params *params, enum check_depth depth);
attn_status attn_check(struct attn_problem *problem, const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                       const attn_tensor *out, const attn_params *params, enum check_depth depth);

/** One of these checks: k_scale, v_scale. Copies them. By itself of a problem that was checked without CHECK_SCALES. */
attn_status attn_check_quantised(struct attn_problem *problem, enum check_depth depth);

/** sizeof a struct in the first version that had it, by the last field that it had then. */
#define ATTN_FIRST_SIZE(type, last)                                                                                    \
    ((offsetof(type, last) + sizeof(((type *)0)->last) + _Alignof(type) - 1) / _Alignof(type) * _Alignof(type))

/**
 * Copies a caller's struct that begins with a size_t struct_size to ours of our_size bytes: fields that the caller's
 * version lacks become 0, and struct_size becomes our_size. theirs NULL gives the defaults, all 0; it is not ours.
 *
 * Refused are sizes below first_size, those more than 4096 bytes above our_size, unread, and a larger struct of which
 * a byte behind ours is set. name stands for the struct in sentences.
 */
attn_status attn_take_struct(const char *name, void *ours, size_t our_size, size_t first_size, const void *theirs);

/** attn_take_struct() for the options of a call, "params". */
attn_status attn_take_params(attn_params *ours, const attn_params *theirs);

/** The bytes from the first to behind the last one of a view, relative to its data. */
struct attn_span {
    int64_t below, bytes;
};

/** What a plan remembers beside its problem. */
struct attn_planned {
    int repeats;               /**< whether a run that differs in addresses alone needs no full check */
    struct attn_span spans[4]; /**< of q, k, v, out, for such a run */
    /* Of the structs that params point to, which may be gone when it runs. */
    int64_t block_size;           /**< block_mask->size */
    int64_t span;                 /**< disentangled->span */
    attn_delta delta;             /**< disentangled->delta */
    attn_rope_layout rope_layout; /**< rope->layout */
};

/** Of a problem whose structs are still there; zero for those that are absent. */
struct attn_planned attn_planned_of(const struct attn_problem *problem);

/**
 * Whether a run is the planned one at other addresses, and they are right, seen at a glance: fills problem with what
 * attn_check() would find. 0 says nothing, and leaves problem undefined.
 */
int attn_is_repeat(struct attn_problem *problem, const struct attn_problem *was, const struct attn_planned *planned,
                   const attn_tensor *q, const attn_tensor *k, const attn_tensor *v, const attn_tensor *out,
                   const attn_params *params);

/** That a run asks for what was planned. No pointer of was is followed. */
attn_status attn_check_planned(const struct attn_problem *now, const struct attn_problem *was,
                               const struct attn_planned *planned);

/** Whether a tensor has no element: its data and strides mean nothing then. */
static inline int attn_is_empty(const attn_tensor *t)
{
    return !t->shape[0] || !t->shape[1] || !t->shape[2] || !t->shape[3];
}

/** Checks of one tensor, by name. depth as above. */
attn_status attn_check_tensor(const char *name, const attn_tensor *t, enum check_depth depth);

/** That channels lie next to each other. */
attn_status attn_check_contiguous(const char *name, const attn_tensor *t);

/** That rows of a tensor begin at whole groups, if it is of ATTN_I4. */
attn_status attn_check_groups(const char *name, const attn_tensor *t);

/** That no element of an output is stored twice. */
attn_status attn_check_distinct(const char *name, const attn_tensor *t);

/** The addresses from the first byte of a view to behind its last; end below start where there is none. */
struct attn_extent {
    int64_t start, end;
};

/** Of a tensor that is not empty and whose strides have been checked. */
struct attn_span attn_span_of(const attn_tensor *t);

/** Of a tensor that has passed attn_check_tensor(), or has no data. All there is, for one that spans more. */
struct attn_extent attn_extent_of(const attn_tensor *t);

/**
 * That no byte of an output lies on one of an input, or of another output. Both have passed attn_check_tensor(),
 * and the output attn_check_distinct(). With may_be_same, the other may be the very view that the output is.
 */
attn_status attn_check_apart(const char *out_name, const attn_tensor *out, const char *other_name,
                             const attn_tensor *other, int may_be_same);

#endif
