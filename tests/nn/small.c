/* SPDX-License-Identifier: Apache-2.0 */
/* Configs and weights of one small model of each kind. */
#include "small.h"

struct small good;

float square[D * D];

void make_configs(void)
{
    static float sums[D], biases[4 * HIDDEN];
    static attn_tensor vector;
    static attn_lstm_weights of_biases;
    static float rows[PLACES * D], network[FF * D], states[D];
    static attn_tensor of_rows, of_state;
    of_state = attn_btc(states, 1, 1, D);
    of_rows = attn_btc(rows, 1, PLACES, D);
    of_biases.b_ih = attn_vector(biases, 4 * HIDDEN);
    vector = attn_vector(sums, D);
    for (int i = 0; i < D * D; i++)
        square[i] = (float)(i % 5 - 2) * 0.125f;
    const attn_tensor w = attn_matrix(square, D, D);
    good.mha = attn_mha_config_default();
    good.mha.d_model = D, good.mha.heads = HEADS;
    good.mha_weights = attn_mha_weights_default();
    good.mha_weights.w_q = good.mha_weights.w_k = good.mha_weights.w_v = good.mha_weights.w_o = w;
    good.block = attn_block_config_default();
    good.block.attention = &good.mha, good.block.d_ff = FF, good.block.eps = 1e-5f;
    good.inputs = attn_block_inputs_default();
    good.bert = attn_bert_config_default();
    good.bert.layers = 2, good.bert.d_model = D, good.bert.heads = HEADS, good.bert.d_ff = FF;
    good.bert.vocabulary = WORDS, good.bert.positions = PLACES, good.bert.eps = 1e-5f;
    good.bert.activation = ATTN_ACTIVATION_GELU;
    good.outputs = attn_bert_outputs_default();
    good.rope = attn_rope_config_default();
    good.llama = attn_llama_config_default();
    good.llama.layers = 2, good.llama.d_model = D, good.llama.heads = HEADS, good.llama.d_ff = FF;
    good.llama.vocabulary = WORDS, good.llama.eps = 1e-5f, good.llama.rope = &good.rope;
    good.transformer = attn_transformer_config_default();
    good.transformer.encoder_layers = good.transformer.decoder_layers = 1;
    good.transformer.d_model = D, good.transformer.heads = HEADS, good.transformer.d_ff = FF;
    good.transformer.source_vocabulary = good.transformer.target_vocabulary = WORDS;
    good.transformer.positions = PLACES, good.transformer.eps = 1e-5f, good.transformer.eos = 1;
    good.decoding = attn_decoding_default();
    good.decoding.max_length = 3;
    good.lstm = attn_lstm_config_default();
    good.lstm.input = D, good.lstm.hidden = HIDDEN;
    good.alignment = attn_alignment_config_default();
    good.alignment.score = ATTN_SCORE_ADDITIVE;
    good.alignment.d_query = good.alignment.d_key = good.alignment.d_attention = D;
    good.alignment.w_q = good.alignment.w_k = w, good.alignment.v = attn_vector(square, D);
    good.bahdanau = attn_bahdanau_config_default();
    good.bahdanau.embedding = good.bahdanau.annotation = good.bahdanau.hidden = D;
    good.linear = attn_linear_options_default();
    good.linear_gradients = attn_linear_gradients_default();
    good.linear_gradients.bias = &vector;
    good.format = attn_linear_format_default();
    good.adamw = attn_adamw_options_default();
    good.schedule = attn_schedule_default();
    good.norm = attn_norm_gradients_default();
    good.norm.gamma = &vector;
    good.lstm_gradients = attn_lstm_gradients_default();
    good.lstm_gradients.weights = &of_biases;
    good.pool = attn_pool_gradients_default();
    good.pool.v = &vector;
    good.alignment_gradients = attn_alignment_gradients_default();
    good.alignment_gradients.score_v = &vector;
    good.bahdanau_gradients = attn_bahdanau_gradients_default();
    good.bahdanau_gradients.state = &of_state;
    good.mha_gradients = attn_mha_gradients_default();
    good.mha_gradients.x = &of_rows;
    good.block_weights = attn_block_weights_default();
    good.block_weights.self = &good.mha_weights;
    good.block_weights.w_up = attn_matrix(network, FF, D), good.block_weights.w_down = attn_matrix(network, D, FF);
    good.block_pass = attn_block_pass_default();
    good.block_gradients = attn_block_gradients_default();
    good.block_gradients.x = &of_rows;
    static const attn_block_weights *layers[] = {&good.block_weights, &good.block_weights};
    static attn_block_weights with_memory;
    static const attn_block_weights *decoder[] = {&with_memory};
    static float tables[WORDS * D];
    const attn_tensor table = attn_matrix(tables, WORDS, D);
    good.model_pass = attn_model_pass_default();
    good.bert_weights = attn_bert_weights_default();
    good.bert_weights.words = table, good.bert_weights.positions = attn_matrix(tables, PLACES, D);
    good.bert_weights.types = attn_matrix(tables, 2, D), good.bert_weights.layers = layers;
    with_memory = good.block_weights;
    with_memory.cross = &good.mha_weights;
    good.transformer_weights = attn_transformer_weights_default();
    good.transformer_weights.source_embedding = good.transformer_weights.target_embedding = table;
    good.transformer_weights.generator = table;
    good.transformer_weights.encoder = layers, good.transformer_weights.decoder = decoder;
    static const int64_t offsets[] = {0, 3};
    static const int32_t ids[] = {1, 2, 3};
    static float encoded[3 * D];
    static attn_tensor hidden;
    hidden = attn_btc(encoded, 1, 3, D);
    good.model_options = attn_model_options_default();
    good.info = attn_model_info_default();
    good.batch = attn_model_batch_default();
    good.batch.num_sequences = 1, good.batch.offsets = offsets, good.batch.ids = ids;
    good.model_outputs = attn_model_outputs_default();
    good.model_outputs.hidden = &hidden;
    good.tokens = attn_model_tokens_default();
    good.tokens.ids = ids;
    good.pairs = attn_transformer_pairs_default();
    good.pairs.num_pairs = 1;
    good.pairs.source_offsets = good.pairs.target_offsets = offsets;
    good.pairs.source_ids = good.pairs.target_ids = ids;
}

void add_lstm(struct named *n, struct memory *m, const char *prefix, int64_t layer, const char *direction)
{
    static const char *const kinds[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    for (int kind = 0; kind < 4; kind++) {
        char name[NAMED_LENGTH];
        snprintf(name, sizeof name, "%s_l%d%s", kinds[kind], (int)layer, direction);
        const int64_t columns = kind == 0 ? (layer ? HIDDEN : D) : kind == 1 ? HIDDEN : 4 * HIDDEN;
        named_add(n, m, ATTN_F32, kind < 2 ? 4 * HIDDEN : 0, columns, 0.5, 0, prefix, name);
    }
}

void add_bert(struct named *n, struct memory *m, const char *prefix, int64_t types)
{
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, prefix, "embeddings.word_embeddings.weight");
    named_add(n, m, ATTN_F32, PLACES, D, 1, 0, prefix, "embeddings.position_embeddings.weight");
    named_add(n, m, ATTN_F32, types, D, 1, 0, prefix, "embeddings.token_type_embeddings.weight");
    named_add_norm(n, m, ATTN_NORM_LAYER, D, prefix, "embeddings.LayerNorm");
    for (int64_t l = 0; l < 2; l++) {
        char layer[NAMED_LENGTH];
        layer_prefix(layer, prefix, "encoder.layer", l);
        named_add_block(n, m, &good.block, layer, ATTN_NAMING_BERT, 1);
    }
}

void add_llama(struct named *n, struct memory *m)
{
    attn_block_config block = good.block;
    block.gated = 1, block.norm = ATTN_NORM_RMS;
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "", "model.embed_tokens.weight");
    for (int64_t l = 0; l < 2; l++) {
        char layer[NAMED_LENGTH];
        layer_prefix(layer, "", "model.layers", l);
        named_add_block(n, m, &block, layer, ATTN_NAMING_LLAMA, 0);
    }
    named_add_norm(n, m, ATTN_NORM_RMS, D, "", "model.norm");
    named_add(n, m, ATTN_F32, WORDS, D, 0.3, 0, "", "lm_head.weight");
}

/** A layer of T5; matrices of attention and network, and norms. */
static void add_t5_layer(struct named *n, struct memory *m, const char *prefix, int cross)
{
    static const char *const attentions[] = {"layer.0.SelfAttention.", "layer.1.EncDecAttention."};
    static const char *const products[] = {"q", "k", "v", "o"};
    char name[NAMED_LENGTH];
    for (int a = 0; a <= cross; a++)
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "%s%s", attentions[a], products[i]);
            named_add_dense(n, m, D, D, 0, prefix, name);
        }
    snprintf(name, sizeof name, "layer.%d.DenseReluDense.wi", cross + 1);
    named_add_dense(n, m, FF, D, 0, prefix, name);
    snprintf(name, sizeof name, "layer.%d.DenseReluDense.wo", cross + 1);
    named_add_dense(n, m, D, FF, 0, prefix, name);
    for (int i = 0; i < cross + 2; i++) {
        snprintf(name, sizeof name, "layer.%d.layer_norm", i);
        named_add_norm(n, m, ATTN_NORM_RMS, D, prefix, name);
    }
}

void add_t5(struct named *n, struct memory *m, int head)
{
    static const char *const bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "", "shared.weight");
    named_add(n, m, ATTN_F32, 8, HEADS, 1, 0, "encoder.", bias);
    named_add(n, m, ATTN_F32, 8, HEADS, 1, 0, "decoder.", bias);
    add_t5_layer(n, m, "encoder.block.0.", 0);
    add_t5_layer(n, m, "encoder.block.1.", 0);
    add_t5_layer(n, m, "decoder.block.0.", 1);
    named_add_norm(n, m, ATTN_NORM_RMS, D, "encoder.", "final_layer_norm");
    named_add_norm(n, m, ATTN_NORM_RMS, D, "decoder.", "final_layer_norm");
    if (head)
        named_add(n, m, ATTN_F32, WORDS, D, 0.3, 0, "", "lm_head.weight");
}

static void add_transformer(struct named *n, struct memory *m, const char *prefix)
{
    attn_block_config block = good.block;
    char layer[NAMED_LENGTH];
    named_add(n, m, ATTN_F32, WORDS, D, 0.3, 0, prefix, "src_embedding.weight");
    named_add(n, m, ATTN_F32, WORDS, D, 0.3, 0, prefix, "tgt_embedding.weight");
    named_add(n, m, ATTN_F32, WORDS, D, 0.3, 0, prefix, "generator.weight");
    layer_prefix(layer, prefix, "encoder.layers", 0);
    named_add_block(n, m, &block, layer, ATTN_NAMING_TORCH, 1);
    block.cross = 1;
    layer_prefix(layer, prefix, "decoder.layers", 0);
    named_add_block(n, m, &block, layer, ATTN_NAMING_TORCH, 1);
}

void add_all(struct named *n, struct memory *m)
{
    named_add_block(n, m, &good.block, "block.", ATTN_NAMING_TORCH, 1);
    add_bert(n, m, "bert.", 2);
    add_transformer(n, m, "transformer.");
    add_lstm(n, m, "lstm.", 0, "");
}
