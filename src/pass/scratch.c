/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a thread's scratch memory. */
#include "pass/scratch.h"

/* Bytes that the copies of a block of K and V, and rotated rows, may have; larger heads have smaller blocks. */
#define COPY_LIMIT (256 * 1024)

/* The same of the blocks of keys that are there at once. */
#define STRETCH_LIMIT (512 * 1024)

_Static_assert(ATTN_SPLIT_KEYS % ATTN_KEY_BLOCK == 0, "no block of keys lies in two splits");

static int64_t copied_bytes(const struct attn_scratch_shape *shape)
{
    return 4 * ((shape->copies_keys ? shape->key_block * shape->channel_words : 0) +
                (shape->copies_values ? shape->key_words * shape->value_channels : 0) +
                (shape->rotates ? shape->lanes * shape->dk : 0));
}

struct attn_scratch_shape attn_scratch_shape_of(const struct attn_kernels *kernels, int64_t strips, int64_t dk,
                                                int64_t dv, int64_t keys_at_most, attn_dtype k, attn_dtype v,
                                                int rotates, int relative, int paged)
{
    const int channels = kernels->scores->channels_per_word, keys = kernels->values->keys_per_word;
    struct attn_scratch_shape shape = {
        .strips = strips,
        .strip = kernels->strip,
        .lanes = kernels->vectors->lanes,
        .key_block = 2 * ATTN_KEY_BLOCK,
        .dk = dk,
        .dv = dv,
        .value_channels = attn_value_channels(kernels->values, dv),
        .channel_words = attn_channel_words(kernels->scores, dk),
        .copies_values = !kernels->exact_pairs && (keys != 1 || v != ATTN_F32),
        .int4 = kernels->exact_pairs && k == ATTN_I4,
        .zero_row = attn_is_quantised(v) ? attn_zero_row_size(dv) : 0,
        .int8 = kernels->scores->int8,
        .raw = kernels->scores->raw,
        .rotates = rotates,
        .relative = relative,
    };
    shape.copies_keys =
        kernels->exact_pairs ? 0
        : channels == 1      ? k != ATTN_F32 || rotates
                        : kernels->scores->int8 || k != ATTN_BF16 || rotates || shape.channel_words * channels != dk;
    const int row_step = kernels->scores->row_step, key_step = kernels->values->key_step;
    const int least = row_step > key_step ? row_step : key_step > 8 ? key_step : 8;
    do {
        shape.key_block /= 2;
        shape.key_words = (shape.key_block + keys - 1) / keys;
    } while (shape.key_block > least && copied_bytes(&shape) > COPY_LIMIT);
    /* A strip goes over several blocks while its own rows stay in the nearest cache. */
    shape.walks = kernels->scores->walk && shape.key_block == ATTN_KEY_BLOCK;
    shape.blocks = 1;
    shape.joins = keys_at_most > ATTN_SPLIT_KEYS;
    while (shape.walks && shape.blocks < ATTN_MAX_STRETCH && shape.blocks * shape.key_block < keys_at_most &&
           2 * shape.blocks * copied_bytes(&shape) <= STRETCH_LIMIT)
        shape.blocks *= 2;
    if (paged) { /* beside the limits: they may not move the borders of blocks */
        shape.piece_k = (shape.copies_keys ? 1 : shape.blocks) * shape.key_block * attn_row_bytes(k, dk);
        shape.piece_v = shape.key_block * attn_row_bytes(v, dv);
        const int64_t k_scales = attn_row_scales(k, dk), v_scales = attn_row_scales(v, dv);
        shape.piece_scales = shape.key_block * (k_scales > v_scales ? k_scales : v_scales);
    }
    return shape;
}

size_t attn_scratch_layout(struct attn_scratch *scratch, void *base, const struct attn_scratch_shape *shape)
{
    const int64_t strips = shape->strips, strip = shape->strip, key_block = shape->key_block;
    const int64_t dk = shape->dk;
    /* Where a strip goes over a whole split before the next strip does, one has all that is at work. */
    const int64_t next_strips = !shape->joins ? 0 : shape->blocks * key_block >= ATTN_SPLIT_KEYS ? 1 : strips;
    size_t used = 0;
#define TAKE(member, count) scratch->member = attn_take(base, &used, count, sizeof *scratch->member)
    TAKE(s, key_block * strip);
    TAKE(p, shape->walks ? shape->key_words * strip : 0);
    TAKE(reach, shape->walks ? strips * strip : 0);
    TAKE(m, strips * strip);
    TAKE(l, strips * strip);
    TAKE(next_m, next_strips * strip);
    TAKE(next_l, next_strips * strip);
    TAKE(factor, shape->raw ? strips * strip : 0);
    TAKE(validity, shape->int8 ? strips * strip : 0);
    TAKE(shift, shape->int8 ? strips * strip : 0);
    const int64_t row = shape->int8 ? (dk + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN : 0;
    TAKE(int8.mean, row);
    TAKE(int8.row, row);
    TAKE(int8.zeros, row);
    TAKE(int8.bytes, shape->lanes * row);
    TAKE(k_scale, shape->int8 ? shape->blocks * key_block : 0);
    TAKE(k_start, shape->int8 ? shape->blocks * key_block : 0);
    TAKE(q, strips * strip * shape->channel_words + (shape->int4 ? shape->lanes * attn_int4_words(dk) : 0));
    TAKE(o, strips * strip * shape->value_channels);
    TAKE(next_o, next_strips * strip * shape->value_channels);
    TAKE(k, shape->copies_keys ? shape->blocks * key_block * shape->channel_words + ATTN_ALIGN
                               : 0); /* rows end in whole vectors */
    TAKE(v, shape->copies_values ? shape->blocks * shape->key_words * shape->value_channels : 0);
    TAKE(bias, key_block * strip);
    TAKE(distances, strip + key_block);
    TAKE(rotated, shape->rotates ? shape->lanes * dk : 0);
    TAKE(relative_rows, shape->relative ? strip * dk : 0);
    TAKE(relative_q, shape->relative ? dk * strip : 0);
    TAKE(relative_s, shape->relative ? (strip + key_block) * strip : 0);
    TAKE(live, key_block * attn_live_pitch(strip));
    TAKE(piece_k, shape->piece_k);
    TAKE(piece_v, shape->piece_v);
    TAKE(piece_scales, shape->piece_scales);
    TAKE(zero_row, shape->zero_row);
#undef TAKE
    scratch->key_block = (int)key_block;
    scratch->blocks = (int)shape->blocks;
    scratch->next_strips = (int)next_strips;
    if (!shape->joins)
        scratch->next_o = scratch->next_m = scratch->next_l = NULL;
    if (!shape->walks)
        scratch->p = scratch->reach = NULL;
    if (!shape->raw)
        scratch->factor = NULL;
    if (!shape->int8)
        scratch->validity = scratch->shift = NULL;
    if (!shape->copies_keys)
        scratch->k = NULL;
    if (!shape->copies_values)
        scratch->v = NULL;
    return used;
}
