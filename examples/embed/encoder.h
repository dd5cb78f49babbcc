/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sentence encoder of the kind of all-MiniLM-L6-v2: WordPiece tokens, a BERT,
 * the mean of its states, brought to length 1 if the model's folder says so.
 *
 *     struct encoder *encoder;
 *     encoder_open(&encoder, "model", PRECISION_F32);   the folder's own settings
 *     struct sentences tokens = {0};
 *     encoder_tokenize(encoder, text, size, &tokens, &cut);     for each sentence
 *     encoder_embed(encoder, &tokens, first, count, threads, embeddings);
 */
#ifndef ATTN_EXAMPLES_EMBED_ENCODER_H
#define ATTN_EXAMPLES_EMBED_ENCODER_H

#include <attn/nn.h>

#include "wordpiece.h"

struct encoder;

/* The tokens of any number of sentences behind each other; begins as {0}. */
struct sentences {
    int64_t count;
    int64_t *offsets; /* [count + 1] */
    int32_t *ids;     /* [offsets[count]] */
    int64_t room, id_room;
};

/*
 * What is multiplied. bf16: weights and states are rounded to it. int8: weights have a scale for each 64 inputs of an
 * output; states between the products are f32, and are quantised for each product, too, with a scale for each 64 of a
 * row. Attention is in the type of the states.
 */
enum precision { PRECISION_F32, PRECISION_BF16, PRECISION_INT8 };

attn_status encoder_open(struct encoder **encoder, const char *folder, enum precision precision);
void encoder_close(struct encoder *encoder);
/* Numbers in an embedding; layers; heads of each. */
int64_t encoder_width(const struct encoder *encoder);
int64_t encoder_layers(const struct encoder *encoder);
int64_t encoder_heads(const struct encoder *encoder);
const struct wordpiece *encoder_tokenizer(const struct encoder *encoder);

/* Tokens of a sentence at most, [CLS] and [SEP] included. */
int64_t encoder_max_tokens(const struct encoder *encoder);
/* Adds the tokens of one sentence. *cut: it has more than encoder_max_tokens(), and what exceeds them was left off. */
attn_status encoder_tokenize(const struct encoder *encoder, const char *text, size_t size, struct sentences *sentences,
                             bool *cut);
void sentences_free(struct sentences *sentences);

/* Embeds sentences first to first + count - 1 as one ragged batch: embeddings[count][width] is written. */
attn_status encoder_embed(struct encoder *encoder, const struct sentences *sentences, int64_t first, int64_t count,
                          int threads, float *embeddings);

/* The attention weights of every layer for one sentence of T tokens: weights[layers][heads][T][T] is written. */
attn_status encoder_weights(struct encoder *encoder, const struct sentences *sentences, int64_t which, int threads,
                            float *weights);

#endif
