/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing memory, for every n: the nth allocation that libattn_nn makes while
 * something is made, run and freed fails (and, in a second round, all from the nth
 * on). There must be ATTN_OUT_OF_MEMORY with a sentence, no model, and nothing
 * written, or the right bits; and nothing that was got stays behind.
 */
#ifndef TEST_NN_FAILING_RUNS_H
#define TEST_NN_FAILING_RUNS_H

#include "model_folder.h"
#include "named.h"
#include "sentences.h"

enum { D = 24, HEADS = 2, FF = 40, WORDS = 11, PLACES = 9, TOKENS = 7, HIDDEN = 5, ATTENTION = 6 };

/** What the models are made of, and where their results go. */
struct made {
    struct named *named;
    attn_weights *weights;
    struct model_folder encoder, decoder, encoder_decoder, shards;
    attn_tensor x, out, seen;
    float x_data[TOKENS * D], out_data[TOKENS * D], seen_data[HEADS * TOKENS * TOKENS];
};

/** Makes something, runs it into made->out, and frees it. */
typedef attn_status run_function(struct made *made);

/** Random weights of models of each kind, and x; the folders are the caller's. */
void failing_make(struct made *made, struct memory *m);
/** A score function of D channels, with weights. */
attn_alignment_config failing_alignment(attn_score score);
/** Lets each allocation of each run fail; every sentence of the list has to come, and no other may. */
void failing_runs(struct made *made, run_function *const *runs, size_t num, struct sentences *shortages);

#endif
