/* SPDX-License-Identifier: Apache-2.0 */
/* The table of linear attention. */
#ifndef ATTN_STATE_KERNELS_H
#define ATTN_STATE_KERNELS_H

#include "kernels/state_chunk.h"
#include "kernels/state_columns.h"
#include "kernels/state_rows.h"
#include "kernels/state_steps.h"

static const struct attn_state_kernels state_kernels = {.lanes = VF_LEN,
                                                        .panel = PANEL,
                                                        .take_rows = take_state_rows,
                                                        .take_decays = take_decays,
                                                        .within = decays_within,
                                                        .scale_keys = scale_keys,
                                                        .decay_since = decay_since,
                                                        .decay_until = decay_until,
                                                        .features = make_features,
                                                        .scores = chunk_scores,
                                                        .near_scores = near_scores,
                                                        .solve = chunk_solve,
                                                        .read = chunk_read,
                                                        .write = chunk_write,
                                                        .steps = state_steps,
                                                        .fade_columns = fade_columns,
                                                        .add_numbers = add_numbers,
                                                        .near_columns = near_columns,
                                                        .sum_later = sum_later,
                                                        .add_products = add_products};

#endif
