/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls whose scales are looked at while they are used.
 *
 * In 4 bits a fifth of a cache are scales. A look at all of them before anything is
 * written reads them from memory twice, where reading is all that takes time. The
 * results of a few queries are small, so they wait in the workspace instead, and
 * tasks look at scales just before kernels read them (struct attn_looks). If none is
 * wrong, and every one of live keys has been seen, they are written; else the usual
 * check says what is wrong, or finds that nothing is: of keys that no query sees
 * tasks have read no scales.
 */
#include "api/held.h"

#include "api/error.h"

#include <string.h>

/** Bytes of results that may wait: those of a batch so large that they are more are checked before. */
#define HELD_LIMIT ((double)(8 << 20))

/** Rows of results in a workspace, one behind the other. */
static attn_tensor rows_at(const attn_tensor *t, void *data)
{
    attn_tensor rows = *t;
    rows.data = data;
    rows.stride[3] = 1;
    rows.stride[2] = t->shape[3];
    rows.stride[1] = rows.stride[2] * t->shape[2];
    rows.stride[0] = rows.stride[1] * t->shape[1];
    return rows;
}

/** Bytes of such rows; 0 for a tensor that is absent. */
static size_t rows_size(const attn_tensor *t, int wanted)
{
    const int64_t elements = t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
    return wanted ? attn_aligned((size_t)(elements * attn_element_size(t->dtype))) : 0;
}

/** Writes them. */
static void write_rows(const attn_tensor *rows, const attn_tensor *to)
{
    const ptrdiff_t size = attn_element_size(to->dtype);
    const size_t width = (size_t)(to->shape[3] * size);
    const char *from = rows->data;
    for (int64_t b = 0; b < to->shape[0]; b++)
        for (int64_t h = 0; h < to->shape[1]; h++)
            for (int64_t i = 0; i < to->shape[2]; i++, from += width) {
                const int64_t at = b * to->stride[0] + h * to->stride[1] + i * to->stride[2];
                memcpy((char *)to->data + at * size, from, width);
            }
}

size_t attn_held_size(const struct attn_problem *problem, const struct attn_geometry *geometry)
{
    const attn_params *p = &problem->params;
    const double results = (double)problem->q.shape[2] * (double)problem->q.shape[1] * (double)problem->v.shape[3];
    const double scales = (double)problem->k.shape[2] * (double)problem->k.shape[1] *
                          (double)attn_row_scales(problem->k.dtype, problem->k.shape[3]);
    if (!geometry->kernels.exact_pairs || problem->k.dtype != ATTN_I4 || geometry->blocks != 1 ||
        !attn_writes_anything(problem) || p->weights || p->key_sums || p->scores || p->callback || p->weight_callback ||
        results > scales || (double)problem->q.shape[0] * results * (double)sizeof(float) > HELD_LIMIT)
        return 0;
    return ATTN_ALIGN + rows_size(&problem->out, 1) + rows_size(&problem->lse, p->lse != NULL);
}

struct attn_run *attn_held_begin(struct attn_held *held, struct attn_problem *problem,
                                 const struct attn_geometry *geometry, void *workspace)
{
    const uintptr_t behind = (uintptr_t)workspace + attn_run_size(geometry, geometry->threads);
    char *const base = (char *)((behind + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN);
    held->out = problem->out;
    held->lse = problem->lse;
    atomic_init(&held->looks.rows, 0);
    atomic_init(&held->looks.wrong, 0);
    problem->out = rows_at(&held->out, base);
    if (problem->params.lse)
        problem->lse = rows_at(&held->lse, base + rows_size(&held->out, 1));
    struct attn_run *const run = attn_run_begin(workspace, problem, geometry);
    run->looks = &held->looks;
    return run;
}

/** Whether the tasks have looked at all scales of live keys, and have found none wrong: each task sees its own of k and
 * of v once at most. */
static int all_are_right(const struct attn_held *held, const struct attn_problem *problem,
                         const struct attn_geometry *geometry)
{
    int64_t keys = 0;
    for (int64_t s = 0; s < problem->num_sequences; s++) {
        const struct attn_sequence sequence = attn_sequence_of(problem, s);
        keys += sequence.end - sequence.begin;
    }
    return !atomic_load_explicit(&held->looks.wrong, memory_order_relaxed) &&
           atomic_load_explicit(&held->looks.rows, memory_order_relaxed) == 2 * keys * geometry->heads;
}

attn_status attn_held_end(struct attn_held *held, struct attn_problem *problem, const struct attn_geometry *geometry)
{
    if (!all_are_right(held, problem, geometry))
        CHECK(attn_check_quantised(problem, CHECK_ALL));
    write_rows(&problem->out, &held->out);
    if (problem->params.lse)
        write_rows(&problem->lse, &held->lse);
    return ATTN_OK;
}
