/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to scores beyond the product and a mask: terms by relative
 * position, softcap, a callback. Tiles of calls that ask for one of these are
 * computed without a mask first and passed over once more here, in L1.
 */
#ifndef ATTN_SCORE_TERMS_H
#define ATTN_SCORE_TERMS_H

static int has_score_terms(const struct attn_work *work)
{
    return work->softcap != 0.0f || work->callback || has_relative(work);
}

/** Multiplies raw scores, caps them, and puts the mask on. */
ATTN_INLINE void finish_scores(const enum mask_kind kind, attn_exp exp, const struct attn_work *work,
                               const struct mask *mask, int width, const float *factor, int n, float *s)
{
    const float cap = work->softcap * LOG2E;
    const vf minus_inf = vf_set1(-INFINITY);
    for (int j = 0; j < n; j++) {
        for (int v = 0; v < width / VF_LEN; v++) {
            float *at = s + (ptrdiff_t)j * width + v * VF_LEN;
            vf x = vf_load(at);
            if (RAW_SCORES)
                x = vf_mul(x, vf_load(factor + v * VF_LEN));
            if (work->softcap != 0.0f) {
                const vf y = vf_div(x, vf_set1(cap));
                x = vf_mul(vf_set1(cap), exp == ATTN_EXP_FAST ? vf_tanh_fast(y) : vf_tanh(y));
            }
            if (kind == MASK_BIAS) {
                const vf b = vf_load(mask->bias + j * mask->bias_pitch + v * VF_LEN);
                x = vf_select(vf_eq(b, minus_inf), minus_inf, vf_add(x, b));
            } else if (kind != MASK_NONE) {
                x = vf_select(mask_lanes(kind, mask, width, j, v), x, minus_inf);
            }
            vf_store(at, x);
        }
    }
}

/**
 * After a callback: back to base 2, and hidden again what was hidden. Returns whether a visible score is at -inf now,
 * which hides its key.
 */
ATTN_INLINE int hide_again(const enum mask_kind kind, const struct mask *mask, int nv, int n, float *s)
{
    const vf minus_inf = vf_set1(-INFINITY);
    vf hides = vf_zero();
    for (int j = 0; j < n; j++) {
        for (int v = 0; v < nv; v++) {
            float *at = s + ((ptrdiff_t)j * nv + v) * VF_LEN;
            const vf x = vf_mul(vf_load(at), vf_set1(LOG2E));
            const vm sees = mask_lanes(kind, mask, nv * VF_LEN, j, v);
            hides = vf_select(vf_eq(x, minus_inf), vf_select(sees, vf_set1(1.0f), hides), hides);
            vf_store(at, kind == MASK_NONE ? x : vf_select(sees, x, minus_inf));
        }
    }
    return vm_any(vf_gt(hides, vf_zero()));
}

/** Makes the mask one of bytes: what it shows and the callback has not hidden. */
static void mask_from_scores(const struct attn_scratch *scratch, struct mask *mask, int nv, int n, const float *s)
{
    uint8_t *live = scratch->live;
    for (int j = 0; j < n; j++, live += LIVE_PITCH)
        for (int r = 0; r < nv * VF_LEN; r++)
            live[r] = (uint8_t) !(s[(ptrdiff_t)j * nv * VF_LEN + r] == -INFINITY);
    mask->kind = MASK_LIVE;
}

/** Hands the tile to the caller's function, in natural units. */
static void call_back(const struct attn_work *work, const struct attn_scratch *scratch, const struct strip *strip,
                      struct mask *mask, int64_t first, int n, float *s)
{
    const int width = strip->nv * VF_LEN;
    for (int i = 0; i < n * width; i += VF_LEN)
        vf_store(s + i, vf_mul(vf_load(s + i), vf_set1(LN2)));
    const attn_score_tile tile = {.batch = work->batch,
                                  .head = work->head,
                                  .first_query = work->query_index + strip->first,
                                  .num_queries = strip->rows,
                                  .first_key = work->key_index + first,
                                  .num_keys = n,
                                  .key_stride = width,
                                  .scores = s};
    work->callback(&tile, work->callback_user);
    int hides = 0;
    switch (mask->kind) {
    case MASK_DIAGONAL:
        hides = hide_again(MASK_DIAGONAL, mask, strip->nv, n, s);
        break;
    case MASK_LIVE:
        hides = hide_again(MASK_LIVE, mask, strip->nv, n, s);
        break;
    case MASK_BIAS:
        hides = hide_again(MASK_BIAS, mask, strip->nv, n, s);
        break;
    default:
        hides = hide_again(MASK_NONE, mask, strip->nv, n, s);
        break;
    }
    if (hides)
        mask_from_scores(scratch, mask, strip->nv, n, s);
}

/** The scores of a tile from their products; max[lane] becomes their maximum, NaN left out. */
static void apply_score_terms(attn_exp exp, const struct attn_work *work, const struct attn_scratch *scratch,
                              const struct strip *strip, struct mask *mask, int64_t first, const char *k,
                              ptrdiff_t k_stride, int n, float *max)
{
    const int width = strip->nv * VF_LEN;
    float *s = scratch->s;
    if (has_relative(work))
        add_relative(work, scratch, strip, first, k, k_stride, n, s);
    switch (mask->kind) {
    case MASK_DIAGONAL:
        finish_scores(MASK_DIAGONAL, exp, work, mask, width, strip->factor, n, s);
        break;
    case MASK_LIVE:
        finish_scores(MASK_LIVE, exp, work, mask, width, strip->factor, n, s);
        break;
    case MASK_BIAS:
        finish_scores(MASK_BIAS, exp, work, mask, width, strip->factor, n, s);
        break;
    default:
        finish_scores(MASK_NONE, exp, work, mask, width, strip->factor, n, s);
        break;
    }
    if (work->callback)
        call_back(work, scratch, strip, mask, first, n, s);
    for (int v = 0; v < strip->nv; v++) {
        vf top = vf_set1(-INFINITY);
        for (int j = 0; j < n; j++)
            top = vf_max(vf_load(s + (ptrdiff_t)j * width + v * VF_LEN), top);
        vf_store(max + v * VF_LEN, top);
    }
}

#endif
