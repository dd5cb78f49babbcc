/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weights and scores themselves, for those who ask for them. They are made
 * by further passes over the keys, strip by strip, once the forward pass has the
 * final m and l.
 *
 * Weights: each tile's scores are computed again and turned into
 * 2^(S - m) / l. Rows are written tile by tile; sums over queries are added per
 * key in the order of the queries, strip by strip, so they do not depend on the
 * threads. A callback of weights gets each tile before anything else does, and
 * the forward pass has left the product with V to be made here.
 *
 * Scores: up to softcap no key is hidden, and tiles cover all keys that are no
 * padding; those that the softmax got are made as it got them.
 */
#include "pass/pass.h"

#include <math.h>

/** Whether request i of the rows is a row of this strip; *row is then its lane. */
static int requested_row(const struct attn_work *work, const struct strip *strip, int64_t i, int *row)
{
    const int64_t query = work->weight_rows ? work->weight_rows[i] : i;
    const int64_t lane = query - work->first_query - strip->first;
    *row = (int)lane;
    return lane >= 0 && lane < strip->rows;
}

/** The requests that can lie in a strip: all of them, or its own rows. */
static void request_range(const struct attn_work *work, const struct strip *strip, int64_t *begin, int64_t *end)
{
    *begin = work->weight_rows ? 0 : work->first_query + strip->first;
    *end = work->weight_rows ? work->num_weight_rows : *begin + strip->rows;
}

/** Whether a strip has rows that go to an output on request. */
static int wants_rows(const struct attn_work *work, const struct strip *strip, const struct attn_grid *output)
{
    int64_t begin, end;
    int row;
    if (!output->data)
        return 0;
    for (request_range(work, strip, &begin, &end); begin < end; begin++)
        if (requested_row(work, strip, begin, &row))
            return 1;
    return 0;
}

/** Writes the requested rows of a tile of n keys; tile NULL: a number everywhere. */
static void write_tile(const struct pass *pass, const struct strip *strip, const struct attn_grid *output,
                       int64_t first_key, int64_t n, const float *tile, float number)
{
    const struct attn_work *work = pass->work;
    const int width = strip->width;
    int64_t begin, end;
    int row;
    request_range(work, strip, &begin, &end);
    if (tile && !work->weight_rows && output->key_stride == 1) {
        float one[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
        char *pointers[ATTN_MAX_STRIP];
        const struct attn_rows rows = {(float *)output->data + begin * output->query_stride + first_key,
                                       output->query_stride * (ptrdiff_t)sizeof(float), ATTN_F32, NULL, 0};
        for (int r = 0; r < width; r++)
            one[r] = 1.0f;
        row_pointers(&rows, 0, strip->rows, pointers);
        pass->vectors->write_rows(pointers, ATTN_F32, tile, width, strip->rows, n, one);
        return;
    }
    for (; begin < end; begin++) {
        if (!requested_row(work, strip, begin, &row))
            continue;
        float *dst = (float *)output->data + begin * output->query_stride + first_key * output->key_stride;
        for (int64_t j = 0; j < n; j++)
            dst[j * output->key_stride] = tile ? tile[j * width + row] : number;
    }
}

/* ---------------------------------------------------------------- weights -- */

/** Adds the weights of n keys, summed over the strip's queries, to the sums per key. */
static void add_key_sums(const struct attn_work *work, const struct strip *strip, int64_t first_key, int n,
                         const float *p)
{
    const int width = strip->width;
    for (int j = 0; j < n; j++) {
        float sum = 0;
        for (int r = 0; r < strip->rows; r++)
            sum += p[j * width + r];
        work->key_sums[(first_key + j) * work->key_sums_stride] += sum;
    }
}

/** Hands a unit's weights to the caller's function; what is hidden is 0 again afterwards. */
static void call_back(const struct pass *pass, const struct unit *unit, int64_t first_key)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = unit->strip;
    const attn_weight_tile tile = {.batch = work->drop.batch,
                                   .head = work->drop.head,
                                   .first_query = work->drop.query_index + strip->first,
                                   .num_queries = strip->rows,
                                   .first_key = work->drop.first + first_key,
                                   .num_keys = unit->n,
                                   .key_stride = strip->width,
                                   .weights = pass->scratch.s};
    work->weight_callback(&tile, work->weight_callback_user);
    attn_enter(work->kernels);
    float one[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
    for (int r = 0; r < strip->width; r++)
        one[r] = 1.0f;
    if (unit->mask.kind != MASK_NONE)
        pass->vectors->normalise(strip->nv, &unit->mask, unit->n, one, pass->scratch.s);
}

/**
 * The weights of a run, from the strip's final m and 1/l, in scratch->s, and what a callback has for them. Returns
 * whether there are any.
 */
static int run_weights(const struct pass *pass, struct strip *strip, const float *inverse, struct key_block *keys,
                       const struct run *run)
{
    float l[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN))) = {0}; /* known already */
    struct unit unit = {.strip = strip, .run = *run, .n = run->hi - run->lo};
    attn_unit_scores(pass, keys, &unit);
    if (unit.mask.kind == MASK_DEAD)
        return 0;
    const int n = unit.n;
    int ends[ATTN_MAX_VECTORS] = {n, n, n, n};
    const struct attn_value_kernels *plain = pass->work->kernels->plain;
    plain->weights(strip->nv, strip->m, ends, n, unit.factor, pass->scratch.s, l);
    if (pass->work->drop.wanted) {
        struct attn_drop drop = pass->work->drop;
        drop.query_index += strip->first;
        drop.first += keys->first + run->lo;
        plain->drop(&drop, strip->nv, n, pass->scratch.s);
    }
    pass->vectors->normalise(strip->nv, &unit.mask, n, inverse, pass->scratch.s);
    if (pass->work->weight_callback) {
        call_back(pass, &unit, keys->first + run->lo);
        attn_unit_values(pass, keys, &unit, ends, strip->started ? ACCUMULATE_ADD : ACCUMULATE_FIRST, NULL);
    }
    return 1;
}

void attn_strip_weights(const struct pass *pass, struct strip *strip, const float *inverse)
{
    const struct attn_work *work = pass->work;
    const struct attn_grid *weights = &work->weights;
    const int rows_wanted = wants_rows(work, strip, weights), size = pass->scratch.key_block;
    const int calls_back = work->weight_callback != NULL;
    if (!rows_wanted && !work->key_sums && !calls_back)
        return;
    const int64_t visible = strip->started ? attn_visible_end(work) : 0;
    int64_t written = 0;
    if (calls_back) /* its sums with V begin here */
        strip->started = 0;
    for (int64_t first = attn_next_block(pass, strip, 1, 0); first < visible;
         first = attn_next_block(pass, strip, 1, first + size)) {
        const struct span span = attn_span_at(work, first, (int)(visible - first < size ? visible - first : size));
        struct run run = {.hi = 0};
        while (attn_next_run(pass, strip, &span, run.hi, &run)) {
            struct key_block keys = attn_key_block_at(pass, &span, run.lo, run.hi, 0, calls_back);
            const int64_t at = first + run.lo, n = run.hi - run.lo;
            const int any = run_weights(pass, strip, inverse, &keys, &run);
            if (rows_wanted) {
                write_tile(pass, strip, weights, written, at - written, NULL, 0.0f);
                write_tile(pass, strip, weights, at, n, any ? pass->scratch.s : NULL, 0.0f);
                written = at + n;
            }
            if (any && work->key_sums)
                add_key_sums(work, strip, at, (int)n, pass->scratch.s);
        }
    }
    if (rows_wanted) {
        write_tile(pass, strip, weights, -work->keys_before, work->keys_before, NULL, 0.0f);
        write_tile(pass, strip, weights, written, work->num_keys - written + work->keys_after, NULL, 0.0f);
    }
}

/* ----------------------------------------------------------------- scores -- */

/** Brings a tile of n keys to natural units, and gives it back what int8 has taken from it. */
static void finish_tile(const struct pass *pass, const struct strip *strip, int n)
{
    const float unit = pass->work->score_stage == ATTN_SCORES_RAW ? 1.0f : ATTN_LN2;
    float *s = pass->scratch.s;
    if (unit != 1.0f)
        pass->vectors->multiply(s, (int64_t)n * strip->width, unit);
    for (int j = 0; strip->validity && j < n; j++, s += strip->width)
        for (int r = 0; r < strip->width; r++)
            if (s[r] != -INFINITY) /* which is hidden from queries that are NaN, too */
                s[r] = strip->validity[r] * (s[r] + strip->shift[r] * unit);
}

/** Scores that nothing is hidden from. */
static void write_unmasked(const struct pass *pass, struct strip *strip)
{
    const struct attn_work *work = pass->work;
    const int64_t size = pass->scratch.key_block, all = work->unmasked_keys;
    if (work->score_stage == ATTN_SCORES_RAW)
        attn_pack_strip(pass, strip, 1.0f);
    for (int64_t first = 0; first < all; first += size) {
        const int n = (int)(all - first < size ? all - first : size);
        const struct span span = {.first = first, .size = n};
        const struct key_block keys = attn_key_block_at(pass, &span, 0, n, 0, 0);
        attn_unmasked_scores(pass, &keys, strip, n, work->score_stage);
        finish_tile(pass, strip, n);
        write_tile(pass, strip, &work->scores, first, n, pass->scratch.s, 0.0f);
    }
    write_tile(pass, strip, &work->scores, all, work->num_keys + work->keys_after - all, NULL, -INFINITY);
}

/** The scores of a run as the softmax gets them, in scratch->s. Returns whether the strip sees one of its keys. */
static int run_scores(const struct pass *pass, struct strip *strip, const struct key_block *keys, const struct run *run)
{
    static const struct attn_tile_mask none = {.kind = MASK_NONE};
    struct unit unit = {.strip = strip, .run = *run, .n = run->hi - run->lo};
    attn_unit_scores(pass, keys, &unit);
    if (unit.mask.kind == MASK_DEAD)
        return 0;
    if (unit.factor)
        pass->vectors->finish_scores(strip->nv, &none, unit.n, unit.factor, 0.0f, pass->scratch.s, unit.max);
    finish_tile(pass, strip, unit.n);
    return 1;
}

static void write_masked(const struct pass *pass, struct strip *strip)
{
    const struct attn_work *work = pass->work;
    const int64_t size = pass->scratch.key_block, visible = attn_visible_end(work);
    int64_t written = 0;
    for (int64_t first = attn_next_block(pass, strip, 1, 0); first < visible;
         first = attn_next_block(pass, strip, 1, first + size)) {
        const struct span span = attn_span_at(work, first, (int)(visible - first < size ? visible - first : size));
        struct run run = {.hi = 0};
        while (attn_next_run(pass, strip, &span, run.hi, &run)) {
            const struct key_block keys = attn_key_block_at(pass, &span, run.lo, run.hi, 0, 0);
            const int64_t at = first + run.lo, n = run.hi - run.lo;
            const int any = run_scores(pass, strip, &keys, &run);
            write_tile(pass, strip, &work->scores, written, at - written, NULL, -INFINITY);
            write_tile(pass, strip, &work->scores, at, n, any ? pass->scratch.s : NULL, -INFINITY);
            written = at + n;
        }
    }
    write_tile(pass, strip, &work->scores, written, work->num_keys - written + work->keys_after, NULL, -INFINITY);
}

void attn_strip_scores(const struct pass *pass, struct strip *strip)
{
    const struct attn_work *work = pass->work;
    if (!wants_rows(work, strip, &work->scores))
        return;
    write_tile(pass, strip, &work->scores, -work->keys_before, work->keys_before, NULL, -INFINITY);
    if (work->score_stage == ATTN_SCORES_MASKED)
        write_masked(pass, strip);
    else
        write_unmasked(pass, strip);
}
