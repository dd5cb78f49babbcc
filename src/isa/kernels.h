/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that an instruction set's stub compiles, after it has included
 * its simd header: the templates, and the one table that it exports.
 */
#ifndef ATTN_ISA_KERNELS_H
#define ATTN_ISA_KERNELS_H

#include "kernels/kernels.h"
#include "kernels/scratch.h"
#include "kernels/width.h"
#include "kernels/rows.h"
#include "kernels/transpose.h"
#include "kernels/rope.h"
#include "kernels/words.h"
#include "kernels/strip.h"
#if VS_PACK == 1
#include "kernels/qk_f32.h"
#elif VS_PACK == 2
#include "kernels/qk_bf16.h"
#else
#include "kernels/qk_int8.h"
#endif
#include "kernels/visible.h"
#include "kernels/mask.h"
#include "kernels/stage_memory.h"
#include "kernels/stage_structure.h"
#include "kernels/distance_bias.h"
#include "kernels/stage_mask.h"
#include "kernels/tile.h"
#include "kernels/relative.h"
#include "kernels/score_terms.h"
#include "kernels/softmax.h"
#if VF_PACK == 1
#include "kernels/pv_f32.h"
#else
#include "kernels/pv_bf16.h"
#endif
#include "kernels/nonfinite.h"
#include "kernels/dropout.h"
#include "kernels/key_block.h"
#include "kernels/weights.h"
#include "kernels/merge.h"

extern const struct attn_kernels VF_NAME(attn_kernels);

#include "kernels/forward.h"

static void forward_sleef(const struct attn_work *work)
{
    forward_body(ATTN_EXP_SLEEF, work);
}

static void forward_fast(const struct attn_work *work)
{
    forward_body(ATTN_EXP_FAST, work);
}

static void rotate(const struct attn_rotation *work)
{
    rotate_rows(&work->out, &work->x, work->table, work->table_stride, work->num_rows, work->pairs, work->width,
                work->layout);
}

static void exp2_sleef(float *dst, const float *src, int64_t n)
{
    exp2_array(ATTN_EXP_SLEEF, dst, src, n);
}

static void exp2_fast(float *dst, const float *src, int64_t n)
{
    exp2_array(ATTN_EXP_FAST, dst, src, n);
}

const struct attn_kernels VF_NAME(attn_kernels) = {
    .isa = VF_ISA,
    .qk = VS_PACK == 4 ? ATTN_QK_INT8 : ATTN_QK_DEFAULT,
    .channels_per_word = VS_PACK,
    .keys_per_word = VF_PACK,
    .lanes = VF_LEN,
    .strip = STRIP,
    .query_block = QUERY_BLOCK,
    .key_block = KEY_BLOCK,
    .forward = {[ATTN_EXP_SLEEF] = forward_sleef, [ATTN_EXP_FAST] = forward_fast},
    .rotate = rotate,
    .merge = merge_rows,
    .exp2 = {[ATTN_EXP_SLEEF] = exp2_sleef, [ATTN_EXP_FAST] = exp2_fast},
};

#endif
