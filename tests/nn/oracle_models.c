/* SPDX-License-Identifier: Apache-2.0 */
/* BERT, Llama, and the encoder-decoder, one sequence at a time, nothing cached (models.h). */
#include "real.h"

void ORACLE(oracle_bert_forward)(const struct oracle_bert *bert, int64_t tokens, const int32_t *ids, double *hidden,
                                 double *weights)
{
    const int64_t d = bert->d_model;
    double *x = new_array(tokens * d);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < d; c++)
            x[t * d + c] =
                KEPT((real)bert->word[ids[t] * d + c] + (real)bert->position[t * d + c] + (real)bert->type[c]);
    ORACLE(oracle_normalise)(&bert->norm, tokens, x, hidden);
    for (int64_t l = 0; l < bert->layers; l++)
        ORACLE(oracle_block_forward)
    (&bert->blocks[l], 1, tokens, hidden, NULL, hidden,
     weights ? weights + l * bert->blocks[l].self.heads * tokens * tokens : NULL, NULL);
    free(x);
}

void ORACLE(oracle_mean_pool)(int64_t tokens, int64_t channels, const double *hidden, int normalise, double *out)
{
    real squares = 0;
    for (int64_t c = 0; c < channels; c++) {
        real sum = 0;
        for (int64_t t = 0; t < tokens; t++)
            sum += (real)hidden[(oracle_backwards ? tokens - 1 - t : t) * channels + c];
        const real mean = tokens ? sum / (real)tokens : 0;
        squares += mean * mean;
        out[c] = mean;
    }
    const real length = sqrt(squares) > (real)1e-12 ? sqrt(squares) : (real)1e-12;
    for (int64_t c = 0; normalise && c < channels; c++)
        out[c] = (real)out[c] / length;
}

void ORACLE(oracle_llama_forward)(const struct oracle_llama *llama, int64_t tokens, const int32_t *ids,
                                  const attn_tensor *rope, double *logits)
{
    attn_params self = attn_params_default();
    self.causal = ATTN_CAUSAL_TOP_LEFT;
    const struct oracle_block_inputs inputs = {.self = &self, .rotation = rope, .rope = ATTN_ROPE_HALF_SPLIT};
    const struct oracle_dense head = {llama->vocabulary, llama->d_model, llama->head, NULL};
    double *x = new_array(tokens * llama->d_model), *normed = new_array(tokens * llama->d_model);
    ORACLE(oracle_embed)(llama->embedding, llama->d_model, tokens, ids, 1, 0, x);
    for (int64_t l = 0; l < llama->layers; l++)
        ORACLE(oracle_block_forward)(&llama->blocks[l], 1, tokens, x, &inputs, x, NULL, NULL);
    ORACLE(oracle_normalise)(&llama->norm, tokens, x, normed);
    ORACLE(oracle_linear)(&head, tokens, normed, ATTN_ACTIVATION_NONE, NULL, logits);
    free(x);
    free(normed);
}

/** Embeddings times sqrt(d_model), and positions. */
static double *embed(const struct oracle_transformer *t, const double *table, int64_t tokens, const int32_t *ids)
{
    double *x = new_array(tokens * t->d_model), *position = new_array(t->d_model);
    ORACLE(oracle_embed)(table, t->d_model, tokens, ids, sqrt((real)t->d_model), 0, x);
    for (int64_t row = 0; row < tokens; row++) {
        ORACLE(oracle_sinusoidal)(row, t->d_model, position);
        for (int64_t c = 0; c < t->d_model; c++)
            x[row * t->d_model + c] = KEPT((real)x[row * t->d_model + c] + (real)position[c]);
    }
    free(position);
    return x;
}

void ORACLE(oracle_encode)(const struct oracle_transformer *t, int64_t tokens, const int32_t *ids, double *memory)
{
    double *x = embed(t, t->source, tokens, ids);
    for (int64_t l = 0; l < t->encoder_layers; l++)
        ORACLE(oracle_block_forward)(&t->encoder[l], 1, tokens, x, NULL, x, NULL, NULL);
    if (t->final_norms)
        ORACLE(oracle_normalise)(&t->encoder_norm, tokens, x, memory);
    else
        memcpy(memory, x, (size_t)(tokens * t->d_model) * sizeof *x);
    free(x);
}

void ORACLE(oracle_score)(const struct oracle_transformer *t, int64_t tm, const double *memory, int64_t tokens,
                          const int32_t *ids, double *logits, double *weights)
{
    attn_params self = attn_params_default();
    self.causal = ATTN_CAUSAL_TOP_LEFT;
    const struct oracle_block_inputs inputs = {.self = &self, .memory = memory, .tm = tm};
    double *x = embed(t, t->target, tokens, ids), *normed = new_array(tokens * t->d_model);
    for (int64_t l = 0; l < t->decoder_layers; l++)
        ORACLE(oracle_block_forward)
    (&t->decoder[l], 1, tokens, x, &inputs, x, NULL, l == t->decoder_layers - 1 ? weights : NULL);
    if (t->final_norms)
        ORACLE(oracle_normalise)(&t->decoder_norm, tokens, x, normed);
    else
        memcpy(normed, x, (size_t)(tokens * t->d_model) * sizeof *x);
    ORACLE(oracle_linear)(&t->generator, tokens, normed, ATTN_ACTIVATION_NONE, NULL, logits);
    free(x);
    free(normed);
}
