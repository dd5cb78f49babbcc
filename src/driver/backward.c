/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry and tasks of the backward pass. Its phases:
 *
 *     labels     of documents, as in the forward pass
 *     begin      delta, 0 in the sums of dQ, and in rows of dK and dV that no task owns
 *     keys       the tasks of backward.h
 *     end        rows of dQ from their sums
 *     options    gradients of options: sums over all queries of a head, or over what a mask's number is for
 *
 * What threads share, behind the labels:
 *
 *     sums of dQ [heads][blocks of queries] | delta [batch][heads][tokens of q] | products of q and dQ, the same |
 *     what each task has reached | the call, for those who run shares
 */
#include "driver/backward.h"

#include "driver/tensors.h"
#include "driver/threads.h"

#include <math.h>
#include <sched.h>
#include <string.h>

/* Keys of a task at most, and bytes of its sums of dK and dV. */
#define TASK_KEYS  256
#define SUMS_LIMIT (512 * 1024)

/* What a task has reached when nothing is left of it. */
#define ALL_STEPS INT64_MAX

/* Looks at a counter before a thread that waits lets others run. */
#define PATIENCE 256

static size_t rounded_up(size_t size)
{
    return (size + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
}

/** Query heads of a key head. */
static int64_t heads_of_group(const struct attn_problem *problem)
{
    return problem->k.shape[1] > 0 ? problem->q.shape[1] / problem->k.shape[1] : 0;
}

/** Batch elements whose heads are cut one by one: all sequences of a ragged batch are one. */
static int64_t count_elements(const struct attn_problem *problem)
{
    return problem->params.ragged ? 1 : problem->q.shape[0];
}

/* ---------------------------------------------------------------- geometry -- */

/** Whether rows of channels are words of a set as they lie in memory. */
static int are_words(const struct attn_kernels *kernels, attn_dtype dtype, int64_t channels)
{
    const int pairs = kernels->scores->channels_per_word == 2;
    return pairs ? dtype == ATTN_BF16 && attn_channel_words(kernels->scores, channels) * 2 == channels
                 : dtype == ATTN_F32;
}

static struct attn_gradient_shape shape_of(const struct attn_backward *b, const struct attn_kernels *kernels)
{
    const struct attn_problem *problem = &b->forward;
    const attn_params *params = &problem->params;
    const int64_t dk = problem->q.shape[3], dv = problem->v.shape[3];
    const int per_word = kernels->gradients->queries_per_word;
    int64_t keys = TASK_KEYS;
    while (keys > ATTN_RUN_STEP && keys * (dk + dv) * (int64_t)sizeof(float) > SUMS_LIMIT)
        keys /= 2;
    return (struct attn_gradient_shape){.strip = kernels->strip,
                                        .key_block = keys < ATTN_KEY_BLOCK ? keys : ATTN_KEY_BLOCK,
                                        .keys = keys,
                                        .dk = dk,
                                        .dv = dv,
                                        .pairs = params->rope ? problem->rope_q.shape[3] / 2 : 0,
                                        .k_words = attn_channel_words(kernels->scores, dk),
                                        .v_words = attn_channel_words(kernels->scores, dv),
                                        .per_word = per_word,
                                        .drops = params->dropout != NULL,
                                        .caps = params->softcap != 0.0f,
                                        .copies_q = per_word > 1 || problem->q.dtype != ATTN_F32 || params->rope ||
                                                    params->head_scale,
                                        .copies_dout = per_word > 1 || b->dout.dtype != ATTN_F32,
                                        .copies_k = params->rope || !are_words(kernels, problem->k.dtype, dk),
                                        .copies_v = !are_words(kernels, problem->v.dtype, dv)};
}

static void add_phase(struct attn_geometry *geometry, int64_t tasks, int parallel,
                      void (*run_task)(const struct attn_run *run, int64_t task, void *scratch))
{
    geometry->phases[geometry->num_phases++] = (struct attn_phase){tasks, parallel, run_task};
}

static void begin_task(const struct attn_run *run, int64_t task, void *scratch);
static void key_task(const struct attn_run *run, int64_t task, void *scratch);
static void end_task(const struct attn_run *run, int64_t task, void *scratch);
static void option_task(const struct attn_run *run, int64_t task, void *scratch);

/** Whether sums of dQ are wanted. */
static int sums_queries(const struct attn_backward *b)
{
    return attn_has_elements(&b->dq) || b->dhead_scale;
}

/** Tasks of the last phase: heads whose options have gradients, then what of a mask is summed by one task. */
static int64_t count_head_tasks(const struct attn_backward *b)
{
    return b->dhead_scale || b->dsinks || b->dslopes || b->dtable ? b->forward.q.shape[1] : 0;
}

static int64_t count_mask_tasks(const struct attn_backward *b)
{
    const attn_tensor *mask = &b->dmask;
    if (!attn_has_elements(mask))
        return 0;
    return mask->shape[0] * mask->shape[1] * (mask->shape[2] > 1 ? b->query_blocks : 1);
}

/** Where the sums of dQ lie, and the rest of what threads share. */
static void cut_shared(struct attn_backward *b)
{
    const struct attn_problem *problem = &b->forward;
    struct attn_geometry *geometry = &b->geometry;
    const int64_t heads = count_elements(problem) * problem->q.shape[1], lanes = geometry->kernels.vectors->lanes;
    /* Strips of a block are full but for the last, if no pattern cuts them: then sequences lie one after the other. */
    const int full = geometry->group == 0 && geometry->pieces == 1 && geometry->unit == geometry->rows_per_block;
    int64_t rows = geometry->blocks * geometry->scratch.strips * geometry->kernels.strip;
    b->dq_block = geometry->scratch.strips * geometry->kernels.strip * problem->q.shape[3];
    if (full && problem->params.ragged) {
        rows = problem->q.shape[2] + (problem->num_sequences + 1) * lanes;
        b->dq_block = 0;
    }
    b->dq_head = sums_queries(b) ? rows * problem->q.shape[3] : 0;
    size_t at = geometry->labels_size + rounded_up((size_t)(heads * b->dq_head) * sizeof(float));
    b->delta_at = at;
    at += rounded_up((size_t)(heads * problem->q.shape[2]) * sizeof(float));
    b->dots_at = at;
    at += b->dhead_scale ? rounded_up((size_t)(heads * problem->q.shape[2]) * sizeof(float)) : 0;
    b->reached_at = at;
    at += rounded_up((size_t)b->key_tasks * sizeof(atomic_llong));
    b->kept_at = at;
    geometry->shared_size = at + rounded_up(sizeof *b);
}

void attn_backward_cut(struct attn_backward *b, const struct attn_kernels *given, int threads)
{
    struct attn_problem *problem = &b->forward;
    struct attn_gradient_scratch scratch;
    struct attn_kernels kernels = *given;
    b->scores = *kernels.scores;
    b->values = *kernels.values;
    b->scores.scores_of_few = b->scores.scores_free = NULL;
    b->values.values_of_few = NULL;
    kernels.scores = &b->scores;
    kernels.values = &b->values;
    problem->plain = problem->may_be_together = 0;
    b->shape = shape_of(b, &kernels);
    problem->reserved = attn_gradient_layout(&scratch, NULL, &b->shape);
    b->geometry = attn_geometry_of(problem, &kernels, 1);
    struct attn_geometry *geometry = &b->geometry;
    geometry->gathers = 0;
    b->shape = shape_of(b, &geometry->kernels); /* strips are perhaps narrower */
    b->scratch_at = geometry->scratch_size;
    geometry->scratch_size += attn_gradient_layout(&scratch, NULL, &b->shape);
    b->table_at = geometry->scratch_size;
    b->buckets = problem->params.relative_bias ? problem->params.relative_bias->buckets : 0;
    if (b->dtable)
        geometry->scratch_size += rounded_up((size_t)b->buckets * sizeof(double));

    const int64_t elements = count_elements(problem), tk = problem->k.shape[2];
    const int64_t extra = problem->params.ragged ? problem->num_sequences + 1 : 0;
    const int64_t key_blocks = tk / b->shape.keys + (tk % b->shape.keys > 0 && !extra) + extra;
    const int wanted = attn_has_elements(&b->dk) || attn_has_elements(&b->dv) || sums_queries(b);
    b->query_blocks = geometry->blocks;
    b->query_tasks = elements * problem->q.shape[1] * geometry->blocks;
    b->key_tasks = wanted ? elements * problem->k.shape[1] * key_blocks : 0;
    cut_shared(b);

    const double pairs = (double)(elements * problem->q.shape[1]) * (double)problem->q.shape[2] * (double)tk;
    const double rows = (double)(elements * problem->q.shape[1]) * (double)problem->q.shape[2];
    const double size = (double)(problem->q.shape[3] + problem->v.shape[3]);
    const int parallel = attn_threads_worth(2.5 * pairs * size, ATTN_WORTH_ATTENTION, threads);
    const int copies = attn_threads_worth(rows * size, ATTN_WORTH_COPY, parallel);
    geometry->threads = geometry->parallel = parallel;
    geometry->num_phases = geometry->labels_size > 0; /* the first one stays */
    const int64_t options = count_head_tasks(b) + count_mask_tasks(b);
    add_phase(geometry, wanted || options ? b->query_tasks + problem->num_sequences + 1 : 0, copies, begin_task);
    add_phase(geometry, b->key_tasks, parallel, key_task);
    add_phase(geometry, sums_queries(b) ? b->query_tasks : 0, copies, end_task);
    if (options > 0)
        add_phase(geometry, options, parallel, option_task);
}

void attn_backward_adopt(struct attn_backward *b, const struct attn_backward *plan)
{
    const struct attn_backward given = *b;
    *b = *plan;
    b->forward = given.forward;
    b->dout = given.dout;
    b->dlse = given.dlse;
    b->dq = given.dq;
    b->dk = given.dk;
    b->dv = given.dv;
    b->dmask = given.dmask;
    b->dhead_scale = given.dhead_scale;
    b->dsinks = given.dsinks;
    b->dslopes = given.dslopes;
    b->dtable = given.dtable;
}

/* ------------------------------------------------------------------- memory -- */

static float *shared_floats(const struct attn_run *run, size_t at)
{
    return (float *)(void *)(run->partials - run->geometry->labels_size + at);
}

/** What each task of keys has reached: steps that are done, a step for each block of queries of each head. */
static atomic_llong *reached_by(const struct attn_run *run)
{
    return (atomic_llong *)(void *)(run->partials - run->geometry->labels_size + run->backward->reached_at);
}

/** Row row of a head of a tensor, and those behind it. */
static struct attn_rows rows_at(const attn_tensor *t, int64_t b, int64_t h, int64_t row)
{
    static float nothing; /* for rows without channels, and no rows: data may be NULL */
    if (!attn_has_elements(t))
        return (struct attn_rows){&nothing, 0, t->dtype, NULL, 0};
    const int64_t at = b * attn_step_of(t, 0) + h * attn_step_of(t, 1) + row * attn_step_of(t, 2);
    return (struct attn_rows){(char *)t->data + at * attn_element_size(t->dtype),
                              (ptrdiff_t)(attn_step_of(t, 2) * attn_element_size(t->dtype)), t->dtype, NULL, 0};
}

static void clear_rows(const attn_tensor *t, int64_t b, int64_t first, int64_t end)
{
    for (int64_t h = 0; h < t->shape[1]; h++) {
        const struct attn_rows rows = rows_at(t, b, h, 0);
        for (int64_t i = first; i < end; i++)
            memset((char *)rows.data + i * rows.stride, 0, (size_t)(t->shape[3] * attn_element_size(t->dtype)));
    }
}

/** A block of queries with what the backward pass has of it. */
struct block {
    struct attn_work work;
    struct attn_gradient_block gradients;
    struct attn_gradient_scratch scratch;
    int64_t batch, first; /**< the place of its first query on the tensors' axes */
    float *delta;
};

/** Block number block of a head of sequence s. Returns 0 if it holds none. */
static int block_of(const struct attn_run *run, int64_t s, int64_t h, int64_t number, void *scratch,
                    struct block *block)
{
    const struct attn_backward *b = run->backward;
    const struct attn_problem *problem = run->problem;
    if (!attn_work_of(run, s, h, number, scratch, &block->work))
        return 0;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const struct attn_work *work = &block->work;
    attn_gradient_layout(&block->scratch, (char *)scratch + b->scratch_at, &b->shape);
    block->batch = sequence.batch;
    block->first = work->first_query;
    const int64_t head = sequence.batch * problem->q.shape[1] + h;
    block->delta = shared_floats(run, b->delta_at) + head * problem->q.shape[2] + block->first;
    block->gradients = (struct attn_gradient_block){
        .dout = rows_at(&b->dout, block->batch, h, block->first),
        .delta = block->delta,
        .dq_strip = run->geometry->group ? run->geometry->kernels.strip * problem->q.shape[3] : 0,
        .factor = problem->params.head_scale ? problem->params.head_scale[h] : 1.0f,
        .scratch = &block->scratch};
    if (!sums_queries(b))
        return 1;
    if (problem->params.ragged) /* blocks of all sequences count on */
        number += (problem->params.ragged->cu_seqlens_q[s] / run->geometry->unit + s) * run->geometry->pieces;
    const int64_t at = b->dq_block ? number * b->dq_block
                                   : (block->first + s * run->geometry->kernels.vectors->lanes) * problem->q.shape[3];
    block->gradients.dq = shared_floats(run, run->geometry->labels_size) + head * b->dq_head + at;
    return 1;
}

/** The same of a task of the phases around the main one. */
static int block_of_task(const struct attn_run *run, int64_t task, void *scratch, int64_t *h, struct block *block)
{
    const int64_t heads = run->problem->q.shape[1];
    int64_t number = task % run->backward->query_blocks, s = task / run->backward->query_blocks / heads;
    *h = task / run->backward->query_blocks % heads;
    if (run->problem->params.ragged)
        s = attn_ragged_block(run, &number);
    return block_of(run, s, *h, number, scratch, block);
}

/** Blocks of queries of a sequence. */
static int64_t blocks_of(const struct attn_run *run, int64_t s)
{
    const int64_t queries = attn_sequence_of(run->problem, s).queries, unit = run->geometry->unit;
    return (queries / unit + (queries % unit > 0)) * run->geometry->pieces;
}

/* -------------------------------------------------------------------- tasks -- */

/** Rows of dK and dV that no query can see: around the live keys of a sequence, or behind the last one. */
static void clear_unseen(const struct attn_run *run, int64_t s)
{
    const struct attn_backward *b = run->backward;
    const struct attn_problem *problem = run->problem;
    if (s == problem->num_sequences && !problem->params.ragged)
        return;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    int64_t first = sequence.k_first, begin = first + sequence.begin, end = first + sequence.end,
            last = first + sequence.keys;
    if (s == problem->num_sequences) {
        first = problem->params.ragged->cu_seqlens_k[s];
        begin = end = last = problem->k.shape[2];
    }
    const attn_tensor *const tensors[] = {&b->dk, &b->dv};
    for (int i = 0; i < 2; i++) {
        if (!attn_has_elements(tensors[i]))
            continue;
        clear_rows(tensors[i], sequence.batch, first, begin);
        clear_rows(tensors[i], sequence.batch, end, last);
    }
}

static void begin_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_backward *b = run->backward;
    struct block block;
    int64_t h;
    if (task >= b->query_tasks) {
        clear_unseen(run, task - b->query_tasks);
        return;
    }
    if (!block_of_task(run, task, scratch, &h, &block))
        return;
    const attn_tensor *dlse = &b->dlse;
    const float *const given = attn_has_elements(dlse)
                                   ? (const float *)dlse->data + block.batch * attn_step_of(dlse, 0) +
                                         h * attn_step_of(dlse, 1) + block.first * attn_step_of(dlse, 2)
                                   : NULL;
    attn_delta_pass(&block.work, &block.gradients.dout, given, (ptrdiff_t)attn_step_of(dlse, 2), block.delta);
    if (!block.gradients.dq)
        return;
    const int64_t lanes = run->geometry->kernels.vectors->lanes;
    const int64_t rows = (block.work.num_queries + lanes - 1) / lanes * lanes;
    const int64_t floats = b->dq_block ? b->dq_block : rows * run->problem->q.shape[3];
    memset(block.gradients.dq, 0, (size_t)floats * sizeof(float));
}

static void end_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_backward *b = run->backward;
    struct block block;
    int64_t h;
    if (!block_of_task(run, task, scratch, &h, &block))
        return;
    const struct attn_rows none = {.data = NULL};
    const struct attn_rows rows = attn_has_elements(&b->dq) ? rows_at(&b->dq, block.batch, h, block.first) : none;
    float *const dots =
        b->dhead_scale ? shared_floats(run, b->dots_at) + (block.delta - shared_floats(run, b->delta_at)) : NULL;
    attn_query_gradients(&block.work, &block.gradients, &rows, run->problem->scale * block.gradients.factor, dots);
}

/** A task of keys. */
struct keys {
    int64_t task, stride;        /**< its number; that of the task of the keys before is so much less */
    int64_t before;              /**< tasks of keys before */
    int64_t open;                /**< of these, how many have been seen to be done, from the first on */
    int64_t s, head, first, end; /**< sequence, key head, keys counted from the first live one */
};

/** Waits until the tasks of earlier keys have done step number step. */
static void wait_for(const struct attn_run *run, struct keys *keys, int64_t step)
{
    atomic_llong *const reached = reached_by(run);
    for (int64_t i = keys->open; i < keys->before; i++) {
        atomic_llong *const other = &reached[keys->task - (keys->before - i) * keys->stride];
        long long at;
        for (int looks = 0; (at = atomic_load_explicit(other, memory_order_acquire)) <= step; looks++)
            if (looks >= PATIENCE)
                sched_yield();
        if (at == ALL_STEPS && i == keys->open)
            keys->open++;
    }
}

static void set_reached(const struct attn_run *run, const struct keys *keys, int64_t steps)
{
    atomic_store_explicit(&reached_by(run)[keys->task], steps, memory_order_release);
}

static struct keys keys_of_task(const struct attn_run *run, int64_t task)
{
    const struct attn_problem *problem = run->problem;
    const int64_t size = run->backward->shape.keys, heads = problem->k.shape[1];
    const int64_t stride = count_elements(problem) * heads;
    int64_t number = task / stride, s = task % stride / heads;
    if (problem->params.ragged)
        s = attn_piece_of(problem->params.ragged->cu_seqlens_k, problem->num_sequences, size, &number);
    struct keys keys = {.task = task, .stride = stride, .before = number, .s = s, .head = task % heads};
    if (s == problem->num_sequences)
        return keys;
    const struct attn_sequence sequence = attn_sequence_of(problem, s);
    const int64_t live = sequence.end - sequence.begin;
    keys.first = number * size;
    keys.end = keys.first + size < live ? keys.first + size : live;
    return keys;
}

/** Writes what a task has summed up. */
static void write_keys(const struct attn_run *run, const struct keys *keys, const struct attn_work *work,
                       const struct attn_gradient_scratch *sums)
{
    const struct attn_backward *b = run->backward;
    const struct attn_sequence sequence = attn_sequence_of(run->problem, keys->s);
    const int64_t row = sequence.k_first + sequence.begin;
    const attn_dropout *dropout = run->problem->params.dropout;
    const float keep = dropout ? (float)(1.0 / (1.0 - (double)dropout->p)) : 1.0f;
    if (attn_has_elements(&b->dk)) {
        const struct attn_rows rows = rows_at(&b->dk, sequence.batch, keys->head, row);
        attn_key_gradients(work, &work->rope.k, keys->first, keys->end - keys->first, sums->dk, b->shape.dk,
                           run->problem->scale, sums, &rows);
    }
    if (attn_has_elements(&b->dv)) {
        const struct attn_rows rows = rows_at(&b->dv, sequence.batch, keys->head, row);
        attn_key_gradients(work, NULL, keys->first, keys->end - keys->first, sums->dv, b->shape.dv, keep, sums, &rows);
    }
}

static void key_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_backward *b = run->backward;
    const struct attn_problem *problem = run->problem;
    struct keys keys = keys_of_task(run, task);
    if (keys.first >= keys.end) {
        set_reached(run, &keys, ALL_STEPS);
        return;
    }
    const int64_t group = heads_of_group(problem);
    const int64_t blocks = blocks_of(run, keys.s);
    struct block block;
    struct attn_gradient_scratch sums;
    struct attn_gradient_keys words;
    attn_gradient_layout(&sums, (char *)scratch + b->scratch_at, &b->shape);
    memset(sums.dk, 0, (size_t)(b->shape.keys * b->shape.dk) * sizeof(float));
    memset(sums.dv, 0, (size_t)(b->shape.keys * b->shape.dv) * sizeof(float));
    int any = 0;
    for (int64_t step = 0; step < group * blocks; step++) {
        const int64_t h = keys.head * group + step / blocks;
        if (block_of(run, keys.s, h, step % blocks, scratch, &block)) {
            if (!any)
                words = attn_gradient_keys_of(&block.work, keys.first, keys.end, &sums);
            any = 1;
            block.scratch.dk = attn_has_elements(&b->dk) ? sums.dk : NULL;
            block.scratch.dv = attn_has_elements(&b->dv) ? sums.dv : NULL;
            if (block.gradients.dq)
                wait_for(run, &keys, step);
            attn_gradient_pass(&block.work, &block.gradients, &words);
        }
        set_reached(run, &keys, step + 1);
    }
    set_reached(run, &keys, ALL_STEPS);
    if (!any) { /* no query: nothing to turn back */
        block.work = (struct attn_work){.kernels = &run->geometry->kernels, .dk = (int)b->shape.dk};
    }
    write_keys(run, &keys, &block.work, &sums);
}

/* ------------------------------------------------------ gradients of options -- */

/** The gradients of scores of a block of queries and all its keys, added to those of biases. */
static void add_biases(const struct attn_run *run, struct block *block, int64_t s, struct attn_bias_gradients *biases)
{
    const struct attn_sequence sequence = attn_sequence_of(run->problem, s);
    const int64_t live = sequence.end - sequence.begin, size = run->backward->shape.keys;
    block->gradients.biases = biases;
    block->gradients.dq = NULL;
    const struct attn_gradient_scratch all = block->scratch;
    for (int64_t first = 0; s < run->problem->num_sequences && first < live; first += size) {
        struct attn_gradient_keys keys =
            attn_gradient_keys_of(&block->work, first, first + size < live ? first + size : live, &all);
        block->scratch.dk = block->scratch.dv = NULL;
        attn_gradient_pass(&block->work, &block->gradients, &keys);
    }
}

/** What a row gives to the gradient of its head's sink. */
static double sink_part(const struct attn_work *work, const struct block *block, int64_t i)
{
    const float sink = *work->sinks, lse = work->lse[i * work->lse_stride];
    if (sink == -INFINITY)
        return 0.0;
    return -exp((double)sink - (double)lse) * (double)block->delta[i];
}

/** The gradients of a head's options: over all sequences, in their order. */
static void head_options(const struct attn_run *run, int64_t h, void *scratch)
{
    const struct attn_backward *b = run->backward;
    const struct attn_problem *problem = run->problem;
    const int64_t buckets = b->dtable ? b->buckets : 0;
    double *const table = (double *)(void *)((char *)scratch + run->backward->table_at);
    struct attn_bias_gradients biases = {.distances = b->dslopes || b->dtable, .table = b->dtable ? table : NULL};
    double sink = 0.0, factor = 0.0;
    for (int64_t i = 0; i < buckets; i++)
        table[i] = 0.0;
    for (int64_t s = 0; s < problem->num_sequences; s++) {
        struct block block;
        for (int64_t number = 0; number < blocks_of(run, s); number++) {
            if (!block_of(run, s, h, number, scratch, &block))
                continue;
            const int64_t rows = block.work.num_queries;
            for (int64_t i = 0; b->dsinks && i < rows; i++)
                sink += sink_part(&block.work, &block, i);
            const float *dots = shared_floats(run, b->dots_at) + (block.delta - shared_floats(run, b->delta_at));
            for (int64_t i = 0; b->dhead_scale && i < rows; i++)
                factor += (double)dots[i];
            if (biases.distances)
                add_biases(run, &block, s, &biases);
        }
    }
    if (b->dhead_scale)
        b->dhead_scale[h] = (float)(factor * (double)problem->scale);
    if (b->dsinks)
        b->dsinks[h] = (float)sink;
    if (b->dslopes)
        b->dslopes[h] = (float)biases.slope;
    for (int64_t i = 0; i < buckets; i++)
        b->dtable[h * buckets + i] = (float)table[i];
}

/** Elements from index 0 to index i of an axis that may be broadcast. */
static int64_t broadcast_offset(const attn_tensor *t, int axis, int64_t i)
{
    return t->shape[axis] > 1 ? i * t->stride[axis] : 0;
}

/** The gradient of some rows of a mask for a block of queries. */
static void add_mask(const struct attn_run *run, int64_t s, int64_t h, int64_t number, void *scratch)
{
    const attn_tensor *mask = &run->backward->dmask;
    struct block block;
    if (!block_of(run, s, h, number, scratch, &block) || s == run->problem->num_sequences)
        return;
    const struct attn_sequence sequence = attn_sequence_of(run->problem, s);
    const int64_t key = sequence.k_first + sequence.begin;
    float *const data = mask->data;
    struct attn_bias_gradients biases = {
        .mask = {.data = data + broadcast_offset(mask, 0, block.batch) + broadcast_offset(mask, 1, h) +
                         broadcast_offset(mask, 2, block.first) + broadcast_offset(mask, 3, key),
                 .query_stride = (ptrdiff_t)attn_step_of(mask, 2),
                 .key_stride = (ptrdiff_t)attn_step_of(mask, 3),
                 .dtype = ATTN_F32}};
    add_biases(run, &block, s, &biases);
}

/** 0 in rows first..end-1 of a head of a mask's gradient. */
static void clear_mask(const attn_tensor *mask, int64_t b, int64_t h, int64_t first, int64_t end)
{
    float *const data = (float *)mask->data + broadcast_offset(mask, 0, b) + broadcast_offset(mask, 1, h);
    for (int64_t i = first; i < end; i++)
        for (int64_t j = 0; j < mask->shape[3]; j++)
            data[broadcast_offset(mask, 2, i) + broadcast_offset(mask, 3, j)] = 0.0f;
}

/** All that is summed up in one number of a mask, for those of a head and, if it has rows, of a block of queries. */
static void mask_option(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_problem *problem = run->problem;
    const attn_tensor *mask = &run->backward->dmask;
    const int has_rows = mask->shape[2] > 1, ragged = problem->params.ragged != NULL;
    const int64_t blocks = has_rows ? run->backward->query_blocks : 1;
    const int64_t mh = task / blocks % mask->shape[1], mb = task / blocks / mask->shape[1];
    const int64_t first_head = mask->shape[1] > 1 ? mh : 0,
                  end_head = mask->shape[1] > 1 ? mh + 1 : problem->q.shape[1];
    if (problem->q.shape[1] == 0 || problem->q.shape[0] == 0) { /* there are no queries */
        clear_mask(mask, mb, mh, 0, task % blocks == 0 ? mask->shape[2] : 0);
        return;
    }
    int64_t number = task % blocks, first = mask->shape[0] > 1 ? mb : 0;
    int64_t end = mask->shape[0] > 1 ? mb + 1 : problem->num_sequences;
    if (ragged) {
        first = has_rows ? attn_ragged_block(run, &number) : 0;
        end = has_rows ? first + 1 : problem->num_sequences;
    }
    if (!has_rows)
        clear_mask(mask, mb, mh, 0, 1);
    struct block block;
    const int64_t some = ragged ? first : 0;
    if (has_rows && block_of(run, some, 0, number, scratch, &block))
        clear_mask(mask, mb, mh, block.first, block.first + block.work.num_queries);
    for (int64_t s = first; s < end; s++)
        for (int64_t h = first_head; h < end_head; h++)
            for (int64_t i = has_rows ? number : 0; i < (has_rows ? number + 1 : blocks_of(run, s)); i++)
                add_mask(run, s, h, i, scratch);
}

static void option_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const int64_t heads = count_head_tasks(run->backward);
    if (task < heads)
        head_options(run, task, scratch);
    else
        mask_option(run, task - heads, scratch);
}

struct attn_run *attn_backward_begin(void *workspace, const struct attn_backward *b)
{
    struct attn_run *run = attn_run_begin(workspace, &b->forward, &b->geometry);
    run->backward = b;
    atomic_llong *const reached = reached_by(run);
    for (int64_t i = 0; i < b->key_tasks; i++)
        atomic_init(&reached[i], 0);
    return run;
}

void attn_backward_keep(struct attn_run *run)
{
    struct attn_backward *kept = (void *)(run->partials - run->geometry->labels_size + run->backward->kept_at);
    *kept = *run->backward;
    run->backward = kept;
    run->problem = &kept->forward;
    run->geometry = &kept->geometry;
}
