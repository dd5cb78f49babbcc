/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Biases that follow from the distance between query and key: ALiBi (Press et
 * al. 2022), T5's buckets (Raffel et al. 2020), biases by clipped distance
 * (Shaw et al. 2018); and, as a bias of -inf, what causality and a window hide.
 *
 * Lane r of a strip at position p and key j have the distance p + r - j, so all
 * that a tile of n keys needs is one row of width + n - 1 numbers, of which
 * key j takes those from n - 1 - j on: a mask of pitch -1.
 */
#ifndef ATTN_DISTANCE_BIAS_H
#define ATTN_DISTANCE_BIAS_H

/** Bucket of T5 for n keys between query and key, of those on one side: log2 of it counts from half of them on. */
static int64_t t5_side(int64_t n, int64_t buckets, int64_t max_distance)
{
    const int64_t exact = buckets / 2;
    if (n < exact)
        return n;
    if (n >= max_distance)
        return buckets - 1;
    const double part = log((double)n / (double)exact) / log((double)max_distance / (double)exact);
    const int64_t bucket = exact + (int64_t)(part * (double)(buckets - exact));
    return bucket < buckets - 1 ? bucket : buckets - 1;
}

/** The bucket of a query that stands distance behind its key. */
static int64_t distance_bucket(const struct attn_distance_bias *bias, int64_t distance)
{
    if (bias->kind == ATTN_BUCKETS_CLIPPED) {
        const int64_t max = bias->max_distance, ahead = -distance;
        return (ahead < -max ? -max : ahead > max ? max : ahead) + max;
    }
    if (bias->kind == ATTN_BUCKETS_T5)
        return t5_side(distance > 0 ? distance : 0, bias->buckets, bias->max_distance);
    const int64_t half = bias->buckets / 2;
    return distance < 0 ? half + t5_side(-distance, half, bias->max_distance)
                        : t5_side(distance, half, bias->max_distance);
}

/** A number of natural units in base 2; what is finite stays finite, as in bias_in_base2(). */
static float in_base2(float natural)
{
    const float scaled = natural * LOG2E;
    return !isfinite(natural) || isfinite(scaled) ? scaled : natural < 0 ? -FLT_MAX : FLT_MAX;
}

static int has_distance_bias(const struct attn_work *work)
{
    return work->distance_bias.slope != 0.0f || work->distance_bias.table;
}

/** row[t] becomes the bias, in base 2, of a query that stands first + t behind its key, for n of them. */
static void stage_distance_bias(const struct attn_work *work, int64_t first, int n, float *row)
{
    const struct attn_distance_bias *bias = &work->distance_bias;
    const double slope = -(double)bias->slope * 1.4426950408889634;
    for (int t = 0; t < n; t++) {
        const int64_t distance = first + t;
        row[t] = bias->slope != 0.0f ? (float)(slope * (double)(distance < 0 ? -distance : distance)) : 0.0f;
    }
    for (int t = 0; bias->table && t < n;) {
        const int64_t bucket = distance_bucket(bias, first + t);
        const float natural = bias->table[bucket];
        do /* the far buckets are wide, and asking for one takes a logarithm */
            row[t] += in_base2(natural);
        while (++t < n && (first + t > bias->max_distance || first + t < -bias->max_distance) &&
               (first + t - 1 > bias->max_distance || first + t - 1 < -bias->max_distance) &&
               (first + t < 0) == (first + t - 1 < 0));
    }
}

/**
 * Puts -inf where causality or the window hides keys: row[t] is for a lane and
 * a key that are lane - key = first + t apart.
 */
static void hide_distances(const struct attn_work *work, int64_t first, int n, float *row)
{
    const struct attn_view *view = &work->view;
    for (int t = 0; t < n; t++) {
        const int64_t ahead = -(first + t);
        if (ahead > view->diagonal || ahead < view->window_first || ahead > view->window_last)
            row[t] = -INFINITY;
    }
}

#endif
