/* SPDX-License-Identifier: Apache-2.0 */
/* What a step of Bahdanau's decoder and its backward pass share. */
#ifndef ATTN_NN_BAHDANAU_H
#define ATTN_NN_BAHDANAU_H

#include "attn/nn/recurrent.h"

/** A config whose sizes are right, in ours; its alignment and its weights are not looked at. */
attn_status nn_take_bahdanau_config(attn_bahdanau_config *ours, const attn_bahdanau_config *config);

/** That its weights fit its sizes. */
attn_status nn_check_bahdanau_weights(const attn_bahdanau_config *config);

#endif
