/* SPDX-License-Identifier: Apache-2.0 */
/* How gradients of linear attention are cut, and their pieces: walks over the tokens of a sequence. */
#include "driver/linear_backward.h"

#include "driver/tensors.h"
#include "driver/threads.h"

#include <string.h>

/* ------------------------------------------------------------------- heads -- */

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

/** Whether q and k are replaced by features. */
static int has_features(const struct attn_linear_backward *call)
{
    return call->forward.params.map != ATTN_FEATURES_NONE;
}

/** Heads that a side has gradients of, before features are undone, each the sum over as many heads of out. */
static int64_t targets_of(const struct attn_linear_backward *call, enum attn_linear_side side)
{
    const struct attn_linear_attention *f = &call->forward;
    const int64_t of_q = has_features(call) ? f->out.shape[1] : f->q.shape[1];
    const int64_t of_k = has_features(call) ? f->v.shape[1] : f->k.shape[1];
    return side == ATTN_SIDE_Q ? of_q : side == ATTN_SIDE_K ? of_k : f->v.shape[1];
}

/* ----------------------------------------------------------------- regions -- */

struct attn_rows attn_linear_region_rows(const struct attn_run *run, const struct attn_linear_rows *rows, int64_t batch,
                                         int64_t head, int64_t token, int64_t channel)
{
    const int64_t tokens = run->linear_backward->forward.v.shape[2];
    float *const base = (float *)(void *)(run->partials + rows->region.at);
    return (struct attn_rows){.data = base + ((batch * rows->heads + head) * tokens + token) * rows->pitch + channel,
                              .stride = (ptrdiff_t)rows->pitch * ATTN_WORD,
                              .dtype = ATTN_F32};
}

/** The same, or those of a tensor where there is no such region. */
static struct attn_rows rows_of(const struct attn_run *run, const struct attn_linear_rows *rows, int64_t row_head,
                                const attn_tensor *t, int64_t head, const struct attn_linear_sequence *s,
                                int64_t channel)
{
    return rows->region.bytes > 0 ? attn_linear_region_rows(run, rows, s->batch, row_head, s->first, channel)
                                  : attn_linear_head(t, s->batch, head, s->first, channel);
}

/** The rows of a sequence from its last token to its first. */
static struct attn_rows backwards(struct attn_rows rows, int64_t tokens)
{
    if (rows.data && tokens > 0)
        rows.data = (char *)rows.data + (tokens - 1) * rows.stride;
    rows.stride = -rows.stride;
    return rows;
}

static float *state_at(const attn_tensor *t, int64_t sequence, int64_t head, int64_t row, int64_t column)
{
    if (!t->data || !attn_has_elements(t))
        return NULL;
    return (float *)t->data + sequence * attn_step_of(t, 0) + head * attn_step_of(t, 1) + row * attn_step_of(t, 2) +
           column;
}

/* ------------------------------------------------------------------ pieces -- */

/** Some columns of what is wanted of a head. */
struct piece {
    enum attn_linear_side side;
    int64_t sequence, target;
    int64_t first, end; /**< columns */
};

/** Where a piece's gradients go: to the caller's tensor, or to what they are made of further. */
static struct attn_rows target_of(const struct attn_run *run, const struct piece *p,
                                  const struct attn_linear_sequence *s)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_backward_cut *cut = &call->cut;
    const struct attn_linear_rows *features[ATTN_SIDES] = {&cut->d_q, &cut->d_k, &cut->added[ATTN_SIDE_V]};
    const struct attn_linear_rows *rows =
        p->side != ATTN_SIDE_V && has_features(call) ? features[p->side] : &cut->added[p->side];
    return rows_of(run, rows, p->target, &call->d[p->side], p->target, s, p->first);
}

/** Columns of a piece that are gradients of something: that of sums of values is not. */
static int64_t results_of(const struct attn_linear_backward *call, const struct piece *p)
{
    const int64_t columns = p->side == ATTN_SIDE_V ? call->forward.v.shape[3] : call->cut.dk;
    const int64_t end = p->end < columns ? p->end : columns;
    return call->wants[p->side] && end > p->first ? end - p->first : 0;
}

/** What walks share: decays, resets, and the rows that they go over. */
static struct attn_state_work work_of(const struct attn_run *run, const struct attn_linear_sequence *s, int64_t state)
{
    const struct attn_linear_attention *f = &run->linear_backward->forward;
    const struct attn_rows resets = attn_linear_head(&f->resets, s->batch, state, s->first, 0);
    return (struct attn_state_work){
        .kernels = &run->geometry->kernels,
        .tokens = s->tokens,
        .decay = attn_linear_head(&f->decay, s->batch, state, s->first, 0),
        .decay_channel = (ptrdiff_t)attn_step_of(&f->decay, 3),
        .decay_channels = f->decay.shape[3],
        .resets = resets.data,
        .resets_stride = resets.stride,
        .written_scale = 1.0f,
        .scale = 1.0f,
        .in_column = 1,
    };
}

/** The factor of what is read: with normalise there is none. */
static float scale_of(const struct attn_linear_attention *f)
{
    return f->params.normalise ? 1.0f : f->scale;
}

/** A state that a walk begins with, from S or its gradient. */
static void begin_with(struct attn_state_work *w, const attn_tensor *t, const struct piece *p, int64_t state)
{
    const int lies = p->side != ATTN_SIDE_V; /* on its side */
    w->state_in = state_at(t, p->sequence, state, lies ? p->first : 0, lies ? 0 : p->first);
    w->in_pitch = lies ? 1 : (ptrdiff_t)attn_step_of(t, 2);
    w->in_column = lies ? (ptrdiff_t)attn_step_of(t, 2) : 1;
}

/** What one head of out gives to a piece. */
static void walk(const struct attn_run *run, const struct piece *p, int64_t head,
                 const struct attn_state_scratch *layout)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_attention *f = &call->forward;
    const struct attn_linear_backward_cut *cut = &call->cut;
    const struct attn_linear_heads h = attn_linear_heads_of(f, head);
    const struct attn_linear_sequence s = attn_linear_sequence_of(f, p->sequence);
    const int64_t readers = cut->heads / f->v.shape[1], from = p->side == ATTN_SIDE_Q ? 0 : p->first;
    const int first_reader = head % readers == 0,
              first_of_target = head % (cut->heads / targets_of(call, p->side)) == 0;
    struct attn_state_work w = work_of(run, &s, h.state);
    const int64_t q_from = p->side == ATTN_SIDE_K ? from : 0, d_from = p->side == ATTN_SIDE_V ? from : 0;
    const int64_t k_from = p->side == ATTN_SIDE_Q ? p->first : 0;
    const struct attn_rows q = rows_of(run, &cut->q, head, &f->q, h.q, &s, q_from);
    const struct attn_rows k = rows_of(run, &cut->k, h.state, &f->k, h.k, &s, k_from);
    const struct attn_rows v = rows_of(run, &cut->v, h.state, &f->v, h.state, &s, 0);
    const struct attn_rows d = rows_of(run, &cut->d_out, head, &f->out, head, &s, d_from);
    const float scale = scale_of(f);
    struct attn_decay_sums sums = {0};
    w.shape = &cut->shape[p->side];
    w.scratch = layout;
    w.values = w.columns = p->end - p->first;
    w.results = results_of(call, p);
    w.out = target_of(run, p, &s);
    w.adds = !first_of_target;
    if (p->side != ATTN_SIDE_V && w.decay_channels > 1) /* decays of the piece's columns */
        w.decay.data = (char *)w.decay.data + p->first * w.decay_channel * attn_element_size(w.decay.dtype);
    if (p->side == ATTN_SIDE_Q) {
        w.k = v, w.v = k, w.q = d, sums.partner = rows_of(run, &cut->q, head, &f->q, h.q, &s, p->first);
        w.scale = scale;
        begin_with(&w, &f->state_in, p, h.state);
    } else {
        w.backwards = 1;
        w.k = p->side == ATTN_SIDE_K ? d : q;
        w.v = p->side == ATTN_SIDE_K ? q : d;
        w.q = p->side == ATTN_SIDE_K ? v : k;
        w.written_scale = scale;
        if (first_reader) /* the others' share of it is the first one's */
            begin_with(&w, &call->d_state_out, p, h.state);
        sums.partner = backwards(rows_of(run, &cut->k, h.state, &f->k, h.k, &s, p->first), s.tokens);
        struct attn_rows *const all[] = {&w.q, &w.k, &w.v, &w.out, &w.decay};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            *all[i] = backwards(*all[i], s.tokens);
    }
    if (p->side == ATTN_SIDE_V) {
        w.state_out = state_at(&call->d_state_in, p->sequence, h.state, 0, p->first);
        w.out_pitch = (ptrdiff_t)attn_step_of(&call->d_state_in, 2);
        w.adds_state = !first_reader;
    }
    if (p->side != ATTN_SIDE_V && call->wants_decay) {
        const int64_t pitch = cut->decays.pitch, ragged = f->params.cu_seqlens != NULL;
        const int64_t slot = ragged ? s.first / ATTN_CHUNK + p->sequence : 0;
        sums.pitch = sums.states_pitch = (ptrdiff_t)pitch;
        sums.sums = attn_linear_region_rows(run, &cut->decays, s.batch, head, s.first, p->first).data;
        sums.states = (float *)(void *)(run->partials + cut->states.at) +
                      ((s.batch * cut->heads + head) * cut->slots + slot) * cut->dv * pitch + p->first;
        w.decay_sums = &sums;
    }
    attn_state_pass(&w);
}

/** Rounds what a piece has added up, and clears what no sequence has. */
static void finish(const struct attn_run *run, const struct piece *p)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_attention *f = &call->forward;
    const struct attn_linear_rows *added = &call->cut.added[p->side];
    const struct attn_linear_sequence s = attn_linear_sequence_of(f, p->sequence);
    const int64_t results = results_of(call, p);
    const float one = 1.0f;
    if (added->region.bytes == 0 || results == 0)
        return;
    struct attn_rows from = attn_linear_region_rows(run, added, s.batch, p->target, s.first, p->first);
    struct attn_rows to = attn_linear_head(&call->d[p->side], s.batch, p->target, s.first, p->first);
    for (int64_t t = 0; t < s.tokens; t++) {
        char *row = (char *)to.data + t * to.stride;
        run->geometry->kernels.vectors->write_few(&row, to.dtype, (const float *)from.data + t * added->pitch, 1,
                                                  results, &one);
    }
}

static void run_piece(const struct attn_run *run, enum attn_linear_side side, int64_t piece, void *scratch)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_backward_cut *cut = &call->cut;
    const struct attn_state_shape *shape = &cut->shape[side];
    const int64_t targets = targets_of(call, side), parts = cut->parts[side], part = piece % parts;
    const int64_t columns = side == ATTN_SIDE_V ? cut->dv : cut->dk, heads = cut->heads / targets;
    const struct piece p = {.side = side,
                            .sequence = piece / parts / targets,
                            .target = piece / parts % targets,
                            .first = attn_state_part(shape, columns, parts, part),
                            .end = attn_state_part(shape, columns, parts, part + 1)};
    struct attn_state_scratch layout;
    attn_state_layout(&layout, scratch, shape);
    for (int64_t i = 0; i < heads; i++)
        walk(run, &p, p.target * heads + i, &layout);
    finish(run, &p);
}

/** Rows that no sequence has, of gradients that pieces write: all of them where S has no elements. */
static void clear_rest(const struct attn_linear_backward *call)
{
    const int nothing = call->cut.dk == 0 || call->cut.dv == 0;
    for (int side = 0; side < ATTN_SIDES; side++) {
        const attn_tensor *t = &call->d[side];
        if (!call->wants[side] || (side != ATTN_SIDE_V && has_features(call) && !nothing))
            continue;
        for (int64_t i = 0; i < t->shape[0] * t->shape[1]; i++) {
            const int64_t batch = i / t->shape[1], from = nothing ? 0 : attn_linear_live(&call->forward, batch);
            const struct attn_rows rows = attn_linear_head(t, batch, i % t->shape[1], from, 0);
            for (int64_t r = from; rows.data && r < t->shape[2]; r++)
                memset((char *)rows.data + (r - from) * rows.stride, 0,
                       (size_t)(t->shape[3] * attn_element_size(t->dtype)));
        }
    }
}

/** The only, or the first, phase of pieces: K's among them unless decays want Q's first; then one task that clears. */
static void run_pieces(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const int64_t *pieces = call->cut.pieces;
    for (int side = 0; side < ATTN_SIDES; side++) {
        const int64_t own = side == ATTN_SIDE_K && call->wants_decay ? 0 : pieces[side];
        if (task < own) {
            run_piece(run, (enum attn_linear_side)side, task, scratch);
            return;
        }
        task -= own;
    }
    clear_rest(call);
}

static void run_k_pieces(const struct attn_run *run, int64_t task, void *scratch)
{
    run_piece(run, ATTN_SIDE_K, task, scratch);
}

static void run_ends(const struct attn_run *run, int64_t task, void *scratch)
{
    const int64_t decays = attn_linear_decays_tasks(run->linear_backward);
    if (task < decays)
        attn_linear_decays_task(run, task, scratch);
    else
        attn_linear_ends_task(run, task - decays, scratch);
}

/* ---------------------------------------------------------------- geometry -- */

static void shape_sides(struct attn_linear_backward *call, const struct attn_kernels *kernels)
{
    const struct attn_linear_attention *f = &call->forward;
    struct attn_linear_backward_cut *cut = &call->cut;
    const int fades = f->params.decay != NULL, rows = fades && f->decay.shape[3] != 1;
    const struct attn_state_shape plain = {.heads = 1,
                                           .lanes = kernels->states->lanes,
                                           .panel = kernels->states->panel,
                                           .bidirectional = f->params.bidirectional != 0,
                                           .decays = fades,
                                           .chunks_only = 1};
    for (int side = 0; side < ATTN_SIDES; side++)
        cut->shape[side] = plain;
    cut->shape[ATTN_SIDE_V].rows = rows;
    cut->shape[ATTN_SIDE_V].inputs = cut->shape[ATTN_SIDE_V].dk = cut->dk;
    for (int side = 0; side < ATTN_SIDE_V; side++) {
        cut->shape[side].fades_columns = rows || call->wants_decay;
        cut->shape[side].inputs = cut->shape[side].dk = cut->dv;
    }
    cut->sums = cut->shape[ATTN_SIDE_V];
    cut->sums.columns = 1;
    cut->features = plain;
    cut->features.map = f->params.map;
    cut->features.inputs = f->q.shape[3];
    cut->features.dk = cut->dk;
    cut->features.columns = 1;
}

/** Room for as many bytes behind what has been counted. */
static struct attn_region take(size_t *at, double bytes)
{
    const struct attn_region region = {*at, (size_t)bytes};
    *at += attn_aligned(region.bytes);
    return region;
}

static struct attn_linear_rows take_rows(const struct attn_linear_backward *call, size_t *at, int wanted, int64_t heads,
                                         int64_t channels)
{
    struct attn_linear_rows rows = {.heads = heads,
                                    .channels = channels,
                                    .pitch = attn_in_steps(channels, call->cut.geometry.kernels.states->lanes)};
    const attn_tensor *v = &call->forward.v;
    if (wanted)
        rows.region =
            take(at, (double)v->shape[0] * (double)heads * (double)v->shape[2] * (double)rows.pitch * ATTN_WORD);
    return rows;
}

static void take_regions(struct attn_linear_backward *call)
{
    const struct attn_linear_attention *f = &call->forward;
    struct attn_linear_backward_cut *cut = &call->cut;
    const int maps = has_features(call), normalises = f->params.normalise != 0;
    const int64_t heads = cut->heads, states = f->v.shape[1];
    size_t at = 0;
    cut->q = take_rows(call, &at, maps, heads, cut->dk);
    cut->k = take_rows(call, &at, maps, states, cut->dk);
    cut->d_q = take_rows(call, &at, maps && call->wants[ATTN_SIDE_Q], heads, cut->dk);
    cut->d_k = take_rows(call, &at, maps && call->wants[ATTN_SIDE_K], states, cut->dk);
    cut->v = take_rows(call, &at, normalises, states, cut->dv);
    cut->d_out = take_rows(call, &at, normalises, heads, cut->dv);
    for (int side = 0; side < ATTN_SIDES; side++) {
        const int sums = targets_of(call, (enum attn_linear_side)side) < heads && call->d[side].dtype != ATTN_F32;
        cut->added[side] = take_rows(call, &at, call->wants[side] && sums && (side == ATTN_SIDE_V || !maps),
                                     call->d[side].shape[1], call->d[side].shape[3]);
    }
    cut->decays = take_rows(call, &at, call->wants_decay, heads, cut->dk);
    cut->slots = f->v.shape[2] / ATTN_CHUNK + (f->params.cu_seqlens ? call->forward.num_sequences : 1);
    if (call->wants_decay)
        cut->states = take(&at, (double)f->v.shape[0] * (double)heads * (double)cut->slots * (double)cut->dv *
                                    (double)cut->decays.pitch * ATTN_WORD);
    cut->geometry.shared_size = at;
}

double attn_linear_backward_bytes(const struct attn_linear_backward *call)
{
    const struct attn_linear_attention *f = &call->forward;
    const double features = f->params.map == ATTN_FEATURES_POSITIVE ? (double)f->projection.shape[2] : 0;
    const double wide = 4 * ((double)f->q.shape[3] + features) + 3 * (double)f->v.shape[3] + 8 * ATTN_ALIGN;
    const double heads = (double)f->v.shape[0] * ((double)f->v.shape[1] + (double)f->out.shape[1]);
    const double states = (double)f->v.shape[2] / ATTN_CHUNK + (double)f->num_sequences + 1;
    const double state = ((double)f->v.shape[3] + 1) * ((double)f->q.shape[3] + features + ATTN_ALIGN);
    return ATTN_WORD * heads * ((double)f->v.shape[2] * wide + states * state);
}

/** Scratch memory of a thread: the most that a task of any phase has. */
static size_t scratch_of(const struct attn_linear_backward *call)
{
    const struct attn_linear_backward_cut *cut = &call->cut;
    const struct attn_state_shape *const shapes[] = {&cut->shape[ATTN_SIDE_Q], &cut->shape[ATTN_SIDE_K],
                                                     &cut->shape[ATTN_SIDE_V], &cut->sums, &cut->features};
    const size_t ends = attn_linear_ends_scratch(call), decays = attn_linear_decays_scratch(call);
    size_t most = ends > decays ? ends : decays;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct attn_state_scratch layout;
        const size_t size = attn_state_layout(&layout, NULL, shapes[i]);
        most = size > most ? size : most;
    }
    return most;
}

static void add_phase(struct attn_geometry *geometry, int64_t tasks,
                      void (*run_task)(const struct attn_run *run, int64_t task, void *scratch))
{
    if (tasks > 0)
        geometry->phases[geometry->num_phases++] = (struct attn_phase){tasks, geometry->parallel, run_task};
}

void attn_linear_backward_cut(struct attn_linear_backward *call, const struct attn_kernels *kernels, int threads)
{
    const struct attn_linear_attention *f = &call->forward;
    struct attn_linear_backward_cut *cut = &call->cut;
    struct attn_geometry *geometry = &cut->geometry;
    memset(cut, 0, sizeof *cut);
    geometry->kernels = *kernels;
    cut->heads = f->out.shape[1];
    cut->dk = f->params.map == ATTN_FEATURES_POSITIVE ? f->projection.shape[2] : f->q.shape[3];
    cut->dv = f->v.shape[3] + (f->params.normalise != 0);
    cut->blocks = (f->v.shape[2] + ATTN_CHUNK - 1) / ATTN_CHUNK;
    shape_sides(call, kernels);
    take_regions(call);
    const int some = cut->dk > 0 && cut->dv > 0 && cut->heads > 0;
    const int wants[ATTN_SIDES] = {call->wants[ATTN_SIDE_Q] || call->wants_decay,
                                   call->wants[ATTN_SIDE_K] || call->wants_decay,
                                   call->wants[ATTN_SIDE_V] || call->wants_state};
    const double sequences = (double)f->num_sequences, tokens = (double)f->v.shape[0] * (double)f->v.shape[2];
    const double work = 6 * (tokens + sequences) * (double)cut->heads * (double)cut->dk * (double)cut->dv;
    geometry->threads = geometry->parallel = attn_threads_worth(work, ATTN_WORTH_ATTENTION, threads);
    double walks = 0;
    for (int side = 0; side < ATTN_SIDES; side++)
        walks += wants[side] ? sequences * (double)targets_of(call, (enum attn_linear_side)side) : 0;
    for (int side = 0; side < ATTN_SIDES; side++) {
        const int64_t columns = side == ATTN_SIDE_V ? cut->dv : cut->dk;
        struct attn_state_shape *shape = &cut->shape[side];
        cut->parts[side] = attn_state_parts(shape, columns, walks, geometry->parallel);
        shape->columns = attn_state_widest_part(shape, columns, cut->parts[side]);
        const int64_t targets = targets_of(call, (enum attn_linear_side)side);
        cut->pieces[side] = some && wants[side] ? f->num_sequences * targets * cut->parts[side] : 0;
    }
    geometry->scratch_size = scratch_of(call);
    const int clears = !some || f->params.lengths || f->params.cu_seqlens;
    const int64_t of_k = cut->pieces[ATTN_SIDE_K], others_first = cut->pieces[ATTN_SIDE_Q] + cut->pieces[ATTN_SIDE_V];
    if (some)
        add_phase(geometry, attn_linear_features_tasks(call), attn_linear_features_task);
    if (some)
        add_phase(geometry, attn_linear_sums_tasks(call), attn_linear_sums_task);
    add_phase(geometry, others_first + (call->wants_decay ? 0 : of_k) + clears, run_pieces);
    add_phase(geometry, call->wants_decay ? of_k : 0, run_k_pieces);
    add_phase(geometry, attn_linear_decays_tasks(call) + (some ? attn_linear_ends_tasks(call) : 0), run_ends);
    for (int i = 0; i < geometry->num_phases; i++)
        geometry->tasks += geometry->phases[i].tasks;
}

struct attn_run *attn_linear_backward_begin(void *workspace, const struct attn_linear_backward *call)
{
    struct attn_run *run = attn_run_begin(workspace, NULL, &call->cut.geometry);
    run->linear_backward = call;
    run->executor = call->forward.params.executor;
    return run;
}
