/* SPDX-License-Identifier: Apache-2.0 */
/*
 * P V in pairs of bf16 on matrix registers (simd/matrix_*.h; v is bf16):
 *
 *     O[16 channels][16 queries] += sum over groups of 32 keys of V^T[16 channels][group] * P[group][16 queries]
 *
 * P is the second factor as the weights leave it, words of two keys in lane
 * order. V is transposed when it is packed, once for each block of keys, into
 * pieces of 16 channels by 32 keys (1 KiB), the pieces of a group one behind the
 * other. Groups begin at multiples of 32 keys from the block's first, wherever
 * the run begins or ends: words of keys behind its end are 0, in V and in P.
 *
 * Weights come from weights_table.h.
 */
#ifndef ATTN_VALUES_H
#define ATTN_VALUES_H

#include "kernels/dropout.h"
#include "kernels/groups_matrix.h"
#include "kernels/mask.h"
#include "kernels/rows.h"
#include "kernels/weights_table.h"

/* --------------------------------------------------------------------- V -- */

/** 16 channels of up to 32 rows of V as a piece, rounded if they are not bf16; what is missing is 0. */
ATTN_INLINE void pack_piece(const attn_dtype dtype, const struct attn_rows *src, int j, int n, int64_t c, int64_t dv,
                            char *piece)
{
    vf words[VF_LEN]; /* of two keys, a channel a lane */
    uint16_t pair[2][VF_LEN];
    const int64_t channels = dv - c < VF_LEN ? dv - c : VF_LEN;
    for (int u = 0; u < GROUP_WORDS; u++) {
        const int key = j + 2 * u;
        if (dtype == ATTN_BF16 && channels == VF_LEN && key + 1 < n) {
            words[u] = _mm512_castsi512_ps(vw_interleave((const uint16_t *)(const void *)row_at(src, key) + c,
                                                         (const uint16_t *)(const void *)row_at(src, key + 1) + c));
            continue;
        }
        memset(pair, 0, sizeof pair);
        for (int i = 0; i < 2 && key + i < n; i++)
            bf16_of_row(src, key + i, c, channels, (char *)pair[i]);
        words[u] = _mm512_castsi512_ps(vw_interleave(pair[0], pair[1]));
    }
    vf_transpose(words);
    ATTN_UNROLL
    for (int i = 0; i < VF_LEN; i++)
        vf_store((float *)(void *)(piece + i * (PIECE_BYTES / VF_LEN)), words[i]);
}

/** n rows of V, of which the first begins a group, as pieces. */
static void pack_values(float *dst, const struct attn_rows *src, int n, int64_t dv)
{
    char *piece = (char *)dst;
    for (int j = 0; j < n; j += GROUP_KEYS)
        for (int64_t c = 0; c < dv; c += VF_LEN, piece += PIECE_BYTES)
            if (src->dtype == ATTN_BF16)
                pack_piece(ATTN_BF16, src, j, n, c, dv, piece);
            else
                pack_piece(src->dtype, src, j, n, c, dv, piece);
}

/** struct attn_value_kernels, finite. */
static int values_finite(const char *v, ptrdiff_t stride, int n, int64_t dv)
{
    const ptrdiff_t groups = (n + GROUP_WORDS - 1) / GROUP_WORDS;
    __mmask32 found = 0;
    (void)dv;
    for (ptrdiff_t at = 0; at < groups * GROUP_WORDS * stride; at += ATTN_ALIGN)
        found |= not_finite(v + at);
    return found == 0;
}

/* --------------------------------------------------------------- weights -- */

static void make_weights(int nv, const float *m, const int *ends, int n, const float *factor, float *s, float *l)
{
    if (nv == MATRIX_VECTORS)
        weights_body(MATRIX_VECTORS, m, ends, n, factor, s, l);
    else
        weights_body(1, m, ends, n, factor, s, l);
    for (int v = 0; v < nv; v++) /* groups are multiplied whole */
        for (int64_t u = key_words(ends[v]); u % GROUP_WORDS; u++)
            vf_store(s + (u * nv + v) * VF_LEN, vf_zero());
}

static void drop_weights(const struct attn_drop *drop, int nv, int n, float *p)
{
    drop_words(2, drop, nv, n, p);
}

/* ---------------------------------------------------------------- values -- */

/** O *= alpha. */
ATTN_INLINE void rescale(const int nv, const struct attn_value_operands *x)
{
    for (int64_t c = 0; c < x->dv; c++) {
        ATTN_UNROLL
        for (int v = 0; v < nv; v++) {
            float *at = x->o + (c * nv + v) * VF_LEN;
            vf_store(at, vf_mul(vf_load(at), vf_load(x->alpha + v * VF_LEN)));
        }
    }
}

/** The products of channels first_channel..end_channel-1, whose pieces lie at v. */
ATTN_INLINE void add_values(const int nv, const struct attn_value_operands *x, const char *v, ptrdiff_t stride,
                            int64_t first_channel, int64_t end_channel)
{
    int groups[MATRIX_VECTORS], g = 0;
    for (int w = 0; w < nv; w++)
        groups[w] = (x->ends[w] + GROUP_WORDS - 1) / GROUP_WORDS;
    const int all = groups[nv - 1];
    int from_zero = x->mode == ACCUMULATE_FIRST;
    for (; g + 2 <= all; g += 2, from_zero = 0)
        add_groups(1, nv, x, v, stride, g, groups, from_zero, first_channel, end_channel, NULL);
    if (g < all || from_zero)
        add_groups(0, nv, x, v, stride, g, groups, from_zero, first_channel, end_channel, NULL);
}

/** struct attn_value_kernels, values. */
static void value_tile(int nv, const struct attn_value_operands *x)
{
    const ptrdiff_t stride = GROUP_WORDS * x->v_stride;
    if (nv == MATRIX_VECTORS) {
        if (x->mode == ACCUMULATE_RESCALE)
            rescale(MATRIX_VECTORS, x);
        add_values(MATRIX_VECTORS, x, x->v, stride, 0, x->dv);
    } else {
        if (x->mode == ACCUMULATE_RESCALE)
            rescale(1, x);
        add_values(1, x, x->v, stride, 0, x->dv);
    }
}

/** Adds what the lanes that see key j get of an element of V, given by its bits. */
static void add_seen(int nv, const struct attn_tile_mask *mask, const struct attn_value_operands *x, int64_t c, int j,
                     uint16_t element)
{
    const uint16_t word[2] = {j % 2 ? 0 : element, j % 2 ? element : 0};
    for (int v = 0; v < nv; v++) {
        vm sees;
#define LANES(kind) sees = mask_lanes(kind, mask, nv * VF_LEN, j, v)
        ATTN_BY_MASK(mask->kind, LANES);
#undef LANES
        const vw p = vw_load(x->p + ((ptrdiff_t)(j / 2) * nv + v) * VF_LEN);
        float *at = x->o + (c * nv + v) * VF_LEN;
        const vf o = vf_load(at);
        vf_store(at, vf_select(sees, vf_dot(vw_set1(word), j % 2 ? vw_second(p) : vw_first(p), o), o));
    }
}

/**
 * struct attn_value_kernels, values_seen: what is finite as in values(), so that lanes that do not see the rest have
 * the same bits; then the rest, element by element.
 */
static void values_seen(int nv, const struct attn_tile_mask *mask, const struct attn_value_operands *x, int n)
{
    char clean[ATTN_KEY_BLOCK / GROUP_KEYS * PIECE_BYTES] __attribute__((aligned(ATTN_ALIGN)));
    const int all = (n + GROUP_KEYS - 1) / GROUP_KEYS;
    const ptrdiff_t stride = GROUP_WORDS * x->v_stride;
    struct attn_value_operands seen = *x;
    int ends[MATRIX_VECTORS]; /* in words; here they come in keys */
    for (int v = 0; v < nv; v++)
        ends[v] = (int)key_words(x->ends[v]);
    seen.ends = ends;
    if (x->mode == ACCUMULATE_RESCALE)
        rescale(nv, x);
    for (int64_t c = 0; c < x->dv; c += VF_LEN) {
        const char *const pieces = x->v + c / VF_LEN * PIECE_BYTES;
        int found[ATTN_KEY_BLOCK / GROUP_KEYS];
        for (int g = 0; g < all; g++)
            found[g] = clean_piece(clean + g * PIECE_BYTES, pieces + g * stride, PIECE_BYTES / VF_LEN);
        if (nv == MATRIX_VECTORS)
            add_values(MATRIX_VECTORS, &seen, clean, PIECE_BYTES, c, c + VF_LEN);
        else
            add_values(1, &seen, clean, PIECE_BYTES, c, c + VF_LEN);
        for (int j = 0; j < n; j++)
            for (int i = 0; found[j / GROUP_KEYS] && i < VF_LEN && c + i < x->dv; i++) {
                uint16_t element;
                memcpy(&element,
                       pieces + j / GROUP_KEYS * stride + i * (PIECE_BYTES / VF_LEN) +
                           j % GROUP_KEYS * (int)sizeof element,
                       sizeof element);
                if ((element & 0x7f80) == 0x7f80)
                    add_seen(nv, mask, x, c + i, j, element);
            }
    }
}

static const struct attn_value_kernels value_kernels = {.name = "bf16",
                                                        .keys_per_word = VF_PACK,
                                                        .channel_step = VF_LEN,
                                                        .key_step = GROUP_KEYS,
                                                        .strip_vectors = MATRIX_VECTORS,
                                                        .headroom = WEIGHTS_HEADROOM,
                                                        .enter = matrix_enter,
                                                        .leave = matrix_leave,
                                                        .pack_values = pack_values,
                                                        .weights = make_weights,
                                                        .drop = drop_weights,
                                                        .values = value_tile,
                                                        .finite = values_finite,
                                                        .values_seen = values_seen};

#endif
