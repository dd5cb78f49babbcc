/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what does not depend on the words of tiles. */
#ifndef ATTN_VECTORS_H
#define ATTN_VECTORS_H

#include "kernels/join.h"
#include "kernels/merge.h"
#include "kernels/quantise.h"
#include "kernels/rope.h"
#include "kernels/score_gradients.h"
#include "kernels/softmax.h"
#include "kernels/transpose.h"

static void rotate(const struct attn_rotation *work)
{
    if (work->pairs == 0)
        copy_rows(&work->out, &work->x, work->num_rows, work->width, work->streams);
    else
        rotate_rows(&work->out, &work->x, work->table, work->table_stride, work->num_rows, work->pairs, work->width,
                    work->layout);
}

static void stream_end(void)
{
    vu_stream_end();
}

static const struct attn_vector_kernels vector_kernels = {.lanes = VF_LEN,
                                                          .strip = STRIP,
                                                          .few = FEW,
                                                          .read_rows = read_rows,
                                                          .widen = widen_stored,
                                                          .write_rows = write_rows,
                                                          .write_few = write_few,
                                                          .join_bias = join_bias,
                                                          .finish_scores = finish_scores,
                                                          .multiply = multiply,
                                                          .hide_again = hide_again,
                                                          .raise_maximum = raise_maximum,
                                                          .join = join,
                                                          .finish = finish,
                                                          .normalise = normalise,
                                                          .rotate = rotate,
                                                          .quantise = quantise_rows,
                                                          .streams = VU_STREAMS,
                                                          .stream_end = stream_end,
                                                          .merge = merge_rows,
                                                          .score_gradients = score_gradients,
                                                          .dot_rows = dot_rows,
                                                          .exp2 = exp2_array};

#endif
