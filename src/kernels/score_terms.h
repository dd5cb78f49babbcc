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

/** Bytes of what the mask of a tile shows; with a mask of bytes, those. */
static void stage_shown(const struct mask *mask, int nv, int n, uint8_t *live)
{
    if (mask->kind == MASK_LIVE)
        return;
    for (int j = 0; j < n; j++, live += LIVE_PITCH) {
        for (int v = 0; v < nv; v++) {
            float sees[VF_LEN];
            vf_store(sees, vf_select(mask_lanes(mask->kind, mask, nv * VF_LEN, j, v), vf_set1(1.0f), vf_zero()));
            for (int i = 0; i < VF_LEN; i++)
                live[v * VF_LEN + i] = sees[i] != 0.0f;
        }
    }
}

/** What was hidden is hidden again, and what the callback has left at -inf is hidden from now on. */
static void hide_again(int width, int n, float *s, uint8_t *live)
{
    for (int j = 0; j < n; j++, live += LIVE_PITCH) {
        for (int r = 0; r < width; r++) {
            float *at = s + (ptrdiff_t)j * width + r;
            live[r] = live[r] && !(*at == -INFINITY);
            if (!live[r])
                *at = -INFINITY;
        }
    }
}

/** Hands the tile to the caller's function, in natural units. The mask becomes one of bytes. */
static void call_back(const struct attn_work *work, const struct attn_scratch *scratch, const struct strip *strip,
                      struct mask *mask, int64_t first, int n, float *s)
{
    const int width = strip->nv * VF_LEN;
    stage_shown(mask, strip->nv, n, scratch->live);
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
    for (int i = 0; i < n * width; i += VF_LEN)
        vf_store(s + i, vf_mul(vf_load(s + i), vf_set1(LOG2E)));
    hide_again(width, n, s, scratch->live);
    mask->kind = MASK_LIVE;
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
