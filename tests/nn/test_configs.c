/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What config.json may not say: models of each architecture with one entry too
 * many or another value, each with the sentence that names the entry.
 */
#include "model_folder.h"
#include "small.h"

/** The entries that an architecture has to have. */
#define ENCODER(size, heads)                                                                                           \
    "\"num_hidden_layers\": 2, \"hidden_size\": " size ", \"num_attention_heads\": " heads ", "                        \
    "\"intermediate_size\": 12, \"vocab_size\": 9, \"max_position_embeddings\": 6"
static const char encoder[] = ENCODER("8", "2");
static const char t5[] =
    "\"num_layers\": 2, \"d_model\": 8, \"num_heads\": 2, \"d_kv\": 4, \"d_ff\": 12, \"vocab_size\": 9";

static const struct {
    const char *type, *entries, *more, *words;
    attn_status status;
} wrongs[] = {
    {"bert", encoder, "\"is_decoder\": true",
     "/config.json: 'is_decoder' is true; expected false or null, as models are computed without it", ATTN_UNSUPPORTED},
    {"bert", encoder, "\"hidden_act\": \"mish\"",
     "'hidden_act' is 'mish'; expected gelu, gelu_new, gelu_pytorch_tanh, relu, silu, swish or tanh", ATTN_UNSUPPORTED},
    {"bert", encoder, "\"architectures\": []",
     "'architectures' is another array; expected an array of the name of one class", ATTN_INVALID_FILE},
    {"bert", encoder, "\"architectures\": [\"LlamaModel\"]",
     "'architectures' is 'LlamaModel'; expected a class of Bert, as 'model_type' says", ATTN_UNSUPPORTED},
    {"bert", encoder, "\"position_embedding_type\": \"relative_key\"",
     "/config.json: 'position_embedding_type' is 'relative_key'; expected absolute", ATTN_UNSUPPORTED},
    {"bert", encoder, "\"pruned_heads\": {\"0\": [1]}", "/config.json: 'pruned_heads' is an object; expected none",
     ATTN_UNSUPPORTED},
    {"bert", ENCODER("9", "2"), "\"is_decoder\": false",
     "/config.json: 'hidden_size' is 9; expected a multiple of 'num_attention_heads', 2", ATTN_INVALID_FILE},
    {"bert", encoder, "\"architectures\": [\"BertForSequenceClassification\"]",
     " has no tensor 'pooler.dense.weight'; expected it in a BertForSequenceClassification", ATTN_INVALID_FILE},
    {"roberta", encoder, "\"pad_token_id\": 5",
     "'pad_token_id' is 5; expected 0 to 4, so that positions are left behind it", ATTN_INVALID_FILE},
    {"llama", ENCODER("8", "8"), "\"is_decoder\": false",
     "/config.json: 'num_attention_heads' is 8; expected heads of 2 channels", ATTN_INVALID_FILE},
    {"llama", encoder, "\"hidden_act\": \"relu\"", "/config.json: 'hidden_act' is 'relu'; expected silu",
     ATTN_UNSUPPORTED},
    {"llama", encoder, "\"rope_scaling\": 3", "/config.json: 'rope_scaling' is 3; expected an object or null",
     ATTN_UNSUPPORTED},
    {"llama", encoder, "\"rope_scaling\": {\"rope_type\": \"dynamic\"}",
     "'rope_type' of 'rope_scaling' is 'dynamic'; expected default, linear, yarn or llama3", ATTN_UNSUPPORTED},
    {"llama", encoder, "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 0.5}",
     "/config.json: 'factor' of the rotations is 0.5; expected 1 or more", ATTN_INVALID_FILE},
    {"llama", encoder, "\"partial_rotary_factor\": 0.1",
     "'partial_rotary_factor' is 0.1 of heads of 4; expected a part that has channels", ATTN_INVALID_FILE},
    {"llama", encoder, "\"rope_theta\": 0.5", "/config.json: 'rope_theta' is 0.5; expected 1 or more",
     ATTN_INVALID_FILE},
    {"llama", encoder, "\"architectures\": [\"LlamaForSequenceClassification\"]",
     "'architectures' is 'LlamaForSequenceClassification'; expected LlamaForCausalLM or LlamaModel", ATTN_UNSUPPORTED},
    {"llama", encoder, "\"attention_bias\": true",
     ": self_attn.q_proj.bias is not in the weights; expected it there, as |/config.json says", ATTN_INVALID_FILE},
    {"qwen3", encoder, "\"eos_token_id\": 1",
     "/config.json: 'head_dim' is missing; expected the channels of a head, which Qwen 3 names", ATTN_UNSUPPORTED},
    {"qwen3", encoder,
     "\"head_dim\": 4, \"use_sliding_window\": true, \"sliding_window\": 5, \"max_window_layers\": 0, "
     "\"layer_types\": [\"chunked_attention\", \"full_attention\"]",
     "'layer_types' is chunked_attention for layer 0; expected full_attention or sliding_attention", ATTN_UNSUPPORTED},
    {"gemma2", encoder, "\"eos_token_id\": 1",
     "/config.json: 'head_dim' is missing; expected the channels of a head, which Gemma 2 names", ATTN_UNSUPPORTED},
    {"gemma2", encoder, "\"head_dim\": 4, \"query_pre_attn_scalar\": \"all\"",
     "/config.json: 'query_pre_attn_scalar' is 'all'; expected a number", ATTN_INVALID_FILE},
    {"gemma2", encoder, "\"head_dim\": 4, \"query_pre_attn_scalar\": 0",
     "/config.json: 'query_pre_attn_scalar' is 0; expected a positive number", ATTN_UNSUPPORTED},
    {"gemma2", encoder, "\"head_dim\": 4, \"final_logit_softcapping\": -1",
     "'final_logit_softcapping' is -1; expected a number that is not negative, or null", ATTN_UNSUPPORTED},
    {"gpt2", "\"n_layer\": 2, \"n_embd\": 9, \"n_head\": 2, \"vocab_size\": 9", "\"n_positions\": 6",
     "'n_embd' is 9; expected a multiple of 'n_head', 2, and twice that", ATTN_INVALID_FILE},
    {"t5", t5, "\"relative_attention_num_buckets\": 9",
     "/config.json: 'relative_attention_num_buckets' is 9; expected an even number", ATTN_UNSUPPORTED},
    {"t5", t5, "\"architectures\": [\"T5EncoderModel\"], \"relative_attention_max_distance\": 8",
     "'relative_attention_max_distance' is 8; expected more than a quarter of 'relative_attention_num_buckets'",
     ATTN_UNSUPPORTED},
    {"t5", t5, "\"architectures\": [\"T5Model\"], \"relative_attention_max_distance\": 16",
     "'relative_attention_max_distance' is 16; expected more than half of 'relative_attention_num_buckets'",
     ATTN_UNSUPPORTED},
};

static void test_wrongs(void **state)
{
    (void)state;
    struct memory *m = memory_for_refusals("configs wrongs", 0);
    struct model_folder folders[] = {model_folder_bert(m), model_folder_llama(m)};
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        const struct model_folder *folder = &folders[strcmp(wrongs[i].type, "llama") == 0]; /* whose weights it reads */
        attn_model *model = (attn_model *)(void *)&good;
        char text[1024];
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s, %s}", wrongs[i].type, wrongs[i].entries,
                 wrongs[i].more);
        model_folder_text(folder, "config.json", text);
        REFUSES(NULL, attn_model_open(&model, folder->path, NULL), wrongs[i].status, wrongs[i].words);
        assert_null(model);
    }
    nn_end_refusals();
    model_folder_remove(&folders[0]);
    model_folder_remove(&folders[1]);
    memory_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wrongs)};
    nn_begin();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
