/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What encoding and training with BERT share (bert.c, bert_training.c).
 */
#ifndef ATTN_NN_BERT_INTERNAL_H
#define ATTN_NN_BERT_INTERNAL_H

#include "attn/nn/models.h"
#include "nn/names.h"

/** A config with its defaults filled in, or what is wrong with it that its layers do not check themselves. */
attn_status nn_complete_bert_config(attn_bert_config *completed, const attn_bert_config *config);

/** The config of its layers; that of their attention is where it points to. */
attn_block_config nn_bert_layer(const attn_bert_config *config, attn_mha_config *attention);

/** attn_bert_load() for a loader that reads more; naming is ATTN_NAMING_BERT or ATTN_NAMING_DISTILBERT. */
attn_status nn_bert_load(attn_bert **bert, const attn_bert_config *config, struct nn_reader *reader, const char *prefix,
                         attn_naming naming);

/** Sequences and all that can be had of them. */
struct nn_bert_call {
    int64_t num_sequences;
    const int64_t *offsets;
    const int32_t *ids, *types; /**< types NULL: 0 */
    const attn_tensor *hidden;
    /** NULL, or [layers + 1]: NULL, or where the states go that layer l is given; the last one is a copy of hidden. */
    const attn_tensor *const *states;
    const attn_tensor *const *weights; /**< as in attn_bert_outputs */
    int num_threads;
    void *workspace; /**< as in attn_bert_forward() */
    size_t workspace_size;
};
attn_status nn_bert_encode(const attn_bert *bert, const struct nn_bert_call *call);
/** That the outputs of a call, whose offsets have been checked, are those of an encoder of such sizes, and lie apart.
 */
attn_status nn_check_encoder_outputs(const struct nn_bert_call *call, int64_t layers, int64_t heads, int64_t d_model);

/** The tokens of a call. */
attn_status nn_bert_check_sequences(const attn_bert_config *config, int64_t num_sequences, const int64_t *offsets,
                                    const int32_t *ids);

#endif
