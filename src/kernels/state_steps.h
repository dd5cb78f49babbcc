/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear attention token by token:
 *
 *     u   = beta_t (v_t - S'kept_t)               kept_t = decay_t k_t
 *     S   = decay_t S + k_t u'
 *     o_t = S'q_t
 *
 * S is what takes time: a row of it has a multiply-add or three. So all tokens go
 * over a panel of columns while it is in L1, the first of them from where S lies
 * before the call, and a token's pass that writes S has beside the heads that read
 * it one more reader: the sum for the u of the next token. Each sum has its
 * terms in the order of the rows, whatever reads beside it.
 */
#ifndef ATTN_STATE_STEPS_H
#define ATTN_STATE_STEPS_H

#include "kernels/state_chunk.h"

/** Readers of a pass: their sums, and the row that is read. */
#define STEP_READERS (PANEL_VECTORS > 2 ? 5 : 4)

/** Vectors of a pass where there are few readers, and how many those are: whole rows are read in the order of memory.
 */
#define WIDE_VECTORS (2 * PANEL_VECTORS)
#define WIDE_READERS 2

/** Rows that are asked for ahead. */
#define STEP_AHEAD 16

/** Rows of S that are read once, and whose products with some vectors are summed up. */
struct reader {
    const float *by; /**< [dk] */
    float *sum;      /**< columns of it */
};

/** What a pass does to S: of a token, if it writes. */
struct step {
    const float *k, *decay; /**< [dk]; decay NULL: none, decay_step 0: one for all rows */
    int decay_step;
    const float *u;    /**< columns of it; NULL: the pass only reads */
    int asks;          /**< for rows of S, some ahead */
    const float *next; /**< rows next_pitch apart that are read later, asked for; NULL: none */
    ptrdiff_t next_pitch;
    int next_halves; /**< half as many vectors of them as of S's own rows */
};

/** Asks for nw vectors some floats on, which may be no memory, into L1 or, if they are for later, L2. */
ATTN_INLINE void ask_for_row(const int nw, const float *row, ptrdiff_t at, const int later)
{
    const int line = ATTN_ALIGN / (int)sizeof(float);
    const char *const p = (const char *)((uintptr_t)row + (uintptr_t)at * sizeof(float));
    ATTN_UNROLL
    for (int i = 0; i < nw * VF_LEN; i += line) {
        if (later)
            __builtin_prefetch(p + i * (int)sizeof(float), 0, 2);
        else
            __builtin_prefetch(p + i * (int)sizeof(float), 0, 3);
    }
}

ATTN_INLINE void step_pass(const int nr, const int nw, const int writes, const struct step *step,
                           const struct reader *readers, int64_t dk, const float *from, ptrdiff_t from_pitch, float *to,
                           ptrdiff_t to_pitch, const int whole, int n)
{
    vf sums[STEP_READERS][WIDE_VECTORS], u[WIDE_VECTORS];
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            sums[r][w] = vf_zero();
    }
    if (writes) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            u[w] = vf_load(step->u + w * VF_LEN);
    }
    const float *decay = step->decay;
    for (int64_t c = 0; c < dk; c++, from += from_pitch, to += to_pitch) {
        vf s[WIDE_VECTORS];
        if (step->asks)
            ask_for_row(nw, from, STEP_AHEAD * from_pitch, 0);
        if (step->next && step->next_halves)
            ask_for_row(nw / 2, step->next, c * step->next_pitch, 1);
        else if (step->next)
            ask_for_row(nw, step->next, c * step->next_pitch, 1);
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            s[w] = whole || w < nw - 1 ? vf_load(from + w * VF_LEN) : vf_load_tail(from + w * VF_LEN, n);
        if (writes) {
            const vf k = vf_set1(step->k[c]);
            if (decay) {
                const vf by = vf_set1(decay[c * step->decay_step]);
                ATTN_UNROLL
                for (int w = 0; w < nw; w++)
                    s[w] = vf_mul(s[w], by);
            }
            ATTN_UNROLL
            for (int w = 0; w < nw; w++) {
                s[w] = vf_fma(k, u[w], s[w]);
                if (whole || w < nw - 1)
                    vf_store(to + w * VF_LEN, s[w]);
                else
                    vf_store_tail(to + w * VF_LEN, s[w], n);
            }
        }
        ATTN_UNROLL
        for (int r = 0; r < nr; r++) {
            const vf by = vf_set1(readers[r].by[c]);
            ATTN_UNROLL
            for (int w = 0; w < nw; w++)
                sums[r][w] = vf_fma(by, s[w], sums[r][w]);
        }
    }
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            vf_store(readers[r].sum + w * VF_LEN, sums[r][w]);
    }
}

/** Calls step_pass() with a constant number of readers, up to STEP_READERS. */
ATTN_INLINE void step_by_readers(const int nw, const int writes, const struct step *step, int nr,
                                 const struct reader *readers, int64_t dk, const float *from, ptrdiff_t from_pitch,
                                 float *to, ptrdiff_t to_pitch, const int whole, int n)
{
#define STEP_WITH(count) step_pass(count, nw, writes, step, readers, dk, from, from_pitch, to, to_pitch, whole, n)
    if (nr == 0)
        STEP_WITH(0);
    else if (nr == 1)
        STEP_WITH(1);
    else if (nr == 2)
        STEP_WITH(2);
    else if (nw <= PANEL_VECTORS && nr == 3)
        STEP_WITH(3);
    else if (nw <= PANEL_VECTORS && nr == 4)
        STEP_WITH(4);
    else if (nw <= PANEL_VECTORS && PANEL_VECTORS > 2)
        STEP_WITH(5);
#undef STEP_WITH
}

/**
 * What the first token's passes over nw vectors of columns from e on ask for of the state that comes after this one;
 * pass: 0 or, with beta, 1 for the second one.
 *
 * Where rows are cut into columns a state is not read in the order of memory, so the next one is asked for in that
 * order, a share of it for each of the columns, by both passes if that makes whole lines. Whole rows are asked for
 * beside the second pass, which leaves memory idle, of a single token: one pass alone does not, and with several tokens
 * it was slower.
 */
ATTN_INLINE void set_next(struct step *step, const int nw, const struct attn_state_steps *x, int64_t e, const int pass)
{
    const int width = nw * VF_LEN, cut = width < x->columns && x->from_pitch == x->columns, last = x->beta != NULL;
    const int halves = cut && last && width * (int)sizeof(float) % (2 * ATTN_ALIGN) == 0;
    if (!x->next || (pass != last && !halves) || (!cut && (!last || x->n > 1)))
        return;
    step->next_halves = halves;
    step->next_pitch = halves ? width / 2 : cut ? width : x->from_pitch;
    step->next = cut ? x->next + (e + pass * halves * (width / 2)) * x->dk : x->next + e;
}

/** All tokens, columns e.. of nw vectors, the last of which has n columns unless they are whole. */
ATTN_INLINE void step_columns(const int nw, const int whole, const struct attn_state_steps *x, int64_t e, int n)
{
    float kept_sums[WIDE_VECTORS * VF_LEN]; /* with beta: S'kept of the token that comes */
    const float *from = x->from + e;
    ptrdiff_t from_pitch = x->from_pitch;
    float *const to = x->to + e;
    /* Lines that lie apart are followed by no prefetcher. */
    struct step step = {.decay_step = x->decay.rows, .asks = x->asks || (x->far && nw * VF_LEN < x->columns)};
    if (x->beta) {
        const struct reader first = {x->kept, kept_sums};
        set_next(&step, nw, x, e, 0);
        step_by_readers(nw, 0, &step, 1, &first, x->dk, from, from_pitch, to, x->to_pitch, whole, n);
        step.asks = 0;
    }
    for (int t = 0; t < x->n; t++) {
        float *const u = x->u + t * x->pitch + e;
        if (x->beta) {
            const vf beta = vf_set1(x->beta[t]);
            for (int w = 0; w < nw; w++)
                vf_store(u + w * VF_LEN,
                         vf_mul(beta, vf_sub(vf_load(u + w * VF_LEN), vf_load(kept_sums + w * VF_LEN))));
        }
        const float *const by = x->decay.by;
        step.k = x->k + t * x->k_pitch;
        step.decay = by ? by + (x->decay.rows ? t * x->dk : t) : NULL;
        step.u = u;
        step.next = NULL;
        if (t == 0)
            set_next(&step, nw, x, e, x->beta != NULL);
        struct reader readers[STEP_READERS];
        int count = 0, writes = 1;
        if (x->beta && t + 1 < x->n)
            readers[count++] = (struct reader){x->kept + (t + 1) * x->kept_pitch, kept_sums};
        for (int h = 0; h < x->heads || writes; writes = 0) {
            for (; h < x->heads && count < STEP_READERS; h++) {
                const int64_t row = (int64_t)h * x->n + t;
                readers[count++] = (struct reader){x->q[h] + t * x->q_pitch, x->o + row * x->pitch + e};
            }
            if (writes)
                step_by_readers(nw, 1, &step, count, readers, x->dk, from, from_pitch, to, x->to_pitch, whole, n);
            else
                step_by_readers(nw, 0, &(struct step){0}, count, readers, x->dk, to, x->to_pitch, to, x->to_pitch,
                                whole, n);
            count = 0;
        }
        from = to;
        from_pitch = x->to_pitch;
        step.asks = 0;
    }
}

/** struct attn_state_kernels, steps. */
static void state_steps(const struct attn_state_steps *x)
{
    int64_t e = 0;
    const int readers = x->heads + (x->beta && x->n > 1);
    for (; readers <= WIDE_READERS && e + 2 * PANEL <= x->columns; e += 2 * PANEL)
        step_columns(WIDE_VECTORS, 1, x, e, VF_LEN);
    for (; e + PANEL <= x->columns; e += PANEL)
        step_columns(PANEL_VECTORS, 1, x, e, VF_LEN);
    for (; e + VF_LEN <= x->columns; e += VF_LEN)
        step_columns(1, 1, x, e, VF_LEN);
    if (e < x->columns)
        step_columns(1, 0, x, e, (int)(x->columns - e));
}

#endif
