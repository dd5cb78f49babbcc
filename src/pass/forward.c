/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact attention of one block of queries, by an online softmax over blocks of
 * keys (Milakov & Gimelshein 2018, "Online normalizer calculation for
 * softmax", algorithm 3; Dao et al. 2022, "FlashAttention", algorithm 1).
 *
 *   Q^T of every strip is made once.
 *   for each block of keys, at fixed positions
 *       for each strip of queries, and each run of keys that it sees: a unit
 *           scores:   S = K Q^T
 *           weights:  m' = max(m, max S);  P = 2^(S - m');  l = l 2^(m - m') + sum P
 *           values:   O = O 2^(m - m') + V^T P
 *   out = (O / l)^T;  lse = m ln 2 + ln l
 *
 * Scores are in base 2: scale * log2(e) goes into Q. All of m, l, S, P, O have
 * a query per lane, so no step sums across lanes, and a lane's bits depend on
 * its own query alone: rescaling by 2^0 and adding a masked key's 0 * V change
 * nothing, and the blocks' borders lie at fixed distances from key 0.
 *
 * The three steps of a unit are functions of their own, and what passes from
 * one to the next is in struct unit: kernels that overlap the products of one
 * unit with the exponentials of another take them in another order.
 *
 * Budget on AVX-512, d = 64: S tile 24 KiB and Q^T strip 12 KiB in L1; K and V
 * blocks, O and Q^T of the whole block of queries in L2.
 */
#include "kernels/prefetch.h"
#include "pass/pass.h"

#include <assert.h>
#include <math.h>

/** A strip in the ith place of the scratch memory, for rows queries. */
static struct strip strip_in(const struct pass *pass, int64_t i, int rows)
{
    const struct attn_work *work = pass->work;
    const struct attn_scratch *scratch = &pass->scratch;
    const int64_t at = i * work->kernels->strip;
    const int lanes = pass->vectors->lanes;
    struct strip strip = {.q = scratch->q + at * attn_channel_words(pass->scores, work->dk),
                          .o = scratch->o + at * attn_value_channels(pass->values, work->dv),
                          .m = scratch->m + at,
                          .l = scratch->l + at,
                          .factor = scratch->factor ? scratch->factor + at : NULL,
                          .validity = scratch->validity ? scratch->validity + at : NULL,
                          .shift = scratch->shift ? scratch->shift + at : NULL,
                          .reach = scratch->reach ? scratch->reach + at : NULL,
                          .rows = rows,
                          .nv = (rows + lanes - 1) / lanes};
    strip.width = strip.nv * lanes;
    strip.whole = (struct sums){strip.o, strip.m, strip.l};
    const int64_t next = scratch->next_strips == 1 ? 0 : at;
    if (scratch->next_strips > 0)
        strip.next = (struct sums){scratch->next_o + next * attn_value_channels(pass->values, work->dv),
                                   scratch->next_m + next, scratch->next_l + next};
    strip.few = pass->values->values_of_few && attn_are_few(pass, rows);
    return strip;
}

/** Smallest and largest label of a strip's rows. */
static void find_labels(const struct attn_work *work, struct strip *strip)
{
    const int32_t *labels = work->view.q_labels;
    for (int r = 0; labels && r < strip->rows; r++) {
        const int32_t label = labels[token_in(&work->view, strip, r)];
        strip->first_label = r == 0 || label < strip->first_label ? label : strip->first_label;
        strip->last_label = r == 0 || label > strip->last_label ? label : strip->last_label;
    }
}

/** Strip i of the block. */
static struct strip strip_at(const struct pass *pass, int64_t i)
{
    const struct attn_work *work = pass->work;
    const int64_t full = pass->work->kernels->strip, lanes = pass->vectors->lanes;
    const int64_t height = attn_strip_rows(full, lanes, work->group);
    const int64_t per_group = attn_group_strips(full, lanes, work->group);
    const int64_t within = work->group ? i % per_group * height : 0;
    const int64_t first = work->group ? i / per_group * work->group + within : i * full;
    int64_t left = work->num_queries - first;
    if (work->group && work->group - within < left)
        left = work->group - within;
    struct strip strip = strip_in(pass, i, (int)(left < height ? left : height));
    strip.first = first;
    find_labels(work, &strip);
    return strip;
}

/** Gives the global queries a strip, behind the others, if there are some and one holds them. */
static void gather_global_queries(struct pass *pass)
{
    const struct attn_work *work = pass->work;
    const int64_t count = work->gathers ? attn_global_queries(work, pass->gathered) : 0;
    pass->num_gathered = count <= pass->work->kernels->strip && count < work->num_queries ? (int)count : 0;
    if (pass->num_gathered == 0)
        return;
    struct strip *strip = &pass->strips[pass->num_strips];
    *strip = strip_in(pass, pass->num_strips++, pass->num_gathered);
    strip->gathered = pass->gathered;
    find_labels(work, strip);
}

/** Whether nothing but the place of keys hides them, and nothing is done to a score or a weight. */
static int is_plain(const struct attn_work *work)
{
    return !work->mask.data && !work->bias.data && !work->distance_bias.slopes && !work->distance_bias.table &&
           work->softcap == 0.0f && !work->callback && !work->weight_callback && !has_relative(work) &&
           !work->drop.wanted;
}

void attn_begin_pass(struct pass *pass, const struct attn_work *work)
{
    const struct attn_kernels *kernels = work->kernels;
    assert((uintptr_t)work->scratch % ATTN_ALIGN == 0);
    assert(work->num_queries > 0);
    assert(kernels->strip <= ATTN_MAX_STRIP);
    pass->work = work;
    pass->vectors = kernels->vectors;
    pass->scores = kernels->scores;
    pass->values = kernels->values;
    pass->called = NULL;
    pass->looks = NULL;
    pass->run_step = kernels->values->key_step ? kernels->values->key_step : ATTN_RUN_STEP;
    pass->num_strips = attn_num_strips(kernels->strip, kernels->vectors->lanes, work->group, work->num_queries);
    assert(pass->num_strips <= ATTN_MAX_STRIPS);
    assert(pass->num_strips + work->gathers <= work->shape->strips);
    attn_scratch_layout(&pass->scratch, work->scratch, work->shape);
    for (int64_t i = 0; i < pass->num_strips; i++)
        pass->strips[i] = strip_at(pass, i);
    gather_global_queries(pass);
    pass->end = attn_visible_end(work);
    pass->few = pass->num_strips == 1 && pass->strips[0].few;
    pass->side_by_side = is_plain(work) && attn_is_side_by_side(pass);
    pass->blocks = pass->side_by_side ? attn_side_blocks(pass) : pass->scratch.blocks;
}

/** Asks for a strip's rows of q or, with write, of out. */
static void prefetch_strip(const struct attn_work *work, const int write, const struct strip *strip)
{
    const struct attn_rows *rows = write ? &work->out : &work->q;
    const ptrdiff_t bytes = (write ? work->dv : work->dk) * attn_element_size(rows->dtype);
    char *pointers[ATTN_MAX_STRIP];
    strip_rows(&work->view, rows, write ? work->head_step.out : work->head_step.q, strip, 0, strip->rows, pointers);
    for (int r = 0; r < strip->rows; r++)
        prefetch_row(pointers[r], bytes, write);
}

/** Asks at once for what a strip has not asked for. */
static void ask_at_once(const struct attn_work *work, struct strip *strip)
{
    if (strip->asks & ASKS_QUERIES)
        prefetch_strip(work, 0, strip + 1);
    if (strip->asks & ASKS_OUT)
        prefetch_strip(work, 1, strip);
    strip->asks = 0;
}

/**
 * Whether a strip can ask beside its products, a few rows with each register tile. Many at once wait for one another,
 * and what else is loaded then waits for them (docs/performance.md).
 */
static int asks_beside(const struct pass *pass, const struct strip *strip)
{
    return pass->work->view.heads == 1 && !strip->gathered && !strip->few && !pass->side_by_side;
}

/** The sink of a lane; -inf: none. */
static float sink_of(const struct attn_work *work, const struct strip *strip, int lane)
{
    if (!work->sinks || lane >= strip->rows)
        return -INFINITY;
    return work->sinks[head_of(&work->view, query_of(strip, lane))];
}

/** m and l of a strip before its first key; with a sink, as if it were a key whose value is 0. */
static void start_sums(const struct pass *pass, struct strip *strip)
{
    const struct attn_work *work = pass->work;
    const float headroom = pass->values->headroom;
    int sinks = 0;
    for (int r = 0; r < strip->width; r++) {
        const float sink = sink_of(work, strip, r);
        const float m = attn_in_base2(sink) - (strip->shift ? strip->shift[r] : 0.0f);
        strip->m[r] = headroom == 0.0f ? m : floorf(m) + headroom; /* on the grid */
        strip->l[r] = sink == -INFINITY ? -INFINITY : headroom == 0.0f ? 0.0f : m - floorf(m);
        sinks |= sink != -INFINITY;
    }
    if (sinks) {
        pass->vectors->exp2(strip->l, strip->l, strip->width);
        pass->vectors->multiply(strip->l, strip->width, exp2f(-headroom));
        memset(strip->o, 0, (size_t)(strip->width * attn_value_channels(pass->values, work->dv)) * sizeof *strip->o);
    } else {
        memset(strip->l, 0, (size_t)strip->width * sizeof *strip->l);
    }
    strip->started = sinks;
}

/** Asks for the first keys that a strip sees, as far as a step goes: others ask for later ones in time. */
static void prefetch_keys(const struct pass *pass, const struct strip *strip, int64_t first)
{
    const struct attn_work *work = pass->work;
    int64_t end = work->num_keys;
    if (work->view.pattern_size)
        attn_next_listed(work, strip, 0, &first, &end);
    end = first + pass->scratch.key_block < end ? first + pass->scratch.key_block : end;
    if (first < end) {
        const struct attn_piece piece = attn_keys_at(work, first, (int)(end - first));
        prefetch_rows(&piece.rows, 0, piece.n, work->dk, 0);
    }
}

/** A strip's queries, made ready. first is the first block of keys that one of all strips sees. */
static void start_strip(const struct pass *pass, struct strip *strip, int64_t first)
{
    const struct attn_work *work = pass->work;
    if (work->far && strip == pass->strips)
        prefetch_strip(work, 0, strip);
    if (work->far && leads(work, strip) && !strip->few) /* whose kernels ask for themselves */
        prefetch_keys(pass, strip, first);
    attn_pack_strip(pass, strip, work->scale);
    if (strip->reach)
        pass->scores->reach(strip->nv, attn_channel_words(pass->scores, work->dk), strip->q, strip->factor,
                            strip->reach);
    start_sums(pass, strip);
}

/** Second step of a unit: its weights, in words, in the place of its scores. Leaves alpha for ACCUMULATE_RESCALE. */
static enum attn_accumulate unit_weights(const struct pass *pass, const struct key_block *keys, const struct unit *unit,
                                         int *ends, float *alpha)
{
    struct strip *strip = unit->strip;
    const int lanes = pass->vectors->lanes, n = unit->n;
    const int grew =
        pass->vectors->raise_maximum(strip->nv, pass->values->headroom, unit->max, strip->m, strip->l, alpha);
    for (int v = 0; v < strip->nv; v++) /* keys that some lane of a vector sees */
        ends[v] = unit->mask.kind == MASK_DIAGONAL ? attn_visible_before(unit->mask.diagonal, (v + 1) * lanes, n) : n;
    if (strip->few && strip->rows <= ATTN_FEW_WEIGHTS && pass->values->weights_of_few)
        pass->values->weights_of_few(strip->rows, strip->m, ends[0], unit->factor, pass->scratch.s, strip->l);
    else
        pass->values->weights(strip->nv, strip->m, ends, n, unit->factor, pass->scratch.s, strip->l);
    if (pass->work->drop.wanted && !pass->work->weight_callback) {
        struct attn_drop drop = pass->work->drop;
        drop.query_index += strip->first;
        drop.first += keys->first + unit->run.lo;
        pass->values->drop(&drop, strip->nv, n, pass->scratch.s);
    }
    return !strip->started ? ACCUMULATE_FIRST : grew ? ACCUMULATE_RESCALE : ACCUMULATE_ADD;
}

/** Whether no value of a block is NaN or Inf: looked at once. */
static int values_are_finite(const struct pass *pass, struct key_block *keys)
{
    const int per_word = pass->values->keys_per_word;
    if (keys->v_finite < 0) {
        if (!keys->v)
            attn_pack_values(pass, keys, 0);
        keys->v_finite = pass->values->finite(keys->v + keys->lo / per_word * keys->v_stride, keys->v_stride,
                                              (keys->hi - keys->lo + per_word - 1) / per_word, pass->work->dv);
    }
    return keys->v_finite;
}

/** The values of few queries. Where some would meet what they must not see, O goes to lane order and back. */
static void few_values(const struct pass *pass, struct key_block *keys, const struct unit *unit, const int *ends,
                       enum attn_accumulate mode, const float *alpha)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = unit->strip;
    const int rows = strip->rows, width = strip->width;
    const int stored = attn_scales_weights(work);
    if (unit->mask.kind == MASK_NONE ||
        (stored ? attn_stored_values_are_finite(pass, keys, unit) : values_are_finite(pass, keys))) {
        attn_few_values(pass, keys, unit, ends[0], mode, alpha);
        return;
    }
    if (stored) {
        attn_few_values_seen(pass, keys, unit, ends[0], mode, alpha);
        return;
    }
    float *const lanes = strip->o + (ptrdiff_t)rows * work->dv; /* o has room for a whole strip */
    for (int c = 0; c < work->dv; c++)
        for (int r = 0; r < width; r++)
            lanes[c * width + r] = mode == ACCUMULATE_FIRST || r >= rows ? 0.0f : strip->o[r * work->dv + c];
    const struct attn_value_operands operands = {.p = pass->scratch.s,
                                                 .v = keys->v +
                                                      unit->run.lo / pass->values->keys_per_word * keys->v_stride,
                                                 .v_stride = keys->v_stride,
                                                 .dv = work->dv,
                                                 .ends = ends,
                                                 .o = lanes,
                                                 .mode = mode,
                                                 .alpha = alpha};
    pass->values->values_seen(strip->nv, &unit->mask, &operands, unit->n);
    for (int c = 0; c < work->dv; c++)
        for (int r = 0; r < rows; r++)
            strip->o[r * work->dv + c] = lanes[c * width + r];
}

void attn_unit_values(const struct pass *pass, struct key_block *keys, const struct unit *unit, int *ends,
                      enum attn_accumulate mode, const float *alpha)
{
    struct strip *strip = unit->strip;
    const int per_word = pass->values->keys_per_word, n = unit->n;
    const int together = pass->values->key_step ? pass->values->key_step : per_word; /* keys that are multiplied so */
    strip->started = 1;
    if (strip->few) {
        few_values(pass, keys, unit, ends, mode, alpha);
        return;
    }
    const struct attn_value_operands operands = {.p = pass->scratch.s,
                                                 .v = keys->v + unit->run.lo / per_word * keys->v_stride,
                                                 .v_stride = keys->v_stride,
                                                 .dv = pass->work->dv,
                                                 .ends = ends,
                                                 .o = strip->o,
                                                 .mode = mode,
                                                 .alpha = alpha};
    /* Without a mask the strip sees all keys of the run; with its last ones it may multiply some that it does not. */
    const int hides = unit->mask.kind != MASK_NONE || (n % together && unit->run.hi < keys->hi);
    if (hides && !values_are_finite(pass, keys)) {
        pass->values->values_seen(strip->nv, &unit->mask, &operands, n);
        return;
    }
    for (int v = 0; v < strip->nv; v++)
        ends[v] = (ends[v] + per_word - 1) / per_word;
    pass->values->values(strip->nv, &operands);
}

/** One step of the online softmax: adds the keys of a run to a strip. */
static void run_unit(const struct pass *pass, struct key_block *keys, struct strip *strip, const struct run *run)
{
    float alpha[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    int ends[ATTN_MAX_VECTORS];
    struct unit unit;
    unit.strip = strip;
    unit.run = *run;
    unit.n = run->hi - run->lo;
    attn_unit_scores(pass, keys, &unit);
    if (unit.mask.kind == MASK_DEAD)
        return;
    const enum attn_accumulate mode = unit_weights(pass, keys, &unit, ends, alpha);
    if (pass->work->weight_callback) /* of m and l alone: weights are final in attn_strip_weights() */
        strip->started = 1;
    else
        attn_unit_values(pass, keys, &unit, ends, mode, alpha);
}

/**
 * Blocks of keys that are there at once. Each strip goes over all of them before the next one does, so that its own
 * rows stay near; where a block is all there is, it serves all strips from there.
 */
struct stretch {
    int num_blocks;
    int starts;       /**< it is the first one of all, for which strips are made ready one by one */
    int64_t first;    /**< if so the first block of keys that one of them sees */
    int begins, ends; /**< it is the first, the last one of a split of the keys */
    int resumes;      /**< it is the first one behind keys whose sums are there */
    char *partial;    /**< where that is left; NULL: it is joined to the ones before */
    struct key_block keys[ATTN_MAX_STRETCH];
    struct span spans[ATTN_MAX_STRETCH];
    struct run runs[ATTN_MAX_STRETCH][ATTN_MAX_STRIPS + 1]; /**< the first of each strip; lo == hi: none */
};

/** Adds a block of keys to a stretch, made ready, if a strip sees some of it. */
static void add_block(const struct pass *pass, struct stretch *stretch, const struct span *span)
{
    const struct attn_work *work = pass->work;
    struct run *const runs = stretch->runs[stretch->num_blocks];
    int lo = span->size, hi = 0;
    for (int64_t i = 0; i < pass->num_strips; i++) {
        if (!attn_next_run(pass, &pass->strips[i], span, 0, &runs[i])) {
            runs[i].lo = runs[i].hi = span->size;
            continue;
        }
        /* A pattern may have more runs behind this one. */
        const int end = work->view.pattern_size ? span->size : runs[i].hi;
        lo = runs[i].lo < lo ? runs[i].lo : lo;
        hi = end > hi ? end : hi;
    }
    if (lo >= hi)
        return;
    stretch->spans[stretch->num_blocks] = *span;
    stretch->keys[stretch->num_blocks] =
        attn_key_block_at(pass, span, lo, hi, stretch->num_blocks, !work->weight_callback);
    stretch->num_blocks++;
}

/** Blocks from number first on, one behind the other, of which strip i sees every key. */
static int whole_blocks(const struct pass *pass, const struct stretch *stretch, int first, int64_t i)
{
    const int size = pass->scratch.key_block;
    int n = 0;
    while (first + n < stretch->num_blocks) {
        const struct run *run = &stretch->runs[first + n][i];
        const struct key_block *next = &stretch->keys[first + n], *begin = &stretch->keys[first];
        if (run->kind != RUN_WHOLE || run->lo > 0 || run->hi < size ||
            next->first != begin->first + (int64_t)n * size ||
            next->k != begin->k + (int64_t)n * size * begin->k_stride)
            break;
        n++;
    }
    return n;
}

/** Walks over blocks that a strip sees whole, of which n follow number first; returns how many it went over. */
static int walk_over(const struct pass *pass, struct stretch *stretch, int first, int n, struct strip *strip)
{
    const struct attn_work *work = pass->work;
    struct key_block *const keys = &stretch->keys[first];
    float longest[ATTN_MAX_STRETCH];
    const int64_t words = attn_channel_words(pass->scores, work->dk);
    for (int i = 0; i < n; i++) {
        if (keys[i].longest < 0.0f)
            keys[i].longest = pass->scores->longest(keys[i].k, keys[i].k_stride, words, keys[i].k_scale, keys[i].size);
        longest[i] = keys[i].longest;
    }
    const struct attn_walk walk = {.q = strip->q,
                                   .k = keys->k,
                                   .k_stride = keys->k_stride,
                                   .words = words,
                                   .factor = strip->factor,
                                   .k_scale = keys->k_scale,
                                   .v = keys->v,
                                   .v_stride = keys->v_stride,
                                   .dv = work->dv,
                                   .o = strip->o,
                                   .reach = strip->reach,
                                   .longest = longest,
                                   .m = strip->m,
                                   .l = strip->l,
                                   .s = pass->scratch.s,
                                   .p = pass->scratch.p};
    return (int)pass->scores->walk(strip->nv, &walk, n);
}

/** All units of a block for strip i. */
static void run_units(const struct pass *pass, struct stretch *stretch, int block, int64_t i, struct strip *strip)
{
    struct run *const run = &stretch->runs[block][i];
    int more = run->lo < run->hi;
    while (more) {
        run_unit(pass, &stretch->keys[block], strip, run);
        more = pass->work->view.pattern_size && attn_next_run(pass, strip, &stretch->spans[block], run->hi, run);
    }
}

/** Whether strip i sees every key that is wanted of a stretch's blocks. */
static int sees_whole(const struct stretch *stretch, int64_t i)
{
    for (int b = 0; b < stretch->num_blocks; b++) {
        const struct run *run = &stretch->runs[b][i];
        const struct key_block *keys = &stretch->keys[b];
        if (run->kind != RUN_WHOLE || run->lo != keys->lo || run->hi != keys->hi)
            return 0;
    }
    return 1;
}

/** All units of a stretch for strip i. */
static void run_blocks(const struct pass *pass, struct stretch *stretch, int64_t i, struct strip *strip)
{
    const int walks = pass->work->shape->walks && is_plain(pass->work);
    for (int b = 0; b < stretch->num_blocks; b++) {
        const int whole = walks && strip->started ? whole_blocks(pass, stretch, b, i) : 0;
        if (whole > 0)
            b += walk_over(pass, stretch, b, whole, strip);
        if (b < stretch->num_blocks)
            run_units(pass, stretch, b, i, strip);
    }
}

/** All units of a stretch. */
static void run_stretch(struct pass *pass, struct stretch *stretch, int last)
{
    const struct attn_work *work = pass->work;
    for (int64_t i = 0; i < pass->num_strips; i++) {
        struct strip *strip = &pass->strips[i];
        const int more = i + 1 < pass->num_strips && !strip[1].gathered;
        if (stretch->starts)
            start_strip(pass, strip, stretch->first);
        if (stretch->resumes)
            attn_take_sums(pass, i);
        if (stretch->begins)
            attn_begin_split(pass, strip);
        if (work->far)
            strip->asks = (stretch->starts && more ? ASKS_QUERIES : 0) | (last && !leaves_sums(work) ? ASKS_OUT : 0);
        if (!asks_beside(pass, strip))
            ask_at_once(work, strip);
        if (pass->side_by_side && sees_whole(stretch, i))
            attn_side_by_side(pass, stretch->num_blocks, stretch->keys);
        else
            run_blocks(pass, stretch, i, strip);
        ask_at_once(work, strip);
        if (stretch->ends && stretch->partial)
            attn_keep_partial(pass, i, stretch->partial);
        else if (stretch->ends && last && leaves_sums(work))
            attn_leave_sums(pass, i);
        else if (stretch->ends)
            attn_end_split(pass, strip);
    }
    stretch->num_blocks = stretch->starts = stretch->begins = stretch->resumes = 0;
}

/** Goes over the keys of a split, of which block first is the first that some strip sees. anew: sums begin here. */
static void run_split(struct pass *pass, struct stretch *stretch, int64_t split, int64_t first, int anew)
{
    const int64_t size = pass->scratch.key_block, end = pass->end, next_split = (split + 1) * ATTN_SPLIT_KEYS;
    stretch->begins = anew;
    do {
        if (first < next_split && first < end) {
            const struct span span = attn_span_at(pass->work, first, (int)(end - first < size ? end - first : size));
            add_block(pass, stretch, &span);
            first = attn_next_block(pass, pass->strips, pass->num_strips, first + size);
        }
        stretch->ends = first >= next_split || first >= end;
        if (stretch->num_blocks == pass->blocks || stretch->ends)
            run_stretch(pass, stretch, first >= end);
    } while (!stretch->ends);
}

/** The first split to be gone over, as attn_next_split() says. */
static int64_t first_split(const struct pass *pass, int64_t *first)
{
    if (pass->work->sums_keys == 0)
        return attn_next_split(pass, 0, first);
    *first = pass->work->sums_keys;
    return *first / ATTN_SPLIT_KEYS;
}

/** All splits of the keys, or those of a part, of which each leaves a partial. */
static void run_splits(struct pass *pass)
{
    const struct attn_work *work = pass->work;
    struct stretch stretch;
    int64_t first, from = 0, to = INT64_MAX, number = 0;
    stretch.num_blocks = 0;
    stretch.starts = 1;
    stretch.resumes = work->sums_keys > 0;
    if (work->parts) {
        const int64_t seen = attn_count_splits(pass);
        from = work->part * seen / work->parts;
        to = (work->part + 1) * seen / work->parts;
    }
    for (int64_t split = first_split(pass, &first); split >= 0 && number < to;
         split = attn_next_split(pass, split + 1, &first), number++) {
        if (number < from)
            continue;
        if (number == from)
            stretch.first = first;
        stretch.partial = work->parts ? work->partials + (size_t)number * work->partial_size : NULL;
        run_split(pass, &stretch, split, first, number > 0 || is_split_end(work->sums_keys));
    }
}

void attn_forward_pass(const struct attn_work *work)
{
    struct pass pass;
    struct scale_looks looks = {0, 0};
    attn_begin_pass(&pass, work);
    pass.looks = work->looks ? &looks : NULL;
    attn_enter(work->kernels);
    if (pass.scores->survey)
        pass.scores->survey(&work->k, work->known_keys, work->dk, &pass.scratch.int8);
    run_splits(&pass);
    if (!work->parts && !leaves_sums(work))
        attn_finish_strips(&pass);
    attn_leave(work->kernels);
    if (!work->looks)
        return;
    atomic_fetch_add_explicit(&work->looks->rows, looks.rows, memory_order_relaxed);
    if (looks.wrong)
        atomic_store_explicit(&work->looks->wrong, 1, memory_order_relaxed);
}
