/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry and tasks: which rows of which tensors a kernel is handed.
 *
 * A sequence padded on the left is handed over as a shorter sequence whose
 * key 0 is its first live key, and one padded on the right as one that ends
 * there, so kernels know nothing of padding and its amount cannot reach a bit
 * of the result.
 */
#include "driver/driver.h"

#include "kernels/scratch.h"

/* Tasks a thread should find, so that the last one to finish is not waited for long. */
#define TASKS_PER_THREAD 16

/* Further than any key can be from any query, and far from overflow. */
#define FAR (INT64_MAX / 8)

/* Multiply-adds that are worth a thread: waking one costs some microseconds. */
#define WORK_PER_THREAD (512.0 * 1024)

static struct attn_scratch_shape scratch_shape(const struct attn_problem *problem, const struct attn_kernels *kernels,
                                               int64_t strips)
{
    return attn_scratch_shape_of(kernels, strips, problem->q.shape[3], problem->v.shape[3], problem->k.dtype,
                                 problem->v.dtype);
}

static size_t scratch_size(const struct attn_problem *problem, const struct attn_kernels *kernels, int64_t strips)
{
    struct attn_scratch scratch;
    const struct attn_scratch_shape shape = scratch_shape(problem, kernels, strips);
    return attn_scratch_layout(&scratch, NULL, &shape);
}

struct attn_geometry attn_geometry_of(const struct attn_problem *problem, const struct attn_kernels *kernels,
                                      int threads)
{
    const int64_t dk = problem->q.shape[3], dv = problem->v.shape[3], tq = problem->q.shape[2];
    const int64_t sequences = problem->q.shape[0] * problem->q.shape[1];
    const int64_t strips = (tq + kernels->strip - 1) / kernels->strip;
    int64_t per_block = kernels->query_block / kernels->strip;
    if (per_block > ATTN_MAX_STRIPS)
        per_block = ATTN_MAX_STRIPS;
    while (per_block > 1 && scratch_size(problem, kernels, per_block) > ATTN_SCRATCH_LIMIT)
        per_block--;
    const double work = (double)(sequences * tq) * (double)problem->k.shape[2] * (double)(dk + dv);
    int parallel = work / WORK_PER_THREAD < threads ? (int)(work / WORK_PER_THREAD) : threads;
    parallel = parallel < 1 ? 1 : parallel;
    const int64_t wanted = (int64_t)TASKS_PER_THREAD * parallel;
    while (per_block > 1 && parallel > 1 && sequences * ((strips + per_block - 1) / per_block) < wanted)
        per_block--;
    if (strips > 0) /* blocks of equal size */
        per_block = (strips + (strips + per_block - 1) / per_block - 1) / ((strips + per_block - 1) / per_block);

    struct attn_geometry geometry = {.kernels = kernels, .strips_per_block = per_block};
    geometry.blocks = (strips + per_block - 1) / per_block;
    geometry.tasks = problem->params.key_sums ? sequences : sequences * geometry.blocks;
    geometry.threads = threads;
    geometry.parallel = geometry.tasks >= parallel ? parallel : geometry.tasks > 0 ? (int)geometry.tasks : 1;
    geometry.key_block = (int)scratch_shape(problem, kernels, per_block).key_block;
    geometry.scratch_size = scratch_size(problem, kernels, per_block);
    return geometry;
}

static void *element(const attn_tensor *t, int64_t b, int64_t h, int64_t row)
{
    return (char *)t->data +
           (b * t->stride[0] + h * t->stride[1] + row * t->stride[2]) * (int64_t)attn_dtype_size(t->dtype);
}

static struct attn_rows rows_of(const attn_tensor *t, int64_t b, int64_t h, int64_t row)
{
    static float nothing; /* rows without channels, whose data may be NULL: no address is computed from that */
    if (t->shape[3] == 0)
        return (struct attn_rows){&nothing, 0, t->dtype};
    const int64_t step = t->shape[2] > 1 ? t->stride[2] * (int64_t)attn_dtype_size(t->dtype) : 0;
    return (struct attn_rows){t->data ? element(t, b, h, row) : NULL, (ptrdiff_t)step, t->dtype};
}

/** The (query, key) grid of a tensor from element (query, key) on; axes of length 1 are broadcast. */
static struct attn_grid grid_of(const attn_tensor *t, int64_t b, int64_t h, int64_t query, int64_t key)
{
    if (!t->data)
        return (struct attn_grid){NULL, 0, 0, t->dtype};
    attn_tensor wide = *t;
    for (int axis = 0; axis < 4; axis++)
        if (wide.shape[axis] == 1)
            wide.stride[axis] = 0;
    char *data = element(&wide, b, h, query);
    return (struct attn_grid){data + key * wide.stride[3] * (int64_t)attn_dtype_size(wide.dtype),
                              (ptrdiff_t)wide.stride[2], (ptrdiff_t)wide.stride[3], wide.dtype};
}

/** How far right of its own index a query of sequence b sees, counted from key 0 of the tensor. */
static int64_t causal_offset(const struct attn_problem *problem, int64_t b, int64_t key_end)
{
    switch (problem->params.causal) {
    case ATTN_CAUSAL_TOP_LEFT:
        return 0;
    case ATTN_CAUSAL_BOTTOM_RIGHT:
        return key_end - problem->q.shape[2];
    case ATTN_CAUSAL_OFFSET: {
        const int64_t offset = problem->params.query_offset[b];
        return offset < -FAR ? -FAR : offset > FAR ? FAR : offset;
    }
    default:
        return ATTN_NO_DIAGONAL;
    }
}

static void run_block(const struct attn_problem *problem, const struct attn_geometry *geometry, int64_t b, int64_t h,
                      int64_t block, void *scratch)
{
    const attn_params *params = &problem->params;
    const int64_t tq = problem->q.shape[2], tk = problem->k.shape[2];
    const int64_t rows = geometry->strips_per_block * geometry->kernels->strip, first = block * rows;
    const int64_t key_end = params->kv_len ? params->kv_len[b] : tk;
    const int64_t key_start = params->kv_start ? params->kv_start[b] : 0;
    const int64_t group = h / (problem->q.shape[1] / problem->k.shape[1]);
    const int boolean = problem->mask.dtype == ATTN_BOOL;
    const struct attn_grid mask = grid_of(&problem->mask, b, h, first, key_start), none = {NULL, 0, 0, ATTN_F32};

    struct attn_work work = {
        .q = rows_of(&problem->q, b, h, first),
        .k = rows_of(&problem->k, b, group, key_start),
        .v = rows_of(&problem->v, b, group, key_start),
        .out = rows_of(&problem->out, b, h, first),
        .num_queries = tq - first < rows ? tq - first : rows,
        .num_keys = key_end - key_start,
        .dk = (int)problem->q.shape[3],
        .dv = (int)problem->v.shape[3],
        .scale = (float)((double)problem->scale * 1.4426950408889634),
        .diagonal = params->causal == ATTN_CAUSAL_NONE ? ATTN_NO_DIAGONAL
                                                       : first + causal_offset(problem, b, key_end) - key_start,
        .mask = boolean ? mask : none,
        .bias = boolean ? none : mask,
        .weights = grid_of(&problem->weights, b, h, 0, key_start),
        .weight_rows = params->weight_rows,
        .num_weight_rows = params->num_weight_rows,
        .first_query = first,
        .keys_before = key_start,
        .keys_after = tk - key_end,
        .scratch = scratch,
    };
    const int64_t last_visible = work.diagonal - first + tq; /* whichever block this is: results may follow from it */
    work.known_keys = work.mask.data || work.bias.data ? 0
                      : last_visible < work.num_keys   ? last_visible
                                                       : work.num_keys;
    if (problem->lse.data) {
        work.lse = element(&problem->lse, b, h, first);
        work.lse_stride = (ptrdiff_t)problem->lse.stride[2];
    }
    if (problem->key_sums.data) {
        work.key_sums_stride = (ptrdiff_t)problem->key_sums.stride[3];
        work.key_sums = (float *)element(&problem->key_sums, b, h, 0) + key_start * work.key_sums_stride;
    }
    geometry->kernels->forward[params->exp](&work);
}

static void clear_key_sums(const struct attn_problem *problem, int64_t b, int64_t h)
{
    if (!problem->key_sums.data) /* no keys */
        return;
    float *sums = element(&problem->key_sums, b, h, 0);
    for (int64_t j = 0; j < problem->key_sums.shape[3]; j++)
        sums[j * problem->key_sums.stride[3]] = 0.0f;
}

void attn_run_task(const struct attn_problem *problem, const struct attn_geometry *geometry, int64_t task,
                   void *scratch)
{
    const int64_t heads = problem->q.shape[1], sequences = problem->q.shape[0] * heads;
    if (problem->params.key_sums) {
        clear_key_sums(problem, task / heads, task % heads);
        for (int64_t block = 0; block < geometry->blocks; block++)
            run_block(problem, geometry, task / heads, task % heads, block, scratch);
    } else if (problem->params.causal == ATTN_CAUSAL_NONE) {
        const int64_t sequence = task / geometry->blocks;
        run_block(problem, geometry, sequence / heads, sequence % heads, task % geometry->blocks, scratch);
    } else { /* the last queries see most keys: longest first */
        const int64_t sequence = task % sequences, block = geometry->blocks - 1 - task / sequences;
        run_block(problem, geometry, sequence / heads, sequence % heads, block, scratch);
    }
}
