/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chunk of linear attention as products of matrices.
 *
 * Within a chunk of n tokens, with S the state before it, u_j what token j writes,
 * and D_ij the product of the decays of tokens j+1..i (Yang et al. 2024, "Gated
 * linear attention", section 4; "Parallelizing linear transformers with the delta
 * rule", section 3; Yang et al. 2025, "Gated delta networks", section 3.3):
 *
 *     o_i = D_i S'q_i + sum over j <= i of D_ij (q_i k_j) u_j            read
 *     u_i = beta_i (v_i - D_i S'k_i - sum over j < i of D_ij (k_i k_j) u_j)    solve; without beta u_i = v_i
 *     S   = D_n S + sum over j of D_nj k_j u_j'                           write
 *
 * The equations of u are a triangular system: rows are solved in their order, a
 * register tile of them at a time, for a panel of columns that stays in L1. All of
 * it is one product: elements of a row of the left factor, broadcast one by one,
 * against vectors of a row of the right one, and neither is packed. Only scores
 * want keys for lanes, for which keys are turned once per chunk.
 *
 * Where the left factor is a triangle, the last tile takes for each of its rows
 * what that row has, in registers: nothing of a token reaches those before it, not
 * even times 0.
 */
#ifndef ATTN_STATE_CHUNK_H
#define ATTN_STATE_CHUNK_H

#include "kernels/rows.h"
#include "kernels/states.h"

/** Vectors of a panel at most, and the rows of a register tile with so many: sums, operands and a broadcast fill the
 * register file. */
#define PANEL_VECTORS   (VF_STRIP * VF_CHANNELS > 16 ? 4 : 2)
#define PANEL           (PANEL_VECTORS * VF_LEN)
#define PANEL_ROWS(nw)  ((nw) == 4 ? 6 : (nw) == 3 ? 8 : PANEL_VECTORS > 2 ? 12 : (nw) == 2 ? 6 : 12)
#define MOST_PANEL_ROWS 12

typedef vf panel_tile[MOST_PANEL_ROWS][PANEL_VECTORS];

/** acc[i] += the sum over t of a[i][t] b[t], for nr rows of nw vectors. */
ATTN_INLINE void tile_products(const int nr, const int nw, panel_tile acc, const float *a, ptrdiff_t a_pitch,
                               const float *b, ptrdiff_t b_pitch, int64_t n)
{
    for (int64_t t = 0; t < n; t++, a++, b += b_pitch) {
        vf x[PANEL_VECTORS];
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            x[w] = vf_load(b + w * VF_LEN);
        ATTN_UNROLL
        for (int i = 0; i < nr; i++) {
            const vf y = vf_set1(a[i * a_pitch]);
            ATTN_UNROLL
            for (int w = 0; w < nw; w++)
                acc[i][w] = vf_fma(y, x[w], acc[i][w]);
        }
    }
}

/** Calls body with constants for rows first..end-1 in tiles of most rows, then of 4 and 1. */
#define BY_ROWS(most, first, end, body, ...)                                                                           \
    do {                                                                                                               \
        int64_t row = (first);                                                                                         \
        for (; row + (most) <= (end); row += (most))                                                                   \
            body(most, __VA_ARGS__, row);                                                                              \
        for (; (most) > 4 && row + 4 <= (end); row += 4)                                                               \
            body(4, __VA_ARGS__, row);                                                                                 \
        for (; row < (end); row++)                                                                                     \
            body(1, __VA_ARGS__, row);                                                                                 \
    } while (0)

/** Calls body with a constant number of vectors, up to those of a panel. */
#define BY_VECTORS(nw, body, ...)                                                                                      \
    do {                                                                                                               \
        if (PANEL_VECTORS > 2 && (nw) == 4)                                                                            \
            body(4, __VA_ARGS__);                                                                                      \
        else if (PANEL_VECTORS > 2 && (nw) == 3)                                                                       \
            body(3, __VA_ARGS__);                                                                                      \
        else if ((nw) == 2)                                                                                            \
            body(2, __VA_ARGS__);                                                                                      \
        else                                                                                                           \
            body(1, __VA_ARGS__);                                                                                      \
    } while (0)

ATTN_INLINE void clear_tile(const int nr, const int nw, panel_tile acc)
{
    ATTN_UNROLL
    for (int i = 0; i < nr; i++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            acc[i][w] = vf_zero();
    }
}

/* ------------------------------------------------------------------ scores -- */

/** Rows i.. of x, keys j.. of nw vectors. */
ATTN_INLINE void score_tile_of(const int nr, const int nw, const struct attn_chunk_scores *x, int64_t j, int64_t i)
{
    panel_tile acc;
    clear_tile(nr, nw, acc);
    tile_products(nr, nw, acc, x->a + i * x->a_pitch, x->a_pitch, x->kt + j, x->kt_pitch, x->dk);
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++) {
            const int64_t at = (i + r) * x->to_pitch + j + w * VF_LEN;
            vf_store(x->to + at, x->within ? vf_mul(acc[r][w], vf_load(x->within + at)) : acc[r][w]);
        }
    }
}

/** Keys j.. of nw vectors: rows from..end-1. */
ATTN_INLINE void score_columns(const int nw, const struct attn_chunk_scores *x, int64_t j, int64_t from, int64_t end)
{
    BY_ROWS(PANEL_ROWS(nw), from, end, score_tile_of, nw, x, j);
}

/** struct attn_state_kernels, scores. */
static void chunk_scores(const struct attn_chunk_scores *x)
{
    const int64_t keys = x->keys ? x->keys : x->n;
    for (int64_t j = 0; j < keys; j += VF_LEN) {
        int64_t vectors = (keys - j + VF_LEN - 1) / VF_LEN;
        if (!x->keys) { /* rows that meet some of these keys begin at j: a column of vectors after the other */
            score_columns(1, x, j, j, x->n);
            continue;
        }
        vectors = vectors < PANEL_VECTORS ? vectors : PANEL_VECTORS;
        BY_VECTORS(vectors, score_columns, x, j, 0, x->n);
        j += (vectors - 1) * VF_LEN;
    }
}

/** Vectors of channels of a key that fade in registers. */
#define NEAR_VECTORS (2 * PANEL_VECTORS)

/** Keys that fade side by side: a row and its decays are loaded once for them. */
#define NEAR_KEYS 2

/** Vector w of nw, the last of n channels unless all are whole. */
#define NEAR_LOAD(p, w) (whole || (w) < nw - 1 ? vf_load((p) + (w)*VF_LEN) : vf_load_tail((p) + (w)*VF_LEN, n))

/** Row i meets some keys from j on, of which the first fading ones fade before. */
ATTN_INLINE void near_row(const int nw, const int whole, const int keys, const int fading,
                          const struct attn_near_scores *x, int64_t c, int n, int i, int j,
                          vf k[NEAR_KEYS][NEAR_VECTORS])
{
    const float *const a = x->a + i * x->a_pitch + c, *const decay = x->decay + i * x->dk + c;
    float *const parts = x->parts + (i * VF_LEN + j) * VF_LEN;
    vf sums[NEAR_KEYS][2];
    ATTN_UNROLL
    for (int t = 0; t < keys; t++) {
        sums[t][0] = c == 0 ? vf_zero() : vf_load(parts + t * VF_LEN);
        sums[t][1] = vf_zero();
    }
    ATTN_UNROLL
    for (int w = 0; w < nw; w++) {
        const vf y = NEAR_LOAD(a, w), by = fading ? NEAR_LOAD(decay, w) : y;
        ATTN_UNROLL
        for (int t = 0; t < keys; t++) {
            if (t < fading)
                k[t][w] = vf_mul(k[t][w], by);
            sums[t][w % 2] = vf_fma(k[t][w], y, sums[t][w % 2]);
        }
    }
    ATTN_UNROLL
    for (int t = 0; t < keys; t++)
        vf_store(parts + t * VF_LEN, vf_add(sums[t][0], sums[t][1]));
}

/** Keys j.. fade from row to row, and meet each. */
ATTN_INLINE void near_keys(const int nw, const int whole, const int keys, const struct attn_near_scores *x, int64_t c,
                           int n, int j)
{
    vf k[NEAR_KEYS][NEAR_VECTORS];
    ATTN_UNROLL
    for (int t = 0; t < keys; t++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            k[t][w] = NEAR_LOAD(x->k + (j + t) * x->k_pitch + c, w);
    }
    near_row(nw, whole, 1, 0, x, c, n, j, j, k);
    if (keys > 1)
        near_row(nw, whole, keys, 1, x, c, n, j + 1, j, k);
    for (int i = j + keys; i < x->n; i++)
        near_row(nw, whole, keys, keys, x, c, n, i, j, k);
}

/** Channels c.. of nw vectors, the last of n channels. */
ATTN_INLINE void near_channels(const int nw, const int whole, const struct attn_near_scores *x, int64_t c, int n)
{
    int j = 0;
    for (; j + NEAR_KEYS <= x->n; j += NEAR_KEYS)
        near_keys(nw, whole, NEAR_KEYS, x, c, n, j);
    if (j < x->n)
        near_keys(nw, whole, 1, x, c, n, j);
}

#undef NEAR_LOAD

/** struct attn_state_kernels, near_scores. */
static void near_scores(const struct attn_near_scores *x)
{
    int64_t c = 0;
    for (; c + NEAR_VECTORS * VF_LEN <= x->dk; c += NEAR_VECTORS * VF_LEN)
        near_channels(NEAR_VECTORS, 1, x, c, VF_LEN);
    for (; c + VF_LEN <= x->dk; c += VF_LEN)
        near_channels(1, 1, x, c, VF_LEN);
    if (c < x->dk)
        near_channels(1, 0, x, c, (int)(x->dk - c));
    for (int i = 0; i < x->n; i++) {
        vf parts[VF_LEN];
        for (int j = 0; j < VF_LEN; j++)
            parts[j] = j <= i && x->dk > 0 ? vf_load(x->parts + (i * VF_LEN + j) * VF_LEN) : vf_zero();
        vf_store(x->to + i * ATTN_CHUNK, vf_sum_across(parts));
    }
}

/* ------------------------------------------------------------------ panels -- */

/** The part begin..end, of total, of the lines that are to come. */
ATTN_INLINE void ask_ahead(const struct attn_chunk_panel *x, int64_t begin, int64_t end, int64_t total)
{
    for (int a = 0; a < ATTN_AHEAD; a++) {
        const struct attn_ahead *ahead = &x->ahead[a];
        if (ahead->n == 0)
            continue;
        const int64_t lines = (attn_row_bytes(ahead->rows.dtype, ahead->width) + ATTN_ALIGN - 1) / ATTN_ALIGN;
        const int64_t last = end * ahead->n * lines / total;
        for (int64_t line = begin * ahead->n * lines / total; line < last; line++) {
            const char *const at = row_at(&ahead->rows, line / lines) + line % lines * ATTN_ALIGN;
            if (ahead->written)
                __builtin_prefetch(at, 1, 2);
            else
                __builtin_prefetch(at, 0, 3);
        }
    }
}

/** Terms after which the next lines are asked for: more at once would have to wait for each other. */
#define AHEAD_STEP 32

/** tile_products() for rows i.., of rows, beside which they share of what is to come is asked for. */
ATTN_INLINE void tile_products_ahead(const int nr, const int nw, panel_tile acc, const float *a, ptrdiff_t a_pitch,
                                     const float *b, int64_t n, const struct attn_chunk_panel *x, int64_t i,
                                     int64_t rows)
{
    for (int64_t t = 0; t < n; t += AHEAD_STEP) {
        const int64_t step = n - t < AHEAD_STEP ? n - t : AHEAD_STEP;
        ask_ahead(x, i * n + nr * t, i * n + nr * (t + step), rows * n);
        tile_products(nr, nw, acc, a + t, a_pitch, b + t * x->width, x->width, step);
    }
}

/** acc = the products of rows i.. with S, and what they are multiplied by. */
ATTN_INLINE void meet_state(const int nr, const int nw, panel_tile acc, const struct attn_chunk_panel *x, int64_t i)
{
    clear_tile(nr, nw, acc);
    tile_products_ahead(nr, nw, acc, x->a + i * x->a_pitch, x->a_pitch, x->s, x->dk, x, i, x->n);
    if (!x->factor)
        return;
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            acc[r][w] = vf_mul(acc[r][w], vf_set1(x->factor[i + r]));
    }
}

/** Values come last: a sum that began with them would round each of its terms as coarsely as the values are large,
 * which is felt where all that is to be corrected is small beside them. */
ATTN_INLINE void solve_tile(const int nr, const int nw, const struct attn_chunk_panel *x, int64_t i)
{
    panel_tile acc;
    const float *const scores = x->scores + i * ATTN_CHUNK;
    float *const u = x->u + i * x->width;
    meet_state(nr, nw, acc, x, i);
    tile_products(nr, nw, acc, scores, ATTN_CHUNK, x->u, x->width, i);
    ATTN_UNROLL
    for (int j = 0; j < nr; j++) {
        const vf beta = vf_set1(x->beta[i + j]);
        ATTN_UNROLL
        for (int w = 0; w < nw; w++) {
            float *const at = u + j * x->width + w * VF_LEN;
            acc[j][w] = vf_mul(beta, vf_sub(vf_load(at), acc[j][w]));
            vf_store(at, acc[j][w]);
        }
        ATTN_UNROLL
        for (int r = j + 1; r < nr; r++) {
            const vf y = vf_set1(scores[r * ATTN_CHUNK + i + j]);
            ATTN_UNROLL
            for (int w = 0; w < nw; w++)
                acc[r][w] = vf_fma(y, acc[j][w], acc[r][w]);
        }
    }
}

ATTN_INLINE void solve_rows(const int nw, const struct attn_chunk_panel *x)
{
    BY_ROWS(PANEL_ROWS(nw), 0, x->n, solve_tile, nw, x);
}

/** struct attn_state_kernels, solve. */
static void chunk_solve(const struct attn_chunk_panel *x)
{
    BY_VECTORS(x->width / VF_LEN, solve_rows, x);
}

/** acc += what rows i.. take of the tokens up to their own. */
ATTN_INLINE void meet_tokens(const int nr, const int nw, panel_tile acc, const struct attn_chunk_panel *x, int64_t i)
{
    const float *const scores = x->scores + i * ATTN_CHUNK, *const u = x->u + i * x->width;
    tile_products(nr, nw, acc, scores, ATTN_CHUNK, x->u, x->width, i);
    ATTN_UNROLL
    for (int j = 0; j < nr; j++) {
        vf b[PANEL_VECTORS];
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            b[w] = vf_load(u + j * x->width + w * VF_LEN);
        ATTN_UNROLL
        for (int r = j; r < nr; r++) {
            const vf y = vf_set1(scores[r * ATTN_CHUNK + i + j]);
            ATTN_UNROLL
            for (int w = 0; w < nw; w++)
                acc[r][w] = vf_fma(y, b[w], acc[r][w]);
        }
    }
}

ATTN_INLINE void read_tile(const int nr, const int nw, const struct attn_chunk_panel *x, int64_t i)
{
    panel_tile acc;
    meet_state(nr, nw, acc, x, i);
    if (x->scores)
        meet_tokens(nr, nw, acc, x, i);
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            vf_store(x->o + (i + r) * x->width + w * VF_LEN, acc[r][w]);
    }
}

ATTN_INLINE void read_rows_of(const int nw, const struct attn_chunk_panel *x)
{
    BY_ROWS(PANEL_ROWS(nw), 0, x->n, read_tile, nw, x);
}

/** struct attn_state_kernels, read. */
static void chunk_read(const struct attn_chunk_panel *x)
{
    BY_VECTORS(x->width / VF_LEN, read_rows_of, x);
}

ATTN_INLINE void write_tile(const int nr, const int nw, const struct attn_chunk_panel *x, int64_t c)
{
    panel_tile acc;
    float *const s = x->s + c * x->width;
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        const vf by = vf_set1(x->decay.by ? x->decay.by[x->decay.rows ? c + r : 0] : 1.0f);
        ATTN_UNROLL
        for (int w = 0; w < nw; w++) {
            const vf before = vf_load(s + r * x->width + w * VF_LEN);
            acc[r][w] = x->decay.by ? vf_mul(before, by) : before;
        }
    }
    tile_products_ahead(nr, nw, acc, x->kt + c * ATTN_CHUNK, ATTN_CHUNK, x->u, x->n, x, c, x->dk);
    ATTN_UNROLL
    for (int r = 0; r < nr; r++) {
        ATTN_UNROLL
        for (int w = 0; w < nw; w++)
            vf_store(s + r * x->width + w * VF_LEN, acc[r][w]);
    }
}

ATTN_INLINE void write_rows_of(const int nw, const struct attn_chunk_panel *x)
{
    BY_ROWS(PANEL_ROWS(nw), 0, x->dk, write_tile, nw, x);
}

/** struct attn_state_kernels, write. */
static void chunk_write(const struct attn_chunk_panel *x)
{
    BY_VECTORS(x->width / VF_LEN, write_rows_of, x);
}

#endif
