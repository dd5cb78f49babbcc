/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mask of one tile: looks at everything that hides a key from a query in
 * it, or adds to a score by its place, and says which of the cases of enum
 * attn_mask_kind holds. Most tiles are MASK_NONE and run no mask code.
 *
 * Masks in memory are brought into lane order, [key][query]. What follows from
 * the distance between query and key is one row of numbers for a tile: ALiBi
 * (Press et al. 2022), T5's buckets (Raffel et al. 2020), biases by clipped
 * distance (Shaw et al. 2018), and, as a bias of -inf, what causality and a
 * window hide. Lane r of a strip at position p and key j have the distance
 * p + r - j, so a tile of n keys needs width + n - 1 numbers, of which key j
 * takes those from n - 1 - j on: a bias of pitch -1. Where heads are
 * together, each has such a row, and its lanes take theirs from it.
 */
#include "kernels/prefetch.h"
#include "pass/pass.h"

#include "simd/half.h"

#include <float.h>
#include <math.h>

/* ----------------------------------------------------------- masks in memory -- */

/* 16 bytes in the compiler's own vector type: punpck on x86, zip on AArch64. */
typedef uint8_t vb __attribute__((vector_size(16)));

/** Transposes 16 x 16 bytes: four rounds of interleaving row i with row i + 8. */
static inline void transpose_bytes(vb a[16])
{
    vb t[16];
    _Pragma("GCC unroll 16") for (int round = 0; round < 2; round++)
    {
        _Pragma("GCC unroll 16") for (int i = 0; i < 8; i++)
        {
            t[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            t[2 * i + 1] =
                __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        _Pragma("GCC unroll 16") for (int i = 0; i < 8; i++)
        {
            a[2 * i] = __builtin_shufflevector(t[i], t[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            a[2 * i + 1] =
                __builtin_shufflevector(t[i], t[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
    }
}

/** Whether some byte is not 0. */
static inline int any_byte(vb a)
{
    uint64_t halves[2];
    memcpy(halves, &a, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

/** What a staged boolean tile holds. */
struct extent {
    int any, all; /**< some, every element is live */
};

/** Whether all lanes have the same row of a mask. */
static int is_one_row(const struct attn_work *work, const struct attn_grid *mask)
{
    return mask->query_stride == 0 && (work->view.heads == 1 || work->head_step.mask == 0);
}

/** Where a mask has the row of each lane, in elements; lanes behind the last row have that of the last. */
static void mask_rows(const struct attn_work *work, const struct strip *strip, const struct attn_grid *mask,
                      ptrdiff_t at[ATTN_MAX_STRIP])
{
    for (int r = 0; r < strip->width; r++)
        at[r] = query_offset(&work->view, mask->query_stride, work->head_step.mask,
                             query_of(strip, r < strip->rows ? r : strip->rows - 1));
}

/** live[j * pitch + r] = mask(r, j); rows behind the last repeat it. */
static struct extent stage_live(uint8_t *live, ptrdiff_t pitch, const struct attn_work *work, const struct strip *strip,
                                struct attn_grid mask, int n)
{
    const int width = strip->width;
    const uint8_t *src = mask.data;
    vb any = {0}, zero = {0};
    if (is_one_row(work, &mask)) {
        for (int j = 0; j < n; j++) {
            const uint8_t byte = src[j * mask.key_stride];
            any[0] |= byte;
            zero[0] |= byte == 0;
            memset(live + (ptrdiff_t)j * pitch, byte, (size_t)width);
        }
        return (struct extent){any_byte(any), !any_byte(zero)};
    }
    ptrdiff_t at[ATTN_MAX_STRIP];
    mask_rows(work, strip, &mask, at);
    if (mask.key_stride != 1) {
        for (int j = 0; j < n; j++) {
            for (int r = 0; r < width; r++) {
                const uint8_t byte = src[at[r] + j * mask.key_stride];
                any[0] |= byte;
                zero[0] |= byte == 0;
                live[(ptrdiff_t)j * pitch + r] = byte;
            }
        }
        return (struct extent){any_byte(any), !any_byte(zero)};
    }
    for (int j = 0; j < n; j += 16) {
        const int size = n - j < 16 ? n - j : 16;
        for (int r = 0; r < width; r += 16) {
            vb x[16];
            for (int i = 0; i < 16; i++) {
                const uint8_t *row = src + at[r + i < width ? r + i : width - 1] + j;
                if (j % ATTN_ALIGN == 0) /* a line of the next tile; an address behind the mask does no harm */
                    prefetch_line((const char *)((uintptr_t)row + ATTN_KEY_BLOCK), 0);
                if (size == 16) {
                    memcpy(&x[i], row, 16);
                } else {
                    memset(&x[i], row[0], 16); /* repeats a byte that counts already */
                    memcpy(&x[i], row, (size_t)size);
                }
                any |= x[i];
                zero |= (vb)(x[i] == 0);
            }
            transpose_bytes(x);
            for (int i = 0; i < size; i++)
                memcpy(live + (ptrdiff_t)(j + i) * pitch + r, &x[i], 16);
        }
    }
    return (struct extent){any_byte(any), !any_byte(zero)};
}

/** Element i of an array of numbers. */
static float element_of(attn_dtype dtype, const void *p, ptrdiff_t i)
{
    if (dtype == ATTN_F32)
        return ((const float *)p)[i];
    const uint16_t half = ((const uint16_t *)p)[i];
    return dtype == ATTN_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

/** bias[j * width + r] = mask(r, j), in natural units still. */
static void stage_bias(const struct pass *pass, float *bias, const struct strip *strip, const struct attn_grid *mask,
                       int n)
{
    const int width = strip->width, rows = strip->rows, one_row = is_one_row(pass->work, mask);
    ptrdiff_t at[ATTN_MAX_STRIP];
    mask_rows(pass->work, strip, mask, at);
    if (!one_row && mask->key_stride == 1) {
        const char *pointers[ATTN_MAX_STRIP];
        for (int r = 0; r < rows; r++)
            pointers[r] = (const char *)mask->data + at[r] * attn_element_size(mask->dtype);
        pass->vectors->read_rows(bias, width, width, pointers, mask->dtype, rows, n, 1.0f);
        return;
    }
    for (int j = 0; j < n; j++, bias += width)
        for (int r = 0; r < width; r++)
            bias[r] = !one_row && r >= rows ? 0.0f
                      : one_row && r > 0    ? bias[0]
                                            : element_of(mask->dtype, mask->data, at[r] + j * mask->key_stride);
}

/* -------------------------------------------------------- biases by distance -- */

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

int64_t attn_distance_bucket(const struct attn_distance_bias *bias, int64_t distance)
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

float attn_in_base2(float natural)
{
    const float scaled = natural * ATTN_LOG2E;
    return !isfinite(natural) || isfinite(scaled) ? scaled : natural < 0 ? -FLT_MAX : FLT_MAX;
}

static int has_distance_bias(const struct attn_work *work)
{
    return work->distance_bias.slopes || work->distance_bias.table;
}

/** row[t] becomes the bias of a head, in base 2, for a query that stands first + t behind its key, for n of them. */
static void stage_distance_bias(const struct attn_work *work, int64_t head, int64_t first, int n, float *row)
{
    const struct attn_distance_bias *bias = &work->distance_bias;
    const float *const table = bias->table ? bias->table + head * bias->buckets : NULL;
    const float given = bias->slopes ? bias->slopes[head] : 0.0f;
    const double slope = -(double)given * ATTN_LOG2E_DOUBLE;
    for (int t = 0; t < n; t++) {
        const int64_t distance = first + t;
        row[t] = given != 0.0f ? (float)(slope * (double)(distance < 0 ? -distance : distance)) : 0.0f;
    }
    for (int t = 0; table && t < n;) {
        const int64_t bucket = attn_distance_bucket(bias, first + t);
        const float natural = table[bucket];
        do /* the far buckets are wide, and asking for one takes a logarithm */
            row[t] += attn_in_base2(natural);
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

/* ------------------------------------------------------------------ the tile -- */

/** Whether some of the rows sees some of n keys. */
static int any_live(const uint8_t *live, ptrdiff_t pitch, int rows, int n)
{
    for (int j = 0; j < n; j++, live += pitch)
        for (int r = 0; r < rows; r++)
            if (live[r])
                return 1;
    return 0;
}

/** Bytes of what a boolean mask and the rules of the run hide. Returns MASK_NONE if that is nothing of a mask. */
static enum attn_mask_kind stage_bytes(const struct pass *pass, const struct strip *strip, int64_t first, int n,
                                       enum run_kind run)
{
    const struct attn_work *work = pass->work;
    const ptrdiff_t pitch = attn_live_pitch(pass->work->kernels->strip);
    uint8_t *live = pass->scratch.live;
    int staged = 0;
    if (work->mask.data) {
        struct attn_grid grid = work->mask;
        grid.data = (uint8_t *)grid.data + first * grid.key_stride;
        const struct extent extent = stage_live(live, pitch, work, strip, grid, n);
        if (!extent.any)
            return MASK_DEAD;
        staged = !extent.all;
    }
    if (!staged && run != RUN_MIXED)
        return MASK_NONE;
    if (!staged)
        memset(live, 1, (size_t)(n * pitch));
    if (run != RUN_WHOLE)
        attn_hide_by_rules(pass, strip, first, n, live, pitch);
    return run == RUN_MIXED && !any_live(live, pitch, strip->rows, n) ? MASK_DEAD : MASK_LIVE;
}

/** bias[j][r], in base 2: an additive mask, or 0, with the bias of the distance added, -inf where bytes say so. */
static enum attn_mask_kind stage_floats(const struct pass *pass, const struct strip *strip, int64_t first, int n,
                                        const float *distances, int bytes)
{
    const struct attn_work *work = pass->work;
    if (work->bias.data) {
        struct attn_grid grid = work->bias;
        grid.data = (char *)grid.data + first * grid.key_stride * attn_element_size(grid.dtype);
        stage_bias(pass, pass->scratch.bias, strip, &grid, n);
    }
    const int sees =
        pass->vectors->join_bias(strip->nv, n, pass->scratch.bias, work->bias.data != NULL, distances,
                                 bytes ? pass->scratch.live : NULL, attn_live_pitch(pass->work->kernels->strip));
    return sees ? MASK_BIAS : MASK_DEAD;
}

/**
 * The same where heads are together: each has its own bias of the distance, added to what floats hold then. No run of
 * such a strip is one of distances, so nothing is hidden by them.
 */
static enum attn_mask_kind stage_heads(const struct pass *pass, const struct strip *strip, int64_t first, int n,
                                       int bytes)
{
    const struct attn_work *work = pass->work;
    const struct attn_view *view = &work->view;
    const int width = strip->width;
    const int64_t token = token_in(view, strip, 0);
    const int distances = (int)(token_in(view, strip, strip->rows - 1) - token) + n;
    float *const row = pass->scratch.distances, *const bias = pass->scratch.bias;
    int sees = 0;
    if (stage_floats(pass, strip, first, n, NULL, bytes) == MASK_DEAD)
        return MASK_DEAD;
    for (int begin = 0; begin < view->heads && begin < strip->rows; begin++) { /* the first lane of a head */
        stage_distance_bias(work, head_of(view, query_of(strip, begin)), view->position + token - first - n + 1,
                            distances, row);
        for (int r = begin; r < strip->rows; r += (int)view->heads) {
            const float *const own = row + (token_in(view, strip, r) - token) + n - 1;
            for (int j = 0; j < n; j++) {
                float *const sum = bias + (ptrdiff_t)j * width + r;
                if (*sum != -INFINITY) /* nothing may undo that */
                    *sum = own[-j] == -INFINITY ? -INFINITY : *sum + own[-j];
                sees |= !(*sum == -INFINITY);
            }
        }
    }
    return sees ? MASK_BIAS : MASK_DEAD;
}

struct attn_tile_mask attn_mask_of(const struct pass *pass, const struct strip *strip, int64_t first, int n,
                                   enum run_kind run)
{
    const struct attn_work *work = pass->work;
    const int64_t row = strip->first - first; /* less the first key */
    const int width = strip->width;
    float *distances = pass->scratch.distances;
    struct attn_tile_mask mask = {.diagonal = row + work->view.diagonal,
                                  .live = pass->scratch.live,
                                  .live_pitch = attn_live_pitch(pass->work->kernels->strip),
                                  .bias = pass->scratch.bias,
                                  .bias_pitch = width};
    mask.kind = stage_bytes(pass, strip, first, n, run);
    if (mask.kind == MASK_DEAD)
        return mask;
    const int biased = has_distance_bias(work), bytes = mask.kind == MASK_LIVE;
    if (biased && work->view.heads > 1) {
        mask.kind = stage_heads(pass, strip, first, n, bytes);
        return mask;
    }
    const int by_distance = !bytes && (run == RUN_DISTANCE || (run == RUN_DIAGONAL && (biased || work->bias.data)));
    if (biased || by_distance) {
        stage_distance_bias(work, 0, work->view.position + row - n + 1, width + n - 1, distances);
        if (by_distance)
            hide_distances(work, row - n + 1, width + n - 1, distances);
        if (!bytes && !work->bias.data) {
            mask.kind = MASK_BIAS;
            mask.bias = distances + n - 1;
            mask.bias_pitch = -1;
            return mask;
        }
    }
    if (work->bias.data || biased)
        mask.kind = stage_floats(pass, strip, first, n, biased || by_distance ? distances : NULL, bytes);
    else if (!bytes && run == RUN_DIAGONAL)
        mask.kind = MASK_DIAGONAL;
    return mask;
}
