/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backward pass (Dao et al. 2022, "FlashAttention", appendix B.2, equations
 * for dV, dP, dS, dQ and dK), on the tiles of the forward pass:
 *
 *   for each strip of queries
 *       for each block of keys, and each run of it that the strip sees: a unit
 *           S  = K Q^T       scores, with their mask
 *           dP = V dO^T      the same kernel on other operands
 *           P  = 2^(S - lse),  dS = P (dP - D)
 *           dV += P dO,  dK += dS Q     channels are the lanes (kernels/gradients.h)
 *           dQ += K^T dS                the second product of the forward pass
 *
 * Five products, each once. Sums over queries go on in the order of the queries,
 * sums over keys in the order of the keys, one term at a time, and what is
 * hidden adds 0: no bit follows from where blocks, strips and runs begin. So a
 * caller may hand in any keys and any queries, as long as they come in order.
 *
 * Rows of K and V are words of the f32 sets: floats, in place or widened.
 */
#include "pass/gradients.h"

#include "pass/pass.h"

#include <math.h>

static const struct attn_tile_mask none = {.kind = MASK_NONE};

/** A strip of the backward pass. */
struct gradient_strip {
    struct strip *strip;
    struct attn_rows q, dout;                                         /**< its rows, floats */
    int q_finite, dout_finite;                                        /**< -1: not looked at yet */
    float *dq;                                                        /**< [dk][width] */
    float base[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));  /**< lse in base 2; +inf: no live key */
    float delta[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN))); /**< of struct attn_gradient_block */
};

/** The next count floats; NULL while only the size is wanted. */
static float *take(char *base, size_t *used, int64_t count)
{
    void *taken = base ? base + *used : NULL;
    *used += ((size_t)count * sizeof(float) + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
    return taken;
}

size_t attn_gradient_layout(struct attn_gradient_scratch *scratch, void *base, const struct attn_gradient_shape *shape)
{
    const int64_t tile = shape->key_block * shape->strip;
    size_t used = 0;
    *scratch = (struct attn_gradient_scratch){0};
    scratch->dp = take(base, &used, tile);
    if (shape->drops)
        scratch->kept = take(base, &used, tile);
    if (shape->caps)
        scratch->capped = take(base, &used, tile);
    scratch->dout = take(base, &used, shape->dv * shape->strip);
    if (shape->copies_q)
        scratch->q_rows = take(base, &used, shape->strip * shape->dk);
    if (shape->copies_dout)
        scratch->do_rows = take(base, &used, shape->strip * shape->dv);
    scratch->table = take(base, &used, 2 * shape->pairs);
    scratch->dk = take(base, &used, shape->keys * shape->dk);
    scratch->dv = take(base, &used, shape->keys * shape->dv);
    return used;
}

/* ------------------------------------------------------- what a strip brings -- */

/** Rows of a strip, which follow each other, as floats: where they lie, or in dst. */
static struct attn_rows float_rows(const struct pass *pass, const struct attn_rows *rows, int64_t first, int n,
                                   int64_t channels, float *dst)
{
    const struct attn_rows some = attn_rows_from(rows, first);
    if (rows->dtype == ATTN_F32)
        return some;
    pass->vectors->widen(dst, &some, n, channels);
    return (struct attn_rows){dst, channels * (ptrdiff_t)sizeof(float), ATTN_F32, NULL, 0};
}

/** Rows of Q as dK meets them: turned, and multiplied by the factor of the head. */
static struct attn_rows query_rows(const struct pass *pass, const struct attn_gradient_block *block,
                                   const struct strip *strip)
{
    const struct attn_work *work = pass->work;
    float *const dst = block->scratch->q_rows;
    struct attn_rows rows = float_rows(pass, &work->q, strip->first, strip->rows, work->dk, dst);
    const struct attn_rows copy = {dst, work->dk * (ptrdiff_t)sizeof(float), ATTN_F32, NULL, 0};
    if (work->rope.q.data) {
        const struct attn_rotation rotation = {.x = rows,
                                               .out = copy,
                                               .table =
                                                   (const float *)(const void *)row_of(&work->rope.q, strip->first),
                                               .table_stride = work->rope.q.stride / (ptrdiff_t)sizeof(float),
                                               .num_rows = strip->rows,
                                               .pairs = work->rope.pairs,
                                               .width = work->dk,
                                               .layout = work->rope.layout};
        pass->vectors->rotate(&rotation);
        rows = copy;
    }
    if (block->factor == 1.0f)
        return rows;
    for (int r = 0; r < strip->rows; r++)
        for (int c = 0; c < work->dk; c++)
            dst[r * (ptrdiff_t)work->dk + c] = ((const float *)(const void *)row_of(&rows, r))[c] * block->factor;
    return copy;
}

/** The log-sum-exp of a lane in base 2; +inf where it has no live key or no query, so that weights are 0. */
static float base_of(const struct attn_work *work, const struct strip *strip, int lane)
{
    if (lane >= strip->rows)
        return INFINITY;
    const float lse = work->lse[(strip->first + lane) * work->lse_stride];
    return lse == -INFINITY ? INFINITY : (float)((double)lse * ATTN_LOG2E_DOUBLE);
}

/** dO in lane order, and what else a strip needs before its first unit. */
static void start_strip(const struct pass *pass, const struct attn_gradient_block *block, struct gradient_strip *g)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = g->strip;
    const char *pointers[ATTN_MAX_STRIP];
    attn_pack_strip(pass, strip, work->scale);
    for (int r = 0; r < strip->rows; r++)
        pointers[r] = row_of(&block->dout, strip->first + r);
    pass->vectors->read_rows(block->scratch->dout, strip->width, strip->width, pointers, block->dout.dtype, strip->rows,
                             work->dv, 1.0f);
    g->dout = float_rows(pass, &block->dout, strip->first, strip->rows, work->dv, block->scratch->do_rows);
    if (block->scratch->dk)
        g->q = query_rows(pass, block, strip);
    g->q_finite = g->dout_finite = -1;
    for (int r = 0; r < strip->width; r++) {
        g->base[r] = base_of(work, strip, r);
        g->delta[r] = r < strip->rows ? block->delta[strip->first + r] : 0.0f;
    }
    const int64_t i = strip - pass->strips;
    if (block->dq)
        g->dq = block->dq + (block->dq_strip ? i * block->dq_strip : strip->first * work->dk);
}

/* ------------------------------------------------------------------- units -- */

/** Whether n rows of floats are all finite; known: -1 until they have been looked at. */
static int are_finite(const struct pass *pass, const char *rows, ptrdiff_t stride, int n, int64_t channels, int *known)
{
    if (*known < 0)
        *known = pass->values->finite(rows, stride, n, channels);
    return *known;
}

/** Adds a tile of weights times rows of queries to rows of keys. */
static void add_rows(const struct pass *pass, const struct unit *unit, const float *p, const struct attn_rows *rows,
                     int64_t channels, int *finite, float *sum)
{
    const struct strip *strip = unit->strip;
    const struct attn_row_sums sums = {.p = p,
                                       .pitch = strip->width,
                                       .keys = unit->n,
                                       .rows = strip->rows,
                                       .diagonal =
                                           unit->mask.kind == MASK_DIAGONAL ? unit->mask.diagonal : ATTN_NO_DIAGONAL,
                                       .x = rows->data,
                                       .x_stride = rows->stride,
                                       .channels = channels,
                                       .sum = sum};
    const struct attn_gradient_kernels *kernels = pass->work->kernels->gradients;
    if (unit->mask.kind != MASK_NONE && !are_finite(pass, rows->data, rows->stride, strip->rows, channels, finite))
        kernels->add_rows_seen(&unit->mask, &sums);
    else
        kernels->add_rows(&sums);
}

/** Adds a tile's gradients of scores times rows of K to those of Q. */
static void add_keys(const struct pass *pass, const struct key_block *keys, const struct unit *unit, const float *ds,
                     int *finite, float *dq)
{
    const struct attn_work *work = pass->work;
    const int lanes = pass->vectors->lanes, n = unit->n, nv = unit->strip->nv;
    const char *const k = keys->k + unit->run.lo * keys->k_stride;
    int ends[ATTN_MAX_VECTORS];
    for (int v = 0; v < nv; v++)
        ends[v] = unit->mask.kind == MASK_DIAGONAL ? attn_visible_before(unit->mask.diagonal, (v + 1) * lanes, n) : n;
    const struct attn_value_operands operands = {
        .p = ds, .v = k, .v_stride = keys->k_stride, .dv = work->dk, .ends = ends, .o = dq, .mode = ACCUMULATE_ADD};
    const char *const all = keys->k + keys->lo * keys->k_stride;
    if (unit->mask.kind != MASK_NONE && !are_finite(pass, all, keys->k_stride, keys->hi - keys->lo, work->dk, finite))
        pass->values->values_seen(nv, &unit->mask, &operands, n);
    else
        pass->values->values(nv, &operands);
}

/** Scores behind softcap of a unit, without its mask. */
static void capped_scores(const struct pass *pass, const struct key_block *keys, const struct unit *unit, float *dst)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = unit->strip;
    float max[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const struct attn_score_operands operands = {.q = strip->q,
                                                 .k = keys->k + unit->run.lo * keys->k_stride,
                                                 .k_stride = keys->k_stride,
                                                 .words = work->dk,
                                                 .rows = strip->rows,
                                                 .mask = &none,
                                                 .s = dst};
    pass->scores->scores(strip->nv, &operands, unit->n, max);
    pass->vectors->finish_scores(strip->nv, &none, unit->n, NULL, work->softcap * ATTN_LOG2E, dst, max);
}

/** Weights of a unit from its scores, in their place: those of the softmax, less what dropout clears. */
static void unit_weights(const struct pass *pass, const struct key_block *keys, const struct unit *unit,
                         const struct gradient_strip *g, float *softmax)
{
    float l[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN))) = {0}; /* known already */
    const struct strip *strip = unit->strip;
    const int n = unit->n;
    const int ends[ATTN_MAX_VECTORS] = {n, n, n, n};
    float *const s = pass->scratch.s;
    pass->values->weights(strip->nv, g->base, ends, n, unit->factor, s, l);
    if (!softmax)
        return;
    memcpy(softmax, s, (size_t)n * (size_t)strip->width * sizeof *s);
    struct attn_drop drop = pass->work->drop;
    drop.query_index += strip->first;
    drop.first += keys->first + unit->run.lo;
    pass->values->drop(&drop, strip->nv, n, s);
}

/** Everything that a strip and a run of keys give. */
static void run_unit(const struct pass *pass, const struct attn_gradient_block *block, struct key_block *keys,
                     struct gradient_strip *g, const struct run *run, int *k_finite)
{
    const struct attn_work *work = pass->work;
    const struct attn_gradient_scratch *scratch = block->scratch;
    const struct strip *strip = g->strip;
    float max[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    struct unit unit = {.strip = g->strip, .run = *run, .n = run->hi - run->lo};
    const int64_t at = keys->first + run->lo - block->first; /* among the keys of the task */
    attn_unit_scores(pass, keys, &unit);
    if (unit.mask.kind == MASK_DEAD)
        return;
    unit_weights(pass, keys, &unit, g, scratch->kept);
    if (scratch->dv)
        add_rows(pass, &unit, pass->scratch.s, &g->dout, work->dv, &g->dout_finite, scratch->dv + at * work->dv);
    if (!scratch->dk && !g->dq)
        return;
    const struct attn_score_operands operands = {.q = scratch->dout,
                                                 .k = keys->v + run->lo * keys->v_stride,
                                                 .k_stride = keys->v_stride,
                                                 .words = work->dv,
                                                 .rows = strip->rows,
                                                 .mask = &none,
                                                 .s = scratch->dp};
    pass->scores->scores(strip->nv, &operands, unit.n, max);
    if (work->softcap != 0.0f)
        capped_scores(pass, keys, &unit, scratch->capped);
    const struct attn_score_gradients gradients = {.mask = &unit.mask,
                                                   .keys = unit.n,
                                                   .p = scratch->kept ? scratch->kept : pass->scratch.s,
                                                   .kept = scratch->kept ? pass->scratch.s : NULL,
                                                   .keep_scale = work->drop.keep_scale,
                                                   .capped = work->softcap != 0.0f ? scratch->capped : NULL,
                                                   .cap = work->softcap * ATTN_LOG2E,
                                                   .delta = g->delta,
                                                   .dp = scratch->dp};
    work->kernels->gradients->score_gradients(strip->nv, &gradients);
    if (scratch->dk)
        add_rows(pass, &unit, scratch->dp, &g->q, work->dk, &g->q_finite, scratch->dk + at * work->dk);
    if (g->dq)
        add_keys(pass, keys, &unit, scratch->dp, k_finite, g->dq);
}

/** The keys of a strip's block, from first on, size of them. */
static void run_keys(const struct pass *pass, const struct attn_gradient_block *block, struct gradient_strip *g,
                     int *started, int64_t first, int size)
{
    const struct span span = attn_span_at(pass->work, first, size);
    struct run run = {.hi = 0};
    while (attn_next_run(pass, g->strip, &span, run.hi, &run)) {
        if (!*started)
            start_strip(pass, block, g);
        *started = 1;
        struct key_block keys = attn_key_block_at(pass, &span, run.lo, run.hi, 0, 1);
        int k_finite = -1;
        run_unit(pass, block, &keys, g, &run, &k_finite);
        if (!pass->work->view.pattern_size)
            return;
    }
}

void attn_gradient_pass(const struct attn_work *work, const struct attn_gradient_block *block)
{
    struct pass pass;
    attn_begin_pass(&pass, work);
    const int64_t size = pass.scratch.key_block, end = block->end < pass.end ? block->end : pass.end;
    attn_enter(work->kernels);
    for (int64_t i = 0; i < pass.num_strips; i++) {
        struct gradient_strip g = {.strip = &pass.strips[i]};
        int started = 0;
        for (int64_t first = block->first; first < end; first += size)
            run_keys(&pass, block, &g, &started, first, (int)(end - first < size ? end - first : size));
    }
    attn_leave(work->kernels);
}

/* ------------------------------------------------------- before and behind -- */

void attn_delta_pass(const struct attn_work *work, const struct attn_rows *dout, const float *dlse,
                     ptrdiff_t dlse_stride, float *delta)
{
    work->kernels->gradients->dot_rows(delta, dout, &work->out, (int)work->num_queries, work->dv);
    for (int64_t i = 0; i < work->num_queries; i++) {
        if (work->lse[i * work->lse_stride] == -INFINITY) /* its rows may hold anything */
            delta[i] = 0.0f;
        else if (dlse)
            delta[i] -= dlse[i * dlse_stride];
    }
}

/** Turns a row of floats back, as a row of a table has turned it. */
static void turn_back(const struct attn_work *work, const float *table, float *row, float *inverse)
{
    const int64_t pairs = work->rope.pairs;
    for (int64_t i = 0; i < pairs; i++) {
        inverse[i] = table[i];
        inverse[pairs + i] = -table[pairs + i];
    }
    const struct attn_rows rows = {row, 0, ATTN_F32, NULL, 0};
    const struct attn_rotation rotation = {.x = rows,
                                           .out = rows,
                                           .table = inverse,
                                           .num_rows = 1,
                                           .pairs = pairs,
                                           .width = work->dk,
                                           .layout = work->rope.layout};
    work->kernels->vectors->rotate(&rotation);
}

void attn_key_gradients(const struct attn_work *work, const struct attn_rows *table, int64_t first, int64_t n,
                        float *sums, int64_t channels, float factor, const struct attn_gradient_scratch *scratch,
                        const struct attn_rows *rows)
{
    for (int64_t i = 0; i < n; i++) {
        char *row = row_of(rows, first + i);
        if (table && table->data)
            turn_back(work, (const float *)(const void *)row_of(table, first + i), sums + i * channels, scratch->table);
        work->kernels->vectors->write_few(&row, rows->dtype, sums + i * channels, 1, channels, &factor);
    }
}

void attn_query_gradients(const struct attn_work *work, const struct attn_gradient_block *block,
                          const struct attn_rows *dq, float factor)
{
    struct pass pass;
    float factors[ATTN_MAX_STRIP];
    char *rows[ATTN_MAX_STRIP];
    attn_begin_pass(&pass, work);
    for (int r = 0; r < ATTN_MAX_STRIP; r++)
        factors[r] = work->rope.q.data ? 1.0f : factor;
    for (int64_t i = 0; i < pass.num_strips; i++) {
        const struct strip *strip = &pass.strips[i];
        const float *sums = block->dq + (block->dq_strip ? i * block->dq_strip : strip->first * work->dk);
        const struct attn_rows floats = {block->scratch->q_rows, work->dk * (ptrdiff_t)sizeof(float), ATTN_F32, NULL,
                                         0};
        const int turns = work->rope.q.data != NULL;
        row_pointers(turns ? &floats : dq, turns ? 0 : strip->first, strip->rows, rows);
        pass.vectors->write_rows(rows, turns ? ATTN_F32 : dq->dtype, sums, strip->width, strip->rows, work->dk,
                                 factors);
        if (turns)
            attn_key_gradients(work, &work->rope.q, strip->first, strip->rows, block->scratch->q_rows, work->dk, factor,
                               block->scratch, dq);
    }
}
