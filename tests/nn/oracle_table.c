/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the oracle's functions in one precision. */
#include "real.h"

const struct oracle ORACLE(oracle) = {
    .dot = ORACLE(oracle_dot),
    .linear = ORACLE(oracle_linear),
    .activate = ORACLE(oracle_activate),
    .normalise = ORACLE(oracle_normalise),
    .gate = ORACLE(oracle_gate),
    .embed = ORACLE(oracle_embed),
    .sinusoidal = ORACLE(oracle_sinusoidal),
    .attention = ORACLE(oracle_attention),
    .mha = ORACLE(oracle_mha_forward),
    .align_project = ORACLE(oracle_align_project),
    .align = ORACLE(oracle_align),
    .pool = ORACLE(oracle_pool),
    .linformer = ORACLE(oracle_linformer),
    .lstm = ORACLE(oracle_lstm),
    .lstm_backward = ORACLE(oracle_lstm_backward),
    .pool_backward = ORACLE(oracle_pool_backward),
    .align_backward = ORACLE(oracle_align_backward),
    .gru = ORACLE(oracle_gru),
    .bahdanau = ORACLE(oracle_bahdanau),
    .bahdanau_backward = ORACLE(oracle_bahdanau_backward),
    .block = ORACLE(oracle_block_forward),
    .bert = ORACLE(oracle_bert_forward),
    .mean_pool = ORACLE(oracle_mean_pool),
    .llama = ORACLE(oracle_llama_forward),
    .encode = ORACLE(oracle_encode),
    .score = ORACLE(oracle_score),
};
