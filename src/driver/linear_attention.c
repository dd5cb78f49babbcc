/* SPDX-License-Identifier: Apache-2.0 */
/* How linear attention is cut into tasks, and what a task is: the parts of states that it goes through. */
#include "driver/linear_attention.h"

#include "driver/tensors.h"
#include "driver/threads.h"

#include <math.h>
#include <string.h>

/* Bytes of S that a task has at most: half of a small L2. */
#define STATE_LIMIT (256 * 1024)

/* A part of some columns computes scores anew, in about this part of the time of all columns. */
#define SCORES_SHARE 0.15

/* Tasks that a thread should find at least, as cores are uneven, and pieces of a task at most. */
#define TASKS_PER_THREAD 4
#define MOST_PIECES      32

int64_t attn_state_part(const struct attn_state_shape *shape, int64_t columns, int64_t parts, int64_t i)
{
    const int64_t vectors = (columns + shape->lanes - 1) / shape->lanes, start = vectors * i / parts * shape->lanes;
    return start < columns ? start : columns;
}

int64_t attn_state_widest_part(const struct attn_state_shape *shape, int64_t columns, int64_t parts)
{
    int64_t widest = 0;
    for (int64_t i = 0; i < parts; i++) {
        const int64_t width = attn_state_part(shape, columns, parts, i + 1) - attn_state_part(shape, columns, parts, i);
        widest = width > widest ? width : widest;
    }
    return widest;
}

int64_t attn_state_parts(const struct attn_state_shape *shape, int64_t columns, double states, int threads)
{
    const int64_t vectors = (columns + shape->lanes - 1) / shape->lanes;
    int64_t least = (vectors * shape->lanes * shape->dk * (int64_t)sizeof(float) + STATE_LIMIT - 1) / STATE_LIMIT;
    least = least > vectors ? vectors : least;
    least = least < 1 ? 1 : least;
    int64_t best = least;
    double best_time = 0;
    for (int64_t parts = least; parts <= vectors; parts++) {
        const double rounds = ceil(states * (double)parts / threads);
        const double widest = (double)((vectors + parts - 1) / parts) / (double)vectors;
        const double time = rounds * (widest + SCORES_SHARE);
        if (best_time == 0 || time < best_time) {
            best_time = time;
            best = parts;
        }
        if (states * (double)parts >= (double)TASKS_PER_THREAD * threads)
            break;
    }
    return best;
}

/* ------------------------------------------------------------------- tasks -- */

void *attn_linear_address(const attn_tensor *t, int64_t batch, int64_t head, int64_t token, int64_t channel)
{
    if (!attn_has_elements(t))
        return NULL;
    const int64_t at = batch * attn_step_of(t, 0) + head * attn_step_of(t, 1) + token * attn_step_of(t, 2) + channel;
    return (char *)t->data + at * attn_element_size(t->dtype);
}

struct attn_rows attn_linear_head(const attn_tensor *t, int64_t batch, int64_t head, int64_t token, int64_t channel)
{
    return (struct attn_rows){.data = attn_linear_address(t, batch, head, token, channel),
                              .stride = (ptrdiff_t)(attn_step_of(t, 2) * attn_element_size(t->dtype)),
                              .dtype = t->dtype};
}

float *attn_linear_state(const attn_tensor *t, int64_t sequence, int64_t head, int64_t row, int64_t column)
{
    if (!t->data || !attn_has_elements(t))
        return NULL;
    return (float *)t->data + sequence * attn_step_of(t, 0) + head * attn_step_of(t, 1) + row * attn_step_of(t, 2) +
           column;
}

struct attn_linear_heads attn_linear_heads_of(const struct attn_linear_attention *call, int64_t out_head)
{
    const int64_t heads = call->v.shape[1], q_heads = call->q.shape[1], k_heads = call->k.shape[1];
    const int64_t state = q_heads > heads ? out_head / (q_heads / heads) : out_head;
    return (struct attn_linear_heads){.state = state,
                                      .q = q_heads >= heads ? out_head : out_head / (heads / q_heads),
                                      .k = state / (heads / k_heads)};
}

int64_t attn_linear_live(const struct attn_linear_attention *call, int64_t batch)
{
    const attn_linear_attention_params *p = &call->params;
    return p->lengths ? p->lengths[batch] : p->cu_seqlens ? p->cu_seqlens[call->num_sequences] : call->v.shape[2];
}

struct attn_linear_sequence attn_linear_sequence_of(const struct attn_linear_attention *call, int64_t s)
{
    const int64_t *const offsets = call->params.cu_seqlens;
    if (offsets)
        return (struct attn_linear_sequence){0, offsets[s], offsets[s + 1] - offsets[s]};
    return (struct attn_linear_sequence){s, 0, attn_linear_live(call, s)};
}

void attn_linear_clear(const attn_tensor *t, int64_t batch, int64_t from)
{
    for (int64_t head = 0; attn_has_elements(t) && head < t->shape[1]; head++) {
        const struct attn_rows rows = attn_linear_head(t, batch, head, from, 0);
        for (int64_t i = from; i < t->shape[2]; i++)
            memset((char *)rows.data + (i - from) * rows.stride, 0,
                   (size_t)(t->shape[3] * attn_element_size(t->dtype)));
    }
}

struct attn_state_work attn_linear_work(const struct attn_linear_attention *call, const struct attn_kernels *kernels)
{
    return (struct attn_state_work){.kernels = kernels,
                                    .decay = attn_linear_head(&call->decay, 0, 0, 0, 0),
                                    .decay_channel = (ptrdiff_t)attn_step_of(&call->decay, 3),
                                    .decay_channels = call->decay.shape[3],
                                    .resets_stride = (ptrdiff_t)attn_step_of(&call->resets, 2),
                                    .written_scale = 1.0f,
                                    .scale = 1.0f,
                                    .in_column = 1};
}

void attn_linear_place(struct attn_state_work *w, const struct attn_linear_attention *call,
                       const struct attn_linear_sequence *s, int64_t state)
{
    w->tokens = s->tokens;
    w->decay.data = attn_linear_address(&call->decay, s->batch, state, s->first, 0);
    w->resets = attn_linear_address(&call->resets, s->batch, state, s->first, 0);
}

/** Rows of out behind the last sequence; all of them where S has no rows. */
static void clear_rest(const struct attn_linear_attention *call)
{
    const int64_t from = call->cut.shape.dk > 0 ? call->params.cu_seqlens[call->num_sequences] : 0;
    for (int64_t b = 0; attn_has_elements(&call->out) && b < call->out.shape[0]; b++)
        attn_linear_clear(&call->out, b, from);
}

/** A piece's columns of out behind the tokens of a batch element. */
static void clear_padding(const struct attn_linear_attention *call, const struct attn_state_work *w)
{
    for (int h = 0; h < w->shape->heads && w->out.data; h++)
        for (int64_t t = w->tokens; t < call->out.shape[2]; t++)
            memset((char *)w->out.data + h * w->out_head + t * w->out.stride, 0,
                   (size_t)(w->values * attn_element_size(w->out.dtype)));
}

/** The sum of keys of a state between the two phases, in what threads share: one number for each row. */
static float *sum_of(const struct attn_run *run, int64_t state)
{
    return (float *)(void *)(run->partials + attn_aligned(sizeof *run->linear)) + state * run->linear->cut.shape.dk;
}

/** The second phase: that of one state goes to its column. */
static void write_sum(const struct attn_run *run, int64_t state, void *scratch)
{
    const struct attn_linear_attention *call = run->linear;
    const attn_tensor *t = &call->state_out;
    const float *const sum = sum_of(run, state);
    float *const to = attn_linear_state(t, state / t->shape[1], state % t->shape[1], 0, t->shape[3] - 1);
    (void)scratch;
    for (int64_t r = 0; r < t->shape[2]; r++)
        to[r * attn_step_of(t, 2)] = sum[r];
}

/** Part by part of the heads of a sequence. */
struct piece {
    int64_t part, head, sequence;
};

static struct piece piece_of(const struct attn_linear_attention *call, int64_t i)
{
    const int64_t parts = call->cut.parts, heads = call->v.shape[1];
    return (struct piece){i % parts, i / parts % heads, i / parts / heads};
}

/** The one behind. */
static void go_on(struct piece *p, const struct attn_linear_attention *call)
{
    if (++p->part < call->cut.parts)
        return;
    p->part = 0;
    if (++p->head < call->v.shape[1])
        return;
    p->head = 0;
    p->sequence++;
}

/** Where its state is before the call; NULL: nowhere. */
static const float *state_before(const struct attn_linear_attention *call, const struct piece *p)
{
    const int64_t first = attn_state_part(&call->cut.shape, call->v.shape[3], call->cut.parts, p->part);
    return attn_linear_state(&call->state_in, p->sequence, p->head, 0, first);
}

/** What all pieces of a task have: rows are those of the first one of all. */
static struct attn_state_work work_of(const struct attn_linear_attention *call,
                                      const struct attn_state_scratch *scratch)
{
    struct attn_state_work w = attn_linear_work(call, &call->cut.geometry.kernels);
    w.shape = &call->cut.shape;
    w.scratch = scratch;
    w.q = attn_linear_head(&call->q, 0, 0, 0, 0);
    w.k = attn_linear_head(&call->k, 0, 0, 0, 0);
    w.v = attn_linear_head(&call->v, 0, 0, 0, 0);
    w.out = attn_linear_head(&call->out, 0, 0, 0, 0);
    w.projection = attn_linear_head(&call->projection, 0, 0, 0, 0);
    w.beta = attn_linear_head(&call->beta, 0, 0, 0, 0);
    w.q_head = (ptrdiff_t)(attn_step_of(&call->q, 1) * attn_element_size(call->q.dtype));
    w.out_head = (ptrdiff_t)(attn_step_of(&call->out, 1) * attn_element_size(call->out.dtype));
    w.scale = call->scale;
    w.in_pitch = (ptrdiff_t)attn_step_of(&call->state_in, 2);
    w.out_pitch = (ptrdiff_t)attn_step_of(&call->state_out, 2);
    return w;
}

/** What one has of its own: where everything of it lies, and how many tokens and columns. */
static void place(struct attn_state_work *w, const struct attn_run *run, const struct piece *p)
{
    const struct attn_linear_attention *call = run->linear;
    const int64_t heads = call->v.shape[1], columns = call->v.shape[3];
    const int sums = call->cut.shape.normalises;
    const struct attn_linear_sequence s = attn_linear_sequence_of(call, p->sequence);
    const int64_t out_head = p->head * call->cut.shape.heads;
    const struct attn_linear_heads h = attn_linear_heads_of(call, out_head);
    const int64_t first = attn_state_part(&call->cut.shape, columns, call->cut.parts, p->part);
    const int64_t end = attn_state_part(&call->cut.shape, columns, call->cut.parts, p->part + 1);
    attn_linear_place(w, call, &s, p->head);
    w->values = w->results = end - first;
    w->columns = end - first + sums;
    w->q.data = attn_linear_address(&call->q, s.batch, h.q, s.first, 0);
    w->k.data = attn_linear_address(&call->k, s.batch, h.k, s.first, 0);
    w->v.data = attn_linear_address(&call->v, s.batch, p->head, s.first, first);
    w->out.data = attn_linear_address(&call->out, s.batch, out_head, s.first, first);
    w->projection.data = attn_linear_address(&call->projection, 0, p->head, 0, 0);
    w->beta.data = attn_linear_address(&call->beta, s.batch, p->head, s.first, 0);
    w->state_in = state_before(call, p);
    w->state_out = attn_linear_state(&call->state_out, p->sequence, p->head, 0, first);
    w->sum_in = sums ? attn_linear_state(&call->state_in, p->sequence, p->head, 0, columns) : NULL;
    w->sum_out = sums && p->part == 0 ? attn_linear_state(&call->state_out, p->sequence, p->head, 0, columns) : NULL;
    w->sum_pitch = w->out_pitch;
    if (call->cut.hands_on_sums && p->part == 0) {
        w->sum_out = sum_of(run, p->sequence * heads + p->head);
        w->sum_pitch = 1;
    }
}

/** Some pieces; the last task of a ragged call clears, and so does the only one without rows of S. */
static void run_task(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_linear_attention *call = run->linear;
    const int64_t first = task * call->cut.pieces_per_task, left = call->cut.pieces - first;
    if (left <= 0) {
        clear_rest(call);
        return;
    }
    struct attn_state_scratch layout;
    attn_state_layout(&layout, scratch, &call->cut.shape);
    struct attn_state_work work = work_of(call, &layout);
    struct piece piece = piece_of(call, first);
    const int64_t count = left < call->cut.pieces_per_task ? left : call->cut.pieces_per_task;
    for (int64_t i = 0; i < count; i++) {
        place(&work, run, &piece);
        go_on(&piece, call);
        work.next_state = i + 1 < count ? state_before(call, &piece) : NULL;
        attn_state_pass(&work);
        if (call->params.lengths)
            clear_padding(call, &work);
    }
}

/* ---------------------------------------------------------------- geometry -- */

/** Where a state has few tokens it takes a microsecond or two: several of them. */
static int64_t pieces_per_task(const struct attn_linear_attention *call, int threads)
{
    const int64_t each = call->cut.pieces / (threads * TASKS_PER_THREAD);
    if ((double)call->v.shape[2] * (double)call->v.shape[0] > (double)ATTN_FEW_TOKENS * (double)call->num_sequences)
        return 1;
    return each < 1 ? 1 : each > MOST_PIECES ? MOST_PIECES : each;
}

void attn_linear_attention_cut(struct attn_linear_attention *call, const struct attn_kernels *kernels, int threads)
{
    const attn_tensor *v = &call->v;
    struct attn_geometry *geometry = &call->cut.geometry;
    const int64_t heads = v->shape[1], q_heads = call->q.shape[1], columns = v->shape[3];
    const int64_t dk = call->params.map == ATTN_FEATURES_POSITIVE ? call->projection.shape[2] : call->q.shape[3];
    const double states = (double)call->num_sequences * (double)heads;
    const double tokens = (double)v->shape[0] * (double)v->shape[2] * (double)heads;
    const int readers = heads && q_heads > heads ? (int)(q_heads / heads) : 1;
    memset(geometry, 0, sizeof *geometry);
    geometry->kernels = *kernels;
    call->cut.shape = (struct attn_state_shape){.inputs = call->q.shape[3],
                                                .dk = dk,
                                                .map = call->params.map,
                                                .normalises = call->params.normalise != 0,
                                                .bidirectional = call->params.bidirectional != 0,
                                                .heads = readers,
                                                .lanes = kernels->states->lanes,
                                                .panel = kernels->states->panel,
                                                .corrects = call->params.beta != NULL,
                                                .decays = call->params.decay != NULL,
                                                .rows = call->params.decay && call->decay.shape[3] != 1};
    /* A state is read and written, with beta read twice; of a token there are two products or more. */
    const double size = (double)dk * (double)columns, passes = call->params.beta ? 2 : 1;
    const int moving = attn_threads_worth(passes * states * size, ATTN_WORTH_COPY, threads);
    const int computing = attn_threads_worth((double)(1 + readers) * tokens * size, ATTN_WORTH_ATTENTION, threads);
    const int parallel = moving > computing ? moving : computing;
    call->cut.parts = attn_state_parts(&call->cut.shape, columns, states, parallel);
    call->cut.shape.columns =
        attn_state_widest_part(&call->cut.shape, columns, call->cut.parts) + call->cut.shape.normalises;
    struct attn_state_scratch scratch;
    geometry->scratch_size = attn_state_layout(&scratch, NULL, &call->cut.shape);
    geometry->threads = geometry->parallel = parallel;
    geometry->shared_size = attn_aligned(sizeof *call);
    const int writes = attn_has_elements(&call->out) || (call->state_out.data && attn_has_elements(&call->state_out));
    call->cut.pieces = writes && dk > 0 ? call->num_sequences * heads * call->cut.parts : 0;
    call->cut.pieces_per_task = pieces_per_task(call, parallel);
    geometry->tasks = (call->cut.pieces + call->cut.pieces_per_task - 1) / call->cut.pieces_per_task;
    geometry->tasks += writes && (call->params.cu_seqlens || dk == 0);
    geometry->num_phases = 1;
    geometry->phases[0] = (struct attn_phase){geometry->tasks, parallel, run_task};
    call->cut.hands_on_sums = call->cut.shape.normalises && call->cut.parts > 1 &&
                              attn_has_elements(&call->state_out) && call->cut.pieces > 0;
    if (call->cut.hands_on_sums) {
        const int64_t states_out = call->num_sequences * heads;
        geometry->shared_size += attn_aligned((size_t)(states_out * dk) * sizeof(float));
        geometry->phases[geometry->num_phases++] = (struct attn_phase){states_out, 1, write_sum};
    }
}

struct attn_run *attn_linear_attention_begin(void *workspace, const struct attn_linear_attention *call)
{
    struct attn_run *run = attn_run_begin(workspace, NULL, &call->cut.geometry);
    run->linear = call;
    run->executor = call->params.executor;
    return run;
}

void attn_linear_attention_keep(struct attn_run *run)
{
    struct attn_linear_attention *kept = (void *)run->partials;
    *kept = *run->linear;
    run->linear = kept;
    run->geometry = &kept->cut.geometry;
}
