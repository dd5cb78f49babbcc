/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of small models, written and removed again. */
#include "model_folder.h"

#include "small.h"

#include <dirent.h>
#include <unistd.h>

static void path_in(char path[512], const struct model_folder *folder, const char *name)
{
    snprintf(path, 512, "%s/%s", folder->path, name);
}

struct model_folder model_folder_make(void)
{
    struct model_folder folder = {"/tmp/attn_model_XXXXXX"};
    assert_non_null(mkdtemp(folder.path));
    return folder;
}

void model_folder_write(const struct model_folder *folder, const char *name, const void *data, size_t size)
{
    char path[512];
    path_in(path, folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void model_folder_text(const struct model_folder *folder, const char *name, const char *text)
{
    model_folder_write(folder, name, text, strlen(text));
}

void model_folder_weights(const struct model_folder *folder, const char *name, const struct named *n, struct memory *m)
{
    size_t size;
    const char *file = named_file(n, m, &size);
    model_folder_write(folder, name, file, size);
}

void model_folder_drop(const struct model_folder *folder, const char *name)
{
    char path[512];
    path_in(path, folder, name);
    assert_int_equal(unlink(path), 0);
}

void model_folder_remove(const struct model_folder *folder)
{
    DIR *files = opendir(folder->path);
    assert_non_null(files);
    for (const struct dirent *entry; (entry = readdir(files));)
        if (entry->d_name[0] != '.')
            model_folder_drop(folder, entry->d_name);
    closedir(files);
    assert_int_equal(rmdir(folder->path), 0);
}

void model_folder_bert_config(const struct model_folder *folder, const char *more)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"bert\", \"architectures\": [\"BertModel\"], \"num_hidden_layers\": 2,\n"
             "\"hidden_size\": %d, \"num_attention_heads\": %d, \"intermediate_size\": %d, \"vocab_size\": %d,\n"
             "\"max_position_embeddings\": %d, \"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-5%s}\n",
             D, HEADS, FF, WORDS, PLACES, more);
    model_folder_text(folder, "config.json", text);
}

struct model_folder model_folder_bert(struct memory *m)
{
    struct model_folder folder = model_folder_make();
    struct named *n = named_create(m);
    make_configs();
    add_bert(n, m, "", 2);
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_bert_config(&folder, "");
    return folder;
}

void model_folder_llama_config(const struct model_folder *folder, const char *type, const char *architecture,
                               const char *more)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"architectures\": [\"%s\"], \"num_hidden_layers\": 2,\n"
             "\"hidden_size\": %d, \"num_attention_heads\": %d, \"intermediate_size\": %d, \"vocab_size\": %d,\n"
             "\"max_position_embeddings\": 40, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000,\n"
             "\"eos_token_id\": [1, 2], \"tie_word_embeddings\": false%s}\n",
             type, architecture, D, HEADS, FF, WORDS, more);
    model_folder_text(folder, "config.json", text);
}

struct model_folder model_folder_llama(struct memory *m)
{
    struct model_folder folder = model_folder_make();
    struct named *n = named_create(m);
    make_configs();
    add_llama(n, m);
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_llama_config(&folder, "llama", "LlamaForCausalLM", "");
    return folder;
}

struct model_folder model_folder_gpt2(struct memory *m)
{
    /* Matrices lie turned: inputs x outputs. */
    static const struct {
        const char *name;
        int64_t inputs, outputs;
    } products[] = {{"attn.c_attn", D, 3 * D}, {"attn.c_proj", D, D}, {"mlp.c_fc", D, FF}, {"mlp.c_proj", FF, D}};
    char text[512];
    struct model_folder folder = model_folder_make();
    struct named *n = named_create(m);
    make_configs();
    named_add(n, m, ATTN_F32, WORDS, D, 1, 0, "transformer.", "wte.weight");
    named_add(n, m, ATTN_F32, PLACES, D, 1, 0, "transformer.", "wpe.weight");
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        snprintf(text, sizeof text, "%s.weight", products[i].name);
        named_add(n, m, ATTN_F32, products[i].inputs, products[i].outputs, 0.3, 0, "transformer.h.0.", text);
        snprintf(text, sizeof text, "%s.bias", products[i].name);
        named_add(n, m, ATTN_F32, 0, products[i].outputs, 0.3, 0, "transformer.h.0.", text);
    }
    named_add_norm(n, m, ATTN_NORM_LAYER, D, "transformer.h.0.", "ln_1");
    named_add_norm(n, m, ATTN_NORM_LAYER, D, "transformer.h.0.", "ln_2");
    named_add_norm(n, m, ATTN_NORM_LAYER, D, "transformer.", "ln_f");
    model_folder_weights(&folder, "model.safetensors", n, m);
    snprintf(text, sizeof text,
             "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 1, \"n_embd\": %d,\n"
             "\"n_head\": %d, \"n_inner\": %d, \"vocab_size\": %d, \"n_positions\": %d}\n",
             D, HEADS, FF, WORDS, PLACES);
    model_folder_text(&folder, "config.json", text);
    return folder;
}

void model_folder_t5_config(const struct model_folder *folder, const char *more)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model_type\": \"t5\", \"num_layers\": 2, \"num_decoder_layers\": 1, \"d_model\": %d,\n"
             "\"num_heads\": %d, \"d_kv\": %d, \"d_ff\": %d, \"vocab_size\": %d,\n"
             "\"relative_attention_num_buckets\": 8, \"relative_attention_max_distance\": 20,\n"
             "\"decoder_start_token_id\": 0, \"pad_token_id\": 0, \"eos_token_id\": 1%s}\n",
             D, HEADS, D / HEADS, FF, WORDS, more);
    model_folder_text(folder, "config.json", text);
}

struct model_folder model_folder_t5(struct memory *m, int head)
{
    struct model_folder folder = model_folder_make();
    struct named *n = named_create(m);
    make_configs();
    add_t5(n, m, head);
    model_folder_weights(&folder, "model.safetensors", n, m);
    model_folder_t5_config(&folder, ", \"architectures\": [\"T5ForConditionalGeneration\"]");
    return folder;
}

void model_folder_refused(const struct model_folder *folder, attn_status status, const char *words)
{
    attn_model *model = (attn_model *)(void *)&good;
    REFUSES(NULL, attn_model_open(&model, folder->path, NULL), status, words);
    assert_null(model);
}
