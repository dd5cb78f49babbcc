/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a language model, writes its chat template, and reads tokens. */
#include "language_model.h"

#include <stdlib.h>
#include <string.h>

#include "io/config.h"
#include "settings.h"

struct language_model {
    struct settings settings;
    struct byte_pairs *tokenizer;
    int32_t turn_start, turn_end; /* of the chat template, which may be missing */
    attn_llama *llama;
    attn_cache *cache;
    int64_t text; /* its sequence */
    float *logits;
};

/* ----------------------------------------------------------------- opening -- */

static attn_status check_tokens(struct language_model *m, const char *path)
{
    const int64_t tokens = byte_pairs_size(m->tokenizer), expected = m->settings.llama.vocabulary;
    if (tokens != expected)
        return io_fail(ATTN_INVALID_FILE, "%s has %lld tokens; expected %lld, the model's vocab_size", path,
                       (long long)tokens, (long long)expected);
    if (m->settings.end_of_turn >= tokens)
        return io_fail(ATTN_INVALID_FILE, "%s: there is no token %lld, the model's eos_token_id", path,
                       (long long)m->settings.end_of_turn);
    m->turn_start = byte_pairs_special(m->tokenizer, "<|im_start|>");
    m->turn_end = byte_pairs_special(m->tokenizer, "<|im_end|>");
    if (m->settings.chats && (m->turn_start < 0 || m->turn_end < 0))
        return io_fail(ATTN_INVALID_FILE,
                       "%s: %s is no special token; expected it to be one, as it is in the chat template", path,
                       m->turn_start < 0 ? "<|im_start|>" : "<|im_end|>");
    return ATTN_OK;
}

static attn_status load(struct language_model *m, const char *path, const attn_linear_format *format,
                        attn_dtype activations)
{
    attn_weights *weights;
    attn_llama_config config = m->settings.llama;
    config.format = format;
    config.activations = activations;
    CHECK(attn_weights_open(&weights, path));
    const attn_status status = attn_llama_load(&m->llama, &config, weights);
    attn_weights_destroy(weights);
    return status;
}

static attn_status open_files(struct language_model *m, const char *folder, const attn_linear_format *format,
                              attn_dtype activations)
{
    char *tokenizer = config_beside(folder, "tokenizer.json"), *weights = config_beside(folder, "model.safetensors");
    attn_status status = tokenizer && weights ? settings_read(&m->settings, folder) : ATTN_OUT_OF_MEMORY;
    if (status == ATTN_OK)
        status = byte_pairs_open(&m->tokenizer, tokenizer);
    if (status == ATTN_OK)
        status = check_tokens(m, tokenizer);
    if (status == ATTN_OK)
        status = load(m, weights, format, activations);
    free(tokenizer);
    free(weights);
    return status;
}

attn_status language_model_open(struct language_model **out, const char *folder, const attn_linear_format *format,
                                attn_dtype activations)
{
    *out = NULL;
    struct language_model *m = calloc(1, sizeof *m);
    if (!m)
        return io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", folder);
    attn_status status = open_files(m, folder, format, activations);
    if (status == ATTN_OK) {
        m->logits = malloc((size_t)m->settings.llama.vocabulary * (DRAFTS_MOST + 1) * sizeof *m->logits);
        status = m->logits ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "%s: out of memory", folder);
    }
    if (status != ATTN_OK) {
        language_model_close(m);
        return status;
    }
    *out = m;
    return ATTN_OK;
}

void language_model_close(struct language_model *m)
{
    if (!m)
        return;
    attn_cache_destroy(m->cache);
    attn_llama_destroy(m->llama);
    byte_pairs_close(m->tokenizer);
    free(m->logits);
    free(m);
}

const struct byte_pairs *language_model_tokenizer(const struct language_model *m)
{
    return m->tokenizer;
}

int64_t language_model_vocabulary(const struct language_model *m)
{
    return m->settings.llama.vocabulary;
}

int64_t language_model_positions(const struct language_model *m)
{
    return m->settings.positions;
}

bool language_model_ends(const struct language_model *m, int32_t id)
{
    return id == m->settings.end_of_turn;
}

/* -------------------------------------------------------------------- chat -- */

static attn_status put_token(struct token_ids *ids, int32_t id)
{
    return token_ids_add(ids, id) ? ATTN_OK : io_fail(ATTN_OUT_OF_MEMORY, "out of memory for the tokens of the prompt");
}

/* <|im_start|>role\ncontent, as one piece of text: tokens may go over the line break. */
static attn_status put_turn(const struct language_model *m, const char *role, const char *content,
                            struct token_ids *ids)
{
    const size_t head = strlen(role), size = head + 1 + strlen(content);
    char *text = malloc(size + 1);
    if (!text)
        return io_fail(ATTN_OUT_OF_MEMORY, "out of memory for a text of %zu bytes", size);
    memcpy(text, role, head);
    text[head] = '\n';
    strcpy(text + head + 1, content);
    attn_status status = put_token(ids, m->turn_start);
    if (status == ATTN_OK)
        status = byte_pairs_encode(m->tokenizer, text, size, ids);
    free(text);
    return status;
}

static attn_status end_turn(const struct language_model *m, struct token_ids *ids)
{
    CHECK(put_token(ids, m->turn_end));
    return byte_pairs_encode(m->tokenizer, "\n", 1, ids);
}

attn_status language_model_chat(const struct language_model *m, const char *system, const char *prompt,
                                struct token_ids *ids)
{
    if (!m->settings.chats)
        return io_fail(ATTN_UNSUPPORTED, "the model's folder has no chat template in tokenizer_config.json; expected "
                                         "one, or --raw for a text to go on with");
    if (!system)
        system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
    CHECK(put_turn(m, "system", system, ids));
    CHECK(end_turn(m, ids));
    CHECK(put_turn(m, "user", prompt, ids));
    CHECK(end_turn(m, ids));
    return put_turn(m, "assistant", "", ids);
}

/* ------------------------------------------------------------------ reading -- */

attn_status language_model_start(struct language_model *m, int64_t capacity, const struct kept_keys *kept)
{
    attn_cache_config config = attn_cache_config_default();
    config.max_tokens = capacity + DRAFTS_MOST;
    config.max_sequences = 1;
    config.page_size = kept->page < capacity ? kept->page : 0;
    CHECK(attn_llama_cache_config(m->llama, &config));
    config.dtype = kept->dtype;
    attn_cache_destroy(m->cache);
    CHECK(attn_cache_create(&m->cache, &config));
    return attn_cache_add(m->cache, &m->text);
}

attn_status language_model_read(struct language_model *m, const int32_t *ids, int64_t count, int threads,
                                const float **logits)
{
    const attn_tensor out = attn_btc(m->logits, 1, 1, m->settings.llama.vocabulary);
    const int64_t last = count - 1;
    *logits = m->logits;
    CHECK(attn_cache_step(m->cache, 1, &m->text, &count, NULL));
    return attn_llama_step(m->llama, m->cache, ids, NULL, 1, &last, &out, threads);
}

attn_status language_model_verify(struct language_model *m, const struct drafts *drafts, int threads,
                                  const float **logits)
{
    const int64_t count = drafts->count, before = attn_cache_length(m->cache, m->text);
    const attn_tensor out = attn_btc(m->logits, 1, count, m->settings.llama.vocabulary);
    int64_t positions[DRAFTS_MOST + 1];
    uint64_t ancestors[DRAFTS_MOST + 1];
    for (int i = 0; i < drafts->count; i++) {
        positions[i] = before + drafts->depths[i];
        ancestors[i] = UINT64_C(1) << i | (i > 0 ? ancestors[drafts->parents[i]] : 0);
    }
    const attn_tree tree = {count, ancestors};
    *logits = m->logits;
    CHECK(attn_cache_step(m->cache, 1, &m->text, &count, positions));
    return attn_llama_step(m->llama, m->cache, drafts->ids, &tree, 0, NULL, &out, threads);
}

attn_status language_model_accept(struct language_model *m, const struct drafts *drafts, int node)
{
    const int64_t before = attn_cache_length(m->cache, m->text) - drafts->count;
    const int64_t accepted = drafts->depths[node] + 1;
    int64_t kept[DRAFTS_MOST + 1];
    for (int64_t i = accepted - 1; i >= 0; i--, node = drafts->parents[node])
        kept[i] = before + node;
    return attn_cache_keep(m->cache, m->text, before, accepted, kept);
}
