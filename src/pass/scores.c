/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tile of scores is made from, and the first step of a unit.
 *
 * K and V of f32 are read where they lie. Rows that are a multiple of some KiB
 * apart share few sets of the L1 cache, but a row's elements are broadcast one
 * after the other, and what comes from L2 is hidden behind the multiply-adds:
 * copying such blocks was measured to cost more than it gains
 * (docs/performance.md). Other types are made into words once per block of keys
 * and queries.
 *
 * What is more than a product and a mask (terms by relative position, softcap,
 * a callback) makes a tile be computed without its mask, and passed over once
 * more while it is in L1.
 */
#include "pass/pass.h"

#include <assert.h>
#include <math.h>

struct attn_rows attn_rotated_rows(const struct attn_work *work, const struct attn_rows *table, int64_t first,
                                   const struct attn_rows *rows, int n, float *dst)
{
    const struct attn_rope_rows *rope = &work->rope;
    const struct attn_rows rotated = {dst, (ptrdiff_t)sizeof(float) * work->dk, ATTN_F32, NULL, 0};
    if (attn_is_quantised(rows->dtype)) { /* turned where they have been widened */
        work->kernels->vectors->widen(dst, rows, n, work->dk);
        rows = &rotated;
    }
    const struct attn_rotation rotation = {.x = *rows,
                                           .out = rotated,
                                           .table = (const float *)(const void *)row_of(table, first),
                                           .table_stride = table->stride / (ptrdiff_t)sizeof(float),
                                           .num_rows = n,
                                           .pairs = rope->pairs,
                                           .width = work->dk,
                                           .layout = rope->layout};
    work->kernels->vectors->rotate(&rotation);
    return rotated;
}

void attn_pack_strip(const struct pass *pass, const struct strip *strip, float scale)
{
    const struct attn_work *work = pass->work;
    const int rotates = work->rope.q.data != NULL, step = rotates ? pass->vectors->lanes : strip->width;
    for (int r = 0; r < strip->width; r += step) {
        const int n = strip->rows - r < step ? strip->rows - r : step;
        char *pointers[ATTN_MAX_STRIP];
        struct attn_rows rows = work->q;
        strip_rows(&work->view, &work->q, work->head_step.q, strip, r, n, pointers);
        /* rows that lie as their table's rows do */
        const int together = strip->gathered || work->view.heads > 1 ? 1 : n;
        for (int i = 0; rotates && i < n; i += together) {
            const struct attn_rows some = {pointers[i], work->q.stride, work->q.dtype, NULL, 0};
            struct attn_rows table = work->rope.q;
            table.data = query_row(&work->view, &table, work->head_step.rope_q, query_of(strip, r + i));
            rows = attn_rotated_rows(work, &table, 0, &some, together, pass->scratch.rotated + i * (ptrdiff_t)work->dk);
            row_pointers(&rows, 0, together, pointers + i);
        }
        const struct attn_pack_queries x = {.rows = (const char *const *)pointers,
                                            .dtype = rows.dtype,
                                            .n = n,
                                            .first = r,
                                            .fill = step,
                                            .width = strip->width,
                                            .dk = work->dk,
                                            .scale = scale,
                                            .shifts = work->lse != NULL || work->scores.data != NULL,
                                            .int8 = pass->scratch.int8,
                                            .q = strip->q,
                                            .factor = strip->factor,
                                            .validity = strip->validity,
                                            .shift = strip->shift};
        pass->scores->pack_queries(&x);
    }
    if (work->free_sums)
        attn_turn_queries(pass, strip);
}

/** Where rows of a block are brought together. */
struct place {
    char *rows;
    ptrdiff_t width; /**< bytes of a row */
    float *scales;   /**< [key_block][per_row] */
    ptrdiff_t per_row;
};

/** The place of rows of so many channels. */
static struct place place_of(const struct pass *pass, const struct attn_rows *rows, char *at, int channels)
{
    return (struct place){at, (ptrdiff_t)attn_row_bytes(rows->dtype, channels), pass->scratch.piece_scales,
                          (ptrdiff_t)attn_row_scales(rows->dtype, channels)};
}

/** Of a block's rows of K or V, lo..hi-1, counted from its first; the place is for rows that are not side by side. */
static struct attn_rows rows_together(const struct attn_pages *pages, const struct attn_rows *rows,
                                      const struct attn_page_step *step, const struct key_block *keys,
                                      const struct place *place)
{
    const int lo = keys->lo, n = keys->hi - lo;
    struct attn_piece piece = attn_piece_at(pages, rows, step, keys->first + lo, n);
    if (piece.n < n) {
        for (int at = lo; at < keys->hi; at += piece.n) {
            piece = attn_piece_at(pages, rows, step, keys->first + at, keys->hi - at);
            for (int i = 0; i < piece.n; i++) {
                memcpy(place->rows + (at + i) * place->width, row_of(&piece.rows, i), (size_t)place->width);
                if (rows->scale)
                    memcpy(place->scales + (at + i) * place->per_row, piece.rows.scale + i * piece.rows.scale_stride,
                           (size_t)place->per_row * sizeof *place->scales);
            }
        }
        return (struct attn_rows){place->rows, place->width, rows->dtype, rows->scale ? place->scales : NULL,
                                  place->per_row};
    }
    /* no pointer, if lo is more than there is before the first live key of a pool */
    piece.rows.data = (void *)((uintptr_t)piece.rows.data - (uintptr_t)(lo * piece.rows.stride));
    if (rows->scale)
        piece.rows.scale = (const float *)((uintptr_t)piece.rows.scale -
                                           (uintptr_t)(lo * piece.rows.scale_stride * (ptrdiff_t)sizeof(float)));
    return piece.rows;
}

/** Copies keys lo..hi-1 of a block as words, rotated where that is asked for. */
static void copy_keys(const struct pass *pass, struct key_block *keys, const struct attn_rows *k, int number)
{
    const struct attn_work *work = pass->work;
    const struct attn_scratch *scratch = &pass->scratch;
    const ptrdiff_t pitch = attn_channel_words(pass->scores, work->dk) * ATTN_WORD;
    const int64_t before = (int64_t)number * scratch->key_block; /* keys of other blocks */
    const int rotates = work->rope.k.data != NULL, in_place = rotates && pass->scores->channels_per_word == 1;
    const int step = rotates && !in_place ? pass->vectors->lanes : keys->hi - keys->lo; /* rows rotated at a time */
    for (int at = keys->lo; at < keys->hi; at += step) {
        const int n = keys->hi - at < step ? keys->hi - at : step;
        const struct attn_packed_keys dst = {(char *)scratch->k + (before + at) * pitch, scratch->k_scale + before + at,
                                             scratch->k_start + before + at};
        struct attn_rows rows = attn_rows_from(k, at);
        if (rotates) /* floats go where they are wanted */
            rows = attn_rotated_rows(work, &work->rope.k, keys->first + at, &rows, n,
                                     in_place ? scratch->k + (before + at) * (ptrdiff_t)work->dk : scratch->rotated);
        if (!in_place)
            pass->scores->pack_keys(&rows, n, work->dk, &scratch->int8, &dst);
    }
    keys->k = (const char *)scratch->k + before * pitch;
    keys->k_stride = pitch;
    keys->k_scale = scratch->k_scale + before;
    keys->k_start = scratch->k_start + before;
}

/** The block's rows of V side by side, counted from its first key; of those only lo..hi-1 are there. */
static struct attn_rows value_rows(const struct pass *pass, const struct key_block *keys)
{
    const struct attn_work *work = pass->work;
    const struct place place = place_of(pass, &work->v, pass->scratch.piece_v, work->dv);
    return rows_together(&work->pages, &work->v, &work->pages.v_step, keys, &place);
}

void attn_pack_values(const struct pass *pass, struct key_block *keys, int number)
{
    const struct attn_work *work = pass->work;
    const struct attn_scratch *scratch = &pass->scratch;
    const struct attn_rows rows = value_rows(pass, keys);
    keys->v = rows.data;
    keys->v_stride = rows.stride;
    if (!scratch->v)
        return;
    const ptrdiff_t row = attn_value_channels(pass->values, work->dv);
    float *const words = scratch->v + number * work->shape->key_words * row;
    const struct attn_rows some = attn_rows_from(&rows, keys->lo);
    pass->values->pack_values(words + keys->lo / pass->values->keys_per_word * row, &some, keys->hi - keys->lo,
                              work->dv);
    keys->v = (const char *)words;
    keys->v_stride = row * ATTN_WORD;
}

struct key_block attn_key_block_at(const struct pass *pass, const struct span *span, int lo, int hi, int number,
                                   int with_values)
{
    const struct attn_work *work = pass->work;
    const struct attn_scratch *scratch = &pass->scratch;
    struct key_block keys = {.first = span->first,
                             .size = span->size,
                             .lo = lo,
                             .hi = hi,
                             .v_finite = -1,
                             .k_scale = scratch->k_scale,
                             .k_start = scratch->k_start,
                             .longest = -1.0f};
    if (!attn_few_take_rows(pass)) {
        struct place place = place_of(pass, &work->k, scratch->piece_k, work->dk);
        if (scratch->piece_k && !scratch->k) /* the rows of other blocks are wanted, too */
            place.rows += number * scratch->key_block * place.width;
        const struct attn_rows rows = rows_together(&work->pages, &work->k, &work->pages.k_step, &keys, &place);
        keys.k = rows.data;
        keys.k_stride = rows.stride;
        if (scratch->k)
            copy_keys(pass, &keys, &rows, number);
    }
    if (with_values && !pass->few)
        attn_pack_values(pass, &keys, number);
    return keys;
}

/** Makes the mask one of bytes: what it shows and the callback has not hidden. */
static void mask_from_scores(const struct pass *pass, struct unit *unit)
{
    const int width = unit->strip->width;
    const float *s = pass->scratch.s;
    uint8_t *live = pass->scratch.live;
    for (int j = 0; j < unit->n; j++, live += unit->mask.live_pitch, s += width)
        for (int r = 0; r < width; r++)
            live[r] = (uint8_t) !(s[r] == -INFINITY);
    unit->mask.kind = MASK_LIVE;
}

/** Hands the tile to the caller's function, in natural units. */
static void call_back(const struct pass *pass, struct unit *unit, int64_t first)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = unit->strip;
    float *s = pass->scratch.s;
    const attn_score_tile tile = {.batch = work->drop.batch,
                                  .head = work->drop.head,
                                  .first_query = work->drop.query_index + strip->first,
                                  .num_queries = strip->rows,
                                  .first_key = work->drop.first + first,
                                  .num_keys = unit->n,
                                  .key_stride = strip->width,
                                  .scores = s};
    pass->vectors->multiply(s, (int64_t)unit->n * strip->width, ATTN_LN2);
    if (pass->called)
        memcpy(pass->called, s, (size_t)unit->n * (size_t)strip->width * sizeof *s);
    work->callback(&tile, work->callback_user);
    attn_enter(work->kernels);
    if (pass->vectors->hide_again(strip->nv, &unit->mask, unit->n, s, unit->max))
        mask_from_scores(pass, unit);
}

static const struct attn_tile_mask none = {.kind = MASK_NONE};

/** Where a strip's scores of the keys of a block from lo on come from. */
static struct attn_score_operands operands_at(const struct pass *pass, const struct key_block *keys,
                                              const struct strip *strip, int lo)
{
    return (struct attn_score_operands){.q = strip->q,
                                        .k = keys->k ? keys->k + lo * keys->k_stride : NULL,
                                        .k_stride = keys->k_stride,
                                        .words = attn_channel_words(pass->scores, pass->work->dk),
                                        .rows = strip->rows,
                                        .mask = &none,
                                        .factor = strip->factor,
                                        .k_scale = keys->k_scale + lo,
                                        .start = keys->k_start + lo,
                                        .s = pass->scratch.s};
}

/** Whether keys are the lanes of a strip's scores. */
static int scores_are_of_few(const struct pass *pass, const struct strip *strip)
{
    return pass->scores->scores_of_few && attn_are_few(pass, strip->rows);
}

/** Scores of a strip and keys lo..lo+n-1 of a block, to which the operands belong. */
static void tile_scores(const struct pass *pass, const struct strip *strip, const struct key_block *keys, int lo, int n,
                        struct attn_score_operands *operands, float *max)
{
    if (scores_are_of_few(pass, strip))
        attn_few_scores(pass, strip, keys, lo, n, operands, max);
    else
        pass->scores->scores(strip->nv, operands, n, max);
}

void attn_unmasked_scores(const struct pass *pass, const struct key_block *keys, const struct strip *strip, int n,
                          attn_score_stage stage)
{
    const struct attn_work *work = pass->work;
    struct attn_score_operands operands = operands_at(pass, keys, strip, 0);
    const float cap = stage >= ATTN_SCORES_CAPPED ? work->softcap * ATTN_LOG2E : 0.0f;
    float max[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    tile_scores(pass, strip, keys, 0, n, &operands, max);
    if (stage >= ATTN_SCORES_SCALED && has_relative(work))
        attn_add_relative(pass, strip, keys->first, keys->k, keys->k_stride, n, pass->scratch.s);
    if (strip->factor || cap != 0.0f)
        pass->vectors->finish_scores(strip->nv, &none, n, strip->factor, cap, pass->scratch.s, max);
}

/** Adds rows to those that will be wanted soon, if there are any. */
static void add_soon(struct attn_score_operands *operands, struct attn_soon *soon, const struct attn_rows *rows,
                     int64_t width, int num, int write)
{
    if (rows->data)
        soon[operands->num_soon++] = (struct attn_soon){*rows, width, num, write};
}

/** The rows that the first strip to see n keys asks for meanwhile: of their V, and of the K that comes next. */
static void add_next_keys(const struct pass *pass, const struct strip *strip, int64_t first, int n,
                          struct attn_score_operands *operands, struct attn_soon *soon)
{
    const struct attn_work *work = pass->work;
    int64_t next = first + pass->scratch.key_block, end;
    if (work->view.pattern_size)
        attn_next_listed(work, strip, first + n, &next, &end);
    const int64_t values = pass->scratch.v ? next : first;
    if (values + n <= work->num_keys) {
        const struct attn_piece v = attn_values_at(work, values, n);
        if (v.n == n)
            add_soon(operands, soon, &v.rows, work->dv, n, 0);
    }
    if (next + n <= work->num_keys) {
        const struct attn_piece k = attn_keys_at(work, next, n);
        if (k.n == n)
            add_soon(operands, soon, &k.rows, work->dk, n, 0);
    }
}

/** The rows of queries that a strip asks for, where a token has one. */
static void add_queries(const struct pass *pass, struct strip *strip, struct attn_score_operands *operands,
                        struct attn_soon *soon)
{
    const struct attn_work *work = pass->work;
    if (strip->asks & ASKS_QUERIES) {
        const struct strip *behind = strip + 1;
        const struct attn_rows q = attn_rows_from(&work->q, behind->first);
        add_soon(operands, soon, &q, work->dk, behind->rows, 0);
    }
    if (strip->asks & ASKS_OUT) {
        const struct attn_rows out = attn_rows_from(&work->out, strip->first);
        add_soon(operands, soon, &out, work->dv, strip->rows, 1);
    }
    strip->asks = 0;
}

void attn_unit_scores(const struct pass *pass, const struct key_block *keys, struct unit *unit)
{
    const struct attn_work *work = pass->work;
    const struct attn_scratch *scratch = &pass->scratch;
    struct strip *strip = unit->strip;
    const int n = unit->n, lo = unit->run.lo;
    const int64_t first = keys->first + lo;
    const int terms = work->softcap != 0.0f || work->callback || has_relative(work);
    unit->mask = attn_mask_of(pass, strip, first, n, unit->run.kind);
    if (unit->mask.kind == MASK_DEAD)
        return;
    const int whole = !pass->scores->raw || unit->mask.kind == MASK_BIAS || terms;
    unit->factor = whole ? NULL : strip->factor;
    struct attn_score_operands operands = operands_at(pass, keys, strip, lo);
    if (!terms)
        operands.mask = &unit->mask;
    struct attn_soon soon[ATTN_MAX_SOON]; /* V, K, queries, out */
    operands.soon = soon;
    if (leads(work, strip) && !scores_are_of_few(pass, strip)) /* these ask for themselves */
        add_next_keys(pass, strip, first, n, &operands, soon);
    if (strip->asks)
        add_queries(pass, strip, &operands, soon);
    tile_scores(pass, strip, keys, lo, n, &operands, unit->max);
    if (!terms)
        return;
    if (has_relative(work))
        attn_add_relative(pass, strip, first, operands.k, keys->k_stride, n, scratch->s);
    pass->vectors->finish_scores(strip->nv, &unit->mask, n, strip->factor, work->softcap * ATTN_LOG2E, scratch->s,
                                 unit->max);
    if (work->callback)
        call_back(pass, unit, first);
}
