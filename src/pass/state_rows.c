/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of linear attention on their way in and out: q and k as floats or as their
 * features, values, decays, and what is written.
 *
 * Positive features of a key are e^(w·x - x·x / 2), up to e^60, and those of a query
 * e^(w·x - the largest of these): what a query's are multiplied by cancels when its row
 * is divided by the sum of its weights. So no feature depends on other tokens, and none
 * overflows. The bound is met only where x is nearly as long as w and points the same way.
 */
#include "pass/states.h"

#include "kernels/element.h"

#include <float.h>
#include <math.h>
#include <string.h>

void attn_state_begin_features(const struct attn_state_work *w)
{
    const struct attn_state_shape *shape = w->shape;
    const struct attn_state_scratch *scratch = w->scratch;
    if (shape->map != ATTN_FEATURES_POSITIVE)
        return;
    const int64_t pitch = attn_state_pitch(shape);
    for (int64_t i = 0; i < shape->dk; i += ATTN_CHUNK) {
        const int n = shape->dk - i < ATTN_CHUNK ? (int)(shape->dk - i) : ATTN_CHUNK;
        const char *at[ATTN_CHUNK];
        for (int r = 0; r < n; r++)
            at[r] = (const char *)w->projection.data + (i + r) * w->projection.stride;
        w->kernels->vectors->read_rows(scratch->projection + i, pitch, (int)attn_in_steps(n, shape->lanes), at,
                                       ATTN_F32, n, shape->inputs, sqrtf(w->scale));
    }
}

/** Positive features of n rows. */
static void project(const struct attn_state_work *w, const struct attn_rows *rows, int n, int keys, float *room)
{
    const struct attn_state_kernels *states = w->kernels->states;
    const struct attn_state_scratch *scratch = w->scratch;
    const int64_t inputs = w->shape->inputs, pitch = attn_state_pitch(w->shape);
    const float *x = rows->data;
    ptrdiff_t x_pitch = rows->stride / (ptrdiff_t)sizeof(float);
    if (rows->dtype != ATTN_F32) {
        states->take_rows(scratch->inputs, inputs, rows, n, inputs, 1.0f);
        x = scratch->inputs;
        x_pitch = (ptrdiff_t)inputs;
    }
    const struct attn_chunk_scores products = {.n = n,
                                               .keys = (int)pitch,
                                               .dk = inputs,
                                               .a = x,
                                               .a_pitch = x_pitch,
                                               .kt = scratch->projection,
                                               .kt_pitch = pitch,
                                               .to = room,
                                               .to_pitch = pitch};
    states->scores(&products);
    if (keys)
        w->kernels->vectors->dot_rows(scratch->half, rows, rows, n, inputs);
    for (int i = 0; i < n && keys; i++)
        scratch->half[i] *= 0.5f * w->scale;
    states->features(&(struct attn_features){
        .rows = room, .pitch = pitch, .n = n, .m = w->shape->dk, .positive = 1, .half = keys ? scratch->half : NULL});
}

struct attn_floats attn_state_floats(const struct attn_state_work *w, const struct attn_rows *rows, int n, int keys,
                                     float *room)
{
    const struct attn_state_kernels *states = w->kernels->states;
    const int64_t dk = w->shape->dk, pitch = attn_state_pitch(w->shape);
    if (w->shape->map == ATTN_FEATURES_NONE && rows->dtype == ATTN_F32)
        return (struct attn_floats){rows->data, rows->stride / (ptrdiff_t)sizeof(float)};
    if (w->shape->map == ATTN_FEATURES_POSITIVE)
        project(w, rows, n, keys, room);
    else
        states->take_rows(room, pitch, rows, n, dk, 1.0f);
    if (w->shape->map == ATTN_FEATURES_ELU)
        states->features(&(struct attn_features){.rows = room, .pitch = pitch, .n = n, .m = dk});
    return (struct attn_floats){room, (ptrdiff_t)pitch};
}

void attn_state_values(const struct attn_state_work *w, const struct attn_rows *v, int n, int64_t start, int64_t width,
                       float *to)
{
    const int64_t left = w->values > start ? w->values - start : 0, own = left < width ? left : width;
    const int64_t written = attn_in_steps(own, w->shape->lanes), sums = w->columns - 1 - start;
    struct attn_rows columns = *v;
    columns.data = (char *)v->data + start * attn_element_size(v->dtype);
    if (own > 0)
        w->kernels->states->take_rows(to, width, &columns, n, own, w->written_scale);
    for (int i = 0; i < n && written < width; i++)
        memset(to + i * width + written, 0, (size_t)(width - written) * sizeof(float));
    if (w->columns > w->values && sums >= 0 && sums < width)
        for (int i = 0; i < n; i++)
            to[i * width + sums] = 1.0f;
}

/** n rows whose elements are step apart. */
static void gather(float *to, const struct attn_rows *rows, int n, int64_t width, ptrdiff_t step)
{
    for (int i = 0; i < n; i++) {
        const void *const row = (const char *)rows->data + i * rows->stride;
        for (int64_t c = 0; c < width; c++)
            *to++ = element_at(rows->dtype, row, c * step);
    }
}

/**
 * Factors of channels start.. of n tokens: pitch floats a token, of which what is behind channels holds 1 up to whole
 * vectors. room is for as many.
 */
static void take_factors(const struct attn_state_work *w, int64_t first, int n, int64_t start, int64_t channels,
                         float *to, int64_t pitch, float *room)
{
    struct attn_rows decay = attn_rows_from(&w->decay, first);
    decay.data = (char *)decay.data + start * w->decay_channel * attn_element_size(decay.dtype);
    if (w->decay_channel != 1 && channels > 1) {
        gather(room, &decay, n, channels, w->decay_channel);
        decay = (struct attn_rows){room, (ptrdiff_t)channels * ATTN_WORD, ATTN_F32, NULL, 0};
    }
    w->kernels->states->take_decays(to, (ptrdiff_t)pitch, &decay, n, channels);
}

/** Factors of n tokens that have one each, side by side. */
static void take_numbers(const struct attn_state_work *w, int64_t first, int n, float *to)
{
    const struct attn_state_kernels *states = w->kernels->states;
    const struct attn_rows decay = attn_rows_from(&w->decay, first), together = {to, 0, ATTN_F32, NULL, 0};
    states->take_rows(to, 1, &decay, n, 1, 1.0f);
    states->take_decays(to, 0, &together, 1, n);
}

/** Tokens of a chunk before which S has not faded yet: the first one of the way back has none behind it. */
static int begins_whole(const struct attn_state_work *w, int64_t first)
{
    return w->backwards && first == 0;
}

void attn_state_take_decays(const struct attn_state_work *w, int64_t first, int n)
{
    const int64_t width = w->shape->rows ? w->shape->dk : 1;
    const int whole = begins_whole(w, first), behind = w->backwards && !whole;
    float *const to = w->scratch->decay;
    for (int64_t c = 0; c < width && whole; c++)
        to[c] = 1.0f;
    if (n - whole == 0)
        return;
    if (w->shape->rows)
        take_factors(w, first - behind, n - whole, 0, width, to + whole * width, width, w->scratch->faded);
    else
        take_numbers(w, first - behind, n - whole, to + whole);
}

void attn_state_take_fades(const struct attn_state_work *w, int64_t first, int n, int64_t start, int64_t width)
{
    const int whole = begins_whole(w, first), behind = w->backwards && !whole;
    const int64_t left = w->columns - start;
    float *const to = w->scratch->fades;
    for (int64_t c = 0; c < width && whole; c++)
        to[c] = 1.0f;
    if (n - whole == 0)
        return;
    if (w->decay_channels > 1) {
        take_factors(w, first - behind, n - whole, start, left < width ? left : width, to + whole * width, width,
                     w->scratch->room);
        return;
    }
    float numbers[2 * ATTN_CHUNK]; /* those of a chunk, and up to a vector behind them */
    take_numbers(w, first - behind, n - whole, numbers);
    for (int i = whole; i < n; i++)
        for (int64_t c = 0; c < width; c++)
            to[i * width + c] = numbers[i - whole];
}

void attn_state_write_out(const struct attn_state_work *w, int head, int64_t first, int n, int64_t start, int64_t width,
                          const float *o, float *sums)
{
    const int64_t left = w->results > start ? w->results - start : 0, own = left < width ? left : width;
    const int64_t sum = w->columns - 1 - start;
    for (int i = 0; i < n && w->shape->normalises && sum < width; i++)
        sums[i] = o[i * width + sum];
    if (own <= 0)
        return;
    char *row =
        (char *)w->out.data + head * w->out_head + first * w->out.stride + start * attn_element_size(w->out.dtype);
    for (int i = 0; i < n; i++, row += w->out.stride) {
        const int vanishes = w->shape->normalises && fabsf(sums[i]) < FLT_MIN; /* a NaN does not */
        const float factor = !w->shape->normalises ? w->scale : vanishes ? 0.0f : 1.0f / sums[i];
        if (!w->adds) {
            w->kernels->vectors->write_few(&row, w->out.dtype, o + i * width, 1, own, &factor);
            continue;
        }
        float *const to = (float *)(void *)row;
        for (int64_t c = 0; c < own; c++)
            to[c] += factor * o[i * width + c];
    }
}
