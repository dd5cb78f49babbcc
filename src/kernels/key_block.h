/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of keys, as the tiles want it, and its scores against a strip.
 *
 * K and V of f32 are read where they lie. Rows that are a multiple of some KiB apart
 * share few sets of the L1 cache, but a row's elements are broadcast one after
 * the other, and what comes from L2 is hidden behind the multiply-adds: copying
 * such blocks was measured to cost more than it gains (docs/performance.md).
 * Other types are made into words once per block of keys and queries.
 */
#ifndef ATTN_KEY_BLOCK_H
#define ATTN_KEY_BLOCK_H

/** A block of keys: rows of words of K and of V. */
struct key_block {
    const char *k, *v;
    ptrdiff_t k_stride, v_stride;
    int64_t first;
    int size;
    int v_finite; /**< -1: not looked at yet */
};

/** What the scores of a tile, as they leave it, are to be multiplied by: those with a bias are whole. */
static const float *score_factor(const struct attn_scratch *scratch, const struct strip *strip, enum mask_kind kind)
{
    return kind == MASK_BIAS ? scratch->ones : strip->factor;
}

/**
 * Scores of n keys of a block against a strip, with their mask; max[lane]
 * becomes their maximum. Where the mask says MASK_DEAD nothing is computed.
 */
static struct mask tile_scores(const struct attn_work *work, const struct attn_scratch *scratch,
                               const struct strip *strip, const struct key_block *keys, int n, float *max)
{
    const struct mask mask = stage_mask(work, scratch, strip->nv * VF_LEN, strip->first, strip->rows, keys->first, n);
    if (mask.kind == MASK_DEAD)
        return mask;
    /* Member by member: gcc 12 zeroes a whole struct by stores that want more alignment than its sanitized stack has.
     */
    struct score_operands operands;
    operands.q = strip->q;
    operands.k = keys->k;
    operands.k_stride = keys->k_stride;
    operands.words = channel_words(work->dk);
    operands.mask = &mask;
    operands.factor = strip->factor;
    operands.k_scale = scratch->k_scale;
    operands.start = scratch->k_start;
    operands.s = scratch->s;
    /* The first strip to see this block asks for what comes next: its V, and the block of K behind it. */
    const int64_t next = keys->first + scratch->key_block, next_values = scratch->v ? next : keys->first;
    operands.next[0] = work->v;
    operands.next[0].data =
        strip->first == 0 && next_values + n <= work->num_keys ? row_at(&work->v, next_values) : NULL;
    operands.next_width[0] = work->dv;
    operands.next[1] = work->k;
    operands.next[1].data = strip->first == 0 && next + n <= work->num_keys ? row_at(&work->k, next) : NULL;
    operands.next_width[1] = work->dk;
    score_tile(strip->nv, &operands, n, max);
    const float *factor = score_factor(scratch, strip, mask.kind);
    for (int i = 0; RAW_SCORES && i < strip->nv * VF_LEN; i += VF_LEN)
        vf_store(max + i, vf_mul(vf_load(max + i), vf_load(factor + i)));
    return mask;
}

/** The block of keys that starts at key first; where scratch has room for a copy, one is made. */
static struct key_block key_block_at(const struct attn_work *work, const struct attn_scratch *scratch, int64_t first,
                                     int64_t end, const int with_values)
{
    struct key_block keys = {.k = row_at(&work->k, first),
                             .v = row_at(&work->v, first),
                             .k_stride = work->k.stride,
                             .v_stride = work->v.stride,
                             .first = first,
                             .size = (int)(end - first < scratch->key_block ? end - first : scratch->key_block),
                             .v_finite = -1};
    if (scratch->k) {
        const struct attn_rows rows = {row_at(&work->k, first), work->k.stride, work->k.dtype};
        pack_keys(scratch, &rows, keys.size, work->dk);
        keys.k = (const char *)scratch->k;
        keys.k_stride = channel_words(work->dk) * WORD;
    }
    if (scratch->v && with_values) {
        const struct attn_rows rows = {row_at(&work->v, first), work->v.stride, work->v.dtype};
        pack_values(scratch->v, &rows, keys.size, work->dv);
        keys.v = (const char *)scratch->v;
        keys.v_stride = work->dv * WORD;
    }
    return keys;
}

#endif
