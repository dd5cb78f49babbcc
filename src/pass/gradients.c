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
 *           dV += P dO,  dK += dS Q     channels are the lanes (kernels/row_sums.h)
 *           dQ += K^T dS                the second product of the forward pass
 *
 * Five products, each once. Sums over queries go on in the order of the queries,
 * sums over keys in the order of the keys, one term at a time, and what is
 * hidden adds 0: no bit follows from where blocks, strips and runs begin. So a
 * caller may hand in any keys and any queries, as long as they come in order.
 * Matrix registers add 32 terms at a time: there strips begin at every 32nd query
 * of a sequence, or of a block row of a pattern, and keys are handed in from
 * a 32nd live one on, where runs begin, too.
 *
 * Weights are made in f32, and rounded where words are pairs of bf16.
 */
#include "pass/gradients.h"

#include "kernels/gradient_sums.h"
#include "pass/pass.h"

#include <math.h>

static const struct attn_tile_mask none = {.kind = MASK_NONE};

/** A strip of the backward pass. */
struct gradient_strip {
    struct strip *strip;
    struct attn_rows q, dout;                                         /**< its rows, as words of queries */
    int q_finite, dout_finite;                                        /**< -1: not looked at yet */
    int any_nan;                                                      /**< the lse of a row is NaN */
    float *dq, *relative_dq;                                          /**< [dk][width] NULL: not wanted */
    float base[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));  /**< lse in base 2; +inf: no live key */
    float delta[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN))); /**< of struct attn_gradient_block */
};

size_t attn_gradient_layout(struct attn_gradient_scratch *scratch, void *base, const struct attn_gradient_shape *shape)
{
    const int64_t tile = shape->key_block * shape->strip, keys = shape->keys, per_word = shape->per_word;
    const int64_t query_words = shape->query_words, key_words = (keys + per_word - 1) / per_word;
    size_t used = 0;
    *scratch = (struct attn_gradient_scratch){0};
#define TAKE(wanted, member, count)                                                                                    \
    if (wanted)                                                                                                        \
    scratch->member = attn_take(base, &used, count, sizeof *scratch->member)
    TAKE(1, dp, tile);
    TAKE(shape->drops, kept, tile);
    TAKE(shape->caps, capped, tile);
    TAKE(shape->calls_back, called, tile);
    TAKE(per_word > 1, by_query, shape->key_block * query_words * per_word);
    TAKE(1, dout, shape->v_words * shape->strip);
    TAKE(shape->copies_q, q_rows, query_words * shape->dk_sums);
    TAKE(shape->copies_dout, do_rows, query_words * shape->dv_sums);
    TAKE(shape->pairs > 0, table, 2 * shape->pairs);
    TAKE(shape->copies_k, k, keys * shape->k_words + ATTN_ALIGN); /* rows end in whole vectors */
    TAKE(shape->copies_v, v, keys * shape->v_words + ATTN_ALIGN);
    TAKE(per_word > 1, k_sums, key_words * shape->dq_channels);
    TAKE(1, dk, keys * shape->dk_sums);
    TAKE(1, dv, keys * shape->dv_sums);
    TAKE(shape->relative, relative_dk, keys * shape->dk);
    TAKE(shape->relative, key_ends, 2 * keys);
    TAKE(shape->relative, skewed, attn_skewed_size(shape->strip, shape->key_block));
    TAKE(shape->relative, seen, attn_skewed_size(shape->strip, shape->key_block));
#undef TAKE
    return used;
}

/* ---------------------------------------------------------------- the keys -- */

/** Rows as words of channels, where they lie or in dst (NULL: they are words already). */
static const char *channel_words_of(const struct attn_work *work, const struct attn_rows *rows, int n, int64_t channels,
                                    float *dst, ptrdiff_t *stride)
{
    *stride = rows->stride;
    if (!dst)
        return rows->data;
    const struct attn_int8_memory memory = {NULL, NULL, NULL, NULL};
    const struct attn_packed_keys packed = {(char *)dst, NULL, NULL};
    work->kernels->scores->pack_keys(rows, n, channels, &memory, &packed);
    *stride = attn_channel_words(work->kernels->scores, channels) * ATTN_WORD;
    return packed.words;
}

struct attn_gradient_keys attn_gradient_keys_of(const struct attn_work *work, int64_t first, int64_t end,
                                                const struct attn_gradient_scratch *scratch)
{
    struct attn_gradient_keys keys = {.first = first, .end = end, .finite = -1};
    const struct attn_rows k = attn_rows_from(&work->k, first), v = attn_rows_from(&work->v, first);
    const int n = (int)(end - first);
    if (work->rope.k.data) { /* floats */
        keys.k = attn_rotated_rows(work, &work->rope.k, first, &k, n, scratch->k).data;
        keys.k_stride = work->dk * (ptrdiff_t)sizeof(float);
    } else {
        keys.k = channel_words_of(work, &k, n, work->dk, scratch->k, &keys.k_stride);
    }
    keys.v = channel_words_of(work, &v, n, work->dv, scratch->v, &keys.v_stride);
    keys.sums = keys.k;
    keys.sums_stride = keys.k_stride;
    if (scratch->k_sums) {
        work->kernels->values->pack_values(scratch->k_sums, &k, n, work->dk);
        keys.sums = (const char *)scratch->k_sums;
        keys.sums_stride = attn_value_channels(work->kernels->values, work->dk) * ATTN_WORD;
    }
    return keys;
}

/* ------------------------------------------------------- what a strip brings -- */

/** Rows of a strip, which follow each other, as words of queries: where they lie, or in dst. */
static struct attn_rows query_words_of(const struct pass *pass, const struct attn_rows *rows, int64_t first, int n,
                                       int64_t channels, float *dst)
{
    const struct attn_rows some = attn_rows_from(rows, first);
    if (!dst || (some.dtype == ATTN_F32 && pass->values->keys_per_word == 1))
        return some;
    const struct attn_gradient_kernels *kernels = pass->work->kernels->gradients;
    kernels->pack_rows(dst, &some, n, channels);
    return (struct attn_rows){dst, attn_sum_channels(kernels, channels) * ATTN_WORD, ATTN_F32, NULL, 0};
}

/** Rows of Q as dK meets them: turned, and multiplied by the factor of the head. */
static struct attn_rows query_rows(const struct pass *pass, const struct attn_gradient_block *block,
                                   const struct strip *strip)
{
    const struct attn_work *work = pass->work;
    float *const dst = block->scratch->q_rows;
    struct attn_rows rows = query_words_of(pass, &work->q, strip->first, strip->rows, work->dk, dst);
    if (work->rope.q.data)
        rows = attn_rotated_rows(work, &work->rope.q, strip->first, &rows, strip->rows, dst);
    if (block->factor == 1.0f)
        return rows;
    for (int r = 0; r < strip->rows; r++)
        for (int c = 0; c < work->dk; c++)
            dst[r * (ptrdiff_t)work->dk + c] = ((const float *)(const void *)row_of(&rows, r))[c] * block->factor;
    return (struct attn_rows){dst, work->dk * (ptrdiff_t)sizeof(float), ATTN_F32, NULL, 0};
}

/** The log-sum-exp of a lane in base 2; +inf where it has no live key or no query, so that weights are 0. */
static float base_of(const struct attn_work *work, const struct strip *strip, int lane)
{
    if (lane >= strip->rows)
        return INFINITY;
    const float lse = work->lse[(strip->first + lane) * work->lse_stride];
    return lse == -INFINITY ? INFINITY : (float)((double)lse * ATTN_LOG2E_DOUBLE);
}

/** dO in lane order. */
static void pack_dout(const struct pass *pass, const struct attn_gradient_block *block, const struct strip *strip)
{
    const char *pointers[ATTN_MAX_STRIP];
    float factor[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN))); /* becomes 1 */
    for (int r = 0; r < strip->rows; r++)
        pointers[r] = row_of(&block->dout, strip->first + r);
    const struct attn_pack_queries x = {.rows = pointers,
                                        .dtype = block->dout.dtype,
                                        .n = strip->rows,
                                        .fill = strip->width,
                                        .width = strip->width,
                                        .dk = pass->work->dv,
                                        .scale = 1.0f,
                                        .q = block->scratch->dout,
                                        .factor = factor};
    pass->scores->pack_queries(&x);
}

/** What a strip needs before its first unit. */
static void start_strip(const struct pass *pass, const struct attn_gradient_block *block, struct gradient_strip *g)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = g->strip;
    attn_pack_strip(pass, strip, work->scale);
    pack_dout(pass, block, strip);
    g->dout = query_words_of(pass, &block->dout, strip->first, strip->rows, work->dv, block->scratch->do_rows);
    if (block->scratch->dk || block->relative.k_rows)
        g->q = query_rows(pass, block, strip);
    g->q_finite = g->dout_finite = -1;
    g->any_nan = 0;
    for (int r = 0; r < strip->width; r++) {
        g->base[r] = base_of(work, strip, r);
        g->any_nan |= isnan(g->base[r]) != 0;
        g->delta[r] = r < strip->rows ? block->delta[strip->first + r] : 0.0f;
    }
    const ptrdiff_t at = attn_strip_sums(work, block, strip->first, strip - pass->strips);
    if (block->dq)
        g->dq = block->dq + at;
    if (block->relative.dq)
        g->relative_dq = block->relative.dq + at;
}

/* ------------------------------------------------------------------- units -- */

/** Whether n rows of words are all finite; known: -1 until they have been looked at. */
static int are_finite(const struct pass *pass, const char *rows, ptrdiff_t stride, int n, int64_t channels, int *known)
{
    const int per_word = pass->values->keys_per_word;
    if (*known < 0)
        *known = pass->values->finite(rows, stride, (n + per_word - 1) / per_word, channels);
    return *known;
}

/** Adds a tile in words of queries, times rows of queries, to rows of keys. */
static void add_rows(const struct pass *pass, const struct unit *unit, const void *p, const struct attn_rows *rows,
                     int64_t channels, int *finite, float *sum)
{
    const struct strip *strip = unit->strip;
    const struct attn_gradient_kernels *kernels = pass->work->kernels->gradients;
    const struct attn_row_sums sums = {.p = p,
                                       .pitch = attn_query_words(kernels, strip->width) * ATTN_WORD,
                                       .keys = unit->n,
                                       .rows = strip->rows,
                                       .diagonal =
                                           unit->mask.kind == MASK_DIAGONAL ? unit->mask.diagonal : ATTN_NO_DIAGONAL,
                                       .x = rows->data,
                                       .x_stride = rows->stride,
                                       .channels = channels,
                                       .sum = sum};
    if (unit->mask.kind != MASK_NONE && !are_finite(pass, rows->data, rows->stride, strip->rows, channels, finite))
        kernels->add_rows_seen(&unit->mask, strip->nv, &sums);
    else
        kernels->add_rows(&sums);
}

/** Adds a tile's gradients of scores, in words of keys, times rows of K to those of Q. */
static void add_keys(const struct pass *pass, struct attn_gradient_keys *keys, const struct unit *unit, int64_t at,
                     const float *ds, float *dq)
{
    const struct attn_work *work = pass->work;
    const int lanes = pass->vectors->lanes, n = unit->n, nv = unit->strip->nv, per_word = pass->values->keys_per_word;
    const int together = pass->values->key_step ? pass->values->key_step : per_word;
    int ends[ATTN_MAX_VECTORS], words[ATTN_MAX_VECTORS];
    for (int v = 0; v < nv; v++) {
        ends[v] = unit->mask.kind == MASK_DIAGONAL ? attn_visible_before(unit->mask.diagonal, (v + 1) * lanes, n) : n;
        words[v] = (ends[v] + per_word - 1) / per_word;
    }
    struct attn_value_operands operands = {.p = ds,
                                           .v = keys->sums + at / per_word * keys->sums_stride,
                                           .v_stride = keys->sums_stride,
                                           .dv = work->dk,
                                           .ends = words,
                                           .o = dq,
                                           .mode = ACCUMULATE_ADD};
    /* What is multiplied with the last keys of a run may hold some that the strip does not see. */
    const int hides = unit->mask.kind != MASK_NONE || n % together;
    if (hides &&
        !are_finite(pass, keys->sums, keys->sums_stride, (int)(keys->end - keys->first), work->dk, &keys->finite)) {
        operands.ends = ends;
        pass->values->values_seen(nv, &unit->mask, &operands, n);
    } else {
        pass->values->values(nv, &operands);
    }
}

/** Scores behind softcap of a unit, without its mask. */
static void capped_scores(const struct pass *pass, const struct attn_gradient_keys *keys, const struct unit *unit,
                          int64_t at, float *dst)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = unit->strip;
    float max[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const struct attn_score_operands operands = {.q = strip->q,
                                                 .k = keys->k + at * keys->k_stride,
                                                 .k_stride = keys->k_stride,
                                                 .words = attn_channel_words(pass->scores, work->dk),
                                                 .rows = strip->rows,
                                                 .mask = &none,
                                                 .factor = strip->factor,
                                                 .s = dst};
    pass->scores->scores(strip->nv, &operands, unit->n, max);
    if (has_relative(work))
        attn_add_relative(pass, strip, keys->first + at, operands.k, operands.k_stride, unit->n, dst);
    pass->vectors->finish_scores(strip->nv, &none, unit->n, strip->factor, work->softcap * ATTN_LOG2E, dst, max);
}

/** Weights of a unit from its scores, in their place: those of the softmax, less what dropout clears. */
static void unit_weights(const struct pass *pass, const struct key_block *keys, const struct unit *unit,
                         const struct gradient_strip *g, float *softmax)
{
    float l[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN))) = {0}; /* known already */
    const struct attn_value_kernels *plain = pass->work->kernels->plain;
    const struct strip *strip = unit->strip;
    const int n = unit->n;
    const int ends[ATTN_MAX_VECTORS] = {n, n, n, n};
    float *const s = pass->scratch.s;
    plain->weights(strip->nv, g->base, ends, n, unit->factor, s, l);
    if (g->any_nan && unit->mask.kind != MASK_NONE) { /* -inf less NaN is no weight of 0 */
        float one[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
        for (int r = 0; r < strip->width; r++)
            one[r] = 1.0f;
        pass->vectors->normalise(strip->nv, &unit->mask, n, one, s);
    }
    if (!softmax)
        return;
    memcpy(softmax, s, (size_t)n * (size_t)strip->width * sizeof *s);
    struct attn_drop drop = pass->work->drop;
    drop.query_index += strip->first;
    drop.first += keys->first + unit->run.lo;
    plain->drop(&drop, strip->nv, n, s);
}

/**
 * Hands a unit's gradients of what the callback has given, scratch->dp, to its partner, and then takes them through the
 * softcap. What the unit's mask hides, by now also what the callback has hidden, becomes 0.
 */
static void call_back(const struct pass *pass, const struct attn_gradient_block *block, const struct unit *unit,
                      int64_t first, int caps, const float *one)
{
    const struct attn_work *work = pass->work;
    const struct attn_gradient_scratch *scratch = block->scratch;
    const struct strip *strip = unit->strip;
    const attn_score_gradient_tile tile = {.batch = work->drop.batch,
                                           .head = work->drop.head,
                                           .first_query = work->drop.query_index + strip->first,
                                           .num_queries = strip->rows,
                                           .first_key = work->drop.first + first,
                                           .num_keys = unit->n,
                                           .key_stride = strip->width,
                                           .scores = scratch->called,
                                           .gradients = scratch->dp};
    block->callback(&tile, block->callback_user);
    attn_enter(work->kernels);
    const float cap = work->softcap * ATTN_LOG2E;
    for (ptrdiff_t i = 0; caps && i < (ptrdiff_t)unit->n * strip->width; i++) {
        const float t = scratch->capped[i] / cap;
        scratch->dp[i] *= 1.0f - t * t;
    }
    if (unit->mask.kind != MASK_NONE)
        pass->vectors->normalise(strip->nv, &unit->mask, unit->n, one, scratch->dp);
}

/** Gradients of a unit's scores in scratch->dp, from its weights. */
static void unit_gradients(const struct pass *pass, const struct attn_gradient_block *block,
                           const struct attn_gradient_keys *keys, const struct unit *unit,
                           const struct gradient_strip *g, int64_t at)
{
    const struct attn_work *work = pass->work;
    const struct attn_gradient_scratch *scratch = block->scratch;
    const struct strip *strip = unit->strip;
    float max[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    float one[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    for (int r = 0; r < strip->width; r++)
        one[r] = 1.0f;
    const struct attn_score_operands operands = {.q = scratch->dout,
                                                 .k = keys->v + at * keys->v_stride,
                                                 .k_stride = keys->v_stride,
                                                 .words = attn_channel_words(pass->scores, work->dv),
                                                 .rows = strip->rows,
                                                 .mask = &none,
                                                 .factor = one,
                                                 .s = scratch->dp};
    pass->scores->scores(strip->nv, &operands, unit->n, max);
    const int caps = work->softcap != 0.0f && !block->biases; /* biases are added behind it */
    if (caps)
        capped_scores(pass, keys, unit, at, scratch->capped);
    const struct attn_score_gradients gradients = {.mask = &unit->mask,
                                                   .keys = unit->n,
                                                   .p = work->drop.wanted ? scratch->kept : pass->scratch.s,
                                                   .kept = work->drop.wanted ? pass->scratch.s : NULL,
                                                   .keep_scale = work->drop.keep_scale,
                                                   .capped = caps && !block->callback ? scratch->capped : NULL,
                                                   .cap = work->softcap * ATTN_LOG2E,
                                                   .delta = g->delta,
                                                   .dp = scratch->dp};
    pass->vectors->score_gradients(strip->nv, &gradients);
    if (block->callback)
        call_back(pass, block, unit, keys->first + at, caps, one);
}

/** A tile as words of queries, and of keys (by_key NULL: not wanted): itself where words are floats. */
static const void *words_of_queries(const struct pass *pass, const struct attn_gradient_block *block,
                                    const struct unit *unit, const float *tile, float *by_key)
{
    const struct attn_gradient_kernels *kernels = pass->work->kernels->gradients;
    const struct strip *strip = unit->strip;
    uint16_t *const words = block->scratch->by_query;
    if (!kernels->round_tile)
        return tile;
    kernels->round_tile(strip->nv, strip->rows, unit->n, tile, words, by_key);
    return words;
}

/** What terms by distance have of a unit. */
static void add_relative(const struct pass *pass, const struct attn_gradient_block *block,
                         struct attn_gradient_keys *keys, const struct unit *unit, struct gradient_strip *g, int64_t at)
{
    const struct attn_work *work = pass->work;
    const struct attn_relative_sums *sums = &block->relative;
    struct attn_relative_unit x = {.ds = block->scratch->dp,
                                   .first = keys->first + at,
                                   .at = at,
                                   .dq = g->relative_dq,
                                   .k = keys->k + at * keys->k_stride,
                                   .k_stride = keys->k_stride,
                                   .scratch = block->scratch};
    if (sums->k_rows) {
        x.q = g->q;
        x.q_finite = are_finite(pass, g->q.data, g->q.stride, g->strip->rows, work->dk, &g->q_finite);
    }
    if (sums->q_rows)
        x.k_finite = are_finite(pass, keys->k, keys->k_stride, (int)(keys->end - keys->first), work->dk, &keys->finite);
    attn_add_relative_gradients(pass, unit, &x, sums);
}

/** Everything that a strip and a run of keys give. */
static void run_unit(const struct pass *pass, const struct attn_gradient_block *block, struct attn_gradient_keys *keys,
                     const struct key_block *tile_keys, struct gradient_strip *g, const struct run *run)
{
    const struct attn_work *work = pass->work;
    const struct attn_gradient_scratch *scratch = block->scratch;
    struct unit unit = {.strip = g->strip, .run = *run, .n = run->hi - run->lo};
    const int64_t at = tile_keys->first + run->lo - keys->first; /* among the keys of the task */
    attn_unit_scores(pass, tile_keys, &unit);
    if (unit.mask.kind == MASK_DEAD)
        return;
    unit_weights(pass, tile_keys, &unit, g, work->drop.wanted ? scratch->kept : NULL);
    const int relative = g->relative_dq || block->relative.keys || attn_sums_rows(block);
    if (scratch->dk || g->dq || block->biases || relative)
        unit_gradients(pass, block, keys, &unit, g, at);
    if (block->biases) {
        attn_add_bias_gradients(pass, &unit, tile_keys->first + run->lo, scratch->dp, block->biases);
        return;
    }
    if (relative)
        add_relative(pass, block, keys, &unit, g, at);
    if (attn_sums_rows(block))
        return;
    if (scratch->dv) {
        const void *p = words_of_queries(pass, block, &unit, pass->scratch.s, NULL);
        add_rows(pass, &unit, p, &g->dout, work->dv, &g->dout_finite,
                 scratch->dv + at * attn_sum_channels(work->kernels->gradients, work->dv));
    }
    if (!scratch->dk && !g->dq)
        return;
    const void *ds = words_of_queries(pass, block, &unit, scratch->dp, scratch->dp);
    if (scratch->dk)
        add_rows(pass, &unit, ds, &g->q, work->dk, &g->q_finite,
                 scratch->dk + at * attn_sum_channels(work->kernels->gradients, work->dk));
    if (g->dq)
        add_keys(pass, keys, &unit, at, scratch->dp, g->dq);
}

/** The keys from first on, size of them, of those of the task. */
static void run_keys(const struct pass *pass, const struct attn_gradient_block *block, struct attn_gradient_keys *keys,
                     struct gradient_strip *g, int *started, int64_t first, int size)
{
    const struct span span = attn_span_at(pass->work, first, size);
    const struct attn_scratch *scratch = &pass->scratch;
    struct run run = {.hi = 0};
    while (attn_next_run(pass, g->strip, &span, run.hi, &run)) {
        if (!*started)
            start_strip(pass, block, g);
        *started = 1;
        const struct key_block tile_keys = {.k = keys->k + (first - keys->first) * keys->k_stride,
                                            .k_stride = keys->k_stride,
                                            .first = first,
                                            .size = size,
                                            .lo = run.lo,
                                            .hi = run.hi,
                                            .k_scale = scratch->k_scale,
                                            .k_start = scratch->k_start};
        run_unit(pass, block, keys, &tile_keys, g, &run);
        if (!pass->work->view.pattern_size)
            return;
    }
}

void attn_gradient_pass(const struct attn_work *work, const struct attn_gradient_block *block,
                        struct attn_gradient_keys *keys)
{
    struct pass pass;
    attn_begin_pass(&pass, work);
    pass.called = block->scratch->called;
    const int64_t size = pass.scratch.key_block, end = keys->end < pass.end ? keys->end : pass.end;
    attn_enter(work->kernels);
    for (int64_t i = 0; i < pass.num_strips; i++) {
        struct gradient_strip g = {.strip = &pass.strips[i]};
        int started = 0;
        for (int64_t first = keys->first; first < end; first += size)
            run_keys(&pass, block, keys, &g, &started, first, (int)(end - first < size ? end - first : size));
    }
    attn_leave(work->kernels);
}
