/* SPDX-License-Identifier: Apache-2.0 */
/* Rows to places of a pool: the checks of attn_store(), in the order of its arguments. */
#include "attn/cache.h"

#include "api/check_internal.h"
#include "api/environment.h"
#include "api/error.h"
#include "dispatch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static attn_status check_rows(const char *name, const attn_tensor *t)
{
    CHECK(attn_check_tensor(name, t, CHECK_ALL));
    CHECK(attn_check_float(name, t->dtype));
    return attn_check_contiguous(name, t);
}

static attn_status check_rotations(const attn_tensor *rotations, const attn_tensor *x, attn_rope_layout layout)
{
    if (!rotations) {
        if (layout != ATTN_ROPE_HALF_SPLIT)
            return attn_fail(ATTN_INVALID_ARGUMENT, "layout is %d; expected 0 without rotations", (int)layout);
        return ATTN_OK;
    }
    CHECK(attn_check_tensor("rotations", rotations, CHECK_ALL));
    CHECK(attn_check_f32("rotations", rotations->dtype));
    CHECK(attn_check_contiguous("rotations", rotations));
    CHECK(attn_check_axis("rotations", rotations, 0, 1, "as x has a batch of 1"));
    CHECK(attn_check_one_or("rotations", rotations, 1, x->shape[1]));
    CHECK(attn_check_axis("rotations", rotations, 2, x->shape[2], "the tokens of x"));
    if (rotations->shape[3] % 2 != 0 || rotations->shape[3] > x->shape[3])
        return attn_fail(ATTN_SHAPE_MISMATCH,
                         "rotations.shape[3] is %" PRId64 "; expected an even number up to %" PRId64
                         ", the head size of x",
                         rotations->shape[3], x->shape[3]);
    if ((unsigned)layout > ATTN_ROPE_INTERLEAVED)
        return attn_fail(ATTN_INVALID_ARGUMENT, "layout is %d; expected an attn_rope_layout", (int)layout);
    return ATTN_OK;
}

/** Puts a slot into a table of 2^bits, at least half of which are 0; returns whether it was not there. */
static int take(int64_t *table, int bits, int64_t slot)
{
    const size_t mask = ((size_t)1 << bits) - 1;
    size_t at = (size_t)((uint64_t)slot * 0x9e3779b97f4a7c15u >> (64 - bits)); /* neighbours lie far from each other */
    for (; table[at]; at = (at + 1) & mask)
        if (table[at] == slot + 1)
            return 0;
    table[at] = slot + 1;
    return 1;
}

/** That no two tokens go to one place. */
static attn_status check_distinct_slots(const int64_t *slots, int64_t tokens)
{
    int rises = 1; /* as where the tokens of one sequence follow each other */
    for (int64_t t = 1; t < tokens && rises; t++)
        rises = slots[t] > slots[t - 1];
    if (rises)
        return ATTN_OK;
    int bits = 4;
    while (bits < 62 && (int64_t)1 << bits < 2 * tokens)
        bits++;
    int64_t few[1024], *const table = (int64_t)1 << bits > 1024 ? calloc((size_t)1 << bits, sizeof *table) : few;
    if (!table)
        return attn_fail(ATTN_OUT_OF_MEMORY, "no memory for a table of %" PRId64 " slots", tokens);
    if (table == few)
        memset(few, 0, sizeof *few << bits);
    int64_t twice = -1;
    for (int64_t t = 0; t < tokens && twice < 0; t++)
        if (slots[t] >= 0 && !take(table, bits, slots[t])) /* -1 may come often */
            twice = slots[t];
    if (table != few)
        free(table);
    if (twice < 0)
        return ATTN_OK;
    return attn_fail(ATTN_INVALID_ARGUMENT, "slots has %" PRId64 " twice; expected places that are all different",
                     twice);
}

static attn_status check_slots(const int64_t *slots, const attn_tensor *x, const attn_tensor *pool)
{
    const int64_t places = pool->shape[0] * pool->shape[2]; /* as many as bytes at most, which have been counted */
    if (!slots && x->shape[2] > 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "slots is NULL; expected %" PRId64 " places", x->shape[2]);
    for (int64_t t = 0; t < x->shape[2]; t++)
        if (slots[t] < -1 || slots[t] >= places)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "slots[%" PRId64 "] is %" PRId64 "; expected -1, or a place from 0 to %" PRId64, t,
                             slots[t], places - 1);
    return check_distinct_slots(slots, x->shape[2]);
}

/** The pool, and its scales if its type has some. */
static attn_status check_pool(const attn_tensor *pool, const attn_tensor *scales, const attn_tensor *x)
{
    CHECK(attn_check_tensor("pool", pool, CHECK_ALL));
    CHECK(attn_check_stored("pool", pool->dtype));
    CHECK(attn_check_contiguous("pool", pool));
    CHECK(attn_check_groups("pool", pool));
    CHECK(attn_check_axis("pool", pool, 1, x->shape[1], "the heads of x"));
    CHECK(attn_check_axis("pool", pool, 3, x->shape[3], "the head size of x"));
    CHECK(attn_check_distinct("pool", pool));
    if (!attn_is_quantised(pool->dtype)) {
        if (scales)
            return attn_fail(ATTN_INVALID_ARGUMENT,
                             "scales is set and pool.dtype is %s; expected NULL unless it is i8, f8_e4m3 or i4",
                             attn_dtype_name(pool->dtype));
        return ATTN_OK;
    }
    if (pool->shape[3] > ATTN_MAX_STORED)
        return attn_fail(ATTN_UNSUPPORTED, "pool.shape[3] is %" PRId64 "; of %s head sizes go up to %d", pool->shape[3],
                         attn_dtype_name(pool->dtype), ATTN_MAX_STORED);
    CHECK(attn_check_tensor("scales", scales, CHECK_ALL));
    CHECK(attn_check_f32("scales", scales->dtype));
    for (int axis = 0; axis < 3; axis++)
        CHECK(attn_check_axis("scales", scales, axis, pool->shape[axis], "as pool has"));
    CHECK(attn_check_axis("scales", scales, 3, attn_row_scales(pool->dtype, pool->shape[3]),
                          attn_scales_meaning(pool->dtype)));
    if (pool->dtype == ATTN_I4)
        CHECK(attn_check_contiguous("scales", scales));
    CHECK(attn_check_distinct("scales", scales));
    return attn_check_apart("scales", scales, "pool", pool, 0);
}

/** That what is written lies on nothing that is read. */
static attn_status check_apart(const char *name, const attn_tensor *out, const attn_tensor *x, const int64_t *slots,
                               const attn_tensor *rotations)
{
    CHECK(attn_check_apart(name, out, "x", x, 0));
    if (rotations)
        CHECK(attn_check_apart(name, out, "rotations", rotations, 0));
    const attn_tensor bytes = {(void *)(uintptr_t)slots, ATTN_U8, {1, 1, x->shape[2], 8}, {0, 0, 8, 1}};
    return slots ? attn_check_apart(name, out, "slots", &bytes, 0) : ATTN_OK;
}

attn_status attn_store(const attn_tensor *x, const int64_t *slots, const attn_tensor *rotations,
                       attn_rope_layout layout, const attn_tensor *pool, const attn_tensor *scales, int num_threads)
{
    CHECK(check_rows("x", x));
    CHECK(attn_check_axis("x", x, 0, 1, "as its tokens go where slots says"));
    CHECK(check_rotations(rotations, x, layout));
    CHECK(check_pool(pool, scales, x));
    CHECK(check_apart("pool", pool, x, slots, rotations));
    if (scales)
        CHECK(check_apart("scales", scales, x, slots, rotations));
    if (attn_is_empty(x)) /* which any slots do for */
        return ATTN_OK;
    CHECK(check_slots(slots, x, pool));
    if (num_threads < 0)
        return attn_fail(ATTN_INVALID_ARGUMENT, "num_threads is %d; expected 0 or more", num_threads);
    const struct attn_kernels kernels = attn_kernels_plain(attn_environment()->max_isa);
    const struct attn_store_work work = {.x = *x,
                                         .rotations = rotations ? *rotations : (attn_tensor){.dtype = ATTN_F32},
                                         .pool = *pool,
                                         .scales = scales ? *scales : (attn_tensor){.dtype = ATTN_F32},
                                         .slots = slots,
                                         .layout = layout};
    attn_run_store(&kernels, &work, num_threads ? num_threads : attn_default_num_threads());
    return ATTN_OK;
}
