/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the tokenizers of libattn_text. The input is a tokenizer.json, a NUL byte, and a text that is encoded if the
 * file is accepted, alone and as a pair. Checked is that ids have tokens, but for those that only a template names,
 * that a limit is kept, that an encoding is as it was when a text is refused, and that tokens have a text; of a refused
 * file, that there is a sentence of one line.
 */
#include "fuzz.h"

#include <string.h>

#include <attn/text.h>

unsigned long fuzz_accepted;

const char *const fuzz_words[] = {"\"a\":1",
                                  "[\"a\",\"b\"]",
                                  "[\"a\",-1.5]",
                                  ",",
                                  "{}",
                                  "[]",
                                  "null",
                                  "true",
                                  "{\"type\":\"NFKC\"}",
                                  "{\"type\":\"BertNormalizer\"}",
                                  "{\"type\":\"Nmt\"}",
                                  "{\"type\":\"Strip\"}",
                                  "{\"type\":\"Whitespace\"}",
                                  "{\"type\":\"ByteLevel\"}",
                                  "{\"type\":\"Fuse\"}",
                                  "{\"type\":\"ByteFallback\"}",
                                  "\"MergedWithNext\"",
                                  "\"Contiguous\"",
                                  "\"invert\":true,",
                                  "\"byte_fallback\":true,",
                                  "\"ignore_merges\":true,",
                                  "\"lstrip\":true,",
                                  "\"rstrip\":true,",
                                  "\\\\s+",
                                  "[^a]",
                                  "(?!a)",
                                  " ",
                                  "\xe2\x96\x81",
                                  "<0x41>",
                                  "\xff",
                                  "\xe4\xb8",
                                  "aaaaaaaaaaaaaaaaaaaaaaaa",
                                  NULL};

#define METASPACE "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"first\"}"

size_t fuzz_seed(unsigned index, uint8_t *out, size_t capacity)
{
    static const char *const seeds[][2] = {
        {"{\"normalizer\":{\"type\":\"BertNormalizer\",\"strip_accents\":null},\"pre_tokenizer\":{\"type\":"
         "\"BertPreTokenizer\"},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"[C]\":1,"
         "\"a\":2,"
         "\"##b\":3,\"##ab\":4}},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
         "\"id\":"
         "\"[C]\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"A\"}},"
         "{"
         "\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{\"[C]\":{\"ids\":[1]}}},\"added_tokens\":[{"
         "\"id\":1,\"content\":\"[C]\",\"special\":true,\"normalized\":false}],\"decoder\":{\"type\":\"WordPiece\"},"
         "\"truncation\":{\"max_length\":8,\"strategy\":\"LongestFirst\",\"direction\":\"Left\"}}",
         "A \xc3\xa1"
         "b aab [C] \xe4\xb8\xad!"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true}"
         ",{"
         "\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s+|a\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\","
         "\"add_prefix_space\":false}]},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xc4\xa0\":3,"
         "\"\xc4\xa0"
         "a\":4},\"merges\":[[\"a\",\"b\"],\"\xc4\xa0 a\"]},\"decoder\":{\"type\":\"ByteLevel\"}}",
         "ab abab  a 12 ba"},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Replace\","
         "\"pattern\":{"
         "\"String\":\"  \"},\"content\":\" \"}]},\"pre_tokenizer\":" METASPACE
         ",\"model\":{\"type\":\"Unigram\",\"unk_id\":"
         "0,\"byte_fallback\":true,\"vocab\":[[\"<u>\",0],[\"\xe2\x96\x81\",-2],[\"a\",-1.5],[\"\xe2\x96\x81"
         "ab\",-3],"
         "[\"b\",-2.5],[\"<0x41>\",-9]]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{"
         "\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}",
         "ab  abA a\xef\xac\x81 b"},
    };
    if (index >= sizeof seeds / sizeof seeds[0])
        return 0;
    const size_t file = strlen(seeds[index][0]) + 1, text = strlen(seeds[index][1]);
    FUZZ_CHECK(file + text <= capacity);
    memcpy(out, seeds[index][0], file);
    memcpy(out + file, seeds[index][1], text);
    return file + text;
}

/* An allocation of exactly the size, so that a sanitizer or valgrind sees a read past the end. */
static char *exact_copy(const uint8_t *bytes, size_t size)
{
    char *copy = malloc(size > 0 ? size : 1);
    FUZZ_CHECK(copy != NULL);
    if (size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

static void check_sentence(void)
{
    FUZZ_CHECK(attn_last_error()[0] != '\0');
    FUZZ_CHECK(strchr(attn_last_error(), '\n') == NULL && strchr(attn_last_error(), '\r') == NULL);
}

static void check_tokens(const attn_tokenizer *tokenizer, const attn_encoding *tokens)
{
    char text[64];
    size_t length = SIZE_MAX;
    for (int64_t i = 0; i < tokens->count; i++)
        FUZZ_CHECK(tokens->ids[i] >= 0 && tokens->types[i] >= 0);
    if (attn_tokenizer_decode(tokenizer, tokens->ids, tokens->count, 1, text, sizeof text, &length) != ATTN_OK)
        check_sentence();
    else
        FUZZ_CHECK(length < SIZE_MAX);
}

static void check_text(const attn_tokenizer *tokenizer, const char *text, size_t size)
{
    attn_encoding tokens = attn_encoding_default();
    attn_encode_options options = attn_encode_options_default();
    if (attn_tokenizer_encode(tokenizer, text, size, NULL, &tokens) != ATTN_OK) {
        check_sentence();
        FUZZ_CHECK(tokens.count == 0);
    }
    check_tokens(tokenizer, &tokens);
    const int64_t before = tokens.count;
    options.bare = 1, options.max_tokens = 3;
    if (attn_tokenizer_encode_pair(tokenizer, text, size / 2, text, size, &options, &tokens) != ATTN_OK) {
        check_sentence();
        FUZZ_CHECK(tokens.count == before);
    }
    FUZZ_CHECK(tokens.count >= before);
    attn_encoding_free(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size > 0 ? memchr(data, '\0', size) : NULL;
    const size_t length = nul != NULL ? (size_t)(nul - data) : size, rest = nul != NULL ? size - length - 1 : 0;
    char *file = exact_copy(data, length);
    attn_tokenizer *tokenizer;
    if (attn_tokenizer_parse(&tokenizer, file, length, "fuzz") == ATTN_OK) {
        fuzz_accepted++;
        char *text = exact_copy(data + size - rest, rest);
        check_text(tokenizer, text, rest);
        free(text);
        attn_tokenizer_close(tokenizer);
    } else {
        check_sentence();
    }
    free(file);
    return 0;
}
