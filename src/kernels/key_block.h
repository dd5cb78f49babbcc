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
    const char *k, *v; /**< rows of the block's first key, of which only those of lo..hi-1 are there */
    ptrdiff_t k_stride, v_stride;
    int64_t first;
    int size;
    int lo, hi;   /**< keys that some strip sees; lo is a multiple of RUN_STEP */
    int v_finite; /**< -1: not looked at yet */
};

/** What the scores of a tile, as they leave it, are to be multiplied by. */
static const float *score_factor(const struct attn_scratch *scratch, const struct strip *strip, const struct mask *mask)
{
    return mask->whole ? scratch->ones : strip->factor;
}

/**
 * Scores of the keys of a run against a strip, with their mask; max[lane]
 * becomes their maximum. Where the mask says MASK_DEAD nothing is computed.
 */
static struct mask tile_scores(attn_exp exp, const struct attn_work *work, const struct attn_scratch *scratch,
                               const struct strip *strip, const struct key_block *keys, const struct run *run,
                               float *max)
{
    const int n = run->hi - run->lo, terms = has_score_terms(work);
    const int64_t first = keys->first + run->lo;
    struct mask mask = stage_mask(work, scratch, strip, first, n, run->kind);
    if (mask.kind == MASK_DEAD)
        return mask;
    mask.whole = !RAW_SCORES || mask.kind == MASK_BIAS || terms;
    const struct mask none = {MASK_NONE, 0, NULL, NULL, 0, 0};
    /* Member by member: gcc 12 zeroes a whole struct by stores that want more alignment than its sanitized stack has.
     */
    struct score_operands operands;
    operands.q = strip->q;
    operands.k = keys->k + run->lo * keys->k_stride;
    operands.k_stride = keys->k_stride;
    operands.words = channel_words(work->dk);
    operands.mask = terms ? &none : &mask;
    operands.factor = strip->factor;
    operands.k_scale = scratch->k_scale + run->lo;
    operands.start = scratch->k_start + run->lo;
    operands.s = scratch->s;
    /* The first strip to see this block asks for what comes next: its V, and the block of K behind it. */
    const int64_t next = first + scratch->key_block, next_values = scratch->v ? next : first;
    operands.next[0] = work->v;
    operands.next[0].data =
        strip->first == 0 && next_values + n <= work->num_keys ? row_at(&work->v, next_values) : NULL;
    operands.next_width[0] = work->dv;
    operands.next[1] = work->k;
    operands.next[1].data = strip->first == 0 && next + n <= work->num_keys ? row_at(&work->k, next) : NULL;
    operands.next_width[1] = work->dk;
    score_tile(strip->nv, &operands, n, max);
    if (terms)
        apply_score_terms(exp, work, scratch, strip, &mask, first, operands.k, keys->k_stride, n, max);
    const float *factor = score_factor(scratch, strip, &mask);
    for (int i = 0; RAW_SCORES && i < strip->nv * VF_LEN; i += VF_LEN)
        vf_store(max + i, vf_mul(vf_load(max + i), vf_load(factor + i)));
    return mask;
}

/** Copies keys lo..hi-1 of a block, where scratch has room for a copy, and rotates them where that is asked for. */
static void copy_keys(const struct attn_work *work, const struct attn_scratch *scratch, struct key_block *keys)
{
    const struct attn_rotations *by = &work->rotations;
    const int step = by->k.data && VS_PACK != 1 ? VF_LEN : keys->hi - keys->lo; /* rows that are rotated at a time */
    for (int at = keys->lo; at < keys->hi; at += step) {
        const int n = keys->hi - at < step ? keys->hi - at : step;
        struct attn_rows rows = {row_at(&work->k, keys->first + at), work->k.stride, work->k.dtype};
        if (by->k.data) /* floats go where they are wanted */
            rows = rotated_rows(by, &by->k, keys->first + at, &rows, n, work->dk,
                                VS_PACK == 1 ? scratch->k + at * (ptrdiff_t)work->dk : scratch->rotated);
        if (!by->k.data || VS_PACK != 1)
            pack_keys(scratch, &rows, at, n, work->dk);
    }
    keys->k = (const char *)scratch->k;
    keys->k_stride = channel_words(work->dk) * WORD;
}

/** The block of keys of a span, of which keys lo..hi-1 are wanted. */
static struct key_block key_block_at(const struct attn_work *work, const struct attn_scratch *scratch,
                                     const struct span *span, int lo, int hi, const int with_values)
{
    struct key_block keys = {.k = row_at(&work->k, span->first),
                             .v = row_at(&work->v, span->first),
                             .k_stride = work->k.stride,
                             .v_stride = work->v.stride,
                             .first = span->first,
                             .size = span->size,
                             .lo = lo,
                             .hi = hi,
                             .v_finite = -1};
    if (scratch->k)
        copy_keys(work, scratch, &keys);
    if (scratch->v && with_values) {
        const struct attn_rows rows = {row_at(&work->v, span->first + lo), work->v.stride, work->v.dtype};
        pack_values(scratch->v + lo / VF_PACK * (ptrdiff_t)work->dv, &rows, hi - lo, work->dv);
        keys.v = (const char *)scratch->v;
        keys.v_stride = work->dv * WORD;
    }
    return keys;
}

#endif
