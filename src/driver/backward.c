/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Geometry of the backward pass. Its phases:
 *
 *     labels     of documents, as in the forward pass
 *     begin      delta, 0 in the sums of dQ, and in rows of dK and dV that no task owns
 *     order      of a ragged batch, for several threads: long sequences begin first, many of them at once
 *     keys       the tasks of backward.h
 *     end        rows of dQ from their sums; with apart these sums, too
 *     options    gradients of biases by distance, of a span of a head's queries, and of what a mask's number is for
 *     heads      gradients of the other options, and of those biases from their spans
 *     rows       of tables by distance, from the sums that each head has
 *
 * What threads share, behind the labels:
 *
 *     sums of dQ [heads][blocks of queries] | delta [batch][heads][tokens of q] | products of q and dQ, the same |
 *     sums of biases by distance [spans][heads of q][1 + buckets] | what each task has reached | the order of tasks |
 * the call, for those who run shares
 *
 * and before what tasks have reached, of terms by distance (pass/relative_gradients.c):
 *
 *     sums of dQ of rel_k, like those of dQ | ends of queries [batch][heads][2][tokens of q] |
 *     ends of keys [heads of q][2][tokens of k] | products of k and its rows [batch][heads of q][tokens of k] |
 *     sums of rows of rel_k and rel_q [heads of q][rows][dk], in f32 as the kernels add them, a term at a time
 */
#include "driver/backward.h"

#include "driver/backward_even.h"
#include "driver/backward_options.h"
#include "driver/backward_rows.h"
#include "driver/backward_tasks.h"
#include "driver/threads.h"
#include "kernels/gradient_sums.h"

#include <assert.h>
#include <string.h>

/* Keys of a task at most, and bytes of its sums of dK and dV. */
#define TASK_KEYS  256
#define SUMS_LIMIT (512 * 1024)

/* Queries of a block at most: a task of later keys follows a block behind. */
#define BLOCK_QUERIES 288

/* ---------------------------------------------------------------- geometry -- */

/** Whether rows of channels are words of a set as they lie in memory. */
static int are_words(const struct attn_kernels *kernels, attn_dtype dtype, int64_t channels)
{
    const int pairs = kernels->scores->channels_per_word == 2;
    return pairs ? dtype == ATTN_BF16 && attn_channel_words(kernels->scores, channels) * 2 == channels
                 : dtype == ATTN_F32;
}

/** Keys of a task at least: runs begin at its first one. */
static int64_t least_keys(const struct attn_kernels *kernels)
{
    return kernels->values->key_step > ATTN_RUN_STEP ? kernels->values->key_step : ATTN_RUN_STEP;
}

/** Queries of a strip at least: sums over queries have a step of words at a time. */
static int64_t least_strip(const struct attn_kernels *kernels)
{
    const int64_t queries = attn_query_words(kernels->gradients, 1) * kernels->gradients->queries_per_word;
    return queries > kernels->vectors->lanes ? queries : kernels->vectors->lanes;
}

/** For tasks of so many keys at most. */
static struct attn_gradient_shape shape_of(const struct attn_backward *b, const struct attn_kernels *kernels,
                                           int64_t keys)
{
    const struct attn_problem *problem = &b->forward;
    const attn_params *params = &problem->params;
    const int64_t dk = problem->q.shape[3], dv = problem->v.shape[3];
    const int per_word = kernels->gradients->queries_per_word;
    const int relative = params->disentangled != NULL;
    while (keys > least_keys(kernels) && keys * (dk + dv + (relative ? dk : 0)) * (int64_t)sizeof(float) > SUMS_LIMIT)
        keys /= 2;
    return (struct attn_gradient_shape){
        .strip = kernels->strip,
        .key_block = attn_in_steps(keys < ATTN_KEY_BLOCK ? keys : ATTN_KEY_BLOCK, kernels->gradients->row_step),
        .keys = keys,
        .dk = dk,
        .dv = dv,
        .pairs = params->rope ? problem->rope_q.shape[3] / 2 : 0,
        .k_words = attn_channel_words(kernels->scores, dk),
        .v_words = attn_channel_words(kernels->scores, dv),
        .query_words = attn_query_words(kernels->gradients, kernels->strip),
        .dk_sums = attn_sum_channels(kernels->gradients, dk),
        .dv_sums = attn_sum_channels(kernels->gradients, dv),
        .dq_channels = attn_value_channels(kernels->values, dk),
        .per_word = per_word,
        .drops = params->dropout != NULL,
        .caps = params->softcap != 0.0f,
        .calls_back = params->callback != NULL,
        .copies_q = per_word > 1 || problem->q.dtype != ATTN_F32 || params->rope || params->head_scale,
        .copies_dout = per_word > 1 || b->dout.dtype != ATTN_F32,
        .copies_k = params->rope || !are_words(kernels, problem->k.dtype, dk),
        .copies_v = !are_words(kernels, problem->v.dtype, dv),
        .relative = relative};
}

static void add_phase(struct attn_geometry *geometry, int64_t tasks, int parallel,
                      void (*run_task)(const struct attn_run *run, int64_t task, void *scratch))
{
    geometry->phases[geometry->num_phases++] = (struct attn_phase){tasks, parallel, run_task};
}

/** Parts of a mask's gradient, of which each is what one task sums. */
static int64_t count_mask_tasks(const struct attn_backward *b)
{
    const attn_tensor *mask = &b->dmask;
    if (!attn_has_elements(mask))
        return 0;
    return mask->shape[0] * mask->shape[1] * (mask->shape[2] > 1 ? b->fixed.query_blocks : 1);
}

/**
 * Spans of a head's blocks of queries whose biases by distance are summed by themselves: as many as there are blocks,
 * or as there is room for in what the rows of q would take in f32.
 */
static int64_t count_spans(const struct attn_backward *b)
{
    const struct attn_problem *problem = &b->forward;
    const int64_t elements = attn_backward_elements(problem), blocks = elements * b->fixed.query_blocks;
    if (!b->dslopes && !b->dtable)
        return 0;
    const double room = (double)elements * (double)problem->q.shape[2] * (double)problem->q.shape[3] *
                        (double)sizeof(float) / (double)sizeof(double);
    const double most = room / (double)attn_backward_distance_sums(b);
    return most < 1.0 ? blocks > 0 : most < (double)blocks ? (int64_t)most : blocks;
}

/** Where so many floats of what threads share are, behind *at bytes; moves it. */
static size_t take_floats(size_t *at, int wanted, int64_t count)
{
    const size_t taken = *at;
    *at += wanted ? attn_aligned((size_t)count * sizeof(float)) : 0;
    return taken;
}

/** What terms by distance have of it. */
static void cut_relative(struct attn_backward *b, int64_t heads, size_t *at)
{
    const struct attn_problem *problem = &b->forward;
    const int64_t q_heads = problem->q.shape[1], tq = problem->q.shape[2], tk = problem->k.shape[2];
    const int64_t rows = q_heads * b->table_rows * problem->q.shape[3];
    const int k_rows = attn_has_elements(&b->drel_k), q_rows = attn_has_elements(&b->drel_q);
    const int of_queries = attn_has_elements(&problem->rel_k) && attn_backward_sums_queries(b);
    b->relative_dq_at = take_floats(at, of_queries, heads * b->dq_head);
    b->query_ends_at = take_floats(at, of_queries || k_rows, heads * 2 * tq);
    b->key_ends_at = take_floats(at, q_rows, q_heads * 2 * tk);
    b->key_dots_at = take_floats(at, attn_has_elements(&problem->rel_q) && b->dhead_scale, heads * tk);
    b->k_rows_at = take_floats(at, k_rows, rows);
    b->q_rows_at = take_floats(at, q_rows, rows);
}

/** Where the sums of dQ lie, and the rest of what threads share. */
static void cut_shared(struct attn_backward *b)
{
    const struct attn_problem *problem = &b->forward;
    struct attn_geometry *geometry = &b->steps.geometry;
    const struct attn_gradient_shape *shape = &b->steps.shape;
    const int64_t heads = attn_backward_elements(problem) * problem->q.shape[1],
                  lanes = geometry->kernels.vectors->lanes;
    /* Strips of a block are full but for the last, if no pattern cuts them: then sequences lie one after the other. */
    const int full = geometry->group == 0 && geometry->pieces == 1 && geometry->unit == geometry->rows_per_block;
    const int64_t of_block =
        full ? attn_in_steps(geometry->rows_per_block, (int)lanes) : geometry->scratch.strips * geometry->kernels.strip;
    int64_t rows = geometry->blocks * of_block;
    b->dq_block = of_block * shape->dq_channels;
    if (full && problem->params.ragged) {
        rows = problem->q.shape[2] + (problem->num_sequences + 1) * lanes;
        b->dq_block = 0;
    }
    b->dq_head = attn_backward_sums_queries(b) ? rows * shape->dq_channels : 0;
    size_t at = geometry->labels_size + attn_aligned((size_t)(heads * b->dq_head) * sizeof(float));
    b->delta_at = at;
    at += attn_aligned((size_t)(heads * problem->q.shape[2]) * sizeof(float));
    b->dots_at = at;
    at += b->dhead_scale ? attn_aligned((size_t)(heads * problem->q.shape[2]) * sizeof(float)) : 0;
    b->spans = count_spans(b);
    b->spans_at = at;
    at += attn_aligned((size_t)(b->spans * problem->q.shape[1] * attn_backward_distance_sums(b)) * sizeof(double));
    cut_relative(b, heads, &at);
    b->reached_at = at;
    at += attn_aligned((size_t)b->key_tasks * sizeof(atomic_llong));
    b->order_at = at;
    at += b->key_pieces > 0 ? attn_aligned((size_t)(b->key_pieces + problem->num_sequences + 1) * sizeof(int64_t)) : 0;
    b->kept_at = at;
    geometry->shared_size = at + attn_aligned(sizeof *b);
}

/** The forward call's geometry for strips of a width, and what a thread needs besides for tasks of so many keys at
 * most. Returns whether a thread has room for both. */
static int fits(struct attn_backward *b, const struct attn_kernels *kernels, int64_t keys,
                struct attn_backward_steps *steps)
{
    struct attn_gradient_scratch scratch;
    struct attn_scratch forward;
    steps->shape = shape_of(b, kernels, keys);
    b->forward.reserved = attn_gradient_layout(&scratch, NULL, &steps->shape);
    steps->geometry = attn_geometry_of(&b->forward, kernels, 1);
    struct attn_scratch_shape *shape = &steps->geometry.scratch; /* O, and blocks of keys, are not wanted here */
    shape->copies_keys = shape->copies_values = 0;
    shape->value_channels = 0;
    steps->scratch_at = attn_scratch_layout(&forward, NULL, shape);
    steps->geometry.scratch_size = steps->scratch_at + b->forward.reserved;
    return steps->geometry.kernels.strip == kernels->strip && steps->geometry.scratch_size <= ATTN_SCRATCH_LIMIT;
}

/** Steps of these sizes, or of smaller ones for which a thread has room. */
static void cut_steps(struct attn_backward *b, const struct attn_kernels *given,
                      const struct attn_backward_sizes *sizes, struct attn_backward_steps *steps)
{
    struct attn_kernels kernels = *given;
    steps->scores = *given->scores;
    steps->scores.scores_of_few = steps->scores.scores_free = NULL;
    steps->scores.walk = NULL;
    if (steps->scores.query_block > sizes->queries)
        steps->scores.query_block = (int)attn_in_steps(sizes->queries, (int)kernels.strip);
    kernels.scores = &steps->scores;
    kernels.values = &b->values;
    b->forward.block_rows = sizes->queries;
    for (int64_t keys = sizes->keys; !fits(b, &kernels, keys, steps) && keys > least_keys(&kernels);) {
        if (kernels.strip > least_strip(&kernels))
            kernels.strip -= kernels.vectors->lanes;
        else
            keys = steps->shape.keys / 2;
    }
    assert(steps->geometry.kernels.strip >= least_strip(&kernels)); /* most_channels */
    steps->geometry.gathers = 0;
    steps->query_blocks = steps->geometry.blocks;
}

/** Whether a number is summed over pairs of several blocks as they are gone over. */
static int sums_over_blocks(const struct attn_backward *b)
{
    return b->dslopes || b->dtable || attn_has_elements(&b->dmask) || attn_has_elements(&b->drel_k) ||
           attn_has_elements(&b->drel_q);
}

/** Threads, of so many, that a call is worth. */
static int count_threads(const struct attn_backward *b, int threads)
{
    const struct attn_problem *p = &b->forward;
    const double pairs =
        (double)(attn_backward_elements(p) * p->q.shape[1]) * (double)p->q.shape[2] * (double)p->k.shape[2];
    return attn_threads_worth(2.5 * pairs * (double)(p->q.shape[3] + p->v.shape[3]), ATTN_WORTH_ATTENTION, threads);
}

void attn_backward_cut(struct attn_backward *b, const struct attn_kernels *kernels, int threads)
{
    struct attn_problem *problem = &b->forward;
    const struct attn_backward_sizes largest = {.keys = TASK_KEYS, .queries = BLOCK_QUERIES};
    struct attn_backward_sizes sizes = largest;
    const int parallel = count_threads(b, threads);
    if (!b->coarse)
        attn_backward_even_sizes(b, kernels->strip, least_strip(kernels), parallel, &sizes);
    b->apart = sizes.apart;
    b->values = *kernels->values;
    b->values.values_of_few = NULL;
    problem->plain = problem->may_be_together = 0;
    b->buckets = problem->params.relative_bias ? problem->params.relative_bias->buckets : 0;
    b->table_rows = problem->params.disentangled ? 2 * problem->params.disentangled->span : 0;
    if (sums_over_blocks(b))
        cut_steps(b, kernels, &largest, &b->fixed);
    cut_steps(b, kernels, &sizes, &b->steps);
    struct attn_geometry *geometry = &b->steps.geometry;
    if (sums_over_blocks(b) && b->fixed.geometry.scratch_size > geometry->scratch_size)
        geometry->scratch_size = b->fixed.geometry.scratch_size;

    const int64_t elements = attn_backward_elements(problem), tk = problem->k.shape[2];
    const int64_t extra = problem->params.ragged ? problem->num_sequences + 1 : 0;
    const int64_t keys = b->steps.shape.keys, key_blocks = tk / keys + (tk % keys > 0 && !extra) + extra;
    const int of_keys = attn_has_elements(&b->dk) || attn_has_elements(&b->dv);
    const int wanted = of_keys || attn_backward_sums_queries(b);
    b->query_tasks = elements * problem->q.shape[1] * geometry->blocks;
    b->key_tasks = wanted ? elements * problem->k.shape[1] * key_blocks : 0;
    b->key_pieces = wanted && extra && parallel > 1 && !b->coarse ? key_blocks : 0;
    cut_shared(b);

    const double rows = (double)(elements * problem->q.shape[1]) * (double)problem->q.shape[2];
    const double size = (double)(problem->q.shape[3] + problem->v.shape[3]);
    const int copies = attn_threads_worth(rows * size, ATTN_WORTH_COPY, parallel);
    geometry->threads = geometry->parallel = parallel;
    geometry->num_phases = geometry->labels_size > 0; /* the first one stays */
    const int64_t of_heads = attn_backward_head_tasks(b);
    const int64_t options = b->spans * problem->q.shape[1] + count_mask_tasks(b);
    const int64_t unseen = of_keys ? problem->num_sequences + 1 : 0; /* tasks that clear rows which nobody sees */
    add_phase(geometry, wanted || options || of_heads ? b->query_tasks + unseen : 0, copies, attn_backward_begin_task);
    if (b->key_pieces > 0)
        add_phase(geometry, 1, 1, attn_backward_order_task);
    add_phase(geometry, b->key_tasks, parallel, attn_backward_key_task);
    add_phase(geometry, attn_backward_sums_queries(b) ? b->query_tasks : 0, b->apart ? parallel : copies,
              attn_backward_end_task);
    if (options > 0)
        add_phase(geometry, options, parallel, attn_backward_option_task);
    if (of_heads > 0)
        add_phase(geometry, of_heads, parallel, attn_backward_head_task);
    const int64_t tables = attn_backward_row_tasks(b);
    const double numbers = (double)problem->q.shape[1] * (double)b->table_rows * (double)problem->q.shape[3];
    if (tables > 0)
        add_phase(geometry, tables, attn_threads_worth(numbers, ATTN_WORTH_COPY, parallel), attn_backward_row_task);
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
    b->drel_k = given.drel_k;
    b->drel_q = given.drel_q;
    b->dhead_scale = given.dhead_scale;
    b->dsinks = given.dsinks;
    b->dslopes = given.dslopes;
    b->dtable = given.dtable;
    b->callback = given.callback;
    b->callback_user = given.callback_user;
}

struct attn_run *attn_backward_begin(void *workspace, const struct attn_backward *b)
{
    struct attn_run *run = attn_run_begin(workspace, &b->forward, &b->steps.geometry);
    run->backward = b;
    run->steps = &b->steps;
    atomic_llong *const reached = attn_backward_reached(run);
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
    run->steps = &kept->steps;
    run->geometry = &kept->steps.geometry;
}
