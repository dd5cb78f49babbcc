/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a language model, entry by entry. */
#include "settings.h"

#include <string.h>

#include "io/config.h"

/* What SmolLM2 was tuned on; language_model_chat() writes the same. */
static const char chat_template[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static attn_status expect_text(const struct config *config, const char *name, const char *expected)
{
    const char *text;
    CHECK(config_text(config, name, &text));
    return strcmp(text, expected) == 0
               ? ATTN_OK
               : io_fail(ATTN_UNSUPPORTED, "%s: '%s' is '%s'; expected %s, which is what smollm computes", config->path,
                         name, text, expected);
}

/* Entries that may be missing, and would change the numbers if they were set. */
static attn_status expect_off(const struct config *config)
{
    static const char *const names[] = {"attention_bias", "mlp_bias", "rope_scaling", "sliding_window"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *item = json_object_get(config->root, names[i]);
        if (item && !json_is_false(item) && !json_is_null(item))
            return io_fail(ATTN_UNSUPPORTED, "%s: '%s' is set; expected null or false, which is what smollm computes",
                           config->path, names[i]);
    }
    return ATTN_OK;
}

static attn_status read_sizes(struct settings *s, const struct config *config)
{
    attn_llama_config *c = &s->llama;
    double eps, base;
    bool tied;
    CHECK(expect_text(config, "model_type", "llama"));
    CHECK(expect_text(config, "hidden_act", "silu"));
    CHECK(expect_off(config));
    CHECK(config_integer(config, "num_hidden_layers", 1, &c->layers));
    CHECK(config_integer(config, "hidden_size", 1, &c->d_model));
    CHECK(config_integer(config, "num_attention_heads", 1, &c->heads));
    CHECK(config_integer(config, "num_key_value_heads", 1, &c->kv_heads));
    if (json_object_get(config->root, "head_dim"))
        CHECK(config_integer(config, "head_dim", 1, &c->head_dim));
    CHECK(config_integer(config, "intermediate_size", 1, &c->d_ff));
    CHECK(config_integer(config, "vocab_size", 1, &c->vocabulary));
    CHECK(config_integer(config, "max_position_embeddings", 2, &s->positions));
    CHECK(config_integer(config, "eos_token_id", 0, &s->end_of_turn));
    CHECK(config_number(config, "rms_norm_eps", &eps));
    CHECK(config_number(config, "rope_theta", &base));
    CHECK(config_boolean(config, "tie_word_embeddings", &tied));
    c->eps = (float)eps;
    c->tied = tied;
    s->rope.base = base;
    return ATTN_OK;
}

static attn_status read_template(struct settings *s, const char *folder)
{
    static const char name[] = "chat_template";
    struct config config;
    bool there;
    CHECK(config_open_optional(&config, folder, "tokenizer_config.json", &there));
    if (!there)
        return ATTN_OK;
    const json_t *item = json_object_get(config.root, name);
    attn_status status = ATTN_OK;
    s->chats = json_is_string(item) && strcmp(json_string_value(item), chat_template) == 0;
    if (item && !json_is_null(item) && !s->chats)
        status = io_fail(ATTN_UNSUPPORTED, "%s: '%s' is not that of SmolLM2-Instruct, which is what smollm writes",
                         config.path, name);
    config_close(&config);
    return status;
}

attn_status settings_read(struct settings *s, const char *folder)
{
    struct config config;
    *s = (struct settings){
        .llama = attn_llama_config_default(), .rope = attn_rope_config_default(), .positions = 0, .chats = false};
    s->llama.rope = &s->rope;
    CHECK(config_open(&config, folder));
    const attn_status status = read_sizes(s, &config);
    config_close(&config);
    return status == ATTN_OK ? read_template(s, folder) : status;
}
