/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One query, or few whose sums are free, and rows that follow each other: steps of the
 * online softmax in another order, with the same bits.
 *
 *   scores of some blocks;  m, l and weights of these, block by block;  their values
 *
 * so that K and V are each read as one long run (kernels/score_side.h, value_side.h),
 * which some processors fetch ahead by themselves, faster than what is asked for row
 * by row as in few.c. The fewer the changes from K to V, the better: 32 blocks of d = 128
 * in f32 are runs of 2 MiB.
 */
#include "pass/pass.h"

#include <assert.h>

_Static_assert(ATTN_SIDE_BLOCKS <= ATTN_MAX_STRETCH, "a stretch has room for them");

/** Whether rows of K or V, of so many words, are as wide as kernels take them, with nothing between them. */
static int is_run(const struct attn_rows *rows, int64_t width, int64_t words)
{
    return rows->stride == (ptrdiff_t)attn_row_bytes(rows->dtype, width) &&
           (words == ATTN_SIDE_WORDS || words == ATTN_SIDE_WORDS / 2 || words == ATTN_SIDE_WORDS / 4);
}

/** Whether there are kernels for the type of K or V, per_word elements of which are a word. */
static int takes_type(const struct pass *pass, attn_dtype dtype, int per_word)
{
    return per_word == 1 || dtype == ATTN_BF16 || pass->work->kernels->exact_pairs;
}

/**
 * Whether kernels take so many queries, and it is worth it. Ordered sums take one query, and so do, but for pairs, E4M3
 * and int4 in V. Measured with two threads (Zen 4, d = 128, of the speed of few.c): two and four queries f32 1.0 and
 * 1.09, bf16 1.0 and 1.09, f16 1.0 and 1.19, int4 in pairs 1.3 and 1.1; eight f32 0.94, bf16 1.10, f16 1.06, int4 0.99,
 * E4M3 0.99. On AVX2 eight f32 1.2, int8 1.2 (Zen 3).
 */
static int takes_queries(const struct pass *pass)
{
    const struct attn_work *work = pass->work;
    const int rows = pass->strips[0].rows;
    if (rows == 1)
        return 1;
    if (!attn_sums_across(work, work->k.dtype) ||
        (rows > 4 && attn_element_size(work->k.dtype) != 2 && pass->vectors->lanes > 8))
        return 0;
    return work->kernels->exact_pairs || (work->v.dtype != ATTN_F8_E4M3 && work->v.dtype != ATTN_I4);
}

int attn_is_side_by_side(const struct pass *pass)
{
    const struct attn_work *work = pass->work;
    const struct attn_score_kernels *scores = pass->scores;
    const struct attn_value_kernels *values = pass->values;
    if (!pass->few || !takes_queries(pass) || !work->kernels->fetches_ahead || work->pages.size > 0 ||
        work->view.pattern_size || !scores->scores_side_by_side || !values->weights_of_one ||
        !values->values_side_by_side || !attn_few_take_rows(pass))
        return 0;
    return takes_type(pass, work->k.dtype, scores->channels_per_word) &&
           takes_type(pass, work->v.dtype, values->keys_per_word) &&
           is_run(&work->k, work->dk, attn_channel_words(scores, work->dk)) && is_run(&work->v, work->dv, work->dv);
}

/** Keys lo..hi-1 of a block, whose scales kernels look at if somebody asks. */
static struct attn_row_run run_of(const struct pass *pass, const struct attn_rows *rows, const struct key_block *keys)
{
    const struct attn_rows from = attn_rows_from(rows, keys->first + keys->lo);
    const int n = keys->hi - keys->lo;
    if (pass->looks)
        pass->looks->rows += n;
    return (struct attn_row_run){from.data,         from.dtype, from.scale,
                                 from.scale_stride, n,          pass->looks ? &pass->looks->wrong : NULL};
}

void attn_side_by_side(struct pass *pass, int num_blocks, const struct key_block *keys)
{
    const struct attn_work *work = pass->work;
    struct strip *strip = &pass->strips[0];
    const int free = attn_sums_across(work, work->k.dtype), rows = strip->rows;
    const float *const q = free ? attn_query_rows(pass, strip) : strip->q;
    const int64_t words = attn_channel_words(pass->scores, work->dk);
    float max[ATTN_SIDE_BLOCKS][ATTN_MAX_FEW], alpha[ATTN_SIDE_BLOCKS][ATTN_MAX_FEW];
    enum attn_accumulate mode[ATTN_SIDE_BLOCKS];
    float *const s =
        pass->scratch.s; /* [num_blocks][rows][key_block], where a tile has a float for each of its lanes */
    const ptrdiff_t pitch = pass->scratch.key_block, block = rows * pitch;
    assert(num_blocks <= ATTN_SIDE_BLOCKS && num_blocks * rows <= work->kernels->strip && rows <= ATTN_MAX_FEW);
    for (int b = 0; b < num_blocks; b++) {
        const struct attn_row_run k = run_of(pass, &work->k, &keys[b]);
        if (free)
            pass->scores->scores_side_by_side(&k, q, words, rows, s + b * block, pitch, max[b]);
        else
            pass->scores->ordered_side_by_side(&k, q, words, s + b * block, max[b]);
    }
    for (int b = 0; b < num_blocks; b++) {
        float lanes[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN))) = {0};
        float scales[ATTN_MAX_STRIP] __attribute__((aligned(ATTN_ALIGN)));
        for (int r = 0; r < rows; r++)
            lanes[r] = max[b][r] * (strip->factor ? strip->factor[r] : 1.0f);
        const int grew =
            pass->vectors->raise_maximum(strip->nv, pass->values->headroom, lanes, strip->m, strip->l, scales);
        mode[b] = !strip->started ? ACCUMULATE_FIRST : grew ? ACCUMULATE_RESCALE : ACCUMULATE_ADD;
        strip->started = 1;
        for (int r = 0; r < rows; r++) {
            alpha[b][r] = grew ? scales[r] : 1.0f;
            pass->values->weights_of_one(strip->m[r], keys[b].hi - keys[b].lo, strip->factor ? strip->factor[r] : 1.0f,
                                         s + b * block + r * pitch, &strip->l[r]);
        }
    }
    for (int b = 0; b < num_blocks; b++) {
        const struct attn_row_run v = run_of(pass, &work->v, &keys[b]);
        pass->values->values_side_by_side(&v, rows, s + b * block, pitch, attn_frees_scales(work), work->dv, mode[b],
                                          alpha[b], strip->o);
    }
}
