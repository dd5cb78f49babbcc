/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact attention of one block of queries, by an online softmax over blocks of
 * keys (Milakov & Gimelshein 2018, "Online normalizer calculation for
 * softmax", algorithm 3; Dao et al. 2022, "FlashAttention", algorithm 1).
 *
 *   Q^T of every strip is made once.
 *   for each block of keys, at fixed positions
 *       for each strip of queries, and each run of keys that it sees (visible.h)
 *           S = K Q^T;  m' = max(m, max S);  P = 2^(S - m')
 *           l = l 2^(m - m') + sum P;        O = O 2^(m - m') + V^T P
 *   out = (O / l)^T;  lse = m ln 2 + ln l
 *
 * Scores are in base 2: scale * log2(e) goes into Q. All of m, l, S, P, O have
 * a query per lane, so no step sums across lanes, and a lane's bits depend on
 * its own query alone: rescaling by 2^0 and adding a masked key's 0 * V change
 * nothing, and the blocks' borders lie at fixed distances from key 0.
 *
 * Budget on AVX-512, d = 64: S tile 24 KiB and Q^T strip 12 KiB in L1; K and V
 * blocks, O and Q^T of the whole query block in L2.
 */
#ifndef ATTN_FORWARD_H
#define ATTN_FORWARD_H

#include <assert.h>

/** Takes the maxima of a new tile into m and l, and says how O goes on; alpha is set for ACCUMULATE_RESCALE. */
ATTN_INLINE enum accumulate update_maximum(const attn_exp exp, struct strip *strip, const float *max, float *alpha)
{
    const int width = strip->nv * VF_LEN;
    if (!strip->started) {
        for (int i = 0; i < width; i += VF_LEN) {
            vf_store(strip->m + i, vf_load(max + i));
            vf_store(strip->l + i, vf_zero());
        }
        strip->started = 1;
        return ACCUMULATE_FIRST;
    }
    int grew = 0;
    for (int i = 0; i < width; i += VF_LEN)
        grew |= vm_any(vf_gt(vf_load(max + i), vf_load(strip->m + i)));
    if (!grew)
        return ACCUMULATE_ADD;
    for (int i = 0; i < width; i += VF_LEN) {
        const vf old = vf_load(strip->m + i), m = vf_max(vf_load(max + i), old);
        const vf a = exp2_of(exp, vf_sub(old, softmax_base(m)));
        vf_store(alpha + i, a);
        vf_store(strip->m + i, m);
        vf_store(strip->l + i, vf_mul(vf_load(strip->l + i), a));
    }
    return ACCUMULATE_RESCALE;
}

/** One step of the online softmax: adds the keys of a run to a strip. */
ATTN_INLINE void strip_step(const attn_exp exp, const struct attn_work *work, const struct attn_scratch *scratch,
                            struct strip *strip, struct key_block *keys, const struct run *run)
{
    float max[STRIP] __attribute__((aligned(ATTN_ALIGN)));
    float alpha[STRIP] __attribute__((aligned(ATTN_ALIGN)));
    float sum[STRIP] __attribute__((aligned(ATTN_ALIGN)));
    const int n = run->hi - run->lo;
    const struct mask mask = tile_scores(exp, work, scratch, strip, keys, run, max);
    if (mask.kind == MASK_DEAD)
        return;
    const enum accumulate mode = update_maximum(exp, strip, max, alpha);
    int ends[VF_STRIP] = {0}; /* keys that some lane of a vector sees */
    for (int v = 0; v < strip->nv; v++)
        ends[v] = mask.kind == MASK_DIAGONAL ? visible_before(mask.diagonal, (v + 1) * VF_LEN, n) : n;
    make_weights(strip->nv, exp, strip->m, ends, n, score_factor(scratch, strip, &mask), scratch->s, sum);
    for (int i = 0; i < strip->nv * VF_LEN; i += VF_LEN)
        vf_store(strip->l + i, vf_add(vf_load(strip->l + i), vf_load(sum + i)));
    if (work->drop.wanted)
        drop_weights(VF_PACK, work, strip, keys->first + run->lo, n, scratch->s);

    /* Without a mask the strip sees all keys of the run; a word behind an odd end may hold one that it does not. */
    const char *v = keys->v + run->lo / VF_PACK * keys->v_stride;
    const int hides = mask.kind != MASK_NONE || (n % VF_PACK && run->hi < keys->hi);
    if (hides && keys->v_finite < 0)
        keys->v_finite = values_finite(keys->v + keys->lo / VF_PACK * keys->v_stride, keys->v_stride,
                                       (int)key_words(keys->hi - keys->lo), work->dv);
    if (hides && !keys->v_finite) {
        value_tile_masked(strip->nv, &mask, scratch->s, v, keys->v_stride, work->dv, n, strip->o, mode, alpha);
        return;
    }
    for (int i = 0; i < strip->nv; i++)
        ends[i] = (int)key_words(ends[i]);
    value_tile(strip->nv, scratch->s, v, keys->v_stride, work->dv, ends, strip->o, mode, alpha);
}

/** Makes a strip begin with the sink, as if it were a key whose value is 0. */
static void start_with_sink(const struct attn_work *work, struct strip *strip)
{
    if (work->sink == -INFINITY)
        return;
    for (int i = 0; i < strip->nv * VF_LEN; i += VF_LEN) {
        vf_store(strip->m + i, vf_sub(vf_set1(in_base2(work->sink)), score_shift(strip, i)));
        vf_store(strip->l + i, vf_set1(1.0f));
    }
    memset(strip->o, 0, (size_t)(strip->nv * VF_LEN * work->dv) * sizeof *strip->o);
    strip->started = 1;
}

/** Writes a strip's rows of out and lse; leaves 1/l (0 without a live key), with the scale of dropout, in inverse. */
static void finish_strip(const struct attn_work *work, const struct strip *strip, float *inverse)
{
    float lse[STRIP] __attribute__((aligned(ATTN_ALIGN)));
    for (int i = 0; i < strip->nv * VF_LEN; i += VF_LEN) {
        const vf l = strip->started ? vf_load(strip->l + i) : vf_zero();
        const vf m = strip->started ? vf_load(strip->m + i) : vf_set1(-INFINITY);
        const vm empty = vf_eq(l, vf_zero());
        const vf one = query_validity(strip, i);
        vf inv = vf_select(empty, vf_zero(), vf_div(one, l));
        if (work->drop.wanted)
            inv = vf_mul(inv, vf_set1(work->drop.keep_scale));
        vf_store(inverse + i, inv);
        if (work->lse) {
            const vf base2 = vf_add(m, score_shift(strip, i));
            vf_store(lse + i,
                     vf_select(empty, vf_set1(-INFINITY), vf_mul(one, vf_fma(base2, vf_set1(LN2), vf_log(l)))));
        }
    }
    for (int r = 0; work->lse && r < strip->rows; r++)
        work->lse[(strip->first + r) * work->lse_stride] = lse[r];
    const struct attn_rows out = {row_at(&work->out, strip->first), work->out.stride, work->out.dtype};
    if (strip->started) {
        transpose_out(&out, strip->o, strip->nv * VF_LEN, strip->rows, work->dv, inverse);
    } else {
        for (int r = 0; r < strip->rows; r++)
            memset(row_at(&out, r), 0, (size_t)(work->dv * row_element(out.dtype)));
    }
}

/** The queries of all strips, made ready; returns the number of strips. */
static int64_t start_strips(const struct attn_work *work, const struct attn_scratch *scratch, struct strip *strips)
{
    const int64_t num_strips = attn_num_strips(STRIP, VF_LEN, work->segment, work->num_queries);
    assert(num_strips <= ATTN_MAX_STRIPS);
    prefetch_rows(&work->q, 0, work->num_queries < STRIP ? work->num_queries : STRIP, work->dk, 0);
    for (int64_t i = 0; i < num_strips; i++) {
        strips[i] = strip_at(work, scratch, i);
        const int64_t behind = strips[i].first + 2 * STRIP;
        prefetch_rows(&work->q, strips[i].first + STRIP, behind < work->num_queries ? behind : work->num_queries,
                      work->dk, 0);
        pack_queries(work, scratch, &strips[i]);
        start_with_sink(work, &strips[i]);
    }
    return num_strips;
}

ATTN_INLINE void forward_body(const attn_exp exp, const struct attn_work *work)
{
    struct attn_scratch scratch;
    struct strip strips[ATTN_MAX_STRIPS];
    struct run runs[ATTN_MAX_STRIPS];
    assert((uintptr_t)work->scratch % ATTN_ALIGN == 0);
    assert(work->num_queries > 0);
    const struct attn_scratch_shape shape = attn_scratch_shape_of(
        &VF_NAME(attn_kernels), attn_num_strips(STRIP, VF_LEN, work->segment, work->num_queries), work->dk, work->dv,
        work->k.dtype, work->v.dtype, work->rotations.q.data != NULL, has_relative(work));
    attn_scratch_layout(&scratch, work->scratch, &shape);
    for (int i = 0; i < STRIP; i++)
        scratch.ones[i] = 1.0f;
    survey_keys(work, &scratch);

    const int64_t num_strips = start_strips(work, &scratch, strips), end = visible_end(work);
    for (int64_t first = next_block(work, 0, scratch.key_block); first < end;
         first = next_block(work, first + scratch.key_block, scratch.key_block)) {
        const struct span span =
            span_at(work, first, (int)(end - first < scratch.key_block ? end - first : scratch.key_block));
        int lo = span.size, hi = 0;
        for (int64_t i = 0; i < num_strips; i++) {
            if (!next_run(work, &strips[i], &span, 0, &runs[i])) {
                runs[i].lo = runs[i].hi = span.size;
                continue;
            }
            /* A pattern may have more runs behind this one. */
            const int last = work->view.block_size ? span.size : runs[i].hi;
            lo = runs[i].lo < lo ? runs[i].lo : lo;
            hi = last > hi ? last : hi;
        }
        if (lo >= hi)
            continue;
        struct key_block keys = key_block_at(work, &scratch, &span, lo, hi, 1);
        for (int64_t i = 0; i < num_strips; i++) {
            if (first + scratch.key_block >= end) /* the last block: its strips' rows of out are written next */
                prefetch_rows(&work->out, strips[i].first, strips[i].first + strips[i].rows, work->dv, 1);
            int more = runs[i].lo < runs[i].hi;
            while (more) {
                strip_step(exp, work, &scratch, &strips[i], &keys, &runs[i]);
                more = work->view.block_size && next_run(work, &strips[i], &span, runs[i].hi, &runs[i]);
            }
        }
    }
    float inverse[STRIP] __attribute__((aligned(ATTN_ALIGN)));
    for (int64_t i = 0; i < num_strips; i++) {
        finish_strip(work, &strips[i], inverse);
        strip_weights(exp, work, &scratch, &strips[i], inverse);
    }
}

#endif
