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

/** Vectors of the strip that holds so many rows; here and below, a division takes longer than a few steps. */
static int vectors_of(int64_t rows, const struct attn_kernels *kernels)
{
    int nv = 1;
    while (nv * kernels->vectors->lanes < rows)
        nv++;
    return nv;
}

size_t attn_single_size(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t together)
{
    const int64_t rows = problem->k.shape[2] + problem->q.shape[3] + problem->v.shape[3] + 2;
    const int nv = vectors_of(problem->q.shape[2] * together, kernels);
    const size_t bytes = (size_t)(rows * nv * kernels->vectors->lanes) * sizeof(float);
    return attn_aligned(bytes);
}

/** From row to row of a strip: those of a head or, where heads are together, the only one of each head. */
static ptrdiff_t row_stride(const attn_tensor *t, int64_t together)
{
    const int axis = together > 1 ? 1 : 2;
    return t->shape[axis] > 1 ? (ptrdiff_t)t->stride[axis] : 0;
}

static struct attn_rows rows_of(const attn_tensor *t, int64_t together)
{
    return (struct attn_rows){NULL, row_stride(t, together) * attn_element_size(t->dtype), t->dtype, NULL, 0};
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
    const int64_t heads = geometry->heads, kv_heads = problem->k.shape[1], together = geometry->together;
    const int64_t per_kv = heads == kv_heads ? 1 : heads / kv_heads; /* of those that are together one */
    const int64_t all = problem->q.shape[0] * heads, first = task * geometry->heads_per_task;
    const int64_t end = all - first < geometry->heads_per_task ? all : first + geometry->heads_per_task;
    const int tq = (int)problem->q.shape[2], rows = tq * (int)together;
    const int nv = vectors_of(rows, &geometry->kernels), width = nv * geometry->kernels.vectors->lanes;
    const int keys = (int)problem->k.shape[2];
    const int dk = (int)problem->q.shape[3], dv = (int)problem->v.shape[3];
    float *const q_words = scratch, *const o = q_words + dk * width, *const s = o + dv * width;
    float *const m = s + keys * width;
    struct attn_single x = {.kernels = &geometry->kernels,
                            .q_words = q_words,
                            .o = o,
                            .s = s,
                            .m = m,
                            .l = m + width,
                            .q = rows_of(&problem->q, together),
                            .k = rows_of(&problem->k, 1),
                            .v = rows_of(&problem->v, 1),
                            .out = rows_of(&problem->out, together),
                            .lse = NULL,
                            .lse_stride = problem->lse.data ? row_stride(&problem->lse, together) : 0,
                            .rows = rows,
                            .keys = keys,
                            .nv = nv,
                            .width = width,
                            .dk = dk,
                            .dv = dv,
                            .scale = (float)((double)problem->scale * ATTN_LOG2E_DOUBLE),
                            .diagonal = diagonal_of(problem)};
    if (x.diagonal < x.keys - tq)
        x.keys = (int)x.diagonal + tq;
    if (together > 1) /* all rows are one token, which sees these keys */
        x.diagonal = ATTN_FAR;
    int64_t b = 0, h = 0, kv = 0, within = 0;
    if (first > 0) {
        b = first / heads;
        h = first % heads;
        kv = h / per_kv;
        within = h % per_kv;
    }
    for (int64_t i = first; i < end; i++) {
        x.q.data = head_of(&problem->q, b, h * together);
        x.k.data = head_of(&problem->k, b, kv);
        x.v.data = head_of(&problem->v, b, kv);
        x.out.data = head_of(&problem->out, b, h * together);
        x.lse = problem->lse.data ? head_of(&problem->lse, b, h * together) : NULL;
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
