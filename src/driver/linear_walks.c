/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of gradients of linear attention: walks over the tokens of a sequence. */
#include "driver/linear_walks.h"

#include "driver/tensors.h"

/** Some columns of what is wanted of a head. */
struct piece {
    enum attn_linear_side side;
    int64_t sequence, target;
    int64_t first, end; /**< columns */
};

/* -------------------------------------------------------------------- rows -- */

/** What walks go over, in the places that the forward pass has for its own. */
enum operand { OF_Q, OF_K, OF_V, OF_OUT };

/** Which of them a side has for keys, values and queries, and whether it goes from the last token to the first. */
static const struct {
    enum operand keys, values, queries;
    int backwards;
} walks[ATTN_SIDES] = {[ATTN_SIDE_Q] = {OF_V, OF_K, OF_OUT, 0},
                       [ATTN_SIDE_K] = {OF_OUT, OF_Q, OF_V, 1},
                       [ATTN_SIDE_V] = {OF_Q, OF_OUT, OF_K, 1}};

/** Whether S lies on its side: its columns are channels of keys. */
static int lies(const struct piece *p)
{
    return p->side != ATTN_SIDE_V;
}

/** The rows of a sequence from its last token to its first. */
static struct attn_rows turn_round(struct attn_rows rows, int64_t tokens)
{
    if (rows.data && tokens > 0)
        rows.data = (char *)rows.data + (tokens - 1) * rows.stride;
    rows.stride = -rows.stride;
    return rows;
}

/** Rows of a region, or those of a tensor where there is no such region. */
static struct attn_rows rows_of(const struct attn_run *run, const struct attn_linear_rows *rows, int64_t row_head,
                                const attn_tensor *t, int64_t head, const struct attn_linear_sequence *s,
                                int64_t channel)
{
    return rows->region.bytes > 0 ? attn_linear_region_rows(run, rows, s->batch, row_head, s->first, channel)
                                  : attn_linear_head(t, s->batch, head, s->first, channel);
}

/** An operand of a head of out, in the order of a piece's walk. */
static struct attn_rows operand_of(const struct attn_run *run, const struct piece *p, enum operand of, int64_t head,
                                   const struct attn_linear_sequence *s, int64_t channel)
{
    const struct attn_linear_attention *f = &run->linear_backward->forward;
    const struct attn_linear_backward_cut *cut = &run->linear_backward->cut;
    const struct attn_linear_heads h = attn_linear_heads_of(f, head);
    const struct attn_rows rows = of == OF_Q   ? rows_of(run, &cut->q, head, &f->q, h.q, s, channel)
                                  : of == OF_K ? rows_of(run, &cut->k, h.state, &f->k, h.k, s, channel)
                                  : of == OF_V ? rows_of(run, &cut->v, h.state, &f->v, h.state, s, channel)
                                               : rows_of(run, &cut->d_out, head, &f->out, head, s, channel);
    return walks[p->side].backwards ? turn_round(rows, s->tokens) : rows;
}

/** Where a piece's gradients go: to the caller's tensor, or to what they are made of further. */
static struct attn_rows target_of(const struct attn_run *run, const struct piece *p,
                                  const struct attn_linear_sequence *s)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_backward_cut *cut = &call->cut;
    const struct attn_linear_rows *const features[ATTN_SIDES] = {&cut->d_q, &cut->d_k, &cut->added[ATTN_SIDE_V]};
    const struct attn_linear_rows *const made = attn_linear_has_map(call) ? features[p->side] : &cut->added[p->side];
    const struct attn_rows rows = rows_of(run, made, p->target, &call->d[p->side], p->target, s, p->first);
    return walks[p->side].backwards ? turn_round(rows, s->tokens) : rows;
}

/** Decays of a state's tokens in the order of a piece's walk: where S lies, those of the piece's columns. */
static struct attn_rows decays_of(const struct attn_run *run, const struct piece *p, struct attn_rows rows,
                                  int64_t tokens)
{
    const attn_tensor *const decay = &run->linear_backward->forward.decay;
    if (rows.data && lies(p) && decay->shape[3] > 1)
        rows.data = (char *)rows.data + p->first * attn_step_of(decay, 3) * attn_element_size(decay->dtype);
    return walks[p->side].backwards ? turn_round(rows, tokens) : rows;
}

/* ------------------------------------------------------------------ states -- */

/** The state that a walk begins with: S, or its gradient. */
static void begin_with(struct attn_state_work *w, const attn_tensor *t, const struct piece *p, int64_t state)
{
    w->state_in = attn_linear_state(t, p->sequence, state, lies(p) ? p->first : 0, lies(p) ? 0 : p->first);
    w->in_pitch = lies(p) ? 1 : (ptrdiff_t)attn_step_of(t, 2);
    w->in_column = lies(p) ? (ptrdiff_t)attn_step_of(t, 2) : 1;
}

/** Where a walk leaves what decays want. */
static struct attn_decay_sums sums_of(const struct attn_run *run, const struct piece *p, int64_t head,
                                      const struct attn_linear_sequence *s)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_backward_cut *cut = &call->cut;
    const int64_t slot = call->forward.params.cu_seqlens ? s->first / ATTN_CHUNK + p->sequence : 0;
    const int64_t at = ((s->batch * cut->heads + head) * cut->slots + slot) * cut->dv * cut->decays.pitch;
    return (struct attn_decay_sums){
        .sums = attn_linear_region_rows(run, &cut->decays, s->batch, head, s->first, p->first).data,
        .pitch = (ptrdiff_t)cut->decays.pitch,
        .partner = operand_of(run, p, p->side == ATTN_SIDE_Q ? OF_Q : OF_K, head, s, p->first),
        .states = (float *)(void *)(run->partials + cut->states.at) + at + p->first,
        .states_pitch = (ptrdiff_t)cut->decays.pitch,
    };
}

/* ------------------------------------------------------------------- walks -- */

/** Columns of a piece that are gradients of something: that of sums of values is not. */
static int64_t results_of(const struct attn_linear_backward *call, const struct piece *p)
{
    const int64_t columns = lies(p) ? call->cut.dk : call->forward.v.shape[3];
    const int64_t end = p->end < columns ? p->end : columns;
    return call->wants[p->side] && end > p->first ? end - p->first : 0;
}

/** What one head of out gives to a piece: the first of a target's heads writes, the others add. */
static void walk(const struct attn_run *run, const struct piece *p, int64_t head, int adds,
                 const struct attn_state_scratch *layout)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_attention *f = &call->forward;
    const int64_t state = attn_linear_heads_of(f, head).state;
    const struct attn_linear_sequence s = attn_linear_sequence_of(f, p->sequence);
    /* Of S's gradient there is one, whichever heads read S: it goes the way of the first. */
    const int first_reader = head % (call->cut.heads / f->v.shape[1]) == 0, backwards = walks[p->side].backwards;
    const float scale = f->params.normalise ? 1.0f : f->scale;
    struct attn_decay_sums sums;
    struct attn_state_work w = attn_linear_work(f, &run->geometry->kernels);
    attn_linear_place(&w, f, &s, state);
    w.shape = &call->cut.shape[p->side];
    w.scratch = layout;
    w.values = w.columns = p->end - p->first;
    w.results = results_of(call, p);
    w.k = operand_of(run, p, walks[p->side].keys, head, &s, 0);
    w.v = operand_of(run, p, walks[p->side].values, head, &s, p->first);
    w.q = operand_of(run, p, walks[p->side].queries, head, &s, 0);
    w.out = target_of(run, p, &s);
    w.adds = adds;
    w.decay = decays_of(run, p, w.decay, s.tokens);
    w.backwards = backwards;
    w.written_scale = backwards ? scale : 1.0f;
    w.scale = backwards ? 1.0f : scale;
    if (!backwards)
        begin_with(&w, &f->state_in, p, state);
    else if (first_reader)
        begin_with(&w, &call->d_state_out, p, state);
    if (!lies(p)) {
        w.state_out = attn_linear_state(&call->d_state_in, p->sequence, state, 0, p->first);
        w.out_pitch = (ptrdiff_t)attn_step_of(&call->d_state_in, 2);
        w.adds_state = !first_reader;
    } else if (call->wants_decay) {
        sums = sums_of(run, p, head, &s);
        w.decay_sums = &sums;
    }
    attn_state_pass(&w);
}

/** Rounds what a piece has added up. */
static void finish(const struct attn_run *run, const struct piece *p)
{
    const struct attn_linear_backward *call = run->linear_backward;
    const struct attn_linear_rows *added = &call->cut.added[p->side];
    const struct attn_linear_sequence s = attn_linear_sequence_of(&call->forward, p->sequence);
    const int64_t results = results_of(call, p);
    const float one = 1.0f;
    if (added->region.bytes == 0 || results == 0)
        return;
    const struct attn_rows from = attn_linear_region_rows(run, added, s.batch, p->target, s.first, p->first);
    const struct attn_rows to = attn_linear_head(&call->d[p->side], s.batch, p->target, s.first, p->first);
    for (int64_t t = 0; t < s.tokens; t++) {
        char *row = (char *)to.data + t * to.stride;
        run->geometry->kernels.vectors->write_few(&row, to.dtype, (const float *)from.data + t * added->pitch, 1,
                                                  results, &one);
    }
}

void attn_linear_run_piece(const struct attn_run *run, enum attn_linear_side side, int64_t piece, void *scratch)
{
    const struct attn_linear_backward_cut *cut = &run->linear_backward->cut;
    const struct attn_state_shape *shape = &cut->shape[side];
    const int64_t targets = attn_linear_targets(run->linear_backward, side), heads = cut->heads / targets;
    const int64_t columns = side == ATTN_SIDE_V ? cut->dv : cut->dk, parts = cut->parts[side], part = piece % parts;
    const struct piece p = {.side = side,
                            .sequence = piece / parts / targets,
                            .target = piece / parts % targets,
                            .first = attn_state_part(shape, columns, parts, part),
                            .end = attn_state_part(shape, columns, parts, part + 1)};
    struct attn_state_scratch layout;
    attn_state_layout(&layout, scratch, shape);
    for (int64_t i = 0; i < heads; i++)
        walk(run, &p, p.target * heads + i, i > 0, &layout);
    finish(run, &p);
}

void attn_linear_clear_rest(const struct attn_linear_backward *call)
{
    const int nothing = call->cut.dk == 0 || call->cut.dv == 0;
    for (int side = 0; side < ATTN_SIDES; side++) {
        const attn_tensor *t = &call->d[side];
        const int by_others = side != ATTN_SIDE_V && attn_linear_has_map(call) && !nothing;
        for (int64_t b = 0; !by_others && attn_has_elements(t) && b < t->shape[0]; b++)
            attn_linear_clear(t, b, nothing ? 0 : attn_linear_live(&call->forward, b));
    }
}
