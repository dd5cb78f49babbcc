/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prompt in, text out: a language model from the folder that Transformers saves it in, over an attn_cache. The prompt
 * is read in one step, each token that is made in one of its own; the likeliest token is taken.
 *
 *     generate_text FOLDER PROMPT [TOKENS]
 *
 * The command attn generate is this with options, sampling, drafts, and many prompts at once.
 */
#include <attn/nn.h>
#include <attn/text.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what)
{
    fprintf(stderr, "generate_text: %s: %s\n", what, attn_last_error());
    return 1;
}

/* Reads the tokens behind those in the cache; logits are those behind the last one. */
static attn_status read_tokens(const attn_model *model, attn_cache *cache, int64_t sequence, const int32_t *ids,
                               int64_t count, const attn_tensor *logits)
{
    const int64_t last = count - 1;
    attn_model_tokens tokens = attn_model_tokens_default();
    attn_model_outputs outputs = attn_model_outputs_default();
    tokens.ids = ids, tokens.num_rows = 1, tokens.rows = &last;
    outputs.logits = logits;
    const attn_status status = attn_cache_step(cache, 1, &sequence, &count, NULL);
    return status != ATTN_OK ? status : attn_model_step(model, cache, &tokens, &outputs);
}

static int32_t likeliest(const float *logits, int64_t vocabulary)
{
    int32_t best = 0;
    for (int32_t id = 1; id < vocabulary; id++)
        if (logits[id] > logits[best])
            best = id;
    return best;
}

static int ends(const attn_model_info *info, int32_t id)
{
    for (int64_t i = 0; i < info->num_eos; i++)
        if (info->eos[i] == id)
            return 1;
    return 0;
}

/* Prints what is new of the text of ids[count]: a character may take several tokens, and waits for all of them. */
static size_t print_new(const attn_tokenizer *tokenizer, const int32_t *ids, int64_t count, size_t printed)
{
    static const char cut[] = "\xef\xbf\xbd"; /* U+FFFD, for half a character */
    size_t size = 0;
    attn_tokenizer_decode(tokenizer, ids, count, 0, NULL, 0, &size);
    char *text = malloc(size + 1);
    if (!text || attn_tokenizer_decode(tokenizer, ids, count, 0, text, size, &size) != ATTN_OK || size < printed ||
        (size >= 3 && memcmp(text + size - 3, cut, 3) == 0))
        size = printed;
    else
        fwrite(text + printed, 1, size - printed, stdout);
    fflush(stdout);
    free(text);
    return size;
}

int main(int argc, char **argv)
{
    attn_tokenizer *tokenizer;
    attn_model *model;
    attn_cache *cache;
    attn_model_info info = attn_model_info_default();
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "Usage: generate_text FOLDER PROMPT [TOKENS]\n");
        return 2;
    }
    if (attn_tokenizer_open(&tokenizer, argv[1]) != ATTN_OK)
        return fail("the tokenizer");
    if (attn_model_open(&model, argv[1], NULL) != ATTN_OK || attn_model_describe(model, &info) != ATTN_OK)
        return fail("the model");
    if (info.kind != ATTN_MODEL_DECODER || info.logits == 0) {
        fprintf(stderr, "generate_text: %s is no language model\n", argv[1]);
        return 1;
    }

    attn_encoding prompt = attn_encoding_default();
    if (attn_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), NULL, &prompt) != ATTN_OK || prompt.count == 0)
        return fail("the prompt");
    const int64_t wanted = argc == 4 ? atoll(argv[3]) : 100;
    attn_cache_config config = attn_cache_config_default();
    config.max_tokens = prompt.count + wanted, config.max_sequences = 1;
    int64_t sequence;
    if (attn_model_cache_config(model, &config) != ATTN_OK || attn_cache_create(&cache, &config) != ATTN_OK ||
        attn_cache_add(cache, &sequence) != ATTN_OK)
        return fail("the cache");

    float *row = malloc((size_t)info.vocabulary * sizeof *row);
    int32_t *made = calloc((size_t)wanted + 1, sizeof *made);
    if (!row || !made)
        return 1;
    const attn_tensor logits = attn_btc(row, 1, 1, info.vocabulary);
    size_t printed = 0;
    attn_status status = read_tokens(model, cache, sequence, prompt.ids, prompt.count, &logits);
    for (int64_t n = 0; status == ATTN_OK && n < wanted; n++) {
        made[n] = likeliest(row, info.vocabulary);
        if (ends(&info, made[n]))
            break;
        printed = print_new(tokenizer, made, n + 1, printed);
        if (n + 1 < wanted)
            status = read_tokens(model, cache, sequence, &made[n], 1, &logits);
    }
    putchar('\n');
    if (status != ATTN_OK)
        return fail("a step");

    free(row);
    free(made);
    attn_encoding_free(&prompt);
    attn_cache_destroy(cache);
    attn_model_close(model);
    attn_tokenizer_close(tokenizer);
    return 0;
}
