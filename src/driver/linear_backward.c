/* SPDX-License-Identifier: Apache-2.0 */
/* How gradients of linear attention are cut: sizes, memory that phases hand on, and the phases. */
#include "driver/linear_backward.h"

#include "driver/linear_decays.h"
#include "driver/linear_features.h"
#include "driver/linear_walks.h"
#include "driver/tensors.h"
#include "driver/threads.h"

#include <string.h>

/* ------------------------------------------------------------------ phases -- */

/** The only, or the first, phase of pieces: K's among them unless decays want Q's first; then one task that clears. */
static void run_pieces(const struct attn_run *run, int64_t task, void *scratch)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const int64_t *pieces = call->cut.pieces;
    for (int side = 0; side < ATTN_SIDES; side++) {
        const int64_t own = side == ATTN_SIDE_K && call->wants_decay ? 0 : pieces[side];
        if (task < own) {
            attn_linear_run_piece(run, (enum attn_linear_side)side, task, scratch);
            return;
        }
        task -= own;
    }
    attn_linear_clear_rest(call);
}

static void run_k_pieces(const struct attn_run *run, int64_t task, void *scratch)
{
    attn_linear_run_piece(run, ATTN_SIDE_K, task, scratch);
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

/** Room for n0 * n1 * n2 floats behind what has been counted. Where that is more than can be, cut.bytes says so. */
static struct attn_region take(struct attn_linear_backward_cut *cut, int64_t n0, int64_t n1, int64_t n2)
{
    const double bytes = (double)n0 * (double)n1 * (double)n2 * ATTN_WORD;
    struct attn_region region = {.at = cut->geometry.shared_size};
    cut->bytes += bytes;
    if (cut->bytes < 0x1p62)
        region.bytes = (size_t)(n0 * n1 * n2) * ATTN_WORD;
    cut->geometry.shared_size += attn_aligned(region.bytes);
    return region;
}

/** Rows of so many heads of each batch element, if they are wanted. */
static struct attn_linear_rows take_rows(struct attn_linear_backward *call, int wanted, int64_t heads, int64_t channels)
{
    const attn_tensor *v = &call->forward.v;
    struct attn_linear_rows rows = {.heads = heads,
                                    .pitch = attn_in_steps(channels, call->cut.geometry.kernels.states->lanes)};
    if (wanted)
        rows.region = take(&call->cut, v->shape[0] * heads, v->shape[2], rows.pitch);
    return rows;
}

static void take_regions(struct attn_linear_backward *call)
{
    const struct attn_linear_attention *f = &call->forward;
    struct attn_linear_backward_cut *cut = &call->cut;
    const int maps = attn_linear_has_map(call), normalises = f->params.normalise != 0;
    const int64_t heads = cut->heads, states = f->v.shape[1];
    cut->q = take_rows(call, maps, heads, cut->dk);
    cut->k = take_rows(call, maps, states, cut->dk);
    cut->d_q = take_rows(call, maps && call->wants[ATTN_SIDE_Q], heads, cut->dk);
    cut->d_k = take_rows(call, maps && call->wants[ATTN_SIDE_K], states, cut->dk);
    cut->v = take_rows(call, normalises, states, cut->dv);
    cut->d_out = take_rows(call, normalises, heads, cut->dv);
    for (int side = 0; side < ATTN_SIDES; side++) {
        const int sums =
            attn_linear_targets(call, (enum attn_linear_side)side) < heads && call->d[side].dtype != ATTN_F32;
        cut->added[side] = take_rows(call, call->wants[side] && sums && (side == ATTN_SIDE_V || !maps),
                                     call->d[side].shape[1], call->d[side].shape[3]);
    }
    cut->decays = take_rows(call, call->wants_decay, heads, cut->dk);
    cut->slots = f->v.shape[2] / ATTN_CHUNK + (f->params.cu_seqlens ? call->forward.num_sequences : 1);
    if (call->wants_decay)
        cut->states = take(cut, f->v.shape[0] * heads, cut->slots, cut->dv * cut->decays.pitch);
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
    /* Where nothing is written there may be more sequences than can be gone through. */
    const int some = cut->dk > 0 && cut->dv > 0, of_decays = call->wants_decay && attn_has_elements(&call->d_decay);
    const int wants[ATTN_SIDES] = {attn_has_elements(&call->d[ATTN_SIDE_Q]) || of_decays,
                                   attn_has_elements(&call->d[ATTN_SIDE_K]) || of_decays,
                                   attn_has_elements(&call->d[ATTN_SIDE_V]) || attn_has_elements(&call->d_state_in)};
    const double sequences = (double)f->num_sequences, tokens = (double)f->v.shape[0] * (double)f->v.shape[2];
    const double work = 6 * (tokens + sequences) * (double)cut->heads * (double)cut->dk * (double)cut->dv;
    geometry->threads = geometry->parallel = attn_threads_worth(work, ATTN_WORTH_ATTENTION, threads);
    double walks = 0;
    for (int side = 0; side < ATTN_SIDES; side++)
        walks += wants[side] ? sequences * (double)attn_linear_targets(call, (enum attn_linear_side)side) : 0;
    for (int side = 0; side < ATTN_SIDES; side++) {
        const int64_t columns = side == ATTN_SIDE_V ? cut->dv : cut->dk;
        struct attn_state_shape *shape = &cut->shape[side];
        cut->parts[side] = attn_state_parts(shape, columns, walks, geometry->parallel);
        shape->columns = attn_state_widest_part(shape, columns, cut->parts[side]);
        const int64_t targets = attn_linear_targets(call, (enum attn_linear_side)side);
        cut->pieces[side] = some && wants[side] ? f->num_sequences * targets * cut->parts[side] : 0;
    }
    const int64_t of_k = cut->pieces[ATTN_SIDE_K], others_first = cut->pieces[ATTN_SIDE_Q] + cut->pieces[ATTN_SIDE_V];
    if (of_k + others_first > 0)
        take_regions(call);
    cut->kept = (struct attn_region){.at = geometry->shared_size, .bytes = sizeof *call};
    geometry->shared_size += attn_aligned(cut->kept.bytes);
    geometry->scratch_size = scratch_of(call);
    const int clears = !some || f->params.lengths || f->params.cu_seqlens;
    add_phase(geometry, attn_linear_features_tasks(call), attn_linear_features_task);
    add_phase(geometry, attn_linear_sums_tasks(call), attn_linear_sums_task);
    add_phase(geometry, others_first + (call->wants_decay ? 0 : of_k) + clears, run_pieces);
    add_phase(geometry, call->wants_decay ? of_k : 0, run_k_pieces);
    add_phase(geometry, attn_linear_decays_tasks(call) + attn_linear_ends_tasks(call), run_ends);
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

void attn_linear_backward_keep(struct attn_run *run)
{
    struct attn_linear_backward *kept = (void *)(run->partials + run->linear_backward->cut.kept.at);
    *kept = *run->linear_backward;
    run->linear_backward = kept;
    run->geometry = &kept->cut.geometry;
}
