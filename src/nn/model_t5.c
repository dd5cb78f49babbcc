/* SPDX-License-Identifier: Apache-2.0 */
/*
 * T5 (Raffel et al. 2020) from a folder, and its encoder at work: pre-norm layers
 * with RMSNorm, scores that are not scaled, and instead of positions a bias for
 * each head and bucket of distances, of which the first layer has the table for
 * all. The decoder is an attn_llama of such layers.
 */
#include "nn/model.h"

#include "nn/bert.h"
#include "nn/block.h"
#include "nn/check.h"
#include "nn/llama.h"
#include "nn/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct nn_t5 {
    int64_t layers, d_model, heads, vocabulary;
    attn_dtype activations;
    float eps;
    attn_relative_bias bias; /* its table is the next one */
    float *table;            /* [heads][buckets] */
    attn_tensor embedding;   /* (vocabulary, d_model), of the type that it came in */
    float *gamma;            /* of the last norm */
    attn_block *blocks[];
};

/* ------------------------------------------------------------------ loading -- */

/** What config.json says of the layers. */
struct sizes {
    int64_t layers, decoder_layers, d_model, heads, head_dim, d_ff, vocabulary, positions, buckets, max_distance;
    attn_activation activation;
    bool gated;
    double eps;
};

/** How the classes of config.json end. */
enum part { ENCODER, BOTH, BOTH_WITH_HEAD };

/** "relu", "gated-gelu" and the like; that of the gate is the approximation by tanh. */
static attn_status read_network(struct sizes *s, const struct config *config, const char *otherwise)
{
    static const char name[] = "feed_forward_proj";
    const char *text = otherwise;
    CHECK(config_text_or(config, name, &text));
    s->gated = strncmp(text, "gated-", 6) == 0;
    const char *rest = s->gated ? text + 6 : text;
    if (strcmp(rest, "relu") == 0)
        s->activation = ATTN_ACTIVATION_RELU;
    else if (strcmp(rest, "silu") == 0)
        s->activation = ATTN_ACTIVATION_SILU;
    else if (strcmp(text, "gated-gelu") == 0)
        s->activation = ATTN_ACTIVATION_GELU_TANH;
    else
        return nn_model_refuse(config, name, "relu, silu, gated-relu, gated-silu or gated-gelu");
    return ATTN_OK;
}

static attn_status read_sizes(struct sizes *s, const struct config *config, const char *network, enum part part)
{
    *s = (struct sizes){.buckets = 32, .max_distance = 128, .positions = INT32_MAX, .eps = 1e-6};
    CHECK(config_integer(config, "num_layers", 1, &s->layers));
    s->decoder_layers = s->layers;
    CHECK(config_integer_or(config, "num_decoder_layers", 1, &s->decoder_layers));
    CHECK(config_integer(config, "d_model", 1, &s->d_model));
    CHECK(config_integer(config, "num_heads", 1, &s->heads));
    CHECK(config_integer(config, "d_kv", 1, &s->head_dim));
    CHECK(config_integer(config, "d_ff", 1, &s->d_ff));
    CHECK(config_integer(config, "vocab_size", 1, &s->vocabulary));
    CHECK(config_integer_or(config, "relative_attention_num_buckets", 4, &s->buckets));
    CHECK(config_integer_or(config, "relative_attention_max_distance", 1, &s->max_distance));
    CHECK(config_number_or(config, "layer_norm_epsilon", &s->eps));
    if (s->buckets % 2 != 0)
        return nn_model_refuse(config, "relative_attention_num_buckets", "an even number");
    /* Buckets of one distance each: half of those that a query has for keys on one side. */
    if (s->max_distance <= s->buckets / (part == ENCODER ? 4 : 2))
        return nn_model_refuse(config, "relative_attention_max_distance",
                               part == ENCODER ? "more than a quarter of 'relative_attention_num_buckets'"
                                               : "more than half of 'relative_attention_num_buckets'");
    return read_network(s, config, network);
}

/** The biases of a stack by head, as the core wants them; the file has them by bucket. */
static attn_status load_bias(float **table, const struct sizes *s, struct nn_reader *reader, const char *stack)
{
    attn_tensor rows;
    struct nn_prefix name;
    CHECK(nn_joined(&name, stack, "block.0.layer.0.SelfAttention.relative_attention_bias.weight"));
    CHECK(nn_get(reader, "", name.text, s->buckets, s->heads, &rows));
    const attn_tensor by_head = {.data = rows.data,
                                 .dtype = rows.dtype,
                                 .shape = {1, 1, s->heads, s->buckets},
                                 .stride = {0, 0, rows.stride[3], rows.stride[2]}};
    return nn_copy_floats(&by_head, table);
}

/** Whether a matrix of a file is another one's copy: of the same type, bit by bit. */
static bool is_copy(const attn_tensor *matrix, const attn_tensor *copy)
{
    const int64_t size = attn_element_size(copy->dtype);
    bool same = matrix->dtype == copy->dtype;
    for (int64_t row = 0; same && row < copy->shape[2]; row++)
        same = memcmp(nn_weight_address(matrix, row, 0), nn_weight_address(copy, row, 0),
                      (size_t)(copy->shape[3] * size)) == 0;
    return same;
}

/** The embedding, and that others under the names of the stacks, which older files have, are the same. */
static attn_status load_embedding(struct nn_t5 *t5, const struct sizes *s, struct nn_folder *folder, enum part part)
{
    static const char *const names[] = {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
    struct nn_reader *reader = &folder->reader;
    const int num = part == ENCODER ? 2 : 3;
    for (int i = 0; i < num; i++) {
        attn_tensor t;
        if (!nn_has(reader, "", names[i]) && !(i == 1 && !t5->embedding.data))
            continue;
        CHECK(nn_get(reader, "", names[i], s->vocabulary, s->d_model, &t));
        if (!t5->embedding.data)
            CHECK(nn_copy_weights(&t, &t5->embedding));
        else if (!is_copy(&t, &t5->embedding))
            return io_fail(ATTN_UNSUPPORTED, "%s: %s is not the embedding again; expected one for both stacks",
                           folder->path, names[i]);
    }
    return ATTN_OK;
}

static attn_status load_encoder(struct nn_t5 *t5, const struct sizes *s, struct nn_folder *folder)
{
    struct nn_reader *reader = &folder->reader;
    attn_mha_config attention = attn_mha_config_default();
    attn_block_config block = attn_block_config_default();
    attn_tensor gamma;
    CHECK(nn_get(reader, "", "encoder.final_layer_norm.weight", 0, s->d_model, &gamma));
    CHECK(nn_copy_floats(&gamma, &t5->gamma));
    CHECK(load_bias(&t5->table, s, reader, "encoder."));
    t5->bias = (attn_relative_bias){ATTN_BUCKETS_T5_BIDIRECTIONAL, s->buckets, s->max_distance, t5->table};
    attention.d_model = s->d_model;
    attention.heads = s->heads;
    attention.head_dim = s->head_dim;
    block.attention = &attention;
    block.d_ff = s->d_ff;
    block.activation = s->activation;
    block.gated = s->gated;
    block.norm = ATTN_NORM_RMS;
    block.eps = (float)s->eps;
    block.norm_first = 1;
    block.format = folder->options.format;
    for (int64_t layer = 0; layer < s->layers; layer++) {
        struct nn_prefix name;
        CHECK(nn_numbered(&name, "", "encoder.block.", layer));
        CHECK(nn_block_load(&t5->blocks[layer], &block, reader, name.text, ATTN_NAMING_T5));
    }
    return ATTN_OK;
}

/** The factor of logits: tied ones are scaled, unless Transformers 5 has written that they are not. 0: 1. */
static attn_status read_logit_scale(float *scale, const struct sizes *s, const struct config *config)
{
    bool scaled = true;
    CHECK(config_boolean_or(config, "tie_word_embeddings", &scaled));
    CHECK(config_boolean_or(config, "scale_decoder_outputs", &scaled));
    *scale = scaled ? (float)(1 / sqrt((double)s->d_model)) : 0;
    return ATTN_OK;
}

/** The decoder; the output matrix is the embedding, if the file has no other. */
static attn_status load_decoder(attn_model *model, const struct sizes *s, struct nn_folder *folder, float logit_scale,
                                enum part part)
{
    static const char *const known[] = {"*EncDecAttention.relative_attention_bias.weight", NULL};
    struct nn_reader *reader = &folder->reader;
    float *table;
    CHECK(load_bias(&table, s, reader, "decoder."));
    const attn_relative_bias bias = {ATTN_BUCKETS_T5, s->buckets, s->max_distance, table};
    const struct nn_llama_kind kind = {
        .prefix = "decoder.",
        .layers = "block.",
        .norm = "final_layer_norm",
        .naming = ATTN_NAMING_T5,
        .norm_kind = ATTN_NORM_RMS,
        .activation = s->activation,
        .gated = s->gated,
        .headless = part == BOTH,
        .bias = &bias,
        .words = &model->t5->embedding,
        .cross = 1,
        .known = known,
        .scale = 1,
        .logit_scale = logit_scale,
    };
    attn_llama_config c = attn_llama_config_default();
    c.layers = s->decoder_layers;
    c.d_model = s->d_model;
    c.heads = c.kv_heads = s->heads;
    c.head_dim = s->head_dim;
    c.d_ff = s->d_ff;
    c.vocabulary = s->vocabulary;
    c.eps = (float)s->eps;
    c.tied = !nn_has(reader, "", "lm_head.weight");
    c.format = folder->options.format;
    c.activations = folder->options.activations;
    const attn_status status = nn_llama_load(&model->llama, &c, &kind, reader);
    free(table);
    return status;
}

static void describe(attn_model *model, const struct sizes *s, enum part part)
{
    model->info.kind = part == ENCODER ? ATTN_MODEL_ENCODER : ATTN_MODEL_ENCODER_DECODER;
    model->info.decoder_layers = part == ENCODER ? 0 : s->decoder_layers;
    model->info.logits = part == BOTH_WITH_HEAD ? s->vocabulary : 0;
    model->info.layers = s->layers;
    model->info.d_model = s->d_model;
    model->info.heads = model->info.kv_heads = s->heads;
    model->info.head_dim = s->head_dim;
    model->info.d_ff = s->d_ff;
    model->info.vocabulary = s->vocabulary;
    model->info.max_positions = model->info.max_tokens = s->positions;
}

static attn_status choose_part(enum part *part, const attn_model *model, const struct nn_folder *folder)
{
    static const char *const ends[] = {"EncoderModel", "Model", "ForConditionalGeneration"};
    const char *rest = *model->architecture ? model->architecture + strlen(folder->class_name) : ends[BOTH_WITH_HEAD];
    for (int i = ENCODER; i <= BOTH_WITH_HEAD; i++)
        if (strcmp(rest, ends[i]) == 0) {
            *part = (enum part)i;
            return ATTN_OK;
        }
    return io_fail(
        ATTN_UNSUPPORTED, "%s: 'architectures' is '%s'; expected %sEncoderModel, %sModel or %sForConditionalGeneration",
        folder->config.path, model->architecture, folder->class_name, folder->class_name, folder->class_name);
}

/** network: without an entry; scaled: whether logits may be. */
static attn_status load(attn_model *model, struct nn_folder *folder, const char *network, bool scaled)
{
    struct sizes s;
    enum part part = ENCODER;
    float logit_scale = 0;
    CHECK(choose_part(&part, model, folder));
    CHECK(read_sizes(&s, &folder->config, network, part));
    if (scaled)
        CHECK(read_logit_scale(&logit_scale, &s, &folder->config));
    CHECK(attn_check_count("num_layers", sizeof(attn_block *), s.layers, 1, 1));
    describe(model, &s, part);
    struct nn_t5 *t5 = calloc(1, sizeof *t5 + (size_t)s.layers * sizeof *t5->blocks);
    if (!t5)
        return attn_fail(ATTN_OUT_OF_MEMORY, "an encoder of %" PRId64 " layers could not be allocated", s.layers);
    model->t5 = t5;
    t5->layers = s.layers;
    t5->d_model = s.d_model;
    t5->heads = s.heads;
    t5->vocabulary = s.vocabulary;
    t5->activations = folder->options.activations;
    t5->eps = (float)s.eps;
    CHECK(load_embedding(t5, &s, folder, part));
    CHECK(load_encoder(t5, &s, folder));
    CHECK(part == ENCODER ? nn_check_all_read(&folder->reader, "", NULL)
                          : load_decoder(model, &s, folder, logit_scale, part));
    return nn_model_read_sentence(model, folder);
}

attn_status nn_model_load_t5(attn_model *model, struct nn_folder *folder)
{
    return load(model, folder, "relu", true);
}

/** The logits of mT5 are not scaled, whatever tie_word_embeddings says. */
attn_status nn_model_load_mt5(attn_model *model, struct nn_folder *folder)
{
    return load(model, folder, "gated-gelu", false);
}

void nn_t5_destroy(struct nn_t5 *t5)
{
    if (!t5)
        return;
    for (int64_t layer = 0; layer < t5->layers; layer++)
        attn_block_destroy(t5->blocks[layer]);
    free(t5->embedding.data);
    free(t5->table);
    free(t5->gamma);
    free(t5);
}

/* ----------------------------------------------------------------- encoding -- */

/** Working memory of a call: states, and that of a layer. */
struct pieces {
    void *states, *block;
    size_t block_size;
};

/** A layer's workspace serves with weights asked for or not, as the core's second pass has scratch of its own. */
static struct pieces take_pieces(struct nn_arena *arena, const struct nn_t5 *t5, int64_t tokens, attn_params *params,
                                 const attn_block_inputs *inputs)
{
    const attn_tensor weights = attn_bhtd(NULL, 1, t5->heads, tokens, tokens);
    struct pieces pieces = {.states = nn_take(arena, tokens, t5->d_model, 1, attn_dtype_size(t5->activations))};
    struct nn_need need = {0};
    if (!arena->base) {
        need = nn_block_need(t5->blocks[0], t5->activations, 1, tokens, inputs);
        params->weights = &weights;
        need = nn_larger_need(need, nn_block_need(t5->blocks[0], t5->activations, 1, tokens, inputs));
        params->weights = NULL;
    }
    pieces.block = nn_take_workspace(arena, need, &pieces.block_size);
    return pieces;
}

static attn_status run(const struct nn_t5 *t5, const struct nn_bert_call *call, const attn_tensor *states,
                       attn_params *params, const attn_block_inputs *inputs, const struct pieces *pieces)
{
    const attn_tensor gamma = attn_vector(t5->gamma, t5->d_model);
    CHECK(attn_embed(&t5->embedding, call->ids, 1, 0, states, call->num_threads));
    for (int64_t layer = 0; layer < t5->layers; layer++) {
        if (call->states && call->states[layer])
            CHECK(attn_activate(ATTN_ACTIVATION_NONE, states, call->states[layer], call->num_threads));
        params->weights = call->weights ? call->weights[layer] : NULL;
        CHECK(attn_block_forward(t5->blocks[layer], states, states, inputs, pieces->block, pieces->block_size));
    }
    CHECK(attn_normalise(ATTN_NORM_RMS, states, &gamma, NULL, t5->eps, call->hidden, call->num_threads));
    return call->states && call->states[t5->layers]
               ? attn_activate(ATTN_ACTIVATION_NONE, call->hidden, call->states[t5->layers], call->num_threads)
               : ATTN_OK;
}

attn_status nn_t5_encode(const struct nn_t5 *t5, const struct nn_bert_call *call)
{
    const int64_t tokens = call->offsets[call->num_sequences];
    CHECK(nn_check_ids("ids", call->ids, 0, tokens, t5->vocabulary));
    if (call->types)
        return attn_fail(ATTN_INVALID_ARGUMENT, "types is set; expected NULL, as T5 has no token types");
    CHECK(nn_check_encoder_outputs(call, t5->layers, t5->heads, t5->d_model));
    CHECK(nn_check_threads(call->num_threads));
    const attn_ragged ragged = {call->num_sequences, call->offsets, call->offsets};
    attn_params params = attn_params_default();
    attn_block_inputs inputs = attn_block_inputs_default();
    params.ragged = &ragged;
    params.scale = 1;
    params.relative_bias = &t5->bias;
    inputs.self = &params;
    inputs.num_threads = call->num_threads;
    struct nn_arena measured = {0};
    take_pieces(&measured, t5, tokens, &params, &inputs);
    struct nn_workspace w;
    CHECK(nn_workspace_open(&w, NULL, 0, &measured));
    const struct pieces pieces = take_pieces(&w.arena, t5, tokens, &params, &inputs);
    attn_tensor states = attn_btc(pieces.states, 1, tokens, t5->d_model);
    states.dtype = t5->activations;
    const attn_status status = run(t5, call, &states, &params, &inputs, &pieces);
    nn_workspace_close(&w);
    return status;
}
