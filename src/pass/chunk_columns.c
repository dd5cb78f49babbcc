/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk where S lies on its side and its columns fade, as gradients of q and k
 * want it. With p_ij the product of row i with key j, L_i the product of the decays
 * up to token i of the chunk, U_j of those behind token j, D_ij of those of tokens
 * j+1..i, each a number for each column:
 *
 *     o_i = L_i S'q_i + sum over j <= i of D_ij p_ij u_j
 *     S   = (L_n S) + sum over j of k_j (U_j u_j)'
 *
 * Decays of a pair are those of columns, so the sum is split at tokens in the middle:
 * u fades up to there and what comes of it from there on, for halves, quarters, ...
 * as chunk.c does with scores.
 *
 * The gradient of token t's decay is the sum of what all pairs i >= t > j have given
 * to each other: of a row's number in o, times the row that o is the gradient of.
 * Walking forwards (o is dq, the partner q) and backwards (dk, k) each finds the sums
 * of a part of these pairs, on the way:
 *
 *     i and j in the chunk, in halves    those t of the later half forwards, of the
 *                                        earlier one backwards; neighbours forwards
 *     j before the chunk                 forwards, in what S gives
 *     i behind the chunk                 backwards, in what its S gives
 *     neither in the chunk               the products of both S, when the second comes by
 *
 * All of these are sums of what they are made of. The usual way, one running sum of
 * q dq - k dk over all tokens (Yang et al. 2024, "Gated linear attention", section
 * 3), leaves small ones of them in the rounding errors of large ones.
 */
#include "pass/states.h"

/** A panel of a chunk under way. */
struct panel {
    const struct attn_state_work *work;
    const struct attn_state_kernels *states;
    int64_t dk;
    int width;
    float *u, *o;
    struct attn_partners partners; /**< of the walk's rows */
};

static struct attn_partners partners_from(const struct panel *p, int first)
{
    struct attn_partners from = p->partners;
    if (from.rows) {
        from.rows += (ptrdiff_t)first * p->width;
        from.sums += first * from.pitch;
    }
    return from;
}

/** o of later tokens, n of them from middle on, += what those from first to middle give them. */
static void meet(const struct panel *p, int first, int middle, int n)
{
    const struct attn_state_scratch *scratch = p->work->scratch;
    const int width = p->width;
    p->states->decay_until(scratch->room, p->u + (ptrdiff_t)first * width, width,
                           scratch->fades + (ptrdiff_t)first * width, middle - first, width, NULL);
    const struct attn_chunk_panel product = {.n = n,
                                             .width = width,
                                             .dk = middle - first,
                                             .a = scratch->scores + middle * ATTN_CHUNK + first,
                                             .a_pitch = ATTN_CHUNK,
                                             .o = scratch->part,
                                             .s = scratch->room};
    p->states->read(&product);
    p->states->decay_since(scratch->part, scratch->part, width, scratch->fades + (ptrdiff_t)middle * width, n, width);
    p->states->add_numbers(p->o + (ptrdiff_t)middle * width, scratch->part, (int64_t)n * width);
    const struct attn_partners partners = partners_from(p, middle);
    if (partners.rows) /* the token in the middle has all pairs, either way: it takes them forwards */
        p->states->sum_later(&partners, scratch->part, n, width, p->work->backwards, 1);
}

/** o of n tokens from first on += what those before them among the same give. */
static void split(const struct panel *p, int first, int n)
{
    const struct attn_state_scratch *scratch = p->work->scratch;
    const ptrdiff_t at = (ptrdiff_t)first * p->width;
    if (n <= ATTN_NEAR_TOKENS) {
        struct attn_near_columns near = {.n = n,
                                         .width = p->width,
                                         .scores = scratch->scores + first * ATTN_CHUNK + first,
                                         .u = p->u + at,
                                         .decay = scratch->fades + at,
                                         .o = p->o + at};
        if (!p->work->backwards)
            near.partners = partners_from(p, first);
        p->states->near_columns(&near);
        return;
    }
    int half = ATTN_NEAR_TOKENS;
    while (2 * half < n)
        half *= 2;
    half = p->work->backwards ? n - half : half; /* at the same token */
    meet(p, first, first + half, n - half);
    split(p, first, half);
    split(p, first + half, n - half);
}

/** What both S give to the gradients of the chunk's decays, S of the walk before its own tokens have written: the one
 * that comes first leaves it. */
static void join_states(const struct panel *p, int64_t start, int64_t first, int n, const float *s)
{
    const struct attn_state_work *w = p->work;
    const struct attn_decay_sums *sums = w->decay_sums;
    const int64_t token = w->backwards ? w->tokens - first - n : first;
    if (attn_state_chunk_is_reset(w, first, n))
        return;
    float *const kept = sums->states + token / ATTN_CHUNK * p->dk * sums->states_pitch + start;
    if (!w->backwards)
        p->states->fade_columns(kept, sums->states_pitch, s, p->width, p->dk, p->width, w->scratch->fades);
    else
        p->states->add_products(sums->sums + token * sums->pitch + start, sums->pitch, n, p->width, w->scratch->whole,
                                kept, sums->states_pitch, s, p->dk);
}

/** Rows of the partner, and where the walk's sums are: backwards a token's decay is that of the one behind it. */
static void take_partners(struct panel *p, int64_t start, int64_t first, int n)
{
    const struct attn_state_work *w = p->work;
    const struct attn_decay_sums *sums = w->decay_sums;
    struct attn_rows rows = attn_rows_from(&sums->partner, first);
    rows.data = (char *)rows.data + start * attn_element_size(rows.dtype);
    const int64_t left = w->columns - start, own = left < p->width ? left : p->width;
    p->states->take_rows(w->scratch->partner, p->width, &rows, n, own, 1.0f);
    p->partners = (struct attn_partners){
        .rows = w->scratch->partner,
        .factor = w->scale,
        .sums = sums->sums + (w->backwards ? w->tokens - first : first) * sums->pitch + start,
        .pitch = w->backwards ? -sums->pitch : sums->pitch,
    };
}

static void go_through_panel(const struct attn_state_work *w, int64_t i, const struct attn_floats *q, int64_t first,
                             int n)
{
    const struct attn_state_scratch *scratch = w->scratch;
    const int64_t start = attn_panel_start(w->shape, w->columns, i), dk = w->shape->dk;
    struct panel p = {.work = w,
                      .states = w->kernels->states,
                      .dk = dk,
                      .width = (int)(attn_panel_start(w->shape, w->columns, i + 1) - start),
                      .u = scratch->u,
                      .o = scratch->o};
    float *const s = scratch->s + dk * start;
    const struct attn_rows v = attn_rows_from(&w->v, first);
    float sums[ATTN_CHUNK];
    attn_state_values(w, &v, n, start, p.width, p.u);
    attn_state_take_fades(w, first, n, start, p.width);
    if (w->decay_sums)
        take_partners(&p, start, first, n);
    struct attn_chunk_panel panel = {.n = n,
                                     .width = p.width,
                                     .dk = dk,
                                     .a = q->rows,
                                     .a_pitch = q->pitch,
                                     .u = p.u,
                                     .o = p.o,
                                     .kt = scratch->kt,
                                     .s = s};
    p.states->read(&panel);
    p.states->decay_since(p.o, p.o, p.width, scratch->fades, n, p.width);
    if (w->decay_sums)
        p.states->sum_later(&p.partners, p.o, n, p.width, w->backwards, w->backwards);
    split(&p, 0, n);
    attn_state_write_out(w, 0, first, n, start, p.width, p.o, sums);
    p.states->decay_until(p.u, p.u, p.width, scratch->fades, n, p.width, scratch->whole);
    if (w->decay_sums)
        join_states(&p, start, first, n, s);
    p.states->fade_columns(s, p.width, s, p.width, dk, p.width, scratch->whole);
    p.states->write(&panel);
}

void attn_state_columns_chunk(const struct attn_state_work *w, int64_t first, int n)
{
    const struct attn_state_scratch *scratch = w->scratch;
    const struct attn_rows k_rows = attn_rows_from(&w->k, first), q_rows = attn_rows_from(&w->q, first);
    const struct attn_floats k = attn_state_floats(w, &k_rows, n, 1, scratch->k);
    const struct attn_floats q = attn_state_floats(w, &q_rows, n, 0, scratch->q);
    attn_state_turn(w, scratch->kt, ATTN_CHUNK, &k, n);
    const struct attn_chunk_scores scores = {.n = n,
                                             .dk = w->shape->dk,
                                             .a = q.rows,
                                             .a_pitch = q.pitch,
                                             .kt = scratch->kt,
                                             .kt_pitch = ATTN_CHUNK,
                                             .to = scratch->scores,
                                             .to_pitch = ATTN_CHUNK};
    w->kernels->states->scores(&scores);
    for (int64_t i = 0; i < attn_state_panels(w->shape, w->columns); i++)
        go_through_panel(w, i, &q, first, n);
}
