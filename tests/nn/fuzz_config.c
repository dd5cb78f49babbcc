/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes config.json of models' folders. The input is a byte that chooses among folders of small models, one that is
 * not looked at, and the file. Checked is that a folder that is accepted can be described and computes, or refuses to
 * with a sentence, with memory checkers watching; of a refused one, that there is a sentence of one line and no model.
 */
#include "../fuzz/fuzz.h"
#include "model_folder.h"
#include "small.h"

#include <unistd.h>

unsigned long fuzz_accepted;

const char *const fuzz_words[] = {"null",
                                  "true",
                                  "false",
                                  "[]",
                                  "{}",
                                  "0",
                                  "-1",
                                  "1e400",
                                  "0.5",
                                  "9223372036854775807",
                                  "4294967296",
                                  ",\"hidden_act\":\"gelu_new\"",
                                  ",\"hidden_act\":\"silu\"",
                                  ",\"sliding_window\":2",
                                  ",\"head_dim\":4",
                                  ",\"num_key_value_heads\":1",
                                  ",\"attention_bias\":true",
                                  ",\"tie_word_embeddings\":true",
                                  ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.0}",
                                  ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}",
                                  ",\"rope_scaling\":{\"type\":\"dynamic\"}",
                                  ",\"rope_theta\":0",
                                  ",\"scale_attn_weights\":false",
                                  ",\"feed_forward_proj\":\"gated-gelu\"",
                                  ",\"is_decoder\":true",
                                  ",\"quantization_config\":{}",
                                  "\"roberta\"",
                                  "\"mistral\"",
                                  "\"qwen3\"",
                                  "\"gemma2\"",
                                  "\"mt5\"",
                                  "\\u0000",
                                  "\xff",
                                  NULL};

enum { KINDS = 4, HEADER = 2, TOKENS = 3 };

static struct model_folder folders[KINDS];
static char configs[KINDS][2048]; /* as they were written, which are the seeds */

static void remove_folders(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        model_folder_remove(&folders[kind]);
}

static void make_folders(void)
{
    if (configs[0][0])
        return;
    struct memory *m = memory_create("fuzz_config", 0);
    folders[0] = model_folder_bert(m);
    folders[1] = model_folder_llama(m);
    folders[2] = model_folder_gpt2(m);
    folders[3] = model_folder_t5(m, 1);
    memory_destroy(m);
    atexit(remove_folders);
    for (int kind = 0; kind < KINDS; kind++) {
        char path[512];
        snprintf(path, sizeof path, "%s/config.json", folders[kind].path);
        FILE *file = fopen(path, "rb");
        FUZZ_CHECK(file != NULL);
        configs[kind][fread(configs[kind], 1, sizeof configs[kind] - 1, file)] = '\0';
        fclose(file);
    }
}

size_t fuzz_seed(unsigned index, uint8_t *out, size_t capacity)
{
    make_folders();
    if (index >= KINDS)
        return 0;
    const size_t size = strlen(configs[index]);
    FUZZ_CHECK(HEADER + size <= capacity);
    out[0] = (uint8_t)index;
    out[1] = 0;
    memcpy(out + HEADER, configs[index], size);
    return HEADER + size;
}

static void check_sentence(void)
{
    FUZZ_CHECK(attn_last_error()[0] != '\0');
    FUZZ_CHECK(strchr(attn_last_error(), '\n') == NULL && strchr(attn_last_error(), '\r') == NULL);
}

static void check(attn_status status)
{
    if (status != ATTN_OK)
        check_sentence();
}

static const int32_t IDS[TOKENS] = {1, 0, 2};
static float hidden_data[TOKENS * D], logits_data[TOKENS * WORDS];

static void encode(const attn_model *model)
{
    static const int64_t offsets[] = {0, TOKENS};
    const attn_tensor hidden = attn_bhtd(hidden_data, 1, 1, TOKENS, D);
    attn_model_batch batch = attn_model_batch_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    batch.num_sequences = 1, batch.offsets = offsets, batch.ids = IDS, batch.num_threads = 1;
    outputs.hidden = &hidden;
    check(attn_model_encode(model, &batch, &outputs));
}

static void step(const attn_model *model)
{
    const attn_tensor logits = attn_bhtd(logits_data, 1, 1, TOKENS, WORDS);
    const int64_t tokens = TOKENS;
    attn_cache_config config = attn_cache_config_default();
    attn_cache *cache = NULL;
    int64_t sequence;
    FUZZ_CHECK(attn_model_cache_config(model, &config) == ATTN_OK);
    config.max_tokens = 2 * TOKENS, config.max_sequences = 1;
    check(attn_cache_create(&cache, &config));
    if (cache == NULL)
        return;
    FUZZ_CHECK(attn_cache_add(cache, &sequence) == ATTN_OK);
    FUZZ_CHECK(attn_cache_step(cache, 1, &sequence, &tokens, NULL) == ATTN_OK);
    attn_model_tokens t = attn_model_tokens_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    t.ids = IDS, t.num_threads = 1;
    outputs.logits = &logits;
    check(attn_model_step(model, cache, &t, &outputs));
    attn_cache_destroy(cache);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    make_folders();
    if (size < HEADER)
        return 0;
    const struct model_folder *folder = &folders[data[0] % KINDS];
    model_folder_drop(folder,
                      "config.json"); /* ext4 writes a file that is cut to nothing and filled again to the disk */
    model_folder_write(folder, "config.json", data + HEADER, size - HEADER);
    attn_model *model = NULL;
    if (attn_model_open(&model, folder->path, NULL) != ATTN_OK) {
        check_sentence();
        FUZZ_CHECK(model == NULL);
        return 0;
    }
    fuzz_accepted++;
    attn_model_info info = attn_model_info_default();
    FUZZ_CHECK(attn_model_describe(model, &info) == ATTN_OK);
    FUZZ_CHECK(info.d_model == D && info.layers >= 0);
    if (info.kind == ATTN_MODEL_DECODER)
        step(model);
    else
        encode(model);
    attn_model_close(model);
    return 0;
}
