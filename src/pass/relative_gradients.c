/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of the terms by distance (pass/relative.c), a unit at a time. With
 * dS the gradients of its scores, d the distance from key j to lane r, A and B
 * the rows of rel_k and rel_q:
 *
 *     dQ[r]    += sum_j dS[j][r] A[d]     the tile of values, with distances for keys
 *     dA[d]    += sum_r dS[j][r] Q[r]     sums over queries, with distances for keys
 *     dK[j]    += sum_r dS[j][r] B[d]     the same, with distances for queries
 *     dB[d]    += sum_j dS[j][r] K[j]     the same, with keys for queries
 *
 * Each wants dS with distances along one of its axes: the tile is skewed, and
 * 0 where a distance has no key or no lane. What meets rows of distances reads
 * them where they lie, side by side in the table, forwards or backwards.
 *
 * The first and the last row of a table stand for all distances beyond the span.
 * Their part of dQ and dK is the row times the sum of dS beyond, a number for
 * each query and key, and so is the part of dA and dB that they are: most pairs
 * of a long sequence cost an addition. These numbers are kept until all of their
 * terms are there (struct attn_relative_sums, ends).
 *
 * Every sum takes a term at a time: those of queries in the order of the keys,
 * those of keys and of rows in the order of the queries. They are beside the
 * sums of Q and K until these have ended. So no bit follows from borders, of
 * which a distance has others than a key.
 *
 * 0 times a row that is not finite is no 0, and a skewed tile has a 0 wherever
 * nothing is seen. If a row is not finite, bytes say what is.
 */
#include "kernels/gradient_sums.h"
#include "pass/gradients.h"
#include "pass/pass.h"

#include <math.h>

/** The gradients of a unit's scores, and where it stands. */
struct tile {
    const struct pass *pass;
    const struct attn_gradient_scratch *scratch;
    const struct attn_tile_mask *mask;
    const float *ds; /**< [n][width] */
    int n, rows, width;
    int64_t origin; /**< the distance of lane 0 and key 0: that of lane r and key j is origin + r - j */
};

/** Distances that have a row to themselves: from first to last, if there are any. */
struct band {
    int64_t first, last, span;
    int sign; /**< row span + sign * d is that of distance d */
};

static struct band band_of(int64_t span, int sign)
{
    return sign > 0 ? (struct band){1 - span, span - 2, span, 1} : (struct band){2 - span, span - 1, span, -1};
}

static struct band key_band(const struct attn_work *work) /* of the table that keys meet */
{
    return band_of(work->relative.span, work->relative.delta == ATTN_DELTA_KEY_QUERY ? -1 : 1);
}

/** The row of a distance of a band. */
static int64_t place_of(const struct band *band, int64_t distance)
{
    return band->span + band->sign * distance;
}

/** The first lane, of those with a query or behind them, whose distance from a key is at least so much. */
static int lane_at(const struct tile *t, int64_t distance, int key)
{
    const int64_t lane = distance - t->origin + key;
    return lane < 0 ? 0 : lane < t->rows ? (int)lane : t->rows;
}

/** The distances of a band that some lane has from keys first..first+n-1. Returns how many there are. */
static int distances_of(const struct tile *t, const struct band *band, int first, int n, int64_t *nearest,
                        int64_t *farthest)
{
    const int64_t least = t->origin - (first + n - 1), most = t->origin + t->rows - 1 - first;
    *nearest = band->first > least ? band->first : least;
    *farthest = band->last < most ? band->last : most;
    return *farthest < *nearest ? 0 : (int)(*farthest - *nearest + 1);
}

static int sees(const struct attn_tile_mask *mask, int key, int lane)
{
    switch (mask->kind) {
    case MASK_NONE:
        return 1;
    case MASK_DIAGONAL:
        return key <= lane + mask->diagonal;
    case MASK_LIVE:
        return mask->live[key * mask->live_pitch + lane] != 0;
    default:
        return !(mask->bias[key * mask->bias_pitch + lane] == -INFINITY);
    }
}

static int are_finite(const struct tile *t, const char *rows, ptrdiff_t stride, int n)
{
    return t->pass->values->finite(rows, stride, n, t->pass->work->dk);
}

/* ------------------------------------------------------------------ the ends -- */

/** The tile with ATTN_NO_PAIR where nothing is seen, and no -0 elsewhere. */
static const float *mark_pairs(const struct tile *t)
{
    float *const marked = t->scratch->skewed;
    for (int j = 0; j < t->n; j++) {
        const float *const from = t->ds + (ptrdiff_t)j * t->width;
        float *const to = marked + (ptrdiff_t)j * t->width;
        if (t->mask->kind == MASK_NONE)
            for (int r = 0; r < t->rows; r++)
                to[r] = from[r] + 0.0f;
        else
            for (int r = 0; r < t->rows; r++)
                to[r] = sees(t->mask, j, r) ? from[r] + 0.0f : ATTN_NO_PAIR;
    }
    return marked;
}

/** Adds lanes first..end-1 of n keys each to a sum of its own, in steps that do not wait for each other. */
static void add_lanes(const float *marked, int width, int n, int first, int end, float *sums)
{
    for (int r = first; r < end; r++)
        for (int i = 0; i < n; i++)
            sums[i] += marked[(ptrdiff_t)i * width + r];
}

static void add_ends_of_queries(const struct tile *t, const struct band *band, const float *marked, int64_t first,
                                const struct attn_relative_sums *sums)
{
    float *const before = sums->query_ends[0] + first, *const behind = sums->query_ends[1] + first;
    for (int j = 0; j < t->n; j++) {
        const float *const row = marked + (ptrdiff_t)j * t->width;
        const int end = lane_at(t, band->first, j), begin = lane_at(t, band->last + 1, j);
        for (int r = 0; r < end; r++)
            before[r] += row[r];
        for (int r = begin; r < t->rows; r++)
            behind[r] += row[r];
    }
}

static void add_ends_of_keys(const struct tile *t, const struct band *band, const float *marked, int64_t at,
                             const struct attn_relative_sums *sums)
{
    float *const before = sums->key_ends[band->sign < 0] + at, *const behind = sums->key_ends[band->sign > 0] + at;
    enum { TOGETHER = 4 };
    for (int j = 0; j < t->n; j += TOGETHER) {
        const int n = t->n - j < TOGETHER ? t->n - j : TOGETHER, width = t->width;
        const float *const rows = marked + (ptrdiff_t)j * width;
        const int before_all = lane_at(t, band->first, j), behind_all = lane_at(t, band->last + 1, j + n - 1);
        add_lanes(rows, width, n, 0, before_all, before + j);
        for (int i = 0; i < n; i++) {
            const float *const row = rows + (ptrdiff_t)i * width;
            add_lanes(row, width, 1, before_all, lane_at(t, band->first, j + i), before + j + i);
            add_lanes(row, width, 1, lane_at(t, band->last + 1, j + i), behind_all, behind + j + i);
        }
        add_lanes(rows, width, n, behind_all, t->rows, behind + j);
    }
}

/** Whether some pair of a tile has a distance outside of a band. */
static int reaches_beyond(const struct tile *t, const struct band *band)
{
    return t->origin - (t->n - 1) < band->first || t->origin + t->rows - 1 > band->last;
}

static void add_ends(const struct tile *t, int64_t first, int64_t at, const struct attn_relative_sums *sums)
{
    const struct band of_queries = band_of(t->pass->work->relative.span, 1), of_keys = key_band(t->pass->work);
    const int queries = sums->query_ends[0] && reaches_beyond(t, &of_queries);
    const int keys = sums->key_ends[0] && reaches_beyond(t, &of_keys);
    if (!queries && !keys)
        return;
    const float *const marked = mark_pairs(t);
    if (queries)
        add_ends_of_queries(t, &of_queries, marked, first, sums);
    if (keys)
        add_ends_of_keys(t, &of_keys, marked, at, sums);
}

/* ------------------------------------------------------------- skewed tiles -- */

/** skewed[v][r] = ds of lane r and the key that it is first + step * v away from. */
static void skew_lanes(const struct tile *t, int64_t first, int step, int count)
{
    float *const skewed = t->scratch->skewed;
    memset(skewed, 0, (size_t)count * (size_t)t->width * sizeof *skewed);
    for (int v = 0; v < count; v++) {
        const int64_t shift = t->origin - (first + (int64_t)step * v); /* of a lane's key */
        const int begin = shift < 0 ? (int)-shift : 0, end = t->n - shift < t->rows ? (int)(t->n - shift) : t->rows;
        for (int r = begin; r < end; r++)
            skewed[(ptrdiff_t)v * t->width + r] = t->ds[(r + shift) * t->width + r];
    }
}

/** The same of what is seen. */
static struct attn_tile_mask skew_seen(const struct tile *t, int64_t first, int step, int count)
{
    const ptrdiff_t pitch = attn_skewed_pitch(t->pass->work->kernels->strip);
    uint8_t *const live = t->scratch->seen;
    memset(live, 0, (size_t)count * (size_t)pitch);
    for (int v = 0; v < count; v++)
        for (int r = 0; r < t->rows; r++) {
            const int64_t j = t->origin + r - (first + (int64_t)step * v);
            live[v * pitch + r] = (uint8_t)(j >= 0 && j < t->n && sees(t->mask, (int)j, r));
        }
    return (struct attn_tile_mask){.kind = MASK_LIVE, .live = live, .live_pitch = pitch};
}

/** Adds rows of rel_k to the sums of queries: dq is [dk][width]. */
static void add_rows_to_queries(const struct tile *t, float *dq)
{
    const struct attn_work *work = t->pass->work;
    const struct attn_rows *table = &work->relative.k;
    const struct band band = band_of(work->relative.span, 1);
    int64_t nearest, farthest;
    const int count = distances_of(t, &band, 0, t->n, &nearest, &farthest), nv = t->width / t->pass->vectors->lanes;
    if (count == 0)
        return;
    const int ends[ATTN_MAX_VECTORS] = {count, count, count, count};
    skew_lanes(t, farthest, -1, count); /* keys in their order */
    const struct attn_value_operands operands = {.p = t->scratch->skewed,
                                                 .v = row_of(table, place_of(&band, farthest)),
                                                 .v_stride = -table->stride,
                                                 .dv = work->dk,
                                                 .ends = ends,
                                                 .o = dq,
                                                 .mode = ACCUMULATE_ADD};
    if (are_finite(t, operands.v, operands.v_stride, count)) {
        t->pass->values->values(nv, &operands);
    } else {
        const struct attn_tile_mask mask = skew_seen(t, farthest, -1, count);
        t->pass->values->values_seen(nv, &mask, &operands, count);
    }
}

/** Adds rows of Q to the sums of rows of rel_k. */
static void add_queries_to_rows(const struct tile *t, const struct attn_rows *q, int q_finite, float *sums)
{
    const struct attn_work *work = t->pass->work;
    const struct attn_gradient_kernels *kernels = work->kernels->gradients;
    const struct band band = band_of(work->relative.span, 1);
    int64_t nearest, farthest;
    const int count = distances_of(t, &band, 0, t->n, &nearest, &farthest);
    if (count == 0)
        return;
    skew_lanes(t, nearest, 1, count);
    const struct attn_row_sums x = {.p = (const char *)t->scratch->skewed,
                                    .pitch = t->width * ATTN_WORD,
                                    .keys = count,
                                    .rows = t->rows,
                                    .diagonal = ATTN_NO_DIAGONAL,
                                    .x = q->data,
                                    .x_stride = q->stride,
                                    .channels = work->dk,
                                    .sum = sums + place_of(&band, nearest) * work->dk};
    if (q_finite) {
        kernels->add_rows(&x);
    } else {
        const struct attn_tile_mask mask = skew_seen(t, nearest, 1, count);
        kernels->add_rows_seen(&mask, t->width / t->pass->vectors->lanes, &x);
    }
}

/** skewed[i][v] = ds of key first + i and the lane that is nearest + v away from it; live likewise, if it is wanted. */
static void skew_keys(const struct tile *t, const struct band *band, int first, int n, int64_t nearest, int wants_live)
{
    const ptrdiff_t pitch = attn_skewed_pitch(t->pass->work->kernels->strip);
    float *const skewed = t->scratch->skewed;
    uint8_t *const live = t->scratch->seen;
    memset(skewed, 0, (size_t)(n * pitch) * sizeof *skewed);
    if (wants_live)
        memset(live, 0, (size_t)(n * pitch));
    for (int i = 0; i < n; i++) {
        const int j = first + i, begin = lane_at(t, band->first, j), end = lane_at(t, band->last + 1, j);
        const ptrdiff_t shift = (ptrdiff_t)(t->origin - j - nearest); /* of a lane's distance */
        for (int r = begin; r < end; r++)
            skewed[i * pitch + r + shift] = t->ds[(ptrdiff_t)j * t->width + r];
        for (int r = begin; wants_live && r < end; r++)
            live[i * pitch + r + shift] = (uint8_t)sees(t->mask, j, r);
    }
}

/** Adds rows of rel_q to the sums of a chunk of keys: keys is [n][dk]. */
static void add_rows_to_keys(const struct tile *t, const struct band *band, int first, int n, float *keys)
{
    const struct attn_work *work = t->pass->work;
    const struct attn_rows *table = &work->relative.q;
    const struct attn_gradient_kernels *kernels = work->kernels->gradients;
    const ptrdiff_t pitch = attn_skewed_pitch(work->kernels->strip), stride = band->sign * table->stride;
    const int lanes = t->pass->vectors->lanes, strip = work->kernels->strip;
    int64_t nearest, farthest;
    const int count = distances_of(t, band, first, n, &nearest, &farthest);
    if (count == 0)
        return;
    const char *const rows = row_of(table, place_of(band, nearest));
    const int finite = are_finite(t, rows, stride, count);
    skew_keys(t, band, first, n, nearest, !finite);
    for (int v = 0; v < count; v += strip) { /* queries of a tile of sums are a strip at most */
        const int some = count - v < strip ? count - v : strip;
        const struct attn_row_sums x = {.p = (const char *)(t->scratch->skewed + v),
                                        .pitch = pitch * ATTN_WORD,
                                        .keys = n,
                                        .rows = some,
                                        .diagonal = ATTN_NO_DIAGONAL,
                                        .x = rows + v * stride,
                                        .x_stride = stride,
                                        .channels = work->dk,
                                        .sum = keys};
        const struct attn_tile_mask mask = {.kind = MASK_LIVE, .live = t->scratch->seen + v, .live_pitch = pitch};
        if (finite)
            kernels->add_rows(&x);
        else
            kernels->add_rows_seen(&mask, (some + lanes - 1) / lanes, &x);
    }
}

/** Adds a chunk of rows of K, of which k is the first, to the sums of rows of rel_q. */
static void add_keys_to_rows(const struct tile *t, const struct band *band, int first, int n, const char *k,
                             ptrdiff_t k_stride, int k_finite, float *sums)
{
    const struct attn_work *work = t->pass->work;
    const struct attn_gradient_kernels *kernels = work->kernels->gradients;
    float *const skewed = t->scratch->skewed;
    uint8_t *const live = t->scratch->seen;
    const int lanes = t->pass->vectors->lanes;
    int64_t nearest, farthest;
    const int count = distances_of(t, band, first, n, &nearest, &farthest);
    if (count == 0)
        return;
    const int64_t start = band->sign > 0 ? nearest : farthest; /* that of the first row */
    for (int v = 0; v < count; v++)
        for (int i = 0; i < ATTN_SKEWED_KEYS; i++) {
            const int j = first + i, at = v * ATTN_SKEWED_KEYS + i;
            const int64_t r = start + band->sign * v - t->origin + j;
            const int there = i < n && r >= 0 && r < t->rows;
            skewed[at] = there ? t->ds[(ptrdiff_t)j * t->width + r] : 0.0f;
            if (!k_finite)
                live[at] = (uint8_t)(there && sees(t->mask, j, (int)r));
        }
    const struct attn_row_sums x = {.p = (const char *)skewed,
                                    .pitch = ATTN_SKEWED_KEYS * ATTN_WORD,
                                    .keys = count,
                                    .rows = n,
                                    .diagonal = ATTN_NO_DIAGONAL,
                                    .x = k,
                                    .x_stride = k_stride,
                                    .channels = work->dk,
                                    .sum = sums + place_of(band, start) * work->dk};
    const struct attn_tile_mask mask = {.kind = MASK_LIVE, .live = live, .live_pitch = ATTN_SKEWED_KEYS};
    if (k_finite)
        kernels->add_rows(&x);
    else
        kernels->add_rows_seen(&mask, (n + lanes - 1) / lanes, &x);
}

/* ----------------------------------------------------------------- the unit -- */

void attn_add_relative_gradients(const struct pass *pass, const struct unit *unit, const struct attn_relative_unit *x,
                                 const struct attn_relative_sums *sums)
{
    const struct attn_work *work = pass->work;
    const struct strip *strip = unit->strip;
    const struct tile t = {.pass = pass,
                           .scratch = x->scratch,
                           .mask = &unit->mask,
                           .ds = x->ds,
                           .n = unit->n,
                           .rows = strip->rows,
                           .width = strip->width,
                           .origin = work->view.position + strip->first - x->first};
    add_ends(&t, strip->first, x->at, sums);
    if (x->dq)
        add_rows_to_queries(&t, x->dq);
    if (sums->k_rows)
        add_queries_to_rows(&t, &x->q, x->q_finite, sums->k_rows);
    if (!sums->keys && !sums->q_rows)
        return;
    const struct band band = key_band(work);
    const int chunk = work->kernels->strip < ATTN_SKEWED_KEYS ? work->kernels->strip : ATTN_SKEWED_KEYS;
    for (int first = 0; first < unit->n; first += chunk) {
        const int n = unit->n - first < chunk ? unit->n - first : chunk;
        if (sums->keys)
            add_rows_to_keys(&t, &band, first, n, sums->keys + (x->at + first) * work->dk);
        if (sums->q_rows)
            add_keys_to_rows(&t, &band, first, n, x->k + first * x->k_stride, x->k_stride, x->k_finite, sums->q_rows);
    }
}
