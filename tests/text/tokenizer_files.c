/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tokenizers in the tests, and what is expected of them. */
#include "tokenizer_files.h"

#include <stdlib.h>

enum { LONGEST = 4000 };

static attn_status parse(attn_tokenizer **tokenizer, const char *file)
{
    char json[LONGEST];
    assert_true(strlen(file) < sizeof json);
    strcpy(json, file);
    for (char *c = json; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c;
    return attn_tokenizer_parse(tokenizer, json, strlen(json), "t.json");
}

attn_tokenizer *open_text(const char *file)
{
    attn_tokenizer *tokenizer = NULL;
    if (parse(&tokenizer, file) != ATTN_OK)
        fail_msg("%s\n%s", attn_last_error(), file);
    return tokenizer;
}

attn_status refuse_text(const char *file)
{
    attn_tokenizer *tokenizer = NULL;
    const attn_status status = parse(&tokenizer, file);
    if (status == ATTN_OK)
        fail_msg("accepted: %s", file);
    assert_null(tokenizer);
    return status;
}

static void compare(const attn_tokenizer *tokenizer, const attn_encoding *encoding, const char *text,
                    const char *tokens)
{
    char found[LONGEST] = "";
    for (int64_t i = 0; i < encoding->count; i++) {
        const char *token = attn_tokenizer_token(tokenizer, encoding->ids[i]);
        const size_t length = strlen(found);
        assert_non_null(token);
        snprintf(found + length, sizeof found - length, "%s%s", i > 0 ? "|" : "", token);
    }
    if (strcmp(found, tokens) != 0)
        fail_msg("'%s' became '%s'; expected '%s'", text, found, tokens);
}

void expect_tokens(const attn_tokenizer *tokenizer, const char *text, const attn_encode_options *options,
                   const char *tokens)
{
    attn_encoding encoding = attn_encoding_default();
    if (attn_tokenizer_encode(tokenizer, text, strlen(text), options, &encoding) != ATTN_OK)
        fail_msg("'%s': %s", text, attn_last_error());
    compare(tokenizer, &encoding, text, tokens);
    attn_encoding_free(&encoding);
}

void expect_pair(const attn_tokenizer *tokenizer, const char *text, const char *second,
                 const attn_encode_options *options, const char *tokens, const char *types)
{
    attn_encoding encoding = attn_encoding_default();
    if (attn_tokenizer_encode_pair(tokenizer, text, strlen(text), second, strlen(second), options, &encoding) !=
        ATTN_OK)
        fail_msg("'%s': %s", text, attn_last_error());
    compare(tokenizer, &encoding, text, tokens);
    assert_int_equal(encoding.count, strlen(types));
    for (int64_t i = 0; i < encoding.count; i++)
        assert_int_equal(encoding.types[i], types[i] - '0');
    attn_encoding_free(&encoding);
}

void expect_text(const attn_tokenizer *tokenizer, const int32_t *ids, int keep_special, const char *text)
{
    char found[LONGEST] = "";
    int64_t count = 0;
    size_t length = 0;
    while (ids[count] >= 0)
        count++;
    assert_int_equal(attn_tokenizer_decode(tokenizer, ids, count, keep_special, found, sizeof found - 1, &length),
                     ATTN_OK);
    assert_int_equal(length, strlen(found));
    if (strcmp(found, text) != 0)
        fail_msg("the text is '%s'; expected '%s'", found, text);
}

/* Appends text as JSON has it. */
static void append_quoted(char *json, const char *text, size_t size)
{
    char *at = json + strlen(json);
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)text[i];
        at += c < 0x20 || c == '"' || c == '\\' ? sprintf(at, "\\u%04x", c) : sprintf(at, "%c", c);
    }
}

void expect_pieces(const char *normalizer, const char *pre_tokenizer, const char *text, const char *pieces)
{
    char json[LONGEST], given[1000], with[2000], seen[1000] = "|";
    int id = 1;
    snprintf(with, sizeof with,
             "{'normalizer':%s,'pre_tokenizer':%s,'model':{'type':'WordLevel','unk_token':'?','vocab':{",
             normalizer != NULL ? normalizer : "null", pre_tokenizer != NULL ? pre_tokenizer : "null");
    for (char *c = with; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c;
    snprintf(json, sizeof json, "%s\"?\":0", with);
    for (const char *at = pieces; *at != '\0';) {
        const size_t length = strcspn(at, "|");
        snprintf(given, sizeof given, "|%.*s|", (int)length, at);
        if (strstr(seen, given) == NULL) {
            strcat(seen, given + 1);
            strcat(json, ",\"");
            append_quoted(json, at, length);
            sprintf(json + strlen(json), "\":%d", id++);
        }
        at += length + (at[length] == '|');
    }
    strcat(json, "}}}");
    attn_tokenizer *tokenizer = NULL;
    if (attn_tokenizer_parse(&tokenizer, json, strlen(json), "t.json") != ATTN_OK)
        fail_msg("%s\n%s", attn_last_error(), json);
    expect_tokens(tokenizer, text, NULL, pieces);
    attn_tokenizer_close(tokenizer);
}
