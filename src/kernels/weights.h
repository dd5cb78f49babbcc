/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weights themselves, for those who ask for them: a second pass over the
 * keys that computes each tile's scores again and turns them into
 * 2^(S - m) / l with the final m and l of the forward pass.
 *
 * Rows are written tile by tile; sums over queries are added per key in the
 * order of the queries, strip by strip, so they do not depend on the threads.
 */
#ifndef ATTN_WEIGHTS_H
#define ATTN_WEIGHTS_H

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
static void write_weights(const struct attn_work *work, const struct strip *strip, int64_t first_key, int64_t n,
                          const float *p)
{
    const int width = strip->nv * VF_LEN;
    const struct attn_grid *weights = &work->weights;
    int64_t begin, end;
    int row;
    request_range(work, strip, &begin, &end);
    if (p && !work->weight_rows && weights->key_stride == 1) {
        float one[STRIP] __attribute__((aligned(ATTN_ALIGN)));
        for (int i = 0; i < width; i += VF_LEN)
            vf_store(one + i, vf_set1(1.0f));
        const struct attn_rows rows = {(float *)weights->data + begin * weights->query_stride + first_key,
                                       weights->query_stride * (ptrdiff_t)sizeof(float), ATTN_F32};
        transpose_out(&rows, p, width, strip->rows, n, one);
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
    const int width = strip->nv * VF_LEN;
    for (int j = 0; j < n; j++) {
        float sum = 0;
        for (int r = 0; r < strip->rows; r++)
            sum += p[j * width + r];
        work->key_sums[(first_key + j) * work->key_sums_stride] += sum;
    }
}

/** The weights of a run, from the strip's final m and 1/l, in scratch->s. Returns whether there are any. */
ATTN_INLINE int run_weights(const attn_exp exp, const struct attn_work *work, const struct attn_scratch *scratch,
                            const struct strip *strip, const float *inverse, const struct key_block *keys,
                            const struct run *run)
{
    const int n = run->hi - run->lo, width = strip->nv * VF_LEN;
    float max[STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const struct mask mask = tile_scores(exp, work, scratch, strip, keys, run, max);
    if (mask.kind == MASK_DEAD)
        return 0;
    const int ends[] = {n, n, n, n};
    exponentiate(strip->nv, exp, strip->m, ends, score_factor(scratch, strip, &mask), scratch->s, max);
    if (work->drop.wanted)
        drop_weights(1, work, strip, keys->first + run->lo, n, scratch->s);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < width; i += VF_LEN) {
            float *at = scratch->s + (ptrdiff_t)j * width + i;
            vf w = vf_mul(vf_load(at), vf_load(inverse + i));
            if (mask.kind != MASK_NONE) /* 0 where hidden, also in a row of NaN */
                w = vf_select(mask_lanes(mask.kind, &mask, width, j, i / VF_LEN), w, vf_zero());
            vf_store(at, w);
        }
    return 1;
}

/** Recomputes a strip's weights and hands them out. */
ATTN_INLINE void strip_weights(const attn_exp exp, const struct attn_work *work, const struct attn_scratch *scratch,
                               const struct strip *strip, const float *inverse)
{
    const int rows_wanted = wants_rows(work, strip);
    if (!rows_wanted && !work->key_sums)
        return;
    const int64_t visible = strip->started ? visible_end(work) : 0;
    int64_t written = 0;
    for (int64_t first = 0; first < visible; first += scratch->key_block) {
        const struct span span =
            span_at(work, first, (int)(visible - first < scratch->key_block ? visible - first : scratch->key_block));
        struct run run = {.hi = 0};
        while (next_run(work, strip, &span, run.hi, &run)) {
            const struct key_block keys = key_block_at(work, scratch, &span, run.lo, run.hi, 0);
            const int64_t at = first + run.lo, n = run.hi - run.lo;
            const int any = run_weights(exp, work, scratch, strip, inverse, &keys, &run);
            if (rows_wanted) {
                write_weights(work, strip, written, at - written, NULL);
                write_weights(work, strip, at, n, any ? scratch->s : NULL);
                written = at + n;
            }
            if (any && work->key_sums)
                add_key_sums(work, strip, at, (int)n, scratch->s);
        }
    }
    if (rows_wanted) {
        write_weights(work, strip, -work->keys_before, work->keys_before, NULL);
        write_weights(work, strip, written, work->num_keys - written + work->keys_after, NULL);
    }
}

#endif
