/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What encoding and training with BERT share (bert.c, bert_training.c).
 */
#ifndef ATTN_NN_BERT_INTERNAL_H
#define ATTN_NN_BERT_INTERNAL_H

#include "attn/nn/models.h"

/** A config with its defaults filled in, or what is wrong with it that its layers do not check themselves. */
attn_status nn_complete_bert_config(attn_bert_config *completed, const attn_bert_config *config);

/** The config of its layers; that of their attention is where it points to. */
attn_block_config nn_bert_layer(const attn_bert_config *config, attn_mha_config *attention);

/** The tokens of a call. */
attn_status nn_bert_check_sequences(const attn_bert_config *config, int64_t num_sequences, const int64_t *offsets,
                                    const int32_t *ids);

#endif
