/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weights themselves, for those who ask for them: a second pass over the
 * keys that computes each tile's scores again and turns them into
 * 2^(S - m) / l with the final m and l of the forward pass.
 *
 * Rows are written tile by tile; sums over queries are added per key in the
 * order of the queries, strip by strip, so they do not depend on the threads.
 */
#include "pass/pass.h"

/** Whether request i of the weights is a row of this strip; *row is then its lane. */
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

static int wants_rows(const struct attn_work *work, const struct strip *strip)
{
    int64_t begin, end;
    int row;
    if (!work->weights.data)
        return 0;
    for (request_range(work, strip, &begin, &end); begin < end; begin++)
        if (requested_row(work, strip, begin, &row))
            return 1;
    return 0;
}

/** Writes the requested rows of a tile of n weights p; NULL for zeros. */
static void write_weights(const struct pass *pass, const struct strip *strip, int64_t first_key, int64_t n,
                          const float *p)
{
    const struct attn_work *work = pass->work;
    const int width = strip->width;
    const struct attn_grid *weights = &work->weights;
    int64_t begin, end;
    int row;
    request_range(work, strip, &begin, &end);
    if (p && !work->weight_rows && weights->key_stride == 1) {
        float one[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
        char *pointers[ATTN_MAX_STRIP];
        const struct attn_rows rows = {(float *)weights->data + begin * weights->query_stride + first_key,
                                       weights->query_stride * (ptrdiff_t)sizeof(float), ATTN_F32};
        for (int r = 0; r < width; r++)
            one[r] = 1.0f;
        row_pointers(&rows, 0, strip->rows, pointers);
        pass->vectors->write_rows(pointers, ATTN_F32, p, width, strip->rows, n, one);
        return;
    }
    for (; begin < end; begin++) {
        if (!requested_row(work, strip, begin, &row))
            continue;
        float *dst = (float *)weights->data + begin * weights->query_stride + first_key * weights->key_stride;
        for (int64_t j = 0; j < n; j++)
            dst[j * weights->key_stride] = p ? p[j * width + row] : 0.0f;
    }
}

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

/** The weights of a run, from the strip's final m and 1/l, in scratch->s. Returns whether there are any. */
static int run_weights(const struct pass *pass, struct strip *strip, const float *inverse, const struct key_block *keys,
                       const struct run *run)
{
    float l[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN))) = {0}; /* known already */
    struct unit unit = {.strip = strip, .run = *run, .n = run->hi - run->lo};
    attn_unit_scores(pass, keys, &unit);
    if (unit.mask.kind == MASK_DEAD)
        return 0;
    const int n = unit.n, ends[ATTN_MAX_VECTORS] = {n, n, n, n};
    const struct attn_value_kernels *plain = pass->work->kernels->plain;
    plain->weights(strip->nv, strip->m, ends, n, unit.factor, pass->scratch.s, l);
    if (pass->work->drop.wanted) {
        struct attn_drop drop = pass->work->drop;
        drop.query_index += strip->first;
        drop.first += keys->first + run->lo;
        plain->drop(&drop, strip->nv, n, pass->scratch.s);
    }
    pass->vectors->normalise(strip->nv, &unit.mask, n, inverse, pass->scratch.s);
    return 1;
}

void attn_strip_weights(const struct pass *pass, struct strip *strip, const float *inverse)
{
    const struct attn_work *work = pass->work;
    const int rows_wanted = wants_rows(work, strip), size = pass->scratch.key_block;
    if (!rows_wanted && !work->key_sums)
        return;
    const int64_t visible = strip->started ? attn_visible_end(work) : 0;
    int64_t written = 0;
    for (int64_t first = attn_next_block(pass, strip, 1, 0); first < visible;
         first = attn_next_block(pass, strip, 1, first + size)) {
        const struct span span = attn_span_at(work, first, (int)(visible - first < size ? visible - first : size));
        struct run run = {.hi = 0};
        while (attn_next_run(pass, strip, &span, run.hi, &run)) {
            const struct key_block keys = attn_key_block_at(pass, &span, run.lo, run.hi, 0);
            const int64_t at = first + run.lo, n = run.hi - run.lo;
            const int any = run_weights(pass, strip, inverse, &keys, &run);
            if (rows_wanted) {
                write_weights(pass, strip, written, at - written, NULL);
                write_weights(pass, strip, at, n, any ? pass->scratch.s : NULL);
                written = at + n;
            }
            if (any && work->key_sums)
                add_key_sums(work, strip, at, (int)n, pass->scratch.s);
        }
    }
    if (rows_wanted) {
        write_weights(pass, strip, -work->keys_before, work->keys_before, NULL);
        write_weights(pass, strip, written, work->num_keys - written + work->keys_after, NULL);
    }
}
