/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls whose heads are a single tile each: a task is some heads, which differ
 * in their addresses alone.
 */
#include "driver/driver.h"

#include "pass/single.h"

/** The last key that query 0 sees; ATTN_FAR without causality. */
static int64_t diagonal_of(const struct attn_problem *problem)
{
    if (problem->params.causal == ATTN_CAUSAL_NONE)
        return ATTN_FAR;
    return problem->params.causal == ATTN_CAUSAL_BOTTOM_RIGHT ? problem->k.shape[2] - problem->q.shape[2] : 0;
}

int attn_is_single(const struct attn_problem *problem, const struct attn_kernels *kernels)
{
    const int64_t tq = problem->q.shape[2], tk = problem->k.shape[2];
    return problem->plain && tq > 0 && tq <= kernels->strip && tk > 0 && tk <= ATTN_KEY_BLOCK &&
           problem->q.shape[3] > 0 && problem->v.shape[3] > 0 && problem->k.dtype == ATTN_F32 &&
           problem->v.dtype == ATTN_F32 && kernels->scores->channels_per_word == 1 && !kernels->scores->raw &&
           kernels->values->keys_per_word == 1 && problem->params.causal != ATTN_CAUSAL_OFFSET &&
           diagonal_of(problem) >= 0;
}

/** Vectors of the strip that holds all queries of a head; here and below, a division takes longer than a few steps. */
static int vectors_of(const struct attn_problem *problem, const struct attn_kernels *kernels)
{
    int nv = 1;
    while (nv * kernels->vectors->lanes < problem->q.shape[2])
        nv++;
    return nv;
}

size_t attn_single_size(const struct attn_problem *problem, const struct attn_kernels *kernels)
{
    const int64_t rows = problem->k.shape[2] + problem->q.shape[3] + problem->v.shape[3] + 2;
    const size_t bytes = (size_t)(rows * vectors_of(problem, kernels) * kernels->vectors->lanes) * sizeof(float);
    return (bytes + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
}

static ptrdiff_t row_stride(const attn_tensor *t)
{
    return t->shape[2] > 1 ? (ptrdiff_t)t->stride[2] : 0;
}

static struct attn_rows rows_of(const attn_tensor *t)
{
    return (struct attn_rows){NULL, row_stride(t) * attn_element_size(t->dtype), t->dtype, NULL, 0};
}

/** The first row of a head; axes of length 1 have no stride. */
static void *head_of(const attn_tensor *t, int64_t b, int64_t h)
{
    return (char *)t->data +
           ((b > 0 ? b * t->stride[0] : 0) + (h > 0 ? h * t->stride[1] : 0)) * attn_element_size(t->dtype);
}

void attn_run_singles(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_problem *problem = run->problem;
    const struct attn_geometry *geometry = run->geometry;
    const int64_t heads = problem->q.shape[1], kv_heads = problem->k.shape[1];
    const int64_t per_kv = heads == kv_heads ? 1 : heads / kv_heads;
    const int64_t all = problem->q.shape[0] * heads, first = task * geometry->heads_per_task;
    const int64_t end = all - first < geometry->heads_per_task ? all : first + geometry->heads_per_task;
    const int nv = vectors_of(problem, &geometry->kernels), width = nv * geometry->kernels.vectors->lanes;
    const int tq = (int)problem->q.shape[2], keys = (int)problem->k.shape[2];
    const int dk = (int)problem->q.shape[3], dv = (int)problem->v.shape[3];
    float *const q_words = scratch, *const o = q_words + dk * width, *const s = o + dv * width;
    float *const m = s + keys * width;
    struct attn_single x = {.kernels = &geometry->kernels,
                            .q_words = q_words,
                            .o = o,
                            .s = s,
                            .m = m,
                            .l = m + width,
                            .q = rows_of(&problem->q),
                            .k = rows_of(&problem->k),
                            .v = rows_of(&problem->v),
                            .out = rows_of(&problem->out),
                            .lse = NULL,
                            .lse_stride = problem->lse.data ? row_stride(&problem->lse) : 0,
                            .rows = tq,
                            .keys = keys,
                            .nv = nv,
                            .width = width,
                            .dk = dk,
                            .dv = dv,
                            .scale = (float)((double)problem->scale * ATTN_LOG2E_DOUBLE),
                            .diagonal = diagonal_of(problem)};
    if (x.diagonal < x.keys - tq)
        x.keys = (int)x.diagonal + tq;
    int64_t b = 0, h = 0, kv = 0, within = 0;
    if (first > 0) {
        b = first / heads;
        h = first % heads;
        kv = h / per_kv;
        within = h % per_kv;
    }
    for (int64_t i = first; i < end; i++) {
        x.q.data = head_of(&problem->q, b, h);
        x.k.data = head_of(&problem->k, b, kv);
        x.v.data = head_of(&problem->v, b, kv);
        x.out.data = head_of(&problem->out, b, h);
        x.lse = problem->lse.data ? head_of(&problem->lse, b, h) : NULL;
        attn_single_pass(&x);
        if (++within == per_kv) {
            within = 0;
            kv++;
        }
        if (++h == heads) {
            h = kv = 0;
            b++;
        }
    }
}
