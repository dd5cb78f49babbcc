/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The type that an oracle computes in. Every oracle_*.c is compiled twice, in
 * double for the exact result and in float for the naive one, whose error is
 * the yardstick. Arrays are double in both; float's numbers fit in them.
 */
#ifndef TEST_NN_REAL_H
#define TEST_NN_REAL_H

#include "oracle.h"

#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#ifdef ORACLE_SINGLE
typedef float real;
#define ORACLE(name) name##_f32
#define KEPT(x)      oracle_keep(x)
#else
typedef double real;
#define ORACLE(name) name##_f64
#define KEPT(x)      (x)
#endif

/* What the files use of each other. */
oracle_dot_fn ORACLE(oracle_dot);
oracle_linear_fn ORACLE(oracle_linear);
oracle_activate_fn ORACLE(oracle_activate);
oracle_normalise_fn ORACLE(oracle_normalise);
oracle_gate_fn ORACLE(oracle_gate);
oracle_embed_fn ORACLE(oracle_embed);
oracle_sinusoidal_fn ORACLE(oracle_sinusoidal);
oracle_attention_fn ORACLE(oracle_attention);
oracle_mix_fn ORACLE(oracle_mix);
oracle_mha_forward_fn ORACLE(oracle_mha_forward);
oracle_align_project_fn ORACLE(oracle_align_project);
oracle_align_fn ORACLE(oracle_align);
oracle_pool_fn ORACLE(oracle_pool);
oracle_linformer_fn ORACLE(oracle_linformer);
oracle_lstm_fn ORACLE(oracle_lstm);
oracle_lstm_backward_fn ORACLE(oracle_lstm_backward);
oracle_pool_backward_fn ORACLE(oracle_pool_backward);
oracle_align_backward_fn ORACLE(oracle_align_backward);
oracle_gru_fn ORACLE(oracle_gru);
oracle_bahdanau_fn ORACLE(oracle_bahdanau);
oracle_bahdanau_backward_fn ORACLE(oracle_bahdanau_backward);
oracle_block_forward_fn ORACLE(oracle_block_forward);
oracle_bert_forward_fn ORACLE(oracle_bert_forward);
oracle_mean_pool_fn ORACLE(oracle_mean_pool);
oracle_llama_forward_fn ORACLE(oracle_llama_forward);
oracle_encode_fn ORACLE(oracle_encode);
oracle_score_fn ORACLE(oracle_score);

/** Zeros; ends the program when memory is short. */
static inline double *new_array(int64_t n)
{
    double *p = calloc(n > 0 ? (size_t)n : 1, sizeof *p);
    if (!p)
        abort();
    return p;
}

static inline real sigmoid(real x)
{
    return 1 / (1 + exp(-x));
}

#endif
