/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Transformer layer from named weights, under the names of several libraries.
 */
#include "nn/block.h"

#include "nn/check.h"
#include "nn/mha.h"

#include <inttypes.h>
#include <stdlib.h>

/** Those of the products of an attention. */
struct products {
    const char *query, *key, *value, *output;
};

/** Names behind a layer's prefix, without ".weight" and ".bias". */
struct names {
    struct products self, cross; /* NULL: packed as in nn.MultiheadAttention, behind the next two */
    const char *self_prefix, *cross_prefix;
    const char *packed; /* with self.output: query, key and value behind each other; or NULL */
    int turned;         /* matrices are (in, out) */
    const char *gate, *up, *down;
    const char *up_alone; /* up without a gate, where that has another name; or NULL */
    const char *self_norm, *cross_norm, *ff_norm;
    const char *query_norm, *key_norm;         /* NULL: these names have none */
    const char *self_post_norm, *ff_post_norm; /* the same */
};

static const struct names torch_names = {
    .self_prefix = "self_attn.",
    .up = "linear1",
    .down = "linear2",
    .self_norm = "norm1",
    .ff_norm = "norm2",
};

static const struct names torch_decoder_names = {
    .self_prefix = "self_attn.",
    .cross_prefix = "multihead_attn.",
    .up = "linear1",
    .down = "linear2",
    .self_norm = "norm1",
    .cross_norm = "norm2",
    .ff_norm = "norm3",
};

static const struct names bert_names = {
    .self.query = "attention.self.query",
    .self.key = "attention.self.key",
    .self.value = "attention.self.value",
    .self.output = "attention.output.dense",
    .up = "intermediate.dense",
    .down = "output.dense",
    .self_norm = "attention.output.LayerNorm",
    .ff_norm = "output.LayerNorm",
};

static const struct names distilbert_names = {
    .self.query = "attention.q_lin",
    .self.key = "attention.k_lin",
    .self.value = "attention.v_lin",
    .self.output = "attention.out_lin",
    .up = "ffn.lin1",
    .down = "ffn.lin2",
    .self_norm = "sa_layer_norm",
    .ff_norm = "output_layer_norm",
};

static const struct names llama_names = {
    .self.query = "self_attn.q_proj",
    .self.key = "self_attn.k_proj",
    .self.value = "self_attn.v_proj",
    .self.output = "self_attn.o_proj",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .self_norm = "input_layernorm",
    .ff_norm = "post_attention_layernorm",
    .query_norm = "self_attn.q_norm.weight",
    .key_norm = "self_attn.k_norm.weight",
};

static const struct names gemma2_names = {
    .self.query = "self_attn.q_proj",
    .self.key = "self_attn.k_proj",
    .self.value = "self_attn.v_proj",
    .self.output = "self_attn.o_proj",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .self_norm = "input_layernorm",
    .ff_norm = "pre_feedforward_layernorm",
    .self_post_norm = "post_attention_layernorm",
    .ff_post_norm = "post_feedforward_layernorm",
};

static const struct names gpt2_names = {
    .packed = "attn.c_attn",
    .self.output = "attn.c_proj",
    .turned = 1,
    .up = "mlp.c_fc",
    .down = "mlp.c_proj",
    .self_norm = "ln_1",
    .ff_norm = "ln_2",
};

static const struct names t5_names = {
    .self.query = "layer.0.SelfAttention.q",
    .self.key = "layer.0.SelfAttention.k",
    .self.value = "layer.0.SelfAttention.v",
    .self.output = "layer.0.SelfAttention.o",
    .gate = "layer.1.DenseReluDense.wi_0",
    .up = "layer.1.DenseReluDense.wi_1",
    .up_alone = "layer.1.DenseReluDense.wi",
    .down = "layer.1.DenseReluDense.wo",
    .self_norm = "layer.0.layer_norm",
    .ff_norm = "layer.1.layer_norm",
};

static const struct names t5_decoder_names = {
    .self.query = "layer.0.SelfAttention.q",
    .self.key = "layer.0.SelfAttention.k",
    .self.value = "layer.0.SelfAttention.v",
    .self.output = "layer.0.SelfAttention.o",
    .cross.query = "layer.1.EncDecAttention.q",
    .cross.key = "layer.1.EncDecAttention.k",
    .cross.value = "layer.1.EncDecAttention.v",
    .cross.output = "layer.1.EncDecAttention.o",
    .gate = "layer.2.DenseReluDense.wi_0",
    .up = "layer.2.DenseReluDense.wi_1",
    .up_alone = "layer.2.DenseReluDense.wi",
    .down = "layer.2.DenseReluDense.wo",
    .self_norm = "layer.0.layer_norm",
    .cross_norm = "layer.1.layer_norm",
    .ff_norm = "layer.2.layer_norm",
};

/** A linear layer's two tensors; the bias may be missing. Names that have it so store the matrix (in, out). */
static attn_status get_pair(struct nn_reader *reader, const struct names *names, const char *prefix, const char *name,
                            int64_t rows, int64_t columns, attn_tensor *weight, attn_tensor *bias)
{
    struct nn_prefix full;
    CHECK(nn_joined(&full, prefix, name));
    CHECK(nn_get(reader, full.text, ".weight", names->turned ? columns : rows, names->turned ? rows : columns, weight));
    if (names->turned) {
        const attn_tensor stored = *weight;
        weight->shape[2] = stored.shape[3], weight->shape[3] = stored.shape[2];
        weight->stride[2] = stored.stride[3], weight->stride[3] = stored.stride[2];
    }
    return nn_get_optional(reader, full.text, ".bias", 0, rows, bias);
}

static attn_status load_norm(struct nn_norm *norm, const struct attn_block *block, struct nn_reader *reader,
                             const char *prefix, const char *name)
{
    attn_tensor gamma, beta;
    CHECK(nn_get_norm(reader, prefix, name, block->attention.d_model, &gamma, &beta));
    if (beta.data && block->config.norm == ATTN_NORM_RMS)
        return attn_fail(ATTN_UNSUPPORTED, "%s%s.bias is in the weights; expected none with ATTN_NORM_RMS", prefix,
                         name);
    CHECK(nn_copy_floats(&gamma, &norm->gamma));
    for (int64_t c = 0; block->config.norm_plus_one && c < block->attention.d_model; c++)
        norm->gamma[c] += 1.0f;
    return nn_copy_floats(&beta, &norm->beta);
}

/** Rows first.. of a matrix, and that part of its bias. */
static void take_part(const attn_tensor *weight, const attn_tensor *bias, int64_t first, int64_t rows,
                      attn_tensor *part, attn_tensor *part_bias)
{
    *part = *weight;
    *part_bias = *bias;
    part->shape[2] = part_bias->shape[3] = rows;
    part->data = (char *)weight->data + first * weight->stride[2] * attn_element_size(weight->dtype);
    if (bias->data)
        part_bias->data = (char *)bias->data + first * bias->stride[3] * attn_element_size(bias->dtype);
}

/** An attention whose products have names of their own; packed: of the first three in one, or NULL. */
static attn_status load_products(attn_mha **mha, const attn_mha_config *c, const struct names *names,
                                 const struct products *products, const char *packed, struct nn_reader *reader,
                                 const char *prefix)
{
    const int64_t q = c->heads * c->head_dim, k = c->kv_heads * c->head_dim, v = c->kv_heads * c->value_dim;
    attn_mha_weights w = attn_mha_weights_default();
    if (packed) {
        attn_tensor weight, bias;
        CHECK(get_pair(reader, names, prefix, packed, q + k + v, c->d_model, &weight, &bias));
        take_part(&weight, &bias, 0, q, &w.w_q, &w.b_q);
        take_part(&weight, &bias, q, k, &w.w_k, &w.b_k);
        take_part(&weight, &bias, q + k, v, &w.w_v, &w.b_v);
    } else {
        CHECK(get_pair(reader, names, prefix, products->query, q, c->d_model, &w.w_q, &w.b_q));
        CHECK(get_pair(reader, names, prefix, products->key, k, c->d_memory, &w.w_k, &w.b_k));
        CHECK(get_pair(reader, names, prefix, products->value, v, c->d_memory, &w.w_v, &w.b_v));
    }
    CHECK(get_pair(reader, names, prefix, products->output, c->d_model, c->heads * c->value_dim, &w.w_o, &w.b_o));
    return attn_mha_create(mha, c, &w);
}

static attn_status load_self(struct attn_block *block, const struct names *names, struct nn_reader *reader,
                             const char *prefix)
{
    const attn_mha_config *c = &block->attention;
    if (!names->self.output) {
        struct nn_prefix full;
        CHECK(nn_joined(&full, prefix, names->self_prefix));
        return nn_mha_load(&block->self, c, reader, full.text);
    }
    CHECK(load_products(&block->self, c, names, &names->self, names->packed, reader, prefix));
    if (!block->config.qk_norm)
        return ATTN_OK;
    attn_tensor query, key;
    CHECK(nn_get(reader, prefix, names->query_norm, 0, c->head_dim, &query));
    CHECK(nn_get(reader, prefix, names->key_norm, 0, c->head_dim, &key));
    return nn_mha_set_norms(block->self, &query, &key, block->config.eps);
}

static attn_status load_cross(struct attn_block *block, const struct names *names, struct nn_reader *reader,
                              const char *prefix)
{
    attn_mha_config c = block->attention;
    c.d_memory = block->config.d_memory;
    if (names->cross.output)
        return load_products(&block->cross, &c, names, &names->cross, NULL, reader, prefix);
    struct nn_prefix full;
    CHECK(nn_joined(&full, prefix, names->cross_prefix));
    return nn_mha_load(&block->cross, &c, reader, full.text);
}

static attn_status load_network(struct attn_block *block, const struct names *names, struct nn_reader *reader,
                                const char *prefix)
{
    const attn_block_config *c = &block->config;
    const int64_t d = block->attention.d_model;
    attn_tensor matrices[2], biases[2], down, down_bias;
    int parts = 0;
    if (c->gated) {
        CHECK(get_pair(reader, names, prefix, names->gate, c->d_ff, d, &matrices[0], &biases[0]));
        parts = 1;
    }
    const char *up = names->up_alone && !c->gated ? names->up_alone : names->up;
    CHECK(get_pair(reader, names, prefix, up, c->d_ff, d, &matrices[parts], &biases[parts]));
    CHECK(get_pair(reader, names, prefix, names->down, d, c->d_ff, &down, &down_bias));
    CHECK(attn_linear_quantize(&block->up, c->format, parts + 1, matrices, biases));
    return attn_linear_quantize(&block->down, c->format, 1, &down, &down_bias);
}

attn_status nn_complete_block_config(attn_block_config *c, attn_mha_config *attention, const attn_block_config *theirs)
{
    if (!theirs)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config is NULL; expected an attn_block_config");
    CHECK(attn_take_struct("config", c, sizeof *c, NN_BLOCK_CONFIG_FIRST, theirs));
    CHECK(nn_complete_mha_config(attention, "config.attention", c->attention));
    if (attention->d_out != attention->d_model)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.attention.d_out is %" PRId64 "; expected 0 or d_model, %" PRId64
                         ", as x is added to it",
                         attention->d_out, attention->d_model);
    if (attention->d_memory != attention->d_model)
        return attn_fail(ATTN_INVALID_ARGUMENT,
                         "config.attention.d_memory is %" PRId64 "; expected 0 or d_model, %" PRId64
                         ", as it is self-attention; config.d_memory is that of cross-attention",
                         attention->d_memory, attention->d_model);
    CHECK(nn_check_length("config.d_ff", c->d_ff, 1));
    CHECK(nn_check_activation("config.activation", c->activation));
    if ((unsigned)c->norm > ATTN_NORM_RMS)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.norm is %d; expected an attn_norm", (int)c->norm);
    CHECK(nn_check_eps("config.eps", c->eps));
    CHECK(nn_check_length("config.d_memory", c->d_memory, 0));
    if (c->d_memory && !c->cross)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.d_memory is %" PRId64 "; expected 0 without cross",
                         c->d_memory);
    if (!c->d_memory)
        c->d_memory = attention->d_model;
    if (c->post_norms && !c->norm_first)
        return attn_fail(ATTN_INVALID_ARGUMENT, "config.post_norms is %d; expected 0 without norm_first",
                         c->post_norms);
    if (c->norm_plus_one && c->qk_norm)
        return attn_fail(ATTN_UNSUPPORTED, "config.norm_plus_one is %d; expected 0 with qk_norm", c->norm_plus_one);
    if (!attention->format)
        attention->format = c->format;
    return ATTN_OK;
}

static attn_status choose_names(const struct names **names, const attn_block_config *c, attn_naming naming)
{
    static const struct names *const all[] = {&torch_names,      &bert_names, &llama_names,
                                              &distilbert_names, &gpt2_names, &t5_names};
    if ((unsigned)naming >= sizeof all / sizeof *all)
        return attn_fail(ATTN_INVALID_ARGUMENT, "naming is %d; expected an attn_naming", (int)naming);
    *names = naming == ATTN_NAMING_TORCH && c->cross        ? &torch_decoder_names
             : naming == ATTN_NAMING_LLAMA && c->post_norms ? &gemma2_names
             : naming == ATTN_NAMING_T5 && c->cross         ? &t5_decoder_names
                                                            : all[naming];
    if (c->cross && !(*names)->cross_norm)
        return attn_fail(ATTN_UNSUPPORTED, "config.cross is set; expected 0, as these names have no cross-attention");
    if (c->gated && !(*names)->gate)
        return attn_fail(ATTN_UNSUPPORTED, "config.gated is set; expected 0, as these names have no gate");
    if (c->post_norms && !(*names)->self_post_norm)
        return attn_fail(ATTN_UNSUPPORTED,
                         "config.post_norms is set; expected 0, as these names have no norms behind sublayers");
    if (c->qk_norm && !(*names)->query_norm)
        return attn_fail(ATTN_UNSUPPORTED,
                         "config.qk_norm is set; expected 0, as these names have no norms of queries and keys");
    return ATTN_OK;
}

static attn_status load_all(struct attn_block *block, const struct names *names, struct nn_reader *reader,
                            const char *prefix)
{
    CHECK(load_self(block, names, reader, prefix));
    CHECK(load_norm(&block->self_norm, block, reader, prefix, names->self_norm));
    if (block->config.cross) {
        CHECK(load_cross(block, names, reader, prefix));
        CHECK(load_norm(&block->cross_norm, block, reader, prefix, names->cross_norm));
    }
    CHECK(load_network(block, names, reader, prefix));
    if (block->config.post_norms) {
        CHECK(load_norm(&block->self_post_norm, block, reader, prefix, names->self_post_norm));
        CHECK(load_norm(&block->ff_post_norm, block, reader, prefix, names->ff_post_norm));
    }
    return load_norm(&block->ff_norm, block, reader, prefix, names->ff_norm);
}

/** What published files have behind a layer's prefix and need not be read; the header says why. */
static const char *const llama_known[] = {"self_attn.rotary_emb.inv_freq", NULL};
static const char *const gpt2_known[] = {"attn.bias", "attn.masked_bias", NULL};
static const char *const t5_decoder_known[] = {"layer.1.EncDecAttention.relative_attention_bias.weight", NULL};

attn_status nn_block_load(attn_block **block_out, const attn_block_config *config, struct nn_reader *reader,
                          const char *prefix, attn_naming naming)
{
    attn_block_config completed;
    attn_mha_config attention;
    const struct names *names = NULL;
    CHECK(nn_complete_block_config(&completed, &attention, config));
    CHECK(choose_names(&names, &completed, naming));
    attn_block *block = calloc(1, sizeof *block);
    if (!block)
        return attn_fail(ATTN_OUT_OF_MEMORY, "a Transformer layer could not be allocated");
    block->config = completed;
    block->config.attention = &block->attention;
    block->attention = attention;
    attn_status status = load_all(block, names, reader, prefix);
    block->config.format = block->attention.format = NULL;
    /* Here, so that a model of another kind is refused after its first layer. */
    if (!status)
        status = nn_check_all_read(reader, prefix,
                                   naming == ATTN_NAMING_LLAMA  ? llama_known
                                   : naming == ATTN_NAMING_GPT2 ? gpt2_known
                                   : names == &t5_decoder_names ? t5_decoder_known
                                                                : NULL);
    if (status)
        attn_block_destroy(block);
    else
        *block_out = block;
    return status;
}

attn_status attn_block_load(attn_block **block_out, const attn_block_config *config, const attn_weights *weights,
                            const char *prefix, attn_naming naming)
{
    if (!block_out)
        return attn_fail(ATTN_INVALID_ARGUMENT, "block is NULL; expected where to put the layer");
    *block_out = NULL;
    struct nn_reader reader;
    CHECK(nn_reader_open(&reader, "attn_block_load", weights, prefix));
    const attn_status status = nn_block_load(block_out, config, &reader, prefix, naming);
    nn_reader_close(&reader);
    return status;
}

static void free_norm(struct nn_norm *norm)
{
    free(norm->gamma);
    free(norm->beta);
}

void attn_block_destroy(attn_block *block)
{
    if (!block)
        return;
    attn_mha_destroy(block->self);
    attn_mha_destroy(block->cross);
    attn_linear_destroy(block->up);
    attn_linear_destroy(block->down);
    free_norm(&block->self_norm);
    free_norm(&block->cross_norm);
    free_norm(&block->ff_norm);
    free_norm(&block->self_post_norm);
    free_norm(&block->ff_post_norm);
    free(block);
}

const attn_mha *attn_block_attention(const attn_block *block)
{
    return block->self;
}
